"""Verdicts on what students handed in: their answers run in rooms of a workshop, and are judged in this process."""

from __future__ import annotations

import atexit
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tfbook.course.attempts import CheckResult
from tfbook.course.exercises import Exercise
from tfbook.course.grading.handed_in import Answered, HandedIn, answered, handed_in
from tfbook.course.grading.likeness import remarks
from tfbook.course.grading.room import Limits
from tfbook.course.grading.workshop import Workshop
from tfbook.course.grading.written import ATTEMPT, UnreadableError, read_attempt
from tfbook.course.progress import exercises_of

ENDED = "its process ended before there was a result: out of memory, or it ended itself"


@dataclass(frozen=True)
class ExerciseVerdict:
    """The verdict on one exercise, and what an instructor may want to look at."""

    exercise: str
    status: str
    message: str = ""
    remark: str = ""

    @property
    def points(self) -> int:
        """1 for a right answer, else 0."""
        return int(self.status == "correct")


@dataclass(frozen=True)
class Graded:
    """A notebook with the verdicts on its lesson's exercises, in their order; none where it cannot be read."""

    handed_in: HandedIn
    verdicts: tuple[ExerciseVerdict, ...]

    @property
    def points(self) -> int:
        """The number of right answers."""
        return sum(verdict.points for verdict in self.verdicts)


def grade_folder(
    folder: Path, *, jobs: int, limits: Limits, finished: Callable[[Graded], None] = lambda graded: None
) -> list[Graded]:
    """Grades every notebook below a folder in `jobs` processes; `finished` gets each as it is done.

    No code of a student runs in this process. Raises FileNotFoundError where there is no such folder, ValueError where
    it holds no notebook or `jobs` is below 1, and OSError on Windows, which cannot lock a process in.
    """
    if sys.platform == "win32":
        raise OSError("grading needs Linux or macOS (on Windows: WSL, or a container), to lock strangers' code in")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; expected at least 1")
    found = handed_in(folder)
    by_lesson = sorted(found, key=lambda each: (each.lesson.number if each.lesson else -1, each.path))
    clean = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(found)), clean, _prepare, (limits,)) as pool:
        graded = {}
        for each in pool.map(grade_notebook, by_lesson):
            graded[each.handed_in.path] = each
            finished(each)
    return [graded[each.path] for each in found]


_workshop: list[Workshop] = []  # of this process


def _prepare(limits: Limits) -> None:
    _workshop.append(Workshop(limits))
    atexit.register(_workshop[0].close)


def grade_notebook(handed: HandedIn) -> Graded:
    """Judges the exercises of a notebook, in a process that has a workshop."""
    if handed.fault or handed.lesson is None:
        return Graded(handed, ())
    names = exercises_of(handed.lesson)
    module = import_module(f"tfbook.lessons.{handed.lesson.slug}.exercises")
    answers = {each.exercise: each for each in answered(handed.cells, names)}
    verdicts = [
        _judged(getattr(module, name), answers[name], _workshop[0])
        if name in answers
        else ExerciseVerdict(name, "not attempted", "no cell checks it")
        for name in names
    ]
    return Graded(handed, tuple(verdicts))


def _judged(exercise: Exercise, answer: Answered, workshop: Workshop) -> ExerciseVerdict:
    result = _result(exercise, answer, workshop)
    remark = remarks(answer, exercise) if result.status == "correct" else ""
    return ExerciseVerdict(exercise.name, result.status, result.message, remark)


def _result(exercise: Exercise, answer: Answered, workshop: Workshop) -> CheckResult:
    if answer.fault:
        return CheckResult("raised an error", answer.fault)
    with TemporaryDirectory(prefix="tfbook-room-", ignore_cleanup_errors=True) as place:
        ended = workshop.attempt(exercise.lesson, answer, exercise.may_change(), Path(place).resolve())
        if ended == "late":
            return CheckResult("not quite", f"did not finish within {workshop.limits.seconds:g} seconds")
        if ended != "done":
            return CheckResult("raised an error", ENDED)
        try:
            attempt: Any = read_attempt(Path(place) / ATTEMPT)
            return attempt if isinstance(attempt, CheckResult) else exercise.judge_attempt(attempt)
        except UnreadableError:
            return CheckResult("raised an error", "its result could not be written down")
        except Exception as error:  # a result that no comparison was made for, such as one that was forged
            return CheckResult("not quite", f"its result cannot be compared: {type(error).__name__}")
