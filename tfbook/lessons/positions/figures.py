"""Figures of lesson 04: where positions act, clocks, rotated vectors, a ramp, and results on longer texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tfbook.attention.positions import sinusoid
from tfbook.plot.curves import label_ends, lines
from tfbook.plot.house import BROWN, EDGE, INK, METHODS, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tfbook.course.summaries import Curve


CELL = 34  # pixels
FAINT = "#d8dce0"

TITLES = {  # of the figures that answer predictions: a lesson's code does not give them away
    "twice_the_length": "At twice the length, sinusoidal positions lose the most",
    "addition_by_digits": "Relative positions add numbers of twice the length",
}
ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "twice_the_length": (
        "Shares of right answers at 24 words. Sinusoidal positions fall far in both questions, rotary less. "
        "Relative keep the neighbor and lose order. The integer keeps most order."
    ),
    "addition_by_digits": (
        "Share of right additions against the number of digits, training at 8. Relative stays at 1 up to 16 "
        "digits; rotary stays near 1 to 12 and falls to 0 at 16; learned falls from 1 to a tenth at 9; "
        "sinusoidal and ALiBi are below a half at 8 already; none is at 0."
    ),
}


def draw_places() -> Figure:
    """An attention layer, and the three points at which position information can enter it."""
    from tfbook.plot import Schematic

    picture = Schematic("Three places where a position can act", gap=(26, 18))
    words = picture.box("words", (0, 2))
    x = picture.box("embeddings $X$", (1, 2), "stream", note="n × d_model")
    vectors = {
        role: picture.box(f"{name} ${letter}$", (2, row), role, note="n × d_head")
        for row, (role, name, letter) in enumerate(
            (("query", "queries", "Q"), ("key", "keys", "K"), ("value", "values", "V")), start=1
        )
    }
    scores = picture.box("scores", (3, 1.5), "weight", note="n × n")
    weights = picture.box("weights", (4, 1.5), "weight", note="n × n")
    out = picture.box("output", (5, 2.25), "stream")
    turned = picture.frame([vectors["query"], vectors["key"]], pad=8)
    add = picture.box("add a vector", (1, 4), "parameter", note="integer, sinusoidal, learned")
    rotate = picture.box("rotate", (2, 0), "parameter", note="rotary")
    bias = picture.box("add a number", ((3, 4), 4), "parameter", note="relative, ALiBi")
    picture.arrow(words, x)
    for role, box in vectors.items():
        picture.arrow(x, box, "", role, sides=("right", "left"))
    picture.arrow(vectors["query"], scores, "", "query", sides=("right", "left"), lane=-6)
    picture.arrow(vectors["key"], scores, "", "key", sides=("right", "left"), lane=6)
    picture.arrow(scores, weights, "softmax", "weight")
    picture.arrow(weights, out, "", "weight", sides=("right", "top"))
    picture.arrow(vectors["value"], out, "", "value", sides=("right", "bottom"))
    picture.arrow(add, x, "", "parameter", sides=("top", "bottom"))
    picture.arrow(rotate, turned, "", "parameter", sides=("bottom", "top"))
    picture.arrow(bias, scores, "", "parameter", sides=("top", "bottom"))
    return picture.figure()


# ---- waves and clocks ------------------------------------------------------------------------------------------------


def draw_clocks(speeds: Mapping[str, float], count: int = 8) -> Figure:
    """The binary digits of 0, 1, …, and below them one clock per speed (radians per position)."""
    import matplotlib.pyplot as plt

    rows = len(speeds)
    width, height = count + 2.6, 1.75 * rows + 0.75
    figure, axes = plt.subplots(figsize=(0.76 * width, 0.76 * height + 0.4), layout="none")
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1 - 0.4 / (0.76 * height + 0.4))
    color = METHODS["sinusoidal"].color
    for position in range(count):
        axes.text(position, 0.7, str(position), ha="center", va="center", fontsize=11, color=INK)
        for row in range(rows):
            bit = position >> row & 1
            box = {"boxstyle": "square,pad=0.3", "facecolor": INK if bit else "white", "edgecolor": INK}
            ink = "white" if bit else INK
            axes.text(position, -0.75 * row, str(bit), ha="center", va="center", fontsize=10.5, color=ink, bbox=box)
        for row, speed in enumerate(speeds.values()):
            _draw_clock(axes, (position, -0.75 * rows - 0.25 - row), position * speed, color)
    names = [
        ("position", 0.7),
        *((f"{place} place", -0.75 * row) for row, place in enumerate(("ones", "twos", "fours", "eights")[:rows])),
        *((name, -0.75 * rows - 0.25 - row) for row, name in enumerate(speeds)),
    ]
    for name, y in names:
        axes.text(-0.7, y, name, ha="right", va="center", fontsize=10.5, color=SOFT)
    axes.set(xlim=(-3.05, count - 0.45), ylim=(1 - height, 1), aspect="equal")
    axes.axis("off")
    figure.suptitle(
        "Digits flip, clock hands turn: the first ones fast, the last ones slowly",
        x=0.01, ha="left", fontsize=12, fontweight="bold",
    )  # fmt: skip
    return figure


def _draw_clock(axes: Axes, center: tuple[float, float], angle: float, color: str) -> None:
    """A clock whose hand has turned by `angle` from noon, given its sine and cosine."""
    from matplotlib.patches import Circle

    radius = 0.42
    axes.add_patch(Circle(center, radius, facecolor="white", edgecolor=EDGE, linewidth=1))
    x, y = center[0] + 0.9 * radius * np.sin(angle), center[1] + 0.9 * radius * np.cos(angle)
    look = {
        "arrowstyle": "-|>,head_width=0.16,head_length=0.3",
        "color": color,
        "linewidth": 2,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", (x, y), center, arrowprops=look)


def draw_peaks(slopes: Sequence[float], query: int, count: int) -> Figure:
    """Attention from positions alone, for a query among `count` keys: straight lines, and waves one position back.

    The waves are the dot product of the sinusoid one position before the query with that of each key.
    """
    import matplotlib.pyplot as plt

    positions = torch.arange(count, dtype=torch.float32)
    line = (torch.tensor(slopes)[:, None] * positions).softmax(dim=-1)
    codes = sinusoid(positions, 32)
    waves = (codes @ codes[query - 1]).softmax(dim=-1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), sharey=True)
    keys = range(count)
    integer, sinusoidal = METHODS["integer"], METHODS["sinusoidal"]
    for row, style in zip(line.tolist(), ("-", "--", ":", "-."), strict=False):
        left.plot(keys, row, linestyle=style, color=integer.color, marker=integer.marker)
    right.plot(keys, waves.tolist(), color=sinusoidal.color, marker=sinusoidal.marker)
    for axes, title in ((left, "A line is highest at an end"), (right, "Waves can peak anywhere")):
        axes.axvline(query, color=SOFT, linestyle="--", linewidth=1)
        axes.annotate("the query", (query, 0.93), (5, 0), textcoords="offset points", color=SOFT, fontsize=9.5)
        axes.set(title=title, xlabel="position of the key", ylim=(-0.03, 1))
        axes.set_xticks(list(keys))
    left.set(ylabel="weight")
    return figure


# ---- distances -------------------------------------------------------------------------------------------------------


def draw_table(rows: Tensor, reach: int) -> Figure:
    """The row of the table of learned vectors that each query–key pair uses; one diagonal is outlined."""
    from tfbook.plot import Schematic

    size = len(rows)
    picture = Schematic("One learned vector for each distance", gap=(70, 24))
    names = [f"{distance:+d}".replace("-", "−") for distance in range(-reach, reach + 1)]
    names[0], names[-1], names[reach] = f"{names[0]} or less", f"{names[-1]} or more", "0"
    table = picture.matrix(
        (2 * reach + 1, 4), (0, 0), "parameter", cell=(28, CELL), label="table", shape=f"{2 * reach + 1} × d_head",
        rows=[f"{name}   row {row}" for row, name in enumerate(names)],
    )  # fmt: skip
    grid = picture.matrix(
        rows, (1, 0), "parameter", cell=(43, CELL), numbers="{:.0f}", label="row for each pair", shape="query × key",
        rows=[f"query {i}" for i in range(size)], columns=[f"key {j}" for j in range(size)], darkest=3 * reach,
    )  # fmt: skip
    picture.outline(table.row(reach - 1), *(grid.cell(i + 1, i) for i in range(size - 1)))
    return picture.figure()


def draw_ramp(scores: Tensor, bias: Tensor) -> Figure:
    """Scores plus ALiBi's ramp, and their softmax under a causal mask."""
    from tfbook.plot import Schematic

    size = len(scores)
    causal = torch.ones(size, size, dtype=torch.bool).tril()
    picture = Schematic("ALiBi: a ramp that falls with distance", gap=(24, 24))
    names: dict[str, Any] = {"columns": [f"key {j}" for j in range(size)]}
    look: dict[str, Any] = {"cell": (43, CELL), "allowed": causal} | names
    found = picture.matrix(
        scores, (0, 0), "weight", label="scores", numbers="{:.1f}", rows=[f"query {i}" for i in range(size)],
        shape="all equal, to see the ramp alone", **look,
    )  # fmt: skip
    plus = picture.circle("+", (1, 0))
    ramp = picture.matrix(bias, (2, 0), "plain", label="bias", numbers="{:.1f}", shape="−slope · distance", **look)
    weights = (scores + bias).masked_fill(~causal, -torch.inf).softmax(dim=-1)
    shown = picture.matrix(
        weights, (3, 0), "weight", label="weights", numbers="{:.2f}", shape="each row sums to 1", darkest=1, **look
    )
    picture.arrow(found, plus, "", "weight")
    picture.arrow(ramp, plus, "", "plain")
    picture.arrow(ramp, shown, "softmax", "weight")
    return picture.figure()


