"""Every notebook keeps every rule, and the ledger is in step with them."""

from __future__ import annotations

import re
from pathlib import Path

import address
import book
import ledger
import pytest
from rules import IGNORED, MAX_IGNORED, RULES, Lesson, Rule, text_of

NOTEBOOKS = sorted(book.NOTEBOOKS.glob("*.ipynb"))
CASES = [pytest.param(path, rule, id=f"{path.stem}-{rule.__name__}") for path in NOTEBOOKS for rule in RULES]


def test_there_are_lessons_numbered_from_zero_each_number_once() -> None:
    """Parts of the course grow side by side, so a number may be missing; lesson 00's table says which."""
    assert NOTEBOOKS, "notebooks/ holds no notebook"
    numbers = [re.fullmatch(r"(\d\d)_\w+\.ipynb", path.name)[1] for path in NOTEBOOKS]
    assert numbers[0] == "00"
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(("path", "rule"), CASES)
def test_notebook(path: Path, rule: Rule) -> None:
    complaints = list(rule(Lesson(path, book.read(path))))
    assert not complaints, "\n".join([path.name, *complaints])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_lesson_proves_and_claims_holds(path: Path) -> None:
    """In its stored outputs: `prove_equal` prints ✗ for what is not equal, and a claim's verdict can be against it."""
    lesson = book.read(path)
    outputs = [output for cell in lesson.cells for output in cell.get("outputs", ())]
    failed = [line for output in outputs for line in text_of(output).splitlines() if line.startswith("✗")]
    assert failed == []
    assert [claim["key"] for claim in ledger.claims(lesson) if claim["verdict"] != "holds"] == []


def test_most_cells_are_compared() -> None:
    """Fewer than 15% of the code cells of the course are left out, each for a reason of `REASONS`."""
    cells = [cell for path in NOTEBOOKS for _, cell in Lesson(path, book.read(path)).code]
    ignored = sum(IGNORED in cell.metadata.get("tags", ()) for cell in cells)
    assert ignored <= MAX_IGNORED * len(cells), f"{ignored} of {len(cells)} code cells are not compared"


def test_ledger_is_in_step() -> None:
    ledger.main(["--check"])


def test_every_link_to_the_repository_has_its_address() -> None:
    address.main(["--check"])
