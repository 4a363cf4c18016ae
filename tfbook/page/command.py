"""`python -m tfbook page`: writes a model as an HTML page."""

from __future__ import annotations

import argparse

from tfbook import console
from tfbook.files import expanded
from tfbook.page.subjects import Subject, from_run, storyteller
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
        subject = storyteller() if chosen.run is None else from_run(expanded("RUN", chosen.run))
        print(f"{chosen.out}: {_write(subject, chosen.out) / 1e6:.1f} MB; open it in a browser")


def _write(subject: Subject, out: str) -> int:
    """The size of the page in bytes. Raises ValueError, which names the path, where it cannot be written."""
    path = expanded("out", out)
    try:
        return write_page(subject, path)
    except OSError as error:
        raise ValueError(f"out is {out!r}, which cannot be written: {error}") from None
