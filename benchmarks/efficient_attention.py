"""Time and peak memory of every efficient implementation of attention against length, beside PyTorch's dense one.

    python benchmarks/efficient_attention.py [--rounds 5] [--bars] [--out efficient.json]

Causal self-attention of one sequence with 4 heads of width 32, forward and backward. The implementations take turns at
each length. Exponents are fitted over the lengths from 1,024 on. "Faster from" is the length from which on an
implementation takes less time than PyTorch's `scaled_dot_product_attention(is_causal=True)`. Hashing is timed with 1 to
8 rounds as well. `--bars` measures only what has a bar. The exit status is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from tfbook import runtime
from tfbook.course.cost import exponent, in_turns, peak_memory
from tfbook.course.experiments import machine, markdown
from tfbook.lessons.efficient_attention.costs import (
    FUSED,
    IMPLEMENTATIONS,
    LONGEST_WRITTEN_OUT,
    WRITTEN_OUT,
    forward_backward,
    rounds_of_hashing,
)

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
FITTED = 1024  # the shortest length of those that exponents are fitted over
TIMED_AT = 8192  # where the banded implementation is compared with PyTorch's
BARS = {  # name → largest exponent of memory and of time; None where there is no bar
    "banded": (1.15, 1.15),
    "tiled": (1.15, None),
    "linear": (1.15, 1.15),
    "Performer": (1.15, 1.15),
}
ROUNDS_TIMED = (2048, 5)  # length and turns
FASTER = 5.0  # times PyTorch's implementation: the bar of the banded one


def measured(names: Sequence[str], length: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each implementation: seconds of each round, and bytes at the peak beyond those of the inputs."""
    runs = {name: forward_backward(name, length) for name in names}
    if length > LONGEST_WRITTEN_OUT:
        runs.pop(WRITTEN_OUT, None)
    seconds = in_turns(runs, rounds)
    return [
        {"implementation": name, "n": length, "seconds": seconds[name], "bytes": peak_memory(run)}
        for name, run in runs.items()
    ]


def times_faster(rows: Sequence[dict[str, Any]], implementation: str, length: int) -> float:
    """PyTorch's time over the implementation's: the middle of the rounds' ratios."""
    theirs, ours = (
        next(row["seconds"] for row in rows if (row["implementation"], row["n"]) == (name, length))
        for name in (FUSED, implementation)
    )
    return median(a / b for a, b in zip(theirs, ours, strict=True))


def crossing(lengths: Sequence[int], ratios: Sequence[float]) -> float | None:
    """The length from which on the ratio stays above 1, on a straight line through logarithms; None where it does not.

    0 where it is above 1 from the first length on.
    """
    below = [i for i, ratio in enumerate(ratios) if ratio <= 1]
    if not below:
        return 0.0
    last = below[-1]
    if last == len(ratios) - 1:
        return None
    share = -math.log(ratios[last]) / math.log(ratios[last + 1] / ratios[last])
    return lengths[last] * (lengths[last + 1] / lengths[last]) ** share


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each implementation: time and memory at the greatest length, both exponents, where it crosses PyTorch's."""
    found = []
    for name in dict.fromkeys(row["implementation"] for row in rows):
        own = [row for row in rows if row["implementation"] == name]
        fitted, last = [row for row in own if row["n"] >= FITTED], own[-1]
        lengths = [row["n"] for row in fitted]
        crossed = crossing([row["n"] for row in own], [times_faster(rows, name, row["n"]) for row in own])
        found.append(
            {
                "implementation": name,
                "n": last["n"],
                "ms": round(1000 * median(last["seconds"]), 1),
                "MB": round(last["bytes"] / 1e6, 1),
                "time ∝ n^": round(exponent(lengths, [median(row["seconds"]) for row in fitted]), 2),
                "memory ∝ n^": round(exponent(lengths, [row["bytes"] for row in fitted]), 2),
                "faster from n =": "–" if crossed is None else "all" if crossed == 0 else f"{crossed:,.0f}",
            }
        )
    return found


PER_ROUND = 1.2  # largest exponent of hashing's time against its rounds, and most over least time per round


def rounds_missed(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Prints what hashing costs per round, from `rounds_of_hashing`, and returns the bars that are missed."""
    counts, seconds = [row["rounds"] for row in rows], [row["seconds"] for row in rows]
    each = [second / count for count, second in zip(counts, seconds, strict=True)]
    found = {"time ∝ rounds^": exponent(counts, seconds), "most ÷ least time per round ": max(each) / min(each)}
    words = [f"{what}{value:.2f}" for what, value in found.items()]
    print(f"\nHashing, {counts[0]} to {counts[-1]} rounds: {', '.join(words)}, bar ≤ {PER_ROUND} each")
    return [
        f"LSH: {word}, allowed {PER_ROUND}"
        for word, value in zip(words, found.values(), strict=True)
        if value > PER_ROUND
    ]


def missed(rows: Sequence[dict[str, Any]], table: Sequence[dict[str, Any]]) -> list[str]:
    """The bars that are missed, in words."""
    found = []
    for row in table:
        for what, bar in zip(("memory ∝ n^", "time ∝ n^"), BARS.get(row["implementation"], (None, None)), strict=True):
            if bar is not None and not row[what] <= bar:
                found.append(f"{row['implementation']}: {what}{row[what]}, allowed {bar}")
    faster = times_faster(rows, "banded", TIMED_AT)
    if not faster >= FASTER:
        found.append(f"banded: {faster:.1f} times as fast as PyTorch's at {TIMED_AT:,}, expected {FASTER}")
    return found


def main() -> int:
    """Measures, prints the table and where it comes from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bars", action="store_true", help="only the implementations that have a bar")
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    arguments = parser.parse_args()
    runtime.keep_memory()
    names = [FUSED, *BARS] if arguments.bars else [*IMPLEMENTATIONS]
    rows = [row for length in LENGTHS for row in measured(names, length, arguments.rounds)]
    table, where = summary(rows), {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    faster = times_faster(rows, "banded", TIMED_AT)
    print(f"{markdown(table)}\n\nAt n = {TIMED_AT:,} banded is {faster:.1f} times as fast as PyTorch's, bar ≥ {FASTER}")
    print(f"{' · '.join(where.values())}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, "rows": rows, "table": table}, indent=1) + "\n", encoding="utf-8")
    failures = missed(rows, table) + rounds_missed(rounds_of_hashing(*ROUNDS_TIMED))
    print(*failures, sep="\n", end="\n" if failures else "")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
