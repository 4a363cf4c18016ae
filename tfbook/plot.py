"""Figures in one hand: house style, direct labels, alt text, attention maps, curves and the lessons' diagrams."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Four of Petroff's ten (2021), distinct for the colour-blind; in grey, markers and direct labels tell lines apart.
COLOURS = ("#3f90da", "#e76300", "#832db6", "#717581")
MARKERS = ("o", "s", "^", "D")
MOST_MARKERS = 60  # a line with more points than this has none
INK, FAINT, EDGE = "#222222", "#f2f2f2", "#9a9a9a"


def style() -> None:
    """Sets the house style of the figures in this notebook and makes PNGs the same on every run."""
    import matplotlib as mpl
    import seaborn as sns
    from cycler import cycler

    sns.set_theme(context="notebook", style="ticks", rc={"figure.figsize": (7, 4), "figure.dpi": 100})
    mpl.rcParams |= {
        "axes.prop_cycle": cycler(color=COLOURS) + cycler(marker=MARKERS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.titlesize": 12,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "lines.linewidth": 2,
        "lines.markersize": 5,
        "figure.constrained_layout.use": True,
        "font.family": ["DejaVu Sans"],
    }


def show(figure: Figure, alt: str) -> None:
    """Displays a figure with the text for whoever cannot see it; raises ValueError when `alt` is empty."""
    import io

    import matplotlib.pyplot as plt
    from IPython.display import Image, display

    if not alt.strip():
        raise ValueError("alt is empty; describe what the figure shows in a sentence")
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    display(Image(file.getvalue(), alt=alt), metadata={"image/png": {"alt": alt}})


def label_ends(axes: Axes, gap: float = 0.05) -> None:
    """Writes each line's label beside its last point, in its colour, pushed apart where they would touch."""
    lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
    low, high = axes.get_ylim()
    ends = sorted(
        ((axes.transData.transform((0, line.get_ydata()[-1]))[1], line) for line in lines), key=lambda e: e[0]
    )
    bottom, top = axes.transData.transform((0, low))[1], axes.transData.transform((0, high))[1]
    place = -np.inf
    for y, line in ends:
        place = max(y, place + gap * (top - bottom))
        xy = (line.get_xdata()[-1], line.get_ydata()[-1])
        axes.annotate(
            line.get_label(),
            xy,
            xytext=(8, (place - y) * 72 / axes.figure.dpi),
            textcoords="offset points",
            color=line.get_color(),
            va="center",
            fontsize=10.5,
            annotation_clip=False,
        )


def lines(
    axes: Axes,
    series: Mapping[
        str, tuple[Sequence[float], Sequence[float]] | tuple[Sequence[float], Sequence[float], Sequence[float]]
    ],
    *,
    title: str,
    x: str,
    y: str,
) -> None:
    """One labelled line for each entry of `series`: (x, y), or (x, y, half-width of its band)."""
    for label, (xs, ys, *band) in series.items():
        (line,) = axes.plot(xs, ys, label=label, marker=None if len(xs) <= MOST_MARKERS else "none")
        if band:
            low, high = np.asarray(ys) - band[0], np.asarray(ys) + band[0]
            axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    axes.set(title=title, xlabel=x, ylabel=y)
    label_ends(axes)


