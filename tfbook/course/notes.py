"""Small JSON files of what a learner did, which survive kills, other processes and damage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from tfbook.files import write_text

_PATIENCE = 10.0  # seconds for other processes to finish their notes
_MOST = 1 << 20  # bytes of a file that is read

Notes = dict[str, Any]
Legible = Callable[[Any], Notes]  # the part of a JSON value that is as it should be


def read_notes(path: Path, legible: Legible) -> tuple[Notes, bool]:
    """The legible notes of a file, and whether these are all of it. Raises OSError where it cannot be read."""
    if not path.is_file():  # a named pipe would be waited for
        return {}, True
    try:
        if path.stat().st_size > _MOST:
            return {}, False
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        return {}, False
    known = legible(found)
    return known, known == found


def update_notes(path: Path, legible: Legible, change: Callable[[Notes], None]) -> None:
    """Changes the notes of a file in place.

    Processes that do so at once wait for one another. A file that is not legible throughout is kept, as
    `NAME.damaged`. Nothing happens where the path is no regular file. Raises OSError where it cannot be written.
    """
    path = Path(os.path.realpath(path))
    if os.path.lexists(path) and not path.is_file():
        return
    with _locked(path):
        known, whole = read_notes(path, legible)
        change(known)
        if not whole:
            os.replace(path, _free_name(path))
        write_text(path, json.dumps(known, indent=1))


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged{f'-{n}' if n > 1 else ''}") for n in count(1))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process or thread at a time; where locking fails, as on some network drives, none waits."""
    from filelock import FileLock

    lock = FileLock(path.with_name(f"{path.name}.lock"))
    with suppress(OSError, NotImplementedError):  # filelock's Timeout is an OSError
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        lock.release()
