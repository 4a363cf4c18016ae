"""The schematic itself: nodes by column and row, then arrows, frames, braces and outlines between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.plot.house import INK, ROLES, SOFT
from tfbook.plot.schematic.geometry import (
    OUTWARD,
    Point,
    Rect,
    brace_path,
    facing_sides,
    is_level,
    longest_stretch,
    rounded,
    text_size,
    way_between,
)
from tfbook.plot.schematic.layout import Grid, ends
from tfbook.plot.schematic.nodes import (
    BLOCKED,
    BLOCKED_EDGE,
    Bars,
    Box,
    Chips,
    Circle,
    Item,
    Label,
    Matrix,
    Note,
    Place,
    Region,
    rectangle,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

At = tuple[Place, Place]
MARGIN = 18.0  # pixels around the drawing
MAX_WIDTH = 900.0  # pixels that a notebook shows


@dataclass(eq=False)
class Frame:
    """A gray background behind some nodes."""

    nodes: Sequence[Item]
    label: str
    pad: float

    @property
    def padding(self) -> list[float]:
        return [self.pad, self.pad + 20 * bool(self.label), self.pad, self.pad]

    @property
    def rect(self) -> Rect:
        return Rect.around(node.outer for node in self.nodes).grown(*self.padding)

    outer = rect

    def paint(self, axes: Axes) -> None:
        rectangle(axes, self.rect, BLOCKED, BLOCKED_EDGE, 1, radius=10, zorder=1)
        write(axes, self.rect.left + 10, self.rect.top + 14, self.label, 9.5, SOFT, "left", weight="bold")


End = Item | Region | Frame


@dataclass(eq=False)
class Arrow:
    """A line from one thing to another with rounded corners, its label beside the longest segment."""

    start: End
    end: End
    label: str
    role: str
    sides: tuple[str, str] | None
    lane: float
    thickness: float
    head: bool
    label_side: str

    @property
    def way(self) -> list[Point]:
        leave, arrive = self.sides or facing_sides(self.start.rect, self.end.rect)
        start, end = _edge_point(self.start, leave), _edge_point(self.end, arrive)
        if is_level(leave) == is_level(arrive) and leave != arrive:
            start, end = _aligned(start, end, self.start.rect, self.end.rect, 1 if is_level(leave) else 0)
        if is_level(leave) == is_level(arrive):
            start, end = _moved(start, self.lane, is_level(leave)), _moved(end, self.lane, is_level(leave))
        else:
            end = _moved(end, self.lane, is_level(arrive))
        return way_between(start, leave, end, arrive)

    @property
    def label_rect(self) -> Rect:
        (x1, y1), (x2, y2) = longest_stretch(self.way)
        width, height = text_size(self.label, 9.5)
        dx, dy = OUTWARD[self.label_side or ("top" if abs(x1 - x2) > abs(y1 - y2) else "right")]
        return Rect.centered((x1 + x2) / 2 + dx * (width / 2 + 6), (y1 + y2) / 2 + dy * (height / 2 + 4), width, height)

    @property
    def outer(self) -> Rect:
        corners = [Rect(x, y, x, y) for x, y in self.way]
        return Rect.around([*corners, self.label_rect] if self.label else corners)

    def paint(self, axes: Axes) -> None:
        from matplotlib.patches import FancyArrowPatch

        color, style = ROLES[self.role].edge, "-|>,head_length=0.45,head_width=0.22" if self.head else "-"
        look: dict[str, Any] = {"mutation_scale": 7 + 2.4 * self.thickness, "linewidth": self.thickness}
        path = rounded(self.way, 2.5 * self.head)
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle=style, capstyle="butt", color=color, zorder=3, **look))
        if self.label:
            write(axes, *self.label_rect.center, self.label, 9.5, color)


def _edge_point(end: End, side: str) -> Point:
    """The midpoint of a side, outside any labels on it."""
    x, y = end.rect.middle(side)
    edge = end.outer[list(OUTWARD).index(side)]
    return (edge, y) if is_level(side) else (x, edge)


def _aligned(start: Point, end: Point, one: Rect, other: Rect, axis: int) -> tuple[Point, Point]:
    """A straight line if one end lies within the extent of the other's side."""
    if one[axis] <= end[axis] <= one[axis + 2]:
        start = (end[0], start[1]) if axis == 0 else (start[0], end[1])
    elif other[axis] <= start[axis] <= other[axis + 2]:
        end = (start[0], end[1]) if axis == 0 else (end[0], start[1])
    return start, end


