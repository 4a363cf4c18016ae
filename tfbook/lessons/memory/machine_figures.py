"""Figures of lesson 18's machines: addressing, the tape, copying, pointing, pondering, and a store's share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.plot.curves import label_ends
from tfbook.plot.house import COLORS, EDGE, GREEN, INK, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.lessons.memory.machines import Tape, Written
    from tfbook.models.turing_machine import Addressing, Head

LARGE = "LSTM, 30 times the size"
METHODS = {  # one look for each machine
    "Turing machine": Method(COLORS[0], "o"),
    "LSTM": Method(COLORS[1], "s"),
    LARGE: Method(COLORS[2], "^"),
    "Transformer": Method(GREEN, "D"),
}
MACHINE_ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "copying": (
        "Share of wrong bits against 5 to 40 vectors. The Turing machine stays near 0 up to its 32 slots and is at "
        "0.5 from 33; the LSTMs rise long before that."
    ),
    "tape": (
        "Bits heard and bits said over 41 steps. Below, the slots written form a diagonal in the first half, and the "
        "slots read the same diagonal in the second half, after a jump at the mark. The read head's gate peaks at the "
        "mark, at 0.9, and stays between 0.3 and 0.5 after it."
    ),
    "pondering": (
        "Steps of thinking against hops: a straight line from 1 to 5 for the adaptive walker, whose answers are all "
        "right, and a flat one for the walker with one step, which is right at one hop only."
    ),
}
TRAINED = "#eef1f4"  # behind the lengths that training saw

# ---- addressing ------------------------------------------------------------------------------------------------------


def draw_addressing(previous: Float[Tensor, " slot"], head: Head, steps: Addressing) -> Figure:
    """The weights of a head after each of the four steps, in the first row of a batch, and what made them."""
    from tfbook.plot import Schematic

    picture = Schematic("Where a head looks: by content, then by location", gap=(34, 26))
    rows = [
        ("where it was", previous, "before this step"),
        ("1  content", steps.content[0], f"like its key, $\\beta$ = {float(head.strength[0, 0]):.1f}"),
        ("2  gate", steps.gated[0], f"$g$ = {float(head.gate[0, 0]):.2f} of the content"),
        ("3  shift", steps.shifted[0], "by " + ", ".join(f"{float(s):.2f}" for s in head.shift[0])),
        ("4  sharpen", steps.weights[0], f"to the power $\\gamma$ = {float(head.sharpness[0, 0]):.1f}"),
    ]
    nodes: list[Any] = []
    slots = [str(i) for i in range(len(previous))]
    for row, (name, weights, note) in enumerate(rows):
        picture.text(name, (0, row), align="left", weight="bold", size=10.5)
        nodes.append(
            picture.matrix(
                weights[None],
                (1, row),
                "weight",
                cell=(50, 30),
                numbers="{:.2f}",
                darkest=1.0,
                columns=slots if not row else (),
            )
        )
        picture.text(note, (2, row), align="left", color=SOFT)
    at = [int(weights.argmax()) for weights in (steps.content[0], steps.gated[0], steps.shifted[0], steps.weights[0])]
    for row, (slot, following) in enumerate(pairwise(at), start=1):
        start, end = nodes[row].cell(0, slot), nodes[row + 1].cell(0, following)
        picture.arrow(start, end, role="weight", sides=("bottom", "top"))
    return picture.figure()


# ---- the tape --------------------------------------------------------------------------------------------------------


def draw_tape(tape: Tape, title: str = "It walks, jumps once, and walks the same way again") -> Figure:
    """The bits that the machine heard and said, and below it the slots that it wrote to and read from, step by step."""
    import matplotlib.pyplot as plt

    steps = len(tape.heard)
    used = int(torch.maximum(tape.writing, tape.reading).amax(dim=0).gt(0.1).nonzero().max()) + 2
    figure, panels = plt.subplots(
        5, 1, figsize=(max(6.4, 0.2 * steps + 1.5), 7.4), sharex=True, height_ratios=[7, 6, used, used, 8]
    )
    turn = tape.heard[:, :-1].abs().sum(dim=1).eq(0) & tape.heard[:, -1].eq(0)  # when it is the machine's turn
    said = torch.where(turn[:, None], tape.said, torch.nan)
    pictures = [
        (tape.heard.T, "heard", "RdBu", (-1.4, 1.4)),
        (2 * said.T - 1, "said", "RdBu", (-1.4, 1.4)),
        (tape.writing.T[:used], "writes to slot", "Purples", (0, 1)),
        (tape.reading.T[:used], "reads from slot", "Purples", (0, 1)),
    ]
    for axes, (values, name, colors, (low, high)) in zip(panels[:4], pictures, strict=True):
        axes.imshow(values.numpy(), cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        axes.set_ylabel(name, fontsize=9.5)
        axes.set_yticks([] if "slot" not in name else range(0, used, 5))
    panels[4].plot(tape.gate, color=COLORS[0], marker="o", markersize=3)
    panels[4].set(ylim=(0, 1), yticks=(0, 0.5, 1))
    panels[4].set_ylabel("its gate", fontsize=9.5)
    for axes in panels:
        axes.axvline(int((~turn).sum()) - 0.5, color=INK, linewidth=1)
    panels[0].set_title(title)
    panels[-1].set_xlabel("step; the line is where its turn begins")
    return figure


# ---- a write ---------------------------------------------------------------------------------------------------------


def draw_write(write: Written, title: str) -> Figure:
    """The slot that a write changes most: before, what is erased, what is left, what is added, and after."""
    from tfbook.plot import Schematic

    picture = Schematic(title, gap=(26, 22))
    left = write.before * (1 - write.weight * write.erase)
    rows = [
        (f"slot {write.slot} before, $M$", write.before, "stream"),
        ("erase, $e$", write.erase, "query"),
        ("left: $M \\odot (1 - w\\,e)$", left, "stream"),
        ("add, $a$", write.add, "value"),
        ("after: $+\\; w\\,a$", write.after, "stream"),
    ]
    nodes: list[Any] = []
    for row, (name, values, role) in enumerate(rows):
        picture.text(name, (0, row), align="left", weight="bold" if role == "stream" else "normal", size=10.5)
        nodes.append(picture.matrix(values[None], (1, row), role, cell=(46, 28), numbers="{:.2f}", darkest=2.0))
    for upper, lower in ((0, 2), (2, 4)):
        picture.arrow(nodes[upper], nodes[lower], role="stream", sides=("right", "right"))
    return picture.figure()


# ---- copying ---------------------------------------------------------------------------------------------------------


def draw_copying(rows: DataFrame, longer: DataFrame, past: Sequence[Mapping[str, float]], slots: int) -> Figure:
    """Wrong bits against length, at each one's rate: seeds and their mean; dotted, one machine `past` its slots."""
    figure, axes = _copying_axes("Trained on 10 vectors, it copies 32; LSTMs lose the bits before", right=41)
    _mean_and_seeds(axes, rows[rows.chosen], "Turing machine")
    look = METHODS["Turing machine"]
    axes.plot([row["length"] for row in past], [row["error"] for row in past], ":", color=look.color,
              marker=look.marker, markersize=4, label="Turing machine,\none, run here")  # fmt: skip
    _lstms(axes, rows, longer)
    axes.axvline(slots, color=EDGE, linewidth=1.2)
    axes.text(slots - 0.3, 0.56, f"{slots} slots", ha="right", color=SOFT, fontsize=9.5)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def _copying_axes(title: str, right: float, longest: int = 10) -> tuple[Figure, Axes]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4))
    axes.axvspan(0, longest, color=TRAINED, zorder=0)
    axes.text(longest - 0.4, 0.56, "trained", ha="right", color=SOFT, fontsize=9.5)
    axes.axhline(0.5, color=EDGE, linestyle=":", linewidth=1.2)
    axes.text(3.2, 0.505, "a coin", ha="left", va="bottom", color=SOFT, fontsize=9)
    ticks = [tick for tick in (5, 10, 15, 20, 30, 40) if tick < right]
    axes.set(title=title, xlabel="vectors to copy", ylabel="share of wrong bits", xticks=ticks)
    axes.set(ylim=(-0.02, 0.6), xlim=(3, right))
    return figure, axes


