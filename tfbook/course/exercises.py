"""Exercises: a solution, the cases it is tried on, and typical mistakes, each with its explanation."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch

from tfbook.course.attempts import Answer, Attempt, Cases, CheckResult, attempted, changed_names, snapshot
from tfbook.course.comparing import difference, same, shortened, shown_apart
from tfbook.course.errors import error_line
from tfbook.course.gradients import NONE, Slope, gradient_difference, is_real, slopes
from tfbook.course.lessons import slug_of
from tfbook.course.relations import Pairs, Sizes, exact_relation, relation, sizes_of, tensors_of
from tfbook.course.slips import variants
from tfbook.course.solved import answers, keep, note, note_piece, recalled
from tfbook.course.trial import TookTooLong, default_settings, time_limit

TIME_LIMIT = 10.0  # seconds that an answer may take for all its cases
SEARCH = 1.0  # seconds in which words for a wrong result are looked for
OF_ANOTHER_KIND = re.compile(r"the result (is [A-Za-z_]\w*|has (dtype|device|layout) .*); expected ")
STILL_GIVEN = "this is still the given code with its bug, or does the same. For a hint, run ex.{}.hint()"


class Exercise:
    """A solution with its cases, hints and known mistakes. Made by the decorator `exercise`."""

    def __init__(
        self, solution: Answer, cases: Cases, hints: Sequence[str], differentiable: bool | Sequence[str] = True
    ):
        self.name = solution.__name__
        self.reference = solution
        self.cases = cases
        self.hints = tuple(hints)
        self.names = tuple(inspect.signature(solution).parameters)
        self.learns = tuple(
            name if differentiable is True or (differentiable and name in differentiable) else "" for name in self.names
        )
        self.wrong_answers: dict[str, Answer] = {}
        self.start: Answer | None = None
        self._hints_shown = 0

    @property
    def lesson(self) -> str:
        """The slug of its lesson."""
        return slug_of(self.reference)

    def mistakes(self, wrong_answers: Mapping[str, Answer]) -> None:
        """Registers typical wrong answers, message → answer: whoever gives the same results is told the message."""
        self.wrong_answers |= wrong_answers

    def given(self, start: Answer) -> Answer:
        """Registers the code that a "find the bug" exercise starts from; who still has its bug is told so."""
        self.start = start
        return start

    def check(self, answer: object) -> None:
        """Prints whether `answer` is right and, if not, what is wrong with it. Never raises; keeps what was solved."""
        verdict = self.judge(answer)
        print(verdict)
        if verdict.status == "correct":
            note(self.lesson, self.name)
            keep(self.lesson, self.name, cast(Answer, answer))

    def pick(self, answer: object, otherwise: Answer) -> Answer:
        """The answer if it is right, else the lesson's own version; prints which of them the lesson goes on with.

        Where the stub is as it came, a right answer that was kept in an earlier session takes its place.
        """
        status = self.judge(answer).status
        if status == "correct":
            return self._goes_on(cast(Answer, answer), "yours", "your version")
        untouched = status in ("not attempted", "not yet")
        source = answers().get(self.lesson, {}).get(self.name) if untouched else None
        if source is None:
            return self._goes_on(otherwise, "the page's", "its own version")
        around = vars(sys.modules[self.reference.__module__]) | getattr(answer, "__globals__", {})
        kept, verdict = self.recall(source, around)
        if kept is not None and verdict.status == "correct":
            return self._goes_on(kept, "yours, from before", "your version from before")
        why = f"its own version, since yours from before does not pass here ({verdict.reason})"
        return self._goes_on(otherwise, "the page's", why)

    def _goes_on(self, chosen: Answer, whose: str, version: str) -> Answer:
        note_piece(self.lesson, self.name, whose)
        print(f"The lesson goes on with {version}.")
        return chosen

    def recall(self, source: str, names: Mapping[str, Any]) -> tuple[Answer | None, CheckResult]:
        """The function of a kept answer, which sees `names`, and the verdict on it. Never raises."""
        try:
            with default_settings(), time_limit(TIME_LIMIT):
                answer = recalled(source, self.name, names)
        except KeyboardInterrupt:
            raise
        except TookTooLong:
            return None, CheckResult("not quite", f"its definition does not finish within {TIME_LIMIT:g} seconds")
        except BaseException as error:  # such as a syntax of a newer Python
            return None, CheckResult("raised an error", error_line(error, None))
        return answer, self.judge(answer)

    def judge(self, answer: object) -> CheckResult:
        """The verdict that `check` prints. Whatever the answer does to PyTorch's settings and generators is undone."""
        if answer is None or answer is ...:
            return CheckResult("not attempted")
        if not callable(answer):
            return CheckResult("not quite", f"expected the function itself, got {type(answer).__name__}")
        with default_settings():
            known = self._known()  # before the answer runs, which can replace what these results depend on
            return self._verdict(self.attempt(answer, known.changes), known)

    def attempt(self, answer: Answer, may_change: Collection[str]) -> Attempt:
        """What the answer makes of the cases, up to the first in which it fails; never raises."""
        return attempted(answer, self.cases, self.names, self.learns, may_change, TIME_LIMIT)

    def judge_attempt(self, attempt: Attempt) -> CheckResult:
        """The verdict on an attempt that was made elsewhere."""
        with default_settings():
            return self._verdict(attempt, self._known())

    def may_change(self) -> list[str]:
        """The arguments that the solution changes, such as a model that it trains."""
        return sorted(self._known().changes)

    def _known(self) -> _Known:
        return _known(self.reference, self.cases, self.learns)

    def _verdict(self, attempt: Attempt, known: _Known) -> CheckResult:
        results, ending = attempt.results, attempt.ending
        if ending and attempt.late:
            return ending
        if ending:
            return self._mistake(results, known) or ending
        if not same(known.results, results):
            return self._refused(results, known)
        slopes = attempt.slopes()
        for number, expected in enumerate(known.slopes, start=1):
            found = next(slopes, NONE)
            if isinstance(found, CheckResult):
                return found
            if expected and (wrong := gradient_difference(found, expected)):
                return CheckResult("not quite", f"case {number} of {len(known.slopes)}: {wrong}")
        return CheckResult("correct")

    def _mistake(self, results: list[Any], known: _Known) -> CheckResult | None:
        """The typical mistake that gives these results, and that raises an error where the answer did."""
        if same(known.results[: len(results)], results):
            return None
        matching = (text for text, wrong in self.wrong_answers.items() if same(self._results_of(wrong), results))
        message = next(matching, None)
        return CheckResult("not quite", message) if message else None

    def _refused(self, results: list[Any], known: _Known) -> CheckResult:
        if self.start and same(self._results_of(self.start), results):
            return CheckResult("not yet", STILL_GIVEN.format(self.name))
        if mistake := self._mistake(results, known):
            return mistake
        differences = [difference(e, r) for e, r in zip(known.results, results, strict=True)]
        case, found = next((i, found) for i, found in enumerate(differences) if found)
        message = f"case {case + 1} of {len(differences)}: {found}"
        if words := "" if OF_ANOTHER_KIND.search(found) else self._words(results, case, known):
            return CheckResult("not quite", f"{message}. In words: {words}")
        return CheckResult("not quite", message, self._show(case, results[case], known.results[case]))

    def _words(self, results: list[Any], differing: int, known: _Known) -> str:
        """What is wrong with results, apart from the numbers; empty where nothing is found in time."""
        try:
            with time_limit(2 * SEARCH):
                return (
                    self._related(relation, results, known.results)
                    or self._slip(results, differing, known)
                    or self._mistake_and_slip(results)
                    or self._nearest_mistake(results, known.results)
                )
        except (TookTooLong, Exception):  # such as the comparison with an object that refuses to be compared
            return ""

    def _related(self, how: Callable[[Pairs, Sizes], str], results: list[Any], known: list[Any]) -> str:
        """How the results are related to known ones, in words."""
        pairs, sizes = [], []
        for case, expected, found in zip(self.cases(), known, results, strict=True):
            of_expected, of_found = tensors_of(expected), tensors_of(found)
            if of_expected is None or of_found is None or len(of_expected) != len(of_found):
                return ""
            differing = [pair for pair in zip(of_expected, of_found, strict=True) if difference(*pair)]
            pairs += differing
            sizes += [sizes_of(self.names, case)] * len(differing)
        return how(pairs, sizes) if pairs else ""

    def _mistake_and_slip(self, results: list[Any]) -> str:
        """The typical mistake to whose results these are related, such as by a factor."""
        for text, wrong in self.wrong_answers.items():
            of_mistake = self._results_of(wrong)
            if len(of_mistake) == len(results) and (words := self._related(exact_relation, results, of_mistake)):
                return f"two slips: {text}; and apart from that, {words}"
        return ""

    def _nearest_mistake(self, results: list[Any], known: list[Any]) -> str:
        """The typical mistake that explains half of the wrong results or more, and two or more."""
        wrong = sum(bool(difference(*pair)) for pair in zip(known, results, strict=True))
        explained = {
            text: sum(map(_wrong_alike, known, results, self._results_of(mistake)))  # it may raise before the last
            for text, mistake in self.wrong_answers.items()
        }
        text, count = max(explained.items(), key=lambda item: item[1], default=("", 0))
        return f"{text} (this explains {count} of {wrong} cases)" if count >= max(2, wrong / 2) else ""

    def _slip(self, results: list[Any], differing: int, known: _Known) -> str:
        """The slip, or two at once, with which the solution gives these results, if it can be found in time."""
        if known.changes or not inspect.isfunction(solution := inspect.unwrap(self.reference)):
            return ""
        cases = [*zip(self.cases(), results, strict=True)]
        cases.insert(0, cases.pop(differing))  # the one that tells most slips apart
        source, end = source_of(self.reference), time.monotonic() + SEARCH
        for words, variant in (each for n in (1, 2) for each in variants(source, solution.__globals__, slips=n)):
            if all(_gives(variant, case, result) for case, result in cases):
                return words
            if time.monotonic() > end:
                break
        return ""

    def _results_of(self, function: Answer) -> list[Any]:
        return _results(function, self.cases)

    def _show(self, number: int, result: Any, expected: Any) -> tuple[str, ...]:
        """A case, what came out and what should have, a line each."""
        arguments = zip(self.names, self.cases()[number], strict=True)
        found, right = shown_apart(result, expected)
        shown = [f"{name}: {shortened(value)}" for name, value in arguments]
        return (*shown, f"your result: {found}", f"expected: {right}")

    def hint(self) -> None:
        """Prints the next hint; after the last one it begins again."""
        number = self._hints_shown % len(self.hints)
        self._hints_shown += 1
        print(f"Hint {number + 1} of {len(self.hints)}: {self.hints[number]}")

    def solution(self) -> None:
        """Prints the solution, which is the code that the tests run."""
        print(source_of(self.reference), end="")


