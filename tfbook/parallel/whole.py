"""Training on one machine, to compare with, and what all kinds share: the loss, the optimizer, flat gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

Batches = Sequence[Int[Tensor, "batch time"]]
LR = 3e-3


def total_loss(logits: Float[Tensor, "batch time vocab"], ids: Int[Tensor, "batch longer"]) -> Float[Tensor, ""]:
    """Σ −log p of each id but the first, in the precision of the logits, which `next_token_loss` would round."""
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")


def predicted(ids: Int[Tensor, "batch time"]) -> int:
    """How many ids are predicted: all but the first of each row."""
    return ids[:, 1:].numel()


def adam(parameters: Iterable[Tensor], lr: float = LR) -> torch.optim.Optimizer:
    """PyTorch's Adam; all kinds use the same."""
    return torch.optim.Adam(parameters, lr=lr)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """A step, after which there is no gradient."""
    optimizer.step()
    optimizer.zero_grad()


def flat_gradient(model: nn.Module) -> Float[Tensor, " parameters"]:
    """All gradients one after the other: one message instead of one for each parameter."""
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])  # type: ignore[union-attr]


def set_gradient(model: nn.Module, gradient: Float[Tensor, " parameters"]) -> None:
    """The opposite of `flat_gradient`."""
    weights = list(model.parameters())
    for weight, each in zip(weights, gradient.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = each.view_as(weight)


def alone(model: nn.Module, batches: Batches, *, lr: float = LR) -> list[float]:
    """Trains on one machine, a step for each of `batches`; returns the losses."""
    optimizer, losses = adam(model.parameters(), lr), []
    for ids in batches:
        loss = total_loss(model(ids[:, :-1]), ids) / predicted(ids)
        loss.backward()
        take_step(optimizer)
        losses.append(loss.item())
    return losses


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between parameters of the same name."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)
