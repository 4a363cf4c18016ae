"""Data parallelism: each process computes the gradient of its share of a batch, and all take a step with the sum.

`torchrun --nproc-per-node 2 -m tfbook.pretrain` starts two. Without it there is one process, and nothing here takes any
time. `DistributedDataParallel` averages gradients, which is exact only where all shares are equally large; a sum can be
divided by the count over all processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed as dist, nn

from tfbook import runtime

T = TypeVar("T", bound=float | Tensor)


@contextmanager
def processes() -> Iterator[None]:
    """Makes the processes that `torchrun` started one group, each with a GPU of its own where there are GPUs.

    What the hosts have to agree on, such as a stop, then goes from host to host, and no GPU is waited for.
    """
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    on_gpu = runtime.device().type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0; process 0 writes files and prints."""
    return dist.get_rank() if world_size() > 1 else 0


def mean(value: float) -> float:
    """Mean over the processes, the same number in each."""
    return float(total(torch.tensor(value, dtype=torch.float64))) / world_size() if world_size() > 1 else float(value)


def total(value: T) -> T | Tensor:
    """Sum over the processes, the same in each; of tensors where they are, of other numbers on the CPU."""
    if world_size() == 1:
        return value
    everywhere = torch.as_tensor(value).clone()
    dist.all_reduce(everywhere)
    return everywhere


def all_gathered(value: Any) -> list[Any]:
    """The value of each process, in the order of their numbers."""
    values = [value] * world_size()
    if world_size() > 1:
        dist.all_gather_object(values, value)
    return values


@contextmanager
def first_in_turn() -> Iterator[None]:
    """Process 0 runs the body before the others do, so that they find the files that it wrote."""
    if rank() > 0:
        dist.barrier()
    yield
    if world_size() > 1 and rank() == 0:
        dist.barrier()


def broadcast(model: nn.Module) -> None:
    """Every process gets the weights of the first."""
    if world_size() > 1:
        for weight in model.state_dict().values():
            dist.broadcast(weight, 0)


def add_gradients(model: nn.Module) -> None:
    """Every gradient becomes the sum over the processes; the share of a process without one is 0."""
    if world_size() == 1:
        return
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    present = total(torch.tensor([weight.grad is not None for weight in weights]).int())
    weights = list(compress(weights, present.tolist()))
    shares = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    together = nn.utils.parameters_to_vector(shares)  # one message instead of one for each weight
    dist.all_reduce(together)
    for weight, gradient in zip(weights, together.split([share.numel() for share in shares]), strict=True):
        weight.grad = gradient.view_as(weight)
