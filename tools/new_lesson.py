"""Makes a lesson to start from: a notebook, a folder of the package, its test, and the lesson's row in the course map.

    python tools/new_lesson.py decoding                                      a lesson that the map plans
    python tools/new_lesson.py nets --number 06 --title Nets --question "Why deep?"     one that it does not have

Next, `make notebooks N=decoding` executes it; from then on every rule of tests/notebooks/rules.py holds. A number that
is taken has to be made free before, by tools/renumber.py.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import address
import book
import tables
import weave

from tfbook.course.lessons import LESSONS, Lesson
from tfbook.files import write_text

SKELETON = Path(__file__).parent / "skeleton"
MINUTES = 5  # that reading the skeleton takes; `python tools/measure.py --write` counts them anew
PLACES = {
    "notebook.ipynb": "notebooks/{0.name}.ipynb",
    "__init__.py": "tfbook/lessons/{0.slug}/__init__.py",
    "exercises.py": "tfbook/lessons/{0.slug}/exercises.py",
    "study.py": "tfbook/lessons/{0.slug}/study.py",
    "figures.py": "tfbook/lessons/{0.slug}/figures.py",
    "answers.py": "tfbook/lessons/{0.slug}/answers.py",
    "claims.py": "tfbook/lessons/{0.slug}/claims.py",
    "test_lesson.py": "tests/unit/test_lesson_{0.slug}.py",
}


def planned(options: argparse.Namespace) -> Lesson:
    """The lesson that the options describe, begun by the map's row. Raises ValueError where that cannot be."""
    row = next((lesson for lesson in LESSONS if lesson.slug == options.slug), None)
    asked = {name: getattr(options, name) for name in ("number", "title", "question")}
    if row is None:
        if missing := [f"--{name}" for name, value in asked.items() if value is None]:
            raise ValueError(f"the map has no lesson {options.slug!r}; say {', '.join(missing)}")
        if not re.fullmatch("[a-z][a-z0-9_]*", options.slug):
            raise ValueError(f"the slug is {options.slug!r}; expected lower-case letters, digits and underscores")
        row = Lesson(options.number, options.slug, "", "", None, _part_before(options.number))
    if row.written:
        raise ValueError(f"lesson {row.slug} is written, as notebooks/{row.name}.ipynb")
    lesson = replace(row, minutes=MINUTES, **{name: value for name, value in asked.items() if value is not None})
    if taken := [each.slug for each in LESSONS if each.number == lesson.number and each.slug != lesson.slug]:
        raise ValueError(f"{taken[0]} is lesson {lesson.number:02}; make room with tools/renumber.py")
    return lesson


def _part_before(number: int) -> int:
    return max(lesson.part for lesson in LESSONS if lesson.number < max(number, 1))


def filled(text: str, lesson: Lesson) -> str:
    """The text of a skeleton with the lesson's words in the place of LESSON_NUMBER, LESSON_SLUG and so on."""
    words = {name: str(value) for name, value in vars(lesson).items()}
    words |= {"number": f"{lesson.number:02}", "badge": address.badge(f"{lesson.name}.ipynb")}
    return re.sub(r"LESSON_([A-Z]+)", lambda match: words[match[1].lower()], text)


def make(lesson: Lesson) -> None:
    """Writes the files of the lesson, which must not exist, and the course map with its tables."""
    targets = {name: book.ROOT / place.format(lesson) for name, place in PLACES.items()}
    if existing := [path for path in targets.values() if path.exists()]:
        raise ValueError(f"{existing[0].relative_to(book.ROOT)} exists; expected none of the lesson's files")
    notebook = book.read(SKELETON / "notebook.ipynb")
    for cell in notebook.cells:
        cell.source = filled(cell.source, lesson)
    weave.weave(notebook)
    book.write(targets.pop("notebook.ipynb"), notebook)
    for name, path in targets.items():
        write_text(path, filled((SKELETON / name).read_text(encoding="utf-8"), lesson))
    others = [each for each in LESSONS if each.slug != lesson.slug]
    tables.write(sorted([*others, lesson], key=lambda each: each.number))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slug", help="names the lesson's modules, results and claims")
    parser.add_argument("--number", type=int, help="default: the map's")
    parser.add_argument("--title", help="default: the map's")
    parser.add_argument("--question", help="which the lesson answers, and its notebook's title; default: the map's")
    try:
        lesson = planned(parser.parse_args(arguments))
        make(lesson)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    print(*(place.format(lesson) for place in PLACES.values()), f"next: make notebooks N={lesson.slug}", sep="\n")
    print("it also renews the map of the course, which every lesson shows")


if __name__ == "__main__":
    main()
