"""Diagrams: the recurrent translator, the Transformer and its block, the map of the course."""

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


# ---- the Transformer -------------------------------------------------------------------------------------------------

ATTENTION, FEED_FORWARD = "#dbeafc", "#fde3cf"
BRANCH = 1.5  # the height of a branch


def block_diagram(axes: Axes, *, pre_norm: bool) -> None:
    """One block: the residual stream with two branches, each norm inside its branch or behind the sum."""
    _residual_stream(axes, 0, ["self-attention", "feed-forward"], pre_norm=pre_norm, top=2 * BRANCH + 0.5)
    axes.text(0, -0.65, "$x$", ha="center", va="top", fontsize=12)
    axes.set(xlim=(-3.1, 0.9), ylim=(-1.0, 2 * BRANCH + 0.6), aspect="equal")
    axes.axis("off")


def transformer_diagram(axes: Axes, *, layers: int = 2) -> None:
    """Encoder on the left, decoder on the right, pre-norm; every cross-attention reads the encoder's output."""
    enc, dec, up = 0.0, 4.6, 3 * BRANCH
    for x, branches, words in (
        (enc, ["self-attention", "feed-forward"], "source words"),
        (dec, ["self-attention\n(causal)", "cross-attention", "feed-forward"], "target words so far"),
    ):
        height = BRANCH * len(branches)
        _frame(axes, x, height, f"{layers} ×")
        _residual_stream(axes, x, branches, pre_norm=True, top=height + 0.75)
        _box(axes, x, -0.85, "embedding", "#e9e9e9", width=1.5)
        _arrow(axes, (x, -1.55), (x, -1.07))
        axes.text(x, -1.62, words, ha="center", va="top", fontsize=10.5, style="italic")
        _box(axes, x, height + 0.95, "norm", "white", width=0.8)
    corner = 2 * BRANCH + 1.75
    for start, end in (((enc, 2 * BRANCH + 1.15), (enc, corner)), ((enc, corner), (dec - 3.05, corner))):
        axes.plot(*zip(start, end, strict=True), color=COLORS[1], linewidth=2, marker="none")
    axes.plot((dec - 3.05,) * 2, (corner, BRANCH + 0.85), color=COLORS[1], linewidth=2, marker="none")
    _arrow(axes, (dec - 3.05, BRANCH + 0.85), (dec - 2.43, BRANCH + 0.85), COLORS[1])
    axes.text(enc + 0.1, corner + 0.1, "memory: keys and values", color=COLORS[1], fontsize=10.5, va="bottom")
    _box(axes, dec, up + 1.75, "output embedding", "#e9e9e9", width=2.1)
    _arrow(axes, (dec, up + 1.17), (dec, up + 1.55))
    _arrow(axes, (dec, up + 1.97), (dec, up + 2.4))
    beside = dec + 1.35
    axes.plot(
        (dec + 0.8, beside, beside, dec + 1.1),
        (-0.85, -0.85, up + 1.75, up + 1.75),
        color=COLORS[3],
        linestyle="--",
        linewidth=1.4,
        marker="none",
    )
    axes.text(beside + 0.1, up / 2, "one matrix\n(tied)", color=COLORS[3], fontsize=10.5, va="center")
    axes.text(dec, up + 2.45, "logits of the next word", ha="center", va="bottom", fontsize=10.5, style="italic")
    axes.set(xlim=(-2.8, dec + 2.4), ylim=(-2.1, up + 2.9), aspect="equal")
    axes.axis("off")


def _residual_stream(axes: Axes, x: float, branches: Sequence[str], *, pre_norm: bool, top: float) -> None:
    """The residual stream at `x` up to `top`, and the branches that leave it and are added to it."""
    _arrow(axes, (x, -0.62), (x, top), width=3.0)
    for place, name in enumerate(branches):
        low, left = BRANCH * place, x - 1.6
        color = FEED_FORWARD if name.startswith("feed") else ATTENTION
        middle = low + 0.85
        axes.plot((x, left, left), (low + 0.15, low + 0.15, low + 0.6), color=INK, linewidth=1.2, marker="none")
        _box(axes, left, middle, name, color, width=1.6, height=0.5)
        _arrow(axes, (left + 0.84, middle), (x - 0.17, middle))
        if pre_norm:
            _box(axes, x - 0.75, low + 0.15, "norm", "white", width=0.62, height=0.24)
        else:
            _box(axes, x, low + 1.22, "norm", "white", width=0.8, height=0.24)
        axes.plot(x, middle, marker="o", markersize=15, markerfacecolor="white", markeredgecolor=INK, zorder=4)
        axes.text(x, middle - 0.01, "+", ha="center", va="center", fontsize=13, zorder=5)


def _frame(axes: Axes, x: float, height: float, label: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    look: dict[str, Any] = {
        "boxstyle": "round,pad=0,rounding_size=0.15",
        "facecolor": FAINT,
        "edgecolor": "none",
        "zorder": 0,
    }
    axes.add_patch(FancyBboxPatch((x - 2.6, -0.12), 3.15, height + 0.1, **look))
    axes.text(x + 0.62, height / 2, label, ha="left", va="center", fontsize=12, fontweight="bold")


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
