"""Stacks of attention layers, each added to its input or put in its place, on the sentences of words.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.layer import MultiHead
from tfbook.lessons.self_attention.words import FORM, IT, LEXICON, named_right, pronouns


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


def train_stack(model: nn.Module, steps: int, lr: float) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for step in range(steps):
        batch = pronouns(64, seed=step)
        loss = F.cross_entropy(model(batch.ids), batch.target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@experiment
def depth(
    layers: Sequence[int] = (2, 6, 12),
    rates: Sequence[float] = (0.0003, 0.001, 0.003),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 300,
) -> list[dict[str, Any]]:
    """The share of right answers of stacks with and without residual connections, each at every learning rate."""
    rows = []
    for count in layers:
        for residual in (True, False):
            for rate in rates:
                for seed in seeds:
                    torch.manual_seed(seed)
                    right = named_right(train_stack(Stack(count, residual=residual), steps, rate))
                    rows.append(
                        {"layers": count, "residual": residual, "rate": rate, "seed": seed, "right": round(right, 4)}
                    )
    return rows


@experiment
def normalized_depth(
    layers: Sequence[int] = (12,),
    rates: Sequence[float] = (0.0003, 0.001, 0.003),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 300,
) -> list[dict[str, Any]]:
    """The runs of `depth` for stacks without residual connections that normalize each layer's output."""
    rows = []
    for count in layers:
        for rate in rates:
            for seed in seeds:
                torch.manual_seed(seed)
                right = named_right(train_stack(NormalizedStack(count), steps, rate))
                rows.append({"layers": count, "residual": False, "rate": rate, "seed": seed, "right": round(right, 4)})
    return rows


def at_best_rates(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, bool], list[float]]:
    """(layers, residual) → the runs at the learning rate with the best mean."""
    found: dict[tuple[int, bool], dict[float, list[float]]] = {}
    for row in rows:
        found.setdefault((row["layers"], row["residual"]), {}).setdefault(row["rate"], []).append(row["right"])
    return {key: max(by_rate.values(), key=sum) for key, by_rate in found.items()}
