"""Solved exercises, remembered on this machine with the answers that solved them. Nothing leaves it.

The file is the one that TFBOOK_PROGRESS names, else lies in TFBOOK_DATA or in the platform's folder for user data; the
answers lie beside it, in `answers.json`.
"""

from __future__ import annotations

import ast
import inspect
import json
import linecache
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfbook.course import notes
from tfbook.files import chosen_path, write_text


def progress_file() -> Path:
    """Where the solved exercises are noted. Raises FileNotFoundError when a variable names an unknown user's home."""
    if file := chosen_path("TFBOOK_PROGRESS"):
        return file
    if folder := chosen_path("TFBOOK_DATA"):
        return folder / "progress.json"
    from platformdirs import user_data_path

    return user_data_path("tfbook", appauthor=False) / "progress.json"


def answers_file() -> Path:
    """Where the answers are kept: beside the notes of what was solved."""
    return progress_file().with_name("answers.json")


def solved() -> dict[str, list[str]]:
    """Slug of a lesson → names of its solved exercises; empty where nothing legible was noted."""
    with suppress(OSError):
        return notes.read_notes(progress_file(), _lists_of_names)[0]
    return {}


def note(lesson: str, exercise: str) -> None:
    """Notes that an exercise was solved. A folder that cannot be written is no reason to fail."""
    with suppress(OSError):
        if exercise in solved().get(lesson, ()):
            return

        def add(known: notes.Notes) -> None:
            known[lesson] = sorted({*known.get(lesson, ()), exercise})

        notes.update_notes(progress_file(), _lists_of_names, add)


# ---- answers -----------------------------------------------------------------------------------------------------


def answers() -> dict[str, dict[str, str]]:
    """Slug of a lesson → exercise → the source of the last answer that was right; empty where none was kept."""
    with suppress(OSError):
        return notes.read_notes(answers_file(), _sources)[0]
    return {}


def keep(lesson: str, exercise: str, answer: Callable[..., Any]) -> None:
    """Keeps the source of a right answer; one without a source, or a folder that cannot be written, is left alone."""
    with suppress(OSError, TypeError):
        source = textwrap.dedent(inspect.getsource(answer))
        if source.startswith("def ") and answers().get(lesson, {}).get(exercise) != source:
            notes.update_notes(
                answers_file(), _sources, lambda known: known.setdefault(lesson, {}).update({exercise: source})
            )


def recalled(source: str, name: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """A kept answer as a function again, which sees `names`; its lines are shown where it raises.

    Raises ValueError where the source defines no function, and whatever the source raises.
    """
    source, file = under_name(source, name), f"<your {name} from before>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    namespace = dict(names)
    exec(compile(source, file, "exec"), namespace)  # the learner's own code, on their own machine
    return namespace[name]


def under_name(source: str, name: str) -> str:
    """An answer under the name of its exercise. Raises ValueError where it defines no function."""
    defined = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    if not defined:
        raise ValueError("the answer defines no function")
    last = defined[-1].name
    return source if last == name else f"{source.rstrip()}\n\n\n{name} = {last}\n"


def save_answers(path: str | Path = "my_answers.json") -> None:
    """Writes all kept answers to one file, to take along: from Colab, whose machine is forgotten, or to another one."""
    write_text(path, json.dumps(answers(), indent=1))
    print(f"{sum(map(len, answers().values()))} answers saved in {path}")


def load_answers(path: str | Path = "my_answers.json") -> None:
    """Adds the answers of such a file to those kept here, in place of earlier ones, and notes them as solved.

    Raises ValueError for a file that `save_answers` did not write, and OSError where it cannot be read.
    """
    found, whole = notes.read_notes(Path(path), _sources)
    if not whole or not Path(path).is_file():
        raise ValueError(f"{path} holds no answers; expected a file that save_answers has written")

    def add(known: notes.Notes) -> None:
        for lesson, sources in found.items():
            known[lesson] = known.get(lesson, {}) | sources

    notes.update_notes(answers_file(), _sources, add)
    for lesson, sources in found.items():
        for exercise in sources:
            note(lesson, exercise)
    print(f"{sum(map(len, found.values()))} answers loaded from {path}")


# ---- pieces of a page --------------------------------------------------------------------------------------------

_running: dict[tuple[str, str], str] = {}


def note_piece(lesson: str, exercise: str, whose: str) -> None:
    """Notes for this session, and nowhere else, whose version of a piece a page runs."""
    _running[lesson, exercise] = whose


def pieces_line() -> str:
    """One line on whose pieces this session's page runs; empty where it has asked for none."""
    pieces = ", ".join(f"{exercise} {whose}" for (_, exercise), whose in _running.items())
    return f"Pieces in this page's run: {pieces}." if pieces else ""


# ---- what the files should hold ----------------------------------------------------------------------------------


def _lists_of_names(found: Any) -> notes.Notes:
    lessons = found.items() if isinstance(found, dict) else ()
    return {slug: [each for each in names if isinstance(each, str)] for slug, names in lessons if type(names) is list}


def _sources(found: Any) -> notes.Notes:
    lessons = found.items() if isinstance(found, dict) else ()
    return {
        slug: {name: source for name, source in sources.items() if isinstance(source, str)}
        for slug, sources in lessons
        if type(sources) is dict
    }
