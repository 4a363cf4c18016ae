"""What a check leaves behind: nothing, neither a process that hangs nor a setting that an answer changed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course import exercises as engine, trial
from tfbook.course.exercises import CheckResult, Exercise, exercise


@pytest.fixture
def double() -> Exercise:
    @exercise(cases=lambda: [(torch.tensor([1.0, -2.0]),), (torch.tensor([0.5]),)], hints=["Add."])
    def double(x: Tensor) -> Tensor:
        return x + x

    return double


# ---- profilers, tracers, debuggers -------------------------------------------------------------------------------

TOOLS = {
    "cProfile": "import cProfile; cProfile.Profile().runcall(work)",
    "settrace": "sys.settrace(lambda frame, event, arg: None); work(); sys.settrace(None)",
    "coverage": """
        lines = []
        def trace(frame, event, arg):
            lines.append((frame.f_code, frame.f_lineno))
            return trace
        sys.settrace(trace); work(); sys.settrace(None)
        assert len(lines) > 100
    """,
    "debugger": """
        import bdb
        class Debugger(bdb.Bdb):
            def user_line(self, frame):
                self.set_step()
        Debugger().runcall(work)
    """,
}
SCRIPT = """
import sys, threading, time, torch
from tfbook.course import exercises as engine
from tfbook.course.exercises import exercise

@exercise(cases=lambda: [(torch.ones(2),)], hints=["Add."])
def double(x):
    return x + x

def endless(x):
    while True:
        len("x")

def work():
    return sum(abs(i) for i in range(50))

def trial():
    for answer, limit in ((double.reference, 10.0), (endless, 0.2)):
        engine.TIME_LIMIT = limit
        double.judge(answer)
        TOOL

trial()
thread = threading.Thread(target=trial)
thread.start()
thread.join()
print("done")
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_a_profiler_or_debugger_works_after_a_check(tool: str) -> None:
    """After an answer that was right and after one that was cut short, in the main thread and in another."""
    code = textwrap.indent(textwrap.dedent(TOOLS[tool]), " " * 8).strip()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("TOOL", code)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.endswith("done\n"), done.stderr


# ---- time --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="only a signal ends a sleep")
def test_a_sleep_is_cut_short(double: Exercise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)
    start = time.perf_counter()
    verdict = double.judge(lambda x: time.sleep(20) or x + x)
    assert time.perf_counter() - start < 5
    assert verdict == CheckResult("not quite", "case 1 did not finish within 0.2 seconds; does a loop never end?")


def test_a_loop_in_another_thread_is_cut_short(double: Exercise, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(x: Tensor) -> Tensor:
        while True:
            len(x)

    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)
    verdicts: list[CheckResult] = []
    thread = threading.Thread(target=lambda: verdicts.extend(map(double.judge, (endless, double.reference))))
    thread.start()
    thread.join(timeout=20)
    assert [verdict.status for verdict in verdicts] == ["not quite", "correct"]


def test_a_limit_leaves_the_handlers_and_alarms_of_others(double: Exercise) -> None:
    """Also the alarm of whoever bounds the time of the notebook or of this test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    double.judge(double.reference)
    assert {number: signal.getsignal(number) for number in before} == before
    if hasattr(signal, "setitimer"):
        rung: list[int] = []
        handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        double.judge(double.reference)
        time.sleep(0.5)
        signal.signal(signal.SIGALRM, handler)
        assert rung == [signal.SIGALRM]


# ---- settings ----------------------------------------------------------------------------------------------------


def _ignores_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _turns_numpy() -> None:
    np.set_printoptions(precision=1)
    np.seterr(all="ignore")


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "print options": (lambda: torch.set_printoptions(precision=1), lambda: str(torch.tensor([1 / 3]))),
    "NumPy": (_turns_numpy, lambda: (np.get_printoptions(), np.geterr())),
    "warning filters": (lambda: warnings.simplefilter("ignore"), lambda: list(warnings.filters)),
    "recursion limit": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "folder": (lambda: os.chdir(Path.cwd().parent), Path.cwd),
    "environment": (lambda: os.environ.update(TFBOOK_PROGRESS="x"), lambda: dict(os.environ)),
    "denormals": (lambda: torch.set_flush_denormal(True), lambda: sys.float_info.min / 3),
    "SDP": (lambda: torch.backends.cuda.enable_math_sdp(False), torch.backends.cuda.math_sdp_enabled),
    "SIGINT": (_ignores_interrupts, lambda: signal.getsignal(signal.SIGINT)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_check_undoes_what_an_answer_changes(double: Exercise, change: str) -> None:
    act, read = CHANGES[change]

    def answer(x: Tensor) -> Tensor:
        act()
        return x + x

    before = read()
    assert double.judge(answer).status == "correct"
    assert read() == before


def test_every_setting_is_restored_to_what_it_was() -> None:
    """A setting that reads the same after it was written; otherwise it would be written at every check."""
    for read, write in trial.SETTINGS:
        value = read()
        write(value)
        assert read() == value


@pytest.mark.parametrize(("place", "name"), [(torch, "softmax"), (F, "softmax"), (torch.Tensor, "softmax")])
def test_a_patched_function_spoils_no_verdict(place: Any, name: str) -> None:
    """Neither this one's, since the solution runs first, nor a later one's."""

    @exercise(cases=lambda: [(torch.tensor([[1.0, 2.0]]),)], hints=["softmax"])
    def weights(x: Tensor) -> Tensor:
        return torch.softmax(x, dim=-1) + F.softmax(x, dim=-1) + x.softmax(dim=-1)

    weights.mistakes({"this is one of three": lambda x: torch.softmax(x, dim=-1)})

    def answer(x: Tensor) -> Tensor:
        setattr(place, name, lambda x, dim=-1: x * 0)
        return x * 0

    original = getattr(place, name)
    assert weights.judge(answer).status == "not quite"
    assert getattr(place, name) is original
    assert weights.judge(lambda x: 3 * torch.softmax(x, dim=-1)) == CheckResult("correct")
    assert weights.judge(lambda x: torch.softmax(x, dim=-1)).message == "this is one of three"
