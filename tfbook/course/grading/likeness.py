"""Whether two functions are the same text but for their names, and what else about an answer deserves a look."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

from tfbook.course.exercises import Exercise
from tfbook.course.grading.handed_in import Answered

LONG = 5  # statements from which on two people hardly write the same ones
ASKS = re.compile(r"\.(?:reference|solution|wrong_answers)\b|\binspect\b|\btfbook\.lessons\b|\bex\.")


def alike(one: ast.FunctionDef, other: ast.FunctionDef) -> bool:
    """Whether two functions are the same but for the names that they choose."""
    return anonymous(one) == anonymous(other)


def anonymous(function: ast.FunctionDef) -> str:
    """The function's statements with its arguments and variables numbered."""
    arguments = [argument.arg for argument in function.args.args if argument.arg != "self"]
    assigned = [
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    number = {name: str(i) for i, name in enumerate(dict.fromkeys([*arguments, *assigned]))}
    body = ast.parse(textwrap.dedent("\n".join(map(ast.unparse, function.body))))
    for node in ast.walk(body):
        if isinstance(node, ast.Name):
            node.id = number.get(node.id, node.id)
    return ast.dump(body)


def parsed(function: Callable[..., Any]) -> ast.FunctionDef:
    """The definition of a function, from its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def remarks(answer: Answered, exercise: Exercise) -> str:
    """One line on a right answer that asks the course for the solution, or is long and the solution's text."""
    text = "\n".join(answer.statements)
    if found := ASKS.search(text):
        return f"asks the course itself: {found[0]!r}"
    solution = parsed(exercise.reference)
    own = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    long = sum(isinstance(node, ast.stmt) for node in ast.walk(solution)) > LONG
    return "word for word the solution, but for names" if long and any(alike(each, solution) for each in own) else ""
