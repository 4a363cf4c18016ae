"""Exercises: a solution, the cases it is tried on, and typical mistakes, each with its explanation."""

from __future__ import annotations

import copy
import ctypes
import inspect
import linecache
import math
import reprlib
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from typing import Any

import torch

from tfbook import runtime
from tfbook.course.lessons import slug_of
from tfbook.course.solved import note

Answer = Callable[..., Any]
Cases = Callable[[], Sequence[tuple[Any, ...]]]  # made afresh for each check, so that nobody can spoil them

TIME_LIMIT = 10.0  # seconds that an answer may take for all its cases
AGAIN = 0.1  # seconds after which an answer that goes on in spite of that is ended again
MARKS = {"correct": "✓", "not attempted": "○", "not yet": "○", "raised an error": "✗", "not quite": "✗"}
STILL_GIVEN = "this is still the given code with its bug, or does the same. For a hint, run ex.{}.hint()"


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check: `status` is one of `MARKS`, `message` says why, `details` show the case, line by line."""

    status: str
    message: str = ""
    details: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        first = f"{MARKS[self.status]} {self.status}" + (f": {self.message}" if self.message else "")
        return "\n    ".join([first, *self.details])


class Exercise:
    """A solution with its cases, hints and known mistakes. Made by the decorator `exercise`."""

    def __init__(self, solution: Answer, cases: Cases, hints: Sequence[str]):
        self.name = solution.__name__
        self.reference = solution
        self.cases = cases
        self.hints = tuple(hints)
        self.wrong_answers: dict[str, Answer] = {}
        self.start: Answer | None = None
        self._hints_shown = 0

    def mistakes(self, wrong_answers: Mapping[str, Answer]) -> None:
        """Registers typical wrong answers, message → answer: whoever gives the same results is told the message."""
        self.wrong_answers |= wrong_answers

    def given(self, start: Answer) -> Answer:
        """Registers the code that a "find the bug" exercise starts from; who still has its bug is told so."""
        self.start = start
        return start

    def check(self, answer: object) -> None:
        """Prints whether `answer` is right and, if not, what is wrong with it. Never raises; notes what was solved."""
        verdict = self.judge(answer)
        print(verdict)
        if verdict.status == "correct":
            note(slug_of(self.reference), self.name)

    def pick(self, answer: Answer, otherwise: Answer) -> Answer:
        """The answer if it is right, else the lesson's own version; prints which of them the lesson goes on with."""
        right = self.judge(answer).status == "correct"
        print("The lesson goes on with your version." if right else "The lesson goes on with its own version.")
        return answer if right else otherwise

    def judge(self, answer: object) -> CheckResult:
        """The verdict that `check` prints. Whatever the answer does to PyTorch's settings and generators is undone."""
        if answer is None or answer is ...:
            return CheckResult("not attempted")
        if not callable(answer):
            return CheckResult("not quite", f"expected the function itself, got {type(answer).__name__}")
        with _default_settings():
            return self._try(answer)

    def _try(self, answer: Answer) -> CheckResult:
        cases = self.cases()
        results: list[Any] = []
        try:
            with _time_limit(TIME_LIMIT):
                for case in cases:
                    outcome = _call(answer, case, self.reference)
                    if isinstance(outcome, CheckResult):
                        return outcome
                    results.append(outcome.result)
        except _TookTooLong:
            message = f"case {len(results) + 1} did not finish within {TIME_LIMIT:g} seconds; does a loop never end?"
            return CheckResult("not quite", message)
        return self._compare(results)

    def _compare(self, results: list[Any]) -> CheckResult:
        differences = [_difference(e, r) for e, r in zip(self._results_of(self.reference), results, strict=True)]
        if not any(differences):
            return CheckResult("correct")
        if self.start and _same(self._results_of(self.start), results):
            return CheckResult("not yet", STILL_GIVEN.format(self.name))
        for message, wrong in self.wrong_answers.items():
            if _same(self._results_of(wrong), results):
                return CheckResult("not quite", message)
        case, difference = next((i, d) for i, d in enumerate(differences) if d)
        message = f"case {case + 1} of {len(differences)}: {difference}"
        return CheckResult("not quite", message, self._show(case, results[case]))

    def _results_of(self, function: Answer) -> list[Any]:
        return _results(function, self.cases)

    def _show(self, number: int, result: Any) -> tuple[str, ...]:
        """A case, what came out and what should have, a line each."""
        names = inspect.signature(self.reference).parameters
        shown = dict(zip(names, self.cases()[number], strict=True))
        shown |= {"your result": result, "expected": self._results_of(self.reference)[number]}
        return tuple(f"{name}: {_shortened(value)}" for name, value in shown.items())

    def hint(self) -> None:
        """Prints the next hint; after the last one it begins again."""
        number = self._hints_shown % len(self.hints)
        self._hints_shown += 1
        print(f"Hint {number + 1} of {len(self.hints)}: {self.hints[number]}")

    def solution(self) -> None:
        """Prints the solution, which is the code that the tests run."""
        print(source_of(self.reference), end="")


