"""Residual connections taken out of one part of the translator at a time, and rivals of two of its choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tfbook import data, runtime
from tfbook.course.experiments import experiment
from tfbook.course.translators import Task
from tfbook.lessons.transformer.ablation import RATES, Chain, Machine, runs
from tfbook.lessons.transformer.stacks import spread_of
from tfbook.models.transformer import Transformer
from tfbook.text.pairs import Pair, collate, filter_by_length

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- residuals, in one place at a time -------------------------------------------------------------------------------


def _chain(model: Transformer, half: str, parts: Sequence[str]) -> None:
    """Takes the residuals of these branches out of every block of one half."""
    for block in getattr(model, half).stack.blocks:
        for part in parts:
            setattr(block, part, Chain(getattr(block, part)))


def _chained(half: str, *parts: str) -> Callable[[Transformer], None]:
    return partial(_chain, half=half, parts=parts)


PLACES = {
    "decoder's self-attention": Machine(remove=_chained("decoder", "mixer")),
    "cross-attention": Machine(remove=_chained("decoder", "cross")),
    "encoder's self-attention": Machine(remove=_chained("encoder", "mixer")),
    "the whole decoder": Machine(remove=_chained("decoder", "mixer", "cross", "feed_forward")),
    "the whole encoder": Machine(remove=_chained("encoder", "mixer", "feed_forward")),
}


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
def places(seeds: Sequence[int] = (1, 2), rates: Sequence[float] = RATES[:1]) -> list[dict[str, Any]]:
    """BLEU of each machine of `PLACES` at the page's rate, and how much its encoder's vectors differ."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    pairs = filter_by_length(corpus["test"], 3, 10)[:50]
    rows = []
    for row, model in runs(seeds, rates, machines=PLACES):
        runtime.seed(row["seed"])
        before = memory_spread(PLACES[row["machine"]].build(task), pairs, task)
        spreads = {"spread before": before, "spread": memory_spread(model, pairs, task)}
        rows.append(row | {name: round(value, 4) for name, value in spreads.items()})
    return rows


# ---- rivals ----------------------------------------------------------------------------------------------------------


def _without_relu(model: Transformer) -> None:
    for half in (model.encoder, model.decoder):
        for block in half.stack.blocks:
            block.feed_forward.branch.activation = nn.Identity()


OF_EQUAL_SIZE = {
    "feed-forward without ReLU": Machine(remove=_without_relu),
    "one head": Machine(heads=1),
}


@experiment
def equal_size(seeds: Sequence[int] = (1, 2, 3), rates: Sequence[float] = RATES) -> list[dict[str, Any]]:
    """BLEU of each machine of `OF_EQUAL_SIZE`, which have as many parameters as the whole one, as in `ablation`."""
    return [row for row, _ in runs(seeds, rates, machines=OF_EQUAL_SIZE)]
