"""Scenes become images: textured ground, then each object with its shadow, shading and outline.

Many scenes are drawn at once. An object is its kind's template of signed distances, moved, turned and scaled to its
place: a pixel half inside is half covered, so edges are smooth.

Shapes: scene, object (of one scene, padded to those of the fullest), height and width (equal).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.data.scenes.objects import COLORS, SceneObject
from tfbook.data.scenes.shapes import KINDS, REACH, templates


class Ground(NamedTuple):
    """A color, and noise that is averaged over some pixels down and across, which makes blades, grain or waves."""

    color: tuple[float, float, float]
    down: int
    across: int
    contrast: float
    blotches: float  # contrast of slow changes of brightness


GROUNDS = {
    "grass": Ground((0.50, 0.58, 0.38), down=7, across=1, contrast=0.055, blotches=0.03),
    "sand": Ground((0.80, 0.72, 0.56), down=1, across=1, contrast=0.035, blotches=0.025),
    "water": Ground((0.50, 0.63, 0.70), down=2, across=13, contrast=0.045, blotches=0.02),
    "stone": Ground((0.60, 0.59, 0.58), down=3, across=3, contrast=0.04, blotches=0.05),
    "wood": Ground((0.62, 0.48, 0.35), down=2, across=41, contrast=0.05, blotches=0.015),
}
_MARGIN = max(max(ground.down, ground.across) for ground in GROUNDS.values()) - 1
_BLOTCHES = 6  # rows and columns of the slow noise


class Drawn(NamedTuple):
    """Images and where their objects are; the objects of a scene are padded to those of the fullest one."""

    images: Float[Tensor, "scene 3 height width"]
    masks: Bool[Tensor, "scene object height width"]  # the pixels where the object is seen
    boxes: Float[Tensor, "scene object 4"]  # left, top, right, bottom of the whole silhouette, as shares of the side


# ---- ground ------------------------------------------------------------------------------------------------------


def draw_ground(names: Sequence[str], seeds: Sequence[int], side: int) -> Float[Tensor, "scene 3 height width"]:
    """The ground of each scene; its noise depends on the scene's own seed alone."""
    generators = [np.random.default_rng(seed) for seed in seeds]
    noise = torch.stack(
        [torch.from_numpy(g.standard_normal((side + _MARGIN,) * 2, dtype=np.float32)) for g in generators]
    )
    slow = torch.stack([torch.from_numpy(g.standard_normal((_BLOTCHES,) * 2, dtype=np.float32)) for g in generators])
    images = F.interpolate(slow[:, None], (side, side), mode="bicubic").expand(-1, 3, -1, -1).clone()
    for name in set(names):
        rows, ground = torch.tensor([other == name for other in names]), GROUNDS[name]
        grain = F.avg_pool2d(noise[rows, None], (ground.down, ground.across), stride=1)[..., :side, :side]
        grain = ground.contrast * math.sqrt(ground.down * ground.across) * grain
        images[rows] = torch.tensor(ground.color)[:, None, None] + grain + ground.blotches * images[rows]
    return images


# ---- objects -----------------------------------------------------------------------------------------------------


def distances_to(objects: Sequence[SceneObject], side: int) -> Float[Tensor, "object 2 height width"]:
    """Signed distances in pixels from each pixel to an object's silhouette and to its details."""
    kinds = torch.tensor([KINDS.index(one.kind) for one in objects])
    places = torch.tensor([(one.x, one.y, one.size, one.tilt) for one in objects], dtype=torch.float32)
    x, y, size, tilt = places.T
    sin, cos = tilt.deg2rad().sin(), tilt.deg2rad().cos()
    left, top = 2 * x - 1, 2 * y - 1  # the image runs from −1 to 1
    matrix = torch.stack([cos, sin, -(cos * left + sin * top), -sin, cos, sin * left - cos * top], dim=1)
    matrix = (matrix / (size * REACH)[:, None]).unflatten(1, (2, 3))
    grid = F.affine_grid(matrix, [len(objects), 2, side, side], align_corners=False)
    found = F.grid_sample(templates()[kinds], grid, padding_mode="border", align_corners=True)
    return found * (size * side / 2)[:, None, None, None]


def covered(distance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """How much of a pixel is inside, from its center's signed distance in pixels."""
    return (0.5 - distance).clamp(0, 1)


def paint(
    images: Float[Tensor, "scene 3 height width"],
    distance: Float[Tensor, "scene 2 height width"],
    color: Float[Tensor, "scene 3"],
    shadow: float = 0.35,
) -> Float[Tensor, "scene 3 height width"]:
    """One object on each image: a soft shadow to the lower right, the color lit from the upper left, a dark outline."""
    side = images.shape[-1]
    whole, detail = distance[:, :1], distance[:, 1:]
    shift = max(round(side / 32), 1)
    moved = F.pad(whole, (shift, 0, shift, 0), mode="replicate")[..., :side, :side]
    images = images * (1 - shadow * (0.5 - moved / (side / 20)).clamp(0, 1))
    ramp = torch.linspace(0.06, -0.06, side)
    rim = (1 - (-whole - side / 50).abs() / (side / 64)).clamp(0, 1)  # a lighter line along the inside of the outline
    dark = (1 - 0.6 * covered(-whole - side / 64)) * (1 - 0.75 * covered(detail))
    lit = color[:, :, None, None] * ((1 + ramp[:, None] + ramp) * dark) + 0.06 * rim * dark
    return torch.lerp(images, lit, covered(whole))


def boxes_around(masks: Bool[Tensor, "*scenes height width"]) -> Float[Tensor, "*scenes 4"]:
    """Left, top, right and bottom edge of what is True, as shares of the side; zeros where nothing is."""
    edges = []
    for dim in (-2, -1):
        line = masks.any(dim=dim)
        first = line.int().argmax(dim=-1)
        last = line.shape[-1] - line.flip(-1).int().argmax(dim=-1)
        edges.append((first, torch.where(line.any(dim=-1), last, 0)))
    (left, right), (top, bottom) = edges
    return torch.stack([left, top, right, bottom], dim=-1) / masks.shape[-1]


def draw(
    scenes: Sequence[Sequence[SceneObject]],
    grounds: Sequence[str],
    seeds: Sequence[int],
    side: int,
    *,
    shadow: float = 0.35,
) -> Drawn:
    """Draws the objects of each scene in their order, the last one on top.

    `seeds` choose the texture of each ground, `shadow` how dark it is beside an object: with 0, nothing changes outside
    the silhouettes. An image does not depend on the others that are drawn with it.
    """
    images, most = draw_ground(grounds, seeds, side), max(map(len, scenes))
    silhouettes = torch.zeros(len(scenes), most, side, side, dtype=torch.bool)
    masks = silhouettes.clone()
    for slot in range(most):
        rows = torch.tensor([row for row, scene in enumerate(scenes) if len(scene) > slot])
        objects = [scene[slot] for scene in scenes if len(scene) > slot]
        distance = distances_to(objects, side)
        colors = torch.tensor([COLORS[one.color] for one in objects])
        images[rows] = paint(images[rows], distance, colors, shadow)
        silhouettes[rows, slot] = distance[:, 0] < 0
        masks[:, :slot] &= ~silhouettes[:, slot, None]
        masks[:, slot] = silhouettes[:, slot]
    return Drawn(images.clamp(0, 1), masks, boxes_around(silhouettes))
