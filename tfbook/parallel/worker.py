"""Run by each process that `launch` starts: all kinds one after the other, and what they held and sent.

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
from tfbook.parallel.counting import MessageCounter, Weighing, on_loopback
from tfbook.parallel.pipeline import put_together

KINDS: dict[str, Callable[..., real.Trained]] = {
    "data": real.data_process,
    "sharded": real.sharded_process,
    "tensor": real.tensor_process,
    "pipeline": real.pipeline_process,
}


def whole_weights(kind: str, trained: nn.Module, like: Gpt) -> dict[str, Tensor]:
    """All weights, as one process would have them; every process has to ask."""
    if kind == "pipeline":
        stages: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(stages, trained)
        return put_together(stages, like).state_dict()
    state = trained.state_dict()
    return {name: w.full_tensor() if hasattr(w, "full_tensor") else w for name, w in state.items()}


def run_kind(kind: str, start: dict[str, Any]) -> dict[str, Any]:
    """Trains one kind; the weights, losses, seconds, and bytes held and sent."""
    model, like, weighing = deepcopy(start["model"]), start["model"], Weighing()
    handle = register_optimizer_step_pre_hook(weighing)
    dist.barrier()
    before, began = on_loopback(), time.perf_counter()
    with MessageCounter() as counter:
        trained, losses = KINDS[kind](model, start["batches"], **start["options"].get(kind, {}))
    dist.barrier()
    seconds, after = time.perf_counter() - began, on_loopback()
    handle.remove()
    found = {"losses": losses, "seconds": seconds, "held": weighing.parts, "sent": dict(counter.sent)}
    found["loopback"] = None if before is None or after is None else after - before
    return found | {"state": whole_weights(kind, trained, like)}


def _main(folder: Path) -> None:
    """Reads start.pt; writes kind-rank.json, and kind.pt with the weights."""
    start = torch.load(folder / "start.pt", weights_only=False)  # written by `launch`
    dist.init_process_group("gloo")
    try:
        for kind in start["kinds"]:
            found = run_kind(kind, start)
            state = found.pop("state")
            (folder / f"{kind}-{dist.get_rank()}.json").write_text(json.dumps(found), encoding="utf-8")
            if dist.get_rank() == 0:
                torch.save(state, folder / f"{kind}.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
