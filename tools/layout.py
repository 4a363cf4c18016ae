"""Lays out code with ruff in the columns of a notebook: `ruff format` has one width, that of modules."""

from __future__ import annotations

import subprocess
import sys

import nbformat
from book import COLUMNS, ROOT
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook


def lay_out(notebook: NotebookNode) -> None:
    """Lays out the code cells in place. Raises SyntaxError for a cell that is not Python."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    bare = new_notebook(cells=[new_code_cell(cell.source) for cell in cells])
    bare.metadata.language_info = {"name": "python"}
    text = _format(nbformat.writes(bare), "lesson.ipynb")
    for cell, laid_out in zip(cells, nbformat.reads(text, as_version=4).cells, strict=True):
        cell.source = laid_out.source


def laid_out(source: str) -> str:
    """The source as it stands in a cell, without the line break at the end. Raises SyntaxError."""
    return _format(source, "cell.py").rstrip()


def _format(text: str, name: str) -> str:
    """The source as ruff formats a file with this name."""
    command = [sys.executable, "-m", "ruff", "format", f"--line-length={COLUMNS}", f"--stdin-filename={name}", "-"]
    ruff = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, encoding="utf-8", check=False)
    if ruff.returncode:
        raise SyntaxError(ruff.stderr)
    return ruff.stdout
