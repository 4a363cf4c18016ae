"""The benchmark's arithmetic and its report, with times that are made up; and one turn of a real translator."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks/attention_cost.py"
SECONDS = {
    "fixed context": [0.010, 0.020, 0.010],
    "attention after the recurrence": [0.012, 0.028, 0.013],  # ratios 1.2, 1.4, 1.3
    "attention": [0.020, 0.060, 0.018],  # 2.0, 3.0, 1.8
}


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_ratios_are_taken_within_a_round(script: dict[str, Any]) -> None:
    """The second round, in which something else kept the machine busy, moves no median."""
    found = {row["decoder"]: row for row in script["rows"](SECONDS)}
    assert {name: row["ratio"] for name, row in found.items()} == dict(zip(SECONDS, [1.0, 1.3, 2.0], strict=True))
    attention = found["attention"]
    assert (attention["ms"], attention["low"], attention["high"], attention["bar"]) == (20.0, 1.8, 3.0, 2.2)
    assert "| attention | 20.0 | 2.00 | 1.80–3.00 | ≤ 2.2 |" in script["table"](list(found.values()))


@pytest.mark.parametrize(("factor", "status"), [(1, 0), (1.2, 1)], ids=["met", "missed"])
def test_the_report_says_where_it_was_measured_and_whether_the_bars_are_met(
    script: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    factor: float,
    status: int,
) -> None:
    slower = SECONDS | {"attention": [factor * time for time in SECONDS["attention"]]}
    monkeypatch.setitem(script["main"].__globals__, "measure", lambda rounds: slower)
    monkeypatch.setattr(sys, "argv", ["attention_cost.py", "--out", str(tmp_path / "cost.json")])
    assert script["main"]() == status
    stored = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8"))
    assert stored["rows"] == script["rows"](slower)
    assert f"torch {torch.__version__}" in stored["machine"]
    assert f"{stored['machine']} · {stored['date']} · width 128" in capsys.readouterr().out


def test_a_round_times_a_step_of_each(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script["SIZES"], "rows", 2)
    seconds = script["measure"](rounds=2)
    assert seconds.keys() == SECONDS.keys()
    assert all(len(times) == 2 and min(times) > 0 for times in seconds.values())
