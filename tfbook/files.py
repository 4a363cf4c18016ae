"""Atomic writes: a file is complete or not there, even when the process that writes it is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def previous(path: str | Path) -> Path:
    """Where `atomic_write` keeps the file that it replaced."""
    return Path(f"{path}.previous")


@contextmanager
def atomic_write(path: str | Path, *, keep: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which is renamed to `path` once it is complete and on the disk.

    With `keep`, the old file is first renamed to `previous(path)`; a process killed in between leaves that one only.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
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
