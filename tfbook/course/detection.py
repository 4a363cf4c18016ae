"""A detector without queries or matching, to compare DETR with: a classifier that slides over the image.

Boxes are by corners, as shares of the image's sides. Shapes: scene, object, box, crop.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.data.images import LabeledImages
from tfbook.data.scenes import KINDS, Scene
from tfbook.modes import evaluating
from tfbook.training.set_prediction import Objects, overlaps

CROP = 24  # rows and columns of a crop
NOTHING = len(KINDS)  # the label of a crop without an object
NEAR, FAR = 0.7, 0.3  # a training crop overlaps its object by more than NEAR, or every object by less than FAR
ALIKE = 0.3  # of two boxes that overlap more, the less probable one is dropped


def objects_of(scenes: Sequence[Scene]) -> list[Objects]:
    """Kinds and boxes of the objects of each scene, as `detection_loss` takes them."""
    return [Objects(scene.kinds, scene.boxes) for scene in scenes]


def crops(image: Float[Tensor, "3 height width"], boxes: Float[Tensor, "box 4"]) -> Float[Tensor, "box 3 crop crop"]:
    """The part of the image in each box, resized to `CROP` × `CROP` pixels, and black beyond the image."""
    center, half = boxes[:, :2] + boxes[:, 2:] - 1, boxes[:, 2:] - boxes[:, :2]  # the image runs from −1 to 1
    matrix = torch.cat([torch.diag_embed(half), center[..., None]], dim=2)
    grid = F.affine_grid(matrix, [len(boxes), 3, CROP, CROP], align_corners=False)
    return F.grid_sample(image.expand(len(boxes), -1, -1, -1), grid, align_corners=False)


def random_squares(count: int, generator: torch.Generator) -> Float[Tensor, "box 4"]:
    """Squares inside the image, a fifth to half of its side wide."""
    side, *corner = torch.rand(3, count, generator=generator)
    side = 0.2 + 0.3 * side
    first = torch.stack(corner, dim=1) * (1 - side[:, None])
    return torch.cat([first, first + side[:, None]], dim=1)


def labeled_crops(scenes: Sequence[Scene], *, seed: int = 0) -> LabeledImages:
    """Crops around the objects and of the ground, with their labels: a kind's number or `NOTHING`.

    Of random squares, those count that overlap one object well or all objects little.
    """
    generator, images, labels = torch.Generator().manual_seed(seed), [], []
    for scene in scenes:
        squares = torch.cat([random_squares(40, generator), scene.boxes])
        iou, which = overlaps(squares, scene.boxes)[0].max(dim=1)
        for chosen, label in ((iou > NEAR, scene.kinds[which]), (iou < FAR, torch.full_like(which, NOTHING))):
            rows = chosen.nonzero()[-4:, 0]  # the objects' own boxes are the last ones
            images.append(crops(scene.image, squares[rows]))
            labels.append(label[rows])
    return LabeledImages(torch.cat(images), torch.cat(labels))


def suppress(
    boxes: Float[Tensor, "box 4"], scores: Float[Tensor, " box"], *, at: float = ALIKE
) -> Int64[Tensor, " kept"]:
    """Non-maximum suppression: the best box, then the best of those that overlap it by at most `at`, and so on."""
    iou, kept = overlaps(boxes, boxes)[0], []
    waiting = scores.argsort(descending=True, stable=True)
    while len(waiting):
        kept.append(waiting[0])
        waiting = waiting[iou[waiting[0], waiting] <= at]
        waiting = waiting[waiting != kept[-1]]
    return torch.stack(kept) if kept else waiting


def all_squares(sides: Sequence[float], step: float) -> Float[Tensor, "box 4"]:
    """Every square of these sides whose corner is a multiple of `step`, inside the image."""
    rows = []
    for side in sides:
        places = torch.arange(0, 1 - side + 1e-6, step)
        first = torch.cartesian_prod(places, places)
        rows.append(torch.cat([first, first + side], dim=1))
    return torch.cat(rows)


@torch.no_grad()
def slide(
    classifier: nn.Module,
    images: Float[Tensor, "scene 3 height width"],
    *,
    sides: Sequence[float] = (0.24, 0.31, 0.38),
    step: float = 0.05,
) -> list[Objects]:
    """The objects that a classifier of crops claims, having looked at every square of each image, in eval mode."""
    squares, found = all_squares(sides, step).to(images.device), []
    with evaluating(classifier):
        for image in images:
            chance, labels = classifier(crops(image, squares)).softmax(dim=1).max(dim=1)
            some = (labels != NOTHING).nonzero()[:, 0]
            best = some[suppress(squares[some], chance[some])]
            found.append(Objects(labels[best], squares[best]))
    return found
