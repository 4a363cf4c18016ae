"""The cost of reading: time and memory per word against length, and the time of a training step by loop and by scan."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from tfbook.course.experiments import experiment
from tfbook.lessons.state_spaces.telling import MIXERS, SIZES, state_bytes
from tfbook.models.blocks import Config
from tfbook.models.gated import Lstm, MinGru
from tfbook.models.gpt import Gpt
from tfbook.models.scans import parallel_scan, sequential_scan
from tfbook.models.state_spaces import Mamba, selective_scan

LENGTHS = (512, 2048, 8192)


def seconds(run: Callable[[], Any], *, repeats: int, warmup: int = 2) -> list[float]:
    """How long each run took, after some that do not count."""
    for _ in range(warmup):
        run()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


@experiment
def per_word(*, lengths: tuple[int, ...] = LENGTHS, repeats: int = 60) -> list[dict[str, Any]]:
    """Time of one more word after so many, the least and the median of the repeats, and the bytes that are kept."""
    found = []
    for name in ("attention", "Mamba", "minGRU", "LSTM"):
        model = Gpt(681, Config(**SIZES, mixer=MIXERS[name])).eval()
        for length in lengths:
            cache, word = model.new_cache(), torch.zeros(1, 1, dtype=torch.long)
            with torch.inference_mode():
                for piece in torch.randint(681, (1, length)).split(256, dim=1):
                    model(piece, cache=cache)
                times = seconds(partial(model, word, cache=cache), repeats=repeats)
            row = {"method": name, "length": length, "ms": 1e3 * min(times), "median": 1e3 * median(times)}
            found.append(row | {"bytes": state_bytes(model, length)})
    return found


def _library_lstm(d_model: int, heads: int) -> nn.Module:
    return nn.LSTM(d_model, d_model, batch_first=True)


READING: dict[str, Any] = {
    "LSTM: a loop": Lstm,
    "LSTM: PyTorch's": _library_lstm,
    "minGRU: the loop": partial(MinGru, scan=sequential_scan),
    "minGRU: the tree": partial(MinGru, scan=parallel_scan),
    "minGRU: chunks": MinGru,
    "Mamba: the loop": partial(Mamba, width=64, state=8, selective=partial(selective_scan, scan=sequential_scan)),
    "Mamba: the tree": partial(Mamba, width=64, state=8, selective=partial(selective_scan, scan=parallel_scan)),
    "Mamba: chunks": partial(Mamba, width=64, state=8),
}


@experiment
def training_steps(*, lengths: tuple[int, ...] = (128, 512), repeats: int = 5) -> list[dict[str, Any]]:
    """Forward and backward pass of one mixer, 64 wide, on 4 texts: the least of the repeats, in milliseconds."""
    found = []
    for length in lengths:
        x = torch.randn(4, length, 64)
        for name, make in READING.items():
            mixer: nn.Module = make(64, 4)

            taken = min(seconds(partial(_both_ways, mixer, x), repeats=repeats))
            found.append({"method": name, "length": length, "ms": 1e3 * taken})
    return found


def _both_ways(mixer: nn.Module, x: torch.Tensor) -> None:
    output = mixer(x)
    (output[0] if isinstance(output, tuple) else output).square().mean().backward()
