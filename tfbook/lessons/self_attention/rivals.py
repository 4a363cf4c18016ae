"""Rivals of attention, trained on the lesson's tasks with as many parameters, and stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.layer import MultiHead
from tfbook.lessons.self_attention.runs import at_best_rate, reader_shares, train_on
from tfbook.lessons.self_attention.scenes import Scenes, many_twins, painted_right
from tfbook.lessons.self_attention.words import FORM, IT, LEXICON

WIDTH = 64


def network(outputs: int, hidden: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Average(nn.Module):
    """The average of all tokens, for each of them."""

    def forward(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch 1 d"]:
        return x.mean(dim=1, keepdim=True)


class Head(nn.Module):
    """One head of self-attention without W_O: softmax(Q Kᵀ / √d) V."""

    def __init__(self) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def scores(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n n"]:
        return self.W_Q(x) @ self.W_K(x).mT / math.sqrt(WIDTH)

    def forward(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n d"]:
        return self.scores(x).softmax(dim=-1) @ self.W_V(x)


# ---- shapes ----------------------------------------------------------------------------------------------------------


class Painter(nn.Module):
    """The lesson's painter for any number of shapes: what `mix` fetches is added to a token, then `paint` paints."""

    def __init__(self, shapes: int, mix: nn.Module, paint: nn.Module):
        super().__init__()
        self.kind, self.color = nn.Embedding(2 * shapes, WIDTH), nn.Linear(3, WIDTH)
        self.mix: Any = mix
        self.paint = paint

    def forward(
        self, kinds: Int[Tensor, "batch n"], colors: Float[Tensor, "batch n rgb"]
    ) -> Float[Tensor, "batch n rgb"]:
        x = self.kind(kinds) + self.color(colors)
        return self.paint(x + self.mix(x))


PAINTERS: dict[str, Callable[[int], Painter]] = {  # of equally many parameters
    "network, average, network": lambda shapes: Painter(shapes, nn.Sequential(network(WIDTH), Average()), network(3)),
    "attention with √d": lambda shapes: Painter(shapes, Head(), nn.Linear(WIDTH, 3)),
}


def train_painter(model: Painter, draw: Callable[[int, int], Scenes], steps: int, lr: float) -> Painter:
    def loss(step: int) -> Tensor:
        batch = draw(64, step)
        return F.mse_loss(model(batch.kinds, batch.colors), batch.target)

    return train_on(model, loss, steps, lr)


@experiment
def binding(
    shapes: Sequence[int] = (4, 8, 16),
    rates: Sequence[float] = (0.003, 0.01),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 500,
) -> list[dict[str, Any]]:
    """The share of gray shapes painted right by each of `PAINTERS`, by the number of shapes in a scene."""
    rows = []
    for count in shapes:
        draw = many_twins(count)
        for name, make in PAINTERS.items():
            for rate in rates:
                for seed in seeds:
                    torch.manual_seed(seed)
                    right = painted_right(train_painter(make(count), draw, steps, rate), draw)
                    rows.append({"shapes": count, "model": name, "rate": rate, "seed": seed, "right": round(right, 4)})
    return rows


def by_shapes(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """model → number of shapes → the runs at the learning rate with the best mean."""
    found: dict[str, dict[int, list[float]]] = {}
    for (model, shapes), runs in at_best_rate(rows, "model", "shapes").items():
        found.setdefault(model, {})[shapes] = runs
    return found


# ---- words -----------------------------------------------------------------------------------------------------------


class Reader(nn.Module):
    """The lesson's reader: words and positions, layers that add to them, and at *it* a map that names an animal."""

    def __init__(self, layers: Sequence[nn.Module], name: nn.Module):
        super().__init__()
        self.word, self.position = nn.Embedding(len(LEXICON), WIDTH), nn.Embedding(len(FORM), WIDTH)
        self.layers: Any = nn.ModuleList(layers)
        self.name = name

    def forward(self, ids: Int[Tensor, "batch n"]) -> Float[Tensor, "batch word"]:
        x = self.word(ids) + self.position.weight
        for layer in self.layers:
            x = x + layer(x)
        return self.name(x[:, IT])


READERS: dict[str, Callable[[], Reader]] = {
    "average of all": lambda: Reader([Average()], nn.Linear(WIDTH, len(LEXICON))),
    "network, average, network": lambda: Reader(
        [nn.Sequential(network(WIDTH), Average())], network(len(LEXICON), hidden=128)
    ),
    "one layer": lambda: Reader([MultiHead(WIDTH, 1)], nn.Linear(WIDTH, len(LEXICON))),
    "one layer of two heads, network": lambda: Reader([MultiHead(WIDTH, 2)], network(len(LEXICON), hidden=128)),
    "two layers": lambda: Reader([MultiHead(WIDTH, 1), MultiHead(WIDTH, 1)], nn.Linear(WIDTH, len(LEXICON))),
}


@experiment
def readers(
    lengths: Sequence[int] = (500, 1500), rates: Sequence[float] = (0.001, 0.003), seeds: Sequence[int] = (0, 1, 2)
) -> list[dict[str, Any]]:
    """The share of right animals that each of `READERS` names after so many steps, at each learning rate."""
    return [
        {"model": name, "steps": steps, "rate": rate, "seed": seed, "right": share}
        for name, make in READERS.items()
        for rate in rates
        for seed in seeds
        for steps, share in reader_shares(make, lengths, rate, seed).items()
    ]


def by_steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """model → number of steps → the runs at the learning rate with the best mean."""
    found: dict[str, dict[int, list[float]]] = {}
    for (model, steps), shares in at_best_rate(rows, "model", "steps").items():
        found.setdefault(model, {})[steps] = shares
    return found
