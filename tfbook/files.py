"""Atomic writes: a file is complete or not there, even when the process that writes it is killed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def previous(path: str | Path) -> Path:
    """Where `atomic_write` keeps the file that it replaced."""
    return Path(f"{path}.previous")


@contextmanager
def atomic_write(path: str | Path, *, keep: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which is renamed to `path` once it is complete and on the disk.

    With `keep`, the old file is first renamed to `previous(path)`; a process killed in between leaves that one only.
    What killed processes left of their own writes to `path` is removed first, since the disk may be full of it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep and path.exists():
            os.replace(path, previous(path))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    for part in path.parent.glob("*.part"):
        number = re.fullmatch(rf"{re.escape(path.name)}\.(\d+)\.part", part.name)
        if number and not _is_alive(int(number[1])):
            with suppress(OSError):  # Windows deletes no file that is open
                part.unlink()


def _is_alive(process: int) -> bool:
    """Whether a process has this number, which may be another one by now; on Windows, where asking ends it, False."""
    if os.name == "nt":
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True
