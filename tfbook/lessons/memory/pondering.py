"""Thinking for as long as it takes: a walk from place to place until it is home, by adaptive computation time.

Shapes: batch, place (of the table), d_hidden, step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.experiments import experiment
from tfbook.models.adaptive import AdaptiveSteps, Thought

if TYPE_CHECKING:
    from pandas import DataFrame

PLACES, HOPS = 8, 5
WIDTH = 32
MOST = 8  # steps of thinking


class Walks(NamedTuple):
    """Tables in which every place names the next one, which places are homes, where to begin and where it ends."""

    table: Int64[Tensor, "batch place"]
    home: Bool[Tensor, "batch place"]
    start: Int64[Tensor, " batch"]
    end: Int64[Tensor, " batch"]

    def to(self, device: torch.device) -> Walks:
        """The same on a device."""
        return Walks(*(part.to(device) for part in self))


def walks(count: int, generator: torch.Generator, hops: Sequence[int] = range(1, HOPS + 1)) -> Walks:
    """Two chains through all places, each to a home that names itself; the walk takes one of `hops` to the first."""
    order = torch.rand(count, PLACES, generator=generator).argsort(dim=1)
    length = torch.tensor(hops)[torch.randint(len(hops), (count,), generator=generator)][:, None]
    number = torch.arange(PLACES).expand(count, -1)
    at_home = (number == length) | (number == PLACES - 1)
    following = order.take_along_dim(torch.where(at_home, number, number + 1), dim=1)
    table = torch.zeros_like(order).scatter(1, order, following)
    home = torch.zeros_like(order, dtype=torch.bool).scatter(1, order, at_home)
    return Walks(table, home, order[:, 0], order.take_along_dim(length, dim=1)[:, 0])


def lookup(
    state: Float[Tensor, "batch d_hidden"],
    keys: Float[Tensor, "place d_hidden"],
    values: Float[Tensor, "batch place d_hidden"],
) -> Float[Tensor, "batch d_hidden"]:
    """One hop: the place where the state is asks the table by attention, and what it reads is the next state."""
    weights = (state @ keys.T).softmax(dim=-1)
    return (weights[:, None] @ values)[:, 0]


class Walker(nn.Module):
    """Reads a table and a start, thinks in lookups, and names the end."""

    def __init__(self, most: int = MOST, d_hidden: int = WIDTH):
        super().__init__()
        self.place, self.home = nn.Embedding(PLACES, d_hidden), nn.Embedding(2, d_hidden)
        self.think = AdaptiveSteps(lookup, d_hidden, most=most)
        self.answer = nn.Linear(d_hidden, PLACES)

    def forward(self, task: Walks) -> tuple[Float[Tensor, "batch place"], Thought]:
        """Logits of the end, and how long each row was thought about."""
        known = task.home.take_along_dim(task.table, dim=1).long()  # of the place that each one names
        values = self.place(task.table) + self.home(known)
        thought = self.think(self.place(task.start), self.place.weight, values)
        return self.answer(thought.state), thought


def walk_loss(model: Walker, task: Walks, price: float) -> Float[Tensor, ""]:
    """Nats per answer, and `price` for each step of thinking (Graves, 2016, eq. 12)."""
    logits, thought = model(task)
    return F.cross_entropy(logits, task.end) + price * thought.halting.ponder.mean()


@torch.no_grad()
def by_hops(model: Walker, count: int = 500) -> list[dict[str, float]]:
    """Right answers and steps of thinking for each number of hops."""
    rows, device = [], next(model.parameters()).device
    for hops in range(1, HOPS + 1):
        task = walks(count, torch.Generator().manual_seed(9 + hops), [hops]).to(device)
        logits, thought = model(task)
        right = (logits.argmax(dim=1) == task.end).float().mean()
        steps = thought.halting.steps.float().mean()
        rows.append({"hops": hops, "right": round(float(right), 4), "steps": round(float(steps), 3)})
    return rows


def new_walker(seed: int, price: float, steps: int, lr: float, most: int = MOST) -> Walker:
    """A walker after its run on 64 fresh tables per step."""
    runtime.seed(seed)
    model = Walker(most).to(runtime.device())
    recipe = training.Recipe(steps=steps, lr=lr, schedule=training.warmup_cosine(50), evaluate_every=steps)

    def batch(step: int) -> Walks:
        return walks(64, torch.Generator().manual_seed(1_000_000 * seed + step))

    training.fit(model, lambda model, task: walk_loss(model, task, price), batch, recipe)
    return model


PRICES = (0.01, 0.1, 0.5)


@experiment
def pondering(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 600, lr: float = 1e-2) -> list[dict[str, Any]]:
    """Right answers and steps by distance from home, at three prices of a step; and with one step and no choice."""
    runs = [(f"price {price:g}", price, MOST) for price in PRICES]
    runs.append(("always one step", 0.0, 1))
    rows = []
    for seed in seeds:
        for name, price, most in runs:
            found = by_hops(new_walker(seed, price, steps, lr, most))
            rows += [{"walker": name, "price": price, "most": most, "seed": seed, **row} for row in found]
    return rows


def claims_of_pondering(rows: DataFrame) -> dict[int, float]:
    """How many more steps five hops take than one, at least: over all seeds and prices."""
    adaptive = rows[rows.most > 1].pivot_table(index=["walker", "seed"], columns="hops", values="steps")
    return {15: float((adaptive[HOPS] - adaptive[1]).min())}
