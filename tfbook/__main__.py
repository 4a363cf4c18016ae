"""`python -m tfbook`: the map of the course with what is solved on this machine."""

from __future__ import annotations

import argparse

from tfbook import console
from tfbook.course import progress


def map_command(arguments: list[str] | None = None) -> None:
    """Prints the map; an error is one line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook", description="Print the map of the course with what you have solved on this machine."
    )
    with console.command(parser, ValueError, OSError):
        parser.parse_args(arguments)
        progress.print_course()


if __name__ == "__main__":
    map_command()
