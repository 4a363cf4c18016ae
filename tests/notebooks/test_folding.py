"""What is collapsed when a lesson opens: decided by its text alone, in the metadata that JupyterLab and Colab read."""

from __future__ import annotations

import nbformat
import pytest
import weave
from folding import LONG, fold, title
from nbformat import NotebookNode
from samples import code, notebook, prose

PREDICT = "Text.\n\n> **Predict** What comes,\n> and why?"
HIDDEN_SOURCE = {"jupyter": {"source_hidden": True}, "cellView": "form"}
HIDDEN_OUTPUT = {"jupyter": {"outputs_hidden": True}, "collapsed": True}
SETUP = weave.SETUP_CELL.read_text(encoding="utf-8").rstrip()


def folded(*cells: NotebookNode, **metadata: object) -> NotebookNode:
    book = notebook(*cells)
    book.metadata.update(metadata)
    fold(book)
    return book


def woven(lines: int, mark: str = "# ") -> str:
    return "\n".join([f"{mark}tfbook.runtime.seed", *["pass"] * (lines - 1)])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SETUP, SETUP),
        ("import a\nfrom b import c\n\nd()", "# @title Imports\nimport a\nfrom b import c\n\nd()"),
        ("x = runtime.pick(quick=1)", "# @title Hyperparameters\nx = runtime.pick(quick=1)"),
        ("# @title Sizes\nx = runtime.pick(quick=1)", "# @title Sizes\nx = runtime.pick(quick=1)"),
        (woven(LONG + 1), woven(LONG + 1, "# @title ")),
        (woven(LONG + 1, "# @title "), woven(LONG + 1, "# @title ")),
    ],
    ids=["setup", "imports", "sizes", "sizes with a title", "long woven", "long woven again"],
)
def test_a_source_is_collapsed_under_a_title(source: str, expected: str) -> None:
    [cell] = folded(code(source)).cells
    assert cell.source == expected
    assert cell.metadata == HIDDEN_SOURCE
    assert title(cell) is not None


@pytest.mark.parametrize("source", ["import a\na.b()", "x = 1", "%matplotlib inline\nimport a", woven(LONG)])
def test_other_sources_are_shown(source: str) -> None:
    [cell] = folded(code(source, metadata=dict(HIDDEN_SOURCE))).cells
    assert (cell.source, cell.metadata) == (source, {})


def test_a_woven_cell_that_became_short_loses_its_title() -> None:
    [cell] = folded(code(woven(LONG, "# @title "), metadata=dict(HIDDEN_SOURCE))).cells
    assert (cell.source, cell.metadata) == (woven(LONG), {})


def test_the_answer_to_a_prediction_is_collapsed_and_nothing_else() -> None:
    """The answer is what is shown first; a definition on the way shows nothing."""
    shows = [code(f"f({x})", f"{x}\n") for x in range(3)]
    book = folded(prose(PREDICT), code("def f(x): ..."), shows[0], shows[1], prose("Text."), shows[2])
    assert [cell.metadata for cell in book.cells] == [{}, {}, HIDDEN_OUTPUT, {}, {}, {}]


@pytest.mark.parametrize(
    "cells",
    [
        (prose(f"{PREDICT}\n\nMore text."), code("1", "1\n")),
        (prose(PREDICT), prose("Text."), code("1", "1\n")),
        (prose(PREDICT), code('with study.answer("a"):\n    print(1)', "1\n")),
        (prose(PREDICT), code('with study.answer("a"):\n    print(1)'), code("1", "1\n")),
        (prose("> Predict"), code("1", "1\n")),
        (prose(PREDICT), code("1 / 0", nbformat.v4.new_output("error", ename="ZeroDivisionError"))),
    ],
    ids=[
        "the box does not end its cell",
        "text comes between",
        "it is closed itself",
        "it was closed before",
        "another box",
        "an error",
    ],
)
def test_other_outputs_are_shown(cells: tuple[NotebookNode, ...]) -> None:
    cells[-1].metadata.update(HIDDEN_OUTPUT)
    assert folded(*cells).cells[-1].metadata == {}


def test_a_long_woven_answer_is_collapsed_twice() -> None:
    cell = folded(prose(PREDICT), code(woven(30), "1\n")).cells[1]
    assert cell.metadata.jupyter == {"source_hidden": True, "outputs_hidden": True}


def test_the_headings_of_going_further_are_collapsed() -> None:
    sections = ["## Going further\n\nText.", "### A proof", "Text.\n\n### In a text", "#### Deeper", "### History"]
    book = folded(
        prose("## 1. Start"), prose("### Part"), *map(prose, [*sections, "## References"]), colab={"provenance": []}
    )
    collapsed = [cell for cell in book.cells if cell.metadata == {"jp-MarkdownHeadingCollapsed": True}]
    assert [cell.source.split("\n")[0] for cell in collapsed] == ["## Going further", "### A proof", "### History"]
    assert book.metadata.colab.collapsed_sections == [cell.id for cell in collapsed]
    book.cells[2].source = "## More"
    fold(book)
    assert "collapsed_sections" not in book.metadata.colab
    assert all(cell.metadata == {} for cell in book.cells)


def test_folding_twice_changes_nothing() -> None:
    book = folded(code(SETUP), code("import a"), prose(PREDICT), code(woven(30), "1\n"), prose("## Going further"))
    before = nbformat.writes(book)
    fold(book)
    assert nbformat.writes(book) == before