# ---- rotary ----------------------------------------------------------------------------------------------------------


def draw_turns(query: Tensor, key: Tensor, theta: float, places: Sequence[tuple[int, int]]) -> Figure:
    """A query rotated by m θ and a key rotated by n θ for each (m, n), with the angle from the key to the query."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(places), figsize=(3.1 * len(places), 2.75))
    angles = [float(torch.atan2(vector[1], vector[0])) for vector in (query, key)]
    for axes, (m, n) in zip(panels, places, strict=True):
        turned = [start + position * theta for start, position in zip(angles, (m, n), strict=True)]
        axes.add_patch(plt.Circle((0, 0), 1, fill=False, edgecolor=FAINT))
        for start, end, role, name in zip(
            angles, turned, ("query", "key"), (f"q, m = {m}", f"k, n = {n}"), strict=True
        ):
            edge = ROLES[role].edge
            _draw_vector(axes, start, edge, faint=True)
            _draw_vector(axes, end, edge)
            side = "center" if abs(np.cos(end)) < 0.35 else "left" if np.cos(end) > 0 else "right"
            axes.text(1.08 * np.cos(end), 1.14 * np.sin(end), name, ha=side, va="center", color=edge, fontsize=10.5)
        arc = np.linspace(turned[1], turned[0], 40)
        axes.plot(0.4 * np.cos(arc), 0.4 * np.sin(arc), color=METHODS["rotary"].color, linewidth=3, marker="none")
        middle = (turned[0] + turned[1]) / 2
        between = f"{np.degrees(turned[0] - turned[1]):.0f}°"
        axes.text(
            0.66 * np.cos(middle), 0.6 * np.sin(middle), between, ha="center", va="center",
            color=METHODS["rotary"].color, fontsize=11, fontweight="bold",
        )  # fmt: skip
        axes.set(xlim=(-1.9, 1.9), ylim=(-1.3, 1.3), aspect="equal", xticks=[], yticks=[])
        product = f"{np.cos(turned[0] - turned[1]):z.2f}".replace("-", "−")
        axes.set_title(f"m − n = {m - n}:  product {product}", loc="center", fontsize=11)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    figure.suptitle("Equal distances, equal angles, equal products", x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _draw_vector(axes: Axes, angle: float, color: str, *, faint: bool = False) -> None:
    look = {
        "arrowstyle": "-|>",
        "color": color,
        "linewidth": 2.2,
        "shrinkA": 0,
        "shrinkB": 0,
        "alpha": 0.22 if faint else 1,
    }
    axes.annotate("", (np.cos(angle), np.sin(angle)), (0, 0), arrowprops=look)


# ---- measurements ----------------------------------------------------------------------------------------------------


def draw_right(found: Mapping[str, Sequence[tuple[float, float]]], title: str) -> Figure:
    """Accuracy on both questions for each encoding, one dot per run."""
    import matplotlib.pyplot as plt

    height = 0.36 * len(found) + 1.2
    figure, panels = plt.subplots(1, 2, figsize=(8.6, height), sharey=True)
    names = list(found)
    for question, (axes, heading) in enumerate(zip(panels, ("Who does it?", "Which word stands before?"), strict=True)):
        if question == 0:
            axes.axvline(50, color=SOFT, linestyle="--", linewidth=1.2)
            axes.annotate(
                "a coin", (50, 3.5), (5, 0), textcoords="offset points", color=SOFT, va="center", fontsize=9.5
            )
        for row, name in enumerate(names):
            shares = [100 * run[question] for run in found[name]]
            look = METHODS[name]
            axes.plot(
                shares, [row] * len(shares), look.marker, color=look.color, alpha=0.75, markersize=8, clip_on=False
            )
        axes.set(xlim=(0, 103), ylim=(len(names) - 0.5, -0.5), xticks=[0, 25, 50, 75, 100])
        axes.set_xlabel("% right (a mark per run)")
        axes.set_title(heading, fontsize=11, fontweight="normal", loc="center")
        axes.grid(axis="x", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.spines[["left"]].set_visible(False)
    panels[0].set_yticks(range(len(names)), names)
    for label, name in zip(panels[0].get_yticklabels(), names, strict=True):
        label.set_color(METHODS[name].color)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _lengths(axes: Axes, lengths: Sequence[int], trained: int) -> None:
    axes.set(xscale="log", yscale="log")
    axes.axvline(trained, color=EDGE, linestyle="--", linewidth=1)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_yticks([6, 10, 20, 40], ["6", "10", "20", "40"])
    axes.minorticks_off()
    axes.set(xlabel=f"characters in the window (dashed: training, {trained})", ylabel="perplexity (lower is better)")


def draw_lengths(curves: Mapping[str, Curve], lengths: Sequence[int], trained: int) -> Figure:
    """Perplexity by length for each encoding; one that ends at the trained length is a labeled point."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.6))
    _lengths(axes, lengths, trained)
    whole = {name: curve for name, curve in curves.items() if len(curve[0]) > 1}
    lines(
        axes,
        whole,
        title="Relative positions and ALiBi stay nearly level",
        x=axes.get_xlabel(),
        y=axes.get_ylabel(),
    )
    for name in curves.keys() - whole.keys():
        look = METHODS[name]
        xs, ys, _ = curves[name]
        axes.plot(xs, ys, color=look.color, marker=look.marker, markersize=8)
        said: dict[str, Any] = {"color": look.color, "fontsize": 10.5, "ha": "right", "va": "center"}
        axes.annotate(f"{name}\nends here", (xs[0], ys[0]), (-9, 0), textcoords="offset points", **said)
        axes.set_xlim(left=xs[0] * 0.7)
    return figure