def exercise(*, cases: Cases, hints: Sequence[str]) -> Callable[[Answer], Exercise]:
    """Turns a solution into an `Exercise`; its mistakes follow with `name.mistakes({"…": wrong})`."""
    return lambda solution: Exercise(solution, cases, hints)


def randn(*shape: int, seed: int) -> torch.Tensor:
    """Standard normal numbers for a case, the same at every check."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def source_of(function: Answer) -> str:
    """The source of a function without its decorators."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return "".join(lines[first:])


# ---- trying an answer on one case --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outcome:
    result: Any


class _TookTooLong(BaseException):
    """Ends an answer from outside; no `except Exception` in it holds this up."""


def _call(answer: Answer, case: tuple[Any, ...], reference: Answer) -> _Outcome | CheckResult:
    arguments = copy.deepcopy(case)
    try:
        with _default_settings():
            result = answer(*arguments)
    except (KeyboardInterrupt, _TookTooLong):
        raise
    except BaseException as error:
        if type(error) is NotImplementedError and not error.args:  # PyTorch's own say what is not implemented
            return CheckResult("not attempted")
        return CheckResult("raised an error", _where(error, answer))
    if result is None or result is ...:
        return CheckResult("not attempted", "the function returns nothing yet")
    names = list(inspect.signature(reference).parameters)
    changed = [name for name, now, before in zip(names, arguments, case, strict=True) if _difference(before, now)]
    if changed:
        return CheckResult("not quite", f"your function changes its argument {changed[0]!r}; leave it as it came")
    return _Outcome(result)


@cache
def _results(function: Answer, cases: Cases) -> list[Any]:
    """The results of a solution or a typical mistake, which are the same at every check."""
    with _default_settings():
        return [function(*case) for case in cases()]


# How to read and how to write each of PyTorch's settings that an answer could change.
SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
)


