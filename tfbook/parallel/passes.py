"""A collective and its partner in the backward pass, for autograd.

What one machine's output owes to all machines' inputs decides the partner: all-gather forward is reduce-scatter
backward; a copy for everyone forward is a sum of everyone's gradient backward (Megatron's f), and a sum forward is a
copy backward (its g).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tfbook.parallel.wire import Wire

Collective = Callable[[Sequence[Tensor]], list[Tensor]]


class _Both(torch.autograd.Function):
    """`there` in the forward pass, `back` in the backward pass; the tensors are one for each machine."""

    @staticmethod
    def forward(ctx: Any, there: Collective, back: Collective, *xs: Tensor) -> tuple[Tensor, ...]:
        ctx.back = back
        return tuple(there(xs))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.back(gradients)


def _alone(xs: Sequence[Tensor]) -> list[Tensor]:
    """Every machine keeps what it has: nothing is sent."""
    return [x.clone() for x in xs]


def copied(xs: Sequence[Tensor], wire: Wire) -> list[Tensor]:
    """f of Shoeybi et al. (2019, section 3): each machine uses its copy of x; their gradients are summed."""
    return list(_Both.apply(_alone, wire.all_reduce, *xs))


def summed(xs: Sequence[Tensor], wire: Wire) -> list[Tensor]:
    """g of Shoeybi et al. (2019, section 3): Σ xs on each machine, each with the gradient of that one sum."""
    return list(_Both.apply(wire.all_reduce, _alone, *xs))


def gathered(shards: Sequence[Tensor], wire: Wire) -> list[Tensor]:
    """The whole from all shards on each machine; a shard's gradient is its piece of the sum over the machines."""
    return list(_Both.apply(wire.all_gather, wire.reduce_scatter, *shards))
