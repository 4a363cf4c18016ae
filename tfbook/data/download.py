"""One verified copy of a public file: from the package, the cache, a mirror or the network, in that order.

A file is copied or downloaded beside its place in the cache, verified there and only then renamed into it, so whatever
a server does, the cache holds the right bytes or none. A stamp beside the file remembers its size and time when it was
verified: while they hold, nothing is read again; when they differ (a cut file, a restored backup), the whole file is
verified once more.

| variable | meaning |
|---|---|
| `TFBOOK_DATA` | the cache folder (default: the platform's) |
| `TFBOOK_MIRROR` | a folder or an http(s) address tried before the public addresses |
| `TFBOOK_OFFLINE` | `1` forbids the network; folders still count |
"""

import errno
import hashlib
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

# Some hosts refuse clients that call themselves a script; an encoded body would not have the published hash.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; tfbook)", "Accept-Encoding": "identity"}
_PACKAGE = Path(__file__).parents[1]
SHIPPED = (_PACKAGE / "_data", _PACKAGE.parent / "data")  # in the wheel; in a clone
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class DataUnavailable(OSError):
    """A file could not be had; the message says what was tried and what to do."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A public file and the proof that it is the right one: its hash, or a check of its form where it rolls."""

    path: str  # in a mirror and in the cache
    urls: tuple[str, ...] = ()  # none: it ships with the package
    sha256: str | None = None
    check: Callable[[Path], None] | None = None  # raises when the content is not what it should be

    def __post_init__(self) -> None:
        if self.urls and not (self.sha256 or self.check):
            raise ValueError(f"{self.path} has urls but neither sha256 nor check, so a download could not be verified")

    def verify(self, path: Path) -> None:
        """Raise ValueError, saying what is wrong, unless `path` holds this file."""
        if self.sha256:
            with path.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if found != self.sha256:
                raise ValueError(f"sha256 is {found}; expected {self.sha256}")
        if self.check:
            try:
                self.check(path)
            except Exception as error:  # a damaged archive can raise anything
                raise ValueError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait, in seconds, and how often to try."""

    connect: float = 5.0
    silence: float = 20.0  # without a byte
    download: float = 1800.0  # one file from one address
    attempts: int = 3
    pause: float = 0.5  # before the second attempt; doubles

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; expected 1 or more")
        for name in ("connect", "silence", "download"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0 seconds")
        if self.pause < 0:
            raise ValueError(f"pause is {self.pause}; expected 0 or more seconds")


def cache_folder() -> Path:
    """`TFBOOK_DATA`, or the platform's folder for caches."""
    if folder := os.environ.get("TFBOOK_DATA"):
        return Path(folder).expanduser()
    from pooch import os_cache

    return Path(os_cache("tfbook"))


_PATIENCE = Patience()


