"""A verified copy of a public file: from the package, the cache, a mirror or the network, in that order.

A file is copied or downloaded next to its place in the cache, verified there, and only then renamed, so whatever a
server does, the cache holds the right bytes or none. A stamp next to the file records its size and modification
times when it was verified: while they are the same, it is not read again; when they differ (a truncated file, a
restored backup), or when its reader fails, the whole file is verified once more.

pooch downloads and hashes. Its retries are not used, since they repeat a 404 and have no setting for the pause; nor are
its temporary files, since these become files that only their owner can read, and those that a killed process leaves
behind look like those that another process is writing.

| variable | meaning |
|---|---|
| `TFBOOK_DATA` | the cache folder (default: the platform's) |
| `TFBOOK_MIRROR` | a folder, also as `file://…`, or an http(s) address to try before the public addresses |
| `TFBOOK_OFFLINE` | `1` forbids the network; folders are still used |
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
from urllib.request import url2pathname

from tqdm import tqdm

# Some hosts refuse clients that identify as a script; a compressed body would not have the published hash.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; tfbook)", "Accept-Encoding": "identity"}
_PACKAGE = Path(__file__).parents[1]
SHIPPED = (_PACKAGE / "_data", _PACKAGE.parent / "data")  # in the wheel; in a clone
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_ADVICE = """{path} is not here and could not be fetched. Tried:
{tried}
Connect to the network, set TFBOOK_MIRROR to a folder or an address that holds the file, or use \
data.load(…, fallback=…) with a corpus that comes with tfbook."""


class DataUnavailable(OSError):
    """A file is not available; the message says what was tried and what to do."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A public file and how to verify it: by its hash, or by a check of its format if its content changes."""

    path: str  # in a mirror and in the cache
    urls: tuple[str, ...] = ()  # empty: it ships with the package
    sha256: str | None = None
    check: Callable[[Path], None] | None = None  # raises when the content is wrong
    most: int = 1 << 28  # bytes that a source may send; CIFAR-10, the largest here, has 170 million

    def __post_init__(self) -> None:
        if self.urls and not (self.sha256 or self.check):
            raise ValueError(f"{self.path} has urls but neither sha256 nor check, so a download could not be verified")

    def verify(self, path: Path) -> None:
        """Raise ValueError, with the reason, unless `path` holds this file."""
        from pooch import file_hash

        _check_regular(path)
        if self.sha256 and (found := file_hash(path)) != self.sha256:
            raise ValueError(f"sha256 is {found}; expected {self.sha256}")
        try:
            if self.check:
                self.check(path)
        except Exception as error:  # a damaged archive can raise anything
            raise ValueError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long to wait, in seconds, and how often to try."""

    connect: float = 5.0  # for a connection
    read: float = 20.0  # for the next byte
    download: float = 1800.0  # for one file from one address
    attempts: int = 3
    backoff: float = 0.5  # before the second attempt; doubles each time

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "backoff"):
                expected = "0 or more seconds" if name == "backoff" else "more than 0"
                raise ValueError(f"{name} is {value}; expected {expected}")


_RETRY = RetryPolicy()


def cache_folder() -> Path:
    """`TFBOOK_DATA`, or the platform's folder for caches."""
    if folder := os.environ.get("TFBOOK_DATA"):
        return Path(folder).expanduser()
    from pooch import os_cache

    return Path(os_cache("tfbook"))


