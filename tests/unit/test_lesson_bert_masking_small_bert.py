"""Small BERTs read what they should, tokens are masked as asked, and fine-tuning begins where pretraining ended."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from tfbook.data.sentences import LabeledText, LabeledTexts
from tfbook.lessons.bert_masking import small_bert
from tfbook.lessons.bert_masking.small_bert import LONGEST, SPAN, Pretraining, Reading, Rows
from tfbook.models.bert import Bert, BertForPretraining
from tfbook.models.bert_variants import Albert
from tfbook.text import BERT_SPECIALS, CLS, MASK, PAD, SEP, NextSentence

TINY = replace(small_bert.SMALL, d_model=16, d_ff=32)
WORDS = (("red", "green", "blue", "pink"), ("one", "two", "three", "four"))  # of the texts of each label


def corpus() -> LabeledTexts:
    """Texts of two labels that have no word in common, each long enough for pairs."""
    dice = random.Random(1)
    labeled = [
        LabeledText(" ".join(dice.choices(words, k=30)), label) for _ in range(60) for label, words in enumerate(WORDS)
    ]
    return LabeledTexts.split("words", ("colours", "numbers"), labeled)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    monkeypatch.setattr(small_bert, "VOCAB", 300)
    return Reading(corpus())


@pytest.fixture
def plan() -> Pretraining:
    return Pretraining(config=TINY, steps=6, size=8)


class TestRows:
    pairs = (NextSentence([7, 8], [9], 0), NextSentence([7], (), 1))

    def test_two_segments_and_one(self) -> None:
        rows = Rows.of(self.pairs)
        assert rows.ids.tolist() == [[CLS, 7, 8, SEP, 9, SEP], [CLS, 7, SEP, PAD, PAD, PAD]]
        assert rows.segments.tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6]
        assert rows.lengths.tolist() == [6, 3]
        assert rows.labels.tolist() == [0, 1]

    @pytest.mark.parametrize("chosen", [slice(1, 2), torch.tensor([1])])
    def test_some_rows_are_as_wide_as_their_longest(self, chosen: Any) -> None:
        rows = Rows.of(self.pairs)[chosen]
        assert rows.ids.tolist() == [[CLS, 7, SEP]]
        assert rows.segments.shape == (1, 3)
        assert (len(rows), rows.lengths.tolist(), rows.labels.tolist()) == (1, [3], [1])


class TestReading:
    def test_nothing_of_the_test_is_read(self, reading: Reading) -> None:
        test = {tuple(reading.encode(text)) for text, _ in reading.corpus.test}
        assert test
        assert test.isdisjoint(map(tuple, reading.texts))

    def test_text_is_lower_case(self, reading: Reading) -> None:
        assert reading.encode("Red ONE") == reading.encode("red one")

    def test_a_long_text_is_cut_to_what_a_classifier_reads(self, reading: Reading) -> None:
        rows = reading.rows([LabeledText("red " * 200, 1)])
        assert rows.ids.shape == (1, LONGEST)
        assert (int(rows.ids[0, 0]), int(rows.ids[0, -1]), rows.labels.tolist()) == (CLS, SEP, [1])

    def test_windows_are_the_texts_in_pieces(self, reading: Reading) -> None:
        reading.texts = [list(range(5, 105)), [7, 8]]
        assert [row[1:-1] for row in texts_of(reading.windows())] == [
            tuple(range(5, 51)),
            tuple(range(51, 97)),
            tuple(range(97, 105)),
            (7, 8),
        ]

    def test_rare_tokens_are_masked_first(self) -> None:
        texts = [[5] * 900 + [6] * 99 + [7]]
        weights = small_bert.rare_first(texts, 9)
        expected = [1, 1, 1, 1, 1, math.sqrt(0.001 / 0.9), math.sqrt(0.001 / 0.099), 1, 1]
        torch.testing.assert_close(weights, torch.tensor(expected))

    def test_pairs_are_of_neighbors_or_of_two_texts(self, reading: Reading) -> None:
        texts = [" ".join(map(str, ids)) for ids in reading.texts]
        rows = reading.pairs(seed=1)
        for ids, segments, length, label in zip(rows.ids, rows.segments, rows.lengths, rows.labels, strict=True):
            first, second = (ids[:length][segments[:length] == segment] for segment in (0, 1))
            both = " ".join(map(str, [*first[1:-1].tolist(), *second[:-1].tolist()]))
            if label == 0:
                assert any(both in text for text in texts)
        assert 0.3 < float(rows.labels.float().mean()) < 0.7

    def test_the_lengths_do_not_tell_which_spans_belong_together(self) -> None:
        pieces = [small_bert.spans(list(range(500)), seed=seed) for seed in range(40)]
        neighbors = [(len(a), len(b)) for text in pieces for a, b in pairwise(text[:-1])]
        first, second = torch.tensor(neighbors, dtype=torch.float64).T
        assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.1

    def test_spans_are_the_text_in_pieces(self) -> None:
        ids = list(range(100))
        pieces = small_bert.spans(ids, seed=3)
        assert [i for piece in pieces for i in piece] == ids
        assert all(SPAN // 2 <= len(piece) <= SPAN for piece in pieces[:-1])
        assert 1 <= len(pieces[-1]) <= SPAN


def texts_of(rows: Rows) -> list[tuple[int, ...]]:
    return [tuple(ids[:length].tolist()) for ids, length in zip(rows.ids, rows.lengths, strict=True)]


class TestMaskedBatches:
    def rows_of_an_epoch(self, reading: Reading, plan: Pretraining, epoch: int) -> list[tuple[int, ...]]:
        rows = reading.pairs(seed=1)
        batch = small_bert.masked_batches(rows, reading, plan, seed=1)
        steps = len(rows) // plan.size
        found = [batch(epoch * steps + step).rows for step in range(steps)]
        return [
            tuple(ids[:length].tolist()) for part in found for ids, length in zip(part.ids, part.lengths, strict=True)
        ]

    def test_an_epoch_holds_each_row_once_and_the_next_another_order(self, reading: Reading, plan: Pretraining) -> None:
        rows = reading.pairs(seed=1)
        every = Counter(texts_of(rows))
        first, second = (self.rows_of_an_epoch(reading, plan, epoch) for epoch in (0, 1))
        assert len(first) == len(rows) // plan.size * plan.size
        assert not Counter(first) - every
        assert first != second

    @pytest.mark.parametrize("static", [False, True])
    def test_tokens_are_masked_anew_in_each_epoch_or_once(
        self, reading: Reading, plan: Pretraining, static: bool
    ) -> None:
        rows = reading.pairs(seed=1)
        plan = replace(plan, static=static, size=len(rows))
        batch = small_bert.masked_batches(rows, reading, plan, seed=1)
        first, second = (
            Counter(
                (tuple(ids[:n].tolist()), tuple(targets[:n].tolist()))
                for ids, targets, n in zip(part.rows.ids, part.masked.targets, part.rows.lengths, strict=True)
            )
            for part in (batch(0), batch(1))
        )
        assert (first == second) == static

    def test_a_step_is_the_same_whenever_it_is_asked_for(self, reading: Reading, plan: Pretraining) -> None:
        batch = small_bert.masked_batches(reading.pairs(seed=1), reading, plan, seed=1)
        for one, other in zip(batch(3).masked, batch(3).masked, strict=True):
            torch.testing.assert_close(one, other)
        assert not torch.equal(batch(3).masked.ids[:1, :8], batch(4).masked.ids[:1, :8])


@pytest.mark.parametrize("body", [Bert, partial(Albert, d_embed=4), partial(Albert, d_embed=16)])
def test_words_begin_as_wide_however_they_are_made(body: Callable[..., Bert]) -> None:
    torch.manual_seed(0)
    words = small_bert.fresh(500, TINY, body).embed(torch.arange(500)[None])
    assert words.std().item() == pytest.approx(0.2, rel=0.15)


def test_scores_are_of_the_first_guess() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(3.0)]])
    found = small_bert.scores(logits, torch.tensor([0, 0]))
    assert math.isclose(found["nats"], (math.log(4 / 3) + math.log(4)) / 2, rel_tol=1e-6)
    assert found["right"] == 0.5
    assert found["in ten"] == 1.0


def test_ten_guesses_are_ten() -> None:
    logits = torch.arange(12.0).flip(0)[None].expand(2, -1)
    assert small_bert.scores(logits, torch.tensor([9, 10]))["in ten"] == 0.5


def test_judging_asks_only_for_masks(reading: Reading, plan: Pretraining) -> None:
    """A model that knows nothing but where a mask stands cannot be right about anything else."""
    seen = []

    class Spy(BertForPretraining):
        def __init__(self) -> None:
            super().__init__(Bert(len(reading.tokenizer), TINY))
            self.bert.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))

    small_bert.judged(Spy().eval(), reading)
    (ids,) = seen
    changed = ids != reading.test.ids
    assert changed.any()
    assert (ids[changed] == MASK).all()
    assert (reading.test.ids[changed] >= len(BERT_SPECIALS)).all()


class TestFineTuning:
    def test_it_leaves_where_it_began_untouched(self, reading: Reading, plan: Pretraining) -> None:
        start, _ = small_bert.pretrained(plan, reading, seed=1)
        before = {name: weight.clone() for name, weight in start.state_dict().items()}
        small_bert.fine_tuned(start, reading, 4, seed=1, recipe=replace(small_bert.FINE, steps=3))
        torch.testing.assert_close(dict(start.state_dict()), before)

    def test_the_head_begins_with_the_layer_of_the_pairs(self, reading: Reading, plan: Pretraining) -> None:
        start, _ = small_bert.pretrained(replace(plan, pairs=True), reading, seed=1)
        model = small_bert.classifier(start, 2)
        torch.testing.assert_close(model.head.pool.weight, start.next_sentence.pool.weight)
        torch.testing.assert_close(model.bert.embed.weight, start.bert.embed.weight)

    def test_two_labels_without_a_common_word_are_learned(self, reading: Reading) -> None:
        torch.manual_seed(1)
        start = Bert(len(reading.tokenizer), TINY)
        model, _ = small_bert.fine_tuned(start, reading, 20, seed=1, recipe=replace(small_bert.FINE, steps=60, lr=5e-3))
        assert small_bert.accuracy(model, reading.test) > 0.95

    def test_accuracy_is_the_share_of_right_labels(self, reading: Reading) -> None:
        model = small_bert.classifier(Bert(len(reading.tokenizer), TINY), 2)
        with torch.no_grad():
            model.head.label.weight.zero_()
            model.head.label.bias.copy_(torch.tensor([0.0, 1.0]))  # predicts 1, whatever comes
        share = float((reading.test.labels == 1).float().mean())
        assert math.isclose(small_bert.accuracy(model, reading.test), share, rel_tol=1e-6)
