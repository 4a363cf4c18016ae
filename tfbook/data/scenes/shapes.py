"""The kinds of objects as closed curves, and the signed distance to them: negative inside, positive outside.

A curve is a polygon of points (x, y) in the square from −1 to 1, y pointing down as in an image. What several curves
enclose an odd number of times is inside, so the inner curve of a ring is its hole.

Shapes: point, row and column (of a template), 2 (x and y).
"""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

Curve = Float[Tensor, "point 2"]
SMOOTH = 40  # points of a round curve
TEMPLATE = 96  # rows and columns of a template
REACH = 1.5  # a template shows the square from −REACH to REACH


# ---- curves ------------------------------------------------------------------------------------------------------


def arc(radius: float, start: float, stop: float, *, x: float = 0.0, y: float = 0.0, flat: float = 1.0) -> Curve:
    """Points of an ellipse around (x, y), from the angle `start` to `stop` in degrees; its height is `flat` · width."""
    angles = torch.linspace(math.radians(start), math.radians(stop), SMOOTH)
    return torch.stack([x + radius * angles.cos(), y + flat * radius * angles.sin()], dim=1)


def _ball() -> list[Curve]:
    return [arc(1, 0, 351)]


def _ring() -> list[Curve]:
    return [arc(1, 0, 351), arc(0.5, 0, 351)]


def _star() -> list[Curve]:
    angles = torch.arange(10) * math.pi / 5 - math.pi / 2
    radii = torch.tensor([1.05, 0.46]).repeat(5)
    return [torch.stack([radii * angles.cos(), 0.06 + radii * angles.sin()], dim=1)]


def _heart() -> list[Curve]:
    t = torch.linspace(0, 2 * math.pi, SMOOTH + 1)[:-1]
    height = 13 * t.cos() - 5 * (2 * t).cos() - 2 * (3 * t).cos() - (4 * t).cos()
    return [torch.stack([t.sin() ** 3, -(height + 2.5) / 15], dim=1)]


def _moon() -> list[Curve]:
    """The outer edge, and back along a second circle that has the same two ends."""
    outer = arc(1, 50, 310, x=0.22)
    tip = outer[0]
    middle = 0.72
    radius = math.hypot(float(tip[0]) - middle, float(tip[1]))
    angle = math.degrees(math.atan2(float(tip[1]), float(tip[0]) - middle))
    inner = arc(radius, 360 - angle, angle, x=middle)
    return [torch.cat([outer, inner[1:-1]])]


def _fish() -> list[Curve]:
    body = arc(0.68, 28, 332, x=-0.32, flat=0.8)
    tail = torch.tensor([[0.98, -0.6], [0.8, 0.0], [0.98, 0.6]])
    return [torch.cat([body, tail])]


def _house() -> list[Curve]:
    roof = [(0.0, -0.95), (1.0, -0.1), (0.78, -0.1)]
    walls = [(0.78, 0.85), (-0.78, 0.85), (-0.78, -0.1), (-1.0, -0.1)]
    return [torch.tensor(roof + walls)]


def _tree() -> list[Curve]:
    right = [(0.0, -1.05), (0.55, -0.35), (0.3, -0.35), (0.85, 0.45), (0.2, 0.45), (0.2, 0.95)]
    return [torch.tensor(right + [(-x, y) for x, y in reversed(right[1:])])]


CURVES = {
    "ball": _ball,
    "ring": _ring,
    "star": _star,
    "heart": _heart,
    "moon": _moon,
    "fish": _fish,
    "house": _house,
    "tree": _tree,
}
KINDS = tuple(CURVES)


def _rectangle(left: float, top: float, right: float, bottom: float) -> Curve:
    return torch.tensor([(left, top), (right, top), (right, bottom), (left, bottom)])


DETAILS = {  # dark marks inside the silhouette
    "fish": lambda: [arc(0.13, 0, 351, x=-0.62, y=-0.14)],
    "house": lambda: [_rectangle(-0.2, 0.25, 0.2, 0.85)],
    "tree": lambda: [_rectangle(-0.2, 0.48, 0.2, 0.95)],
}


# ---- distances ---------------------------------------------------------------------------------------------------


def signed_distance(curves: list[Curve], points: Float[Tensor, "place 2"]) -> Float[Tensor, " place"]:
    """The distance of each point from the nearest edge of the curves, negative where they enclose it.

    A point is inside when a ray from it crosses the edges an odd number of times.
    """
    begins = torch.cat(curves)
    ends = torch.cat([curve.roll(-1, dims=0) for curve in curves])
    edge, offset = ends - begins, points[:, None] - begins
    along = ((offset * edge).sum(dim=-1) / edge.square().sum(dim=-1)).clamp(0, 1)
    distance = torch.linalg.vector_norm(offset - along[..., None] * edge, dim=-1).amin(dim=1)
    between = (begins[:, 1] <= points[:, 1:]) != (ends[:, 1] <= points[:, 1:])
    rising = torch.where(edge[:, 1] == 0, 1.0, edge[:, 1])
    crossing = begins[:, 0] + offset[..., 1] / rising * edge[:, 0]
    inside = (between & (crossing > points[:, :1])).sum(dim=1) % 2 == 1
    return torch.where(inside, -distance, distance)


def _template(curves: list[Curve] | None) -> Float[Tensor, "row column"]:
    """Signed distances on a grid over the square from −`REACH` to `REACH`; no curves are far away."""
    if curves is None:
        return torch.full((TEMPLATE, TEMPLATE), 2 * REACH)
    side = torch.linspace(-REACH, REACH, TEMPLATE)
    y, x = torch.meshgrid(side, side, indexing="ij")
    return signed_distance(curves, torch.stack([x, y], dim=-1).flatten(0, 1)).unflatten(0, (TEMPLATE, TEMPLATE))


@cache
def templates() -> Float[Tensor, "kind 2 row column"]:
    """The signed distances to the silhouette and to the dark details of each of `KINDS`."""
    pairs = [(CURVES[kind](), DETAILS[kind]() if kind in DETAILS else None) for kind in KINDS]
    return torch.stack([torch.stack([_template(curves) for curves in pair]) for pair in pairs])
