"""The measure of a lesson counts what a reader meets, and writes the minutes of the core under the title."""

from pathlib import Path

import measure
import pytest
from figures import Figure, figures
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, writes

from tfbook.course.claims import MIME

PICTURE = '<figure class="tfbook-figure{}"><img alt="a &amp; b" src="data:image/png;base64,QUJD"></figure>'
BARE = {"data": {"image/png": "QUJD"}, "metadata": {"image/png": {"alt": "a & b", "schematic": True}}}
FACTS = "Core: 70 minutes · exercises: 9 minutes · runs in a minute"


def lesson() -> NotebookNode:
    """A core with a figure that was drawn, claims and a visible cell, and an exercise within; then exercises."""
    figure = new_output("display_data", data={"text/html": PICTURE.format(" schematic"), "text/plain": "a & b"})
    claims = new_output("display_data", data={MIME: [{}, {}], "text/plain": ""})
    return new_notebook(
        cells=[
            new_markdown_cell(f"# 01 · A title\n\n*{FACTS}*\n\nfour words stand here"),
            new_code_cell("# @title Setup: run this cell first\nimport sys"),
            new_code_cell(
                "# @title Imports\nimport a\nfrom a import b\nfrom c import d\n\nplot.style()\nhere = runtime.setup(1)"
            ),
            new_code_cell("width = runtime.pick(quick=1, cpu=2)"),
            new_markdown_cell("## One\n$x = y$ and\n\n```\ncode here\n```\n| a | table |"),
            new_code_cell("x = 1\ny = 2", outputs=[figure]),
            new_code_cell("study.CLAIMS.table()", outputs=[claims]),
            new_markdown_cell("### Before\nof the core\n### Exercise 1 · Words ★☆☆ · 5 min\nnot of the core"),
            new_code_cell("study.CLAIMS.check({1: 2})\nex.words.check(words)"),
            new_markdown_cell("read on"),
            new_markdown_cell("## Two\nmore"),
            new_markdown_cell("## Exercises\nor this"),
            new_markdown_cell("### After\nor that"),
        ]
    )


def test_the_core_is_counted_without_what_is_collapsed_and_without_exercises() -> None:
    core, rest = map(measure.measure, measure.core_and_rest(lesson()))
    words = 27  # of the title, the line of facts, the text and three headings
    assert core == measure.Measure(words, lines=2, cells=10, figures=1, schematics=1, claims=2, minutes=2)
    assert (rest.cells, rest.figures, rest.claims) == (4, 0, 0)


def test_the_minutes_are_written_under_the_title(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounded to five, of the core alone."""
    path, notebook = tmp_path / "01_a.ipynb", lesson()
    notebook.cells[4].source += "\nword" * 2000
    path.write_text(writes(notebook), encoding="utf-8")
    measure.main([str(path), "--write"])
    assert "*Core: 10 minutes · exercises: 5 minutes · runs in a minute*" in path.read_text(encoding="utf-8")
    assert measure.stated_minutes(measure.read(path)) == (10, 5)
    assert "01_a" in capsys.readouterr().out


def test_figures_are_found_in_html_and_as_images() -> None:
    """An answer that is folded away may hold several, and text between them."""
    several = f"<details>{PICTURE.format('')}<p>text</p>{PICTURE.format(' schematic')}</details>"
    found = figures(new_output("display_data", data={"text/html": several}))
    assert found == [Figure("a & b", b"ABC", schematic=False), Figure("a & b", b"ABC", schematic=True)]
    assert figures(new_output("display_data", **BARE)) == [Figure("a & b", b"ABC", schematic=True)]
    assert figures(new_output("stream", text="<img>")) == []


def test_the_words_and_figures_of_an_answer_are_counted() -> None:
    """The explanation without its formulas and tables, and not what the cell printed."""
    explanation = (
        '<p>It <em>grows</em> &amp; falls, <math display="inline"><mi>a</mi><mo>+</mo><mi>b</mi></math> so</p>'
        "<table><tr><td>1</td></tr></table>"
        '<math display="block"><mi>x</mi>\n</math>\n<ul>\n<li>far.</li></ul>\n'
    )
    page = f'<details><pre>not these</pre>{PICTURE}<div class="tfbook-explanation">\n{explanation}</div></details>'
    output = new_output("display_data", data={"text/html": page, "text/plain": "not these"})
    found = measure.measure([new_code_cell('with study.answer("a"):\n    print(1)', outputs=[output])])
    assert (found.words, found.figures, found.lines) == (5, 1, 2)
