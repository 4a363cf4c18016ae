"""The grid of a schematic: each column and row takes the room that its nodes and the labels of its arrows need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfbook.plot.schematic.nodes import Box, Node, Place

Room = Mapping[tuple[int, int], float]  # neighboring columns or rows → pixels that must lie between them


def ends(place: Place) -> tuple[float, float]:
    """The first and the last column or row of a place."""
    return place if isinstance(place, tuple) else (place, place)


def place_along(axis: int, nodes: Sequence[Node], extra: Mapping[Node, list[float]], gap: float, room: Room) -> None:
    """Gives the nodes their centers along an axis, 0 across and 1 down.

    `extra` is what frames need around a node: left, top, right, bottom.
    """
    spots = [end for node in nodes for end in ends(node.at[axis])]
    lines = range(math.floor(min(spots)), math.ceil(max(spots)) + 1)
    before, after = dict.fromkeys(lines, 0.0), dict.fromkeys(lines, 0.0)
    for node in nodes:
        if node.at[axis] in before:
            low, high = _reach(node, axis, extra)
            before[int(node.at[axis])], after[int(node.at[axis])] = (
                max(before[int(node.at[axis])], low),
                max(after[int(node.at[axis])], high),
            )
    centers = _centers(lines, before, after, gap, room)
    for node in nodes:
        _place(node, axis, lines, centers, before, after, extra)


def _size(node: Node, axis: int) -> float:
    return node.height if axis else node.width


def _reach(node: Node, axis: int, extra: Mapping[Node, list[float]]) -> tuple[float, float]:
    """How far a node reaches to both sides of its center, with its labels and what frames need."""
    margins = [one + other for one, other in zip(node.margins, extra.get(node, [0.0] * 4), strict=True)]
    return _size(node, axis) / 2 + margins[axis], _size(node, axis) / 2 + margins[axis + 2]


def _centers(lines: range, before: dict[int, float], after: dict[int, float], gap: float, room: Room) -> list[float]:
    centers, edge = [], 0.0
    for line in lines:
        centers.append(edge + before[line])
        edge = centers[-1] + after[line] + max(gap, room.get((line, line + 1), 0.0))
    return centers


def _place(
    node: Node,
    axis: int,
    lines: range,
    centers: list[float],
    before: dict[int, float],
    after: dict[int, float],
    extra: Mapping[Node, list[float]],
) -> None:
    first, last = (float(np.interp(end, lines, centers)) for end in ends(node.at[axis]))
    if isinstance(node.at[axis], tuple):
        low = first - before.get(int(ends(node.at[axis])[0]), 0.0)
        high = last + after.get(int(ends(node.at[axis])[1]), 0.0)
        if axis == 0 and isinstance(node, Box):
            node.width = max(node.width, high - low)
        center = (low + high) / 2
    else:
        center = first + _shift(node, axis, before, after, extra)
    node.center = (center, node.center[1]) if axis == 0 else (node.center[0], center)


def _shift(
    node: Node, axis: int, before: dict[int, float], after: dict[int, float], extra: Mapping[Node, list[float]]
) -> float:
    """What moves an aligned node from the middle of its column or row to one of its edges."""
    line = node.at[axis]
    if line not in before:
        return 0.0
    low, high = _reach(node, axis, extra)
    if node.align == ("left", "top")[axis]:
        return low - before[line]  # type: ignore[index]
    return after[line] - high if node.align == ("right", "bottom")[axis] else 0.0  # type: ignore[index]
