"""Shared by mixers with a state of fixed size: the state as a cache, padding, and a short causal convolution.

Shapes: batch, time, width (channels of a recurrence), reach (of a kernel).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.attention.masks import Both, Dense, Mask, as_mask
from tfbook.parts import Part


class RecurrentState:
    """The cache of a recurrence: tensors whose size does not depend on how many positions were read."""

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}

    def get(self, name: str) -> Tensor | None:
        """The tensor of that name; None before the first position."""
        return self.kept.get(name)

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keeps the sequences `rows`, in that order."""
        self.kept = {name: kept[rows] for name, kept in self.kept.items()}

    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(kept.numel() * kept.element_size() for kept in self.kept.values())


class Recurrence(Part):
    """A mixer that reads from left to right, whatever the mask, and keeps a state of fixed size.

    Of a mask it takes only the padding. It reads one sequence, so it is no cross-attention. What it reads is written
    into the residual stream by `W_O`.
    """

    W_O: nn.Linear

    def new_cache(self) -> RecurrentState:
        """The state before the first position."""
        return RecurrentState()

    @property
    def output(self) -> nn.Linear:
        """W_O."""
        return self.W_O

    @staticmethod
    def shown(x: Float[Tensor, "batch time d_model"], context: dict[str, Any]) -> Bool[Tensor, "#batch time 1"] | None:
        """Which positions are no padding; None where all are. Raises ValueError when another sequence is given."""
        if context.get("key") is not None:
            raise ValueError("key is given; a recurrence reads one sequence and cannot attend to another")
        return shown_positions(context.get("mask"), x.shape[1])


def shown_positions(mask: Mask | Tensor | None, time: int) -> Bool[Tensor, "#batch time 1"] | None:
    """Of the last `time` positions, those that may see themselves; None where no matrix is given.

    Where texts of different lengths end together, padding comes first and sees nothing: it must not enter the state.
    Padding behind a text changes nothing before it.
    """
    mask = as_mask(mask)
    if isinstance(mask, Both):
        parts = [shown_positions(part, time) for part in (mask.first, mask.second)]
        known = [part for part in parts if part is not None]
        return known[0] & known[-1] if known else None
    if not isinstance(mask, Dense):
        return None
    allowed = mask.allowed if mask.allowed.ndim > 1 else mask.allowed.expand(time, -1)
    allowed = allowed[:, 0] if allowed.ndim == 4 else allowed
    queries, keys = allowed.shape[-2:]
    if queries != time or keys < queries:
        raise ValueError(
            f"mask is a matrix of {queries} queries and {keys} keys; expected {time} queries, no fewer keys"
        )
    return allowed.diagonal(keys - queries, -2, -1).reshape(-1, time, 1)


def only_shown(x: Float[Tensor, "batch time *width"], shown: Tensor | None) -> Float[Tensor, "batch time *width"]:
    """x with 0 where there is padding."""
    if shown is None:
        return x
    return x * shown.view(*shown.shape[:2], *[1] * (x.ndim - 2))


def wide(x: Tensor) -> Tensor:
    """In float32 at least: a long recurrence in 16 bits would lose what it adds."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def short_convolution(
    x: Float[Tensor, "batch time width"],
    kernel: Float[Tensor, "width reach"],
    bias: Float[Tensor, " width"],
    cache: RecurrentState | None = None,
) -> Float[Tensor, "batch time width"]:
    """y_t = Σ_i w_i ⊙ x_{t − reach + 1 + i} + b: each channel over the last `reach` positions, 0 before the first.

    The cache keeps the last reach − 1 inputs.
    """
    reach = kernel.shape[1]
    before = None if cache is None else cache.get("inputs")
    if before is None:
        before = x.new_zeros(len(x), reach - 1, x.shape[2])
    seen = torch.cat([before, x], dim=1)
    if cache is not None:
        cache.kept["inputs"] = seen[:, seen.shape[1] - reach + 1 :]
    return sum((kernel[:, i] * seen[:, i : i + x.shape[1]] for i in range(reach)), bias)
