"""Rectangles, the size of a text, and the path of an arrow. One unit is a pixel of the notebook; y grows downward."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.path import Path

FONT = {"family": "DejaVu Sans", "math_fontfamily": "dejavuserif", "linespacing": 1.35}
OUTWARD = {"left": (-1, 0), "top": (0, -1), "right": (1, 0), "bottom": (0, 1)}  # in the order of a Rect's edges
OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
CORNER = 8.0  # radius of a bend

Point = tuple[float, float]


class Rect(NamedTuple):
    """The edges of a rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, rects: Iterable[Rect]) -> Rect:
        """The smallest rectangle that contains all of them."""
        left, top, right, bottom = zip(*rects, strict=True)
        return cls(min(left), min(top), max(right), max(bottom))

    @classmethod
    def centered(cls, x: float, y: float, width: float, height: float) -> Rect:
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def center(self) -> Point:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def middle(self, side: str) -> Point:
        """The midpoint of a side."""
        (x, y), (dx, dy) = self.center, OUTWARD[side]
        return x + dx * self.width / 2, y + dy * self.height / 2

    def grown(self, left: float, top: float, right: float, bottom: float) -> Rect:
        return Rect(self.left - left, self.top - top, self.right + right, self.bottom + bottom)


@cache
def text_size(text: str, size: float) -> Point:
    """Width and height of a text, measured by drawing it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not text:
        return 0.0, 0.0
    figure = Figure(dpi=100)
    drawn = figure.text(0, 0, text, size=size, **FONT)  # type: ignore[arg-type]
    box = drawn.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    return box.width, max(box.height, 1.4 * size)


def facing_sides(start: Rect, end: Rect) -> tuple[str, str]:
    """The sides of two rectangles with the most space between them."""
    room = {
        "right": end.left - start.right,
        "left": start.left - end.right,
        "bottom": end.top - start.bottom,
        "top": start.top - end.bottom,
    }
    leave = max(room, key=lambda side: room[side])
    return leave, OPPOSITE[leave]


def is_level(side: str) -> bool:
    """Whether a line leaves this side horizontally."""
    return side in ("left", "right")


def way_between(start: Point, leave: str, end: Point, arrive: str) -> list[Point]:
    """Start, corners and end of a path of horizontal and vertical lines, perpendicular to the sides at both ends."""
    if is_level(leave) != is_level(arrive):
        corner = (end[0], start[1]) if is_level(leave) else (start[0], end[1])
        return [start, corner, end]
    along = 0 if is_level(leave) else 1
    if abs(start[1 - along] - end[1 - along]) < 0.5 and leave != arrive:
        return [start, end]
    turn = (start[along] + end[along]) / 2
    if leave == arrive:  # around the outside
        sign = sum(OUTWARD[leave])
        turn = sign * (max(sign * start[along], sign * end[along]) + 18)
    return (
        [start, (turn, start[1]), (turn, end[1]), end] if along == 0 else [start, (start[0], turn), (end[0], turn), end]
    )


def longest_stretch(way: list[Point]) -> tuple[Point, Point]:
    """The longest straight segment of a path."""
    return max(pairwise(way), key=lambda ends: math.dist(*ends))


def _toward(start: Point, end: Point, by: float) -> Point:
    share = by / (math.dist(start, end) or 1)
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def rounded(way: list[Point], gap: float) -> Path:
    """The path with rounded corners, stopping `gap` before its end."""
    from matplotlib.path import Path

    points, codes = [way[0]], [Path.MOVETO]
    for before, corner, after in zip(way, way[1:], way[2:], strict=False):
        radius = min(CORNER, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        points += [_toward(corner, before, radius), corner, _toward(corner, after, radius)]
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*points, _toward(way[-1], way[-2], gap)], [*codes, Path.LINETO])


def brace_path(start: Point, end: Point, side: str) -> tuple[Path, Point]:
    """A curly brace from start to end that points outward to `side`, and its tip."""
    from matplotlib.path import Path

    level, sign, w = not is_level(side), sum(OUTWARD[side]), 5.0
    a, b, base = (start[0], end[0], start[1]) if level else (start[1], end[1], start[0])
    middle = (a + b) / 2
    spots = [(a, 0.0), (a, w), (a + w, w), (middle - w, w), (middle, w), (middle, 2 * w)]
    spots += [(middle, w), (middle + w, w), (b - w, w), (b, w), (b, 0.0)]
    points = [(along, base + sign * out) if level else (base + sign * out, along) for along, out in spots]
    codes = [Path.MOVETO, *[Path.CURVE3] * 2, Path.LINETO, *[Path.CURVE3] * 4, Path.LINETO, *[Path.CURVE3] * 2]
    return Path(points, codes), points[5]
