"""Translators that several lessons train and judge, on a corpus of two sentences."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from toy_translators import toy_corpus

from tfbook import data
from tfbook.course import translators
from tfbook.course.translators import Task
from tfbook.generation.search import Translation
from tfbook.models import seq2seq
from tfbook.text import Pair

_LINKS = frozenset({(0, 0), (1, 1), (2, 2)})


@pytest.fixture
def task() -> Task:
    pairs = [Pair(("a", "b", "c"), ("x", "y", "z"), _LINKS, _LINKS), Pair(("b",), ("y",))]
    return Task.of(toy_corpus(pairs), pairs)


def test_forced_weights_are_those_of_the_true_words(task: Task) -> None:
    model = task.translator(seq2seq.BahdanauDecoder, width=8)
    weights = translators.forced_weights(model, task.corpus["train"], task)
    assert [tuple(w.shape) for w in weights] == [(3, 3), (1, 1)]
    alone = translators.forced_weights(model, task.corpus["train"][:1], task)[0]
    assert torch.allclose(weights[0], alone, atol=1e-5)
    assert 0 <= translators.alignment_error(model, task.corpus["train"][:1], task) <= 1


def test_quality_of_a_perfect_translator_is_perfect(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    perfect = [Translation(pair.target, None) for pair in task.corpus["test"]]
    monkeypatch.setattr(translators, "translate", lambda *arguments, **options: perfect)
    judged = translators.quality(task.translator(seq2seq.LuongDecoder, width=8), task.corpus["test"], task)
    assert judged.exact == 1
    assert "tok:13a" in judged.signature


def test_tasks_take_the_words_that_are_frequent_enough() -> None:
    corpus = data.load("english-french")
    everything = Task.of(corpus, corpus["train"][:500])
    frequent = Task.of(corpus, corpus["train"][:500], min_count=5)
    assert len(frequent.source_vocab) < len(everything.source_vocab)


# ---- learning curves ---------------------------------------------------------------------------------------------


def curve(name: str, seed: int, bleu: list[float], pace: float) -> list[dict[str, float | str]]:
    return [{"model": name, "seed": seed, "seconds": pace * i, "bleu": b} for i, b in enumerate(bleu, start=1)]


def test_the_lead_is_taken_when_the_first_is_done() -> None:
    """Fixed contexts end after 3 s; attention has then gone half way from its first point (2 s) to its second (4 s)."""
    points = pd.DataFrame(
        curve("attention", 1, [20.0, 60.0], pace=2.0)
        + curve("fixed context", 1, [10.0, 30.0], pace=1.5)
        + curve("attention", 2, [30.0, 70.0], pace=2.0)
        + curve("fixed context", 2, [10.0, 20.0], pace=1.5)
    )
    lead = translators.lead_at_equal_seconds(points, "model", "attention", "fixed context")
    assert lead == pytest.approx([40 - 30, 50 - 20])
    assert translators.lead_at_equal_seconds(points, "model", "fixed context", "attention") == pytest.approx([-10, -30])


def test_the_order_of_the_points_does_not_matter() -> None:
    """`np.interp` takes rising times alone and says nothing about others (numpy issue 10448)."""
    points = pd.DataFrame(curve("attention", 1, [10.0, 20.0], 1.0) + curve("fixed context", 1, [4.0, 5.0], 1.0))
    for order in (points, points[::-1]):
        assert translators.lead_at_equal_seconds(order, "model", "attention", "fixed context") == pytest.approx([15])


def test_whichever_is_done_first_decides() -> None:
    """After 15 seconds the recurrent translator is half way from its first point to its second."""
    slow, fast = curve("recurrent", 1, [20.0, 60.0, 80.0], pace=10.0), curve("Transformer", 1, [50.0, 80.0, 90.0], 5.0)
    lead = translators.lead_at_equal_seconds(pd.DataFrame(slow + fast), "model", "Transformer", "recurrent")
    assert lead == pytest.approx([90 - 40])
