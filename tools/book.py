"""Shared by the tools: the folders, kinds of cells, and how to find, read, execute and write notebooks."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
sys.path.insert(0, str(ROOT))  # the tools use the tfbook of this tree, whether or not one is installed

from tfbook import files  # noqa: E402

EXECUTION_ERRORS = (CellExecutionError, CellTimeoutError, DeadKernelError)

TITLE = "# @title "  # the first line of a collapsed cell: JupyterLab shows it, and Colab shows what follows "@title"
SETUP = f"{TITLE}Setup:"  # begins the setup cell
WOVEN = re.compile(rf"(?:{TITLE}|# )(tfbook(?:\.\w+)+)")  # the first line of a cell that holds source of the package

COLUMNS = 95  # characters in a line of code: what fits into a window of 1,280 pixels


def lessons(names: Sequence[str] = ()) -> list[Path]:
    """The notebooks called `names`, each a lesson's number, slug or path; without names, all lessons.

    Exits with a message when there is no such notebook.
    """
    every = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    if not every and not names:
        raise SystemExit("notebooks/ holds no lesson such as 01_title.ipynb")
    known = {name: path for path in every for name in (path.name[:2], path.stem[3:])}
    found = [known.get(name.zfill(2) if name.isdigit() else name, Path(name)) for name in names]
    for name, path in zip(names, found, strict=True):
        if not path.is_file():
            raise SystemExit(f"there is no lesson {name!r}; expected a path or one of {', '.join(known)}")
    return found or every


def read(path: Path) -> NotebookNode:
    """The notebook at `path`, with format errors reported as `nbformat.ValidationError`."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def write(path: Path, notebook: NotebookNode) -> None:
    """Writes the notebook as Jupyter does, on every system: indented by 1, sorted keys, a newline at the end."""
    files.write_text(path, nbformat.writes(notebook) + "\n")


def first_line(cell: NotebookNode) -> str:
    return cell.source.partition("\n")[0]


def is_woven(cell: NotebookNode) -> bool:
    """Whether the cell's source comes from tools/weave.py."""
    return first_line(cell).startswith(SETUP) or WOVEN.fullmatch(first_line(cell)) is not None


def execute(
    notebook: NotebookNode,
    folder: Path,
    finished: Callable[[NotebookNode, float], None] = lambda cell, seconds: None,
    *,
    kernel: str = "python3",
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Runs the cells in `folder`, fills in their outputs, and calls `finished(cell, seconds)` after each.

    Raises one of `EXECUTION_ERRORS` when a cell fails, takes ten minutes or kills the kernel.
    """
    started = 0.0

    def start(cell: NotebookNode, cell_index: int) -> None:
        nonlocal started
        started = time.perf_counter()

    def stop(cell: NotebookNode, cell_index: int, execute_reply: object) -> None:
        finished(cell, time.perf_counter() - started)

    client = NotebookClient(
        notebook,
        kernel_name=kernel,
        timeout=600,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only: on each start ipykernel 7 warns about TCP
        resources={"metadata": {"path": str(folder)}},
        on_cell_execute=start,
        on_cell_executed=stop,
    )
    client.execute(env=dict(environment))
