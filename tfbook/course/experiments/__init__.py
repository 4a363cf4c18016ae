"""Experiments too long for a lesson: functions, one module a lesson, whose results are stored under `data/results`.

`python tools/experiment.py bahdanau_attention.bottleneck` runs one again and stores what it returns beside the command,
the commit, the date and the machine. A lesson reads it with `stored("bahdanau_attention.bottleneck")`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from tfbook import runtime
from tfbook.data.download import SHIPPED

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an experiment returned, and where it comes from."""

    rows: list[dict[str, Any]]
    command: str
    commit: str
    date: str
    machine: str
    seconds: float

    def __str__(self) -> str:
        return f"stored: {self.command} · {self.date} · {self.commit} · {self.machine} · {self.seconds / 60:.0f} min"


def stored(name: str) -> Result:
    """The stored result called `name`, printed with where it comes from. Raises KeyError when there is none."""
    path = _path(name)
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.json"))
        raise KeyError(f"no result is called {name!r}; known: {', '.join(known) or 'none'}")
    result = Result(**json.loads(path.read_text(encoding="utf-8")))
    print(result)
    return result


def store(name: str, rows: list[dict[str, Any]], *, command: str, commit: str, seconds: float) -> Path:
    """Writes the rows of an experiment with their provenance; the folder is the checkout's `data/results`."""
    result = Result(
        rows=rows,
        command=command,
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        seconds=round(seconds, 1),
    )
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8", newline="\n")
    return path


def machine() -> str:
    """What computed a result: processor or GPU, threads, precision and version of torch."""
    device = runtime.device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads != 1 else ''}, {runtime.precision()}, torch {torch.__version__}"


def current_commit() -> str:
    """The checkout's commit; ask before an experiment begins, since others may commit while it runs."""
    here = Path(__file__).parent
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "no commit"


def in_turns(runs: Mapping[Key, Callable[[], object]], rounds: int) -> dict[Key, list[float]]:
    """Seconds of each of `runs` in each round: they take turns, so that what disturbs one disturbs all.

    One round more, which is not counted, warms up.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in runs}
    for _ in range(rounds + 1):
        for key, run in runs.items():
            start = time.perf_counter()
            run()
            runtime.synchronize()
            seconds[key].append(time.perf_counter() - start)
    return {key: times[1:] for key, times in seconds.items()}


def peak_memory(run: Callable[[], object]) -> int:
    """The most bytes that tensors made in `run` take at once, as PyTorch's allocator counts them.

    Exact and the same at every call, where the process's own size depends on what its memory was used for before.
    """
    if runtime.device().type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler otherwise reports that it begins
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    return max(accumulate((size for _, size in changes), initial=0))


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown, with the keys of the first as its head."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(str(row[head]) for head in heads) + " |" for row in rows)])


def _path(name: str) -> Path:
    folder = next(folder for folder in SHIPPED if folder.is_dir())
    return folder / "results" / f"{name}.json"


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