def fetch(file: File, *, retry: RetryPolicy = _RETRY) -> Path:
    """A local path that holds the verified `file`. Raises DataUnavailable when no source has it."""
    if not file.urls:
        return _shipped(file)
    target = cache_folder() / file.path
    try:
        if not _intact(file, target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(target, retry.download):
                if not _intact(file, target):  # another process may have filled it in the meantime
                    _fill(file, target, retry)
    except DataUnavailable:
        raise
    except OSError as error:
        raise DataUnavailable(_cache_problem(error, target)) from error
    return target


def can_fetch(file: File, *, seconds: float = 3.0) -> bool:
    """Whether `fetch` would find the file: on disk, or at an address that answers within `seconds`. Never raises."""
    with suppress(Exception):
        if not file.urls:
            return _shipped(file).is_file()
        sources = _sources(file)
        local = [source for source in sources if isinstance(source, Path)]
        if _intact(file, cache_folder() / file.path) or any(_is_valid(file, path) for path in local):
            return True
        return _any_answers([source for source in sources if isinstance(source, str)], seconds)
    return False


def _shipped(file: File) -> Path:
    for folder in SHIPPED:
        if (folder / file.path).is_file():
            return folder / file.path
    raise DataUnavailable(f"{file.path} ships with tfbook and is missing: reinstall tfbook")


def drop_damaged(file: File) -> bool:
    """Verify the cached `file` whatever its stamp says, and remove it when it is wrong; whether it was."""
    path = cache_folder() / file.path
    damaged = bool(file.urls) and path.is_file() and not _is_valid(file, path)
    if damaged:
        with suppress(OSError):  # in a read-only cache
            path.unlink()
    return damaged


def _intact(file: File, path: Path) -> bool:
    """Whether the cache holds the file, judged by its stamp or else by its content."""
    if not path.is_file():
        return False
    with suppress(OSError, ValueError):
        stamp, content = _stamp(file, path)
        if stamp.read_text(encoding="utf-8") == content:
            return True
    if valid := _is_valid(file, path):
        _write_stamp(file, path)
    return valid


def _stamp(file: File, path: Path) -> tuple[Path, str]:
    """The path of its stamp and its content, which changes with the file and with what this tfbook expects of it."""
    facts, expected = path.stat(), file.sha256 or getattr(file.check, "__qualname__", "")
    times = f"{facts.st_mtime_ns} {facts.st_ctime_ns}"  # a program can set back the first and not the second
    return path.with_name(f"{path.name}.verified"), f"{facts.st_size} {times} {expected}"


def _write_stamp(file: File, path: Path) -> None:
    with suppress(OSError):  # in a read-only cache the file is verified each time
        stamp, content = _stamp(file, path)
        stamp.write_text(content, encoding="utf-8")


def _is_valid(file: File, path: Path) -> bool:
    with suppress(OSError, ValueError):
        file.verify(path)
        return True
    return False


@contextmanager
def _locked(target: Path, seconds: float) -> Iterator[None]:
    """Let one process at a time work on `target`; the system releases the lock of a process that dies.

    Where locking fails (some network drives), two processes may both download. That is wasteful but not wrong, since
    each writes to its own file before renaming it.
    """
    from filelock import FileLock

    lock = FileLock(target.with_name(f"{target.name}.lock"))
    with suppress(OSError, NotImplementedError):  # filelock's Timeout is an OSError
        lock.acquire(timeout=seconds)
    try:
        if lock.is_locked:
            for leftover in target.parent.glob(f".{target.name}.*.part"):  # from a process that was killed
                leftover.unlink(missing_ok=True)
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows deletes it on release
                Path(lock.lock_file).unlink()
            lock.release()


def _sources(file: File) -> list[Path | str]:
    """Where to look, in this order: paths in folders, and addresses."""
    sources: list[Path | str] = list(file.urls)
    if mirror := os.environ.get("TFBOOK_MIRROR"):
        mirror = url2pathname(mirror.removeprefix("file://")) if mirror.startswith("file://") else mirror
        is_address = "://" in mirror
        sources.insert(0, f"{mirror.rstrip('/')}/{file.path}" if is_address else Path(mirror).expanduser() / file.path)
    offline = os.environ.get("TFBOOK_OFFLINE", "0") not in ("", "0")
    return [source for source in sources if isinstance(source, Path) or not offline]


class _SourceFailed(Exception):
    """A source did not deliver the file: the reason, and whether another attempt may help."""


def _fill(file: File, target: Path, retry: RetryPolicy) -> None:
    """Fill `target` from the first source that works. Raises DataUnavailable, or OSError when the cache fails."""
    target.unlink(missing_ok=True)
    tried = []
    for source in _sources(file):
        for attempt in range(retry.attempts):
            if attempt:
                time.sleep(retry.backoff * 2 ** (attempt - 1))
            try:
                return _fill_once(source, file, target, retry)
            except _SourceFailed as failure:
                reason, temporary = failure.args
            if not temporary:
                break
        tried.append(f"  {source}: {reason}")
    nothing = "  nothing: TFBOOK_OFFLINE forbids the network and TFBOOK_MIRROR names no folder"
    raise DataUnavailable(_ADVICE.format(path=file.path, tried="\n".join(tried) or nothing))


def _fill_once(source: Path | str, file: File, target: Path, retry: RetryPolicy) -> None:
    """Copy or download next to `target`, verify, rename. Raises _SourceFailed, or OSError when the cache fails."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as out:
            _transfer(source, _Limited(out, file.most), retry)
        file.verify(part)
        os.replace(part, target)
    except ValueError as error:
        raise _SourceFailed(f"refused, {error}", isinstance(source, str)) from error
    finally:
        part.unlink(missing_ok=True)
    _write_stamp(file, target)


class _Limited:
    """A file that refuses what comes after `most` bytes, so that a source without an end does not fill the disk."""

    def __init__(self, out: BinaryIO, most: int):
        self.out, self.most, self.written, self.flush = out, most, 0, out.flush

    def write(self, data: bytes) -> int:
        self.written += len(data)
        if self.written > self.most:
            raise ValueError(f"it holds more than {self.most:,} bytes, which is too much for this file")
        return self.out.write(data)


def _check_regular(path: Path) -> None:
    """Raise ValueError for a named pipe or a device, from which one can read forever, and for a folder."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")


