"""Translators with and without attention: their table, gradients, time and memory, on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tfbook import runtime
from tfbook.course.experiments import bahdanau_attention as study
from tfbook.course.experiments.translators import LENGTHS, Task
from tfbook.data.translation import Translations
from tfbook.models import seq2seq
from tfbook.text import Pair


def row(decoder: str, seed: int, bleu: float) -> dict[str, Any]:
    lengths = [[*length, bleu, 0.5] for length in LENGTHS]
    error = seed / 10 if decoder == "attention" else None
    return {
        "decoder": decoder,
        "seed": seed,
        "parameters": 7000,
        "by_length": lengths,
        "template": 1.0,
        "alignment error": error,
    }


def test_the_table_shows_mean_and_range() -> None:
    scores = {("attention", 1): 60.0, ("fixed context", 1): 30.0, ("attention", 2): 70.0, ("fixed context", 2): 20.0}
    shown = study.summary_table(pd.DataFrame([row(*run, bleu) for run, bleu in scores.items()]))
    assert list(shown.index[[0, 1, -2, -1]]) == ["parameters", "3–8 words", "new constructions", "alignment error"]
    assert list(shown["attention"].iloc[[0, 1, -1]]) == ["7,000", "65.0 (60.0–70.0)", "0.150 (0.100–0.200)"]
    assert list(shown["fixed context"].iloc[[0, 1, -1]]) == ["7,000", "25.0 (20.0–30.0)", "–"]


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
    task = Task.of(corpus, [pair])
    reach = study.summary_reach(task.translator(seq2seq.FixedContextDecoder, width=16), [pair] * 3, task, bins=5)
    assert reach.mean() == pytest.approx(1.0, abs=0.05)
    assert min(reach[0], reach[-1]) > 3 * reach[2]


def test_attention_costs_time_and_memory() -> None:
    ratios = study.step_cost(words=4, rows=4, width=8, vocabulary=50, rounds=2)
    assert set(ratios) == set(study.DECODERS) - {"fixed context"}
    assert all(ratio > 0 for ratio in ratios.values())
    short, long = (study.kept_for_backward(seq2seq.LuongDecoder, words=n) for n in (10, 40))
    plain = study.kept_for_backward(seq2seq.FixedContextDecoder, words=40)
    assert long > 4.5 * short, "the scores grow with the square of the length"
    assert plain < long
