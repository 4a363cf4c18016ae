"""Lays out and folds notebooks without executing them; removes what editors leave behind.

    python tools/tidy.py            all lessons
    python tools/tidy.py 01 02      some
    python tools/tidy.py --check    list those that would change; exit 1 if there are any

JupyterLab and Colab write into a notebook what was opened, collapsed and scrolled: this takes it out again.
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from pathlib import Path

from book import lessons, read, write
from layout import lay_out
from nbformat import NotebookNode

import notebooks


def tidied(notebook: NotebookNode) -> NotebookNode:
    """A tidy copy of the notebook."""
    copy = deepcopy(notebook)
    lay_out(copy)
    notebooks.normalize(copy)
    return copy


def tidy_all(paths: list[Path], *, check: bool) -> list[str]:
    """Tidies the notebooks, or only looks at them with `check`; returns the names of those that differed."""
    differing = []
    for path in paths:
        notebook = read(path)
        tidy = tidied(notebook)
        if tidy != notebook:
            differing.append(path.name)
            if not check:
                write(path, tidy)
    return differing


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", nargs="*", help="number, slug or path; all lessons when left out")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when a notebook would change")
    options = parser.parse_args(arguments)
    differing = tidy_all(lessons(options.lesson), check=options.check)
    print("\n".join(differing) or "all notebooks are tidy")
    if differing and options.check:
        raise SystemExit("the notebooks above would change: run `make tidy`")


if __name__ == "__main__":
    main()
