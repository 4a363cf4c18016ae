"""Executes a lesson without changing it, and reports the time of each cell and the memory.

    python tools/lesson.py 01
    python tools/lesson.py 01 --seconds 180    the limit with real corpora

Exits 1 when a cell fails, or when the lesson exceeds its time, the time of a cell, or its memory.
"""

from __future__ import annotations

import argparse
import sys

from book import EXECUTION_ERRORS, NOTEBOOKS, execute, first_line, lessons, read
from nbformat import NotebookNode

LESSON_SECONDS = 90.0
CELL_SECONDS = 60.0
MEMORY_GB = 2.0


def peak_memory_gb() -> float | None:
    """The largest resident memory of any finished kernel, in GB; None on Windows, which does not record it."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)  # macOS counts bytes, Linux kilobytes


def excesses(seconds: list[float], peak_gb: float | None, limit: float) -> list[str]:
    """The limits that a lesson exceeds, in words; `seconds` are the times of its cells."""
    measured = [
        ("the lesson", sum(seconds), limit, "s"),
        ("its slowest cell", max(seconds, default=0.0), CELL_SECONDS, "s"),
        ("its memory", peak_gb or 0.0, MEMORY_GB, "GB"),
    ]
    return [f"{what}: {used:.1f} {unit}, allowed {most:g} {unit}" for what, used, most, unit in measured if used > most]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", help="its number or slug, or the path of a notebook")
    parser.add_argument("--seconds", type=float, default=LESSON_SECONDS, help="time allowed (default: %(default)g)")
    options = parser.parse_args(arguments)
    [path] = lessons([options.lesson])
    seconds: list[float] = []

    def finished(cell: NotebookNode, duration: float) -> None:
        seconds.append(duration)
        print(f"{cell.execution_count:4}  {duration:6.1f} s  {first_line(cell)[:90]}", flush=True)

    print(path.name)
    try:
        execute(read(path), NOTEBOOKS, finished)
    except EXECUTION_ERRORS as error:
        raise SystemExit(f"{error}\n{path.name} fails in the cell above") from error
    peak = peak_memory_gb()
    memory = "" if peak is None else f" · {peak:.2f} GB at most"
    print(f"{sum(seconds):6.1f} s in {len(seconds)} cells, the slowest {max(seconds, default=0.0):.1f} s{memory}")
    if over := excesses(seconds, peak, options.seconds):
        raise SystemExit("too much: " + "; ".join(over))


if __name__ == "__main__":
    main()
