"""Woven cells hold the package's source, the setup cell its file, and a wrong name is reported with its cell."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import layout
import pytest
import weave
from samples import code, notebook, prose, save

import tfbook.runtime as runtime

SEED = f"# tfbook.runtime.seed\n{inspect.getsource(runtime.seed).rstrip()}"


def test_a_function_a_class_a_method_and_a_cached_function_are_woven() -> None:
    assert weave.source_of("tfbook.runtime.seed").startswith("def seed(number: SupportsIndex) -> None:")
    assert weave.source_of("tfbook.runtime.Runtime").startswith("@dataclass(frozen=True, kw_only=True)\nclass Runtime:")
    assert weave.source_of("tfbook.runtime.Runtime.__str__").startswith("def __str__(self) -> str:\n    name")
    assert weave.source_of("tfbook.runtime.device").startswith("@cache\ndef device()")


def test_only_woven_cells_change() -> None:
    own = "# tfbook.runtime.seed is called below\nseed(1)"
    page = notebook(
        prose("# tfbook.runtime.seed"), code(own), code("# tfbook.runtime.seed\nold", "kept\n"), code(weave.SETUP)
    )
    assert weave.weave(page) == ["cell 2: # tfbook.runtime.seed", f"cell 3: {weave.first_line(page.cells[3])}"]
    assert [cell.source for cell in page.cells[:3]] == ["# tfbook.runtime.seed", own, SEED]
    assert page.cells[2].outputs[0].text == "kept\n"
    assert page.cells[3].source == weave.SETUP_CELL.read_text(encoding="utf-8").rstrip()
    assert weave.weave(page) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tfbook.runtime.sed", "tfbook.runtime.sed does not exist .*no attribute 'sed'"),
        ("tfbook.nowhere.seed", "tfbook.nowhere.seed does not exist"),
        ("tfbook.runtime", "tfbook.runtime is a module; only a class, function or method has source"),
        ("tfbook.runtime.SCALES", "tfbook.runtime.SCALES is a tuple"),
    ],
)
def test_a_name_without_source_is_reported_with_its_cell(tmp_path: Path, name: str, message: str) -> None:
    path = save(tmp_path / "a.ipynb", notebook(prose("text"), code(f"# {name}\n")))
    with pytest.raises(SystemExit, match=f"a.ipynb, cell 1: {message}"):
        weave.weave_all([path], check=False)


def test_check_lists_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "a.ipynb", notebook(code("# tfbook.runtime.seed\nold")))
    before = path.read_bytes()
    with pytest.raises(SystemExit, match="run `make weave`"):
        weave.main([str(path), "--check"])
    assert capsys.readouterr().out == "a.ipynb, cell 0: # tfbook.runtime.seed\n"
    assert path.read_bytes() == before


def test_weaving_writes_and_then_agrees(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", notebook(code("# tfbook.runtime.seed\nold")))
    weave.main([str(path)])
    weave.main([str(path), "--check"])
    assert "def seed" in path.read_text(encoding="utf-8")


def test_a_collapsed_cell_keeps_its_title() -> None:
    page = notebook(code("# @title tfbook.runtime.seed\nold"))
    assert weave.weave(page) == ["cell 0: # @title tfbook.runtime.seed"]
    assert page.cells[0].source == SEED.replace("# ", "# @title ", 1)


def test_the_source_is_laid_out_in_the_columns_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "COLUMNS", 60)
    woven = notebook(code("# tfbook.attention.masks.padding_mask"))
    weave.weave(woven)
    assert "def padding_mask(\n    lengths" in woven.cells[0].source
    wide = ast.parse(weave.source_of("tfbook.attention.masks.padding_mask"))
    assert ast.dump(ast.parse(woven.cells[0].source)) == ast.dump(wide)
    assert weave.weave(woven) == []
