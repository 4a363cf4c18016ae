"""The stop button: a signal that loops look at between steps, so that no step is cut in half."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_loops: list[threading.Event] = []  # a flag for each loop under way, the innermost last


class _Before:
    """The handler of other interrupts, while loops are under way."""

    handler: Any = signal.default_int_handler


@contextmanager
def stop_flag() -> Iterator[threading.Event]:
    """A flag that the stop button (SIGINT) sets; a second press raises KeyboardInterrupt at once.

    A press sets the flags of all loops that are under way, one inside the other. In other threads than the main one,
    which signals don't reach, nothing sets it.
    """
    flag = threading.Event()
    found = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or found is None:  # None: not Python's, stays
        yield flag
        return
    _loops.append(flag)
    try:
        if found is not _on_interrupt:
            _Before.handler = found
            signal.signal(signal.SIGINT, _on_interrupt)
        yield flag
    finally:
        _loops.remove(flag)
        if not _loops and signal.getsignal(signal.SIGINT) is _on_interrupt:
            signal.signal(signal.SIGINT, _Before.handler)


def _on_interrupt(number: int, frame: object) -> None:
    if not _loops or _loops[-1].is_set():
        raise KeyboardInterrupt
    for flag in _loops:
        flag.set()
