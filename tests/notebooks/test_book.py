"""Lessons are found by number or slug; notebooks are written as Jupyter writes them, and run in a given folder."""

from __future__ import annotations

from pathlib import Path

import book
import pytest
from nbclient.exceptions import CellExecutionError, DeadKernelError
from samples import code, notebook, prose, save


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with lessons 00 and 01, and files that are none."""
    for name in ("01_b.ipynb", "00_a.ipynb", "draft.ipynb", "conftest.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(book, "NOTEBOOKS", tmp_path)
    return tmp_path


def test_lessons_are_found_by_number_slug_or_path(shelf: Path) -> None:
    assert [path.name for path in book.lessons()] == ["00_a.ipynb", "01_b.ipynb"]
    assert [path.name for path in book.lessons(["1"])] == ["01_b.ipynb"]
    assert [path.name for path in book.lessons(["b", "00"])] == ["01_b.ipynb", "00_a.ipynb"]
    assert book.lessons([str(shelf / "draft.ipynb")]) == [shelf / "draft.ipynb"]


def test_an_unknown_lesson_is_named(shelf: Path) -> None:
    with pytest.raises(SystemExit, match="no lesson '07'; expected a path or one of 00, a, 01, b"):
        book.lessons(["07"])


def test_no_lesson_at_all_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "NOTEBOOKS", tmp_path)
    with pytest.raises(SystemExit, match="holds no lesson"):
        book.lessons()


def test_writing_what_was_read_changes_no_byte(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", notebook(prose("# Été → ∑"), code("print(1)\n2", "1\n")))
    before = path.read_bytes()
    book.write(path, book.read(path))
    assert path.read_bytes() == before
    assert before.startswith(b'{\n "cells"')
    assert before.endswith(b"}\n")
    assert "Été → ∑".encode() in before


def test_cells_run_in_the_folder_and_are_timed(tmp_path: Path) -> None:
    (tmp_path / "here.txt").touch()
    ran = []
    lesson = notebook(code("import os, time\ntime.sleep(0.1)\nos.listdir()"), prose("text"), code("os.environ['MARK']"))
    book.execute(
        lesson,
        tmp_path,
        lambda cell, seconds: ran.append((cell.execution_count, seconds)),
        environment={**book.os.environ, "MARK": "set"},
    )
    assert [count for count, _ in ran] == [1, 2]
    assert ran[0][1] >= 0.1
    assert lesson.cells[0].outputs[0].data["text/plain"] == "['here.txt']"
    assert lesson.cells[2].outputs[0].data["text/plain"] == "'set'"
    assert "execution" not in lesson.cells[0].metadata


@pytest.mark.parametrize(
    ("source", "error"), [("1 / 0", CellExecutionError), ("import os; os._exit(1)", DeadKernelError)]
)
def test_a_failing_cell_raises(tmp_path: Path, source: str, error: type[Exception]) -> None:
    assert error in book.EXECUTION_ERRORS
    with pytest.raises(error):
        book.execute(notebook(code(source)), tmp_path)
