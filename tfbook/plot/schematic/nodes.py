"""The nodes of a schematic: boxes, tokens, matrices, bars. Each knows its size and draws itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.plot.house import INK, ROLES, SOFT, literal
from tfbook.plot.schematic.geometry import FONT, OUTWARD, Point, Rect, text_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = float | tuple[float, float]  # a column or row, or the first and the last of those that are spanned
BLOCKED, BLOCKED_EDGE = "#f3f5f7", "#c4cad1"


def write(
    axes: Axes, x: float, y: float, text: str, size: float, color: str = INK, align: str = "center", **look: Any
) -> None:
    """Writes a text centered on y, with the capitals of neighbors on one line."""
    flat = "\n" not in text
    look = {"va": "baseline" if flat else "center", "ha": align, "zorder": 6, **FONT, **look}
    axes.text(x, y + 0.5 * size * flat, text, size=size, color=color, **look)


def rectangle(
    axes: Axes, rect: Rect, fill: str, edge: str, line: float, *, radius: float = 0, zorder: float = 4, **look: Any
) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
    look = {"facecolor": fill, "edgecolor": edge, "linewidth": line, "zorder": zorder, **look}
    axes.add_patch(FancyBboxPatch((rect.left, rect.top), rect.width, rect.height, boxstyle=shape, **look))


@dataclass(frozen=True)
class Label:
    """A text beside a node."""

    side: str
    text: str
    size: float
    color: str = SOFT
    down: float = 0  # pixels; two labels on one side stand one below the other
    across: float = 0  # pixels from the middle of the side, as the names of columns have them

    @property
    def room(self) -> float:
        """Pixels that the label takes up on its side."""
        width, height = text_size(self.text, self.size)
        beside = self.side in ("left", "right")
        return (width + 8 if beside else height + 5 + abs(self.down)) if self.text else 0.0


@dataclass(eq=False)
class Item:
    """Something `width` × `height` at a column and a row; `rows` × `columns` cells of equal size."""

    at: tuple[Place, Place]
    role: str
    width: float = 0
    height: float = 0
    rows: int = 1
    columns: int = 1
    labels: list[Label] = field(default_factory=list)
    align: str = ""  # "left", "right", "top" or "bottom" of its column or row
    center: Point = (0.0, 0.0)  # set by the layout

    @property
    def rect(self) -> Rect:
        return Rect.centered(*self.center, self.width, self.height)

    @property
    def margins(self) -> list[float]:
        """Left, top, right, bottom: the space that labels take up, including where they are wider than the node."""
        room = [0.0] * 4
        for label in self.labels:
            room[list(OUTWARD).index(label.side)] = max(room[list(OUTWARD).index(label.side)], label.room)
            if label.side in ("top", "bottom"):
                over = (text_size(label.text, label.size)[0] - self.width) / 2 + abs(label.across)
                room[0], room[2] = max(room[0], over), max(room[2], over)
        return room

    @property
    def outer(self) -> Rect:
        """The rectangle with the labels included."""
        return self.rect.grown(*self.margins)

    def row(self, i: int) -> Region:
        return Region(self, (i, i + 1), (0, self.columns))

    def column(self, j: int) -> Region:
        return Region(self, (0, self.rows), (j, j + 1))

    def cell(self, i: int, j: int) -> Region:
        return Region(self, (i, i + 1), (j, j + 1))

    def paint(self, axes: Axes) -> None:
        """Draws the node and its labels."""
        self.draw(axes)
        for label in self.labels:
            (x, y), (dx, dy) = self.rect.middle(label.side), OUTWARD[label.side]
            y += label.down + dy * (text_size(label.text, label.size)[1] / 2 + 4)
            align = {"left": "right", "right": "left"}.get(label.side, "center")
            write(axes, x + 7 * dx + label.across, y, label.text, label.size, label.color, align)

    def draw(self, axes: Axes) -> None:
        """Draws nothing: a point where lines meet."""


@dataclass(frozen=True)
class Region:
    """Some rows and columns of a node, to which arrows and outlines can point."""

    node: Item
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def rect(self) -> Rect:
        whole = self.node.rect
        width, height = whole.width / self.node.columns, whole.height / self.node.rows
        (top, bottom), (left, right) = self.rows, self.columns
        corner = whole.left, whole.top
        return Rect(
            corner[0] + left * width, corner[1] + top * height, corner[0] + right * width, corner[1] + bottom * height
        )

    outer = rect


class Note(Item):
    """A text without a box."""

    def __init__(self, text: str, at: tuple[Place, Place], *, size: float, color: str, align: str, weight: str):
        width, height = text_size(text, size)
        super().__init__(at, "plain", width, height, align=align)
        self.text, self.size, self.color, self.weight = text, size, color, weight

    def draw(self, axes: Axes) -> None:
        side = self.align if self.align in ("left", "right") else ""
        x, y = self.rect.middle(side) if side else self.rect.center
        write(axes, x, y, self.text, self.size, self.color, side or "center", weight=self.weight)


class Box(Item):
    """A text, and a small note below it, in a rounded box."""

    def __init__(self, text: str, at: tuple[Place, Place], role: str, *, note: str, width: float | None, size: float):
        text_width, text_height = text_size(text, size)
        note_width, note_height = text_size(note, 8.5)
        fitting = max(text_width, note_width) + 22
        super().__init__(at, role, width or fitting, text_height + 1.1 * note_height + 12)
        self.text, self.note, self.size = text, note, size

    def draw(self, axes: Axes) -> None:
        role, (x, y) = ROLES[self.role], self.rect.center
        rectangle(axes, self.rect, role.fill, role.edge, 1.2, radius=7)
        write(axes, x, y - 0.55 * text_size(self.note, 8.5)[1], self.text, self.size, role.ink)
        write(axes, x, y + 0.6 * text_size(self.text, self.size)[1], self.note, 8.5, SOFT)


class Circle(Item):
    """A sum or a product."""

    def __init__(self, symbol: str, at: tuple[Place, Place]):
        super().__init__(at, "plain", 20, 20)
        self.symbol = symbol

    def draw(self, axes: Axes) -> None:
        from matplotlib.patches import Circle as Disk

        axes.add_patch(Disk(self.rect.center, 10, facecolor="white", edgecolor=INK, linewidth=1.2, zorder=4))
        write(axes, *self.rect.center, self.symbol, 12)


class Chips(Item):
    """Words in a row of equal chips."""

    def __init__(self, words: Sequence[str], at: tuple[Place, Place], role: str, *, label: str, width: float | None):
        each = width or max(text_size(literal(word), 10)[0] for word in words) + 19
        labels = [Label("bottom", label, 9)] if label else []
        super().__init__(at, role, len(words) * each, 26, columns=len(words), labels=labels)
        self.words = words

    def draw(self, axes: Axes) -> None:
        role = ROLES[self.role]
        for j, word in enumerate(self.words):
            chip = self.column(j).rect.grown(-2.5, 0, -2.5, 0)
            rectangle(axes, chip, role.fill, role.edge, 0.9, radius=6)
            write(axes, *chip.center, literal(word), 10)


class Matrix(Item):
    """A grid of cells, darker for larger magnitudes; hatched where a mask blocks, dashed where NaN."""

    def __init__(
        self,
        values: np.ndarray,
        at: tuple[Place, Place],
        role: str,
        *,
        cell: Point,
        numbers: str,
        allowed: np.ndarray,
        darkest: float | None,
        labels: list[Label],
        align: str,
    ):
        rows, columns = values.shape
        super().__init__(at, role, columns * cell[0], rows * cell[1], rows, columns, labels, align)
        self.values, self.allowed, self.there = values, allowed, np.isfinite(values)
        self.texts = [[_with_minus(numbers.format(value)) for value in row] for row in values]
        widest = max(text_size(text, 9.5)[0] for row in self.texts for text in row)
        self.size = min(9.5, 0.45 * cell[1], 9.5 * (cell[0] - 7) / max(widest, 1))
        self.darkest = darkest or float(np.abs(values[self.there]).max(initial=0)) or 1.0
        self.lightest = min(0.0, 1.2 * float(values[self.there].min(initial=0))) if role == "weight" else 0.0

    def draw(self, axes: Axes) -> None:
        for i, j in np.ndindex(self.rows, self.columns):
            self._draw_cell(axes, i, j)
        filled = Rect.around(self.cell(i, j).rect for i, j in np.argwhere(self.there).tolist())
        rectangle(axes, filled, "none", ROLES[self.role].edge, 1.4, zorder=5)

    def _draw_cell(self, axes: Axes, i: int, j: int) -> None:
        spot, edge = self.cell(i, j).rect, ROLES[self.role].edge
        if not self.there[i, j]:
            rectangle(axes, spot, "white", edge, 0.7, zorder=3.5, linestyle=(0, (2, 2)))
        elif not self.allowed[i, j]:
            rectangle(axes, spot, BLOCKED, BLOCKED_EDGE, 0.7, hatch="//////", hatch_linewidth=0.8)
        else:
            fill, ink = ROLES[self.role].shade(self._share(self.values[i, j]))
            rectangle(axes, spot, fill, edge, 0.7)
            write(axes, *spot.center, self.texts[i][j], self.size, ink)

    def _share(self, value: float) -> float:
        """Darkness of a cell, 0 to 1: by magnitude or, for scores, which may be negative, from the lowest up."""
        if self.lightest:
            return (value - self.lightest) / (self.darkest - self.lightest)
        return abs(value) / self.darkest


class Bars(Item):
    """Bars from zero, each with its number above and its name below."""

    STEP, HEADROOM = 40.0, 18.0

    def __init__(
        self,
        values: Sequence[float],
        at: tuple[Place, Place],
        role: str,
        *,
        low: float,
        high: float,
        height: float,
        numbers: str,
        names: Sequence[str],
    ):
        step = max([self.STEP, *(text_size(name, 9.5)[0] + 10 for name in names)]) if len(values) > 1 else 34.0
        super().__init__(at, role, step * len(values), height, columns=len(values))
        self.values, self.low, self.high, self.numbers, self.names = values, low, high, numbers, names

    @property
    def margins(self) -> list[float]:
        return [0.0, 0.0, 0.0, 20.0 * bool(self.names)]

    def _level(self, value: float) -> float:
        """The y of a value."""
        return self.rect.bottom - (value - self.low) / (self.high - self.low) * (self.height - self.HEADROOM)

    def draw(self, axes: Axes) -> None:
        role = ROLES[self.role]
        for j, value in enumerate(self.values):
            x, top, bottom = self.column(j).rect.center[0], *sorted((self._level(value), self._level(0)))
            rectangle(axes, Rect(x - 13, top, x + 13, bottom), role.shade(0.75)[0], role.edge, 0.8)
            write(axes, x, top - 9, _with_minus(self.numbers.format(value)), 9.5, role.edge)
            if self.names:
                write(axes, x, self.rect.bottom + 12, self.names[j], 9.5)
        axes.plot([self.rect.left, self.rect.right], [self._level(0)] * 2, color=SOFT, linewidth=1, zorder=5, marker="")


def _with_minus(text: str) -> str:
    """The number with a minus sign as wide as a plus, and none before a zero."""
    return text.replace("-", "−" if any(digit in text for digit in "123456789") else "")
