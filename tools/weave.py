"""Copies source into the notebooks' woven cells.

    python tools/weave.py            refresh the cells
    python tools/weave.py --check    list the cells that differ; exit 1 if there are any

A code cell whose first line is a full name, such as `# tfbook.attention.implementations.masked_softmax`, holds the
source of that class, function or method; where it is collapsed, the name follows `# @title`. A lesson with narrow code
has the source laid out for it. The cell whose first line begins with `# @title Setup:` holds tools/setup_cell.py.
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import textwrap
from pathlib import Path

import layout
from book import ROOT, SETUP, WIDE, WOVEN, first_line, lessons, read, width, write
from folding import fold
from nbformat import NotebookNode

SETUP_CELL = ROOT / "tools" / "setup_cell.py"


def source_of(name: str) -> str:
    """The source of the object with this dotted name. Raises LookupError when there is none."""
    try:
        thing = inspect.unwrap(pkgutil.resolve_name(name))
    except (ImportError, AttributeError) as error:
        raise LookupError(f"{name} does not exist ({error})") from error
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        raise LookupError(f"{name} is a {type(thing).__name__}; only a class, function or method has source to weave")
    return textwrap.dedent(inspect.getsource(thing)).rstrip()


def expected(cell: NotebookNode, columns: int) -> str | None:
    """The source for a woven cell in a lesson with this many columns; None for the author's own cells."""
    if cell.cell_type != "code":
        return None
    if first_line(cell).startswith(SETUP):
        return SETUP_CELL.read_text(encoding="utf-8").rstrip()
    woven = WOVEN.fullmatch(first_line(cell))
    if woven is None:
        return None
    source = f"{woven[0]}\n{source_of(woven[1])}"
    return source if columns == WIDE else layout.laid_out(source, columns)


def weave(notebook: NotebookNode, columns: int = WIDE) -> list[str]:
    """Refreshes the woven cells in place and returns the first lines of those that differed.

    Outputs are kept, since a definition prints nothing. Raises LookupError, with the cell, for a name without source.
    """
    changed = []
    for number, cell in enumerate(notebook.cells):
        try:
            source = expected(cell, columns)
        except LookupError as error:
            raise LookupError(f"cell {number}: {error}") from error
        if source is not None and source != cell.source:
            cell.source = source
            changed.append(f"cell {number}: {first_line(cell)}")
    return changed


def weave_all(paths: list[Path], *, check: bool) -> list[str]:
    """Weaves the notebooks, or only compares them with `check`; returns the cells that differed."""
    differences = []
    for path in paths:
        notebook = read(path)
        try:
            changed = weave(notebook, width(path))
        except LookupError as error:
            raise SystemExit(f"{path.name}, {error}") from error
        differences += [f"{path.name}, {line}" for line in changed]
        if changed and not check:
            fold(notebook)  # a cell may have become long
            write(path, notebook)
    return differences


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", nargs="*", help="number, slug or path; all lessons when left out")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when a cell differs")
    options = parser.parse_args(arguments)
    differences = weave_all(lessons(options.lesson), check=options.check)
    print("\n".join(differences) or "all woven cells equal the package")
    if differences and options.check:
        raise SystemExit("the cells above differ from the package: run `make weave`")


if __name__ == "__main__":
    main()
