"""`python -m tfbook`: the map of the course with what is solved on this machine, and commands for what you own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from tfbook import console
from tfbook.course import progress


def map_command(arguments: list[str] | None = None) -> None:
    """Prints the map, or runs one of `COMMANDS`; an error is one line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook", description="Print the map of the course with what you have solved on this machine."
    )
    commands = parser.add_subparsers(title="commands", metavar="")
    for name, add in COMMANDS.items():
        add(commands.add_parser, name)
    with console.command(parser, ValueError, OSError):
        options = parser.parse_args(arguments)
        getattr(options, "run", lambda options: progress.print_course())(options)


def _own(add_parser: Callable[..., argparse.ArgumentParser], name: str) -> None:
    help_ = "write a GPT of your own in one file: your answers, and the lessons' pieces where one is missing"
    parser = add_parser(name, help=help_, description=help_)
    parser.add_argument(
        "--out", type=Path, default=Path("my_gpt.py"), help="the file, my_gpt.py unless you say otherwise"
    )
    parser.add_argument("--replace", action="store_true", help="replace a file of that name")

    def run(options: argparse.Namespace) -> None:
        from tfbook.course.own import write_file

        write_file(options.out, replace=options.replace)

    parser.set_defaults(run=run)


COMMANDS = {"own": _own}

if __name__ == "__main__":
    map_command()
