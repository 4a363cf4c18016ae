"""Stored results keep where they come from and can be computed again."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tfbook.course import experiments
from tfbook.course.experiments import markdown, registered, store, stored

RESULTS = Path(experiments.__file__).parents[2] / "data" / "results"


def test_a_result_is_stored_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(experiments, "SHIPPED", (tmp_path / "absent", tmp_path))
    path = store("toy.sum", [{"x": 1}], command="python toy", commit="abc", seconds=90.04)
    assert path == tmp_path / "results" / "toy.sum.json"
    assert json.loads(path.read_text())["seconds"] == 90.0
    assert (result := stored("toy.sum")).rows == [{"x": 1}]
    assert result.frame.to_dict("records") == [{"x": 1}]
    assert capsys.readouterr().out == "", "a figure's caption says that its runs are stored"
    assert str(result).startswith("stored: python toy · ")
    assert " · abc · " in str(result)
    with pytest.raises(KeyError, match=r"no result is called 'other'; known: toy\.sum"):
        stored("other")


def test_numbers_of_numpy_and_of_pytorch_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Hours of an experiment would end in a TypeError (transformers issue 10299); what JSON cannot hold is named."""
    monkeypatch.setattr(experiments, "SHIPPED", (tmp_path,))
    row = {"a": np.float32(0.5), "b": np.int64(3), "c": torch.tensor(1.5), "d": [np.bool_(True)], "e": np.ones(2)}
    store("toy.sum", [row], command="python toy", commit="abc", seconds=1.0)
    assert stored("toy.sum").rows == [{"a": 0.5, "b": 3, "c": 1.5, "d": [True], "e": [1.0, 1.0]}]
    with pytest.raises(TypeError, match=r"rows hold \{1\}, a set; expected what JSON can hold"):
        store("toy.sum", [{"a": {1}}], command="python toy", commit="abc", seconds=1.0)


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
        needed = [
            option.name for option in options if option.default is option.empty and option.kind != option.VAR_KEYWORD
        ]
        assert not needed, name


def test_the_tool_lists_every_experiment() -> None:
    command = [sys.executable, "tools/experiment.py"]
    listed = subprocess.run(command, cwd=RESULTS.parents[1], capture_output=True, text=True, timeout=120, check=True)
    assert listed.stdout.split() == list(registered())


def test_the_table_is_markdown() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert markdown(rows).splitlines() == ["| a | b |", "|---|---|", "| 1 | x |", "| 2 | y |"]


def test_a_cell_of_the_table_ends_where_its_text_ends() -> None:
    """A bar or a line end in it would begin another cell or row (python-tabulate issue 241)."""
    lines = markdown([{"a|b": "x|y", "c": "1\n2"}]).splitlines()
    assert lines == [r"| a\|b | c |", "|---|---|", r"| x\|y | 1 2 |"]
