"""`python -m tfbook`: the map of the course with what is solved on this machine, or the command that is named."""

from __future__ import annotations

import argparse
import sys

from tfbook import console
from tfbook.course import progress
from tfbook.course.grading.command import grade_command
from tfbook.course.own import own_command
from tfbook.page.command import page_command

# name → function of the arguments behind the name
COMMANDS = {
    "grade": grade_command,
    "own": own_command,
    "page": page_command,
}


def course_command(arguments: list[str] | None = None) -> None:
    """Runs the command that the first argument names; otherwise prints the map."""
    first, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if first in COMMANDS:
        COMMANDS[first](rest)
    else:
        map_command(arguments)


def map_command(arguments: list[str] | None = None) -> None:
    """Prints the map; an error is one line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook",
        description="Print the map of the course with what you have solved on this machine.",
        epilog=f"Commands, each with --help: {', '.join(COMMANDS)}.",
    )
    with console.command(parser, ValueError, OSError):
        parser.parse_args(arguments)
        print(*progress.course_lines(progress.solved()), sep="\n")


if __name__ == "__main__":
    course_command()
