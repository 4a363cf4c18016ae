"""`make tidy` lays out and folds a lesson without running it; the check changes nothing."""

from __future__ import annotations

from pathlib import Path

import book
import layout
import pytest
import tidy
from samples import code, notebook, save

LINE = "total = combine(first_argument, second_argument, third_argument, fourth_argument, fifth_argument)"
UNTIDY = notebook(code("import os\nx = 'a'", "kept\n", metadata={"scrolled": True}), code("2", execution_count=7))


def test_all_of_a_lesson_is_tidied_and_its_outputs_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "01_a.ipynb", UNTIDY)
    before = path.read_bytes()
    with pytest.raises(SystemExit, match="run `make tidy`"):
        tidy.main([str(path), "--check"])
    assert path.read_bytes() == before
    tidy.main([str(path)])
    tidy.main([str(path), "--check"])
    assert capsys.readouterr().out.splitlines() == ["01_a.ipynb", "01_a.ipynb", "all notebooks are tidy"]
    first, second = book.read(path).cells
    assert (first.source, first.metadata) == ('import os\n\nx = "a"', {})
    assert first.outputs[0].text == "kept\n"
    assert second.execution_count == 7


def test_code_is_laid_out_in_the_columns_of_a_notebook(tmp_path: Path) -> None:
    path = save(tmp_path / "01_a.ipynb", notebook(code(LINE)))
    tidy.main([str(path)])
    assert [len(line) <= book.COLUMNS for line in book.read(path).cells[0].source.splitlines()] == [True] * 3


def test_code_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(SyntaxError, match=r"cell\.py"):
        layout.laid_out("def f(:")


def test_every_notebook_of_this_repository_is_tidy() -> None:
    tidy.main(["--check"])
