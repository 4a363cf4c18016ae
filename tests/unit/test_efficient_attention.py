"""The benchmark of the efficient implementations: its arithmetic on made-up times, and one round on tiny sizes."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tfbook.lessons.efficient_attention.costs import FUSED, IMPLEMENTATIONS, WRITTEN_OUT

SCRIPT = Path(__file__).parents[2] / "benchmarks/efficient_attention.py"
TINY = {"LENGTHS": (16, 32, 64), "FITTED": 16, "LONGEST_WRITTEN_OUT": 32, "TIMED_AT": 32, "ROUNDS_TIMED": (16, 1)}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    names = runpy.run_path(str(SCRIPT))
    inside = names["main"].__globals__
    for name, value in TINY.items():
        monkeypatch.setitem(inside, name, value)
    return names


def row(implementation: str, n: int, seconds: float, size: int) -> dict[str, Any]:
    return {"implementation": implementation, "n": n, "seconds": [seconds, 3 * seconds, seconds], "bytes": size}


MADE_UP = [  # PyTorch's time is n², the banded implementation's 24 n
    *(row(FUSED, n, 1e-6 * n * n, 100 * n) for n in (16, 32)),
    *(row("banded", n, 24e-6 * n, 10 * n**2) for n in (16, 32)),
]


def test_exponents_and_crossings_are_fitted(script: dict[str, Any]) -> None:
    """They cross where n² = 24 n."""
    dense, banded = script["summary"](MADE_UP)
    assert (dense["time ∝ n^"], dense["memory ∝ n^"], dense["faster from n ="]) == (2.0, 1.0, "–")
    assert (banded["time ∝ n^"], banded["memory ∝ n^"], banded["faster from n ="]) == (1.0, 2.0, "24")
    assert (banded["n"], banded["ms"], banded["MB"]) == (32, 0.8, 0.0)


def test_a_crossing_may_lie_outside(script: dict[str, Any]) -> None:
    """Always ahead, never ahead, ahead and behind again."""
    crossing = script["crossing"]
    assert crossing([1, 2], [1.5, 3.0]) == 0
    assert crossing([1, 2], [0.5, 0.9]) is None
    assert crossing([1, 2, 4], [0.5, 2.0, 0.9]) is None
    assert crossing([1, 4], [0.5, 2.0]) == pytest.approx(2.0)


def test_ratios_are_taken_within_a_round(script: dict[str, Any]) -> None:
    rows = [row(FUSED, 8, 2.0, 1), row("banded", 8, 1.0, 1)]
    rows[0]["seconds"][1] = 60.0  # something disturbed this one
    assert script["times_faster"](rows, "banded", 8) == 2


def test_missed_bars_are_named(script: dict[str, Any]) -> None:
    found = script["missed"](MADE_UP, script["summary"](MADE_UP))
    assert found == [
        "banded: memory ∝ n^2.0, allowed 1.15",
        "banded: 1.3 times as fast as PyTorch's at 32, expected 5.0",
    ]


def test_a_round_measures_each_implementation_and_reports(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The status says whether bars are missed, which on such sizes they may be."""
    monkeypatch.setattr(sys, "argv", ["efficient_attention.py", "--rounds", "1", "--out", str(tmp_path / "out.json")])
    status, printed = script["main"](), capsys.readouterr().out
    stored = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    measured = [(row["implementation"], row["n"]) for row in stored["rows"]]
    every = [*IMPLEMENTATIONS]
    assert measured == [(name, n) for n in (16, 32, 64) for name in every if (name, n) != (WRITTEN_OUT, 64)]
    assert all(row["bytes"] > 0 and len(row["seconds"]) == 1 for row in stored["rows"])
    assert printed.startswith("| implementation | n | ms | MB |")
    assert status == int("allowed" in printed or "expected" in printed)


def test_the_cost_per_round_has_bars(script: dict[str, Any]) -> None:
    """Linear keeps both; quadratic, as when every round is compared with every other, misses both."""
    rows = {power: [{"rounds": r, "seconds": 0.1 * r**power} for r in (1, 2, 4, 8)] for power in (1, 2)}
    assert script["rounds_missed"](rows[1]) == []
    assert script["rounds_missed"](rows[2]) == [
        "LSH: time ∝ rounds^2.00, allowed 1.2",
        "LSH: most ÷ least time per round 8.00, allowed 1.2",
    ]
