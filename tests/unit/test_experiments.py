"""Stored results keep where they come from; runs that are compared take turns."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tfbook.course import experiments
from tfbook.course.experiments import in_turns, markdown, store, stored


def test_a_result_is_stored_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(experiments, "SHIPPED", (tmp_path / "absent", tmp_path))
    path = store("toy.sum", [{"x": 1}], command="python toy", commit="abc", seconds=90.04)
    assert path == tmp_path / "results" / "toy.sum.json"
    assert json.loads(path.read_text())["seconds"] == 90.0
    assert stored("toy.sum").rows == [{"x": 1}]
    assert "python toy" in (printed := capsys.readouterr().out)
    assert "abc" in printed
    with pytest.raises(KeyError, match=r"no result is called 'other'; known: toy\.sum"):
        stored("other")


def test_every_stored_result_of_the_course_can_be_read() -> None:
    paths = sorted((Path(experiments.__file__).parents[3] / "data" / "results").glob("*.json"))
    assert paths
    for path in paths:
        result = stored(path.stem)
        assert result.rows
        assert result.command.endswith(path.stem)


def test_runs_take_turns_and_the_first_round_is_not_counted() -> None:
    order: list[str] = []
    runs = {name: partial(order.append, name) for name in ("a", "b")}
    seconds = in_turns(runs, rounds=2)
    assert order == ["a", "b"] * 3
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert all(time >= 0 for times in seconds.values() for time in times)


def test_the_table_is_markdown() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert markdown(rows).splitlines() == ["| a | b |", "|---|---|", "| 1 | x |", "| 2 | y |"]
