"""A clock beside data parallelism: the gradient of a batch on one process, and on all of them, computing and sum apart.

    torchrun --standalone --nproc-per-node 2 -m tfbook.parallel.clock FOLDER

Alone, process 0 reads the whole batch while the others wait. Together, each reads its share, and all add their
gradients. Both are done in turn, round after round, so that a busy machine slows both.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, distributed as dist

from tfbook.models.gpt import Gpt
from tfbook.parallel.launch import torchrun
from tfbook.parallel.whole import Batches, flat_gradient, predicted, set_gradient, total_loss
from tfbook.training import distributed


def timed_gradient(model: Gpt, ids: Tensor, *, share: bool) -> dict[str, float]:
    """Seconds of the forward and backward pass of a batch, of waiting for the others, and of adding the gradients.

    Without `share` this process reads all of the batch, and there is nothing to add.
    """
    own = ids.tensor_split(dist.get_world_size())[dist.get_rank()] if share else ids
    model.zero_grad()
    began = time.perf_counter()
    (total_loss(model(own[:, :-1]), own) / predicted(ids)).backward()
    computed = met = time.perf_counter()
    if share:
        dist.barrier()
        met = time.perf_counter()
        gradient = flat_gradient(model)
        dist.all_reduce(gradient)
        set_gradient(model, gradient)
    return {"computing": computed - began, "waiting": met - computed, "sum": time.perf_counter() - met}


def clock_rounds(model: Gpt, batches: Batches, rounds: int) -> list[dict[str, Any]]:
    """For each batch what process 0 finds, alone and together: the medians over the rounds, after one to warm up.

    "times as fast" is the quotient of the medians of both whole times; "ratios" are the rounds' own.
    """
    found = []
    for ids in batches:
        alone, together = [], []
        for _ in range(rounds + 1):
            dist.barrier()
            if dist.get_rank() == 0:
                alone.append(timed_gradient(model, ids, share=False))
            dist.barrier()
            together.append(timed_gradient(model, ids, share=True))
        if dist.get_rank() == 0:
            found.append({"tokens": predicted(ids)} | _compared(alone[1:], together[1:]))
    return found


def _compared(alone: list[dict[str, float]], together: list[dict[str, float]]) -> dict[str, Any]:
    ways = {"alone": alone, "together": together}
    middle = {f"{way} {part}": median(each[part] for each in several)
              for way, several in ways.items() for part in several[0]}  # fmt: skip
    whole = {way: [sum(each.values()) for each in several] for way, several in ways.items()}
    ratios = sorted(a / b for a, b in zip(*whole.values(), strict=True))
    return middle | {"times as fast": median(whole["alone"]) / median(whole["together"]), "ratios": ratios}


def launch_clock(
    model: Gpt, batches: Sequence[Tensor], *, processes: int = 2, rounds: int = 11
) -> list[dict[str, Any]]:
    """The rows of `clock_rounds`, found by so many real processes of one thread each."""
    with tempfile.TemporaryDirectory() as name:
        torch.save({"model": model, "batches": list(batches), "rounds": rounds}, Path(name, "start.pt"))
        torchrun(processes, "tfbook.parallel.clock", [name])
        rows: list[dict[str, Any]] = json.loads(Path(name, "clock.json").read_text(encoding="utf-8"))
        return rows


def _main(folder: Path) -> None:
    start = torch.load(folder / "start.pt", weights_only=False)  # written by `launch_clock`
    with distributed.processes():
        found = clock_rounds(**start)
        if distributed.rank() == 0:
            (folder / "clock.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
