"""Stored results keep where they come from and can be computed again; what lesson 01 measures, on cases by hand."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tfbook import runtime
from tfbook.course import experiments
from tfbook.course.experiments import bahdanau_attention as study
from tfbook.course.experiments import markdown, registered, store, stored
from tfbook.course.experiments.translators import LENGTHS, Task
from tfbook.data.translation import Translations
from tfbook.models import seq2seq
from tfbook.text import Pair

RESULTS = Path(experiments.__file__).parents[3] / "data" / "results"


def test_a_result_is_stored_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(experiments, "SHIPPED", (tmp_path / "absent", tmp_path))
    path = store("lesson99.toy", [{"x": 1}], command="python toy", commit="abc", seconds=90.04)
    assert path == tmp_path / "results" / "lesson99.toy.json"
    assert json.loads(path.read_text())["seconds"] == 90.0
    assert (result := stored("lesson99.toy")).rows == [{"x": 1}]
    assert result.frame.to_dict("records") == [{"x": 1}]
    assert "python toy" in (printed := capsys.readouterr().out)
    assert "abc" in printed
    with pytest.raises(KeyError, match=r"no result is called 'other'; known: lesson99\.toy"):
        stored("other")


def commands() -> dict[str, list[str]]:
    """The words of the command that each stored result names."""
    return {path.stem: stored(path.stem).command.split() for path in sorted(RESULTS.glob("*.json"))}


def test_every_stored_result_can_be_computed_again() -> None:
    """By the experiment that is registered under its name, or by a benchmark that stores it."""
    by_benchmarks = {name: words for name, words in commands().items() if words[1] != "tools/experiment.py"}
    assert commands().keys() - by_benchmarks.keys() == registered().keys()
    for name, words in commands().items():
        if name in by_benchmarks:
            script = (RESULTS.parents[1] / words[1]).read_text(encoding="utf-8")
            assert words[-2:] == ["--store", name]
            assert " ".join(words) in script, "as its documentation says"
        else:
            assert words == ["python", "tools/experiment.py", name]


def test_experiments_run_without_arguments() -> None:
    for name, run in registered().items():
        options = inspect.signature(run).parameters.values()
        assert all(option.default is not option.empty for option in options), name


def test_the_tool_lists_every_experiment() -> None:
    command = [sys.executable, "tools/experiment.py"]
    listed = subprocess.run(command, cwd=RESULTS.parents[1], capture_output=True, text=True, timeout=120, check=True)
    assert listed.stdout.split() == list(registered())


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


def test_the_table_is_markdown() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert markdown(rows).splitlines() == ["| a | b |", "|---|---|", "| 1 | x |", "| 2 | y |"]
