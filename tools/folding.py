"""Collapses what a reader need not see at once, in JupyterLab and in Colab; the file says which cells.

The source of the setup cell, of imports, of the hyperparameters and of long woven cells; the output that answers a
Predict box; the sections of "Going further". Nothing else is collapsed, so that the file depends on its text alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from book import SETUP, TITLE, WOVEN, first_line
from nbformat import NotebookNode

LONG = 20  # lines: a woven cell with more is collapsed
FURTHER = "Going further"
PREDICT = re.compile(r"^> \*\*Predict\*\*.*(?:\n>.*)*\s*\Z", re.MULTILINE)  # the box that ends a Markdown cell
ANSWERS = "with study.answer("  # begins what shows its outputs closed
SECTION = re.compile(r"(##|###) +(.+?) *$", re.MULTILINE)
COLLAPSED = ("jupyter", "collapsed", "cellView", "jp-MarkdownHeadingCollapsed")


def fold(notebook: NotebookNode) -> None:
    """Collapses cells in place, by their metadata and by the title that stands for a hidden source."""
    for cell in notebook.cells:
        for name in COLLAPSED:
            cell.metadata.pop(name, None)
        if cell.cell_type == "code":
            _fold_source(cell)
    for cell in _answers(notebook):
        cell.metadata.setdefault("jupyter", NotebookNode())["outputs_hidden"] = True
        cell.metadata["collapsed"] = True
    _fold_sections(notebook)


def title(cell: NotebookNode) -> str | None:
    """The line that stands for the cell's source while it is collapsed; None for a source that is shown."""
    if woven := WOVEN.fullmatch(first_line(cell)):
        return woven[1] if cell.source.count("\n") >= LONG else None
    if first_line(cell).startswith(SETUP):
        return first_line(cell).removeprefix(TITLE)
    if "runtime.pick(" in cell.source:
        return "Hyperparameters"
    return "Imports" if _imports(cell.source) else None


def _imports(source: str) -> bool:
    """Whether most statements are imports, as in the cell that ends with `plot.style()` and `runtime.setup()`."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic of IPython
        return False
    return 2 * sum(isinstance(each, ast.Import | ast.ImportFrom) for each in statements) > len(statements)


def _fold_source(cell: NotebookNode) -> None:
    name = title(cell)
    if woven := WOVEN.fullmatch(first_line(cell)):
        cell.source = f"{TITLE if name else '# '}{woven[1]}{cell.source[woven.end() :]}"
    elif name and not cell.source.startswith(TITLE):
        cell.source = f"{TITLE}{name}\n{cell.source}"
    if name:
        cell.metadata["jupyter"] = NotebookNode(source_hidden=True)
        cell.metadata["cellView"] = "form"


def _answers(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """After each Predict box the first cell that shows something openly, unless an error or after other text."""
    asked = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            asked = PREDICT.search(cell.source) is not None
        elif asked and ANSWERS in cell.source:
            asked = False
        elif asked and cell.outputs:
            asked = False
            if all(output.output_type != "error" for output in cell.outputs):
                yield cell


def _fold_sections(notebook: NotebookNode) -> None:
    """Collapses the headings of "Going further" that begin a cell; Colab lists them in the notebook's metadata."""
    inside, folded = False, []
    for cell in notebook.cells:
        section = SECTION.match(cell.source) if cell.cell_type == "markdown" else None
        if section and section[1] == "##":
            inside = section[2] == FURTHER
        if section and inside:
            cell.metadata["jp-MarkdownHeadingCollapsed"] = True
            folded.append(cell.id)
    if "colab" in notebook.metadata:
        notebook.metadata.colab.pop("collapsed_sections", None)
        if folded:
            notebook.metadata.colab["collapsed_sections"] = folded