def _lstms(axes: Axes, rows: DataFrame, longer: DataFrame) -> None:
    for name in ("LSTM", LARGE):
        _mean_and_seeds(axes, rows[rows.chosen], name)
    _mean_and_seeds(axes, longer, LARGE, "--", ",\n5 times the steps")


def _mean_and_seeds(axes: Axes, rows: DataFrame, name: str, line: str = "-", more: str = "") -> None:
    method, found = METHODS[name], rows[rows.machine == name]
    means = found.groupby("length").error.mean()
    axes.plot(
        means.index, means, line, color=method.color, marker=method.marker, label=name.replace(", ", ",\n") + more
    )
    axes.plot(found.length, found.error, ".", color=method.color, alpha=0.5, label="_seeds")


# ---- pointing --------------------------------------------------------------------------------------------------------


def draw_hull(clouds: Float[Tensor, "cloud item 2"], walks: Int[Tensor, "cloud step"], right: Sequence[bool]) -> Figure:
    """Clouds of points with the walk that the network points out, each said to be right or not."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(clouds), figsize=(2.7 * len(clouds), 3.1))
    for axes, cloud, walk, is_right in zip(np.atleast_1d(panels), clouds.numpy(), walks.tolist(), right, strict=True):
        corners = walk[: walk.index(len(cloud))] if len(cloud) in walk else walk
        around = cloud[[*corners, corners[0]]]
        axes.plot(*around.T, color=COLORS[0] if is_right else COLORS[1], marker="none", linewidth=1.8)
        axes.plot(*cloud.T, "o", color=INK, markersize=4)
        for number, corner in enumerate(corners, start=1):
            axes.annotate(str(number), cloud[corner], xytext=(4, 4), textcoords="offset points", fontsize=9, color=SOFT)
        axes.set(xticks=[], yticks=[], xlim=(-0.08, 1.1), ylim=(-0.08, 1.1), aspect="equal")
        axes.set_title("right" if is_right else "not right", fontsize=10, loc="center", fontweight="normal")
    figure.suptitle("A hull, pointed out corner by corner", x=0.02, ha="left", fontsize=12, fontweight="bold")
    return figure


def draw_pointing(rows: DataFrame, trained: int = 10) -> Figure:
    """The share of tasks without a mistake against the number of items, with each seed as a point."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.8))
    looks = {"sort": METHODS["Turing machine"], "sort without a mask": METHODS["LSTM"], "hull": METHODS["Transformer"]}
    for name, method in looks.items():
        found = rows[rows.task == name]
        means = found.groupby("items")["exact"].mean()
        axes.plot(means.index, means, color=method.color, marker=method.marker, label=name)
        axes.plot(found["items"], found["exact"], ".", color=method.color, alpha=0.5, label="_seeds")
    axes.axvline(trained, color=EDGE, linestyle=":", linewidth=1.2)
    axes.text(trained + 0.1, 0.03, "trained", color=SOFT, fontsize=9)
    axes.set(
        title="With the mask, sorting reaches lengths never trained",
        xlabel="numbers or points",
        ylabel="share without a mistake",
        ylim=(-0.03, 1.05),
        xticks=sorted(set(rows["items"])),
    )
    label_ends(axes, gap=0.08)
    return figure


