"""The benchmark of a GPT's speed: the peers do the same work on tiny config, and its ratios and bars."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tfbook import runtime
from tfbook.models.gpt import parameter_count
from tfbook.text import Windows

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpt_speed.py"
PEERS = {"transformers": "hugging_face", "x_transformers": "x_transformers"}
PRETENDED = """
from types import SimpleNamespace
import torch

class GPTConfig(SimpleNamespace):
    pass

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.table = config, torch.nn.Embedding(config.vocab_size, config.n_embd)
        blocks = torch.nn.ModuleList(torch.nn.ModuleDict({"attn": torch.nn.Module()}) for _ in range(config.n_layer))
        self.transformer = torch.nn.ModuleDict({"h": blocks})
        for block in blocks:
            block.attn = block["attn"]
            block.attn.flash = True
        print("number of parameters")

    def configure_optimizers(self, *arguments):
        return SimpleNamespace(arguments=arguments)

    def forward(self, ids, targets):
        return None, torch.nn.functional.cross_entropy((self.table(ids) @ self.table.weight.T).mT, targets)

    def generate(self, ids, count):
        return torch.cat([ids, ids.new_zeros(len(ids), count)], dim=1)
"""


SPOKEN = {
    ("tfbook, as trained", "float32"): [40.0],
    ("tfbook, frozen", "float32"): [50.0],
    ("tfbook, frozen", "float16"): [100.0],
    ("nanoGPT", "bfloat16"): [25.0],
    ("transformers", "float32"): [50.0],
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, float32: None) -> dict[str, Any]:
    names = runpy.run_path(str(SCRIPT))
    inside = names["main"].__globals__
    bars = {"transformers": 2.0, "nanoGPT": 5.0}
    tiny = names["Shape"](names["small"](2, 8, 2), batch=3, time=4, steps=2, bars=bars)
    for name, value in {"PROMPT": 3, "SPOKEN": 5, "SHAPES": {"tiny": tiny}}.items():
        monkeypatch.setitem(inside, name, value)
    return inside


def without_peers(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script, "find_spec", lambda name: None)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_the_same_model(script: dict[str, Any], name: str) -> None:
    pytest.importorskip(name, reason="the peer is installed for the measurement only")
    config = script["SHAPES"]["tiny"].config
    peer = script[PEERS[name]](config)
    found, expected = sum(weight.numel() for weight in peer.model.parameters()), parameter_count(65, config)
    assert (
        found == expected if name == "transformers" else found == pytest.approx(expected, rel=0.1)
    )  # it has no biases
    ids = torch.randint(65, (3, 5))
    assert peer.loss(ids).item() == pytest.approx(torch.tensor(65.0).log().item(), rel=0.3)
    assert {id(weight) for weight in peer.model.parameters()} == {
        id(weight) for group in peer.optimizer.param_groups for weight in group["params"]
    }


def test_nanogpt_is_built_from_its_folder(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "model.py").write_text(PRETENDED)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    ours = script["SHAPES"]["tiny"].config
    peer = script["nanogpt"](ours, tmp_path)
    monkeypatch.delitem(sys.modules, "model")
    config = peer.model.config
    assert (config.n_layer, config.n_head, config.n_embd, config.vocab_size) == (2, 2, 8, 65)
    assert config.block_size == ours.max_length
    assert peer.loss(torch.zeros(2, 4, dtype=torch.int64)).requires_grad
    assert peer.speak(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 8)
    assert not capsys.readouterr().out
    plain = script["written_out"](peer)
    assert [block.attn.flash for block in plain.model.transformer.h] == [False, False]
    assert torch.equal(
        plain.model.transformer.h[0].attn.bias[0, 0], torch.ones(ours.max_length, ours.max_length).tril()
    )


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_trains_and_speaks(script: dict[str, Any], name: str) -> None:
    pytest.importorskip(name, reason="the peer is installed for the measurement only")
    peer = script[PEERS[name]](script["SHAPES"]["tiny"].config)
    before = [weight.clone() for weight in peer.model.parameters()]
    script["train_peer"](peer, Windows(torch.randint(65, (50,)), length=5, size=3, seed=0), 2, bfloat16=False)
    assert any(not torch.equal(old, new) for old, new in zip(before, peer.model.parameters(), strict=True))
    assert peer.speak(torch.zeros(1, 3, dtype=torch.int64)).shape[1] in (5, 8)  # with the prompt or without


def test_ours_runs_without_peers(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    without_peers(script, monkeypatch)
    tiny = script["SHAPES"]["tiny"]
    trained, spoken = script["trained"](tiny, None, rounds=2), script["speaking"](tiny, None, rounds=2)
    assert list(trained) == [("tfbook", "float32")]
    assert list(spoken) == [("tfbook, as trained", "float32")] + [
        ("tfbook, frozen", precision) for precision in ("float32", "bfloat16", "float16")
    ]
    assert all(len(speed) == 2 and min(speed) > 0 for speed in (*trained.values(), *spoken.values()))


def test_the_script_runs_as_a_command(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_peers(script, monkeypatch)
    monkeypatch.setattr("sys.argv", ["gpt_speed.py", "--rounds", "1"])
    assert script["main"]() == 0  # nothing is missed without peers
    said = capsys.readouterr().out
    assert "| tfbook |" in said
    assert "| tfbook, frozen |" in said


def test_ours_also_trains_in_the_precision_that_the_runtime_chooses(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_peers(script, monkeypatch)
    monkeypatch.setenv("TFBOOK_PRECISION", "bfloat16")
    runtime.precision.cache_clear()
    trained = script["trained"](script["SHAPES"]["tiny"], None, rounds=1)
    assert list(trained) == [("tfbook", "float32"), ("tfbook", "bfloat16")]


def test_ratios_are_the_middle_of_the_rounds_and_have_bars(script: dict[str, Any]) -> None:
    speeds = {
        ("tfbook", "float32"): [100.0, 200.0, 300.0],
        ("nanoGPT", "float32"): [50.0, 200.0, 200.0],
        ("nanoGPT", "bfloat16"): [200.0, 100.0, 400.0],
    }
    trained = script["training_rows"]("tiny", speeds)
    assert [row["float32"] for row in trained] == [row["chosen"] for row in trained] == [1.0, 1.5, 0.75]
    assert [row["bars"] for row in trained] == ["", "≥ 1, ≥ 1", "–, ≥ 1"]
    spoken = script["speaking_rows"]("tiny", SPOKEN)
    assert [(row["ratio"], row["bar"]) for row in spoken] == [(2.5, ""), (2.0, ""), (1.0, ""), (4.0, 5.0), (2.0, 2.0)]
    assert script["missed"](trained, spoken) == [
        "tiny, nanoGPT, bfloat16: chosen is 0.75, below 1.0",
        "tiny, nanoGPT, bfloat16: ratio is 4.0, below 5.0",
    ]


def test_slower_than_nanogpt_in_float32_is_missed(script: dict[str, Any]) -> None:
    speeds = {("tfbook", "float32"): [90.0], ("nanoGPT", "float32"): [100.0]}
    assert "tiny, nanoGPT, float32: float32 is 0.9, below 1.0" in script["missed"](
        script["training_rows"]("tiny", speeds), []
    )
