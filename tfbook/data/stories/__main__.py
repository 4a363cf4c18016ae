"""`python -m tfbook.data.stories` writes the corpus that ships; with a number, it prints that many stories."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfbook import console
from tfbook.checks import check_positive
from tfbook.data.stories.corpus import write_stories
from tfbook.data.stories.plots import story

SHIPPED = Path(__file__).parents[3] / "data" / "stories.txt.gz"  # in a clone

MOST = 10**9  # stories: a week of them


def stories_command(arguments: list[str] | None = None) -> None:
    """Writes or prints stories as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tfbook.data.stories", description="Tell stories.")
    parser.add_argument(
        "count", nargs="?", type=int, help="stories to print; without it, the corpus that ships is written again"
    )
    with console.command(parser, ValueError, OSError):
        count = parser.parse_args(arguments).count
        check_positive(count=count)
        if count is None:
            _write()
        elif count > MOST:
            raise ValueError(f"count is {count}; expected at most {MOST:,}")
        else:
            for seed in range(count):
                print(story(seed).text, end="\n\n")


def _write() -> None:
    if not SHIPPED.parent.is_dir():
        raise ValueError(
            f"{SHIPPED.parent} does not exist; expected a clone of the course, which the corpus comes with"
        )
    write_stories(SHIPPED)


if __name__ == "__main__":
    stories_command()
