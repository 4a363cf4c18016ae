"""Residual connections taken out of one part of the translator at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from tfbook import data, runtime
from tfbook.course.experiments import experiment
from tfbook.course.summaries import ranges
from tfbook.course.translators import Task
from tfbook.lessons.transformer.ablation import LONGEST, MACHINES, RATES, Chain, Machine, runs
from tfbook.lessons.transformer.stacks import spread_of
from tfbook.models.transformer import Transformer
from tfbook.text.pairs import Pair, collate, filter_by_length

if TYPE_CHECKING:
    from pandas import DataFrame


def _chain(model: Transformer, half: str, parts: Sequence[str]) -> None:
    """Takes the residuals of these branches out of every block of one half."""
    for block in getattr(model, half).stack.blocks:
        for part in parts:
            setattr(block, part, Chain(getattr(block, part)))


def _chained(half: str, *parts: str) -> Callable[[Transformer], None]:
    return partial(_chain, half=half, parts=parts)


PLACES = {
    "nowhere": Machine(),
    "decoder's self-attention": Machine(remove=_chained("decoder", "mixer")),
    "cross-attention": Machine(remove=_chained("decoder", "cross")),
    "encoder's self-attention": Machine(remove=_chained("encoder", "mixer")),
    "the whole decoder": Machine(remove=_chained("decoder", "mixer", "cross", "feed_forward")),
    "the whole encoder": Machine(remove=_chained("encoder", "mixer", "feed_forward")),
    "everywhere": MACHINES["no residuals"],
}
SHORT = 350  # steps


@torch.inference_mode()
def memory_spread(model: Transformer, pairs: Sequence[Pair], task: Task) -> float:
    """‖X − mean‖ / ‖X‖ of the vectors that the encoder makes of a sentence's words, averaged over `pairs`."""
    model.eval()
    found = []
    for pair in pairs:
        batch = collate([pair], task.source_vocab, task.target_vocab).to(runtime.device())
        memory = model.encoder(batch.source, batch.source_lengths)
        found.append(spread_of(memory.states))
    return fmean(found)


@experiment
def places(seeds: Sequence[int] = (1, 2), *, steps: int = SHORT) -> list[dict[str, Any]]:
    """Each machine of `PLACES` after half as many steps, and how much its encoder's vectors differ."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    pairs = filter_by_length(corpus["test"], 3, LONGEST)[:50]
    rows = []
    for row, model in runs(seeds, RATES[:1], machines=PLACES, steps=steps):
        runtime.seed(row["seed"])
        before = memory_spread(PLACES[row["machine"]].build(task), pairs, task)
        spreads = {"spread before": before, "spread": memory_spread(model, pairs, task)}
        rows.append(row | {name: round(value, 4) for name, value in spreads.items()})
    return rows


def places_table(runs: DataFrame) -> DataFrame:
    """Loss and BLEU of `places`, mean and range over seeds, and the memory's spread before and after training."""
    names = {"bleu": "BLEU", "spread before": "spread, untrained", "spread": "spread, trained"}
    digits = {"loss": 2, "BLEU": 0, "spread, untrained": 3, "spread, trained": 3}
    return ranges(runs.rename(columns=names), "machine", digits)
