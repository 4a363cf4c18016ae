"""The benchmark of ViT: its rows on given speeds, and its models on tiny sizes."""

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

SCRIPT = Path(__file__).parents[2] / "benchmarks/vit_speed.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    names = runpy.run_path(str(SCRIPT))
    inside = names["main"].__globals__
    sizes = replace(names["SIZES"], d_model=8, heads=2, d_ff=8, layers=1, height=8, width=8)
    for name, value in {"BATCH": 4, "STEPS": 2, "SIZES": sizes}.items():
        monkeypatch.setitem(inside, name, value)
    return names


@pytest.fixture
def stand_in(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is always there."""
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    monkeypatch.setitem(script["main"].__globals__, "simple_vit", lambda: layers)


def test_a_ratio_is_the_middle_of_the_rounds(script: dict[str, Any]) -> None:
    """Not the ratio of the middles, which a disturbed round moves."""
    speeds = {script["SAME_SHAPE"]: [100.0, 10.0, 90.0], "SimpleViT": [50.0, 10.0, 90.0]}
    ours, theirs = script["rows"](speeds)
    assert ours == {"by": script["SAME_SHAPE"], "images/s": 90, "ratio": 1.0, "bar": "≥ 1"}
    assert theirs == {"by": "SimpleViT", "images/s": 50, "ratio": 1.0, "bar": ""}


@pytest.mark.usefixtures("stand_in")
def test_every_model_is_trained_in_every_round(script: dict[str, Any]) -> None:
    models = script["models"]()
    mean, token = models["tfbook, mean of the patches"], models["tfbook, class token"]
    images = torch.rand(2, 3, 8, 8)
    assert [model.representations(images).shape[1] for model in (mean, token)] == [4, 5]
    speeds = script["speeds"](rounds=2)
    assert speeds.keys() == models.keys()
    assert all(len(speed) == 2 and min(speed) > 0 for speed in speeds.values())


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(("ours", "status"), [(9.0, 1), (10.0, 0)])
def test_the_exit_status_tells_a_missed_bar(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, ours: float, status: int
) -> None:
    given = {script["SAME_SHAPE"]: [ours] * 3, "SimpleViT": [10.0] * 3}
    monkeypatch.setitem(script["main"].__globals__, "speeds", lambda rounds: given)
    monkeypatch.setattr("sys.argv", ["vit_speed.py", "--rounds", "3"])
    assert script["main"]() == status
    assert f"| {script['SAME_SHAPE']} | {ours:.0f} | {ours / 10} | ≥ 1 |" in capsys.readouterr().out


def test_the_peer_has_the_same_sizes(script: dict[str, Any]) -> None:
    pytest.importorskip("vit_pytorch", reason="the peer is installed for the measurement only")
    theirs = script["simple_vit"]()
    assert theirs(torch.rand(2, 3, 8, 8)).shape == (2, 10)
    assert theirs.transformer.layers[0][0].to_qkv.weight.shape == (3 * 8, 8)
    ours = script["models"]()[script["SAME_SHAPE"]]
    fixed, norms = ours.stack.position.embedding.numel(), 2 * 3 * 4 * 4 + 2 * 8  # around the patches' embedding
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) + fixed - norms
