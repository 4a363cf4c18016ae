"""Writes the lessons for a class: without outputs for students, or with every exercise solved for instructors.

    python tools/handout.py student handout            every lesson, stubs and closed answers as they are, no outputs
    python tools/handout.py solutions handout 03 04    two lessons, with the solutions in place of the stubs

Either carries nbgrader's metadata (schema 3): a check is a test that gives a point, a stub a solution of the student's.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import book
from nbformat import NotebookNode

from tfbook.course.exercises import source_of
from tfbook.files import expanded

CHECK = re.compile(r"^ex\.(\w+)\.check\((\w+)\)", re.MULTILINE)
PICK = re.compile(r"\bex\.(\w+)\.pick\(\w+,\s*(?:otherwise=)?study\.(\w+)\)")
KINDS = ("student", "solutions")


def prepared(path: Path, kind: str) -> NotebookNode:
    """A lesson as students or instructors get it."""
    notebook, slug = book.read(path), path.stem[3:]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    picked = dict(PICK.findall("\n".join(cell.source for cell in code)))
    for cell in code:
        cell.outputs, cell.execution_count = [], None
        for exercise, stub in CHECK.findall(cell.source):
            cell.metadata["nbgrader"] = graded(exercise)
            if kind == "solutions":
                cell.source = solved(cell.source, stub, solution(slug, exercise, picked.get(exercise, "")))
    return notebook


def solution(slug: str, exercise: str, picked: str) -> str:
    """The source of a solution; where the answer is a class, of the one with which the page goes on."""
    study = import_module(f"tfbook.lessons.{slug}.study")
    if isinstance(built := getattr(study, picked, None), type):
        return f"{borrowed(built)}{inspect.getsource(built)}"
    return source_of(getattr(import_module(f"tfbook.lessons.{slug}.exercises"), exercise).reference)


def borrowed(built: type) -> str:
    """The import of what a class uses of the course beside PyTorch; nothing where it uses nothing."""
    used = {node.id for node in ast.walk(ast.parse(inspect.getsource(built))) if isinstance(node, ast.Name)}
    known = vars(sys.modules[built.__module__])
    names = sorted(name for name in used if getattr(known.get(name), "__module__", "").startswith("tfbook"))
    return f"from {built.__module__} import {', '.join(names)}\n\n\n" if names else ""


def graded(exercise: str) -> dict[str, object]:
    """The metadata with which nbgrader takes a cell for a student's own that is graded automatically."""
    cell = {"grade": True, "solution": True, "locked": False, "task": False}
    return cell | {"grade_id": exercise, "points": 1, "schema_version": 3}


def solved(source: str, stub: str, solution: str) -> str:
    """A cell with the solution in place of the function `stub`, and under its name."""
    lines = source.splitlines(keepends=True)
    kinds = ast.FunctionDef | ast.ClassDef
    found = next(node for node in ast.parse(source).body if isinstance(node, kinds) and node.name == stub)
    renamed = re.sub(r"^(def|class) \w+", rf"\1 {stub}", solution, count=1, flags=re.MULTILINE)
    return "".join([*lines[: found.lineno - 1], renamed, *lines[found.end_lineno :]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", help="where the notebooks go; it is made")
    parser.add_argument("lessons", nargs="*", help="numbers, slugs or paths; all by default")
    options = parser.parse_args()
    folder = expanded("folder", options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in book.lessons(options.lessons):
        book.write(folder / path.name, prepared(path, options.kind))
        print(folder / path.name)


if __name__ == "__main__":
    main()
