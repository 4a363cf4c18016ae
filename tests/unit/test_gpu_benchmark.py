"""The benchmark of a GPU, in its smallest size on the CPU: every task runs, and ratios, bars and shares are right."""

import json
import math
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, float32: None) -> dict[str, Any]:
    """Without peers, and without compiling, which takes a minute for each model."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # for the benchmark that it shares the peers with
    inside = runpy.run_path(str(SCRIPT))["main"].__globals__
    monkeypatch.setitem(inside, "find_spec", lambda name: None)
    monkeypatch.setattr("text_peers.find_spec", lambda name: None)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    return inside


def test_everything_runs_in_the_smallest_size(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--size", "tiny", "--out", str(tmp_path / "gpu.json")])
    assert script["main"]() == 0
    out = capsys.readouterr().out
    for row in ("| training | tiny | tfbook, compiled |", "| generating, batch 2 | tiny | tfbook, frozen |"):
        assert row in out
    figures = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))["figures"]
    assert len(figures) == 2 + 2 * 2 + 2
    assert all(math.isfinite(figure["per_second"]) for figure in figures)


def test_the_speed_of_training_is_that_of_further_steps(script: dict[str, Any]) -> None:
    """Each run begins with 0.2 seconds, which count for nobody."""

    def run(steps: int) -> None:
        time.sleep(0.2 + 0.02 * steps)

    speed, _ = script["measured_steps"](run, 10.0, (1, 11))
    assert speed == pytest.approx(10 / 0.02, rel=0.3)


# ---- nanochat ----------------------------------------------------------------------------------------------------

MODEL = """
import os
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn import functional as F

@dataclass
class GPTConfig:
    sequence_len: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_kv_head: int
    n_embd: int
    window_pattern: str

class GPT(nn.Module):
    dtype = os.environ["NANOCHAT_DTYPE"]

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        assert self.wte.weight.is_meta

    def init_weights(self):
        for weight in self.parameters():
            nn.init.zeros_(weight)
        self.wte.to(torch.bfloat16)

    def forward(self, idx, targets=None):
        assert not torch.is_autocast_enabled("cpu")
        logits = F.linear(self.wte(idx), self.lm_head.weight.to(torch.bfloat16)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
"""
ENGINE = """
class Engine:
    asked = []

    def __init__(self, model, tokenizer):
        assert tokenizer.encode_special("<|assistant_end|>") == tokenizer.get_bos_token_id() == -1

    def generate(self, tokens, num_samples=1, max_tokens=None):
        self.asked.append((len(tokens), num_samples, max_tokens))
        yield from ([0] * num_samples for _ in range(max_tokens))
"""


@pytest.fixture
def nanochat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder laid out as its clone, with a model that knows nothing and sees to how it is called."""
    (tmp_path / "nanochat").mkdir()
    for name, source in (("__init__", ""), ("gpt", MODEL), ("engine", ENGINE)):
        (tmp_path / f"nanochat/{name}.py").write_text(source)
    for name in ("nanochat", "nanochat.gpt", "nanochat.engine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NANOCHAT_DTYPE", "bfloat16")
    return tmp_path


def test_nanochat_takes_part_at_the_same_size(
    script: dict[str, Any], nanochat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are guessed one by one, uniformly; the engine continues a prompt as often as the batch is large."""
    folders = script["Folders"](nanochat=nanochat)
    figures, _ = script["measure"](script["TINY"], folders, "training", 1.0)
    assert [figure.by for figure in figures] == ["tfbook, compiled", "tfbook", "nanochat", "nanochat, compiled"]
    peer = script["text_peers"](script["TINY"].texts["tiny"].config, 64, folders, spoken=5)["nanochat"]()
    config = peer.model.config
    assert (config.n_layer, config.n_head, config.n_kv_head, config.n_embd) == (1, 2, 2, 32)
    assert (config.sequence_len, config.vocab_size, config.window_pattern) == (64, 64, "L")
    assert peer.model.dtype == "bfloat16"
    assert peer.loss(torch.arange(10)[None]).item() == pytest.approx(math.log(64))
    assert "generating tiny, nanochat, batch 1" not in names(script, folders)
    monkeypatch.setattr("text_peers.find_spec", lambda name: name in ("tiktoken", "rustbpe") or None)
    assert "generating tiny, nanochat, batch 1" in names(script, folders)
    peer.speak(torch.zeros(3, 16, dtype=torch.int64))
    assert sys.modules["nanochat.engine"].Engine.asked == [(16, 3, 5)]


def names(script: dict[str, Any], folders: Any) -> list[str]:
    return [f"{kind}, {by}" for kind, (by, _) in script["jobs"](script["TINY"], folders, "generating")]


# ---- the table ---------------------------------------------------------------------------------------------------


def test_when_the_minutes_are_over_the_rest_is_named(script: dict[str, Any]) -> None:
    figures, left_out = script["measure"](script["TINY"], script["Folders"](), "training", 0.0)
    assert figures == []
    assert left_out == ["training tiny, tfbook, compiled", "training tiny, tfbook"]


@pytest.mark.parametrize(
    ("name", "peak"),
    [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA A100-SXM4", 312e12), ("Tesla T4", None)],
)
def test_the_peak_of_a_gpu(script: dict[str, Any], name: str, peak: float | None) -> None:
    assert script["peak_of"](name) == peak


def test_ratios_and_bars(script: dict[str, Any]) -> None:
    figure, size = script["Figure"], script["FULL"]
    figures = [
        figure("training", "124M", "tfbook", 300.0, 0, 0.30),
        figure("training", "124M", "tfbook, compiled", 400.0, 2_000_000_000, 0.40),
        figure("training", "124M", "nanoGPT, compiled", 500.0, 2_000_000_000, 0.50),
        figure("generating, batch 1", "124M", "tfbook, frozen", 1000.0, 0),
        figure("generating, batch 1", "124M", "transformers", 150.0, 0),
        figure("generating, batch 64", "124M", "transformers, static cache", 150.0, 0),
    ]
    rows = script["rows"](figures, size)
    assert [row["ours ÷ this"] for row in rows[:5]] == [1.33, 1.0, 0.8, 1.0, 6.67]
    assert [row["bar"] for row in rows] == ["", "", "≥ 1.0", "", "≥ 5.0", "≥ 2.0"]
    assert rows[1]["share of the peak"] == "40%"
    assert rows[1]["memory, GB"] == "2.0"
    missed = script["missed"](figures, size)
    assert missed[0] == "training, 124M: 0.80 times nanoGPT, compiled, below 1.0"
    assert "nan times transformers, static cache, below 2.0" in missed[1], "what we did not measure is no success"
    assert len(missed) == 2
    lean = figures[2]._replace(per_second=1.0, memory=1_999_999_999)
    assert "training, 124M: more memory than nanoGPT, compiled" in script["missed"]([*figures[:2], lean], size)
    assert script["missed"]([*figures[:2], lean._replace(memory=2_000_000_000)], size) == []


def test_the_share_of_the_peak_is_that_of_the_models_operations(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 small at nanoGPT's speed on an H100: 6 N + 12 · layers · d · time operations a token."""
    monkeypatch.setitem(script, "machine_peak", lambda: 989e12)
    matrices = 12 * 12 * 768**2 + 50_304 * 768
    expected = 436_331 * (6 * matrices + 12 * 12 * 768 * 1024) / 989e12
    assert script["utilization"](436_331, script["FULL"].texts["124M"]) == pytest.approx(expected, rel=1e-3)
    assert expected == pytest.approx(0.378, abs=0.002)
