"""What people wrote: wrong answers and what they are told, and right ones in other styles, from `answers_<slug>.py`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from tests.exercises import answers_tokenizers
from tfbook.course.exercises import CheckResult, Exercise
from tfbook.course.lessons import LESSONS

ANSWERS = {lesson.slug: import_module(f"tests.exercises.answers_{lesson.slug}") for lesson in LESSONS if lesson.written}
# Lessons of which some answers raise an error.
RAISING = (
    "bahdanau_attention",
    "positions",
    "self_attention",
    "start_here",
    "tokenizers",
    "transformer",
)
WRONG = [
    pytest.param(exercise, answer, gist, slug in RAISING, id=f"{slug}.{exercise.name}: {gist}")
    for slug, module in ANSWERS.items()
    for exercise, answer, gist in module.WRONG
]
RIGHT = [
    pytest.param(exercise, answer, id=f"{slug}.{exercise.name}: {getattr(answer, '__name__', type(answer).__name__)}")
    for slug, module in ANSWERS.items()
    for exercise, answer in module.RIGHT
]


@pytest.mark.parametrize(("exercise", "answer", "gist", "may_raise"), WRONG)
def test_a_wrong_answer_is_told_what_is_wrong(
    exercise: Exercise, answer: Callable[..., Any], gist: str, may_raise: bool
) -> None:
    verdict = exercise.judge(answer)
    assert verdict.status in ("not quite", *["raised an error"] * may_raise)
    assert gist in verdict.message


@pytest.mark.parametrize(("exercise", "answer"), RIGHT)
def test_a_right_answer_in_another_style_is_right(exercise: Exercise, answer: Callable[..., Any]) -> None:
    assert exercise.judge(answer) == CheckResult("correct")


@pytest.mark.parametrize(
    ("exercise", "answer"), answers_tokenizers.BEGINNINGS, ids=lambda value: getattr(value, "__name__", "")
)
def test_an_answer_that_is_right_for_short_inputs_alone_is_refused(
    exercise: Exercise, answer: Callable[..., Any]
) -> None:
    assert exercise.judge(answer).status == "not quite"
