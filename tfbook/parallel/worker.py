"""Run by each process that `launch_kinds` starts: all kinds one after the other, and what they held and sent.

torchrun --standalone --nproc-per-node 4 -m tfbook.parallel.worker FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed as dist, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tfbook.models.gpt import Gpt
from tfbook.parallel import real
from tfbook.parallel.counting import Peak, Weighing, on_loopback
from tfbook.parallel.pipeline import put_together
from tfbook.parallel.whole import adam, take_step
from tfbook.training import distributed
from tfbook.training.placement import whole_state
from tfbook.training.traffic import Traffic

KINDS: dict[str, Callable[..., real.Trained]] = {
    "data": real.data_process,
    "sharded": real.sharded_process,
    "tensor": real.tensor_process,
    "pipeline": real.pipeline_process,
}


def whole_weights(kind: str, trained: nn.Module, like: Gpt) -> dict[str, Tensor]:
    """All weights, as one process would have them; every process has to ask."""
    if kind == "pipeline":
        return put_together(distributed.all_gathered(trained), like).state_dict()
    return whole_state(trained)


def run_kind(kind: str, start: dict[str, Any]) -> dict[str, Any]:
    """Trains one kind; the weights, losses, seconds, and bytes held and sent."""
    weighing = Weighing()
    handle = register_optimizer_step_pre_hook(weighing)
    dist.barrier()
    before, began = on_loopback(), time.perf_counter()
    with Traffic() as traffic, Peak() as peak:  # the copy that is trained has no name here, which would keep it
        trained, losses = KINDS[kind](deepcopy(start["model"]), start["batches"], **start["options"].get(kind, {}))
    dist.barrier()
    seconds, after = time.perf_counter() - began, on_loopback()
    handle.remove()
    found: dict[str, Any] = {"losses": losses, "seconds": seconds, "held": weighing.parts, "sent": dict(traffic.sent)}
    found["peak"] = peak.bytes
    found["loopback"] = None if before is None or after is None else after - before
    return found | {"state": whole_weights(kind, trained, start["model"])}


def _main(folder: Path) -> None:
    """Reads start.pt; writes kind-rank.json, and kind.pt with the weights."""
    start = torch.load(folder / "start.pt", weights_only=False)  # written by `launch_kinds`
    take_step(adam([nn.Parameter(torch.zeros(1))]))  # the first step imports what no later one has to
    with distributed.processes():
        for kind in start["kinds"]:
            found = run_kind(kind, start)
            state = found.pop("state")
            (folder / f"{kind}-{distributed.rank()}.json").write_text(json.dumps(found), encoding="utf-8")
            if distributed.rank() == 0:
                torch.save(state, folder / f"{kind}.pt")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
