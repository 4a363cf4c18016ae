"""Runs a stored experiment again and writes its result and provenance to data/results.

python tools/experiment.py bahdanau_attention.bottleneck
python tools/experiment.py                         list the experiments
"""

from __future__ import annotations

import argparse
import time

import book

from tfbook import runtime
from tfbook.course.experiments import Experiment, current_commit, registered, store


def run(name: str, experiment: Experiment) -> None:
    """Runs the experiment and stores what it returns as `name`."""
    commit, start = current_commit(), time.perf_counter()
    runtime.setup()
    rows = experiment()
    seconds, command = time.perf_counter() - start, f"python tools/experiment.py {name}"
    path = store(name, rows, command=command, commit=commit, seconds=seconds)
    print(f"{len(rows)} rows in {path.relative_to(book.ROOT)}")


def main(arguments: list[str] | None = None) -> None:
    known = registered()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=known)
    options = parser.parse_args(arguments)
    if options.name is None:
        print(*known, sep="\n")
    else:
        run(options.name, known[options.name])


if __name__ == "__main__":
    main()
