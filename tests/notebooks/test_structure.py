"""Every notebook keeps every rule, and the ledger is in step with them."""

from __future__ import annotations

import re
from pathlib import Path

import address
import book
import ledger
import pytest
from rules import Lesson, Rule, rules_for

NOTEBOOKS = sorted(book.NOTEBOOKS.glob("*.ipynb"))
CASES = [pytest.param(path, rule, id=f"{path.stem}-{rule.__name__}") for path in NOTEBOOKS for rule in rules_for(path)]


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


def test_ledger_is_in_step() -> None:
    ledger.main(["--check"])


def test_every_link_to_the_repository_has_its_address() -> None:
    address.main(["--check"])
