"""Notebooks for the tests, made cell by cell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

IGNORED, VARIES, OFFLINE = ({"tags": [tag]} for tag in ("nbval-ignore-output", "varies", "offline"))
WIDGET = "application/vnd.jupyter.widget-view+json"
NEVER = 0  # as execution count of a cell that has not run


def prose(text: str) -> NotebookNode:
    return new_markdown_cell(text)


def code(source: str, *outputs: NotebookNode | str, **options: Any) -> NotebookNode:
    """A code cell; an output that is a string is what the cell prints. `notebook` numbers the cells."""
    nodes = [stream(output) if isinstance(output, str) else output for output in outputs]
    return new_code_cell(source, outputs=nodes, **options)


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def display(metadata: dict[str, Any] | None = None, **data: Any) -> NotebookNode:
    """A rich output; the MIME type text/plain is written `text_plain`."""
    return mimebundle({name.replace("_", "/"): value for name, value in data.items()}, metadata)


def mimebundle(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> NotebookNode:
    return new_output("display_data", data=data, metadata=metadata or {})


def result(text: str) -> NotebookNode:
    """What the last expression of a cell shows."""
    return new_output("execute_result", data={"text/plain": text})


def notebook(*cells: NotebookNode) -> NotebookNode:
    """The cells as a notebook that has run: they count 1, 2, … except where a cell brings its own count."""
    book = new_notebook(cells=list(cells), metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    counted = [cell for cell in book.cells if cell.cell_type == "code" and cell.source]
    for turn, cell in enumerate(counted, start=1):
        cell.execution_count = turn if cell.execution_count is None else cell.execution_count or None
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
    return book


def save(path: Path, book: NotebookNode) -> Path:
    path.write_text(nbformat.writes(book) + "\n", encoding="utf-8")
    return path


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python as the Makefile calls it in `folder`, with the tfbook that is there."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run_tool(folder: Path, tool: str, *arguments: str) -> str:
    """What the tool of the repository in `folder` prints."""
    finished = run_python(folder, f"tools/{tool}.py", *arguments)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
