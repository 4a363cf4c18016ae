"""The same four kinds on real processes: what one of them runs. Beside the pretended loops each is a small diff.

Here a machine knows only what it holds, so the lists and the loops over machines are gone. Sharding is done by
PyTorch's `fully_shard`, tensor parallelism by its DTensor; both are imported where they are used, since that takes a
second.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed as dist, nn

from tfbook.models.gpt import Gpt
from tfbook.parallel.pipeline import MICROBATCHES, Stage, StageRunner, tied
from tfbook.parallel.schedules import Schedule, check_stages, one_forward_one_backward
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

Trained = tuple[nn.Module, list[float]]

# ---- one for each kind -----------------------------------------------------------------------------------------------


def data_process(model: Gpt, batches: Batches, *, lr: float = LR) -> Trained:
    """This machine's model and the losses; gradients are summed by `all_reduce`."""
    optimizer = adam(model.parameters(), lr)
    losses = []
    for ids in batches:
        share = ids.tensor_split(dist.get_world_size())[dist.get_rank()]
        own = total_loss(model(share[:, :-1]), share) / predicted(ids)
        own.backward()
        gradient = flat_gradient(model)
        dist.all_reduce(gradient)
        set_gradient(model, gradient)
        del gradient  # or it would still be there beside the next one
        take_step(optimizer)
        losses.append(_sum(own))
    return model, losses


def sharded_process(model: Gpt, batches: Batches, *, lr: float = LR) -> Trained:
    """FSDP2: each unit's weights are gathered before its use, forward and backward, and freed after it."""
    from torch.distributed.fsdp import fully_shard

    for unit in [*model.stack.blocks, model]:
        fully_shard(unit)
    optimizer = adam(model.parameters(), lr)
    losses = []
    for ids in batches:
        share = ids.tensor_split(dist.get_world_size())[dist.get_rank()]
        own = total_loss(model(share[:, :-1]), share) / predicted(ids)
        (own * dist.get_world_size()).backward()  # FSDP averages over machines
        take_step(optimizer)
        losses.append(_sum(own))
    return model, losses


def tensor_process(model: Gpt, batches: Batches, *, lr: float = LR) -> Trained:
    """DTensor: weights cut by outputs or inputs; f and g are inserted where the plan says so."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.stack.blocks:
        block.mixer.branch.heads //= dist.get_world_size()
        parallelize_module(block, mesh, _plan())
    optimizer = adam(model.parameters(), lr)
    losses = []
    for ids in batches:
        own = total_loss(model(ids[:, :-1]), ids) / predicted(ids)
        own.backward()
        take_step(optimizer)
        losses.append(own.item())
    return model, losses


def _plan() -> dict[str, Any]:
    """Which layer of a block is cut how."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel

    once = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    return {
        "mixer.branch": once,  # one f for W_Q, W_K and W_V together, instead of one each
        **{f"mixer.branch.{name}": ColwiseParallel() for name in ("W_Q", "W_K", "W_V")},
        "mixer.branch.W_O": RowwiseParallel(),
        "feed_forward.branch.up": ColwiseParallel(),
        "feed_forward.branch.down": RowwiseParallel(),
    }


def pipeline_process(model: Gpt, batches: Batches, *, schedule: Schedule | None = None, lr: float = LR) -> Trained:
    """This machine's stage; it follows its own line of the schedule, and waits for what it needs."""
    stages, s = dist.get_world_size(), dist.get_rank()
    schedule = schedule or one_forward_one_backward(stages, MICROBATCHES)
    check_stages(schedule, stages)
    runner = StageRunner(Stage(model, s, stages))
    optimizer = adam(runner.stage.parameters(), lr)
    order, microbatches = schedule[s], len(schedule[s]) // 2
    losses = []
    for ids in batches:
        pieces, sent = ids.tensor_split(microbatches), list[Any]()
        for kind, k in order:
            like = model.embed.weight.new_empty(*pieces[k][:, :-1].shape, model.embed.embedding_dim)
            if kind == "F":
                arrived = _received(like, s - 1) if s > 0 else pieces[k][:, :-1]
                y = runner.forward(k, arrived, pieces[k], predicted(ids))
                if s < stages - 1:
                    sent.append(dist.isend(y, s + 1))  # goes on while this machine does, or two could wait forever
            else:
                gradient = runner.backward(k, _received(like, s + 1) if s < stages - 1 else None)
                if s > 0:
                    sent.append(dist.isend(gradient, s - 1))
        for message in sent:
            message.wait()
        _add_tied(runner.stage)
        take_step(optimizer)
        losses.append(_sum(torch.tensor(runner.loss, dtype=torch.float64)))
        runner.loss = 0.0
    return runner.stage, losses


def _received(like: Tensor, source: int) -> Tensor:
    dist.recv(like, source)
    return like


def _add_tied(stage: Stage) -> None:
    """The first and the last stage swap their gradients of the embedding, and each adds the other's."""
    last = dist.get_world_size() - 1
    if stage.ends is not None and last > 0:
        weight, other = tied(stage), last if stage.is_first else 0
        message: Any = dist.isend(weight.grad, other)
        arrived = _received(torch.empty_like(weight), other)
        message.wait()
        weight.grad = weight.grad + arrived


def _sum(value: Tensor) -> float:
    """The sum over the machines."""
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item()
