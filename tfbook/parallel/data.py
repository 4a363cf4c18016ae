"""Data parallelism: each machine has the whole model and a share of the batch."""

from __future__ import annotations

from copy import deepcopy

from tfbook.models.gpt import Gpt
from tfbook.parallel.whole import (
    LR,
    Batches,
    adam,
    flat_gradient,
    predicted,
    set_gradient,
    take_step,
    total_loss,
)
from tfbook.parallel.wire import Wire


def data_parallel(model: Gpt, batches: Batches, wire: Wire, *, lr: float = LR) -> tuple[list[Gpt], list[float]]:
    """Each machine's model after a step for each of `batches`, and the losses; `model` stays as it was.

    Shares may differ in size: each loss is divided by the count of the whole batch, so the gradients are *summed*.
    """
    models = [deepcopy(model) for _ in range(wire.machines)]
    optimizers = [adam(each.parameters(), lr) for each in models]
    losses = []
    for ids in batches:
        loss = 0.0
        for machine, share in zip(models, ids.tensor_split(wire.machines), strict=True):
            own = total_loss(machine(share[:, :-1]), share) / predicted(ids)
            own.backward()
            loss += own.item()
        gradients = wire.all_reduce([flat_gradient(machine) for machine in models])
        for machine, gradient, optimizer in zip(models, gradients, optimizers, strict=True):
            set_gradient(machine, gradient)
            take_step(optimizer)
        losses.append(loss)
    return models, losses