# ---- pondering -------------------------------------------------------------------------------------------------------


def draw_pondering(rows: DataFrame) -> Figure:
    """Steps of thinking and right answers against the distance from home, with each seed as a point."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.4, 3.6))
    looks = {"price 0.1": ("adaptive", COLORS[0], "o"), "always one step": ("always one", COLORS[1], "s")}
    for axes, column, y in ((panels[0], "steps", "steps of thinking"), (panels[1], "right", "share of right answers")):
        for name, (label, color, marker) in looks.items():
            found = rows[rows.walker == name]
            means = found.groupby("hops")[column].mean()
            axes.plot(means.index, means, color=color, marker=marker, label=label)
            axes.plot(found.hops, found[column], ".", color=color, alpha=0.5, label="_seeds")
        axes.set(xlabel="hops to the home", ylabel=y, xticks=[1, 2, 3, 4, 5])
        label_ends(axes, gap=0.09)
    panels[0].set_title("Farther from home, it thinks longer")
    panels[1].set_title("One step answers one hop")
    return figure


# ---- a store ---------------------------------------------------------------------------------------------------------


def draw_shares(curves: Mapping[str, Mapping[float, float]]) -> Figure:
    """Nats per token against the store's share λ, a curve for each kind of text."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.8))
    for (name, curve), color, marker in zip(curves.items(), COLORS, "os^D", strict=False):
        axes.plot([*curve], [*curve.values()], color=color, marker=marker, label=name)
        _mark_lowest(axes, curve, color)
    axes.set(
        title="A store of plays helps with plays and costs with tales",
        xlabel="share of the store, λ",
        ylabel="nats per token",
        ylim=(0, None),
    )
    label_ends(axes)
    return figure


def _mark_lowest(axes: Axes, curve: Mapping[float, float], color: str) -> None:
    share = min(curve, key=curve.__getitem__)
    axes.annotate(
        f"{curve[share]:.2f}",
        (share, curve[share]),
        xytext=(-4, 9),
        textcoords="offset points",
        color=color,
        fontsize=9.5,
    )
