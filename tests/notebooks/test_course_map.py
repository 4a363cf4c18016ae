"""The course map agrees with the files: lessons called written are the notebooks, modules and sections that exist."""

from __future__ import annotations

import re
from importlib import import_module

import book
import measure
import pytest

from tfbook.course.lessons import LESSONS, PARTS, Lesson

README = book.ROOT / "README.md"
WRITTEN = [lesson for lesson in LESSONS if lesson.written]
PLACE = r"(?P<number>\d\d)(?:, sections? (?P<sections>[\d a-z]+)|, Going further)?"
TOPIC = re.compile(rf"^\| [^|]+ \| {PLACE} \|$", re.MULTILINE)


def test_lessons_are_numbered_from_zero_in_order() -> None:
    assert [lesson.number for lesson in LESSONS] == list(range(len(LESSONS)))
    assert [lesson.part for lesson in LESSONS] == sorted(lesson.part for lesson in LESSONS)


def test_a_slug_is_a_module_s_name_and_names_one_lesson() -> None:
    slugs = [lesson.slug for lesson in LESSONS]
    assert [slug for slug in slugs if not re.fullmatch("[a-z][a-z0-9_]*", slug)] == []
    assert len(set(slugs)) == len(slugs)


def test_the_lessons_called_written_are_the_notebooks_that_exist() -> None:
    assert [lesson.name for lesson in WRITTEN] == [path.stem for path in book.lessons()]


@pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.slug)
def test_a_written_lesson_has_exercises_named_by_its_slug(lesson: Lesson) -> None:
    import_module(f"tfbook.lessons.{lesson.slug}.exercises")


@pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.slug)
def test_the_map_has_the_minutes_that_the_lesson_states(lesson: Lesson) -> None:
    [path] = book.lessons([lesson.slug])
    stated = measure.stated_minutes(book.read(path))
    assert stated is not None
    assert lesson.minutes == stated[0]


def test_parts_hold_every_lesson_once_and_the_written_ones_are_there() -> None:
    by_part = {
        name: [f"{lesson.number:02} {lesson.title}" for lesson in LESSONS if lesson.part == part]
        for part, name in PARTS.items()
    }
    assert [text[:2] for lessons in by_part.values() for text in lessons] == [f"{n:02}" for n in range(len(LESSONS))]
    assert by_part["III · Vision"] == ["13 ViT patches", "14 Vision beyond"]
    assert [f"{lesson.number:02}" for lesson in WRITTEN] == [path.name[:2] for path in book.lessons()]


def test_the_readme_sends_each_lecture_topic_to_sections_that_exist() -> None:
    topics = list(TOPIC.finditer(README.read_text(encoding="utf-8").partition("## For instructors")[2]))
    assert len(topics) > 30
    for topic in topics:
        [path] = book.lessons([topic["number"]])
        prose = "\n".join(cell.source for cell in book.read(path).cells if cell.cell_type == "markdown")
        headings = set(re.findall(r"^## (\d+)\.", prose, re.MULTILINE))
        assert set(re.findall(r"\d+", topic["sections"] or "")) <= headings, topic[0]
