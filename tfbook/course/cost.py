"""Costs of a computation: seconds, bytes, operations and parameters, and their growth with a size."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from tfbook import runtime
from tfbook.attention.implementations import attention_weights

Key = TypeVar("Key", bound=Hashable)

# ---- measuring ---------------------------------------------------------------------------------------------------


def in_turns(
    runs: Mapping[Key, Callable[[], object]], rounds: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[Key, list[float]]:
    """Seconds of each of `runs` in each of `rounds` rounds; they take turns, so that a disturbance affects all of them.

    One more round, which is not counted, warms up. `clock` may be `busy_clock`.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in runs}
    for _ in range(rounds + 1):
        for key, run in runs.items():
            start = clock()
            run()
            runtime.synchronize()
            seconds[key].append(clock() - start)
    return {key: times[1:] for key, times in seconds.items()}


def busy_clock() -> float:
    """Seconds for which the processor has worked for this thread: what other programs take doesn't count.

    Windows counts them in steps of 16 milliseconds, so there the time that passes has to do.
    """
    return time.perf_counter() if sys.platform == "win32" else time.thread_time()


def peak_memory(run: Callable[[], object]) -> int:
    """Peak bytes of the tensors allocated in `run`, as counted by PyTorch's allocators: the CPU's plus a GPU's.

    Exact and reproducible, unlike the size of the process, which depends on its earlier use of memory.
    """
    if runtime.device().type != "cuda":
        return _peak_on_cpu(run)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return _peak_on_cpu(run) + torch.cuda.max_memory_allocated() - before


def _peak_on_cpu(run: Callable[[], object]) -> int:
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # otherwise the profiler logs its start
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in memory if event["args"]["Device Type"] == 0)
    return max(accumulate((size for _, size in changes), initial=0))


def kept_bytes(model: nn.Module, compute: Callable[[], Tensor]) -> int:
    """Bytes that `compute()` keeps for its backward pass, without the parameters of `model`."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = compute()  # kept alive while we count, so that no address is reused
    return sum(kept.values()) if loss.isfinite() else 0


def count_flops(run: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products in `run`, attention's pairs among them.

    PyTorch's counter does not look into the CPU's fused attention, so attention runs unfused here.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def parameters(model: nn.Module) -> int:
    """Number of trainable parameters; a tied matrix counts once."""
    return sum(weight.numel() for weight in model.parameters())


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """p in cost ∝ sizeᵖ: the slope of a least-squares line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


# ---- layers to count and to time: of n vectors of width d --------------------------------------------------------


def attend(n: int, d: int) -> Callable[[], Tensor]:
    """Scores and weighted sum of one attention head, without projections."""
    x = torch.randn(1, 1, n, d)
    return lambda: attention_weights(x, x) @ x


def recur(n: int, d: int) -> Callable[[], Tensor]:
    """A recurrent layer: h' = tanh(W x + U h), step by step."""
    cell, x, start = nn.RNNCell(d, d), torch.randn(n, d), torch.zeros(1, d)

    def run() -> Tensor:
        h = start
        for t in range(n):
            h = cell(x[t : t + 1], h)
        return h

    return run


def convolve(n: int, d: int, k: int = 3) -> Callable[[], Tensor]:
    """A convolution with n outputs, each from k neighboring inputs."""
    layer, x = nn.Conv1d(d, d, kernel_size=k), torch.randn(1, d, n + k - 1)
    return lambda: layer(x)
