"""Weighs what a real process holds, and reads what the system counts of the messages between processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LOOPBACK = Path("/proc/net/dev")  # Linux counts there what processes of one machine send to each other


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