def _transfer(source: Path | str, out: _Limited, retry: RetryPolicy) -> None:
    """Write the content of `source` to `out`. Raises OSError for a full disk and _SourceFailed for anything else."""
    outer = sys.exception()
    try:
        if isinstance(source, Path):
            _check_regular(source)
            with source.open("rb") as data:
                shutil.copyfileobj(data, out)
        else:
            _download(source, out, retry)
    except Exception as error:  # a server can fail in any way; a full disk is ours
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise
        cause: BaseException = error
        while cause.__context__ not in (
            None,
            outer,
        ):  # the cause, such as "Connection refused", is below requests and urllib3
            cause = cause.__context__
        raise _SourceFailed(str(cause), _is_temporary(error)) from error


def _download(url: str, out: _Limited, retry: RetryPolicy) -> None:
    from pooch import HTTPDownloader

    with _Progress(url.rpartition("/")[2], retry.download) as bar:
        limits = (retry.connect, retry.read)
        HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=limits, headers=_HEADERS)(url, out, None)


class _Progress(tqdm):
    """A progress bar that disappears in the end, and stops a download that takes too long."""

    def __init__(self, name: str, seconds: float):
        super().__init__(desc=name, unit="B", unit_scale=True, leave=False, delay=1.0)
        self.seconds = seconds
        self.started = time.monotonic()

    def __bool__(self) -> bool:
        return True  # pooch asks, and a tqdm without a known length raises

    def update(self, n: int | float | None = 1) -> bool | None:
        if time.monotonic() - self.started > self.seconds:
            raise TimeoutError(f"not finished after {self.seconds:g} s")
        return super().update(n)


def _is_temporary(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code >= 500 or error.response.status_code in (408, 429)
    lasting = (requests.ConnectTimeout, ValueError)  # ValueError: an address that is none
    return isinstance(error, requests.RequestException) and not isinstance(error, lasting)


def _any_answers(urls: list[str], seconds: float) -> bool:
    """Whether an address answers. Runs in a thread, since a broken name server blocks for longer than any timeout."""
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
