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


def test_the_hours_for_instructors_are_those_of_the_lessons(tree: Path) -> None:
    """Where that page exists; a planned lesson has none yet."""
    page = tree / "docs" / "teaching" / "index.md"
    page.parent.mkdir(parents=True)
    page.write_text(MARKED, encoding="utf-8")
    text = "*Reading 20 minutes · needs lessons [03](x) and [05](y)*\n\n### Exercise 1 · A ★☆☆ · 5 min\nDo."
    save(
        tree / "00_start.ipynb", notebook(prose("# Start"), prose(text), prose("### Exercise 2 · B ★★☆ · 20 min\nDo."))
    )
    assert tables.outdated(LESSONS)[page] == (
        "Before\n\n<!-- lessons -->\n\n"
        "| | lesson | reading | exercises | together | needs |\n"
        "|---|---|---:|---:|---:|---|\n"
        "| 00 | [Start](../../notebooks/00_start.ipynb) | 20 min | 2, 25 min | ¾ h | 03, 05 |\n"
        "| | all | ¼ h | 2, ½ h | ¾ h | |\n\n"
        "<!-- end of lessons -->\n\nAfter\n"
    )
    page.with_name("paths.md").write_text("**Lessons** 00 · reading old\n", encoding="utf-8")
    found = tables.outdated(LESSONS)[page.with_name("paths.md")]
    assert found == "**Lessons** 00 · reading ¼ h, with exercises ¾ h\n"


def test_a_lesson_ends_with_the_next_one_that_is_written(tree: Path) -> None:
    """And with the map; below the mark whatever stood there goes."""
    written = (*LESSONS, Lesson(2, "later", "Later", "And then?", 30, 1), Lesson(3, "last", "Last", "The end?", 30, 1))
    for name in ("02_later", "03_last"):
        save(tree / f"{name}.ipynb", notebook(prose("# Title"), prose("Text.\n\n<!-- next -->\nold\n\nold")))
    for path, text in tables.outdated(written).items():
        path.write_text(text, encoding="utf-8")
    ends = [book.read(tree / f"{name}.ipynb").cells[-1].source for name in ("02_later", "03_last")]
    assert ends == [
        "Text.\n\n<!-- next -->\n\n**Next:** [03 · Last](03_last.ipynb) The end? · [All lessons](00_start.ipynb)",
        "Text.\n\n<!-- next -->\n\n[All lessons](00_start.ipynb)",
    ]
    assert tables.next_line(written, 0) == "**Next:** [02 · Later](02_later.ipynb) And then?"


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
