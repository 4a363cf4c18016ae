"""Writes what the course map tfbook/course/lessons.py says: the tables of lessons in README.md and lesson 00, the hours
in docs/teaching, and below `<!-- next -->` in the last cell of a lesson the links to the next lesson and to the map.

python tools/tables.py            write them
python tools/tables.py --check    list the files that differ from the map; exit 1 if there are any
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

import address
import book
import measure
import nbformat

from tfbook.course.lessons import LESSONS, Lesson
from tfbook.files import write_text

TABLE = re.compile(r"(?<=<!-- lessons -->\n\n).*?(?=\n\n<!-- end of lessons -->)", re.DOTALL)
TEACHING = Path("docs", "teaching")
PATH = re.compile(r"(\*\*Lessons\*\* ([\d, ]+)) · reading .*$", re.MULTILINE)
NEEDS = re.compile(r"^\*.* needs lessons? (.*)\*$", re.MULTILINE)
NEXT = "<!-- next -->"
MAP = re.compile(r"(?<=^LESSONS = \(\n).*?(?=^\)$)", re.DOTALL | re.MULTILINE)


def readme_table(lessons: Sequence[Lesson]) -> str:
    """Linked lessons with their reading time and badge; planned ones without."""
    lines = ["| | lesson | question | time | |", "|---|---|---|---|---|"]
    for lesson in lessons:
        badge = address.badge(f"{lesson.name}.ipynb")
        time, last = (f" {lesson.minutes} min ", badge) if lesson.written else (" ", "planned")
        lines.append(f"| {lesson.number:02} | {link(lesson, 'notebooks/')} | {lesson.question} |{time}| {last} |")
    return "\n".join(lines)


def start_table(lessons: Sequence[Lesson]) -> str:
    """The table in lesson 00: linked lessons are ready, the others planned."""
    lines = ["| | lesson | question | |", "|---|---|---|---|"]
    for lesson in lessons:
        state = "ready" if lesson.written else "planned"
        lines.append(f"| {lesson.number:02} | {link(lesson)} | {lesson.question} | {state} |")
    return "\n".join(lines)


class Facts(NamedTuple):
    """Stated by a lesson itself: the minutes of each exercise, and the numbers of the lessons that it needs."""

    exercises: list[int]
    needs: tuple[int, ...]


def facts_of(lessons: Sequence[Lesson]) -> dict[Lesson, Facts]:
    """What each written lesson states; every notebook is read once."""
    notebooks = {each: book.read(book.NOTEBOOKS / f"{each.name}.ipynb") for each in lessons if each.minutes is not None}
    return {
        lesson: Facts(
            measure.exercise_minutes(notebook),
            needs_of("\n".join(cell.source for cell in notebook.cells)),
        )
        for lesson, notebook in notebooks.items()
    }


def needs_of(text: str) -> tuple[int, ...]:
    """The numbers of the lessons that a lesson's text says it needs."""
    return tuple(map(int, re.findall(r"\[(\d\d)\]", " ".join(NEEDS.findall(text)))))


def hours_table(facts: Mapping[Lesson, Facts]) -> str:
    """The table for instructors: minutes of reading and of the exercises, as the lessons state them."""
    lines = ["| | lesson | reading | exercises | together | needs |", "|---|---|---:|---:|---:|---|"]
    for lesson, (exercises, needs) in facts.items():
        before = ", ".join(f"{number:02}" for number in needs)
        lines.append(
            f"| {lesson.number:02} | {link(lesson, '../../notebooks/')} | {lesson.minutes} min "
            f"| {len(exercises)}, {sum(exercises)} min | {hours_of({lesson: facts[lesson]})[1]} | {before} |"
        )
    reading, together = hours_of(facts)
    minutes = [each for exercises, _ in facts.values() for each in exercises]
    lines.append(f"| | all | {reading} | {len(minutes)}, {hours(sum(minutes))} | {together} | |")
    return "\n".join(lines)


def hours_of(facts: Mapping[Lesson, Facts]) -> tuple[str, str]:
    """Hours of reading, and of reading and exercises together."""
    reading = sum(lesson.minutes or 0 for lesson in facts)
    return hours(reading), hours(reading + sum(sum(exercises) for exercises, _ in facts.values()))


