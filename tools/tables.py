"""Writes the tables of lessons, made from the course map tfbook/course/lessons.py, into README.md and lesson 00.

python tools/tables.py            write them
python tools/tables.py --check    list the files in which a table differs; exit 1 if there are any
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import address
import book
import nbformat

from tfbook.course.lessons import LESSONS, Lesson

TABLE = re.compile(r"(?<=<!-- lessons -->\n\n).*?(?=\n\n<!-- end of lessons -->)", re.DOTALL)
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
    """What lesson 00 shows: linked lessons are ready, the others planned."""
    lines = ["| | lesson | question | |", "|---|---|---|---|"]
    for lesson in lessons:
        state = "ready" if lesson.written else "planned"
        lines.append(f"| {lesson.number:02} | {link(lesson)} | {lesson.question} | {state} |")
    return "\n".join(lines)


def link(lesson: Lesson, folder: str = "") -> str:
    """The lesson's title, linked to its notebook when it is written."""
    return f"[{lesson.title}]({folder}{lesson.name}.ipynb)" if lesson.written else lesson.title


def outdated(lessons: Sequence[Lesson]) -> dict[Path, str]:
    """The files whose table differs from the map, each with the text that it should have."""
    readme, start = book.ROOT / "README.md", book.NOTEBOOKS / f"{lessons[0].name}.ipynb"
    notebook = book.read(start)
    for cell in notebook.cells:
        cell.source = TABLE.sub(lambda _: start_table(lessons), cell.source)
    expected = {
        readme: TABLE.sub(lambda _: readme_table(lessons), readme.read_text(encoding="utf-8")),
        start: nbformat.writes(notebook) + "\n",
    }
    return {path: text for path, text in expected.items() if text != path.read_text(encoding="utf-8")}


def write(lessons: Sequence[Lesson]) -> None:
    """Writes the course map itself, with these lessons, and the tables."""
    course_map = book.ROOT / "tfbook" / "course" / "lessons.py"
    fields = [
        ["None" if each is None else json.dumps(each, ensure_ascii=False) for each in astuple(x)] for x in lessons
    ]
    block = "".join(f"    Lesson({', '.join(each)}),\n" for each in fields)
    text = MAP.sub(lambda _: block, course_map.read_text(encoding="utf-8"))
    for path, new in {course_map: text, **outdated(lessons)}.items():
        path.write_text(new, encoding="utf-8", newline="\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when a table differs")
    options = parser.parse_args(arguments)
    changes = outdated(LESSONS)
    for path, text in changes.items():
        print(path.relative_to(book.ROOT))
        if not options.check:
            path.write_text(text, encoding="utf-8", newline="\n")
    if options.check and changes:
        raise SystemExit("the files above differ from tfbook/course/lessons.py: run `python tools/tables.py`")


if __name__ == "__main__":
    main()
