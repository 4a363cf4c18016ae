"""Searches, calibration and the time per token, on cases worked out by hand and a corpus of a few sentences."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from toy_translators import SHORT, TINY

from tfbook import data, runtime
from tfbook.course.translators import Task
from tfbook.data.text import Text
from tfbook.data.translation import Translations
from tfbook.generation.sampling import generate, greedy
from tfbook.generation.search import greedy_search, mean_penalty, translate
from tfbook.lessons.decoding import figures, study
from tfbook.lessons.transformer.study import next_words
from tfbook.models.language_model import LanguageModel
from tfbook.models.transformer import Transformer
from tfbook.text import BOS, PAD, UNK, Pair, collate, detokenize

pytestmark = pytest.mark.usefixtures("float32")


# ---- how good, and how sure --------------------------------------------------------------------------------------


def test_text_scores_are_sums_over_the_words_of_each_pair(task: Task, model: Transformer) -> None:
    pairs = task.corpus["test"]
    words, totals = next_words(model, pairs, task), study.text_scores(model, pairs, task)
    config = [len(pair.target) + 1 for pair in pairs]  # with <eos>
    assert len(words.logp) == sum(config)
    torch.testing.assert_close(torch.stack([part.sum() for part in words.logp.split(config)]), totals)
    alone = study.text_scores(model, pairs[1:2], task)
    torch.testing.assert_close(alone, totals[1:2], rtol=0, atol=1e-5)


def test_calibration_error_by_hand() -> None:
    """Half of the words in the bin from 0.9: they say 0.95 and half are right; a quarter each in two that are exact."""
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.5, 0.5, 1.0, 0.0])
    right = torch.tensor([True, True, False, False, True, False, True, False])
    table = study.reliability(confidence, right, bins=10)
    torch.testing.assert_close(table[5], torch.tensor([0.25, 0.5, 0.5]))
    torch.testing.assert_close(table[9], torch.tensor([5 / 8, 4.8 / 5, 3 / 5]), msg="confidence 1 is in the last bin")
    assert float(table[:, 0].sum()) == 1
    assert study.calibration_error(table) == pytest.approx(5 / 8 * (4.8 / 5 - 3 / 5))


def test_empty_bins_count_nothing() -> None:
    table = study.reliability(torch.tensor([0.65]), torch.tensor([True]))
    assert not table[[0, 9]].any()
    assert study.calibration_error(table) == pytest.approx(0.35)


# ---- searches ----------------------------------------------------------------------------------------------------


def test_searches_try_every_width_under_every_penalty(corpus: Translations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    monkeypatch.setattr(study, "LESSON", SHORT)
    found = study.searches((1,), widths=(1, 2), count=1)
    assert [(row["penalty"], row["width"]) for row in found] == [(name, w) for name in study.PENALTIES for w in (1, 2)]


def test_a_search_of_width_1_finds_what_greedy_finds(task: Task, model: Transformer) -> None:
    pairs = task.corpus["test"]
    result = study.searched(model, pairs, task, width=1, penalty=mean_penalty())
    found = translate(model, pairs, task.source_vocab, task.target_vocab, max_length=80, search=greedy_search)
    texts = [pair._replace(target=t.words) for pair, t in zip(pairs, found, strict=True)]
    assert result["log p"] == pytest.approx(float(study.text_scores(model, texts, task).mean()), abs=1e-4)
    assert result["length"] == sum(len(text.target) for text in texts) / sum(len(pair.target) for pair in pairs)
    assert result["bleu"] == pytest.approx(study.bleu_of(texts, task))


def test_the_references_themselves_have_bleu_100(task: Task) -> None:
    long_enough = [pair for pair in task.corpus["test"] if len(pair.target) >= 4]
    assert study.bleu_of(long_enough, task) == pytest.approx(100)


# ---- time --------------------------------------------------------------------------------------------------------


def test_times_have_a_row_for_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "TIMED", TINY)
    rows = study.times((4, 8), rounds=2, vocab=9)
    assert [row["length"] for row in rows] == [4, 8]
    assert all(row["cached"] > 0 and row["recomputed"] > 0 for row in rows)


# ---- likely text -------------------------------------------------------------------------------------------------


@pytest.fixture
def writer() -> LanguageModel:
    """A model of five tokens whose every one has a fair chance."""
    runtime.seed(1)
    model = LanguageModel(5, TINY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def test_a_wide_enough_beam_finds_the_likeliest_text_of_all(writer: LanguageModel) -> None:
    """Among all texts of three tokens; a beam of 25 keeps every beginning of two."""
    start = torch.tensor([[0, 3], [2, 2]])
    texts = torch.tensor(list(product(range(5), repeat=3)))
    for row in start:
        every = torch.cat([row.expand(len(texts), -1), texts], dim=1)
        scores = study.log_probabilities(writer, every)[:, 1:].sum(dim=1)
        found = study.likely(writer, row[None], 3, width=25)
        assert torch.equal(found[0], every[scores.argmax()])
    assert torch.equal(study.likely(writer, start, 3, width=25)[1], found[0]), "rows are searched apart"


def test_a_beam_of_one_is_greedy(writer: LanguageModel) -> None:
    start = torch.tensor([[0, 3], [2, 2]])
    expected = generate(writer, start, max_new_tokens=6, filters=[greedy])
    assert torch.equal(study.likely(writer, start, 6, width=1), expected)


def test_likelihood_has_a_row_for_each_way_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", lambda name: Text.split("toy", "to be or not to be, " * 60))
    monkeypatch.setattr(study, "WRITER", TINY)
    monkeypatch.setattr(study, "READ", 8)
    monkeypatch.setattr(study, "WRITE", 16)
    rows = study.likelihood((1, 2), steps=2, count=3)
    ways = ["human", "beam of 8", *study.WAYS]
    assert [(row["seed"], row["way"]) for row in rows] == [(seed, way) for seed in (1, 2) for way in ways]
    assert all(len(row["each"]) == 16 and row["nats"] > 0 for row in rows)


def test_repetition_by_hand() -> None:
    """Four pairs, of which the last has been there before; two that differ."""
    assert study.repeated(["ababa", "xyz"], size=2) == (2 / 4 + 0) / 2


def test_a_text_too_short_for_a_repetition_has_none() -> None:
    """And no share of 0/0 (GEM-metrics pull request 31)."""
    assert study.repeated(["ab", "", "xyxy"], size=3) == 0
    assert study.repeated(["ab", "aaaa"], size=3) == (0 + 1 / 2) / 2
    assert study.flaws(["a"], set()) == (0, 0)


def test_flaws_by_hand() -> None:
    """abcabc has four pieces of three, one of them twice; ca is the only pair that nobody wrote."""
    known = study.pairs_of(["abc"])
    assert known == {("a", "b"), ("b", "c")}
    assert study.flaws(["abcabc"], known) == (1 / 4, 1 / 5)


# ---- label smoothing ---------------------------------------------------------------------------------------------


def test_smoothing_has_a_row_for_each_amount_variant_and_seed(
    corpus: Translations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    monkeypatch.setattr(study, "SMOOTHING", {"hard targets": SHORT, "smooth": replace(SHORT, smoothing=0.1)})
    monkeypatch.setattr(study, "AMOUNTS", {"all": None, "one": 1})
    rows = study.smoothing((1, 2), longest=9)
    found = [(row["sentences"], row["seed"], row["variant"]) for row in rows]
    assert found == list(product(("all", "one"), (1, 2), ("hard targets", "smooth")))
    assert all(0 <= row["calibration error"] <= 1 and len(row["reliability"]) == 10 for row in rows)


# ---- the lesson's translator -------------------------------------------------------------------------------------


def test_the_translator_learns_short_sentences(corpus: Translations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    monkeypatch.setattr(study, "LEARNER", SHORT)
    model, task, held_out = study.train_translator(3)
    assert not model.training
    assert len(task.source_vocab) == model.encoder.embed.num_embeddings
    assert all(3 <= len(pair.source) <= study.LONGEST for pair in held_out)


def test_the_clearest_example_is_one_that_the_beam_gets_right() -> None:
    pairs = [Pair(("a",) * size, ("oui",)) for size in (2, 3, 4)]
    found = [(pairs[0], [1], [1]), (pairs[1], [1], [2]), (pairs[2], [1], [3])]
    assert study.clearest(found, lambda ids: "oui" if ids == [3] else "non", 2) == [found[2], found[1]]
    assert study.clearest(found[:1], lambda ids: "oui", 2) == found[:1], "where none differs"


def test_the_tally_counts_what_differs_and_what_is_right() -> None:
    pairs = [Pair(("a",), ("oui",))] * 3
    found = [(pairs[0], [1], [1]), (pairs[1], [1], [3]), (pairs[2], [3], [3])]
    assert study.tally(found, lambda ids: "oui" if ids == [3] else "non") == (1, 1, 2)


def test_the_examples_show_each_translation() -> None:
    shown = study.examples([(Pair(("a", "."), ("oui", ".")), [1], [3])], lambda ids: f"texte {ids[0]}", 1)
    assert [line.split()[-1] for line in shown.splitlines()] == ["a.", "1", "3", "oui."]


def test_next_words_are_those_of_the_model(corpus: Translations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    monkeypatch.setattr(study, "LEARNER", SHORT)
    model, task, held_out = study.train_translator(2)
    next_logp, spelled = study.translating(model, task)
    word = task.target_vocab.encode(held_out[0].target)[0]
    logp = next_logp(held_out[0].source, [[BOS], [BOS]])
    assert logp.shape == (2, len(task.target_vocab))
    assert torch.equal(logp[0], logp[1])
    assert logp[:, [PAD, BOS, UNK]].eq(-torch.inf).all()
    batch = collate([held_out[0]], task.source_vocab, task.target_vocab)
    whole = model(batch.source, batch.source_lengths, batch.target_in).logits.log_softmax(dim=-1)
    assert torch.allclose(logp[0, word], whole[0, 0, word], atol=1e-5)
    assert spelled([word]) == detokenize([held_out[0].target[0]], "french")


# ---- pictures ----------------------------------------------------------------------------------------------------


def test_the_filters_picture_counts_what_is_left() -> None:
    row = torch.tensor([2.0, 1.0, 0.0])
    ways = {"all": lambda logits: logits, "two": lambda logits: logits.masked_fill(logits < 1, -torch.inf)}
    figure, alt = figures.draw_filters({"a": row}, ways, ["x", "y", "z"])
    assert [axes.get_title() for axes in figure.axes] == ["all: 3 left", "two: 2 left"]
    assert "“a”" in alt


def test_the_tree_says_what_greedy_misses() -> None:
    after = {"A": (0.5, {"x": 0.4, "y": 0.6}), "B": (0.4, {"x": 1.0}), "C": (0.1, {"x": 1.0})}
    figure, alt = figures.draw_tree(after, width=2)
    (axes,) = figure.axes
    said = [text.get_text() for text in axes.texts]
    assert "0.4 × 1 = 0.4" in said
    assert said.count("dropped") == 1
    (best,) = [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
    assert best == "0.4 × 1 = 0.4"
    assert alt == "Greedy decoding says A y, with probability 0.3; the best text is B x, with 0.4."


def test_greedy_decoding_misses_the_best_text_of_the_lessons_tree_and_a_beam_of_two_finds_it() -> None:
    first = {word: p for word, (p, _) in study.TOY.items()}
    texts = {(a, b): first[a] * q for a, (_, after) in study.TOY.items() for b, q in after.items()}
    assert sum(first.values()) == pytest.approx(1)
    assert sum(texts.values()) == pytest.approx(1)
    likeliest, second, _ = sorted(first, key=lambda word: -first[word])
    best = max(texts, key=lambda text: texts[text])
    assert best[0] == second != likeliest
    assert figures.draw_tree(study.TOY, width=2)[1] == (
        "Greedy decoding says A x, with probability 0.209; the best text is B x, with 0.28."
    )


def test_the_cache_picture_draws_the_numbers_given() -> None:
    x, W = torch.randn(4, 3), torch.randn(3, 3, 2)
    figure, alt = figures.draw_cache(x, *W, ["a", "b", "c", "d"])
    assert figure.axes
    assert "3 words" in alt
