"""A model placed on a grid of processes: weights sharded or replicated, blocks that compute again or are compiled.

PyTorch's `fully_shard` (FSDP2) does the work. Each block gathers its weights before it computes and lets them go
afterwards; in the backward pass the sum of the gradients goes to whoever keeps that part. Replicated weights are kept
whole in each row of the grid, and gradients are summed over the rows. FSDP2 would average them, which is exact only
where all shares of a batch are equally large; a sum can be divided by the count over all rows, as a `Loss` counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfbook.training import distributed
from tfbook.training.losses import Loss


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks: the modules of each `nn.ModuleList` that is in no other; one that is used several times is one."""
    lists = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.ModuleList)]
    outer = [part for name, part in lists if not any(name.startswith(f"{other}.") for other, _ in lists if other)]
    return list(dict.fromkeys(block for part in outer for block in part))


class PlacedModel(nn.Module):
    """A model on the grid. Work on it runs in `forward`, whose hooks gather the weights that belong to no block.

    So a loss may enter the model by any of its parts, as `masked_loss` enters body and head.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, work: Callable[..., Any], *args: Any) -> Any:
        """`work(model, *args)`; the numbers of a `Loss` as tuples, in which the hooks find the tensors."""
        found = work(self.model, *args)
        return (Loss, tuple(found.totals), tuple(found.counts)) if isinstance(found, Loss) else found

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Runs `work(model, *args)` and returns what it does."""
        found = self(work, *args)
        if not torch.is_grad_enabled():
            self.reshard()  # type: ignore[operator] # as a backward pass does
        return Loss.of(*found[1:]) if isinstance(found, tuple) and found[0] is Loss else found


Run = Callable[..., Any]  # run(work, *args) returns work(model, *args)


def place(model: nn.Module) -> Run:
    """Places the model on the grid, changing it: its parameters become DTensors. Returns how to run work on it.

    The weights are those of the first process. One process leaves the model as it is.
    """
    if distributed.world_size() == 1:
        return lambda work, *args: work(model, *args)
    from torch.distributed.fsdp import FSDPModule, fully_shard  # here, because one process does without

    distributed.broadcast(model)
    grid, placed = distributed.grid(), PlacedModel(model)
    mesh = grid.mesh["shard"] if grid.shard else grid.mesh["replica", "shard"]
    for part in (*blocks_of(model), placed):
        fully_shard(part, mesh=mesh)
    for part in placed.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    return placed.run


def is_placed(value: object) -> bool:
    """Whether a tensor is a DTensor, of which this process holds a part."""
    return hasattr(value, "device_mesh")


def whole(tensor: Tensor) -> Tensor:
    """The whole of a DTensor, gathered from all who hold parts; any other tensor itself."""
    return tensor.full_tensor() if is_placed(tensor) else tensor  # type: ignore[attr-defined]


def part_of(full: Tensor, like: Tensor) -> Tensor:
    """The part of `full` that this process keeps, placed as `like` is, without a message; for plain ones `full`."""
    if not is_placed(like):
        return full
    from torch.distributed.tensor import DTensor, Replicate

    mesh: Any = like.device_mesh  # type: ignore[attr-defined]
    everywhere = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return everywhere.redistribute(placements=like.placements)  # type: ignore[attr-defined]


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's state with whole tensors, in each process; all processes have to ask for it together."""
    return {name: whole(weight) for name, weight in model.state_dict().items()}


# ---- gradients ---------------------------------------------------------------------------------------------------


def clip_gradients(model: nn.Module, most: float) -> Tensor:
    """Scales all gradients so that their common norm is at most `most`; returns the norm before."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    if not any(map(is_placed, gradients)):
        return nn.utils.clip_grad_norm_(model.parameters(), most)
    alike: dict[Any, list[Tensor]] = defaultdict(list)  # since no norm is over tensors placed in several ways
    for gradient in gradients:
        alike[gradient.device_mesh, gradient.placements].append(gradient)  # type: ignore[attr-defined]
    norm = torch.stack([whole(nn.utils.get_total_norm(group)) for group in alike.values()]).norm()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.to_local().mul_(factor)  # type: ignore[attr-defined]
    return norm


# ---- blocks that compute again, or are compiled ------------------------------------------------------------------


def checkpointed_blocks(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, blocks keep their inputs alone and compute what the backward pass needs once more (Chen et al., 2016).

    Memory for activations shrinks to one block's and the residual stream, and a step takes a third more operations.
    """
    return _forward_in_place(model, lambda forward: partial(checkpoint, forward, use_reentrant=False))


def compiled_blocks(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, `torch.compile` runs the blocks, and the hooks that gather their weights stay outside."""
    return _forward_in_place(model, torch.compile)


@contextmanager
def _forward_in_place(model: nn.Module, change: Callable[[Any], Any]) -> Iterator[None]:
    blocks = blocks_of(model)
    before = [vars(block).get("forward") for block in blocks]
    for block in blocks:
        block.forward = change(block.forward)
    try:
        yield
    finally:
        for block, forward in zip(blocks, before, strict=True):
            if forward is None:
                del block.forward
            else:
                block.forward = forward
