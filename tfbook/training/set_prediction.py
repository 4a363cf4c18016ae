"""The loss of a set of predictions: each object is matched with one query, whatever the order of either.

(Carion et al., 2020, section 3.1.) Boxes are rows of numbers, shares of the image's sides: by `centers` (x and y of the
center, width, height), as DETR answers, or by `corners` (left, top, right, bottom), as scenes have them.

Shapes: query, object, box, label (the last one of the logits means "no object").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.training.losses import Loss

BOX_WEIGHT, OVERLAP_WEIGHT = 5.0, 2.0  # λ_L1 and λ_iou (section A.4)
NO_OBJECT_WEIGHT = 0.1  # the paper's, since most queries answer "no object"
EVEN = 1 / (1 + NO_OBJECT_WEIGHT)  # the chance that a query says where an object is as likely as none


class Objects(NamedTuple):
    """The objects of one image."""

    labels: Int64[Tensor, " object"]
    boxes: Float[Tensor, "object 4"]  # by corners


# ---- boxes -------------------------------------------------------------------------------------------------------


def corners(boxes: Float[Tensor, "*rows 4"]) -> Float[Tensor, "*rows 4"]:
    """Left, top, right and bottom of boxes given by center, width and height."""
    center, size = boxes.split(2, dim=-1)
    return torch.cat([center - size / 2, center + size / 2], dim=-1)


def centers(boxes: Float[Tensor, "*rows 4"]) -> Float[Tensor, "*rows 4"]:
    """Center, width and height of boxes given by left, top, right and bottom."""
    first, last = boxes.split(2, dim=-1)
    return torch.cat([(first + last) / 2, last - first], dim=-1)


def areas(boxes: Float[Tensor, "*rows 4"]) -> Float[Tensor, "*rows"]:
    """Width times height of boxes by corners; 0 where right is left of left."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def overlaps(
    one: Float[Tensor, "box 4"], other: Float[Tensor, "object 4"]
) -> tuple[Float[Tensor, "box object"], Float[Tensor, "box object"]]:
    """The intersection of each pair of boxes by corners over their union (IoU), and the union."""
    first = torch.maximum(one[:, None, :2], other[:, :2])
    last = torch.minimum(one[:, None, 2:], other[:, 2:])
    common = areas(torch.cat([first, last], dim=-1))
    union = areas(one)[:, None] + areas(other) - common
    return common / union.clamp(min=torch.finfo(union.dtype).tiny), union


def generalized_iou(one: Float[Tensor, "box 4"], other: Float[Tensor, "object 4"]) -> Float[Tensor, "box object"]:
    """IoU − (|hull| − |union|) / |hull|, with the smallest box around both as hull (Rezatofighi et al., 2019, alg. 1).

    Between −1 and 1; below 0 it still says how far apart two boxes are, so it has a gradient where IoU has none.
    """
    iou, union = overlaps(one, other)
    first = torch.minimum(one[:, None, :2], other[:, :2])
    last = torch.maximum(one[:, None, 2:], other[:, 2:])
    hull = areas(torch.cat([first, last], dim=-1)).clamp(min=torch.finfo(union.dtype).tiny)
    return iou - (hull - union) / hull


# ---- matching ----------------------------------------------------------------------------------------------------


def matching_cost(
    logits: Float[Tensor, "query label"], boxes: Float[Tensor, "query 4"], objects: Objects
) -> Float[Tensor, "query object"]:
    """−p(label) + 5 ‖box − box‖₁ − 2 gIoU for each query and object (section 3.1); `boxes` are by centers."""
    likely = logits.float().softmax(dim=-1)[:, objects.labels]
    distance = torch.cdist(boxes.float(), centers(objects.boxes), p=1)
    return BOX_WEIGHT * distance - OVERLAP_WEIGHT * generalized_iou(corners(boxes.float()), objects.boxes) - likely


@torch.no_grad()
def match(cost: Float[Tensor, "query object"]) -> tuple[Int64[Tensor, " object"], Int64[Tensor, " object"]]:
    """The numbers of queries and of their objects: one query for each object, with the least total cost (Kuhn, 1955).

    Raises ValueError when there are more objects than queries.
    """
    from scipy.optimize import linear_sum_assignment

    if cost.shape[1] > cost.shape[0]:
        raise ValueError(f"there are {cost.shape[1]} objects and {cost.shape[0]} queries; expected a query for each")
    queries, objects = linear_sum_assignment(cost.cpu().numpy())
    return torch.from_numpy(queries).to(cost.device), torch.from_numpy(objects).to(cost.device)


