"""Stored results keep where they come from and can be computed again."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert "python toy" in (printed := capsys.readouterr().out)
    assert "abc" in printed
    with pytest.raises(KeyError, match=r"no result is called 'other'; known: toy\.sum"):
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
