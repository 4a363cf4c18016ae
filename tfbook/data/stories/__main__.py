"""`python -m tfbook.data.stories` writes the corpus that ships; with a number, it prints so many stories."""

import argparse
from pathlib import Path

from tfbook.data.stories.corpus import write_stories
from tfbook.data.stories.plots import story

SHIPPED = Path(__file__).parents[3] / "data" / "stories.txt.gz"  # in a clone

parser = argparse.ArgumentParser(prog="python -m tfbook.data.stories", description="Tell stories.")
parser.add_argument("count", nargs="?", type=int, help="stories to print; without it, the shipped corpus is written")
arguments = parser.parse_args()
if arguments.count is None:
    write_stories(SHIPPED)
else:
    for seed in range(arguments.count):
        print(story(seed).text, end="\n\n")
