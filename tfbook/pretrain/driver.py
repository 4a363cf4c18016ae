"""The driver of every command that trains: a run in a folder, which the same command resumes bit for bit.

| file | holds |
|---|---|
| `options.json` | the options of the command |
| `checkpoint.pt`, `checkpoint.pt.previous` | the newest checkpoint and the one before; each says whose run it is |
| `history.json` or `log.jsonl` | what was measured at each evaluation |
| `run.lock` | nothing: it is locked while a run uses the folder |
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from tfbook import console, files, runtime, training
from tfbook.pretrain.options import RunOptions, check_kinds, parser_of, read
from tfbook.training import CheckpointError, History, NonFiniteLoss, distributed

STOPPED = "stopped; the same command resumes the run"
SUFFIXES = {".json", ".jsonl", ".lock", ".previous", ".pt", ".safetensors", ".tokens"}  # of a run's files


@dataclass(frozen=True, kw_only=True)
class Job:
    """The work of a run: the arguments of `training.fit`, and `finish`, which is called once after the last step."""

    model: nn.Module
    loss: training.LossFunction
    batches: Callable[[int], Any]
    recipe: training.Recipe
    evaluate: training.Evaluate
    report: training.Report  # prints the newest evaluation, to which it may add
    finish: Callable[[], None]
    files: Sequence[str] = ()  # in the folder: files that the weights depend on, such as the vocabulary


def run_command_line(
    options: type[RunOptions], start: Callable[[Any], object], prog: str, doc: str | None, arguments: list[str] | None
) -> None:
    """Runs a command: `start` gets the options of the command line, and an error is one line."""
    parser = parser_of(options, prog, doc)
    with console.command(parser, ValueError, OSError, CheckpointError, NonFiniteLoss, MemoryError, interrupted=STOPPED):
        start(options(**check_kinds(options, vars(parser.parse_args(arguments)))))  # argparse reads "--lr=--" as a list


def run(options: RunOptions, set_up: Callable[[], Job], write: Callable[[], None] = lambda: None) -> History:
    """Trains the job in the folder `options.out`, or resumes the run that is there.

    A new run first calls `write`, which may put files into the folder. Ctrl-C stops after the current step with a
    checkpoint. With several processes (`distributed.processes()`), the first one writes and prints. Raises ValueError
    for a folder of another run, while another run uses it, or that cannot be one; OSError where it cannot be written;
    and whatever `training.fit` raises.
    """
    first = distributed.rank() == 0
    with console.unfailing(), alone_in(options.folder) if first else nullcontext():
        begin_run(options, write)
        job = set_up()
        history = training.fit(
            job.model,
            job.loss,
            job.batches,
            job.recipe,
            evaluate=job.evaluate,
            checkpoint=checkpoint(options.folder),
            report=partial(_report, options, job),
            about=about(options, job.files),
        )
        if first:
            _write_log(options, history)
            say(f"{history.steps:,} steps in {history.elapsed:,.1f} s: {STOPPED if history.interrupted else 'done'}")
        if first and not history.interrupted:
            job.finish()
        return history


def say(text: str) -> None:
    """Prints a line above the progress bar."""
    from tfbook.training.progress import tqdm  # here, because it looks for a notebook when imported

    tqdm.write(text)
    print(end="", flush=True)


def say_row(history: History) -> None:
    """Prints the newest evaluation as it is in `log.jsonl`."""
    say(_lines(history)[-1])


def check_memory(least: float) -> None:
    """Raises ValueError when a run needs more bytes than the machine has; a GPU says so itself."""
    if runtime.device().type == "cpu" and hasattr(os, "sysconf"):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if least > there:
            found = f"the run needs {least / 2**30:,.0f} GiB of memory or more"
            raise ValueError(f"{found}; expected at most the {there / 2**30:,.0f} GiB of this machine")


# ---- the folder of a run -----------------------------------------------------------------------------------------


def checkpoint(folder: str | Path) -> Path:
    """The file of the newest checkpoint."""
    return Path(folder, "checkpoint.pt")


def options_file(folder: str | Path) -> Path:
    """The file of a run's options."""
    return Path(folder, "options.json")


def about(options: RunOptions, names: Sequence[str]) -> dict[str, Any]:
    """Identifies the run of a checkpoint by its fixed options and a hash of each file that the weights depend on."""
    return options.fixed | {name: _hash(options.folder / name) for name in names}


def begin_run(options: RunOptions, write: Callable[[], None] = lambda: None) -> None:
    """Begins a new run, with `write`, or checks that the run in the folder has the same options; writes these.

    A folder without a checkpoint has nothing to resume, whatever a run that failed early left there.
    """
    with distributed.first_in_turn():
        if distributed.rank() > 0:
            return
        saved = checkpoint(options.folder)
        if saved.exists() or files.previous(saved).exists():
            _check_same(options, read(type(options), options_file(options.folder)))
        else:
            write()
            _log(options).unlink(missing_ok=True)  # that of a run which never saved
        save_options(options)


def save_options(options: RunOptions) -> None:
    """Writes `options.json` into the folder."""
    _write(options_file(options.folder), [json.dumps(asdict(options), indent=1)])


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps a second run out of the folder; the system releases the lock of a process that dies, even by kill −9.

    Raises ValueError when another run holds it, or the path cannot be the folder of a run.
    """
    from filelock import FileLock, Timeout

    if (folder.exists() or folder.is_symlink()) and not folder.is_dir():
        raise ValueError(f"out is {str(folder)!r}, which is a file; expected a folder, new or that of a run")
    folder.mkdir(parents=True, exist_ok=True)
    _check_files(folder)
    lock = FileLock(folder / "run.lock")
    try:
        with suppress(NotImplementedError):  # some network drives have no locks
            lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is using {folder}; wait until it ends, or give another folder") from None
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows deletes it on release
                Path(lock.lock_file).unlink()
            lock.release()


def _check_files(folder: Path) -> None:
    """A run's files are files: a pipe would make it wait forever, and a folder make it fail at its end."""
    for path in folder.iterdir():
        if path.suffix in SUFFIXES and not path.is_file():
            raise ValueError(f"{path} is not a regular file; expected a folder, new or that of a run")
    if (lock := folder / "run.lock").is_symlink():
        raise ValueError(f"{lock} is a link to {os.readlink(lock)}; expected a folder, new or that of a run")


def _check_same(options: RunOptions, before: RunOptions) -> None:
    for name in before.fixed | options.fixed:
        if (was := getattr(before, name)) != (now := getattr(options, name)):
            found = f"{options.out} holds a run with {name} {was!r}, and {name} is {now!r}"
            raise ValueError(f"{found}; give the same options to resume it, or another folder")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- the log -----------------------------------------------------------------------------------------------------


def _report(options: RunOptions, job: Job, history: History) -> None:
    job.report(history)
    if distributed.rank() == 0:
        _write_log(options, history)


def _log(options: RunOptions) -> Path:
    return options.folder / options.log


def _write_log(options: RunOptions, history: History) -> None:
    """The whole log, each time: it repeats nothing when a run is resumed from before its last line."""
    rows = [{name: _finite(value) for name, value in row.items()} for row in history.evaluations]
    whole = json.dumps(asdict(history) | {"evaluations": rows}, indent=1)
    _write(_log(options), [whole] if options.log.endswith(".json") else _lines(history))


def _lines(history: History) -> list[str]:
    return [json.dumps({name: _finite(round(value, 4)) for name, value in row.items()}) for row in history.evaluations]


def _finite(value: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def _write(path: Path, lines: Sequence[str]) -> None:
    files.write_text(path, "".join(f"{line}\n" for line in lines))
