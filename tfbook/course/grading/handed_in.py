"""Notebooks as students hand them in: whose they are, of which lesson, and where in them an exercise is answered.

Nothing of a notebook is executed here; it is data that may be damaged or meant to do harm.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbook.course.lessons import LESSONS, Lesson

LARGEST = 20_000_000  # bytes of a notebook
IMPORTED = re.compile(r"^from tfbook\.lessons\.(\w+) import |^from tfbook\.lessons import (\w+)", re.MULTILINE)
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_file_?.*")
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_\d+_.*")
COPY = re.compile(r"^(?:copy of |kopie von |copie de )+|\s*\(\d+\)$|-checkpoint$", re.IGNORECASE)
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
WHOLE = re.compile(r"\s*%%")


@dataclass(frozen=True)
class Student:
    """Who handed something in, as far as names of folders and files tell."""

    name: str
    number: str = ""  # of the user in Canvas, or of the participant in Moodle


@dataclass(frozen=True)
class HandedIn:
    """A notebook of a student: its code, cell by cell, or the reason why it cannot be read."""

    student: Student
    path: Path
    lesson: Lesson | None
    cells: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Answered:
    """An answer where it stands: the definitions above it, the statements of its cell, and what it calls the answer."""

    exercise: str
    before: tuple[str, ...]
    statements: tuple[str, ...]
    argument: str
    fault: str = ""  # of its cell's syntax


def handed_in(folder: Path) -> list[HandedIn]:
    """Every notebook below a folder, in the order of the paths; links are not followed.

    Raises FileNotFoundError where there is no such folder, and ValueError where it holds no notebook.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    paths = [
        Path(place, file)
        for place, folders, files in os.walk(folder)
        if not folders.sort() and ".ipynb_checkpoints" not in Path(place).parts
        for file in sorted(files)
        if re.search(r"\.ipynb(\.txt|\.json)?$", file, re.IGNORECASE)
    ]
    found = [read_notebook(path, folder) for path in paths if not path.is_symlink()]
    if not found:
        raise ValueError(f"{folder} holds no notebook; expected files such as {LESSONS[3].name}.ipynb")
    return found


def read_notebook(path: Path, folder: Path) -> HandedIn:
    """A notebook with its student and lesson. Never raises: what is wrong with it is its `fault`."""
    student = student_named(path.relative_to(folder))
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST // 1_000_000} MB")
        cells = tuple(_code(json.loads(path.read_text(encoding="utf-8-sig"))))
    except (OSError, ValueError, RecursionError) as error:
        return HandedIn(student, path, lesson_of(path.name, ()), fault=f"cannot be read as a notebook: {error}")
    lesson = lesson_of(path.name, cells)
    fault = "" if lesson else "belongs to no lesson: neither its name nor its imports say which"
    return HandedIn(student, path, lesson, cells, fault)


def _code(notebook: Any) -> Iterator[str]:
    """The source of each code cell. Raises ValueError for what is no notebook."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it has no cells")
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            yield source if isinstance(source, str) else "".join(part for part in source if isinstance(part, str))


def lesson_of(file: str, cells: tuple[str, ...]) -> Lesson | None:
    """The lesson whose exercises the cells import, else the one in the file's name."""
    named = next((a or b for cell in cells for a, b in IMPORTED.findall(cell)), "")
    known = {lesson.slug: lesson for lesson in LESSONS if lesson.written}
    return known.get(named) or next((lesson for lesson in known.values() if lesson.name in file), None)


def student_named(path: Path) -> Student:
    """Whose a file is: from the folder in Moodle's downloads, from the file's name in Canvas's, else from either."""
    folder = path.parts[0] if len(path.parts) > 1 else ""
    stem = re.sub(r"\.ipynb(\.txt|\.json)?$", "", path.name, flags=re.IGNORECASE)
    if found := MOODLE.fullmatch(folder) or CANVAS.fullmatch(folder) or CANVAS.fullmatch(stem):
        return Student(found["name"].strip(), found["id"])
    if folder:
        return Student(folder)
    while (shorter := COPY.sub("", stem)) != stem:
        stem = shorter
    for lesson in LESSONS:
        stem = stem.replace(lesson.name, "")
    return Student(stem.strip(" _-.") or path.stem)


# ---- answers -----------------------------------------------------------------------------------------------------


def answered(cells: tuple[str, ...], exercises: list[str]) -> Iterator[Answered]:
    """Where each exercise is answered: the last cell that checks it, else the last that defines its function."""
    sources = [without_magics(cell) for cell in cells]
    defined = [tuple(definitions(source)) for source in sources]
    for exercise in exercises:
        checks = [i for i, source in enumerate(sources) if re.search(rf"\bex\.{exercise}\.check\(", source)]
        defines = [i for i, source in enumerate(sources) if re.search(rf"^def {exercise}\(", source, re.MULTILINE)]
        if place := (checks or defines)[-1:]:
            before = tuple(part for cell in defined[: place[0]] for part in cell)
            yield _answer(exercise, before, sources[place[0]])


def _answer(exercise: str, before: tuple[str, ...], source: str) -> Answered:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Answered(exercise, before, (), exercise, fault=f"{type(error).__name__}: {error}")
    statements, argument = [], exercise
    for node in tree.body:
        if check := _check(node, exercise):
            argument = ast.unparse(check)
            break
        if not _asks_the_exercise(node):
            statements.append(ast.get_source_segment(source, _with_decorators(node)) or ast.unparse(node))
    return Answered(exercise, before, tuple(statements), argument)


def without_magics(cell: str) -> str:
    """A cell without the magics of IPython, which keep their lines."""
    return "" if WHOLE.match(cell) else MAGIC.sub(r"\1pass", cell)


def definitions(source: str) -> Iterator[str]:
    """The imports, functions, classes and plain values of a cell; all else may train for minutes, and is left out."""
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef) or _is_a_plain_value(node):
            yield ast.get_source_segment(source, _with_decorators(node)) or ast.unparse(node)


def _is_a_plain_value(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    return all(isinstance(part, PLAIN) for part in ast.walk(node.value))


PLAIN = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.Load)


def _with_decorators(node: ast.stmt) -> ast.stmt:
    """The node, whose first line is that of its first decorator."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        node.lineno = node.decorator_list[0].lineno
    return node


def _check(node: ast.stmt, exercise: str) -> ast.expr | None:
    """The answer that a statement `ex.NAME.check(answer)` names."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and ast.unparse(call.func) == f"ex.{exercise}.check" and call.args:
        return call.args[0]
    return None


def _asks_the_exercise(node: ast.stmt) -> bool:
    """Whether a statement is a hint, a solution or another check, which prints and defines nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "ex." in ast.unparse(node.value.func)