def _moved(point: Point, lane: float, level: bool) -> Point:
    return (point[0], point[1] + lane) if level else (point[0] + lane, point[1])


@dataclass(eq=False)
class Brace:
    """A curly brace along one side of some nodes."""

    nodes: Sequence[Item | Frame]
    label: str
    side: str
    distance: float

    def _path_and_tip(self) -> tuple[Any, Point]:
        rect = Rect.around(node.outer for node in self.nodes)
        corners = {
            "left": ((rect.left, rect.top), (rect.left, rect.bottom)),
            "right": ((rect.right, rect.top), (rect.right, rect.bottom)),
            "top": ((rect.left, rect.top), (rect.right, rect.top)),
            "bottom": ((rect.left, rect.bottom), (rect.right, rect.bottom)),
        }[self.side]
        dx, dy = (self.distance * step for step in OUTWARD[self.side])
        start, end = ((x + dx, y + dy) for x, y in corners)
        return brace_path(start, end, self.side)

    @property
    def outer(self) -> Rect:
        width, height = text_size(self.label, 10.5)
        room = self.distance + 16 + (width if is_level(self.side) else height)
        around = Rect.around(node.outer for node in self.nodes)
        return around.grown(*(room * (side == self.side) for side in OUTWARD))

    def paint(self, axes: Axes) -> None:
        from matplotlib.patches import PathPatch

        path, (x, y) = self._path_and_tip()
        axes.add_patch(PathPatch(path, fill=False, edgecolor=INK, linewidth=1.4, zorder=3))
        (dx, dy), half = OUTWARD[self.side], text_size(self.label, 10.5)[1] / 2
        align = {"left": "right", "right": "left"}.get(self.side, "center")
        write(axes, x + 5 * dx, y + dy * (half + 4), self.label, 10.5, align=align)


@dataclass(eq=False)
class Outline:
    """A heavy line around nodes or parts."""

    parts: Sequence[Item | Region]

    @property
    def outer(self) -> Rect:
        return Rect.around(part.rect for part in self.parts)

    def paint(self, axes: Axes) -> None:
        for part in self.parts:
            rectangle(axes, part.rect, "none", INK, 2.2, zorder=5.5)


