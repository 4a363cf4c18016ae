"""Counts what a real process holds and what it hands over to the others, whoever calls: this package or PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from tfbook.parallel.planning import all_gather_bytes, all_reduce_bytes

LOOPBACK = Path("/proc/net/dev")  # Linux counts there what processes of one machine send to each other


class MessageCounter(TorchDispatchMode):
    """Inside, adds up what this process sends by the ring's formulas, of the sizes that collectives are really given.

    `sent` has bytes by kind. Numbers alone, such as a loss to print, are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        library, name = str(func).split(".")[:2]
        if library in ("c10d", "_c10d_functional"):
            self._count(name.strip("_"), args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: Any) -> None:
        n = dist.get_world_size()
        if name in ("allreduce", "all_reduce"):
            size = _size(args[0])
            if size > 8:
                self.sent["all-reduce"] += round(all_reduce_bytes(size, n))
        elif name == "allgather_base":
            self.sent["all-gather"] += round(all_gather_bytes(_size(args[0]), n))
        elif name == "reduce_scatter_base":
            self.sent["reduce-scatter"] += round(all_gather_bytes(_size(args[1]), n))
        elif name == "send":
            self.sent["send"] += _size(args[0])


def _size(tensors: Tensor | Iterable[Tensor]) -> int:
    """Bytes of one tensor, or of all in a list."""
    if isinstance(tensors, Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(map(_size, tensors))


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


def on_loopback() -> int | None:
    """Bytes that this machine has sent to itself so far, everyone's; None where the system doesn't count them."""
    if not LOOPBACK.exists():
        return None
    lines = (line.split() for line in LOOPBACK.read_text(encoding="utf-8").splitlines())
    return next((int(words[9]) for words in lines if words and words[0] == "lo:"), None)
