"""`make notebooks` leaves in a notebook what is the same after every run, and touches none in which a cell fails."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
import pytest
from samples import WIDGET, code, display, mimebundle, notebook, prose, save, stream

import notebooks

LESSON = """
import sys
import matplotlib.pyplot as plt
from tqdm.auto import tqdm
for _ in tqdm(range(3)):
    pass
for _ in tqdm(iter("ab"), file=sys.stderr, desc="count"):
    pass
plt.plot([1, 2])
plt.show()
"""
BARS = "step:  50%|#####     | 3/6 [00:01<00:01,  2.9step/s]\rstep: 100%|##########| 6/6 [00:02<00:00,  2.9step/s]\n"


def test_two_runs_leave_the_same_bytes(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", notebook(prose("# Été"), code("%matplotlib inline" + LESSON), code("1 + 1")))
    identities = [cell.id for cell in nbformat.read(path, as_version=4).cells]
    notebooks.refresh(path, tmp_path)
    first = path.read_bytes()
    notebooks.refresh(path, tmp_path)
    assert path.read_bytes() == first
    book = nbformat.read(path, as_version=4)
    assert [cell.id for cell in book.cells] == identities
    assert [cell.execution_count for cell in book.cells[1:]] == [1, 2]
    assert [list(output.data) for output in book.cells[1].outputs] == [["image/png", "text/plain"]]
    assert b"tEXt" not in base64.b64decode(book.cells[1].outputs[0].data["image/png"])
    assert "widgets" not in book.metadata
    assert "version" not in book.metadata.language_info
    assert book.metadata.language_info.name == "python"


def test_lessons_run_at_scale_cpu_with_the_mirror_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFBOOK_SCALE", "quick")
    monkeypatch.setenv("TFBOOK_MIRROR", "somewhere")
    path = save(
        tmp_path / "a.ipynb", notebook(code("import os\nos.environ['TFBOOK_SCALE'], os.environ['TFBOOK_MIRROR']"))
    )
    notebooks.refresh(path, tmp_path)
    assert "('cpu', 'somewhere')" in path.read_text(encoding="utf-8")


def test_a_failing_lesson_stays_as_it_was_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = save(tmp_path / "bad.ipynb", notebook(code("print(1)"), code("1 / 0")))
    good = save(tmp_path / "good.ipynb", notebook(code("print(2)")))
    before = bad.read_bytes()
    with pytest.raises(SystemExit, match=r"not refreshed: bad.ipynb"):
        notebooks.main([str(bad), str(good)])
    printed = capsys.readouterr().out
    assert "bad.ipynb fails and was not changed" in printed
    assert "ZeroDivisionError" in printed
    assert bad.read_bytes() == before
    assert nbformat.read(good, as_version=4).cells[0].outputs[0].text == "2\n"


def test_progress_goes_and_warnings_stay() -> None:
    outputs = [
        stream(BARS, "stderr"),
        stream("count: 2it [00:00, 12483.05it/s]\n", "stderr"),
        stream("3steps [00:03, 1.1steps/s]\x1b[A\n", "stderr"),
        mimebundle({WIDGET: {"model_id": "1"}, "text/plain": "  0%|"}),
        stream(BARS + "UserWarning: look out\n", "stderr"),
        stream("50%| printed\n"),
        display(text_plain="1"),
    ]
    book = notebook(code("1", *outputs))
    notebooks.normalize(book)
    assert book.cells[0].outputs == outputs[4:]


def test_editors_leave_nothing_behind() -> None:
    book = notebook(code("1", metadata={"tags": ["a"], "execution": {}, "scrolled": True, "outputId": "x"}))
    book.metadata.update(widgets={}, colab={}, vscode={}, language_info={"name": "python", "version": "3"})
    notebooks.normalize(book)
    assert book.cells[0].metadata == {"tags": ["a"]}
    assert sorted(book.metadata) == ["colab", "kernelspec", "language_info"]
    assert book.metadata.language_info == {"name": "python"}