class Schematic:
    """A picture of a mechanism, without coordinates: each node names its column and its row.

    Both may be fractions, or (first, last) to span several. `gap` is the space between columns and between rows, wider
    where an arrow's label needs it. `role` colors a node or an arrow: query, key, value, weight, stream, parameter,
    plain.
    """

    def __init__(self, title: str = "", *, gap: tuple[float, float] = (30, 24)):
        self.title, self.gap = title, gap
        self.nodes: list[Item] = []
        self.frames: list[Frame] = []
        self.marks: list[Arrow | Brace | Outline] = []

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def _add(self, node: Any) -> Any:
        if node.role not in ROLES:
            raise ValueError(f"role is {node.role!r}; expected one of {', '.join(ROLES)}")
        self.nodes.append(node)
        return node

    def point(self, at: At) -> Item:
        """A point where lines meet."""
        return self._add(Item(at, "plain"))

    def text(
        self, text: str, at: At, *, size: float = 9.5, color: str = INK, align: str = "", weight: str = "normal"
    ) -> Note:
        """A text without a box, centered or at the `align` edge of its column."""
        return self._add(Note(text, at, size=size, color=color, align=align, weight=weight))

    def box(
        self, text: str, at: At, role: str = "plain", *, note: str = "", width: float | None = None, size: float = 10.5
    ) -> Box:
        """A text with a small note below it; a box that spans columns fills them."""
        return self._add(Box(text, at, role, note=note, width=width, size=size))

    def circle(self, symbol: str, at: At) -> Circle:
        """A sum "+" or a product "×"."""
        return self._add(Circle(symbol, at))

    def tokens(
        self, words: Sequence[str], at: At, role: str = "stream", *, label: str = "", width: float | None = None
    ) -> Chips:
        """Words in a row of chips, `width` pixels each, with a label below."""
        return self._add(Chips(words, at, role, label=label, width=width))

    def matrix(
        self,
        values: Any,
        at: At,
        role: str = "stream",
        *,
        cell: float | Point = 18,
        label: str = "",
        shape: str = "",
        beside: str = "",
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        numbers: str = "",
        allowed: Any = True,
        darkest: float | None = None,
        align: str = "",
    ) -> Matrix:
        """A grid of numbers, or of `values = (rows, columns)` plain cells; `numbers` such as "{:.1f}" writes them.

        Cells are darker for larger magnitudes, up to `darkest`. They are hatched where `allowed` is False, and dashed
        where the value is NaN. The label is above and the shape below, or both are `beside`, "left" or "right". `rows`
        and `columns` name the rows and the columns. Raises ValueError when `allowed` does not fit the values or the
        role is unknown.
        """
        table = np.full(values, 0.3) if isinstance(values, tuple) else np.atleast_2d(np.asarray(values, float))
        width, height = np.broadcast_to(cell, 2).tolist()
        if isinstance(values, tuple):
            darkest = darkest or 1.0
        edge = ROLES[role].edge if role in ROLES else INK
        labels = [
            Label(
                beside or "top", label, 12, edge, -9 * bool(beside and shape) - 16 * (not beside and len(columns) > 0)
            ),
            Label(beside or "bottom", shape, 9, SOFT, 10 * bool(beside and label)),
            *(Label("left", name, 9, INK, (i + 0.5 - len(table) / 2) * height) for i, name in enumerate(rows)),
            *(
                Label("top", name, 9, INK, across=(j + 0.5 - table.shape[1] / 2) * width)
                for j, name in enumerate(columns)
            ),
        ]
        made = Matrix(
            table,
            at,
            role,
            cell=(width, height),
            numbers=numbers,
            allowed=np.broadcast_to(np.asarray(allowed, bool), table.shape),
            darkest=darkest,
            labels=[each for each in labels if each.text],
            align=align,
        )
        return self._add(made)

    def bars(
        self,
        values: Sequence[float],
        at: At,
        role: str = "weight",
        *,
        low: float = 0.0,
        high: float = 1.0,
        height: float = 66,
        numbers: str = "{:.2f}",
        names: Sequence[str] = (),
    ) -> Bars:
        """Bars between `low` and `high`, each with its number above and its name below."""
        return self._add(Bars(values, at, role, low=low, high=high, height=height, numbers=numbers, names=names))

    # ---- marks -------------------------------------------------------------------------------------------------------

    def arrow(
        self,
        start: End,
        end: End,
        label: str = "",
        role: str = "plain",
        *,
        sides: tuple[str, str] | None = None,
        lane: float = 0,
        thickness: float = 1.4,
        head: bool = True,
        label_side: str = "",
    ) -> None:
        """From one node, part or frame to another, leaving and arriving at `sides` such as ("right", "left").

        Without `sides`, the facing sides are used. `lane` shifts it sideways, in pixels.
        """
        self.marks.append(Arrow(start, end, label, role, sides, lane, thickness, head, label_side))

    def frame(self, nodes: Sequence[Item], label: str = "", *, pad: float = 12) -> Frame:
        """A gray background behind nodes, its label in the upper left corner."""
        self.frames.append(Frame(nodes, label, pad))
        return self.frames[-1]

    def brace(self, nodes: Sequence[Item | Frame], label: str, side: str = "right", *, distance: float = 8) -> None:
        """A curly brace along one side of nodes or frames."""
        self.marks.append(Brace(nodes, label, side, distance))

    def outline(self, *parts: Item | Region) -> None:
        """A heavy line around nodes or parts such as `scores.row(2)`."""
        self.marks.append(Outline(parts))

    # ---- the picture -------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """The finished picture. Raises ValueError when it is wider than a notebook."""
        from matplotlib.figure import Figure

        self._solve()
        title_width, title_height = text_size(self.title, 12.5)
        bounds = Rect.around(thing.outer for thing in [*self.nodes, *self.frames, *self.marks])
        top = bounds.top - (title_height + 16) * bool(self.title)
        width = max(bounds.width, title_width) + 2 * MARGIN
        if width > MAX_WIDTH + 1:
            raise ValueError(f"the drawing is {width:.0f} pixels wide; expected at most {MAX_WIDTH:.0f}")
        left = bounds.center[0] - width / 2
        size = (width / 100, (bounds.bottom - top + 2 * MARGIN) / 100)
        figure = Figure(figsize=size, dpi=100)
        figure.set_label("schematic")
        figure.set_layout_engine("none")  # whatever the style of the notebook says
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(left, left + width), ylim=(bounds.bottom + MARGIN, top - MARGIN))
        axes.axis("off")
        for thing in [*self.frames, *self.marks, *self.nodes]:
            thing.paint(axes)
        write(axes, left + MARGIN, top + title_height / 2, self.title, 12.5, align="left", weight="bold")
        return figure

    def _solve(self) -> None:
        padding = self._frame_room()
        for axis in (0, 1):
            grid = Grid(axis, self.nodes, padding, self.gap[axis], self._label_room(axis))
            for node in self.nodes:
                grid.place(node)

    def _frame_room(self) -> dict[Item, list[float]]:
        """The space that frames add around the outermost of their nodes."""
        extra: dict[Item, list[float]] = {}
        for frame in self.frames:
            for axis in (0, 1):
                first = min(ends(node.at[axis])[0] for node in frame.nodes)
                last = max(ends(node.at[axis])[1] for node in frame.nodes)
                for node in frame.nodes:
                    room = extra.setdefault(node, [0.0] * 4)
                    room[axis] += frame.padding[axis] * (ends(node.at[axis])[0] == first)
                    room[axis + 2] += frame.padding[axis + 2] * (ends(node.at[axis])[1] == last)
        return extra

    def _label_room(self, axis: int) -> dict[tuple[int, int], float]:
        """The space that arrow labels need between neighboring columns (axis 0) or rows (axis 1)."""
        room: dict[tuple[int, int], float] = {}
        for mark in self.marks:
            if isinstance(mark, Arrow) and mark.label:
                one, other = (_node(end) for end in (mark.start, mark.end))
                pair = sorted((one.at[axis], other.at[axis]), key=ends) if one and other else []
                if _are_neighbors(pair) and one and other and _share_a_line(one, other, 1 - axis):
                    needed = text_size(mark.label, 9.5)[axis] + (12 if axis else 22)
                    key = int(pair[0]), int(pair[1])  # type: ignore[arg-type]
                    room[key] = max(room.get(key, 0.0), needed)
        return room


def _node(end: End) -> Item | None:
    if isinstance(end, Region):
        return end.node
    return end if isinstance(end, Item) else None


def _are_neighbors(pair: Sequence[Place]) -> bool:
    """Whether two positions are consecutive whole numbers."""
    flat = [place for place in pair if not isinstance(place, tuple) and place == int(place)]
    return len(flat) == 2 and flat[1] - flat[0] == 1


def _share_a_line(one: Item, other: Item, axis: int) -> bool:
    (first, last), (low, high) = ends(one.at[axis]), ends(other.at[axis])
    return first <= high and low <= last
