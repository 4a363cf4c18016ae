"""Diagrams: the recurrent translator, the map of the course."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbook.plot.house import COLORS, EDGE, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _box(axes: Axes, x: float, y: float, text: str, color: str, *, width: float = 0.72, height: float = 0.4) -> None:
    """A rounded box around a text."""
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - height / 2)
    look: dict[str, Any] = {"boxstyle": "round,pad=0.04", "facecolor": color, "edgecolor": INK, "zorder": 3}
    axes.add_patch(FancyBboxPatch(corner, width, height, **look))
    axes.text(x, y, text, ha="center", va="center", fontsize=10.5, color=INK, zorder=4)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str = INK, width: float = 1.2
) -> None:
    from matplotlib.patches import FancyArrowPatch

    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 10, "color": color, "linewidth": width}
    axes.add_patch(FancyArrowPatch(start, end, **look))


def seq2seq_diagram(axes: Axes, source: Sequence[str], target: Sequence[str], *, attention: bool) -> None:
    """Encoder states below, decoder states above; between them one context vector, or attention to every state."""
    left = (len(source) - len(target)) / 2  # the shorter row is centered over the longer one
    for j, word in enumerate(source):
        _box(axes, j, 0, f"$h_{{{j + 1}}}$", "#dbeafc")
        axes.text(j, -0.62, word, ha="center", va="center", fontsize=10.5, style="italic")
        if j:
            _arrow(axes, (j - 0.6, 0.09), (j - 0.4, 0.09))
            _arrow(axes, (j - 0.4, -0.09), (j - 0.6, -0.09))
    for t, word in enumerate(target):
        _box(axes, left + t, 2, f"$s_{{{t + 1}}}$", "#fde3cf")
        axes.text(left + t, 2.62, word, ha="center", va="center", fontsize=10.5, style="italic")
        if t:
            _arrow(axes, (left + t - 0.6, 2), (left + t - 0.4, 2))
    if attention:
        focus = len(target) // 2
        for j in range(len(source)):
            weight = max(0.12, 1 - 0.42 * abs(j - focus))
            _arrow(axes, (j, 0.26), (left + focus, 1.74), COLORS[1], 0.6 + 2.6 * weight)
        axes.text(left + focus + 0.45, 1.35, rf"$\alpha_{{{focus + 1}j}}$", color=COLORS[1], fontsize=12)
    else:
        middle = (len(source) - 1) / 2
        _box(axes, middle, 1, "$c$", "#f6d5d5")
        for j in (0, len(source) - 1):
            _arrow(axes, (j, 0.26), (middle + (0.3 if j else -0.3), 0.74), COLORS[3])
        for t in range(len(target)):
            _arrow(axes, (middle, 1.26), (left + t, 1.74), COLORS[3])
    axes.set(xlim=(min(0, left) - 0.7, max(len(source), left + len(target)) - 0.3), ylim=(-0.9, 2.9), aspect="equal")
    axes.axis("off")


# ---- the course ------------------------------------------------------------------------------------------------------


def course_map(axes: Axes, parts: Mapping[str, Sequence[str]], ready: Collection[str]) -> None:
    """Lessons such as "08 GPT pretraining" as boxes, filled when `ready` has their number, in a band for each part.

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
    """One part of the map: its name, and its lessons in boxes of one unit, row by row."""
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
