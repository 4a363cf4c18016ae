"""The map of the course."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbook.plot.house import COLORS, EDGE, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def course_map(axes: Axes, parts: Mapping[str, Sequence[str]], ready: Collection[str]) -> None:
    """Lessons such as "08 GPT pretraining" as boxes, filled if `ready` contains their number, in one band per part.

    The first two parts are the trunk, one row each; the others branch off side by side, two lessons per row.
    """
    trunk, branches = list(parts.items())[:2], list(parts.items())[2:]
    columns = max(2 * len(branches), *(len(lessons) for _, lessons in trunk))
    for row, (name, lessons) in enumerate(trunk):
        _band(axes, name, lessons, ready, left=0, top=-1.75 * row, columns=columns)
    depth = max(-(-len(lessons) // 2) for _, lessons in branches)
    for number, (name, lessons) in enumerate(branches):
        _band(axes, name, lessons, ready, left=2 * number, top=-1.75 * len(trunk), columns=2, rows=depth)
    starts = [(columns / 2, 0), *((2 * number + 1, 1) for number in range(len(branches)))]
    for x, row in starts:
        ends = (x, -1.75 * row - 1.4), (x, -1.75 * (row + 1) + 0.02)
        axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "-|>", "color": EDGE, "linewidth": 2})
    axes.set(xlim=(-0.05, columns + 0.05), ylim=(-1.75 * len(trunk) - 0.45 - depth, 0.1))
    axes.axis("off")


def _band(
    axes: Axes,
    name: str,
    lessons: Sequence[str],
    ready: Collection[str],
    *,
    left: float,
    top: float,
    columns: int,
    rows: int = 1,
) -> None:
    """One part of the map: its name, and its lessons in boxes of unit size, row by row."""
    from matplotlib.patches import FancyBboxPatch

    def box(x: float, y: float, width: float, height: float, **look: Any) -> None:
        axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", **look))

    box(left + 0.04, top - 0.42 - rows, columns - 0.08, rows + 0.42, facecolor=FAINT, edgecolor="none")
    axes.text(left + 0.14, top - 0.2, name, va="center", fontweight="bold", fontsize=11, color=INK)
    for place, lesson in enumerate(lessons):
        number, _, title = lesson.partition(" ")
        x, y = left + place % columns, top - 0.42 - place // columns
        done = number in ready
        fill, edge, ink, weight = (COLORS[0], COLORS[0], "white", "bold") if done else ("white", EDGE, INK, "normal")
        box(x + 0.1, y - 0.9, 0.8, 0.86, facecolor=fill, edgecolor=edge)
        words = f"{number}\n" + textwrap.fill(title, 11, break_long_words=False, break_on_hyphens=False)
        axes.text(x + 0.5, y - 0.47, words, ha="center", va="center", fontsize=9.5, color=ink, fontweight=weight)
