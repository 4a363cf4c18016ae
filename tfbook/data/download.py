"""A verified copy of a public file: from the package, the cache, a mirror or the network, in that order.

A file is copied or downloaded next to its place in the cache, verified there, and only then renamed, so whatever a
server does, the cache holds the right bytes or none. A stamp next to the file records its size and modification
times when it was verified: while they are the same, it is not read again; when they differ (a truncated file, a
restored backup), or when its reader fails, the whole file is verified once more.

pooch names the platform's folder and hashes. It does not download: its retries repeat a 404 and have no setting for the
pause, it bounds neither size nor time, its temporary files become files that only their owner can read, and those that
a killed process leaves behind look like those that another process is writing.

| variable | meaning |
|---|---|
| `TFBOOK_DATA` | the cache folder (default: the platform's) |
| `TFBOOK_MIRROR` | a folder, also as `file://…`, or an http(s) address to try before the public addresses |
| `TFBOOK_OFFLINE` | `1` forbids the network; folders are still used |
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import url2pathname

from tfbook.data.transfer import DISK_FULL, HEADERS, RetryPolicy, SourceFailed, check_regular, fill, in_time
from tfbook.files import chosen_path, write_text

_PACKAGE = Path(__file__).parents[1]
SHIPPED = (_PACKAGE / "_data", _PACKAGE.parent / "data")  # in the wheel; in a clone
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

        check_regular(path)
        if self.sha256 and (found := file_hash(path)) != self.sha256:
            raise ValueError(f"sha256 is {found}; expected {self.sha256}")
        try:
            if self.check:
                self.check(path)
        except Exception as error:  # a damaged archive can raise anything
            raise ValueError(f"{type(error).__name__}: {error}") from error


_RETRY = RetryPolicy()


def cache_folder() -> Path:
    """`TFBOOK_DATA`, or the platform's folder for caches. Raises DataUnavailable for an unknown user's home."""
    try:
        if folder := chosen_path("TFBOOK_DATA"):
            return folder
    except FileNotFoundError as error:
        raise DataUnavailable(str(error)) from None
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
            with locked(target, retry.download):
                if not _intact(file, target):  # another process may have filled it in the meantime
                    _fill(file, target, retry)
    except DataUnavailable:
        raise
    except OSError as error:
        raise DataUnavailable(cache_problem(error, target, cache_folder())) from error
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


def is_offline() -> bool:
    """Whether `TFBOOK_OFFLINE` forbids the network."""
    return os.environ.get("TFBOOK_OFFLINE", "0") not in ("", "0")


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
        write_text(stamp, content)


def _is_valid(file: File, path: Path) -> bool:
    with suppress(OSError, ValueError):
        file.verify(path)
        return True
    return False


@contextmanager
def locked(target: Path, seconds: float) -> Iterator[None]:
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
        folder = Path(os.path.expanduser(mirror))  # which leaves an unknown user's ~ as it is
        sources.insert(0, f"{mirror.rstrip('/')}/{file.path}" if "://" in mirror else folder / file.path)
    return [source for source in sources if isinstance(source, Path) or not is_offline()]


def _fill(file: File, target: Path, retry: RetryPolicy) -> None:
    """Fill `target` from the first source that works. Raises DataUnavailable, or OSError when the cache fails."""
    target.unlink(missing_ok=True)
    tried = []
    for source in _sources(file):
        try:
            fill(target, source, file.most, file.verify, retry, resume=file.sha256 is not None)
        except SourceFailed as failure:
            tried.append(f"  {source}: {failure}")
        else:
            _write_stamp(file, target)
            return
    nothing = "  nothing: TFBOOK_OFFLINE forbids the network and TFBOOK_MIRROR names no folder"
    raise DataUnavailable(_ADVICE.format(path=file.path, tried="\n".join(tried) or nothing))


def _any_answers(urls: list[str], seconds: float) -> bool:
    """Whether an address answers; not by a timeout alone, since a broken name server blocks for longer than any."""

    def ask() -> bool:
        import requests

        for url in urls:
            with (
                suppress(requests.RequestException, ValueError, OSError),
                requests.head(url, headers=HEADERS, timeout=seconds, allow_redirects=True) as response,
            ):
                if response.ok:
                    return True
        return False

    return in_time(seconds * len(urls), ask)


def cache_problem(error: OSError, target: Path, folder: Path) -> str:
    """Says why `target` could not be written in the cache `folder`, and what to do."""
    if error.errno in DISK_FULL:
        return f"no space left on the disk for {target}: free some, or set TFBOOK_DATA to a folder on another disk"
    return f"the cache folder {folder} cannot be written ({error}): set TFBOOK_DATA to a folder that can"
