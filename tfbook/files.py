"""Atomic writes: a file is complete or not there, even when the process that writes it is killed."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def previous(path: str | Path) -> Path:
    """Where `atomic_write` keeps the file that it replaced; beside the file itself where `path` is a link to it."""
    return Path(f"{_followed(Path(path))}.previous")


@contextmanager
def atomic_write(path: str | Path, *, keep: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which is renamed to `path` once it is complete and on the disk.

    With `keep`, the old file is first renamed to `previous(path)`; a process killed in between leaves that one only.
    Leftovers of killed processes' own writes to `path` are removed first, since the disk may be full of them. A link
    stays, and the file that it leads to is replaced. Raises OSError where `path` is a folder, a device, a named pipe or
    anything else but a regular file: a rename would put a file in its place.
    """
    path = _followed(Path(path))
    _check_regular(path, *([previous(path)] if keep else []))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        unfinished.unlink(missing_ok=True)
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, unfinished)
        if keep and path.exists():
            os.replace(path, previous(path))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text in UTF-8 as `atomic_write` does, with the line ends that it has, on every system."""
    with atomic_write(path) as file:
        file.write(text.encode())


def checksum(file: BinaryIO, start: int = 0) -> int:
    """The CRC-32 of what is left to read of a file, a mebibyte at a time; `start` is that of what came before."""
    while block := file.read(1 << 20):
        start = zlib.crc32(block, start)
    return start


def expanded(name: str, path: str, expected: str = "a path") -> Path:
    """A path that somebody typed, with `~` expanded.

    Raises ValueError, which calls it `name`, for an empty one and for `~` with an unknown user.
    """
    try:
        if path:
            return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name} is {path!r}; expected {expected} ({error})") from None
    raise ValueError(f"{name} is ''; expected {expected}")


def chosen_path(variable: str) -> Path | None:
    """The path in an environment variable, with `~` expanded; None where the variable is unset or empty.

    Raises FileNotFoundError when it begins with `~` and the name of an unknown user.
    """
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise FileNotFoundError(f"{variable} is {text!r}; expected a path, and there is no such user") from None


def _followed(path: Path) -> Path:
    """The file that a link leads to, whether it exists or not."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _check_regular(*paths: Path) -> None:
    for path in paths:
        if os.path.lexists(path) and not path.is_file():
            raise OSError(errno.EINVAL, "Not a regular file, so nothing is written there", str(path))


def _remove_leftovers(path: Path) -> None:
    for part in path.parent.glob("*.part"):
        number = re.fullmatch(rf"{re.escape(path.name)}\.(\d+)(?:-\d+)?\.part", part.name)
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
