"""Change the package's code at random places and see whether the tests of the changed module fail, as they should.

    python tools/mutate.py --number 500 --seed 1
    python tools/mutate.py --number 500 --seed 1 --again      the survivors once more, after you have written tests

A mutant is judged by the tests that run its line, those named after its module first. It lives in a fork of one process
that has imported torch, where its source is read in the place of its file's: nothing is written into the repository.
Results are kept in a folder (`--results`), so a run that was interrupted goes on where it stopped. Mutants that no test
could tell from the original are listed in `tests/mutants.toml`, each with the reason, and do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from mutation.mutants import Mutant, mutants
from mutation.processes import ROOT, forked, wait
from mutation.reach import ROOMS, Tests
from mutation.trial import imported, in_place, judge

EQUAL = ROOT / "tests/mutants.toml"
Key = tuple[str, ...]


def every_mutant(seed: int) -> list[Mutant]:
    """In an order drawn by the seed, which a change of the package elsewhere leaves as it is."""
    paths = sorted(path for room in ROOMS for path in room.rglob("*.py"))
    found = [each for path in paths for each in mutants(path.relative_to(ROOT).as_posix(), path.read_bytes())]
    return sorted(found, key=lambda each: hashlib.sha256(f"{seed} {each.key}".encode()).digest())


def verdicts(path: Path) -> dict[Key, dict[str, Any]]:
    """The last row of each mutant."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    return {tuple(row["key"]): row for row in rows}


def equal() -> set[Key]:
    """Mutants that compute the same as the original."""
    listed = tomllib.loads(EQUAL.read_text(encoding="utf-8"))["mutant"] if EQUAL.exists() else []
    return {(each["module"], each["function"], each["before"], each["after"]) for each in listed}


def report(chosen: list[Mutant], found: dict[Key, dict[str, Any]]) -> None:
    """Prints the survivors and the share of the others."""
    counts, listed = Counter[str](), equal()
    for mutant in chosen:
        verdict = found[mutant.key]["verdict"] if mutant.key in found else "not tried"
        verdict = "equal" if verdict != "found" and mutant.key in listed else verdict
        counts[verdict] += 1
        if verdict not in {"found", "equal"}:
            place = f"{mutant.module}:{mutant.lines.start} {mutant.function}"
            print(f"{verdict}: {place}\n  - {mutant.before}\n  + {mutant.after}")
    share = counts["found"] / max(1, counts.total() - counts["equal"])
    print(f"{dict(counts)}: {share:.1%} of those that differ are found")


def work(todo: list[Mutant], tests: Tests, path: Path) -> None:
    """Tries the mutants in place, then those for which that is not possible."""
    wait(forked(lambda: in_place(todo, tests, path)), math.inf)
    tests.import_all()
    known = verdicts(path)
    for mutant in todo:
        if mutant.key not in known:
            judge(mutant, tests.of(mutant), path, imported)


def forget_survivors(path: Path) -> None:
    """Leaves only those in the results that were found."""
    rows = [json.dumps(row) + "\n" for row in verdicts(path).values() if row["verdict"] == "found"]
    path.write_text("".join(rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir()) / "tfbook-mutants")
    parser.add_argument("--again", action="store_true", help="try those again that survived")
    arguments = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    os.chdir(ROOT)
    arguments.results.mkdir(exist_ok=True)
    sys.pycache_prefix = str(arguments.results / "pycache")
    path = arguments.results / "results.jsonl"
    if arguments.again:
        forget_survivors(path)
    chosen, known = every_mutant(arguments.seed)[: arguments.number], verdicts(path)
    todo = [each for each in chosen if each.key not in known.keys() | equal()]
    if todo:
        tests = Tests(arguments.results)
        print(f"trying {len(todo)} mutants; each adds a line to {path}", flush=True)
        parts = [todo[i :: arguments.jobs] for i in range(arguments.jobs)]
        for process in [forked(lambda part=part: work(part, tests, path)) for part in parts]:
            wait(process, math.inf)
    report(chosen, verdicts(path))


if __name__ == "__main__":
    main()
