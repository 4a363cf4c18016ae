"""Time of a training step with attention, in and after the recurrence, against the same network without.

    python benchmarks/attention_cost.py [--rounds 60] [--out cost.json]

The translators take turns, one step each a round, so whatever slows the machine slows all of them; the ratio to the
fixed context is the middle of the rounds' ratios. Exit status 1 when a ratio is over its bar.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from tfbook import runtime
from tfbook.course.experiments import machine
from tfbook.lessons.bahdanau_attention.study import step_seconds

SIZES = {"width": 128, "rows": 128, "words": 13, "vocabulary": 1000}
BARS = {"fixed context": 1.0, "attention after the recurrence": 1.5, "attention": 2.2}


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds a step of each translator in each round, on random words: the cost depends on shapes alone."""
    runtime.seed(0)
    return step_seconds(rounds=rounds, **SIZES)


def rows(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """The middle time and ratio of each decoder, and the lowest and highest ratio of a round."""
    found = []
    for name, times in seconds.items():
        ratios = [time / base for time, base in zip(times, seconds["fixed context"], strict=True)]
        figures = {"ms": 1000 * median(times), "ratio": median(ratios), "low": min(ratios), "high": max(ratios)}
        found.append({"decoder": name, **{key: round(value, 3) for key, value in figures.items()}, "bar": BARS[name]})
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| decoder | ms a step | against fixed context | rounds | bar |", "|---|---:|---:|---:|---:|"]
    for row in found:
        spread = f"{row['low']:.2f}–{row['high']:.2f}"
        lines.append(f"| {row['decoder']} | {row['ms']:.1f} | {row['ratio']:.2f} | {spread} | ≤ {row['bar']:.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, prints the table and where it comes from, and writes both as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, help="a JSON file for rows, sizes, machine and date")
    arguments = parser.parse_args()
    found = rows(measure(arguments.rounds))
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print(f"{table(found)}\n\n{' · '.join([*where.values(), *(f'{name} {size}' for name, size in SIZES.items())])}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, **SIZES, "rows": found}, indent=1) + "\n", encoding="utf-8")
    return int(any(row["ratio"] > row["bar"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
