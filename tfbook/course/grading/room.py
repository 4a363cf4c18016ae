"""The room in which a stranger's code runs: a folder of its own, and nothing outside of it that could be changed.

Each wall holds alone: limits of the system (time, memory, sizes of files, no further processes), another user where
the grader is root, Landlock where Linux has it (kernel 5.13, docs.kernel.org/userspace-api/landlock.html), and a hook
that Python calls before it opens, deletes, connects or starts anything (PEP 578).
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with suppress(ImportError):  # Windows has no such limits, and `workshop` says so
    import resource

PATIENCE = 3.0
NOBODY = 61_000  # a user whom nobody is
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
PROCESSOR = ("/proc/cpuinfo", "/sys/devices/system/cpu")  # which the libraries of products ask for


@dataclass(frozen=True)
class Limits:
    """Limits of a room."""

    seconds: float = 20.0  # of the processor; of the clock `PATIENCE` times as many, since other programs run, too
    memory: int = 2 << 30  # bytes beyond what the process has when the room is entered
    output: int = 32 << 20  # bytes of each file that is written, printed text included


def enter(folder: Path, limits: Limits) -> None:
    """Locks this process into a folder, which it may read and write; nothing leads out again."""
    os.setsid()
    _send_streams(folder)
    os.chdir(folder)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder), TFBOOK_DATA=str(folder), MPLBACKEND="agg")
    sources = readable()
    restrict = landlock(folder, sources)
    _limit(limits)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        _become_nobody(may_read=restrict is not None)
    if restrict is not None:
        restrict()
    sys.addaudithook(_guard(str(folder), sources))


def readable() -> list[str]:
    """The folders that Python, its packages and the course are read from."""
    course = Path(__file__).resolve().parents[2]
    packages = [place for place in sys.path if Path(place).name in PACKAGES]
    places = [*packages, sys.prefix, sys.base_prefix, str(course)]
    return list(dict.fromkeys([*places, *map(os.path.realpath, places)]))


PACKAGES = ("lib", "lib64", "site-packages", "dist-packages", "lib-dynload")


def _send_streams(folder: Path) -> None:
    """Input is empty, what is printed goes into a file, and no other file stays open."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed = os.open(folder / "printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.closerange(3, 4096)


def _limit(limits: Limits) -> None:
    """The limits of the system for this process."""
    seconds = math.ceil(limits.seconds)
    pages = Path("/proc/self/statm")
    used = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 0
    wanted = {
        "RLIMIT_AS": used + limits.memory,
        "RLIMIT_FSIZE": limits.output,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_NPROC": 0,  # neither processes nor threads
    }
    for name, most in wanted.items():
        with suppress(ValueError, OSError, AttributeError):  # one that this system lacks
            resource.setrlimit(getattr(resource, name), (most, most))
    resource.setrlimit(
        resource.RLIMIT_CPU, (seconds, seconds + 1)
    )  # who ignores the signal at the first meets the second


def _become_nobody(*, may_read: bool) -> None:
    """Gives root's rights up, but for reading where Landlock says what may be read: Python may lie in root's home."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(KEEP_CAPABILITIES, int(may_read), 0, 0, 0)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    if may_read:
        libc.capset(struct.pack("=Ii", CAPABILITIES_3, 0), struct.pack("=6I", READ_ANY, READ_ANY, 0, 0, 0, 0))


KEEP_CAPABILITIES, CAPABILITIES_3, READ_ANY = 8, 0x20080522, 1 << 2  # of prctl and capset (man 7 capabilities)


# ---- Landlock ----------------------------------------------------------------------------------------------------

CREATE, ADD, RESTRICT = 444, 445, 446  # the numbers of the system calls, the same for every architecture
NO_NEW_PRIVILEGES, DIE_WITH_PARENT = 38, 1  # options of prctl
READ = 1 << 2 | 1 << 3 | 1 << 0  # files, folders, and running them, as the loader of libraries does


def landlock(folder: Path, sources: list[str]) -> Callable[[], None] | None:
    """A function that forbids this process every path but these; none where the system has no Landlock."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    version = libc.syscall(CREATE, None, 0, 1)
    if version < 1:
        return None
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    parts = [every, *([3] if version >= 4 else []), *([3] if version >= 6 else [])]  # files; TCP; sockets and signals
    attributes = struct.pack(f"{len(parts)}Q", *parts)
    rules = libc.syscall(CREATE, attributes, len(attributes), 0)
    if rules < 0:
        return None
    for path, rights in _rights(folder, sources, every):
        with suppress(OSError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            libc.syscall(ADD, rules, 1, struct.pack("=Qi", rights, place), 0)
            os.close(place)

    def restrict() -> None:
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if libc.syscall(RESTRICT, rules, 0):
            raise OSError(ctypes.get_errno(), "Landlock could not be entered")
        os.close(rules)

    return restrict


def _rights(folder: Path, sources: list[str], every: int) -> Iterator[tuple[str | Path, int]]:
    yield folder, every
    for source in [*sources, *PROCESSOR, "/usr/lib", "/lib", "/lib64"]:
        yield source, READ if os.path.isdir(source) else 1 << 2
    yield from ((device, 1 << 1 | 1 << 2) for device in DEVICES)


# ---- Python's own hook -------------------------------------------------------------------------------------------

STARTS = ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill", "os.killpg", "pty.")
REACHES = ("subprocess.", "socket.", "ctypes.", "shutil.", "signal.pthread_kill", "gc.", "sys.addaudithook", "cpython.")
CHANGES = (
    *("os.rename", "os.link", "os.symlink", "os.truncate", "os.utime", "os.chmod", "os.chown", "os.lockf"),
    *("os.setxattr", "os.removexattr", "os.chflags", "resource."),
)
IN_PLACE = ("os.remove", "os.mkdir", "os.rmdir")  # what temporary files need
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _guard(folder: str, sources: list[str]) -> Callable[..., None]:
    """The hook: it raises PermissionError where code reaches out of its folder.

    Whatever it needs is an argument of its own, since an answer can replace the functions of every module.
    """
    inside = tuple(f"{place}/" for place in (folder, os.path.realpath(folder)))

    def guard(
        event: str,
        arguments: tuple[Any, ...],
        *,
        writable: tuple[str, ...] = (*inside, *DEVICES),
        legible: tuple[str, ...] = (*inside, *DEVICES, *PROCESSOR, *(f"{source}/" for source in sources)),
        forbidden: tuple[str, ...] = (*STARTS, *REACHES, *CHANGES),
        in_place: tuple[str, ...] = IN_PLACE,
        writes: int = WRITES,
        normal: Callable[[str], str] = os.path.normpath,
        here: Callable[[], str] = os.getcwd,
        kind: type = type,
        refusal: type[Exception] = PermissionError,
    ) -> None:
        if event == "open" or event in in_place:
            path, flags = arguments[0], arguments[-1] if event == "open" else writes
            if kind(path) is int and event == "open":
                return
            if kind(path) not in (str, bytes):
                raise refusal("an answer that is graded opens files by their names alone")
            where = str(path, "utf-8", "surrogateescape") if kind(path) is bytes else path
            where = normal(where if where[:1] == "/" else f"{here()}/{where}")
            if not where.startswith(writable if kind(flags) is int and flags & writes else legible):
                raise refusal(f"an answer that is graded may not reach {where}")
        elif event.startswith(forbidden):
            raise refusal(f"an answer that is graded may not use {event}")

    return guard
