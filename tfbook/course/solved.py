"""Solved exercises, remembered on this machine. Nothing leaves it, and no name is kept.

The file is the one that TFBOOK_PROGRESS names, else lies in TFBOOK_DATA or in the platform's folder for user data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tfbook.files import chosen_path, write_text

_PATIENCE = 10.0  # seconds for other processes to finish their notes
_MOST = 1 << 20  # bytes of a file that is read; the whole course takes 4,000


def progress_file() -> Path:
    """Where the solved exercises are noted. Raises FileNotFoundError when a variable names an unknown user's home."""
    if file := chosen_path("TFBOOK_PROGRESS"):
        return file
    if folder := chosen_path("TFBOOK_DATA"):
        return folder / "progress.json"
    from platformdirs import user_data_path

    return user_data_path("tfbook", appauthor=False) / "progress.json"


def solved() -> dict[str, list[str]]:
    """Slug of a lesson → names of its solved exercises; empty where nothing legible was noted."""
    with suppress(OSError):
        return _read(progress_file()).known
    return {}


def note(lesson: str, exercise: str) -> None:
    """Notes that an exercise was solved. A folder that cannot be written is no reason to fail.

    Processes that note at once wait for one another. A file that is not legible throughout is kept, as
    `progress.json.damaged`.
    """
    with suppress(OSError):
        if exercise in solved().get(lesson, ()):
            return
        path = Path(os.path.realpath(progress_file()))
        if os.path.lexists(path) and not path.is_file():
            return
        with _locked(path):
            known, whole = _read(path)
            known[lesson] = sorted({*known.get(lesson, ()), exercise})
            if not whole:
                os.replace(path, _free_name(path))
            write_text(path, json.dumps(known, indent=1))


class _Notes(NamedTuple):
    known: dict[str, list[str]]
    whole: bool  # whether all of the file is in `known`


def _read(path: Path) -> _Notes:
    """The legible notes of a file. Raises OSError where it exists and cannot be read."""
    if not path.is_file():  # a named pipe would be waited for
        return _Notes({}, True)
    try:
        if path.stat().st_size > _MOST:
            return _Notes({}, False)
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        return _Notes({}, False)
    lessons = found.items() if isinstance(found, dict) else ()
    known = {slug: [each for each in names if isinstance(each, str)] for slug, names in lessons if type(names) is list}
    return _Notes(known, known == found)


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
