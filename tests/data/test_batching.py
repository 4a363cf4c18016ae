"""Texts of many lengths in batches, against values written by hand and what holds for any texts."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from tfbook.text.batching import LengthGroupedSampler, Sequences

TEXTS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=60)


class TestSequences:
    def test_rows_are_those_written_by_hand(self) -> None:
        sequences = Sequences([[1, 2, 3], [4], [5, 6]], pad=9)
        assert sequences.padded(torch.tensor([2, 0])).tolist() == [[5, 6, 9], [1, 2, 3]]
        assert sequences.padded(torch.tensor([0, 2]), skip=1).tolist() == [[2, 3], [6, 9]]
        assert sequences.padded(torch.tensor([0, 2]), drop=1).tolist() == [[1, 2], [5, 9]]


class TestLengthGroupedSampler:
    def test_the_first_length_counts_then_the_next(self) -> None:
        first, second = torch.tensor([1, 2] * 8), torch.tensor([1, 1, 2, 2] * 4)
        rows = LengthGroupedSampler(first, second, size=4, seed=0)
        for step in range(4):
            chosen = rows(step)
            assert len(set(first[chosen].tolist())) == len(set(second[chosen].tolist())) == 1

    def test_lengths_are_sorted_within_a_pool_only(self) -> None:
        """Two pools: were all rows sorted, each length would be in one batch or two."""
        lengths = torch.arange(2 * LengthGroupedSampler.POOL * 4)
        spans = [
            lengths[rows].max() - lengths[rows].min()
            for rows in map(LengthGroupedSampler(lengths, size=4, seed=0), range(100))
        ]
        assert max(map(int, spans)) > 3

    @given(TEXTS, st.integers(1, 70), st.integers(-5, 5))
    def test_an_epoch_holds_every_text_once(self, texts: list[list[int]], size: int, seed: int) -> None:
        sequences = Sequences(texts, pad=0)
        rows = LengthGroupedSampler(sequences.lengths, size=size, seed=seed)
        assert len(rows) == -(-len(texts) // size)
        for epoch in range(2):
            chosen = [rows(epoch * len(rows) + step) for step in range(len(rows))]
            assert Counter(row for batch in chosen for row in batch.tolist()) == Counter(range(len(texts)))
            for batch in chosen:
                ids, lengths = sequences.padded(batch), sequences.lengths[batch]
                assert [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)] == [
                    texts[row] for row in batch
                ]
                assert ids.shape[1] == lengths.max()
                assert int((ids != 0).sum()) == int(lengths.sum())

    def test_a_step_is_the_same_whatever_was_asked_before(self) -> None:
        lengths = torch.tensor([1 + n % 7 for n in range(1, 40)])
        there, back = (LengthGroupedSampler(lengths, size=4, seed=3) for _ in range(2))
        forward = {step: there(step).tolist() for step in range(25)}
        assert {step: back(step).tolist() for step in reversed(range(25))} == forward
        assert [forward[step] for step in range(10)] != [forward[step] for step in range(10, 20)]
        assert forward[0] != LengthGroupedSampler(lengths, size=4, seed=4)(0).tolist()

    def test_little_is_padding_and_lengths_are_mixed_over_time(self) -> None:
        dice = random.Random(0)
        sequences = Sequences([[1] * dice.randint(1, 30) for _ in range(4000)], pad=0)
        rows = LengthGroupedSampler(sequences.lengths, size=10, seed=0)
        epoch = [rows(step) for step in range(len(rows))]
        lengths = [sequences.lengths[batch] for batch in epoch]
        padding = 1 - sum(map(int, map(torch.sum, lengths))) / sum(sequences.padded(batch).numel() for batch in epoch)
        assert padding < 0.05  # 45% when drawn blindly
        means = torch.stack([each.float().mean() for each in lengths])
        assert abs(float(means[:200].mean() - means[200:].mean())) < 3

    def test_errors_name_the_argument(self) -> None:
        with pytest.raises(ValueError, match="size is 0; expected 1 or more per batch"):
            LengthGroupedSampler(torch.tensor([1]), size=0, seed=0)
        with pytest.raises(ValueError, match="step is -1; expected 0 or more"):
            LengthGroupedSampler(torch.tensor([1]), size=2, seed=0)(-1)


def test_an_integer_of_numpy_is_a_seed() -> None:
    """Also a large one: it is no 64-bit product that overflows."""
    for seed in (3, 2**60):
        one, other = (LengthGroupedSampler(torch.arange(9), size=4, seed=kind(seed)) for kind in (int, np.int64))
        assert torch.equal(one(5), other(5))
