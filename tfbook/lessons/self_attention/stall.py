"""Why attention without √d stalls on the gray shapes: one change at a time, and the scores while it trains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.rivals import WIDTH, Head, Painter
from tfbook.lessons.self_attention.scenes import TEST, painted_right, twins

if TYPE_CHECKING:
    from pandas import DataFrame

ROOT = math.sqrt(WIDTH)


@dataclass(frozen=True, kw_only=True)
class Change:
    """The changes of a run: factors on the start and on the learning rate of some weights, or the division by √d."""

    divided: bool = False
    kinds: float = 1.0  # on the start of the kinds' vectors
    start_q: float = 1.0  # on the start of W_Q and its bias
    start_k: float = 1.0
    rate_q: float = 1.0  # on their learning rate
    rate_k: float = 1.0


CHANGES = {
    "nothing": Change(),
    "divided by √d": Change(divided=True),
    "W_Q starts at 1/√d": Change(start_q=1 / ROOT),
    "W_Q and W_K start at 1/5": Change(start_q=0.2, start_k=0.2),
    "W_Q learns at 1/√d of the rate": Change(rate_q=1 / ROOT),
    "W_Q and W_K learn at 1/√d of the rate": Change(rate_q=1 / ROOT, rate_k=1 / ROOT),
    "W_Q starts at 1/√d and learns at 1/√d of the rate": Change(start_q=1 / ROOT, rate_q=1 / ROOT),
    "divided, but W_Q starts at √d": Change(divided=True, start_q=ROOT),
    "kind vectors start at 1/5": Change(kinds=0.2),
}


class RawHead(Head):
    """A head whose scores are not divided by √d."""

    def scores(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n n"]:
        return self.W_Q(x) @ self.W_K(x).mT


def changed_painter(change: Change, seed: int) -> Painter:
    """The lesson's painter with one head, from the random weights of this seed, some of them scaled."""
    torch.manual_seed(seed)
    model = Painter(4, Head() if change.divided else RawHead(), nn.Linear(WIDTH, 3))
    scaled = [(model.kind, change.kinds), (model.mix.W_Q, change.start_q), (model.mix.W_K, change.start_k)]
    with torch.no_grad():
        for layer, factor in scaled:
            for weight in layer.parameters():
                weight.mul_(factor)
    return model


def _optimizer(model: Painter, change: Change, rate: float) -> torch.optim.Adam:
    slow = {"mix.W_Q": change.rate_q, "mix.W_K": change.rate_k}
    groups = [
        {"params": [weight], "lr": rate * slow.get(name.rpartition(".")[0], 1.0)}
        for name, weight in model.named_parameters()
    ]
    return torch.optim.Adam(groups, rate)


@torch.no_grad()
def softness(model: Painter) -> dict[str, float]:
    """The spread of the scores over the keys of a query, and the largest weight, in the mean over 64 test scenes."""
    scenes = twins(64, TEST)
    scores = model.mix.scores(model.kind(scenes.kinds) + model.color(scenes.colors))
    return {
        "spread": round(float(scores.std(dim=-1).mean()), 4),
        "largest": round(float(scores.softmax(dim=-1).amax(dim=-1).mean()), 4),
    }


def trace(change: Change, seed: int, rate: float, when: Sequence[int]) -> list[dict[str, Any]]:
    """One run: after each of the numbers of steps in `when`, the share painted right and the scores' `softness`."""
    model = changed_painter(change, seed)
    optimizer, rows = _optimizer(model, change, rate), []
    for step in range(max(when) + 1):
        if step in when:
            rows.append({"steps": step, "right": round(painted_right(model, twins), 4), **softness(model)})
        batch = twins(64, step)
        optimizer.zero_grad()
        F.mse_loss(model(batch.kinds, batch.colors), batch.target).backward()
        optimizer.step()
    return rows


@experiment
def stall(
    seeds: Sequence[int] = range(8), rate: float = 0.003, when: Sequence[int] = (0, 20, 500)
) -> list[dict[str, Any]]:
    """Each of `CHANGES` from the same random weights: the scores early in training, and the share painted right."""
    return [
        {"change": name, "seed": seed, **row}
        for name, change in CHANGES.items()
        for seed in seeds
        for row in trace(change, seed, rate, when)
    ]


