"""README.md and lesson 00 show the course map: its lessons in order, linked where written; the check sees a change."""

from __future__ import annotations

from pathlib import Path

import address
import book
import pytest
import tables
from samples import notebook, prose, save

from tfbook.course.lessons import Lesson

MARKED = "Before\n\n<!-- lessons -->\n\nold\n\n<!-- end of lessons -->\n\nAfter\n"
LESSONS = (
    Lesson(0, "start", "Start", "Ready?", 20, 1),
    Lesson(1, "attention", "Attention", "Can it look back?", None, 1),
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose tables are out of date."""
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "NOTEBOOKS", tmp_path)
    (tmp_path / "README.md").write_text(MARKED, encoding="utf-8")
    save(tmp_path / "00_start.ipynb", notebook(prose("# Start"), prose(MARKED)))
    return tmp_path


def test_the_tables_of_this_repository_are_in_step() -> None:
    tables.main(["--check"])


def test_both_tables(tree: Path) -> None:
    found = tables.outdated(LESSONS)
    assert found[tree / "README.md"] == (
        "Before\n\n<!-- lessons -->\n\n"
        "| | lesson | question | time | |\n"
        "|---|---|---|---|---|\n"
        f"| 00 | [Start](notebooks/00_start.ipynb) | Ready? | 20 min | {address.badge('00_start.ipynb')} |\n"
        "| 01 | Attention | Can it look back? | | planned |\n\n"
        "<!-- end of lessons -->\n\nAfter\n"
    )
    text = found[tree / "00_start.ipynb"]
    assert r"| 00 | [Start](00_start.ipynb) | Ready? | ready |\n" in text
    assert r"| 01 | Attention | Can it look back? | planned |\n" in text


def test_what_is_written_is_in_step(tree: Path) -> None:
    for path, text in tables.outdated(LESSONS).items():
        path.write_text(text, encoding="utf-8")
    assert tables.outdated(LESSONS) == {}


def test_the_check_names_the_files_and_changes_none(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "LESSONS", LESSONS)
    before = {path: path.read_bytes() for path in tree.iterdir()}
    with pytest.raises(SystemExit, match=r"the files above differ from tfbook/course/lessons.py"):
        tables.main(["--check"])
    assert capsys.readouterr().out.split() == ["README.md", "00_start.ipynb"]
    assert {path: path.read_bytes() for path in tree.iterdir()} == before
    tables.main([])
    tables.main(["--check"])
