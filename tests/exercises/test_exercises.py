"""Every exercise of every lesson: the reference is accepted, each typical mistake is told apart, blanks are blank."""

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from tfbook.course.exercises import STILL_GIVEN, CheckResult, Exercise
from tfbook.course.lessons import LESSONS

WRITTEN = [lesson.slug for lesson in LESSONS if lesson.written]
EXERCISES = {
    f"{lesson}.{name}": value
    for lesson in WRITTEN
    for name, value in vars(import_module(f"tfbook.lessons.{lesson}.exercises")).items()
    if isinstance(value, Exercise)
}
MISTAKES = [
    pytest.param(each, message, wrong, id=f"{name}: {message[:40]}")
    for name, each in EXERCISES.items()
    for message, wrong in each.wrong_answers.items()
]
every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def test_exercises_are_found() -> None:
    """Otherwise every other test here would pass by having nothing to do."""
    assert {name.partition(".")[0] for name in EXERCISES} == set(WRITTEN)


@pytest.mark.parametrize("lesson", WRITTEN[1:])
def test_each_lesson_has_five_exercises_and_one_bug_to_find(lesson: str) -> None:
    """Lesson 00, which shows how exercises work, may have fewer."""
    found = [exercise for name, exercise in EXERCISES.items() if name.partition(".")[0] == lesson]
    assert len(found) >= 5
    assert sum(exercise.start is not None for exercise in found) >= 1


@every_exercise
def test_the_reference_is_correct(exercise: Exercise) -> None:
    assert exercise.judge(exercise.reference) == CheckResult("correct")


def test_an_exercise_is_called_what_its_solution_is() -> None:
    """So `ex.masked_softmax.check(masked_softmax)` is what a notebook says."""
    assert [name.partition(".")[2] for name in EXERCISES] == [exercise.name for exercise in EXERCISES.values()]


@every_exercise
def test_there_are_three_mistakes_or_more_in_sentences(exercise: Exercise) -> None:
    """Distinct they are as the keys of a dictionary; each is long enough to say what to think about."""
    assert len(exercise.wrong_answers) >= 3
    for message in exercise.wrong_answers:
        assert len(message) >= 20, message
        assert "\n" not in message


@pytest.mark.parametrize(("exercise", "message", "wrong"), MISTAKES)
def test_each_mistake_is_refused_with_its_own_message(
    exercise: Exercise, message: str, wrong: Callable[..., Any]
) -> None:
    """And not with the message of another that happens to give the same results on these cases."""
    assert exercise.judge(wrong) == CheckResult("not quite", message)


@every_exercise
def test_a_blank_is_not_attempted(exercise: Exercise) -> None:
    def todo(*arguments: object) -> object:
        raise NotImplementedError

    for blank in (None, ..., todo, lambda *arguments: None, lambda *arguments: ...):
        assert exercise.judge(blank).status == "not attempted"


@pytest.mark.parametrize(
    "exercise",
    [exercise for exercise in EXERCISES.values() if exercise.start],
    ids=[name for name, exercise in EXERCISES.items() if exercise.start],
)
def test_the_given_code_runs_and_is_told_that_it_still_has_its_bug(exercise: Exercise) -> None:
    assert exercise.judge(exercise.start) == CheckResult("not yet", STILL_GIVEN.format(exercise.name))


def _spoils(exercise: Exercise) -> Callable[..., object]:
    """The right result, and then every tensor, set, list and dict among the arguments is changed."""

    def answer(*arguments: Any) -> object:
        result = exercise.reference(*arguments)
        result = result.clone() if isinstance(result, torch.Tensor) else result
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                argument.logical_not_() if argument.dtype == torch.bool else argument.add_(1)
            elif isinstance(argument, set | list | dict):
                argument.clear()
        return result

    return answer


CHANGEABLE = {
    name: exercise
    for name, exercise in EXERCISES.items()
    if any(isinstance(argument, torch.Tensor | set | list | dict) for case in exercise.cases() for argument in case)
}


@pytest.mark.parametrize("exercise", CHANGEABLE.values(), ids=CHANGEABLE)
def test_an_answer_that_changes_its_arguments_is_refused(exercise: Exercise) -> None:
    verdict = exercise.judge(_spoils(exercise))
    assert verdict.status == "not quite"
    assert verdict.message.startswith("your function changes its argument '")


@every_exercise
def test_an_answer_that_raises_gets_a_message(exercise: Exercise) -> None:
    def raises(*arguments: object) -> object:
        raise RuntimeError("shapes do not fit")

    def exits(*arguments: object) -> object:
        raise SystemExit(1)

    assert exercise.judge(raises).status == exercise.judge(exits).status == "raised an error"
    assert "RuntimeError: shapes do not fit (line 2 of raises" in exercise.judge(raises).message


SPOILT: dict[str, Callable[[Any], object]] = {
    "text": str,
    "list": lambda result: [result],
    "pair": lambda result: (result, result),
    "NaN": lambda result: _not_a_number(result) if isinstance(result, torch.Tensor) else torch.nan,
    "shape": lambda result: result[None] if isinstance(result, torch.Tensor) else torch.ones(2, 2),
    "dtype": lambda result: result.to(torch.complex64) if isinstance(result, torch.Tensor) else 1j,
}


def _not_a_number(result: torch.Tensor) -> torch.Tensor:
    """NaN everywhere; whole numbers have none, so they become fractions."""
    whole = result.dtype in (torch.int64, torch.int32)
    return torch.full_like(result, torch.nan, dtype=torch.float32 if whole else result.dtype)


@every_exercise
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_result_of_the_wrong_kind_gets_a_message(exercise: Exercise, spoil: Callable[[Any], object]) -> None:
    """Whatever it is, it is refused, and in words."""
    verdict = exercise.judge(lambda *arguments: spoil(exercise.reference(*arguments)))
    assert verdict.status == "not quite"
    assert verdict.message


@every_exercise
def test_a_check_leaves_the_random_numbers_alone(exercise: Exercise) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    exercise.judge(exercise.reference)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


@every_exercise
def test_hints_and_solution_are_there_to_read(exercise: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    """One hint or more, and the code that runs, signature and all."""
    assert exercise.hints
    for number in range(len(exercise.hints)):
        exercise.hint()
        printed = capsys.readouterr().out
        assert printed.endswith(f" of {len(exercise.hints)}: {exercise.hints[number]}\n")
    exercise.solution()
    printed = capsys.readouterr().out
    assert printed.startswith(f"def {exercise.name}(")
    assert "@" not in printed.partition("\n")[0]
    compile(printed, exercise.name, "exec")
