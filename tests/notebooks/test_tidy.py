"""`make tidy` lays out and folds a lesson without running it, each at its width; the check changes nothing."""

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


def test_a_lesson_taught_anew_is_laid_out_narrowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "TAUGHT_ANEW", {"new"})
    for name, lines in (("01_old.ipynb", 1), ("02_new.ipynb", 3)):
        path = save(tmp_path / name, notebook(code(LINE)))
        tidy.main([str(path)])
        assert book.read(path).cells[0].source.count("\n") + 1 == lines


def test_code_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(SyntaxError, match=r"cell\.py"):
        layout.laid_out("def f(:", 95)


def test_every_notebook_of_this_repository_is_tidy() -> None:
    tidy.main(["--check"])
