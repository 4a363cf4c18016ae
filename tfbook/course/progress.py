"""The map of the course with the solved exercises: `print_course()` in a notebook, `python -m tfbook` in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from tfbook.course.exercises import Exercise
from tfbook.course.lessons import LESSONS, PARTS, Lesson
from tfbook.course.solved import load_answers, pieces_line, save_answers, solved

__all__ = ["course_lines", "exercises_of", "lesson_line", "load_answers", "print_course", "save_answers"]

SOLVED, OPEN = "●", "○"


def exercises_of(lesson: Lesson) -> list[str]:
    """The names of a lesson's exercises in their order."""
    module = import_module(f"tfbook.lessons.{lesson.slug}.exercises")
    return [value.name for value in vars(module).values() if isinstance(value, Exercise)]


def lesson_line(lesson: Lesson, done: list[str]) -> str:
    """A lesson with a dot for each exercise, such as "03 Self-attention  ●●○○ 2 of 4"."""
    title = f"{lesson.number:02} {lesson.title}"
    if not lesson.written:
        return f"  {title:<26} not written yet"
    names = exercises_of(lesson)
    count = sum(name in done for name in names)
    dots = "".join(SOLVED if name in done else OPEN for name in names)
    return f"  {title:<26} {dots:<10} {count} of {len(names)}"


def course_lines(known: Mapping[str, list[str]]) -> Iterator[str]:
    """The map of the course, line by line, with the solved exercises of each slug."""
    for part, name in PARTS.items():
        yield name
        yield from (lesson_line(lesson, known.get(lesson.slug, [])) for lesson in LESSONS if lesson.part == part)


TO_TAKE_ALONG = """\
progress.save_answers() writes your answers to my_answers.json, to take along (Colab forgets them: download the file);
progress.load_answers() brings them back, and the pages run them."""


def print_course() -> None:
    """Prints the map of the course with what is solved on this machine, whose pieces ran, and how answers travel."""
    print(*course_lines(solved()), sep="\n")
    print("", *filter(None, [pieces_line()]), TO_TAKE_ALONG, sep="\n")
