"""Time of a training step with attention, in and after the recurrence, against the same network without.

    python benchmarks/attention_cost.py [--rounds 25] [--steps 5] [--out cost.json]

The translators take turns, so whatever slows the machine slows all of them. A round gives each its middle step; the
ratio to the fixed context is the middle of the rounds' ratios. Exit status 1 when a ratio is over its bar.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tfbook import runtime
from tfbook.data import Batch
from tfbook.experiments import machine
from tfbook.experiments.lesson01 import DECODERS
from tfbook.seq2seq import Encoder, Seq2SeqSizes, Translator, translation_loss
from tfbook.train import Recipe, fit

WIDTH, ROWS, WORDS, VOCABULARY = 128, 128, 13, 1000
BARS = {"fixed context": 1.0, "attention after the recurrence": 1.5, "attention": 2.2}
WARM_UP = 2  # steps of each turn that are not counted


def batch() -> Batch:
    """Random words without padding: the cost of a step depends on shapes alone."""
    source, target = torch.randint(4, VOCABULARY, (2, ROWS, WORDS))
    lengths = torch.full((ROWS,), WORDS)
    return Batch(source=source, source_lengths=lengths, target_in=target, target_out=target, target_lengths=lengths)


def seconds_per_step(model: Translator, words: Batch, steps: int) -> float:
    """The middle of `steps` steps of `tfbook.train.fit`: loss, gradient, clipping and AdamW."""
    history = fit(model, translation_loss, lambda step: words, Recipe(steps=WARM_UP + steps))
    return median(after - before for before, after in pairwise(history.seconds[WARM_UP - 1 :]))


def measure(rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds a step of each translator in each round."""
    runtime.seed(0)
    words = batch()
    sizes = Seq2SeqSizes(source_vocab=VOCABULARY, target_vocab=VOCABULARY, d_embed=WIDTH, d_hidden=WIDTH)
    models = {name: Translator(Encoder(sizes), DECODERS[name](sizes)).to(runtime.device()) for name in BARS}
    turns = [{name: seconds_per_step(model, words, steps) for name, model in models.items()} for _ in range(rounds)]
    return {name: [turn[name] for turn in turns] for name in BARS}


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
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=5, help="steps counted in each turn")
    parser.add_argument("--out", type=Path, help="a JSON file for rows, sizes, machine and date")
    arguments = parser.parse_args()
    found = rows(measure(arguments.rounds, arguments.steps))
    sizes = {"width": WIDTH, "batch": ROWS, "words": WORDS, "vocabulary": VOCABULARY}
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print(f"{table(found)}\n\n{' · '.join([*where.values(), *(f'{name} {size}' for name, size in sizes.items())])}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, **sizes, "rows": found}, indent=1) + "\n", encoding="utf-8")
    return int(any(row["ratio"] > row["bar"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
