"""How long it takes to grade what a class hands in: 200 notebooks, the course's lessons in turn.

    python benchmarks/grading.py [--notebooks 200] [--jobs 2] [--out grading.json]

Of a student's answers, drawn by a seed, 60% are right, 24% hold a slip (another operator or number), 15% are blank and
1% loop without end. Processor seconds are those of all processes together, which other programs disturb little; the
minutes are what they would take on that many free cores. The exit status is 1 when 200 notebooks take more than 10.
"""

from __future__ import annotations

import argparse
import ast
import json
import resource
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tfbook.course.experiments import machine, markdown
from tfbook.course.grading.room import Limits
from tfbook.course.grading.verdicts import Graded, grade_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import book
import handout

KINDS = {"right": 60, "slip": 24, "blank": 15, "endless": 1}
BAR = 10.0  # minutes for 200 notebooks on two cores
SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.MatMult: ast.Mult}


def with_a_slip(cell: str, random: Random) -> str:
    """A cell in which an operator is another one or a number is larger by one; the last line of a function without
    either is left out."""
    tree = ast.parse(cell)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    parts = [node for function in functions for line in function.body for node in ast.walk(line)]
    numbers = [node for node in parts if isinstance(node, ast.Constant) and type(node.value) in (int, float)]
    products = [node for node in parts if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED]
    if not (places := [*numbers, *products]):
        functions[-1].body[-1:] = [ast.Pass()]
    elif isinstance(place := random.choice(places), ast.Constant):
        place.value += 1
    else:
        place.op = SWAPPED[type(place.op)]()
    return ast.unparse(tree)


def without_end(cell: str) -> str:
    """A cell whose functions never return."""
    tree = ast.parse(cell)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = ast.parse("while True:\n    pass").body
    return ast.unparse(tree)


def write_class(folder: Path, count: int) -> Counter[str]:
    """Writes the notebooks of a class; returns how many answers of each kind they hold."""
    lessons = {kind: [handout.prepared(path, kind) for path in book.lessons()] for kind in handout.KINDS}
    kinds: Counter[str] = Counter()
    for number in range(count):
        random, lesson = Random(number), number % len(book.lessons())
        notebook = lessons["student"][lesson].copy()
        notebook.cells = [cell.copy() for cell in notebook.cells]
        for cell, solved in zip(notebook.cells, lessons["solutions"][lesson].cells, strict=True):
            if cell.cell_type == "code" and handout.CHECK.search(cell.source):
                [kind] = random.choices([*KINDS], [*KINDS.values()])
                kinds[kind] += 1
                cell.source = {
                    "right": lambda text: text,
                    "slip": lambda text, random=random: with_a_slip(text, random),
                    "blank": lambda text, blank=cell.source: blank,
                    "endless": without_end,
                }[kind](solved.source)
        (place := folder / f"student {number:03}").mkdir()
        book.write(place / book.lessons()[lesson].name, notebook)
    return kinds


def measure(folder: Path, jobs: int) -> tuple[list[Graded], float, float]:
    """What was graded, and its seconds of the clock and of the processors."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    graded = grade_folder(folder, jobs=jobs, limits=Limits())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return graded, time.perf_counter() - start, processor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notebooks", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as place:
        kinds = write_class(Path(place), options.notebooks)
        graded, clock, processor = measure(Path(place), options.jobs)
    statuses = Counter(verdict.status for each in graded for verdict in each.verdicts)
    row = {
        "notebooks": len(graded),
        "answers": sum(kinds.values()),
        "points": statuses["correct"],
        "processor seconds": round(processor),
        "minutes on free cores": round(processor / options.jobs / 60, 1),
        "minutes by the clock": round(clock / 60, 1),
    }
    print(markdown([row]))
    print(f"{dict(kinds)} → {dict(statuses)}; {json.dumps(machine())}")
    if options.out:
        found = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "row": row}
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(processor / options.jobs / 60 > BAR * len(graded) / 200)


if __name__ == "__main__":
    sys.exit(main())
