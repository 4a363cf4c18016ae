"""Stacks of attention layers, each added to its input or put in its place, on the sentences of words.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.layer import MultiHead
from tfbook.lessons.self_attention.runs import at_best_rate, reader_share
from tfbook.lessons.self_attention.words import FORM, IT, LEXICON


class Stack(nn.Module):
    """Words and places through attention layers; `residual` adds each layer's output to its input."""

    def __init__(self, layers: int, *, residual: bool, width: int = 32, heads: int = 2):
        super().__init__()
        self.word, self.place = nn.Embedding(len(LEXICON), width), nn.Embedding(len(FORM), width)
        self.layers = nn.ModuleList(MultiHead(width, heads) for _ in range(layers))
        self.name, self.residual = nn.Linear(width, len(LEXICON)), residual

    def forward(self, ids: Int[Tensor, "batch place"]) -> Float[Tensor, "batch word"]:
        x = self.word(ids) + self.place.weight
        for layer in self.layers:
            x = x + layer(x) if self.residual else layer(x)
        return self.name(x[:, IT])


class NormalizedStack(Stack):
    """A stack whose layers each replace their input, with a LayerNorm after each."""

    def __init__(self, layers: int, width: int = 32, heads: int = 2):
        super().__init__(layers, residual=False, width=width, heads=heads)
        self.layers = nn.ModuleList(nn.Sequential(layer, nn.LayerNorm(width)) for layer in self.layers)


def _runs(
    make: Callable[[], nn.Module], kind: dict[str, Any], rates: Sequence[float], seeds: Sequence[int], steps: int
) -> list[dict[str, Any]]:
    return [
        kind | {"rate": rate, "seed": seed, "right": reader_share(make, steps, rate, seed)}
        for rate in rates
        for seed in seeds
    ]


@experiment
def depth(
    layers: Sequence[int] = (2, 6, 12),
    rates: Sequence[float] = (0.0003, 0.001, 0.003),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 300,
) -> list[dict[str, Any]]:
    """The share of right answers of stacks with and without residual connections, each at every learning rate."""
    return [
        row
        for count in layers
        for residual in (True, False)
        for row in _runs(
            partial(Stack, count, residual=residual), {"layers": count, "residual": residual}, rates, seeds, steps
        )
    ]


@experiment
def normalized_depth(
    layers: Sequence[int] = (12,),
    rates: Sequence[float] = (0.0003, 0.001, 0.003),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 300,
) -> list[dict[str, Any]]:
    """The runs of `depth` for stacks without residual connections that normalize each layer's output."""
    return [
        row
        for count in layers
        for row in _runs(partial(NormalizedStack, count), {"layers": count, "residual": False}, rates, seeds, steps)
    ]


def at_best_rates(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, bool], list[float]]:
    """(layers, residual) → the runs at the learning rate with the best mean."""
    return {(layers, residual): runs for (layers, residual), runs in at_best_rate(rows, "layers", "residual").items()}
