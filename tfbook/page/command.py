"""`python -m tfbook page`: writes a model as an HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbook import console
from tfbook.page.subjects import from_run, storyteller
from tfbook.page.writing import write_page
from tfbook.training import CheckpointError


def page_command(arguments: list[str] | None = None) -> None:
    """Writes the page as the command line says; an error is one line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook page",
        description="Write a language model as one HTML file that computes in any browser, without a server.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="folder of a run of python -m tfbook.pretrain; without it, the storyteller",
    )
    parser.add_argument("--out", default="model.html", help="file to write (model.html)")
    with console.command(parser, ValueError, OSError, CheckpointError):
        chosen = parser.parse_args(arguments)
        subject = storyteller() if chosen.run is None else from_run(_expanded("RUN", chosen.run))
        path = _expanded("out", chosen.out)
        size = write_page(subject, path)
        print(f"{path}: {size / 1e6:.1f} MB; open it in a browser")


def _expanded(name: str, path: str) -> Path:
    """The path with `~` expanded. Raises ValueError for an empty one and for `~` with an unknown user."""
    if not path:
        raise ValueError(f"{name} is ''; expected a path")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name} is {path!r}; expected a path ({error})") from None
