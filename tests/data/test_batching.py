"""Texts of many lengths in batches, against values written by hand and what holds for any texts."""

import random
from collections import Counter

import pytest
import torch
from hypothesis import given, strategies as st

from tfbook.text import TextBatch, TextBatches
from tfbook.text.batching import LengthGroupedSampler, Sequences

TEXTS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=60)


def read(batch: TextBatch) -> list[tuple[int, ...]]:
    """The texts of a batch without their padding."""
    return [tuple(row[:length].tolist()) for row, length in zip(batch.ids, batch.lengths, strict=True)]


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


class TestTextBatches:
    def test_ids_and_labels_are_those_written_by_hand(self) -> None:
        batch = TextBatches([[5, 6, 7], [8]], [1, 0], size=2, seed=0)(0)
        assert batch.ids.tolist() == [[8, 0, 0], [5, 6, 7]]
        assert (batch.lengths.tolist(), batch.labels.tolist()) == ([1, 3], [0, 1])
        assert {tensor.dtype for tensor in vars(batch).values()} == {torch.int64}

    def test_another_id_may_pad(self) -> None:
        assert TextBatches([[5, 6, 7], [8]], size=2, seed=0, pad=3)(0).ids.tolist() == [[8, 3, 3], [5, 6, 7]]

    @given(TEXTS, st.integers(1, 70), st.integers(-5, 5))
    def test_an_epoch_holds_every_text_once_with_its_label(self, texts: list[list[int]], size: int, seed: int) -> None:
        batches = TextBatches(texts, [sum(text) for text in texts], size=size, seed=seed)
        assert len(batches) == -(-len(texts) // size)
        for epoch in range(2):
            epoch_batches = [batches(epoch * len(batches) + step) for step in range(len(batches))]
            assert Counter(text for batch in epoch_batches for text in read(batch)) == Counter(map(tuple, texts))
            for batch in epoch_batches:
                assert [sum(text) for text in read(batch)] == batch.labels.tolist()
                assert batch.ids.shape[1] == batch.lengths.max()
                assert int((batch.ids != 0).sum()) == int(batch.lengths.sum())

    def test_a_step_is_the_same_whatever_was_asked_before(self) -> None:
        texts = [[n] * (1 + n % 7) for n in range(1, 40)]
        there, back = (TextBatches(texts, size=4, seed=3) for _ in range(2))
        forward = {step: there(step).ids.tolist() for step in range(25)}
        assert {step: back(step).ids.tolist() for step in reversed(range(25))} == forward
        assert [forward[step] for step in range(10)] != [forward[step] for step in range(10, 20)]
        assert forward[0] != TextBatches(texts, size=4, seed=4)(0).ids.tolist()

    def test_little_is_padding_and_lengths_are_mixed_over_time(self) -> None:
        dice = random.Random(0)
        batches = TextBatches([[1] * dice.randint(1, 30) for _ in range(4000)], size=10, seed=0)
        epoch = [batches(step) for step in range(len(batches))]
        padding = 1 - sum(int(batch.lengths.sum()) for batch in epoch) / sum(batch.ids.numel() for batch in epoch)
        assert padding < 0.05  # 45% when drawn blindly
        means = torch.stack([batch.lengths.float().mean() for batch in epoch])
        assert abs(float(means[:200].mean() - means[200:].mean())) < 3

    @pytest.mark.parametrize("labels", [None, [1, 0]])
    def test_a_batch_moves_to_a_device_as_one(self, labels: list[int] | None) -> None:
        batch = TextBatches([[5, 6, 7], [8]], labels, size=2, seed=0)(0).to("meta")
        moved = [tensor for tensor in vars(batch).values() if tensor is not None]
        assert [tensor.device.type for tensor in moved] == ["meta"] * (2 if labels is None else 3)

    def test_errors_name_the_argument(self) -> None:
        for texts in ([], [[1], []]):
            with pytest.raises(
                ValueError, match="sequences is empty or holds an empty one; expected at least one, each of at"
            ):
                TextBatches(texts, size=2, seed=0)
        with pytest.raises(ValueError, match="labels holds 1 for 2 sequences; expected one for each"):
            TextBatches([[1], [2]], [0], size=2, seed=0)
        with pytest.raises(ValueError, match="size is 0; expected 1 or more per batch"):
            TextBatches([[1]], size=0, seed=0)
        with pytest.raises(ValueError, match="step is -1; expected 0 or more"):
            TextBatches([[1]], size=2, seed=0)(-1)
