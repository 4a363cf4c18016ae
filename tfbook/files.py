"""Files that are whole or not there: a process that is killed while it writes one leaves no half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def previous(path: str | Path) -> Path:
    """Where `at_one_stroke` keeps what it replaced."""
    return Path(f"{path}.previous")


@contextmanager
def at_one_stroke(path: str | Path, *, keep: bool = False) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` when it is complete and on the disk, and never before.

    `keep`: what had the name is moved to `previous(path)`. Between the two moves a kill leaves that one alone.
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
