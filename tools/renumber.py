"""Gives lessons other numbers: in the course map, in the names of the notebooks and wherever a text names them.

    python tools/renumber.py 13=14 14=13             what is lesson 13 becomes 14, and the other way round
    python tools/renumber.py vit_patches=14 14=13    the same; a lesson goes by its number or its slug

Rewrites links and badges, titles, "lesson 13" and "lessons 13 and 15" in notebooks, documents, docstrings and comments,
and the README's lecture topics; the tables of lessons and CLAIMS.md are made anew. Figures stay as they are: execute
lesson 00, which draws the map, and the lessons whose figures name another.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace

import address
import book
import ledger
import tables

from tfbook.course.lessons import LESSONS, Lesson
from tfbook.files import write_text

PLACES = (*address.PLACES, "benchmarks/*", "tests/exercises/*.py", "tests/invariants/*.py", "tests/unit/*.py")
SINGULAR = re.compile(r"\b([Ll]esson\s+)(\d\d)\b")
PLURAL = re.compile(r"\b([Ll]essons\s+)(\d\d\b(?:,?(?: and| or| to)? \d\d\b)*)")
LABEL = re.compile(r"\[\d\d\]\((?=(?:notebooks/)?(\d\d)_)")  # of a link that shows a number
TITLE = re.compile(r'(?<="# )\d\d(?= · )')
TOPIC = re.compile(r"^(\| [^|\n]+ \| )(\d\d)(?=(?:, sections? [^|\n]+)? \|$)", re.MULTILINE)


def changed(changes: Sequence[str], lessons: Sequence[Lesson]) -> list[Lesson]:
    """The lessons in their new order. Raises ValueError for a lesson that does not exist and a number given twice."""
    found = {key: lesson for lesson in lessons for key in (f"{lesson.number:02}", lesson.slug)}
    numbers = {lesson.slug: lesson.number for lesson in lessons}
    for change in changes:
        name, _, number = change.partition("=")
        if name not in found or not re.fullmatch(r"\d\d", number):
            raise ValueError(f"the change is {change!r}; expected OLD=NEW, such as 13=14 or vit_patches=14")
        numbers[found[name].slug] = int(number)
    if twice := {number for number in numbers.values() if list(numbers.values()).count(number) > 1}:
        raise ValueError(f"two lessons would have the number {', '.join(f'{number:02}' for number in sorted(twice))}")
    return sorted((replace(lesson, number=numbers[lesson.slug]) for lesson in lessons), key=lambda each: each.number)


def rewritten(text: str, old: Sequence[Lesson], new: Sequence[Lesson]) -> str:
    """The text with every lesson called by its new number."""
    names = {lesson.slug: lesson.name for lesson in new}
    numbers = {f"{lesson.number:02}": names[lesson.slug][:2] for lesson in old}

    def follow(match: re.Match[str]) -> str:
        return match[1] + re.sub(r"\d\d", lambda number: numbers.get(number[0], number[0]), match[2])

    text = re.sub(rf"\b\d\d_({'|'.join(names)})\b", lambda match: names[match[1]], text)
    text = LABEL.sub(lambda match: f"[{match[1]}](", text)
    return TOPIC.sub(follow, PLURAL.sub(follow, SINGULAR.sub(follow, text)))


def renumber(old: Sequence[Lesson], new: Sequence[Lesson]) -> None:
    """Rewrites the files of this repository and renames the notebooks."""
    for path in sorted({path for place in PLACES for path in book.ROOT.glob(place) if path.is_file()}):
        before = path.read_text(encoding="utf-8")
        text = rewritten(before, old, new)
        target = path.with_name(rewritten(path.name, old, new))
        if path.suffix == ".ipynb":
            text = TITLE.sub(target.name[:2], text, count=1)
        if text != before or target != path:
            write_text(path, text)
            path.rename(target)
            print(target.relative_to(book.ROOT))
    tables.write(new)
    ledger.main([])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("change", nargs="+", help="OLD=NEW, where OLD is a number or a slug and NEW a number")
    options = parser.parse_args(arguments)
    try:
        new = changed(options.change, LESSONS)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    renumber(LESSONS, new)


if __name__ == "__main__":
    main()
