"""An attempt at an exercise: what an answer makes of each case, as data that can be judged elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from tfbook.course.comparing import difference
from tfbook.course.errors import error_line
from tfbook.course.gradients import Gradients, answer_slopes, is_real
from tfbook.course.trial import TookTooLong, default_settings, functions_as_they_are, time_limit

Answer = Callable[..., Any]
Cases = Callable[[], Sequence[tuple[Any, ...]]]  # made afresh for each check, so that nobody can spoil them

MARKS = {"correct": "✓", "not attempted": "○", "not yet": "○", "raised an error": "✗", "not quite": "✗"}


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check: `status` is one of `MARKS`, `message` says why, `details` show the case, line by line."""

    status: str
    message: str = ""
    details: tuple[str, ...] = field(default=(), compare=False)

    @property
    def reason(self) -> str:
        """Status and message in one line."""
        return f"{self.status}: {self.message}" if self.message else self.status

    def __str__(self) -> str:
        return "\n    ".join([f"{MARKS[self.status]} {self.reason}", *self.details])


@dataclass(frozen=True)
class Attempt:
    """The results of an answer, case by case; the verdict at the case where it ended; its gradients when asked for."""

    results: list[Any]
    ending: CheckResult | None = None
    late: bool = False  # whether it ended because time was up
    slopes: Callable[[], Iterator[Gradients | CheckResult]] = lambda: iter(())


def attempted(
    answer: Answer,
    cases: Cases,
    names: Sequence[str],
    learns: Sequence[str],
    may_change: Collection[str],
    seconds: float,
) -> Attempt:
    """Tries an answer on its cases, `seconds` at most for all of them. Never raises."""
    results: list[Any] = []
    made = cases()
    try:
        with time_limit(seconds):
            for case in made:
                outcome = _call(answer, case, names, may_change)
                if isinstance(outcome, CheckResult):
                    return Attempt(results, outcome)
                results.append(outcome.result)
    except TookTooLong:
        return Attempt(results, _late(min(len(results) + 1, len(made)), seconds), late=True)
    return Attempt(results, slopes=partial(_slopes_of, answer, cases, learns, results, seconds))


def _slopes_of(
    answer: Answer, cases: Cases, learns: Sequence[str], results: Sequence[Any], seconds: float
) -> Iterator[Gradients | CheckResult]:
    """The answer's gradients in each case; of a case that takes too long, the verdict instead."""
    if not (any(learns) and any(map(is_real, results))):
        return
    for number, case in enumerate(cases(), start=1):
        try:
            with time_limit(seconds):
                found = answer_slopes(answer, case, learns)
        except TookTooLong:
            yield _late(number, seconds)
            return
        yield found


def _late(case: int, seconds: float) -> CheckResult:
    message = f"case {case} did not finish within {seconds:g} seconds; does a loop never end?"
    return CheckResult("not quite", message)


@dataclass(frozen=True)
class _Outcome:
    result: Any


def _call(answer: Answer, case: tuple[Any, ...], names: Sequence[str], may_change: Collection[str]) -> Any:
    """The outcome of an answer on one case, or the verdict where there is none."""
    arguments = copy.deepcopy(case)
    before = [snapshot(argument) for argument in arguments]
    try:
        with default_settings(), functions_as_they_are():
            result = answer(*arguments)
    except (KeyboardInterrupt, TookTooLong):
        raise
    except BaseException as error:
        if type(error) is NotImplementedError and not error.args:  # PyTorch's own say what is not implemented
            return CheckResult("not attempted")
        return CheckResult("raised an error", error_line(error, answer))
    if result is None or result is ...:
        return CheckResult("not attempted", "the function returns nothing yet")
    if changed := [name for name in changed_names(names, before, arguments) if name not in may_change]:
        advice = getattr(arguments[names.index(changed[0])], "advice", "leave it as it came")
        return CheckResult("not quite", f"your function changes its argument {changed[0]!r}; {advice}")
    return _Outcome(result)


def changed_names(names: Sequence[str], before: Sequence[Any], arguments: Sequence[Any]) -> list[str]:
    """The names of the arguments that differ from their snapshots."""
    after = map(snapshot, arguments)
    return [name for name, old, new in zip(names, before, after, strict=True) if difference(old, new)]


def snapshot(value: Any) -> Any:
    """A copy that shows later whether the value was changed: functions by who they are, modules by their numbers."""
    if isinstance(value, torch.nn.Module):
        return [tensor.detach().clone() for tensor in value.state_dict().values()]
    if isinstance(value, partial):
        return id(value), snapshot(value.args), snapshot([*value.keywords.values()])
    if type(value) in (list, tuple):
        return type(value)(map(snapshot, value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return id(value) if callable(value) else copy.deepcopy(value)
