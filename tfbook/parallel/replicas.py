"""Data parallelism as a script for two GPUs or more: PyTorch's DistributedDataParallel, whatever the model.

torchrun --standalone --nproc-per-node 2 -m tfbook.parallel.replicas FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn


def replica_process(model: nn.Module, batches: list[Tensor], lr: float = 3e-3) -> nn.Module:
    """Run by each process of `torchrun`: reads a share of each batch; all have one model."""
    from torch import distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    on_gpu = torch.cuda.is_available()
    # torchrun has said in the environment who this process is and where the others are
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    model = model.to(device)
    replica = DistributedDataParallel(model)  # sends gradients during the backward pass
    optimizer = torch.optim.Adam(replica.parameters(), lr=lr)
    for ids in batches:
        share = ids.tensor_split(processes)[rank].to(device)
        logits, targets = replica(share[:, :-1]), share[:, 1:]
        own = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        loss = own / ids[:, 1:].numel()  # a part of the whole batch's mean
        (loss * processes).backward()  # DDP averages over processes; we want the sum
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return model


def _main(folder: Path) -> None:
    """Reads start.pt, the model and its batches; process 0 writes trained.pt."""
    start = torch.load(folder / "start.pt", weights_only=False)
    trained = replica_process(start["model"], start["batches"])
    if os.environ["RANK"] == "0":
        torch.save(trained.state_dict(), folder / "trained.pt")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
