"""Charts of lesson 03: how scores grow, what depth and numbers of shapes do, and what a layer costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from tfbook.plot.curves import label_ends
from tfbook.plot.house import INK, METHODS, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_growth(traces: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], title: str) -> Figure:
    """The spread of the scores and the share painted right while runs train: method → runs → rows of `trace`."""
    import matplotlib.pyplot as plt

    figure, (spread, right) = plt.subplots(1, 2, figsize=(9.2, 3.5))
    for name, look in zip(traces, (METHODS["dot"], METHODS["scaled dot"]), strict=True):
        steps = [row["steps"] for row in traces[name][0]]
        for axes, column, unit in ((spread, "spread", 1), (right, "right", 100)):
            values = [[unit * row[column] for row in run] for run in traces[name]]
            for run in values:
                axes.plot(range(len(steps)), run, color=look.color, linewidth=0.9, marker="none", alpha=0.6)
            middle = [median(each) for each in zip(*values, strict=True)]
            axes.plot(range(len(steps)), middle, color=look.color, marker=look.marker, label=name)
            axes.set_xticks(range(len(steps)), [str(step) for step in steps])
            axes.tick_params(axis="x", labelsize=9)
            axes.set_xlabel("steps")
    spread.set(yscale="log", title="Spread of the scores of a query")
    spread.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    spread.minorticks_off()
    right.set(ylim=(-3, 105), yticks=[0, 25, 50, 75, 100], title="% of gray shapes right")
    for axes in (spread, right):
        label_ends(axes, gap=0.08)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def draw_depth(found: Mapping[tuple[int, bool], Sequence[float]], normalized: Sequence[float], title: str) -> Figure:
    """The share of right answers by number of layers, with and without residual connections, a dot per run.

    `normalized` are the runs of the deepest stack with a LayerNorm after each layer in place of the connections: a
    place of their own on the axis.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 3.6))
    depths = sorted({layers for layers, _ in found})
    looks = {True: ("added to x", METHODS["self-attention"], "-"), False: ("in place of x", METHODS["recurrent"], "--")}
    for residual, (name, look, dashes) in looks.items():
        runs = [found[layers, residual] for layers in depths]
        middles = [100 * median(values) for values in runs]
        axes.plot(range(len(depths)), middles, color=look.color, marker=look.marker, linestyle=dashes, label=name)
        for x, values in enumerate(runs):
            axes.plot(
                [x] * len(values), [100 * v for v in values], "o", color=look.color, fillstyle="none", markersize=5
            )
    places = [len(depths) + 0.12 * (run - (len(normalized) - 1) / 2) for run in range(len(normalized))]  # none hidden
    axes.plot(places, [100 * v for v in normalized], "D", color=INK, fillstyle="none", markersize=7)
    axes.axhline(50, color=SOFT, linestyle=":", linewidth=1.2)
    axes.annotate("one of the two animals", (0, 50), (4, 4), textcoords="offset points", color=SOFT, fontsize=9.5)
    ticks = [*(f"{layers} layers" for layers in depths), f"{depths[-1]} layers, in place\nof x, normalized"]
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(ylim=(-3, 105), yticks=[0, 25, 50, 75, 100], ylabel="% right", title=title)
    label_ends(axes, gap=0.08)
    return figure


def draw_binding(found: Mapping[str, Mapping[int, Sequence[float]]], title: str) -> Figure:
    """The share of gray shapes painted right by the number of shapes in a scene, a dot per run, a line of medians."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.8, 3.6))
    looks = dict(zip(found, (METHODS["recurrent"], METHODS["self-attention"]), strict=True))
    for name, by_shapes in found.items():
        look, places = looks[name], range(len(by_shapes))
        axes.plot(
            places, [100 * median(v) for v in by_shapes.values()], color=look.color, marker=look.marker, label=name
        )
        for place, shares in zip(places, by_shapes.values(), strict=True):
            axes.plot([place] * len(shares), [100 * v for v in shares], "o", color=look.color, fillstyle="none", ms=5)
        axes.set_xticks(places, [str(shapes) for shapes in by_shapes])
    axes.set(ylim=(-3, 105), yticks=[0, 25, 50, 75, 100], xlabel="shapes in a scene", ylabel="% right", title=title)
    label_ends(axes, gap=0.08)
    return figure


# ---- what it costs ---------------------------------------------------------------------------------------------------


def draw_cost(
    lengths: Sequence[int], operations: Mapping[str, Sequence[float]], seconds: Mapping[str, Sequence[float]]
) -> Figure:
    """Operations and time of a layer against length, on logarithmic axes, with the exponents of straight lines."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    from tfbook.course.cost import exponent

    figure, (work, time) = plt.subplots(1, 2, figsize=(9.2, 3.9))
    for axes, costs, unit in ((work, operations, 1e6), (time, seconds, 1e-3)):
        axes.set(xscale="log", yscale="log")
        for name, values in costs.items():
            power = _power(exponent(lengths, values)) if axes is work else ""
            look, dashes = METHODS.get(name, METHODS["self-attention"]), "-" if name in METHODS else "--"
            axes.plot(
                lengths, [v / unit for v in values], dashes, color=look.color, marker=look.marker, label=name + power
            )
        axes.set_xticks(lengths, lengths)
        axes.set_ylim(top=2 * axes.get_ylim()[1])  # room for the labels of lines that end close together
        axes.minorticks_off()
        axes.set_xlabel("length n (tokens of width 64)")
        label_ends(axes, gap=0.08)
    work.set(title="Work: attention grows fastest", ylabel="million operations")
    time.set(title="Time: the recurrent layer takes longest", ylabel="milliseconds")
    time.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    time.yaxis.set_major_formatter("{x:g}")
    return figure


def _power(exponent: float) -> str:
    """The whole power of n that a line's slope shows, in words of a label; empty for a line that is not straight."""
    whole = round(exponent)
    return f" ∝ n{'²' if whole == 2 else ''}" if abs(exponent - whole) < 0.02 else ""
