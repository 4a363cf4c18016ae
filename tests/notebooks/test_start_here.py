"""Lesson 00 and the README list the same lessons, and those called ready are the notebooks that exist."""

from __future__ import annotations

import re
from pathlib import Path

import book

START, README = book.NOTEBOOKS / "00_start_here.ipynb", book.ROOT / "README.md"
ROW = re.compile(r"^\| (?P<number>\d\d) \| (?P<lesson>[^|]+) \| (?P<question>[^|]+) \|.*$", re.MULTILINE)


def table(text: str) -> dict[str, tuple[str, str]]:
    """Number → title, as a link where there is one, and question."""
    return {row["number"]: (row["lesson"], row["question"]) for row in ROW.finditer(text)}


def prose() -> str:
    return "\n".join(cell.source for cell in book.read(START).cells if cell.cell_type == "markdown")


def notebooks() -> dict[str, Path]:
    return {path.name[:2]: path for path in sorted(book.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


def test_every_lesson_is_listed() -> None:
    assert list(table(prose())) == [f"{number:02}" for number in range(19)]


def test_the_readme_lists_the_same() -> None:
    plain = table(README.read_text(encoding="utf-8").replace("](notebooks/", "]("))
    assert table(prose()) == plain


def test_the_lessons_that_exist_are_linked_and_called_ready() -> None:
    rows = {row["number"]: row[0] for row in ROW.finditer(prose())}
    linked = {number: re.search(r"\]\((.+?\.ipynb)\)", row)[1] for number, row in rows.items() if "](" in row}
    assert linked == {number: path.name for number, path in notebooks().items()}
    assert [number for number, row in rows.items() if row.endswith("| ready |")] == list(linked)


def test_the_map_shows_them_filled() -> None:
    drawing = next(cell.source for cell in book.read(START).cells if "plot.course_map(" in cell.source)
    ready = re.search(r"^ready = \((.*)\)$", drawing, re.MULTILINE)[1]
    assert re.findall(r"\d\d", ready) == list(notebooks())
    assert re.findall(r'"(\d\d) ', drawing) == list(table(prose()))