def attention_map(
    axes: Axes,
    weights: Tensor,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str,
    gold: Set[tuple[int, int]] = frozenset(),
    bar: bool = True,
) -> None:
    """Attention weights (target × source), one row a target word, 0 to 1; a ring marks each gold link (source, target).

    Raises ValueError when the words do not fit the weights.
    """
    import seaborn as sns

    if tuple(weights.shape) != (len(target), len(source)):
        expected = f"{len(target)} target × {len(source)} source words"
        raise ValueError(f"weights have shape {tuple(weights.shape)}; expected {expected}")
    sns.heatmap(
        weights.detach().float().cpu().numpy(),
        ax=axes,
        vmin=0,
        vmax=1,
        cmap="cividis",
        cbar=bar,
        cbar_kws={"label": "attention weight"} if bar else None,
        square=True,
        linewidths=0.5,
        linecolor="#555555",
        xticklabels=source,
        yticklabels=target,
    )
    for i, j in sorted(gold):
        axes.plot(
            i + 0.5,
            j + 0.5,
            marker="o",
            markersize=8,
            markerfacecolor="none",
            markeredgecolor="#ff5e5e",
            markeredgewidth=1.8,
        )
    axes.grid(False)
    axes.set_title(title, pad=10)
    axes.tick_params(length=0)
    axes.set_xticklabels(source, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticklabels(target, rotation=0)
    axes.set(xlabel="source word", ylabel="target word")


def seq2seq_diagram(axes: Axes, source: Sequence[str], target: Sequence[str], *, attention: bool) -> None:
    """Encoder states below, decoder states above; between them one vector for all, or a line from every state."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    def box(x: float, y: float, text: str, colour: str) -> None:
        shape = FancyBboxPatch(
            (x - 0.36, y - 0.2), 0.72, 0.4, boxstyle="round,pad=0.04", facecolor=colour, edgecolor=INK
        )
        axes.add_patch(shape)
        axes.text(x, y, text, ha="center", va="center", fontsize=10.5, color=INK)

    def arrow(start: tuple[float, float], end: tuple[float, float], colour: str = INK, width: float = 1.2) -> None:
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=colour, linewidth=width))

    left = (len(source) - len(target)) / 2  # the shorter row is centred over the longer one
    for j, word in enumerate(source):
        box(j, 0, f"$h_{{{j + 1}}}$", "#dbeafc")
        axes.text(j, -0.62, word, ha="center", va="center", fontsize=10.5, style="italic")
        if j:
            arrow((j - 0.6, 0.09), (j - 0.4, 0.09))
            arrow((j - 0.4, -0.09), (j - 0.6, -0.09))
    for t, word in enumerate(target):
        box(left + t, 2, f"$s_{{{t + 1}}}$", "#fde3cf")
        axes.text(left + t, 2.62, word, ha="center", va="center", fontsize=10.5, style="italic")
        if t:
            arrow((left + t - 0.6, 2), (left + t - 0.4, 2))
    if attention:
        focus = len(target) // 2
        for j in range(len(source)):
            weight = max(0.12, 1 - 0.42 * abs(j - focus))
            arrow((j, 0.26), (left + focus, 1.74), COLOURS[1], 0.6 + 2.6 * weight)
        axes.text(left + focus + 0.45, 1.35, rf"$\alpha_{{{focus + 1}j}}$", color=COLOURS[1], fontsize=12)
    else:
        middle = (len(source) - 1) / 2
        box(middle, 1, "$c$", "#f6d5d5")
        for j in (0, len(source) - 1):
            arrow((j, 0.26), (middle + (0.3 if j else -0.3), 0.74), COLOURS[3])
        for t in range(len(target)):
            arrow((middle, 1.26), (left + t, 1.74), COLOURS[3])
    axes.set(xlim=(min(0, left) - 0.7, max(len(source), left + len(target)) - 0.3), ylim=(-0.9, 2.9), aspect="equal")
    axes.axis("off")


def course_map(axes: Axes, parts: Mapping[str, Sequence[str]], ready: Collection[str]) -> None:
    """Lessons such as "08 GPT pretraining" as boxes, filled when `ready` has their number, in a band for each part.

    The first two parts are a road, one row each; the others leave from it side by side, two lessons a row.
    """
    road, branches = list(parts.items())[:2], list(parts.items())[2:]
    columns = max(2 * len(branches), *(len(lessons) for _, lessons in road))
    for row, (name, lessons) in enumerate(road):
        _band(axes, name, lessons, ready, left=0, top=-1.75 * row, columns=columns)
    depth = max(-(-len(lessons) // 2) for _, lessons in branches)
    for number, (name, lessons) in enumerate(branches):
        _band(axes, name, lessons, ready, left=2 * number, top=-1.75 * len(road), columns=2, rows=depth)
    starts = [(columns / 2, 0), *((2 * number + 1, 1) for number in range(len(branches)))]
    for x, row in starts:
        ends = (x, -1.75 * row - 1.4), (x, -1.75 * (row + 1) + 0.02)
        axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "-|>", "color": EDGE, "linewidth": 2})
    axes.set(xlim=(-0.05, columns + 0.05), ylim=(-1.75 * len(road) - 0.45 - depth, 0.1))
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

    def box(x: float, y: float, width: float, height: float, **look: object) -> None:
        axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", **look))

    box(left + 0.04, top - 0.42 - rows, columns - 0.08, rows + 0.42, facecolor=FAINT, edgecolor="none")
    axes.text(left + 0.14, top - 0.2, name, va="center", fontweight="bold", fontsize=11, color=INK)
    for place, lesson in enumerate(lessons):
        number, _, title = lesson.partition(" ")
        x, y = left + place % columns, top - 0.42 - place // columns
        done = number in ready
        fill, edge, ink, weight = (COLOURS[0], COLOURS[0], "white", "bold") if done else ("white", EDGE, INK, "normal")
        box(x + 0.1, y - 0.9, 0.8, 0.86, facecolor=fill, edgecolor=edge)
        words = f"{number}\n" + textwrap.fill(title, 15, break_long_words=False)
        axes.text(x + 0.5, y - 0.47, words, ha="center", va="center", fontsize=9.5, color=ink, fontweight=weight)