@contextmanager
def _default_settings() -> Iterator[None]:
    """PyTorch as it is after the import, gradients recorded; afterwards settings and generators are as they were."""
    before = [read() for read, _ in SETTINGS]
    torch.set_default_dtype(torch.float32)
    try:
        with runtime.fork_rng(), torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for (read, write), value in zip(SETTINGS, before, strict=True):
            if read() != value:
                write(value)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises `_TookTooLong` in this thread when the block runs longer, between two operations of Python.

    Again and again, since a bare `except:` in the block would catch it.
    """
    thread, done = ctypes.c_ulong(threading.get_ident()), threading.Event()
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def watch() -> None:
        pause = seconds
        while not done.wait(pause):
            raise_in(thread, ctypes.py_object(_TookTooLong))
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
            raise_in(thread, None)


def _where(error: BaseException, answer: Answer) -> str:
    """The error's first line, and the last line of the answer's own that it came through."""
    try:
        text = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": ")
    except Exception:  # its own text may raise
        text = type(error).__name__
    code = getattr(answer, "__code__", None)
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is code]
    if code is None or not lines:
        return text
    source = linecache.getline(code.co_filename, lines[-1]).strip()
    name = getattr(answer, "__name__", code.co_name)
    return f"{text} (line {lines[-1] - code.co_firstlineno + 1} of {name}{source and f': {source}'})"


# ---- comparing results -------------------------------------------------------------------------------------------


def _same(expected: Sequence[Any], results: Sequence[Any]) -> bool:
    return not any(_difference(e, r) for e, r in zip(expected, results, strict=True))


def _difference(expected: Any, result: Any) -> str:
    """What distinguishes `result` from `expected`, in words; empty when nothing does."""
    try:
        return _described(expected, result)
    except Exception as error:  # such as the comparison with an object that refuses to be compared
        return f"the result, a {type(result).__name__}, can't be compared: it raises {type(error).__name__}"


def _described(expected: Any, result: Any) -> str:
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(expected, result)
    if isinstance(expected, float):
        if isinstance(result, torch.Tensor) and result.numel() == 1:
            result = result.item()
        if isinstance(result, bool) or not isinstance(result, Real):
            return f"the result is {type(result).__name__}; expected a number"
        close = math.isclose(result, expected, rel_tol=1e-5, abs_tol=1e-5)
        return "" if close else f"the result is {float(result):.4g}; expected {expected:.4g}"
    if callable(expected):
        return ""
    if type(result) is not type(expected):
        return f"the result is {type(result).__name__}; expected {type(expected).__name__}"
    if isinstance(expected, tuple | list):
        if len(result) != len(expected):
            return f"the result has {len(result)} items; expected {len(expected)}"
        differences = (_difference(e, r) for e, r in zip(expected, result, strict=True))
        return next((f"item {i}: {found}" for i, found in enumerate(differences) if found), "")
    return "" if result == expected else f"the result is {result!r}; expected {expected!r}"


def _tensor_difference(expected: torch.Tensor, result: Any) -> str:
    if not isinstance(result, torch.Tensor):
        return f"the result is {type(result).__name__}; expected a torch.Tensor"
    if result.is_nested:
        return "the result is a nested tensor; expected one of a single shape"
    if result.shape != expected.shape:
        return f"the result has shape {tuple(result.shape)}; expected {tuple(expected.shape)}"
    for what in ("dtype", "device", "layout"):
        if (found := getattr(result, what)) != (wanted := getattr(expected, what)):
            return f"the result has {what} {found}; expected {wanted}"
    close = torch.isclose(result, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    if close.all():
        return ""
    if not result.isfinite().all() and expected.isfinite().all():
        return "the result holds NaN or infinity"
    where = tuple(torch.nonzero(~close)[0].tolist())
    return f"at index {where} the result is {result[where].item():.4g}; expected {expected[where].item():.4g}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def _shortened(value: Any) -> str:
    """A value in one line of at most about 100 characters; its type where it cannot be shown."""
    try:
        return _in_short(value)
    except Exception:  # such as a number of more digits than Python prints
        return f"a value of type {type(value).__name__}"


def _in_short(value: Any) -> str:
    if isinstance(value, torch.Tensor) and not value.is_nested and value.device.type != "meta":
        entries = value.detach().to_dense().flatten()[:8].tolist()
        numbers = ", ".join(f"{entry:.4g}" if isinstance(entry, float) else str(entry) for entry in entries)
        more = ", …" if value.numel() > len(entries) else ""
        return f"tensor of shape {tuple(value.shape)}: {numbers}{more}"
    if isinstance(value, list | tuple) and any(isinstance(each, torch.Tensor) for each in value):
        return "; ".join(map(_in_short, value))
    if inspect.isroutine(value):
        return f"a function, {value.__name__.strip('_')}"
    return textwrap.shorten(_SHORT.repr(value), 100, placeholder=" …")
