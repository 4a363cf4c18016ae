"""The gradient of a step: of one batch or of several, in one process or in all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tfbook import runtime
from tfbook.training import distributed
from tfbook.training.losses import Loss, at_least_one
from tfbook.training.placement import Run
from tfbook.training.recipe import Recipe

LossFunction = Callable[[Any, Any], Loss | Tensor]  # of the model, of any class, and a batch


def gradient(
    model: nn.Module, run: Run, loss: LossFunction, batches: Callable[[int], Any], recipe: Recipe, step: int
) -> Tensor:
    """Σ total / Σ count over the batches of a step in all processes; its gradient is left in the weights.

    `run` is what `place` returned for the model. Nothing here waits for the device. Raises ValueError for a loss that
    cannot be minimized.
    """
    device = next(model.parameters()).device
    numbers = range(step * recipe.accumulate, (step + 1) * recipe.accumulate)
    losses = (_loss(run, loss, _sent(batches(number), device), recipe) for number in numbers)
    value = _backward(next(losses)) if recipe.accumulate == 1 else _accumulate(model, losses)
    return distributed.total(value)


def _loss(run: Run, loss: LossFunction, batch: Any, recipe: Recipe) -> Loss:
    with runtime.autocast(recipe.mixed_precision):
        found = run(loss, batch)
    totals = found.totals if isinstance(found, Loss) else [found]
    if not all(isinstance(total, Tensor) and not total.shape and total.requires_grad for total in totals):
        expected = "a Loss, or a Tensor of shape (), that depends on the model's weights"
        raise ValueError(f"loss returned {_described(found)}; expected {expected}")
    return found if isinstance(found, Loss) else Loss(found, 1)


def _sent(batch: Any, device: torch.device) -> Any:
    with Pinned() if device.type == "cuda" else nullcontext():
        return batch.to(device)


class Pinned(TorchFunctionMode):
    """Inside, `tensor.to(device)` copies from pinned memory, from which CUDA reads by itself while the host goes on.

    It is so wherever it is called, as in the `to` of a batch of several tensors. A tensor that is pinned may be filled
    anew for the next batch, so its copy is waited for, unless the call itself says `non_blocking`.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function; `Tensor.to` with a pinned copy, without waiting."""
        kwargs = kwargs or {}
        if function is Tensor.to and _waits(*args, **kwargs):
            return function(args[0].pin_memory(), *args[1:], **kwargs | {"non_blocking": True})
        return function(*args, **kwargs)


def _waits(tensor: Tensor, *args: Any, **kwargs: Any) -> bool:
    chosen = "non_blocking" in kwargs or bool in map(type, args)
    return tensor.device.type == "cpu" and not tensor.is_pinned() and not chosen


def _backward(found: Loss) -> Tensor:
    """The gradient of one batch, whose counts are known before it. Returns this process's share of the mean."""
    share = found.over([distributed.total(count) for count in found.counts])
    share.backward()
    return share.detach()


@dataclass
class _Term:
    """One term of a loss, summed over batches, and its gradient."""

    gradients: list[Tensor | None]
    total: float | Tensor = 0.0
    count: int | Tensor = 0

    def add(self, weights: list[nn.Parameter], total: Tensor, count: int | Tensor, *, last: bool) -> None:
        """Adds the total of one more batch; `last` unless other terms need its graph."""
        for weight, gradient in zip(weights, self.gradients, strict=True):
            weight.grad = gradient  # to which `backward` adds
        total.backward(retain_graph=not last)
        self.gradients = [weight.grad for weight in weights]
        self.total, self.count = self.total + total.detach(), self.count + count


def _accumulate(model: nn.Module, losses: Iterable[Loss]) -> Tensor:
    """The gradient of several batches: each term has one of its own until all are counted. Returns as `_backward`."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    terms: list[_Term] = []
    for found in losses:
        terms = terms or [_Term([None] * len(weights)) for _ in found.totals]
        for number, (term, total, count) in enumerate(zip(terms, found.totals, found.counts, strict=True), 1):
            term.add(weights, total, count, last=number == len(terms))
        del found, total  # the graph that they hold, before the next batch makes one
    counts = [at_least_one(distributed.total(term.count)) for term in terms]
    for weight, *gradients in zip(weights, *(term.gradients for term in terms), strict=True):
        shares = [gradient / count for gradient, count in zip(gradients, counts, strict=True) if gradient is not None]
        weight.grad = sum(shares) if shares else None
    return sum(term.total / count for term, count in zip(terms, counts, strict=True))  # type: ignore[return-value]


def _described(value: object) -> str:
    if isinstance(value, Loss):
        return f"a Loss of {' + '.join(map(_described, value.totals))}"
    form = f" of shape {tuple(value.shape)}, requires_grad {value.requires_grad}" if isinstance(value, Tensor) else ""
    return f"a {type(value).__name__}{form}"
