"""Executes cells in a process in which `runtime.device()` is elsewhere, and collects what fails."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIRST = f"import sys\nsys.path[:0] = [{str(HERE)!r}, {str(ROOT)!r}]\nimport elsewhere\nelsewhere.install()"
FAILED_PROOF = re.compile(r"^✗ .* differs from .*$", re.MULTILINE)  # as `prove_equal` prints it


COLORS = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Failure:
    """What went wrong in a cell, by its number in the notebook."""

    cell: int
    error: str
    trace: str  # without colors


def environment() -> dict[str, str]:
    """Scale quick in float32 on one thread, with the corpora that ship."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TFBOOK_")}
    kept |= {"TFBOOK_DEVICE": "elsewhere", "TFBOOK_SCALE": "quick", "TFBOOK_PRECISION": "float32"}
    kept |= {"TFBOOK_OFFLINE": "1", "TFBOOK_DATA": os.environ["TFBOOK_DATA"]}
    return kept | {"OMP_NUM_THREADS": "1"}


def failures(cells: list[NotebookNode], folder: Path, seconds: int) -> list[Failure]:
    """What fails among the cells, executed in `folder` by one kernel; after a failure, the others still run.

    Raises nbclient's CellTimeoutError for a cell that takes more than `seconds`.
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIRST), *cells])
    client = NotebookClient(
        notebook,
        timeout=seconds,
        kernel_name="python3",
        allow_errors=True,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only, as in tools/book.py
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment())
    return [
        Failure(number - 1, error, trace)
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", ())
        for error, trace in _errors(output)
    ]


def _errors(output: NotebookNode) -> Iterator[tuple[str, str]]:
    if output.output_type == "error":
        yield f"{output.ename}: {output.evalue}", COLORS.sub("", "\n".join(output.traceback))
    yield from ((proof, proof) for proof in FAILED_PROOF.findall(output.get("text", "")))
