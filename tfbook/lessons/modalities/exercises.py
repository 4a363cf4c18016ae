"""Exercises of lesson 19: say here what they are about."""

from __future__ import annotations

from torch import Tensor

from tfbook.course.exercises import exercise, randn

# ---- the same five times, to be replaced -------------------------------------------------------------------------


def _inputs() -> list[tuple[Tensor]]:
    return [(randn(3, seed=1),), (randn(2, 3, seed=2),)]


MISTAKES = {
    "this is x as it came; it should be doubled": lambda x: x + 0,
    "this is the square of x; it should be doubled": lambda x: x**2,
    "this is half of x; it should be doubled": lambda x: x / 2,
}


@exercise(cases=_inputs, hints=["What does the text ask for?"])
def first(x: Tensor) -> Tensor:
    return 2 * x


first.mistakes(MISTAKES)


@exercise(cases=_inputs, hints=["What does the text ask for?"])
def second(x: Tensor) -> Tensor:
    return 2 * x


second.mistakes(MISTAKES)


@exercise(cases=_inputs, hints=["What does the text ask for?"])
def third(x: Tensor) -> Tensor:
    return 2 * x


third.mistakes(MISTAKES)


@exercise(cases=_inputs, hints=["What does the text ask for?"])
def fourth(x: Tensor) -> Tensor:
    return 2 * x


fourth.mistakes(MISTAKES)


@exercise(cases=_inputs, hints=["What does the text ask for?"])
def double(x: Tensor) -> Tensor:
    return 2 * x


double.mistakes(MISTAKES)


@double.given
def _(x: Tensor) -> Tensor:
    return x + 1
