"""Executes notebooks in place, removes from them what differs from run to run, and folds them.

    python tools/notebooks.py          all lessons
    python tools/notebooks.py 01 02    some

A notebook in which a cell fails is not changed. The environment says where corpora come from (TFBOOK_MIRROR).
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from book import EXECUTION_ERRORS, NOTEBOOKS, execute, lessons, read, write
from folding import fold
from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
PROGRESS = re.compile(r"\d+%\||\d+\S* \[\d\d:\d\d|^(\s|\x1b\[A)*$")  # a line of tqdm on stderr: bar, count or blank
NOTEBOOK_METADATA = ("kernelspec", "language_info", "colab", "accelerator")
CELL_METADATA = ("tags",)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def normalize(notebook: NotebookNode) -> None:
    """Removes, in place, what differs from run to run, which is widgets, progress bars, versions and editors' metadata;
    collapses cells as tools/folding.py says."""
    _keep(notebook.metadata, NOTEBOOK_METADATA)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        _keep(cell.metadata, CELL_METADATA)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_transient(output)]
            for output in cell.outputs:
                _clean_image(output)
    fold(notebook)


def _keep(metadata: NotebookNode, names: tuple[str, ...]) -> None:
    for name in metadata.keys() - set(names):
        del metadata[name]


def _is_transient(output: NotebookNode) -> bool:
    """Whether the output is a widget or a progress bar. A warning on stderr is kept, so that the tests see it."""
    if output.output_type == "stream":
        return output.name == "stderr" and all(PROGRESS.search(line) for line in re.split(r"[\r\n]", output.text))
    return WIDGET in output.get("data", {})


def _clean_image(output: NotebookNode) -> None:
    if image := output.get("data", {}).get("image/png"):
        cleaned = without_text(base64.b64decode(image))
        output.data["image/png"] = base64.b64encode(cleaned).decode()


def without_text(png: bytes) -> bytes:
    """The PNG without its text chunks, in which matplotlib writes its version."""
    return PNG_SIGNATURE + b"".join(chunk for kind, chunk in _chunks(png) if kind != b"tEXt")


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(PNG_SIGNATURE)
    while position < len(png):
        length, kind = struct.unpack(">I4s", png[position : position + 8])
        end = position + length + 12  # a chunk is its length, its kind, its data and a checksum
        yield kind, png[position:end]
        position = end


def refresh(path: Path, folder: Path = NOTEBOOKS) -> float:
    """Executes the notebook at scale cpu, normalizes and writes it, unless a cell fails. Returns the seconds.

    What the one who executes has solved stays out of the outputs.
    """
    notebook = read(path)
    started = time.perf_counter()
    with TemporaryDirectory() as nothing_solved:
        progress = str(Path(nothing_solved) / "progress.json")
        execute(notebook, folder, environment={**os.environ, "TFBOOK_SCALE": "cpu", "TFBOOK_PROGRESS": progress})
    seconds = time.perf_counter() - started
    normalize(notebook)
    write(path, notebook)
    return seconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", nargs="*", help="number, slug or path; all lessons when left out")
    failed = []
    for path in lessons(parser.parse_args(arguments).lesson):
        try:
            print(f"{refresh(path):6.1f} s  {path.name}", flush=True)
        except EXECUTION_ERRORS as error:
            failed.append(path.name)
            print(f"{path.name} fails and was not changed.\n{error}", flush=True)
    if failed:
        raise SystemExit(f"not refreshed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