def with_hours(page: str, lessons: Sequence[Lesson], facts: Mapping[Lesson, Facts]) -> str:
    """A page of reading paths, each with the hours of its lessons."""

    def stated(found: re.Match[str]) -> str:
        chosen = [lessons[int(number)] for number in found[2].split(", ")]
        reading, together = hours_of({lesson: facts[lesson] for lesson in chosen})
        return f"{found[1]} · reading {reading}, with exercises {together}"

    return PATH.sub(stated, page)


def hours(minutes: int) -> str:
    """Minutes as hours to the nearest quarter, such as "1¾ h"."""
    whole, quarters = divmod(round(minutes / 15), 4)
    return f"{whole or ''}{('', '¼', '½', '¾')[quarters]} h"


def next_line(lessons: Sequence[Lesson], number: int) -> str:
    """The last line of lesson `number`: links to the next written lesson and, except in lesson 00, to the map."""
    later = next((lesson for lesson in lessons if lesson.written and lesson.number > number), None)
    links = [f"**Next:** [{later.number:02} · {later.title}]({later.name}.ipynb) {later.question}"] if later else []
    return " · ".join([*links, *([f"[All lessons]({lessons[0].name}.ipynb)"] if number else [])])


def link(lesson: Lesson, folder: str = "") -> str:
    """The lesson's title, linked to its notebook when it is written."""
    return f"[{lesson.title}]({folder}{lesson.name}.ipynb)" if lesson.written else lesson.title


def outdated(lessons: Sequence[Lesson]) -> dict[Path, str]:
    """The files whose table differs from the map, each with the text that it should have."""
    readme = book.ROOT / "README.md"
    expected = {readme: TABLE.sub(lambda _: readme_table(lessons), readme.read_text(encoding="utf-8"))}
    facts = facts_of(lessons) if (book.ROOT / TEACHING).is_dir() else {}
    if (page := book.ROOT / TEACHING / "index.md").is_file():
        expected[page] = TABLE.sub(lambda _: hours_table(facts), page.read_text(encoding="utf-8"))
    if (page := book.ROOT / TEACHING / "paths.md").is_file():
        expected[page] = with_hours(page.read_text(encoding="utf-8"), lessons, facts)
    for lesson in lessons:
        path = book.NOTEBOOKS / f"{lesson.name}.ipynb"
        if lesson.written and re.search("<!-- (lessons|next) -->", path.read_text(encoding="utf-8")):
            expected[path] = lesson_text(path, lessons, lesson.number)
    return {path: text for path, text in expected.items() if text != path.read_text(encoding="utf-8")}


def lesson_text(path: Path, lessons: Sequence[Lesson], number: int) -> str:
    """The file of a lesson, with its table and its links as the map says."""
    notebook = book.read(path)
    for cell in notebook.cells:
        cell.source = TABLE.sub(lambda _: start_table(lessons), cell.source)
    last = notebook.cells[-1]
    before, mark, _ = last.source.partition(NEXT)
    last.source = f"{before}{mark}\n\n{next_line(lessons, number)}" if mark else last.source
    return nbformat.writes(notebook) + "\n"


def write(lessons: Sequence[Lesson]) -> None:
    """Writes the course map itself, with these lessons, and the tables."""
    course_map = book.ROOT / "tfbook" / "course" / "lessons.py"
    fields = [
        ["None" if each is None else json.dumps(each, ensure_ascii=False) for each in astuple(x)] for x in lessons
    ]
    block = "".join(f"    Lesson({', '.join(each)}),\n" for each in fields)
    text = MAP.sub(lambda _: block, course_map.read_text(encoding="utf-8"))
    for path, new in {course_map: text, **outdated(lessons)}.items():
        write_text(path, new)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when a table differs")
    options = parser.parse_args(arguments)
    changes = outdated(LESSONS)
    for path, text in changes.items():
        print(path.relative_to(book.ROOT))
        if not options.check:
            write_text(path, text)
    if options.check and changes:
        raise SystemExit("the files above differ from tfbook/course/lessons.py: run `python tools/tables.py`")


if __name__ == "__main__":
    main()
