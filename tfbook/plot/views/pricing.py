"""Guess the price: questions whose answers are numbers, guessed one after the other, and how far off each guess was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfbook.plot.views import base


class PriceQuestion(NamedTuple):
    """A question, the number that answers it, its unit, and the arithmetic in words."""

    question: str
    answer: float
    unit: str
    why: str


@dataclass(frozen=True, eq=False)
class PriceView:
    """The view returned by `price_view`, which a notebook displays when it is the last line of a cell."""

    questions: Sequence[PriceQuestion]

    def __repr__(self) -> str:
        return f"PriceView(questions={len(self.questions)})"

    def _repr_html_(self) -> str:
        """The questions with closed answers, and a script that replaces them with the game."""
        data = {"questions": [each._asdict() for each in self.questions]}
        rows = (
            (each.question, [base.cell(f"{each.answer:.3g} {each.unit}"), base.cell(each.why)])
            for each in self.questions
        )
        asked = base.paragraph("Guess first: " + " ".join(each.question for each in self.questions))
        table = base.table(["answer", "arithmetic"], rows)
        return base.embed("pricing", data, f"{asked}\n<details><summary>The answers</summary>\n{table}\n</details>")


def price_view(questions: Sequence[PriceQuestion]) -> PriceView:
    """A game in which the reader guesses each answer, then sees it with its arithmetic and the factor between the two.

    Raises ValueError without a question, and for an answer that is not positive.
    """
    if not questions:
        raise ValueError("questions is empty; expected one or more")
    for each in questions:
        if not each.answer > 0:
            raise ValueError(f"the answer to {each.question!r} is {each.answer}; expected a positive number")
    return PriceView(tuple(questions))