STRETCHED = {  # model → label, style and color of its line: dashed if fine-tuned, one color per way to divide
    "rotary": ("as it is", "-", METHODS["rotary"].color),
    "interpolated, all pairs": ("all pairs divided", "-", BROWN),
    "interpolated, slow pairs": ("slow pairs divided", "-", INK),
    "interpolated, tuned": ("all divided by 4, tuned", "--", BROWN),
    "tuned": ("only tuned", "--", METHODS["rotary"].color),
}


def draw_stretched(curves: Mapping[str, Curve], lengths: Sequence[int], trained: int) -> Figure:
    """Perplexity by length of a rotary model: unchanged, with positions divided, and fine-tuned."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.6))
    _lengths(axes, lengths, trained)
    for name, (label, style, color) in STRETCHED.items():
        xs, ys, half = curves[name]
        axes.plot(xs, ys, linestyle=style, color=color, marker="^", label=label)
        axes.fill_between(xs, np.subtract(ys, half), np.add(ys, half), color=color, alpha=0.15, linewidth=0)
    axes.set_title("Dividing the slow pairs helps, more training helps most")
    label_ends(axes, gap=0.07)
    return figure


def draw_curves(
    curves: Mapping[str, Curve], title: str, x: str, y: str, ticks: Sequence[float], *, trained: float | None = None
) -> Figure:
    """One line per encoding, in its color."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 4))
    if trained is not None:
        axes.axvline(trained, color=EDGE, linestyle="--", linewidth=1)
    lines(axes, curves, title=title, x=x, y=y)
    axes.set_xticks(ticks)
    return figure
