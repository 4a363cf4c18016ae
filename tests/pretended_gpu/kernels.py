"""Executes cells with every tensor of `runtime.device()` elsewhere, and collects what fails."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
FIRST = f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport elsewhere\nelsewhere.install()"
ENVIRONMENT = {
    "TFBOOK_DEVICE": "elsewhere",
    "TFBOOK_SCALE": "quick",
    "TFBOOK_PRECISION": "float32",
    "TFBOOK_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Failure:
    """A cell that raised, by its number in the notebook."""

    cell: int
    error: str
    source: str


def failures(notebook: nbformat.NotebookNode, folder: Path, seconds: int = 600) -> list[Failure]:
    """Every cell of the notebook that raises, executed in `folder` by one kernel; the others still run."""
    pretended = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIRST), *notebook.cells])
    client = NotebookClient(
        pretended,
        timeout=seconds,
        kernel_name="python3",
        allow_errors=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only, as in tools/book.py
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=os.environ | ENVIRONMENT)
    return [
        Failure(number - 1, f"{output.ename}: {output.evalue}", cell.source)
        for number, cell in enumerate(pretended.cells)
        for output in cell.get("outputs", ())
        if output.output_type == "error"
    ]
