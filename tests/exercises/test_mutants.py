"""Mutants of every solution are refused; those that are not stand in `survivors/SLUG.toml`, each with a reason."""

import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.exercises.mutants import mutants, recompiled
from tests.exercises.test_exercises import EXERCISES
from tfbook.course import exercises as engine
from tfbook.course.exercises import CheckResult, Exercise

pytestmark = pytest.mark.filterwarnings("ignore")  # a mutant may do what PyTorch advises against
FOLDER = Path(__file__).parent / "survivors"
REFUSED = 0.95  # of an exercise's mutants that are not equal to the solution


def listed(lesson: str) -> dict[str, dict[str, dict[str, str]]]:
    """Exercise → "equal" (the same function, whatever is asked), "machine" (the same on some machines) or "accepted"
    (a difference that does not matter here) → the changed line → why."""
    path = FOLDER / f"{lesson}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def trained(each: Exercise) -> set[str]:
    """The arguments that have a gradient."""
    return {part.strip("'") for slopes in each._known().slopes for part in slopes}


@cache
def tried(name: str) -> tuple[list[str], int]:
    """The lines of the mutants that are accepted, and the number of all."""
    each = EXERCISES[name]
    verdicts = [(line, each.judge(mutant).status) for line, mutant in mutants(each.reference, trained=trained(each))]
    return [line for line, status in verdicts if status == "correct"], len(verdicts)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants that never end are many, and nobody reads the words for a wrong result, whose search takes a second."""
    monkeypatch.setattr(engine, "TIME_LIMIT", 2.0)
    monkeypatch.setattr(Exercise, "_words", lambda *_: "")


@pytest.mark.parametrize("name", EXERCISES)
def test_a_mutant_without_a_mutation_is_accepted(name: str) -> None:
    """Otherwise all mutants could be refused for how they are made."""
    assert EXERCISES[name].judge(recompiled(EXERCISES[name].reference)) == CheckResult("correct")


@pytest.mark.parametrize("name", EXERCISES)
def test_every_mutant_is_refused_or_judged(name: str) -> None:
    lesson, _, exercise = name.partition(".")
    judged = listed(lesson).get(exercise, {})
    assert set(judged) <= {"equal", "machine", "accepted"}
    assert all(len(reason) >= 10 for reasons in judged.values() for reason in reasons.values())
    everywhere = judged.get("equal", {}).keys() | judged.get("accepted", {}).keys()
    assert everywhere == set(tried(name)[0]) - judged.get("machine", {}).keys(), name


@pytest.mark.parametrize("name", EXERCISES)
def test_nearly_every_mutant_that_differs_is_refused(name: str) -> None:
    """Of each exercise. One that differs and is accepted costs an exercise of few mutants its place here."""
    lesson, _, exercise = name.partition(".")
    judged, (survivors, count) = listed(lesson).get(exercise, {}), tried(name)
    equal = [line for line in survivors if line in judged.get("equal", {}).keys() | judged.get("machine", {}).keys()]
    assert count - len(equal) >= 3
    assert 1 - (len(survivors) - len(equal)) / (count - len(equal)) >= REFUSED


def _example(x: list[int], y: int = 0) -> int:
    total = 0
    for each in x[1:]:
        if each > 1 and each not in (y,):
            total = total - each * 2
    return max(total, 1)


def test_mutants_are_of_every_kind() -> None:
    """Otherwise a change of Python's syntax tree could leave none."""
    lines = [line for line, _ in mutants(_example)]
    for line in (
        "total = 1",
        "for each in x[:]:",
        "if each > 1 or each not in (y,):",
        "if each >= 1 and each not in (y,):",
        "if each > 1 and each in (y,):",
        "total = total + each * 2",
        "total = each * 2 - total",
        "total = total - each / 2",
        "return min(total, 1)",
        "return max(1, total)",
        "without total = 0",
    ):
        assert line in lines
