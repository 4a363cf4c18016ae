"""The benchmark of inference: each case generates what it says, and a bar that is missed is named."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks/inference_speed.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, float32: None) -> dict[str, Any]:
    """Tiny sizes, few tokens, and no probe that takes half a second."""
    names = runpy.run_path(str(SCRIPT))
    inside = names["main"].__globals__
    probe = inside["probe_machine"]
    monkeypatch.setitem(inside, "NEW", 4)
    monkeypatch.setitem(inside, "NEURONS", 800)
    monkeypatch.setitem(inside, "SHAPES", {"2 × 32": names["shape"](2, 32, 2)})
    monkeypatch.setitem(inside, "LIMITS", {"all 256": [4] * 3, "32 to 256": [1, 2, 4]})
    monkeypatch.setitem(inside, "probe_machine", lambda: probe(seconds=0.01, megabytes=1))
    return inside


def test_alone_the_engine_and_its_peer_have_a_row_for_each_precision(script: dict[str, Any]) -> None:
    rows = script["alone_rows"](1)
    engine = [row["weights"] for row in rows if row["by"] == "engine"]
    assert engine == ["float32", "bfloat16", "float16", "int8", "int4"]
    peers = [(row["weights"], row["bar"]) for row in rows if row["by"] == "transformers"]
    assert peers == [("float32", 2.0), ("bfloat16", 2.0)]
    assert rows[-1]["by"] == "roofline"
    assert all(row["tokens/s"] > 0 for row in rows)


def test_together_each_schedule_has_a_row_for_each_load(script: dict[str, Any]) -> None:
    rows = script["together_rows"](1)
    assert [row["by"] for row in rows] == ["continuous", "static", "one after another"] * 2
    assert [row["bar"] for row in rows] == ["", "", 3.0, "", "", ""]
    assert rows[0]["ratio"] == 1


def test_speculation_is_measured_with_both_drafts(script: dict[str, Any]) -> None:
    rows = script["speculative_rows"](1, stories=1, known=20)
    assert [row["by"] for row in rows] == ["draft model", "lookup", "plain"] * 2
    guessed = [row for row in rows if row["by"] != "plain"]
    assert all(0 < row["acceptance"] <= 1 and 1 <= row["per pass"] <= 5 for row in guessed)
    assert [row["bar"] for row in rows] == ["", "", "", 1.3, 1.3, ""]


def test_a_lookup_counts_what_followed(script: dict[str, Any]) -> None:
    """After 1 2 came 3 twice and 4 once; an unknown context falls back on shorter ones, the empty one at last."""
    draft = script["Counts"]([[1, 2, 3], [1, 2, 3], [1, 2, 4]], vocab=6, longest=4)
    probabilities = draft.read(torch.tensor([[1, 2]])).exp()[0]
    torch.testing.assert_close(probabilities, torch.tensor([0.0, 0.0, 0.0, 2.0, 1.0, 0.0]) + 1e-3)
    torch.testing.assert_close(draft.read(torch.tensor([[5, 2]])).exp()[0], probabilities)
    torch.testing.assert_close(
        draft.read(torch.tensor([[5]])).exp()[0], torch.tensor([0.0, 0.0, 3.0, 2.0, 1.0, 0.0]) + 1e-3
    )


def test_bars_that_are_missed_are_named(script: dict[str, Any]) -> None:
    alone = [
        {"size": "s", "by": "engine", "weights": "float32", "float32": 1.0, "best": 1.3, "bar": ""},
        {"size": "s", "by": "transformers", "weights": "float32", "float32": 1.9, "best": 2.5, "bar": 2.0},
        {"size": "s", "by": "transformers", "weights": "bfloat16", "float32": 1.0, "best": 1.5, "bar": 2.0},
    ]
    together = [
        {"size": "s", "by": "one after another", "ratio": 2.9, "bar": 3.0},
        {"by": "static", "ratio": 1.2, "bar": ""},
    ]
    speculative = [
        {"size": "s", "by": name, "ratio": each, "bar": 1.3} for name, each in (("draft model", 1.1), ("lookup", 1.4))
    ]
    assert script["missed"](alone, together, speculative) == [
        "s, transformers: float32 is 1.9, below 2.0",
        "s, transformers: best is 1.5, below 2.0",
        "s, one after another: ratio is 2.9, below 3.0",
    ]
    assert script["missed"]([], [], speculative[:1]) == ["s, draft model: ratio is 1.1, below 1.3"]


def test_the_command_ends_with_its_tables(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "speed.json"
    monkeypatch.setattr(sys, "argv", ["inference_speed.py", "--only", "together", "--rounds", "1", "--out", str(path)])
    assert script["main"]() in (0, 1)
    assert "| one after another |" in capsys.readouterr().out.replace("2 × 32 | all 256 | ", "")
    assert '"together"' in path.read_text()
