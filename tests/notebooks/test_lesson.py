"""`make lesson` reports times and memory, changes nothing, and fails over budget or with a cell's traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lesson
import pytest
from samples import code, notebook, prose, save


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel counts as large as the process that starts it, and a process that runs tests may be over the limit."""
    monkeypatch.setattr(lesson, "peak_memory_gb", lambda: 1.0)


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str], small: None) -> None:
    path = save(tmp_path / "a.ipynb", notebook(prose("# T"), code("# first line\nx = 1"), code("x")))
    before = path.read_bytes()
    lesson.main([str(path)])
    name, first, second, total = capsys.readouterr().out.splitlines()
    assert name == "a.ipynb"
    assert first.split()[0] == "1"
    assert first.endswith(" s  # first line")
    assert second.split()[0] == "2"
    assert " s in 2 cells, the slowest " in total
    assert path.read_bytes() == before


def test_over_budget(tmp_path: Path, small: None) -> None:
    path = save(tmp_path / "a.ipynb", notebook(code("import time\ntime.sleep(0.3)")))
    with pytest.raises(SystemExit, match=r"too much: the lesson: 0\.\d s, allowed 0.2 s"):
        lesson.main([str(path), "--seconds", "0.2"])


def test_a_failing_cell_shows_its_traceback(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", notebook(code("def broken():\n    return 1 / 0\nbroken()"), code("2")))
    with pytest.raises(SystemExit, match=r"(?s)broken\(\).*ZeroDivisionError.*a.ipynb fails in the cell above"):
        lesson.main([str(path)])


@pytest.mark.parametrize(
    ("seconds", "peak", "complaints"),
    [
        ([30.0, 60.0], 2.0, []),
        ([31.0, 60.0], None, ["the lesson: 91.0 s, allowed 90 s"]),
        ([61.0], 1.0, ["its slowest cell: 61.0 s, allowed 60 s"]),
        ([], 2.1, ["its memory: 2.1 GB, allowed 2 GB"]),
    ],
)
def test_each_limit(seconds: list[float], peak: float | None, complaints: list[str]) -> None:
    assert lesson.excesses(seconds, peak, limit=90) == complaints


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count peak memory")
def test_the_memory_of_the_kernel_is_counted(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ipynb", notebook(code("block = bytearray(700_000_000)"), code("del block")))
    command = [sys.executable, lesson.__file__, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 0.7 < float(told.splitlines()[-1].split(" · ")[1].split()[0]) < 2
