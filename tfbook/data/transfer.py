"""Bytes from an address or a folder into a file, within a stated size and a stated time, whatever the source does.

A timeout of a socket bounds the wait for the next byte alone, and a server that sends one byte a second keeps within
it. So a transfer runs in a thread of its own, and whoever asked for it waits as long as was said and no longer. What
servers say is quoted in messages with its control characters escaped.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from tqdm import tqdm

# Some hosts refuse clients that identify as a script; a compressed body would not have the published hash.
HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; tfbook)", "Accept-Encoding": "identity"}
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_CHUNK = 1 << 13  # bytes; after each, a transfer that nobody waits for any more ends
_QUOTED = 300  # characters of what a server says

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long to wait, in seconds, and how often to try."""

    connect: float = 5.0  # for a connection
    read: float = 20.0  # for the next byte
    download: float = 1800.0  # for one file from one address, all attempts together
    attempts: int = 3  # in a row that bring nothing new
    backoff: float = 0.5  # before the second attempt; doubles each time

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "backoff"):
                expected = "0 or more seconds" if name == "backoff" else "more than 0"
                raise ValueError(f"{name} is {value}; expected {expected}")


class SourceFailed(Exception):
    """A source did not deliver: the reason, fit to be printed, and whether another attempt may help."""

    def __init__(self, reason: str, temporary: bool):
        super().__init__(printable(reason))
        self.temporary = temporary


def printable(text: str) -> str:
    """The text in one line that a terminal shows as it is: control characters escaped, and long texts cut."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return shown if len(shown) <= _QUOTED else f"{shown[:_QUOTED]}…"


def in_time(seconds: float, work: Callable[[], T]) -> T:
    """Whatever `work` returns or raises. Raises TimeoutError after `seconds`, and leaves `work` to its own thread."""
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(seconds, 0.0))
    if raised:
        raise raised[0]
    if not returned:
        raise TimeoutError
    return returned[0]


def fill(
    target: Path, source: Path | str, most: int, verify: Callable[[Path], None], retry: RetryPolicy, *, resume: bool
) -> None:
    """Copy or download at most `most` bytes next to `target`, verify them, and rename; `target` is right or unchanged.

    With `resume`, an attempt goes on where the one before it was cut, if the server can do that; `verify` raises
    ValueError for wrong bytes and must tell parts of different files apart. Raises SourceFailed, or OSError when the
    disk of `target` fails.
    """
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    deadline = time.monotonic() + retry.download
    failed = furthest = 0
    try:
        while True:
            try:
                _attempt(source, part, most, retry, deadline, resume)
                _verify(part, verify, temporary=isinstance(source, str))
                os.replace(part, target)
                return
            except SourceFailed as failure:
                reached = part.stat().st_size if part.exists() else 0
                failed, furthest = (failed + 1, furthest) if reached <= furthest else (1, reached)
                if not failure.temporary or failed >= retry.attempts:
                    raise
            time.sleep(retry.backoff * 2 ** (failed - 1))
    finally:
        part.unlink(missing_ok=True)


def _verify(part: Path, verify: Callable[[Path], None], *, temporary: bool) -> None:
    """Raises SourceFailed for wrong bytes, of which nothing is kept for the next attempt."""
    try:
        verify(part)
    except ValueError as error:
        part.unlink()
        raise SourceFailed(f"refused, {error}", temporary) from error


def _attempt(source: Path | str, part: Path, most: int, retry: RetryPolicy, deadline: float, resume: bool) -> None:
    name = str(source).rpartition("/")[2]
    with (
        part.open("ab") as file,
        tqdm(desc=printable(name), unit="B", unit_scale=True, leave=False, delay=1.0) as bar,
    ):
        out = _Limited(file, most, bar)
        if not resume:
            out.restart()
        try:
            in_time(deadline - time.monotonic(), lambda: _transfer(source, out, retry))
        except TimeoutError:
            raise SourceFailed(f"not finished after {retry.download:g} s", False) from None


class _Limited:
    """A file that refuses what comes after `most` bytes, so that a source without an end does not fill the disk."""

    def __init__(self, out: BinaryIO, most: int, bar: tqdm):
        self.out, self.most, self.bar = out, most, bar
        self.written = out.tell()
        bar.update(self.written)

    def restart(self) -> None:
        self.out.truncate(0)
        self.bar.update(-self.written)
        self.written = 0

    def write(self, data: bytes) -> int:
        if self.written + len(data) > self.most:
            raise ValueError(f"it holds more than {self.most:,} bytes, which is too much for this file")
        self.out.write(data)
        self.written += len(data)
        self.bar.update(len(data))
        return len(data)


def check_regular(path: Path) -> None:
    """Raise ValueError for a named pipe or a device, from which one can read forever, and for a folder."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")


def _transfer(source: Path | str, out: _Limited, retry: RetryPolicy) -> None:
    """Write the content of `source` to `out`. Raises OSError for a full disk and SourceFailed for anything else."""
    try:
        if isinstance(source, Path):
            out.restart()
            check_regular(source)
            with source.open("rb") as data:
                shutil.copyfileobj(data, out)
        else:
            _download(source, out, retry)
    except Exception as error:  # a server can fail in any way; a full disk is ours
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise
        raise SourceFailed(lowest_cause(error), _is_temporary(error)) from error


def lowest_cause(error: BaseException) -> str:
    """The message at the bottom, such as "Connection refused", below those of requests and urllib3."""
    while error.__context__:
        error = error.__context__
    return str(error) or type(error).__name__


def _download(url: str, out: _Limited, retry: RetryPolicy) -> None:
    import requests

    headers = HEADERS | ({"Range": f"bytes={out.written}-"} if out.written else {})
    with requests.get(url, headers=headers, stream=True, timeout=(retry.connect, retry.read)) as response:
        start = out.written if response.status_code == requests.codes.partial_content else 0
        if start != out.written:
            out.restart()
        response.raise_for_status()
        if start and not re.match(rf"bytes {start}-", response.headers.get("Content-Range", "")):
            out.restart()
            raise requests.RequestException(f"the answer is another part of the file than from byte {start:,} on")
        out.bar.total = start + int(response.headers.get("Content-Length", 0)) or None
        for chunk in response.iter_content(_CHUNK):
            out.write(chunk)


def _is_temporary(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code >= 500 or error.response.status_code in (408, 416, 429)
    lasting = (requests.ConnectTimeout, ValueError)  # ValueError: an address that is none
    return isinstance(error, requests.RequestException) and not isinstance(error, lasting)
