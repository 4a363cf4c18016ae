"""What a lesson shows of the others is renewed without a run: the map of the course, and lesson 08's search."""

from __future__ import annotations

import re
from pathlib import Path

import book
import others
import pytest
from samples import code, notebook, prose, save

from tfbook.course import progress, solved


def paragraph(advice: str) -> str:
    """A paragraph that is long enough to be found."""
    return f"Whoever asks how to make generated text less boring reads that {advice}. " + "It goes on and on. " * 8


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lesson 06 says what a search would find; lesson 08 has searched before, and has drawn an old map."""
    monkeypatch.setattr(book, "NOTEBOOKS", tmp_path)
    save(tmp_path / "06_decoding.ipynb", notebook(prose(paragraph("temperature helps")), prose("A" + 200 * "b")))
    before = "MiniLM could not be fetched.\n\ncounted words:\n  05 · Old: Old …\n  04 · Older: Old …\n"
    searched = code("passages = study.course_passages()\nprint(study.answers(passages))", before)
    drawn = code("progress.print_course()", "I · Attention\n  00 Start here\n\nPieces: none.\nCopy them.\n")
    save(tmp_path / "08_bert_masking.ipynb", notebook(prose("# 08 · Title"), searched, drawn, code("print(1)", "2\n")))
    return tmp_path


def texts(folder: Path) -> list[str]:
    """What the cells of lesson 08 show."""
    return [out.text for cell in book.read(folder / "08_bert_masking.ipynb").cells for out in cell.get("outputs", ())]


def test_the_map_counts_the_exercises_that_there_are_and_the_rest_stays(shelf: Path) -> None:
    others.main([])
    assert texts(shelf)[1] == "\n".join(progress.course_lines({})) + "\n\nPieces: none.\nCopy them.\n"
    assert texts(shelf)[2] == "2\n"


def test_it_is_what_the_cell_prints(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFBOOK_PROGRESS", str(shelf / "nothing.json"))
    monkeypatch.setattr(solved, "_running", {})
    progress.print_course()
    printed = capsys.readouterr().out
    path = save(shelf / "01_bahdanau_attention.ipynb", notebook(code("progress.print_course()", printed)))
    assert others.renewed(book.read(path), shelf) == book.read(path)


def test_the_search_finds_what_the_lessons_say_now(shelf: Path) -> None:
    others.main([])
    first = paragraph("temperature helps")[:150]
    assert texts(shelf)[0].startswith(f"MiniLM could not be fetched.\n\ncounted words:\n  06 · Decoding: {first} …\n")
    assert "Old" not in texts(shelf)[0]
    others.main(["--check"])


def test_the_check_names_the_notebooks_and_changes_none(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (shelf / "08_bert_masking.ipynb").read_bytes()
    with pytest.raises(SystemExit, match=r"show other lessons as they were: run `python tools/others.py`"):
        others.main(["--check"])
    assert capsys.readouterr().out.split() == ["08_bert_masking.ipynb"]
    assert (shelf / "08_bert_masking.ipynb").read_bytes() == before


def test_another_text_in_another_lesson_makes_the_search_stale(shelf: Path) -> None:
    others.main([])
    save(shelf / "06_decoding.ipynb", notebook(prose(paragraph("top-p helps")), prose("A" + 200 * "b")))
    with pytest.raises(SystemExit, match="as they were"):
        others.main(["--check"])


def test_nothing_else_in_a_lesson_looks_at_the_others() -> None:
    """What does would have to be renewed, too."""
    looks = re.compile(r"course\.(lessons|progress|solved)\b|\bLESSONS\b|\.ipynb|README\.md|CLAIMS\.md")
    modules = {
        path.relative_to(book.ROOT / "tfbook" / "lessons").as_posix()
        for path in (book.ROOT / "tfbook" / "lessons").rglob("*.py")
        if looks.search(path.read_text(encoding="utf-8"))
    }
    assert modules == {"bert_masking/search.py"}
    asked = {
        call
        for path in book.lessons()
        for cell in book.read(path).cells
        if cell.cell_type == "code"
        for call in re.findall(r"\bprogress\.\w+\(\)", cell.source)
    }
    assert asked == {others.MAP}