@experiment
def growth(
    rates: Sequence[float] = (0.0003, 0.001, 0.003, 0.01),
    seeds: Sequence[int] = range(4),
    when: Sequence[int] = (0, 5, 10, 20, 50, 100, 200, 500, 1000),
) -> list[dict[str, Any]]:
    """The scores while attention trains without and with the division, at each learning rate, and twice as long."""
    return [
        {"divided": divided, "rate": rate, "seed": seed, **row}
        for divided in (False, True)
        for rate in rates
        for seed in seeds
        for row in trace(Change(divided=divided), seed, rate, when)
    ]


def by_change(rows: Sequence[Mapping[str, Any]], column: str, steps: int) -> dict[str, list[float]]:
    """change → this column of each run after so many steps."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["steps"] == steps:
            found.setdefault(row["change"], []).append(row[column])
    return found


HALVES = {  # the two things that the division by √d does, as if W_Q alone were changed
    ("starts as it is", "learns at the full rate"): "nothing",
    ("starts as it is", "learns at 1/8 of the rate"): "W_Q learns at 1/√d of the rate",
    ("starts at 1/8", "learns at the full rate"): "W_Q starts at 1/√d",
    ("starts at 1/8", "learns at 1/8 of the rate"): "W_Q starts at 1/√d and learns at 1/√d of the rate",
}


def halves(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Start and learning rate of W_Q → the median share painted right, its lowest and its highest."""
    import pandas as pd

    right = by_change(rows, "right", max(row["steps"] for row in rows))
    table: dict[str, dict[str, str]] = {}
    for (start, rate), change in HALVES.items():
        runs = right[change]
        table.setdefault(rate, {})[f"W_Q {start}"] = f"{median(runs):.0%} ({min(runs):.0%} to {max(runs):.0%})"
    return pd.DataFrame(table)


def better_half(rows: Sequence[Mapping[str, Any]]) -> float:
    """The larger median share of the two halves of the division, each alone."""
    right = by_change(rows, "right", max(row["steps"] for row in rows))
    return max(median(right[name]) for name in ("W_Q starts at 1/√d", "W_Q learns at 1/√d of the rate"))


def changes_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Each change with the median spread of its scores at the start and after twenty steps, and the shares right."""
    import pandas as pd

    spread = {steps: by_change(rows, "spread", steps) for steps in (0, 20)}
    table = {
        change: {
            "spread at the start": round(median(spread[0][change]), 1),
            "after 20 steps": round(median(spread[20][change]), 1),
            "median right": f"{median(runs):.0%}",
            "worst to best run": f"{min(runs):.0%} to {max(runs):.0%}",
        }
        for change, runs in by_change(rows, "right", max(row["steps"] for row in rows)).items()
    }
    return pd.DataFrame(table).T


def by_division(rows: Sequence[Mapping[str, Any]], rate: float) -> dict[str, list[list[Mapping[str, Any]]]]:
    """Without and with the division → the runs of `growth` at this learning rate, each as its rows."""
    found: dict[str, list[list[Mapping[str, Any]]]] = {}
    for divided, name in ((False, "undivided"), (True, "divided by √d")):
        kept = [row for row in rows if row["divided"] == divided and row["rate"] == rate]
        seeds = dict.fromkeys(row["seed"] for row in kept)
        found[name] = [[row for row in kept if row["seed"] == seed] for seed in seeds]
    return found


def rates_table(rows: Sequence[Mapping[str, Any]], steps: int) -> DataFrame:
    """Learning rate → the median share painted right after so many steps, without and with the division."""
    import pandas as pd

    table: dict[str, dict[str, str]] = {}
    for rate in dict.fromkeys(row["rate"] for row in rows):
        for name, runs in by_division(rows, rate).items():
            shares = [row["right"] for run in runs for row in run if row["steps"] == steps]
            text = f"{median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"
            table.setdefault(f"{rate:g}", {})[name] = text
    return pd.DataFrame(table).T.rename_axis("learning rate")
