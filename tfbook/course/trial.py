"""The room in which an answer of a learner is tried: limited in time, and left as it was entered."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch._tensor_str import PRINT_OPTS

from tfbook import runtime

AGAIN = 0.1  # seconds after which an answer that goes on in spite of its end is ended again


# ---- time --------------------------------------------------------------------------------------------------------


class TookTooLong(BaseException):
    """Ends an answer from outside; no `except Exception` in it holds this up."""


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Raises `TookTooLong` in the block when it runs longer, again and again since a bare `except:` would catch it.

    In the main thread of Linux and macOS, a signal also ends `time.sleep` and whatever else waits; elsewhere, the
    block ends between two operations of Python.
    """
    main = threading.current_thread() is threading.main_thread()
    alarm = main and hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is not None
    return _alarm(seconds) if alarm else _watcher(seconds)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    running = True

    def ring(number: int, frame: object) -> None:
        if running:
            raise TookTooLong

    handler = signal.signal(signal.SIGALRM, ring)
    other = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)  # of somebody else, who gets the time left again
    try:
        try:
            yield
        finally:
            running = False
    finally:  # in case that it rang at this very moment
        running = False
        signal.setitimer(signal.ITIMER_REAL, *other)
        signal.signal(signal.SIGALRM, handler)


@contextmanager
def _watcher(seconds: float) -> Iterator[None]:
    thread, done, fired = ctypes.c_ulong(threading.get_ident()), threading.Event(), threading.Event()

    def watch() -> None:
        pause = seconds
        while not done.wait(pause):
            fired.set()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TookTooLong))
            pause = AGAIN

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        try:
            done.set()
        finally:  # in case that it was raised at this very moment
            done.set()
            watcher.join()
            if fired.is_set():
                _receive()


def _receive() -> None:
    """Lets an exception arrive that may be on its way to this thread.

    Taking it back, by `PyThreadState_SetAsyncExc(thread, NULL)`, would hang every profiler and debugger of Python 3.11.
    """
    with suppress(TookTooLong):
        for _ in range(1000):
            math.sqrt(2)


# ---- settings ----------------------------------------------------------------------------------------------------


def _replace_environment(value: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(value)


def _set_default_device(device: torch.device) -> None:
    """None where it is the CPU: any other value, "cpu" included, lets each call of PyTorch pass a mode."""
    torch.set_default_device(None if device == torch.device("cpu") else device)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def _set_folder(folder: str | None) -> None:
    if folder is not None:
        os.chdir(folder)


def _set_interrupt(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGINT, handler)


def _flushes_denormals() -> bool:
    smallest = sys.float_info.min
    return smallest / 4 == 0


# How to read and how to write each setting of the process, of PyTorch and of NumPy that an answer could change.
SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, _set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (_flushes_denormals, torch.set_flush_denormal),
    (lambda: asdict(PRINT_OPTS), lambda options: torch.set_printoptions(**options)),
    (np.get_printoptions, lambda options: np.set_printoptions(**options)),
    (np.geterr, lambda options: np.seterr(**options)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (_folder, _set_folder),
    (lambda: dict(os.environ), _replace_environment),
    (lambda: signal.getsignal(signal.SIGINT), _set_interrupt),
    *(
        (getattr(torch.backends.cuda, f"{name}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{name}_sdp"))
        for name in ("flash", "mem_efficient", "math", "cudnn")
        if hasattr(torch.backends.cuda, f"enable_{name}_sdp")
    ),
]
PATCHED = (torch, torch.Tensor, torch.linalg, torch.nn, torch.nn.Module, torch.nn.functional, math, functools)


@contextmanager
def default_settings() -> Iterator[None]:
    """PyTorch as it is after the import, gradients recorded; afterwards settings and generators are as they were."""
    before = [read() for read, _ in SETTINGS]
    torch.set_default_dtype(torch.float32)
    try:
        with runtime.fork_rng(), warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for (read, write), value in zip(SETTINGS, before, strict=True):
            if read() != value:
                write(value)


@contextmanager
def functions_as_they_are() -> Iterator[None]:
    """Puts the functions of PyTorch back that an answer has replaced, on which every later verdict would depend."""
    before = [dict(vars(each)) for each in PATCHED]
    try:
        yield
    finally:
        for each, functions in zip(PATCHED, before, strict=True):
            _put_back(each, functions)


def _put_back(each: Any, functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        if callable(function) and not name.startswith("_") and vars(each).get(name) is not function:
            setattr(each, name, function)
    if isinstance(each, type):  # where a new method hides an inherited one
        for name in [name for name in vars(each) if name not in functions]:
            delattr(each, name)
