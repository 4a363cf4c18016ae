"""Three rectangles to find, and three ways to say which answer belongs to which.

Shapes: batch, query, label, object (as many as queries), side of a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.experiments import experiment, stored
from tfbook.lessons.vision_beyond.contest import Batches, recipe
from tfbook.models.detr import Detr, DetrConfig
from tfbook.training.set_prediction import (
    BOX_WEIGHT,
    Objects,
    centers,
    claims,
    corners,
    found_objects,
    match,
    matching_cost,
)

PIXELS, CELL, COUNT, COLORED = 24, 8, 3, 3  # sides of a picture and of a cell; rectangles in it; colors
LEARN, ASK = 4000, 500
STEPS, RATE, BATCH = 400, 0.004, 16

Order = Callable[[Tensor, Tensor, Tensor, Tensor], Int64[Tensor, " query"]]


@dataclass(frozen=True)
class Rectangles:
    """Pictures with three rectangles each, their colors, and their boxes by corners, listed in a random order."""

    images: Float[Tensor, "batch 3 side side"]
    labels: Int64[Tensor, "batch object"]
    boxes: Float[Tensor, "batch object 4"]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Int64[Tensor, " rows"]) -> Rectangles:
        """Some of the pictures."""
        return Rectangles(self.images[rows], self.labels[rows], self.boxes[rows])

    def to(self, device: torch.device) -> Rectangles:
        """The same pictures on another device."""
        return Rectangles(*(part.to(device) for part in (self.images, self.labels, self.boxes)))

    @property
    def objects(self) -> list[Objects]:
        """Each picture's rectangles."""
        return [Objects(*one) for one in zip(self.labels, self.boxes, strict=True)]


def rectangles(count: int, seed: int) -> Rectangles:
    """Rectangles of 5 to 8 pixels a side, each in a cell of its own of 3 × 3, on black."""
    draw = torch.Generator().manual_seed(seed)
    cells = torch.rand(count, 9, generator=draw).argsort(dim=1)[:, :COUNT]
    sizes = torch.randint(CELL - 3, CELL + 1, (count, COUNT, 2), generator=draw)
    inside = torch.rand(count, COUNT, 2, generator=draw) * (CELL - sizes + 1)
    first = torch.stack([cells % 3, cells // 3], dim=-1) * CELL + inside.long()
    labels = torch.randint(0, COLORED, (count, COUNT), generator=draw)
    at = torch.arange(PIXELS)
    across, down = ((at >= first[..., axis, None]) & (at < (first + sizes)[..., axis, None]) for axis in (0, 1))
    masks = (down[..., :, None] & across[..., None, :]).float()  # batch, object, row, column
    images = torch.einsum("borc,bok->bkrc", masks, F.one_hot(labels, COLORED).float())
    return Rectangles(images, labels, torch.cat([first, first + sizes], dim=-1) / PIXELS)


def rectangle_finder() -> Detr:
    """A DETR with three queries for pictures of 24 × 24 pixels, untrained."""
    sizes = DetrConfig(
        height=PIXELS,
        width=PIXELS,
        backbone=(16, 32),
        d_model=32,
        heads=4,
        d_ff=64,
        layers=1,
        queries=COUNT,
        dropout=0.0,
    )
    return Detr(COLORED, sizes)


# ---- orders ------------------------------------------------------------------------------------------------------


def as_listed(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor) -> Int64[Tensor, " query"]:
    """Query j is to find object j."""
    return torch.arange(len(labels))


def left_to_right(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor) -> Int64[Tensor, " query"]:
    """Query j is to find the j-th object from the left."""
    return targets[:, 0].argsort()


def by_matching(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor) -> Int64[Tensor, " query"]:
    """Each query is to find the object that a matching gives it."""
    return match(matching_cost(logits, boxes, Objects(labels, targets)))[1]


ORDERS: dict[str, Order] = {"as listed": as_listed, "left to right": left_to_right, "matched": by_matching}


def ordered_loss(model: nn.Module, part: Rectangles, order: Order) -> Float[Tensor, ""]:
    """−log p(label) + 5 ‖b − b̂‖₁ in the mean over all queries, whose objects `order` chooses for each picture."""
    logits, boxes = model(part.images)
    pictures = zip(logits.detach(), boxes.detach(), part.labels, part.boxes, strict=True)
    mine = torch.stack([order(*each) for each in pictures]).to(part.labels.device)
    right = centers(part.boxes).gather(1, mine[..., None].expand(-1, -1, 4))
    named = F.cross_entropy(logits.flatten(0, 1), part.labels.gather(1, mine).flatten())
    return named + BOX_WEIGHT * (boxes - right).abs().sum(dim=-1).mean()


def finding_in(order: Order, part: Rectangles, *, seed: int, steps: int = STEPS) -> Detr:
    """A finder trained on these pictures with an order, on the CPU: it is tiny."""
    runtime.seed(seed)
    model, loss = rectangle_finder(), partial(ordered_loss, order=order)
    training.fit(model, loss, Batches(part, size=BATCH, seed=seed), recipe(steps, RATE, weight_decay=0.01))
    return model.eval()


@torch.no_grad()
def rectangles_found(model: nn.Module, part: Rectangles) -> float:
    """The share in percent that has an answer of its own with the right color and an IoU of at least one half."""
    return round(100 * found_objects(claims(*model(part.images), least=-1.0), part.objects).recall, 1)


DRAWN = 4  # pictures of the test whose boxes are stored


@experiment
def drawn_boxes_of_longer(seed: int = 1, steps: int = 3 * STEPS) -> list[dict[str, Any]]:
    """The boxes, by corners, of a finder trained by matching with three times the steps, on the first test pictures."""
    model, test = finding_in(by_matching, rectangles(LEARN, 1), seed=seed, steps=steps), rectangles(ASK, 2)
    with torch.no_grad():
        boxes = corners(model(test.images[:DRAWN]).boxes)
    found = rectangles_found(model, test)
    return [
        {"picture": n, "steps": steps, "seed": seed, "found": found, "boxes": b.tolist()} for n, b in enumerate(boxes)
    ]


def drawn_boxes() -> Float[Tensor, "picture query 4"]:
    """The stored boxes, by corners, of the longer run."""
    return torch.tensor([row["boxes"] for row in stored("vision_beyond.drawn_boxes_of_longer").rows])


@experiment
def in_order(seeds: Sequence[int] = (1, 2, 3), longer: int = 3) -> list[dict[str, Any]]:
    """Rectangles found with each order; the two better ones, with the first seed, also with more steps."""
    train, test = rectangles(LEARN, 1), rectangles(ASK, 2)
    runs = [(name, STEPS, seed) for name in ORDERS for seed in seeds]
    runs += [(name, longer * STEPS, seed) for name in ("left to right", "matched") for seed in seeds[:1]]
    rows = []
    for name, steps, seed in runs:
        model = finding_in(ORDERS[name], train, seed=seed, steps=steps)
        rows.append({"order": name, "steps": steps, "seed": seed, "found": rectangles_found(model, test)})
    return rows
