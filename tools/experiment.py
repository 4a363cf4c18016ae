"""Runs a stored experiment again and writes its result, with where it comes from, to data/results.

python tools/experiment.py lesson01.bottleneck
python tools/experiment.py                         list the experiments
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module

import book

from tfbook import experiments, runtime

EXPERIMENTS = (
    "lesson01.bottleneck",
    "lesson01.tatoeba",
    "lesson02.growth",
    "lesson02.scores",
    "lesson04.addition",
    "lesson04.control",
    "lesson04.lengths",
    "lesson05.against_recurrence",
    "lesson05.norms",
    "lesson05.parts",
    "lesson05.regularisers",
    "lesson05.searches",
    "lesson06.vocabularies",
    "lesson07.by_labels",
    "lesson07.directions",
    "lesson07.distilled",
    "lesson07.electra",
    "lesson07.hiding",
    "lesson07.sharing",
    "lesson08.induction",
    "lesson08.scaling",
    "lesson11.few_shuffled",
    "lesson11.growth",
    "lesson11.longer",
    "lesson11.patch_sizes",
    "lesson11.pixels",
    "lesson11.pooling",
    "lesson11.searches",
    "lesson11.shuffles",
    "lesson11.squares",
    "lesson11.teachers",
    "lesson13.long_range",
    "lesson13.memory",
    "lesson13.times",
)


def run(name: str) -> None:
    """Runs `name` and stores what it returns."""
    module, _, function = name.partition(".")
    experiment = getattr(import_module(f"tfbook.experiments.{module}"), function)
    commit, start = experiments.current_commit(), time.perf_counter()
    runtime.setup()
    rows = experiment()
    seconds, command = time.perf_counter() - start, f"python tools/experiment.py {name}"
    path = experiments.store(name, rows, command=command, commit=commit, seconds=seconds)
    print(f"{len(rows)} rows in {path.relative_to(book.ROOT)}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=EXPERIMENTS)
    options = parser.parse_args(arguments)
    if options.name is None:
        print(*EXPERIMENTS, sep="\n")
    else:
        run(options.name)


if __name__ == "__main__":
    main()
