"""Pointing at the input: sorting numbers and walking around a hull with a pointer network.

Shapes: batch, item, step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.experiments import experiment
from tfbook.lessons.memory.machines import save, shipped
from tfbook.models.pointer_network import PointerConfig, PointerNetwork

if TYPE_CHECKING:
    from pandas import DataFrame

NUMBERS = PointerConfig(d_input=1, d_hidden=48, once=True)
POINTS = PointerConfig(d_input=2, d_hidden=48, once=True)
ITEMS = 10  # in training


class Pointing(NamedTuple):
    """Items, and the order in which to point at them; `stop`, their number, ends it and fills it up."""

    items: Float[Tensor, "batch item d_input"]
    target: Int64[Tensor, "batch step"]

    def to(self, device: torch.device) -> Pointing:
        """The same on a device."""
        return Pointing(*(part.to(device) for part in self))


def numbers(count: int, items: int, generator: torch.Generator) -> Pointing:
    """Different two-digit numbers, divided by 100, to be pointed at from the smallest to the largest."""
    drawn = torch.rand(count, 100, generator=generator).argsort(dim=1)[:, :items]
    stop = torch.full((count, 1), items)
    return Pointing(drawn[..., None] / 100, torch.cat([drawn.argsort(dim=1), stop], dim=1))


def points(count: int, items: int, generator: torch.Generator) -> Pointing:
    """Points in the unit square, from left to right, and their convex hull, counterclockwise from the first."""
    drawn = torch.rand(count, items, 2, generator=generator)
    drawn = drawn.take_along_dim(drawn[..., :1].argsort(dim=1), dim=1)
    target = torch.full((count, items + 1), items)
    for row, cloud in enumerate(drawn.numpy()):
        walk = hull(cloud)
        target[row, : len(walk)] = torch.tensor(walk)
    return Pointing(drawn, target)


def hull(cloud: np.ndarray) -> list[int]:
    """The numbers of the corners of a convex hull, counterclockwise from the smallest, by SciPy."""
    from scipy.spatial import ConvexHull

    corners = ConvexHull(cloud).vertices
    return np.roll(corners, -int(corners.argmin())).tolist()


TASKS: dict[str, tuple[Callable[..., Pointing], PointerConfig]] = {
    "sort": (numbers, NUMBERS),
    "sort without a mask": (numbers, replace(NUMBERS, once=False)),
    "hull": (points, POINTS),
}
COUNTS = (5, 8, 10, 12, 15)


def pointing_loss(model: PointerNetwork, task: Pointing) -> Float[Tensor, ""]:
    """Nats per choice up to the first stop; what fills the target up counts nothing."""
    stop = task.items.shape[1]
    counts = F.pad(task.target[:, :-1] != stop, (1, 0), value=True)
    return F.cross_entropy(model(*task)[counts], task.target[counts])


def exact(model: PointerNetwork, task: Pointing) -> float:
    """The share of walks that are right from the first choice to the stop."""
    task = task.to(next(model.parameters()).device)
    return float((model.point(task.items) == task.target).all(dim=1).float().mean())


# ---- runs ------------------------------------------------------------------------------------------------------------


def new_pointer(name: str, seed: int, steps: int, lr: float) -> PointerNetwork:
    """A pointer network for "sort" or "hull" after its run, 64 fresh tasks of ten items per step."""
    make, config = TASKS[name]

    def batch(step: int) -> Pointing:
        return make(64, ITEMS, torch.Generator().manual_seed(1_000_000 * seed + step))

    runtime.seed(seed)
    model = PointerNetwork(config).to(runtime.device())
    recipe = training.Recipe(steps=steps, lr=lr, schedule=training.warmup_cosine(50), evaluate_every=steps)
    training.fit(model, pointing_loss, batch, recipe)
    return model


STEPS = {"sort": 400, "sort without a mask": 1000, "hull": 1000}


@experiment
def pointing(seeds: Sequence[int] = (1, 2, 3), *, lr: float = 3e-3) -> list[dict[str, Any]]:
    """The share of walks without a mistake by number of items, after training on ten; those of 500 new tasks each."""
    rows = []
    for (name, (make, _)), seed in product(TASKS.items(), seeds):
        model = new_pointer(name, seed, STEPS[name], lr)
        for items in COUNTS:
            share = exact(model, make(500, items, torch.Generator().manual_seed(9)))
            rows.append({"task": name, "seed": seed, "steps": STEPS[name], "items": items, "exact": round(share, 4)})
        if seed == seeds[0] and "without" not in name:
            save(model.half(), name)
    return rows


def claims_of_pointing(rows: DataFrame) -> dict[int, float]:
    """The share of lists of ten that the worst seed sorts without a mistake."""
    return {14: rows[(rows.task == "sort") & (rows["items"] == ITEMS)]["exact"].min()}


@cache
def pointer(name: str) -> PointerNetwork:
    """The trained network that ships for "sort" or "hull"."""
    return shipped(PointerNetwork(TASKS[name][1]), name)
