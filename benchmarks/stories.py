"""How many stories a second, told and read back? And what does the checker miss?

python benchmarks/stories.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

from tfbook.data.stories import check_story, story

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "data"))
from test_stories import strange_name, strange_thing, wrong_ending, wrong_place, wrong_pronoun

TOLD, READ, PLANTED = 50_000, 10_000, 1_000


def main() -> None:
    """Prints seconds, contradictions found in what the world tells, and the share found of what was planted."""
    start = time.process_time()
    stories = [story(seed) for seed in range(TOLD)]
    print(f"{TOLD:,} stories told in {time.process_time() - start:.1f} s")
    start = time.process_time()
    wrong = sum(not check_story(tale.words).consistent for tale in stories[:READ])
    print(f"{READ:,} stories read back in {time.process_time() - start:.1f} s: {wrong} contradict their facts")
    for plant in (strange_name, wrong_pronoun, strange_thing, wrong_place, wrong_ending):
        dice = Random(0)
        planted = [words for tale in stories if (words := plant(tale, dice))][:PLANTED]
        found = sum(not check_story(words).consistent for words in planted)
        print(f"{plant.__name__.replace('_', ' ')}: {found:,} of {len(planted):,} found")


if __name__ == "__main__":
    main()