# ---- loss --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _matched(
    logits: Float[Tensor, "batch query label"],
    boxes: Float[Tensor, "batch query 4"],
    counts: Sequence[int],
    every: Objects,
) -> tuple[Int64[Tensor, " object"], Int64[Tensor, " object"]]:
    """Rows of the answers of a batch, and of its objects one image after the other, that belong together.

    The costs of all images are computed, and brought to the CPU, at once.
    """
    cost = matching_cost(logits.flatten(0, 1), boxes.flatten(0, 1), every).cpu().unflatten(0, logits.shape[:2])
    rows, numbers, first = [], [], 0
    for image, (own, count) in enumerate(zip(cost, counts, strict=True)):
        queries, objects = match(own[:, first : first + count])
        rows.append(image * logits.shape[1] + queries)
        numbers.append(first + objects)
        first += count
    return torch.cat(rows).to(logits.device), torch.cat(numbers).to(logits.device)


def set_prediction_loss(
    logits: Float[Tensor, "batch query label"],
    boxes: Float[Tensor, "batch query 4"],
    targets: Sequence[Objects],
    *,
    no_object: float = NO_OBJECT_WEIGHT,
) -> Loss:
    """−log p(label) of every query, and 5 ‖b − b̂‖₁ + 2 (1 − gIoU(b, b̂)) of each matched one (eq. 2); counts objects.

    Queries without an object should answer "no object", which weighs `no_object`. Boxes are by centers. Raises
    ValueError unless there are targets for each image, and when an image has more objects than there are queries.
    """
    if len(logits) != len(targets):
        raise ValueError(f"targets holds {len(targets)} images; expected {len(logits)}, as logits does")
    counts = [len(objects.labels) for objects in targets]
    together = Objects(*(torch.cat(parts) for parts in zip(*targets, strict=True)))
    rows, numbers = _matched(logits, boxes, counts, together)
    said, right = logits.flatten(0, 1).float(), together.boxes[numbers]
    labels = torch.full((len(said),), said.shape[1] - 1, device=said.device)
    labels[rows] = together.labels[numbers]
    weights = torch.ones(said.shape[1], device=said.device)
    weights[-1] = no_object
    named = F.cross_entropy(said, labels, weights, reduction="sum")
    found = boxes.flatten(0, 1)[rows].float()
    distance = (found - centers(right)).abs().sum()
    overlap = generalized_iou(corners(found), right).diagonal()
    return Loss(named + BOX_WEIGHT * distance + OVERLAP_WEIGHT * (1 - overlap).sum(), sum(counts))


def detection_loss(
    model: nn.Module,
    images: Float[Tensor, "batch channel height width"],
    targets: Sequence[Objects],
    *,
    no_object: float = NO_OBJECT_WEIGHT,
) -> Loss:
    """The sum of `set_prediction_loss` over the answers of each layer of a `Detr`'s decoder, each matched by itself."""
    layers: Any = model.by_layer
    answers = layers(images)
    losses = (set_prediction_loss(logits, boxes, targets, no_object=no_object) for logits, boxes in answers)
    return reduce(add, losses)


# ---- what was found ----------------------------------------------------------------------------------------------


class FoundObjects(NamedTuple):
    """How many objects there are, how many were found, and how many were claimed."""

    objects: int
    found: int
    claimed: int

    @property
    def recall(self) -> float:
        """The share of the objects that were found."""
        return self.found / max(self.objects, 1)

    @property
    def precision(self) -> float:
        """The share of the claims that are right."""
        return self.found / max(self.claimed, 1)


@torch.no_grad()
def claims(
    logits: Float[Tensor, "batch query label"], boxes: Float[Tensor, "batch query 4"], *, least: float = EVEN
) -> list[Objects]:
    """The objects that a detector claims in each image: those of queries with a chance over `least` of any object.

    Each has its most probable label. By default these are even odds, which training with a tenth of the weight on "no
    object" moves from 1/2 to 10/11.
    """
    chance = 1 - logits.softmax(dim=-1)[..., -1]
    rows = zip(logits[..., :-1].argmax(dim=-1), corners(boxes), chance > least, strict=True)
    return [Objects(labels[some], places[some]) for labels, places, some in rows]


@torch.no_grad()
def found_objects(claimed: Sequence[Objects], targets: Sequence[Objects], *, at: float = 0.5) -> FoundObjects:
    """Counts the objects for which a box with the right label and an IoU of at least `at` is claimed.

    A claim finds one object at most: as many pairs are made as possible.
    """
    found = 0
    for claim, objects in zip(claimed, targets, strict=True):
        iou, _ = overlaps(claim.boxes.float(), objects.boxes)
        right = (iou >= at) & (claim.labels[:, None] == objects.labels)
        cost = -right.float() if len(claim.labels) >= len(objects.labels) else -right.float().T
        found += int(-cost[match(cost)].sum())
    here, said = (sum(len(each.labels) for each in sets) for sets in (targets, claimed))
    return FoundObjects(here, found, said)
