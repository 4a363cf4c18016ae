"""The benchmark of the attention layer: its rows on tiny sizes."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/attention_speed.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    names = runpy.run_path(str(SCRIPT))
    inside = names["main"].__globals__
    for name, value in {"BATCH": 1, "LENGTH": 4, "WIDTHS": {8: 2}, "KERNEL_LENGTHS": (4, 8)}.items():
        monkeypatch.setitem(inside, name, value)
    return names


def test_the_kernels_are_compared_by_length_and_mask(script: dict[str, Any]) -> None:
    rows = script["between_implementations"](rounds=1)
    assert [(row["length"], row["mask"]) for row in rows] == [(4, "none"), (4, "causal"), (8, "none"), (8, "causal")]
    assert all(row["softmax ÷ fused"] > 0 for row in rows)


def test_each_peer_is_compared_at_each_width_and_mask(script: dict[str, Any]) -> None:
    pytest.importorskip("x_transformers", reason="the peer is installed for the measurement only")
    rows = script["against_peers"](rounds=1)
    assert len(rows) == 2 * len(script["PEERS"])
    assert all(row["ratio"] > 0 and row["width"] == 8 for row in rows)
