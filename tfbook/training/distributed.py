"""Several processes that train one model: each has the gradient of its share of a batch, and all take the same step.

`torchrun --nproc-per-node 2 -m tfbook.pretrain` starts two. Without it there is one process, and nothing here costs
anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tfbook import runtime


@contextmanager
def processes() -> Iterator[None]:
    """Inside, the processes that `torchrun` started are one group, each with a GPU of its own where there are GPUs."""
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    on_gpu = runtime.device().type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def count() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This one's number, from 0; number 0 writes files and speaks to the reader."""
    return dist.get_rank() if count() > 1 else 0


def mean(value: float) -> float:
    """Mean over the processes, the same number in each."""
    if count() == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=runtime.device())
    dist.all_reduce(total)
    return total.item() / count()


def all_gathered(value: Any) -> list[Any]:
    """The value of each process, in the order of their numbers."""
    values = [value] * count()
    if count() > 1:
        dist.all_gather_object(values, value)
    return values


@contextmanager
def first_in_turn() -> Iterator[None]:
    """Process 0 goes through the body before the others, which find the files that it wrote."""
    if rank() > 0:
        dist.barrier()
    yield
    if count() > 1 and rank() == 0:
        dist.barrier()


def shared(model: nn.Module) -> nn.Module:
    """The model with weights equal in all processes, whose gradients become their mean; alone, the model as it is."""
    return model if count() == 1 else DistributedDataParallel(model)


def gathering(model: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """A context in which `backward` forms the mean over the processes only if `wanted`; else it waits for later."""
    return nullcontext() if wanted or not isinstance(model, DistributedDataParallel) else model.no_sync()
