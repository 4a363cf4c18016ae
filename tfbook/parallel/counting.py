"""Weighs what a real process holds, and reads what the system counts: its memory, and messages between processes."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

LOOPBACK = Path("/proc/net/dev")  # Linux counts there what processes of one machine send to each other
STATUS, BEGIN_ANEW = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # and of one process's memory


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes that these tensors have in this process: of sharded ones the shard alone, of shared ones once."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in local if each.numel()}
    return sum(storages.values())


class Weighing:
    """Weighs what a process holds right before an optimizer's steps, when all parts are there: the last one counts."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = {}

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Called by PyTorch before each step."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        state = [x for each in optimizer.state.values() for x in each.values() if isinstance(x, Tensor) and x.ndim]
        self.parts = {
            "weights": bytes_of(weights),
            "gradients": bytes_of(weight.grad for weight in weights if weight.grad is not None),
            "optimizer": bytes_of(state),
        }


class Peak:
    """Inside, the most memory that this process has beyond what it has at the start: `bytes`, as Linux counts it.

    Pages that were freed count until the system gets them back, at once where `PRECISE` is in the environment from the
    start. None where the system doesn't count, or doesn't let a process begin anew.
    """

    PRECISE: ClassVar = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "0"}  # glibc's

    def __init__(self) -> None:
        self.bytes: int | None = None

    def __enter__(self) -> Peak:
        gc.collect()
        self._before = _memory("VmRSS")
        try:
            BEGIN_ANEW.write_text("5", encoding="utf-8")  # 5 sets the peak to what is there now
        except OSError:
            self._before = None
        return self

    def __exit__(self, *_: object) -> None:
        peak = _memory("VmHWM")
        self.bytes = None if peak is None or self._before is None else peak - self._before


def _memory(kind: str) -> int | None:
    """Bytes of this process: VmRSS now, VmHWM at most so far; None where there is no such file."""
    lines = STATUS.read_text(encoding="utf-8").splitlines() if STATUS.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(kind)), None)


def on_loopback() -> int | None:
    """Bytes that this machine has sent to itself so far, everyone's; None where the system doesn't count them."""
    if not LOOPBACK.exists():
        return None
    lines = (line.split() for line in LOOPBACK.read_text(encoding="utf-8").splitlines())
    return next((int(words[9]) for words in lines if words and words[0] == "lo:"), None)
