"""Lesson 00: a translator's alignments, stored for the picture of what the course builds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import Any

from torch import Tensor

from tfbook import data
from tfbook.course import translators
from tfbook.course.experiments import experiment
from tfbook.generation.search import translate
from tfbook.models.seq2seq import BahdanauDecoder
from tfbook.text.pairs import filter_by_length

CROSSINGS = 4  # pairs of words that change places


@experiment
def translation(seed: int = 1, *, width: int = 128, steps: int = 600) -> list[dict[str, Any]]:
    """Translates held-out sentences with lesson 01's model; keeps right ones in which words change places."""
    corpus = data.load("english-french")
    task = translators.Task.of(corpus, corpus["train"])
    model, _ = translators.trained(BahdanauDecoder, seed, task, corpus["train"], width=width, steps=steps, dropout=0.1)
    pairs = [pair for pair in filter_by_length(corpus["test"], 9, 12) if crossings(pair.sure) >= CROSSINGS]
    found = zip(pairs, translate(model, pairs, task.source_vocab, task.target_vocab), strict=True)
    return [
        {"source": pair.source, "target": said.words, "weights": _rounded(said.weights), "links": sorted(pair.sure)}
        for pair, said in found
        if said.weights is not None and tuple(said.words) == tuple(pair.target)
    ][:12]


def crossings(links: Iterable[tuple[int, int]]) -> int:
    """How many pairs of links (source, target) cross, as where an adjective moves behind its noun."""
    return sum(target > other for (source, target), (last, other) in permutations(links, 2) if source < last)


def _rounded(weights: Tensor) -> list[list[float]]:
    return [[round(weight, 3) for weight in row] for row in weights.tolist()]