def fetch(file: File, *, patience: Patience = _PATIENCE) -> Path:
    """A local path that holds the verified `file`; raises DataUnavailable when there is no way to it."""
    if not file.urls:
        return _shipped(file)
    target = cache_folder() / file.path
    try:
        if not _intact(file, target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(target, patience.download):
                if not _intact(file, target):  # another process may have been faster
                    _bring(file, target, patience)
    except DataUnavailable:
        raise
    except OSError as error:
        raise DataUnavailable(_cache_trouble(error, target)) from error
    return target


def obtainable(file: File, *, seconds: float = 3.0) -> bool:
    """Whether `fetch` would find the file: at hand, or at an address that answers within `seconds`. Never raises."""
    with suppress(Exception):
        if not file.urls:
            return _shipped(file).is_file()
        if _intact(file, cache_folder() / file.path):
            return True
        sources = _sources(file)
        if any(_passes(file, source) for source in sources if isinstance(source, Path)):
            return True
        return _any_answers([source for source in sources if isinstance(source, str)], seconds)
    return False


def _shipped(file: File) -> Path:
    paths = [folder / file.path for folder in SHIPPED if (folder / file.path).is_file()]
    if not paths:
        raise DataUnavailable(f"{file.path} ships with tfbook and is missing: install tfbook again")
    return paths[0]


def _intact(file: File, path: Path) -> bool:
    """Whether the cache holds the file, by its stamp or else by its content."""
    if not path.is_file():
        return False
    with suppress(OSError):
        if _note(path).read_text(encoding="utf-8") == _stamp(file, path):
            return True
    if not _passes(file, path):
        return False
    _remember(file, path)
    return True


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _stamp(file: File, path: Path) -> str:
    """What changes when the file is touched, or when a later version of tfbook expects another."""
    facts = path.stat()
    return f"{facts.st_size} {facts.st_mtime_ns} {file.sha256 or getattr(file.check, '__qualname__', '')}"


def _remember(file: File, path: Path) -> None:
    with suppress(OSError):  # in a read-only cache the file is verified each time
        _note(path).write_text(_stamp(file, path), encoding="utf-8")


def _passes(file: File, path: Path) -> bool:
    with suppress(ValueError, OSError):
        file.verify(path)
        return True
    return False


@contextmanager
def _locked(target: Path, seconds: float) -> Iterator[None]:
    """One process at a time brings `target`. The system drops the lock of a process that dies.

    Where locking fails (some network drives) two processes may both download: wasteful, but each has a name of its own
    until the last step, so it is not wrong.
    """
    from filelock import FileLock

    lock = FileLock(target.with_name(f"{target.name}.lock"))
    with suppress(OSError, NotImplementedError):  # filelock's Timeout is an OSError
        lock.acquire(timeout=seconds)
    try:
        if lock.is_locked:
            for leftover in target.parent.glob(f".{target.name}.*.part"):  # of a process that was killed
                leftover.unlink(missing_ok=True)
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows deletes it at the release
                Path(lock.lock_file).unlink()
            lock.release()


def _sources(file: File) -> list[Path | str]:
    """Where to look, in order: paths in folders and addresses."""
    sources: list[Path | str] = list(file.urls)
    mirror = os.environ.get("TFBOOK_MIRROR", "")
    if mirror.startswith(("http://", "https://")):
        sources.insert(0, f"{mirror.rstrip('/')}/{file.path}")
    elif mirror:
        sources.insert(0, Path(mirror).expanduser() / file.path)
    offline = os.environ.get("TFBOOK_OFFLINE", "0") not in ("", "0")
    return [source for source in sources if isinstance(source, Path) or not offline]


class _SourceFailed(Exception):
    """One source did not give the file."""

    def __init__(self, reason: str, *, retry: bool):
        super().__init__(reason)
        self.retry = retry


def _bring(file: File, target: Path, patience: Patience) -> None:
    """Fill `target` from the first source that can, or raise DataUnavailable."""
    target.unlink(missing_ok=True)
    tried = []
    for source in _sources(file):
        try:
            return _bring_patiently(source, file, target, patience)
        except _SourceFailed as failure:
            tried.append(f"  {source}: {failure}")
    raise DataUnavailable(_advice(file, tried))


def _bring_patiently(source: Path | str, file: File, target: Path, patience: Patience) -> None:
    for attempt in range(1, patience.attempts + 1):
        try:
            return _bring_once(source, file, target, patience)
        except _SourceFailed as failure:
            if not failure.retry or attempt == patience.attempts:
                raise
        time.sleep(patience.pause * 2 ** (attempt - 1))
    return None


def _bring_once(source: Path | str, file: File, target: Path, patience: Patience) -> None:
    """Copy or download beside `target`, verify, rename."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as out:
            _read(source, out, patience)
        try:
            file.verify(part)
        except ValueError as error:
            raise _SourceFailed(f"refused, {error}", retry=isinstance(source, str)) from error
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    _remember(file, target)


def _read(source: Path | str, out: BinaryIO, patience: Patience) -> None:
    """Write what `source` holds to `out`; a full disk raises OSError, anything else _SourceFailed."""
    outer = sys.exception()
    try:
        if isinstance(source, Path):
            with source.open("rb") as data:
                shutil.copyfileobj(data, out)
        else:
            _download(source, out, patience)
    except Exception as error:  # a server can break in any way; a full disk is ours
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise
        cause: BaseException = error
        while cause.__context__ not in (None, outer):  # below requests and urllib3 lies "Connection refused"
            cause = cause.__context__
        raise _SourceFailed(f"{cause}", retry=_is_passing(error)) from error


def _download(url: str, out: BinaryIO, patience: Patience) -> None:
    from pooch import HTTPDownloader

    with _Progress(url.rpartition("/")[2], patience.download) as bar:
        limits = (patience.connect, patience.silence)
        HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=limits, headers=_HEADERS)(url, out, None)


class _Progress(tqdm):
    """A bar that leaves nothing behind and ends a download that trickles."""

    def __init__(self, name: str, seconds: float):
        super().__init__(desc=name, unit="B", unit_scale=True, leave=False, delay=1.0)
        self.seconds = seconds
        self.begun = time.monotonic()

    def __bool__(self) -> bool:
        return True  # pooch asks, and a tqdm that does not know its length yet raises

    def update(self, n: int | float | None = 1) -> bool | None:
        if time.monotonic() - self.begun > self.seconds:
            raise TimeoutError(f"not done after {self.seconds:g} s")
        return super().update(n)


def _is_passing(error: Exception) -> bool:
    """Whether the same request may well succeed a moment later."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    return isinstance(error, requests.RequestException) and not isinstance(error, requests.ConnectTimeout)


def _any_answers(urls: list[str], seconds: float) -> bool:
    """Whether one address answers. Asked in a thread, since a broken name server blocks for longer than any timeout."""
    answers: list[str] = []

    def ask() -> None:
        import requests

        for url in urls:
            with suppress(Exception):
                if requests.head(url, headers=_HEADERS, timeout=seconds, allow_redirects=True).ok:
                    answers.append(url)
                    return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds * len(urls))
    return bool(answers)


def _advice(file: File, tried: list[str]) -> str:
    return "\n".join(
        [
            f"{file.path} is not here and could not be brought. Tried:",
            *(tried or ["  nothing: TFBOOK_OFFLINE forbids the network and TFBOOK_MIRROR names no folder"]),
            "Connect to the network, or set TFBOOK_MIRROR to a folder or an address that holds the file, or let "
            "data.load(…, fallback=…) take a corpus that ships.",
        ]
    )


def _cache_trouble(error: OSError, target: Path) -> str:
    if error.errno in _DISK_FULL:
        return f"no space left on the disk for {target}: free some, or set TFBOOK_DATA to a folder on another disk"
    return f"the cache folder {cache_folder()} cannot be written ({error}): set TFBOOK_DATA to a folder that can"
