"""One verified copy of a public file: from the package, the cache, a mirror or the network, in that order.

A file is copied or downloaded beside its place in the cache, verified there and only then renamed into it, so whatever
a server does, the cache holds the right bytes or none. A stamp beside the file remembers its size and time when it was
verified: while they hold, nothing is read again; when they differ (a cut file, a restored backup), the whole file is
verified once more.

pooch downloads and hashes. Its retries are not used, since they repeat a 404 and cannot be told how long to wait; nor
are its temporary files, since what they become is readable only by its owner, and since what a killed process left
cannot be told from what another process is writing.

| variable | meaning |
|---|---|
| `TFBOOK_DATA` | the cache folder (default: the platform's) |
| `TFBOOK_MIRROR` | a folder or an http(s) address tried before the public addresses |
| `TFBOOK_OFFLINE` | `1` forbids the network; folders still count |
"""

import errno
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
_ADVICE = """{path} is not here and could not be brought. Tried:
{tried}
Connect to the network, or set TFBOOK_MIRROR to a folder or an address that holds the file, or let \
data.load(…, fallback=…) take a corpus that ships."""


class DataUnavailable(OSError):
    """A file cannot be had; the message says what was tried and what to do."""


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
        from pooch import file_hash

        if self.sha256 and (found := file_hash(path)) != self.sha256:
            raise ValueError(f"sha256 is {found}; expected {self.sha256}")
        try:
            if self.check:
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
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "pause"):
                expected = "0 or more seconds" if name == "pause" else "more than 0"
                raise ValueError(f"{name} is {value}; expected {expected}")


_PATIENCE = Patience()


def cache_folder() -> Path:
    """`TFBOOK_DATA`, or the platform's folder for caches."""
    if folder := os.environ.get("TFBOOK_DATA"):
        return Path(folder).expanduser()
    from pooch import os_cache

    return Path(os_cache("tfbook"))


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
                    _fill(file, target, patience)
    except DataUnavailable:
        raise
    except OSError as error:
        raise DataUnavailable(_cache_problem(error, target)) from error
    return target


def obtainable(file: File, *, seconds: float = 3.0) -> bool:
    """Whether `fetch` would find the file: at hand, or at an address that answers within `seconds`. Never raises."""
    with suppress(Exception):
        if not file.urls:
            return _shipped(file).is_file()
        sources = _sources(file)
        at_hand = [source for source in sources if isinstance(source, Path)]
        if _intact(file, cache_folder() / file.path) or any(_is_valid(file, path) for path in at_hand):
            return True
        return _any_answers([source for source in sources if isinstance(source, str)], seconds)
    return False


def _shipped(file: File) -> Path:
    for folder in SHIPPED:
        if (folder / file.path).is_file():
            return folder / file.path
    raise DataUnavailable(f"{file.path} ships with tfbook and is missing: install tfbook again")


def _intact(file: File, path: Path) -> bool:
    """Whether the cache holds the file, by its stamp or else by its content."""
    if not path.is_file():
        return False
    with suppress(OSError, ValueError):
        note, stamp = _stamp(file, path)
        if note.read_text(encoding="utf-8") == stamp:
            return True
    if valid := _is_valid(file, path):
        _write_stamp(file, path)
    return valid


def _stamp(file: File, path: Path) -> tuple[Path, str]:
    """The path of its stamp, and a text that changes with the file or with what this version of tfbook expects."""
    facts, expected = path.stat(), file.sha256 or getattr(file.check, "__qualname__", "")
    return path.with_name(f"{path.name}.verified"), f"{facts.st_size} {facts.st_mtime_ns} {expected}"


def _write_stamp(file: File, path: Path) -> None:
    with suppress(OSError):  # in a read-only cache the file is verified each time
        note, stamp = _stamp(file, path)
        note.write_text(stamp, encoding="utf-8")


def _is_valid(file: File, path: Path) -> bool:
    with suppress(OSError, ValueError):
        file.verify(path)
        return True
    return False


@contextmanager
def _locked(target: Path, seconds: float) -> Iterator[None]:
    """Let one process at a time work on `target`; the system drops the lock of a process that dies.

    Where locking fails (some network drives), two processes may both download. That is wasteful but not wrong, since
    each writes a file of its own before it renames it.
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
    if mirror := os.environ.get("TFBOOK_MIRROR"):
        is_address = mirror.startswith(("http://", "https://"))
        sources.insert(0, f"{mirror.rstrip('/')}/{file.path}" if is_address else Path(mirror).expanduser() / file.path)
    offline = os.environ.get("TFBOOK_OFFLINE", "0") not in ("", "0")
    return [source for source in sources if isinstance(source, Path) or not offline]


class _SourceFailed(Exception):
    """One source did not give the file: the reason, and whether another attempt may help."""


def _fill(file: File, target: Path, patience: Patience) -> None:
    """Fill `target` from the first source that can; raises DataUnavailable, or OSError when the cache is at fault."""
    target.unlink(missing_ok=True)
    tried = []
    for source in _sources(file):
        for attempt in range(patience.attempts):
            if attempt:
                time.sleep(patience.pause * 2 ** (attempt - 1))
            try:
                return _fill_once(source, file, target, patience)
            except _SourceFailed as failure:
                reason, retry = failure.args
            if not retry:
                break
        tried.append(f"  {source}: {reason}")
    nothing = "  nothing: TFBOOK_OFFLINE forbids the network and TFBOOK_MIRROR names no folder"
    raise DataUnavailable(_ADVICE.format(path=file.path, tried="\n".join(tried) or nothing))


def _fill_once(source: Path | str, file: File, target: Path, patience: Patience) -> None:
    """Copy or download beside `target`, verify, rename; raises _SourceFailed, or OSError when the cache is at fault."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as out:
            _transfer(source, out, patience)
        file.verify(part)
        os.replace(part, target)
    except ValueError as error:
        raise _SourceFailed(f"refused, {error}", isinstance(source, str)) from error
    finally:
        part.unlink(missing_ok=True)
    _write_stamp(file, target)


def _transfer(source: Path | str, out: BinaryIO, patience: Patience) -> None:
    """Write what `source` holds to `out`; raises OSError on a full disk and _SourceFailed on anything else."""
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
        raise _SourceFailed(str(cause), _is_temporary(error)) from error


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


def _is_temporary(error: Exception) -> bool:
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


def _cache_problem(error: OSError, target: Path) -> str:
    if error.errno in _DISK_FULL:
        return f"no space left on the disk for {target}: free some, or set TFBOOK_DATA to a folder on another disk"
    return f"the cache folder {cache_folder()} cannot be written ({error}): set TFBOOK_DATA to a folder that can"
