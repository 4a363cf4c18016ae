"""Processes in which tests are run."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(arguments: list[str], plugin: object) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={scratch}/tests", f"--rootdir={ROOT}"]
        return int(pytest.main([*options, *arguments], plugins=[plugin]))


def forked(task: Callable[[], int | None]) -> int:
    """A process for the task, whose result is its exit status; what it prints is lost."""
    if process := os.fork():
        return process
    status = 3
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nowhere, each)
        status = task() or 0
    finally:
        os._exit(status)


def wait(process: int, seconds: float) -> int | None:
    """Its exit status, or None when it has not ended by then and is killed with all that it started."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None
