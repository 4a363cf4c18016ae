"""What lesson 01 measures is measured rightly on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tfbook import data, runtime
from tfbook.course.experiments import bahdanau_attention as study
from tfbook.data.translation import Translations
from tfbook.models import seq2seq
from tfbook.text import Pair

_LINKS = frozenset({(0, 0), (1, 1), (2, 2)})


@pytest.fixture
def task() -> study.Task:
    pairs = [Pair(("a", "b", "c"), ("x", "y", "z"), _LINKS, _LINKS), Pair(("b",), ("y",))]
    references = {pair.source: [pair.target] for pair in pairs}
    splits = {"train": pairs, "test": pairs}
    corpus = Translations(
        name="toy", source_language="english", target_language="french", splits=splits, references=references
    )
    return study.Task.of(corpus, pairs)


def row(decoder: str, seed: int, bleu: list[float], pace: float) -> dict[str, Any]:
    curve = [{"step": 10 * i, "seconds": pace * i, "bleu": b} for i, b in enumerate(bleu, start=1)]
    lengths = [[*length, bleu[-1], 0.5] for length in study.LENGTHS]
    error = 0.1 if decoder == "attention" else None
    return {
        "decoder": decoder,
        "seed": seed,
        "parameters": 7,
        "curve": curve,
        "by_length": lengths,
        "template": 1.0,
        "alignment error": error,
    }


ROWS = [
    row("attention", 1, [20.0, 60.0], pace=2.0),
    row("fixed context", 1, [10.0, 30.0], pace=1.5),
    row("attention", 2, [30.0, 70.0], pace=2.0),
    row("fixed context", 2, [10.0, 20.0], pace=1.5),
]


def test_the_lead_is_taken_when_the_faster_run_ends() -> None:
    # fixed contexts end after 3 s; attention has then gone half way from its first point (2 s) to its second (4 s)
    assert study.lead_at_equal_seconds(ROWS) == pytest.approx([40 - 30, 50 - 20])


def test_curves_are_means_with_half_the_range() -> None:
    xs, ys, spread = study.curves(ROWS, "seconds")["attention"]
    assert (xs, ys, spread) == ([2.0, 4.0], [25.0, 65.0], [5.0, 5.0])


def test_the_table_shows_mean_and_range() -> None:
    text = study.summary_table(ROWS)
    assert "65.0 (60.0–70.0)" in text
    assert "25.0 (20.0–30.0)" in text
    assert "0.100 (0.100–0.100)" in text


def test_a_linear_network_has_the_gradient_of_its_formula() -> None:
    runtime.seed(0)
    reach = study.gradient_reach(length=12, width=16)
    assert set(reach) == {"RNN", "LSTM", "attention"}
    assert all(values[0] == 1 and len(values) == 12 for values in reach.values())
    assert reach["RNN"][8] < reach["LSTM"][8] < reach["attention"][8]


def test_the_summary_of_a_reader_is_most_sensitive_to_the_ends() -> None:
    runtime.seed(0)
    words = tuple("abcdefghijklmnopqrst")
    pair = Pair(words, ("x",))
    corpus = Translations(
        name="toy", source_language="english", target_language="french", splits={"train": [pair]}, references={}
    )
    task = study.Task.of(corpus, [pair])
    reach = study.summary_reach(task.translator(seq2seq.FixedContextDecoder, width=16), [pair] * 3, task, bins=5)
    assert reach.mean() == pytest.approx(1.0, abs=0.05)
    assert min(reach[0], reach[-1]) > 3 * reach[2]


def test_forced_weights_are_those_of_the_true_words(task: study.Task) -> None:
    model = task.translator(seq2seq.BahdanauDecoder, width=8)
    weights = study.forced_weights(model, task.corpus["train"], task)
    assert [tuple(w.shape) for w in weights] == [(3, 3), (1, 1)]
    alone = study.forced_weights(model, task.corpus["train"][:1], task)[0]
    assert torch.allclose(weights[0], alone, atol=1e-5)
    assert 0 <= study.alignment_error(model, task.corpus["train"][:1], task) <= 1


def test_quality_of_a_perfect_translator_is_perfect(task: study.Task, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [study_translation(pair.target) for pair in task.corpus["test"]]
    monkeypatch.setattr(study, "translate", lambda *arguments, **options: said)
    judged = study.quality(task.translator(seq2seq.LuongDecoder, width=8), task.corpus["test"], task)
    assert judged.exact == 1
    assert "tok:13a" in judged.signature


def study_translation(words: tuple[str, ...]) -> Any:
    from tfbook.generation.search import Translation

    return Translation(words, None)


def test_attention_costs_time_and_memory() -> None:
    ratios = study.step_cost(words=4, rows=4, width=8, vocabulary=50, rounds=2)
    assert set(ratios) == set(study.DECODERS) - {"fixed context"}
    assert all(ratio > 0 for ratio in ratios.values())
    short, long = (study.kept_for_backward(seq2seq.LuongDecoder, words=n) for n in (10, 40))
    plain = study.kept_for_backward(seq2seq.FixedContextDecoder, words=40)
    assert long > 4.5 * short, "the scores grow with the square of the length"
    assert plain < long


def test_tasks_take_the_words_that_are_frequent_enough() -> None:
    corpus = data.load("english-french")
    everything = study.Task.of(corpus, corpus["train"][:500])
    frequent = study.Task.of(corpus, corpus["train"][:500], min_count=5)
    assert len(frequent.source_vocab) < len(everything.source_vocab)
