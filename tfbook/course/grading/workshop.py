"""The process that tries answers: `python -m tfbook.course.grading.workshop`, which `Workshop` starts.

It imports PyTorch and the course once. For each order, a line of JSON, it forks; the copy locks itself into a room,
defines the answer there, tries it on the exercise's cases, and leaves the attempt as data in two files. The workshop
itself runs nothing of a student.
"""

from __future__ import annotations

import json
import linecache
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tfbook.course.errors import error_line
from tfbook.course.exercises import Exercise
from tfbook.course.grading import room
from tfbook.course.grading.handed_in import Answered
from tfbook.course.grading.written import ATTEMPT, write_attempt

GRACE = 20.0  # seconds beyond a room's own within which a workshop has to report
STARTING = 180.0  # seconds that the imports may take

# ---- on the grader's side ----------------------------------------------------------------------------------------


class Workshop:
    """A workshop that gets orders. It is started with the first order, and anew after it has failed."""

    def __init__(self, limits: room.Limits):
        self.limits = limits
        self.process: subprocess.Popen[bytes] | None = None

    def attempt(self, lesson: str, answered: Answered, may_change: list[str], place: Path) -> str:
        """Has an answer tried, which leaves its attempt in the folder `place`; returns how that ended."""
        order = asdict(answered) | {
            "lesson": lesson, "may_change": may_change, "place": str(place), "limits": asdict(self.limits)
        }  # fmt: skip
        try:
            return self._asked(order)
        except (OSError, ValueError, TimeoutError):
            self.close()
            return "failed"

    def _asked(self, order: Mapping[str, Any]) -> str:
        process = self.process or self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        return str(self._line(process, room.PATIENCE * self.limits.seconds + GRACE)["ended"])

    def _started(self) -> subprocess.Popen[bytes]:
        """Raises TimeoutError where it doesn't get ready, and OSError where it doesn't start."""
        settings = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tfbook.course.grading.workshop"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=settings,
            start_new_session=True,
        )
        self._line(self.process, STARTING)
        return self.process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], seconds)[0]:
            raise TimeoutError("the workshop does not answer")
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    def close(self) -> None:
        """Ends the process."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
        self.process = None


# ---- in the process of its own -----------------------------------------------------------------------------------


def take_orders() -> None:
    """Reads orders until there are no more."""
    torch.set_num_threads(1)  # a room allows no second thread
    print(json.dumps({"ended": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        modules = lesson_modules(order["lesson"])
        child = os.fork()
        if child == 0:
            try_in_room(order, modules)
        print(json.dumps({"ended": awaited(child, room.PATIENCE * order["limits"]["seconds"])}), flush=True)


def lesson_modules(slug: str) -> list[Any]:
    """The exercises of a lesson, and the modules that its notebook imports, so that a copy need not load them."""
    modules = [import_module(f"tfbook.lessons.{slug}.exercises")]
    for name in ("study", "figures"):
        with suppress(ImportError):
            modules.append(import_module(f"tfbook.lessons.{slug}.{name}"))
    return modules


def awaited(child: int, seconds: float) -> str:
    """How a child ended, which is killed with all that it has started when its time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
            return "done" if status == 0 else "late" if late else "ended"
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "late"


def try_in_room(order: Mapping[str, Any], modules: list[Any]) -> None:
    """Tries the answer of an order in this process, which ends with it."""
    try:
        place = Path(order["place"])
        exercise = getattr(modules[0], order["exercise"])
        known = vars(sys.modules[exercise.reference.__module__])
        exercise.reference = exercise.start = None
        exercise.wrong_answers = {}
        room.enter(place, room.Limits(**order["limits"]))
        answer, fault = defined(order, known)
        if fault:
            write_attempt(place / ATTEMPT, fault=fault)
        elif answer is None or answer is ...:
            write_attempt(place / ATTEMPT, fault="not attempted")
        else:
            write_attempt(place / ATTEMPT, exercise.attempt(answer, order["may_change"]))
    except BaseException:  # such as memory that is not there for writing the attempt down
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def defined(order: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Any, str]:
    """The answer that the cell defines, which sees what is `known`, or the error of a statement of the cell."""
    names = {name: value for name, value in known.items() if not isinstance(value, Exercise)}
    names["__name__"] = "__main__"
    for source in order["before"]:
        with suppress(Exception):  # a part of the page that needs what training would have made
            run_statement(source, names)
    try:
        for source in order["statements"]:
            run_statement(source, names)
        return eval(order["argument"], names), ""
    except SystemExit:
        return None, "SystemExit: the cell ends the program"
    except Exception as error:
        return None, error_line(error, None)


def run_statement(source: str, names: dict[str, Any]) -> None:
    """Runs a statement whose lines an error can show."""
    file = f"<handed in {len(linecache.cache)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), names)


if __name__ == "__main__":
    take_orders()
