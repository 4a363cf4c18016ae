"""Data parallel training that survives a killed process: everyone starts again from the last checkpoint.

    torchrun --standalone --nproc-per-node 2 --max-restarts 1 -m tfbook.parallel.elastic FOLDER

`torchrun` watches the processes. When one dies, the others' next `all_reduce` raises an error (with gloo);
`torchrun` ends what is left and starts all anew, and TORCHELASTIC_RESTART_COUNT says how often it has. The batch
of a step follows from the step's number alone, so nothing is read twice or left out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from tfbook.files import atomic_write
from tfbook.parallel.whole import adam, flat_gradient, predicted, set_gradient, take_step, total_loss
from tfbook.training import distributed


def die() -> None:
    """Ends this process at once, with no chance to clean up, as a machine does that loses its power."""
    if sys.platform == "win32":
        os._exit(9)
    os.kill(os.getpid(), signal.SIGKILL)


def save_whole(path: Path, state: dict[str, Any]) -> None:
    """The file is whole, or it is the one before."""
    with atomic_write(path) as file:
        torch.save(state, file)


def train_on(folder: Path) -> None:
    """Trains from the last checkpoint; process 0 writes down each step's loss and the checkpoints."""
    start = torch.load(folder / "start.pt", weights_only=False)  # written by `launch_elastic`
    model, attempt = start["model"], int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    optimizer, first, path = adam(model.parameters()), 0, folder / "checkpoint.pt"
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    for step in range(first, len(start["batches"])):
        if attempt == 0 and (step, dist.get_rank()) == start["killed"]:
            die()
        ids = start["batches"][step]
        share = ids.tensor_split(dist.get_world_size())[dist.get_rank()]
        loss = total_loss(model(share[:, :-1]), share) / predicted(ids)
        loss.backward()
        together = torch.cat([flat_gradient(model), loss.detach()[None]])
        dist.all_reduce(together)
        set_gradient(model, together[:-1])
        take_step(optimizer)
        if dist.get_rank() == 0:
            _note(folder, attempt, step, together[-1].item())
            if (step + 1) % start["checkpoint_every"] == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                save_whole(path, state)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), folder / "trained.pt")


def _note(folder: Path, attempt: int, step: int, loss: float) -> None:
    with (folder / "losses.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"attempt": attempt, "step": step, "loss": loss}) + "\n")


def _main(folder: Path) -> None:
    """One process of the group."""
    with distributed.processes():
        train_on(folder)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
