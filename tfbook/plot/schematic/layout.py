"""The grid of a schematic: each column and row takes the space that its nodes and its arrows' labels need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfbook.plot.schematic.nodes import Box, Item, Place

Room = Mapping[tuple[int, int], float]  # neighboring columns or rows → pixels that must lie between them


def ends(place: Place) -> tuple[float, float]:
    """The first and the last column or row of a span."""
    return place if isinstance(place, tuple) else (place, place)


class Grid:
    """The columns (axis 0) or the rows (axis 1) of a schematic, each with its center and its extent to both sides.

    `padding` is the space that frames need around a node: left, top, right, bottom. `room` is the space that labels
    need between lines.
    """

    def __init__(self, axis: int, nodes: Sequence[Item], padding: Mapping[Item, list[float]], gap: float, room: Room):
        self.axis, self.padding = axis, padding
        spots = [end for node in nodes for end in ends(node.at[axis])]
        self.lines = range(math.floor(min(spots)), math.ceil(max(spots)) + 1)
        self.before, self.after = dict.fromkeys(self.lines, 0.0), dict.fromkeys(self.lines, 0.0)
        for node in nodes:
            self._make_room_for(node)
        self.centers = self._centers(gap, room)

    def place(self, node: Item) -> None:
        """Centers a node along this axis; a box that spans columns grows to their width."""
        first, last = ends(node.at[self.axis])
        low, high = (float(np.interp(end, self.lines, self.centers)) for end in (first, last))
        if first == last:
            center = low + self._shift(node)
        else:
            low, high = low - self.before.get(int(first), 0.0), high + self.after.get(int(last), 0.0)
            center = (low + high) / 2
            if self.axis == 0 and isinstance(node, Box):
                node.width = max(node.width, high - low)
        node.center = (center, node.center[1]) if self.axis == 0 else (node.center[0], center)

    def _make_room_for(self, node: Item) -> None:
        first, last = ends(node.at[self.axis])
        if first == last and first in self.lines:
            low, high = self._reach(node)
            self.before[int(first)] = max(self.before[int(first)], low)
            self.after[int(first)] = max(self.after[int(first)], high)

    def _reach(self, node: Item) -> tuple[float, float]:
        """A node's extent to both sides of its center, with its labels and the space that frames need."""
        margins = [one + other for one, other in zip(node.margins, self.padding.get(node, [0.0] * 4), strict=True)]
        half = (node.height if self.axis else node.width) / 2
        return half + margins[self.axis], half + margins[self.axis + 2]

    def _centers(self, gap: float, room: Room) -> list[float]:
        centers, edge = [], 0.0
        for line in self.lines:
            centers.append(edge + self.before[line])
            edge = centers[-1] + self.after[line] + max(gap, room.get((line, line + 1), 0.0))
        return centers

    def _shift(self, node: Item) -> float:
        """The offset that moves an aligned node from the middle of its column or row to one of its edges."""
        line = ends(node.at[self.axis])[0]
        low, high = self._reach(node)
        if line in self.lines and node.align == ("left", "top")[self.axis]:
            return low - self.before[int(line)]
        if line in self.lines and node.align == ("right", "bottom")[self.axis]:
            return self.after[int(line)] - high
        return 0.0
