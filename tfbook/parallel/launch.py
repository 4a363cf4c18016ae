"""Starts real processes from a notebook or a test with `torchrun`, and collects what they found."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tfbook.models.gpt import Gpt
from tfbook.parallel.counting import Peak
from tfbook.parallel.whole import Batches
from tfbook.training import distributed

SECONDS = 300  # after which a run is given up


@dataclass(frozen=True)
class Launched:
    """Found by the processes of one kind: weights and losses, and what each of them held and sent."""

    state: dict[str, Tensor]
    losses: list[float]
    held: list[dict[str, int]]  # bytes by part, one dictionary for each process
    sent: list[dict[str, int]]  # bytes by kind of message
    peak: list[int | None]  # bytes that each had at most beyond what it began with; None where nobody counts
    loopback: int | None  # bytes of all processes that the system has counted, other programs' among them
    seconds: float


def torchrun(processes: int, module: str, arguments: Sequence[str], **options: Any) -> None:
    """Runs a module in so many processes that meet on a free port of this machine, each with one thread.

    Raises RuntimeError with the last lines that they wrote when they fail.
    """
    script = f"from runpy import run_module\nrun_module({module!r}, run_name='__main__')"
    try:
        distributed.launch(script, *arguments, processes=processes, timeout=SECONDS, **options)
    except RuntimeError as error:
        raise RuntimeError(f"{processes} processes of {module} failed:\n{error}") from None


def launch_kinds(
    model: Gpt,
    batches: Batches,
    kinds: Sequence[str],
    *,
    processes: int,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Launched]:
    """Trains copies of the model in float64, one for each of `kinds`, in one launch of so many processes.

    `options` are further arguments for a kind, such as `{"pipeline": {"schedule": gpipe(2, 8)}}`.
    """
    with tempfile.TemporaryDirectory() as name:
        _start(Path(name), model, batches, kinds=list(kinds), options=dict(options or {}))
        torchrun(processes, "tfbook.parallel.worker", [name], environment=Peak.PRECISE)
        return {kind: _collected(Path(name), kind, processes) for kind in kinds}


def _start(folder: Path, model: Gpt, batches: Batches, **others: Any) -> None:
    start = {"model": deepcopy(model).double().cpu(), "batches": [ids.cpu() for ids in batches], **others}
    torch.save(start, folder / "start.pt")


def _collected(folder: Path, kind: str, processes: int) -> Launched:
    found = [json.loads((folder / f"{kind}-{m}.json").read_text(encoding="utf-8")) for m in range(processes)]
    of_each: dict[str, Any] = {key: [each[key] for each in found] for key in ("held", "sent", "peak")}
    of_all: dict[str, Any] = {key: found[0][key] for key in ("losses", "loopback", "seconds")}
    return Launched(torch.load(folder / f"{kind}.pt"), **of_each, **of_all)


def launch_elastic(
    model: Gpt, batches: Batches, *, processes: int, killed: tuple[int, int], checkpoint_every: int
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Data parallel training in which a process dies: `killed` is (step, process). All losses, and the weights.

    A row of the losses is {"attempt", "step", "loss"}; steps after the last checkpoint are there twice.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _start(folder, model, batches, killed=killed, checkpoint_every=checkpoint_every)
        torchrun(processes, "tfbook.parallel.elastic", [name], restarts=1)
        lines = (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines], torch.load(folder / "trained.pt")
