"""Lessons change places in a copy of the repository: every rule holds there, and changing back gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import book
import pytest
import renumber
from rules import Lesson as Notebook, has_links_that_resolve, numbers_lessons_as_files_do
from samples import run_tool

from tfbook.course.lessons import LESSONS, Lesson

OLD = (Lesson(1, "attention", "", "", 1, 1), Lesson(2, "scores", "", "", 1, 1), Lesson(3, "plans", "", "", None, 1))


def test_every_way_to_name_a_lesson_is_followed() -> None:
    new = renumber.changed(["attention=02", "02=01"], OLD)
    assert [(lesson.number, lesson.slug) for lesson in new] == [(1, "scores"), (2, "attention"), (3, "plans")]
    text = (
        "Lesson 01's score, lessons 02 and 03, lessons 01, 02 and 03, lesson\n    02, [02](02_scores.ipynb), "
        "https://x.org/notebooks/01_attention.ipynb\n| masks | 01, sections 3 to 5 |\n| dots | 02 |\n"
    )
    assert renumber.rewritten(text, OLD, new) == (
        "Lesson 02's score, lessons 01 and 03, lessons 02, 01 and 03, lesson\n    01, [01](01_scores.ipynb), "
        "https://x.org/notebooks/02_attention.ipynb\n| masks | 02, sections 3 to 5 |\n| dots | 01 |\n"
    )


@pytest.mark.parametrize(
    "text",
    ["lesson 04", "in 01 of 02 cases", "section 01", "eleven lessons", "lessons of 2017", "| a | 0.01 |", "01_b"],
)
def test_what_names_no_lesson_stays(text: str) -> None:
    assert renumber.rewritten(text, OLD, renumber.changed(["01=02", "02=01"], OLD)) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["01=02"], "two lessons would have the number 02"),
        (["09=04"], "the change is '09=04'; expected OLD=NEW"),
        (["01=4"], "the change is '01=4'; expected OLD=NEW"),
        (["scores"], "the change is 'scores'; expected OLD=NEW"),
    ],
)
def test_an_impossible_change_is_refused(changes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        renumber.changed(changes, OLD)


def contents(folder: Path) -> dict[Path, bytes]:
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {path: (folder / path).read_bytes() for path in paths}


@pytest.mark.slow
def test_two_lessons_change_places_and_back(copy: Path) -> None:
    before = contents(copy)
    one, other = [lesson for lesson in LESSONS if lesson.written][-2:]
    there = f"{one.slug}={other.number:02}", f"{other.number:02}={one.number:02}"
    assert f"notebooks/{other.number:02}_{one.slug}.ipynb" in run_tool(copy, "renumber", *there)
    for tool in ("tables", "ledger"):
        run_tool(copy, tool, "--check")
    for path in (copy / "notebooks").glob("*.ipynb"):
        notebook = Notebook(path, book.read(path))
        assert [*numbers_lessons_as_files_do(notebook), *has_links_that_resolve(notebook)] == []
    claims = (copy / "CLAIMS.md").read_text(encoding="utf-8")
    assert f"(notebooks/{one.number:02}_{other.slug}.ipynb)" in claims
    assert f"**{other.number:02}.1** " in claims
    run_tool(copy, "renumber", f"{one.slug}={one.number:02}", f"{other.slug}={other.number:02}")
    assert contents(copy) == before
