"""Slides of a lesson: which cells they take, where answers stand, and a presentation that needs no network."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import book
import pytest
import slides
from nbformat import v4
from slides import Slide

from tfbook.data import download

[LESSON] = book.lessons(["01"])


@pytest.fixture(scope="module")
def found() -> list[Slide]:
    """The slides of lesson 01."""
    return slides.slides(book.read(LESSON))


def test_every_section_of_the_core_begins_a_column(found: list[Slide]) -> None:
    """In the order of the page; exercises at the end and what follows are left out."""
    titles = [slide.where for slide in found if slide.begins]
    assert titles[0].startswith("01 · ")
    assert [title[:2] for title in titles if title[1:2] == "."] == [f"{n}." for n in range(1, 9)]
    assert titles[-1] == "What to remember"
    assert not [title for title in titles if title.startswith(("Exercises", "Going further", "Common"))]


def test_every_figure_of_the_core_is_there_once(found: list[Slide]) -> None:
    """And no other."""
    pictures = re.compile(r'<img alt="([^"]*)"')
    cells = [cell for cell in slides.core(book.read(LESSON)) if cell.cell_type == "code"]
    outputs = [output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs]
    expected = [alt for page in outputs for alt in pictures.findall(page)]
    assert [alt for slide in found for page in slide.shown for alt in pictures.findall(page)] == expected
    assert len(expected) >= 8


def test_an_answer_comes_below_its_prediction_and_is_open(found: list[Slide]) -> None:
    """Never on the same slide; its explanation is for the speaker."""
    predictions = [place for place, slide in enumerate(found) if "<strong>Predict</strong>" in "".join(slide.shown)]
    assert len(predictions) >= 5
    for place in predictions:
        asked, answer = found[place : place + 2]
        assert len(asked.shown) == 1
        assert "<details" not in "".join(answer.shown)
        assert 'class="tfbook-explanation"' in "".join(answer.notes)
        assert 'class="tfbook-explanation"' not in "".join(answer.shown)


def test_formulas_stand_on_slides_and_prose_in_the_notes(found: list[Slide]) -> None:
    """Formulas are MathML. A slide has at most a sentence of prose before its figure; code is short."""
    pages = ["".join(slide.shown) for slide in found]
    assert sum('display="block"' in page for page in pages) >= 2
    code_or_view = re.compile(r"<pre>.*?</pre>|<script>.*?</script>", re.DOTALL)
    assert [page for page in pages if "$" in code_or_view.sub("", page)] == []
    code = [block for page in pages for block in re.findall(r"<code>(.*?)</code></pre>", page, re.DOTALL)]
    assert code
    assert max(len([line for line in block.splitlines() if line.strip()]) for block in code) <= slides.MOST_LINES
    assert sum(len(slide.notes) for slide in found) > 30


def test_exercises_are_named_and_not_solved() -> None:
    """The stub, its check and what the page picks are not shown."""
    notebook = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# 00 · Title\n\nA first sentence. A second one."),
            v4.new_markdown_cell("## 1. Begin\n\nText.\n\n### Exercise 1 · Add ★☆☆ · 5 min\nAdd two numbers."),
            v4.new_code_cell("def add(a, b):\n    return ...\n\n\nex.add.check(add)"),
            v4.new_code_cell("def short(a):\n    return a"),
        ]
    )
    shown = [slide.shown for slide in slides.slides(notebook)]
    assert [len(each) for each in shown] == [2, 2, 1, 1]
    assert shown[0][1] == "<p>A first sentence.</p>"
    assert "Exercise 1 · Add" in shown[2][0]
    assert "def short" in shown[3][0]


def test_the_presentation_needs_no_network() -> None:
    """reveal.js and its notes come from the folder beside; nothing else is loaded."""
    pytest.importorskip("nbconvert")
    page = slides.presentation(LESSON, "reveal.js")
    loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]*)"', page)
    assert {each for each in loaded if not each.startswith("data:")} == {
        "reveal.js/dist/reveal.css",
        "reveal.js/dist/theme/white.css",
        "reveal.js/dist/reveal.js",
        "reveal.js/plugin/notes/notes.js",
    }
    assert page.count('<aside class="notes">') > 10


def test_reveal_js_is_brought_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what slides need is taken out of the archive, and nothing leaves the folder."""
    (tmp_path / "file").write_text("text", encoding="utf-8")
    with tarfile.open(tmp_path / "reveal.tgz", "w:gz") as archive:
        for name in ("package/dist/reveal.js", "package/plugin/notes/notes.js", "package/test/x.js", "package/../y.js"):
            archive.add(tmp_path / "file", name)
    monkeypatch.setattr(slides, "fetch", lambda file: tmp_path / "reveal.tgz")
    slides.bring_reveal(tmp_path / "out")
    taken = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.js"))
    assert taken == ["dist/reveal.js", "plugin/notes/notes.js"]


def test_without_reveal_js_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what can be done instead."""

    def fail(file: download.File) -> Path:
        raise download.DataUnavailable("no network")

    monkeypatch.setattr(slides, "fetch", fail)
    monkeypatch.setattr("sys.argv", ["slides.py", "01", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"no network\nWith --cdn"):
        slides.main()
