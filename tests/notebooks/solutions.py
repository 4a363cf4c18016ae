"""Whether the solution of an exercise can be read above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from handout import CHECK
from nbformat import NotebookNode

from tfbook.course.exercises import Exercise
from tfbook.course.grading.likeness import alike, parsed
from tfbook.course.lessons import LESSONS

if TYPE_CHECKING:
    from rules import Lesson

FROM_MEMORY = re.compile(r"without looking|looking back|from memory|write it again", re.IGNORECASE)


def hides_its_solutions(lesson: Lesson) -> Iterator[str]:
    """No open cell above an exercise defines its function or holds its solution; collapsed ones may."""
    known = references(lesson.path.stem[3:])
    open_code = [
        (number, cell) for number, cell in lesson.code if "source_hidden" not in cell.metadata.get("jupyter", {})
    ]
    for number, cell in open_code:
        for name, stub in CHECK.findall(cell.source):
            above = (function for place, other in open_code if place < number for function in functions(other))
            if any(function.name == stub or (name in known and alike(function, known[name])) for function in above):
                yield f"cell {number}: the solution of ex.{name} stands open above it; move the exercise up"
    for number, text in lesson.prose:
        if "### Exercise" in text and (found := FROM_MEMORY.search(text)):
            yield f"cell {number}: {found[0]!r} says that a solution stands open above it; move the exercise up"


def references(slug: str) -> dict[str, ast.FunctionDef]:
    """The solutions of a lesson's exercises by name; none for a lesson that the course does not have yet."""
    if slug not in [lesson.slug for lesson in LESSONS if lesson.written]:
        return {}
    exercises = vars(import_module(f"tfbook.lessons.{slug}.exercises")).values()
    return {each.name: parsed(each.reference) for each in exercises if isinstance(each, Exercise)}


def functions(cell: NotebookNode) -> Iterator[ast.FunctionDef]:
    """The functions that a cell defines, methods included; none where it isn't Python alone."""
    try:
        yield from functions_in(cell.source)
    except SyntaxError:  # a magic of IPython
        return


def functions_in(source: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