def exercise(
    *, cases: Cases, hints: Sequence[str], differentiable: bool | Sequence[str] = True
) -> Callable[[Answer], Exercise]:
    """Turns a solution into an `Exercise`; its mistakes follow with `name.mistakes({"…": wrong})`.

    Where the solution's result has a gradient, an answer needs the same one: for every argument, for those that
    `differentiable` names, or for none of them where it is False since nobody trains through the result.
    """
    return lambda solution: Exercise(solution, cases, hints, differentiable)


def randn(*shape: int, seed: int) -> torch.Tensor:
    """Standard normal numbers for a case, the same at every check."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def source_of(function: Answer) -> str:
    """The source of a function without its decorators."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return "".join(lines[first:])


# ---- results --------------------------------------------------------------------------------------------------


def _wrong_alike(known: Any, result: Any, mistaken: Any) -> bool:
    """Whether a result is wrong as that of a mistake is; of several results the first wrong one decides."""
    if isinstance(known, tuple) and isinstance(mistaken, tuple) and len(known) == len(result) == len(mistaken):
        items = zip(known, result, mistaken, strict=True)
        known, result, mistaken = next((each for each in items if difference(*each[:2])), (known, result, mistaken))
    if isinstance(known, bool):  # all that is wrong is alike
        return False
    return bool(difference(known, result)) and not difference(mistaken, result)


def _gives(function: Answer, case: tuple[Any, ...], result: Any) -> bool:
    """Whether a function gives this result for a case; what PyTorch advises against in it is not the learner's."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return not difference(function(*case), result)
    except Exception:
        return False


@cache
def _results(function: Answer, cases: Cases) -> list[Any]:
    """The results of a typical mistake, up to the case in which it raises; they are the same at every check."""
    results: list[Any] = []
    with default_settings(), suppress(Exception):
        for case in cases():
            results.append(function(*case))
    return results


@dataclass(frozen=True)
class _Known:
    """The results of a solution, the arguments that it changes (such as a model that it trains), and its gradients."""

    results: list[Any]
    changes: Collection[str]
    slopes: Sequence[Mapping[str, Slope]]


@cache
def _known(reference: Answer, cases: Cases, learns: tuple[str, ...]) -> _Known:
    names, results, changes = list(inspect.signature(reference).parameters), [], set()
    with default_settings():
        for case in cases():
            before = [snapshot(argument) for argument in case]
            results.append(reference(*case))
            changes |= set(changed_names(names, before, case))
        learnable = any(learns) and any(map(is_real, results))
        found = [slopes(reference, case, learns) if learnable else {} for case in cases()]
    return _Known(results, changes, found)
