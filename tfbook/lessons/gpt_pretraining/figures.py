"""Figures of lesson 09, each with its alt text: the questions, the model, counting, training, and what was learned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.plot.curves import lines
from tfbook.plot.house import COLORS, EDGE, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.plot import Schematic
    from tfbook.plot.schematic.nodes import Item

    Picture = tuple[Figure, str]


CHIP = 62  # pixels of a token

# ---- the question and the model --------------------------------------------------------------------------------------


def draw_questions(words: Sequence[str], shares: Sequence[float]) -> Picture:
    """One row per question that a text poses: the words read, the next word with its probability, and its loss."""
    from tfbook.plot import Schematic

    picture = Schematic(f"{len(shares)} questions: which word comes next?", gap=(34, 16))
    costs = []
    for row, p in enumerate(shares, 1):
        read = picture.tokens(words[:row], (0, row), "stream", width=CHIP)
        wanted = picture.tokens([words[row]], (1, row), "value", width=CHIP)
        costs.append(picture.box(f"−ln {p:g} = {-math.log(p):.2f}", (2, row), "weight", width=150))
        picture.arrow(read, wanted, f"p = {p:g}", "value")
        picture.arrow(wanted, costs[-1])
    for column, title in enumerate(("read", "next word", "surprise (nats)")):
        picture.text(title, (column, 0), color=SOFT)
    mean = -sum(map(math.log, shares)) / len(shares)
    picture.brace(costs, f"mean: {mean:.2f}")
    alt = f"Each word of “{' '.join(words)}” but the first is predicted from those before it; mean cost {mean:.2f}."
    return picture.figure(), alt


def draw_gpt(words: Sequence[str], sizes: tuple[int, int, int, int], vocab: int) -> Picture:
    """The whole model from bottom to top, with shapes; `sizes` are d_model, heads, d_ff and layers."""
    from tfbook.plot import Schematic

    (d_model, heads, d_ff, layers), n = sizes, len(words) - 1
    picture = Schematic("A GPT, from words to next words", gap=(26, 18))
    up = ("top", "bottom")
    thick: dict[str, Any] = {"role": "stream", "thickness": 5}
    read = picture.tokens(words[:-1], ((1, 2), 0), "stream", width=CHIP, label=f"{n} words read")
    table = picture.box("embedding", ((1, 2), -1), "parameter", note=f"{vocab} × {d_model}")
    attend, first, low = _branch(picture, -3, "self-attention", f"{heads} heads, rotary positions", "weight")
    think, _, high = _branch(picture, -5, "feed-forward", f"{d_model} → {d_ff} → {d_model}, GELU")
    norm = picture.box("norm", (2, -7), width=78)
    logits = picture.box("embedding, transposed", ((1, 2), -8), "parameter", note=f"{d_model} × {vocab}")
    shares = picture.box("softmax", ((1, 2), -9))
    wanted = picture.tokens(words[1:], ((1, 2), -10), "value", width=CHIP)
    mask = picture.matrix((n, n), (0, -3), "weight", cell=9, shape=f"{n} × {n}, causal", allowed=np.tri(n, dtype=bool))
    picture.arrow(read, table, sides=up)
    picture.arrow(picture.point((2, -1.5)), low, sides=up, head=False, **thick)
    picture.text(f"{n} × {d_model}", (2.7, -1.5), color=SOFT)
    picture.arrow(low, high, sides=up, head=False, **thick)
    picture.arrow(high, norm, sides=up, **thick)
    picture.arrow(norm, logits, f"\u2002{n} × {d_model}", sides=up, label_side="right")
    picture.arrow(logits, shares, f"\u2002logits, {n} × {vocab}", sides=up, label_side="right")
    picture.arrow(shares, wanted, "\u2002probabilities of the next words", sides=up, label_side="right")
    picture.arrow(mask, attend, role="weight")
    block = picture.frame([attend, first, think, low, high], "block", pad=10)
    picture.brace([block], f"× {layers}")
    alt = (
        f"From the bottom: {n} words, an embedding of {vocab} × {d_model}, {layers} blocks whose attention and "
        f"feed-forward branches add to a stream of {n} × {d_model}, a norm, the same embedding transposed, logits of "
        f"{n} × {vocab}, a softmax, and the next words."
    )
    return picture.figure(), alt


def _branch(picture: Schematic, row: int, text: str, note: str, role: str = "plain") -> tuple[Item, Item, Item]:
    """A layer with its norm beside the residual stream, and the sum to which its output is added."""
    layer = picture.box(text, (1, row), role, note=note, width=190)
    norm = picture.box("norm", (1, row + 1), width=70)
    fork, add = picture.point((2, row + 1)), picture.circle("+", (2, row))
    picture.arrow(fork, norm, sides=("left", "right"))
    picture.arrow(norm, layer, sides=("top", "bottom"))
    picture.arrow(layer, add)
    return layer, norm, add


# ---- before training: the residual stream ----------------------------------------------------------------------------


def draw_variance(variance: Mapping[tuple[int, bool], Sequence[float]]) -> Picture:
    """Variance of the residual stream after each block, by (layers, scaled), one panel per number of layers."""
    import matplotlib.pyplot as plt

    depths = list(dict.fromkeys(layers for layers, _ in variance))
    figure, panels = plt.subplots(1, len(depths), figsize=(10.5, 3.8), sharey=True)
    for axes, layers in zip(panels, depths, strict=True):
        curves = {
            name: (range(layers + 1), variance[layers, scaled])
            for name, scaled in (("unscaled", False), ("scaled", True))
        }
        lines(axes, curves, title=f"{layers} blocks", x="after block (0: embedding)", y="variance")
    last = ", ".join(f"{layers} blocks {variance[layers, False][-1]:.3f}" for layers in depths)
    alt = f"Unscaled, the variance after the last block grows with depth ({last}); scaled, it does not."
    return figure, alt


# ---- counting and training -------------------------------------------------------------------------------------------


def draw_ladder(losses: Mapping[str, Sequence[float]], bare: Mapping[str, Sequence[float]], perfect: float) -> Picture:
    """Loss on held-out stories of each stage, a dot for each run, with a dashed line at `perfect`.

    Hollow dots are runs of the same layers without branches. The first stage lies beyond the right edge, so that the
    others stand apart.
    """
    import matplotlib.pyplot as plt

    first, *others = losses
    figure, axes = plt.subplots(figsize=(10, 4.4))
    near = [loss for runs in (*(losses[name] for name in others), *bare.values()) for loss in runs]
    axes.set_xlim(perfect - 0.02, max(near) + 0.14)  # room for the last label
    for row, name in enumerate(losses):
        if name == first:
            _note(axes, f"{fmean(losses[name]):.2f} →", axes.get_xlim()[1], row, "left")
            continue
        _dots(axes, losses[name], row, COLORS[0])
        _note(axes, f"{fmean(losses[name]):.2f}", min(losses[name]), row, "left")
        if name in bare:
            _dots(axes, bare[name], row, "none")
            _note(axes, f"{fmean(bare[name]):.2f} without branches", max(bare[name]), row, "right", SOFT)
    axes.axvline(perfect, color=EDGE, linestyle="--", linewidth=1.2)
    axes.text(perfect, 1.01, "perfect", transform=axes.get_xaxis_transform(), color=SOFT, ha="center", va="bottom")
    axes.set_yticks(range(len(losses)), list(losses))
    axes.set(ylim=(len(losses) - 0.5, -0.6), xlabel="loss on held-out stories (nats per word)")
    figure.suptitle("Without branches, further layers hurt; with branches, they help")
    said = "; ".join(f"{name} {fmean(runs):.2f}" for name, runs in losses.items())
    hollow = "; ".join(f"{name} {fmean(runs):.2f}" for name, runs in bare.items())
    return figure, (
        f"Loss on held-out stories of models that have one part more each, mean of three runs: {said}. "
        f"The same layers without branches: {hollow}."
    )


def _dots(axes: Axes, runs: Sequence[float], row: int, fill: str) -> None:
    axes.plot(
        runs,
        [row] * len(runs),
        linestyle="none",
        marker="o",
        markersize=8,
        alpha=0.7,
        markerfacecolor=fill,
        markeredgecolor=COLORS[0],
    )


def _note(axes: Axes, text: str, x: float, row: int, side: str, color: str = INK) -> None:
    """A text beside a dot."""
    gap, across = {"left": (-9, "right"), "right": (9, "left")}[side]
    axes.annotate(text, (x, row), xytext=(gap, 0), textcoords="offset points", ha=across, va="center", color=color)


def draw_overfit(curves: Sequence[Sequence[Mapping[str, float]]]) -> Picture:
    """Losses on the stories that were read and on others during training, a pair of curves for each run."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.6))
    looks = {
        "held out": (COLORS[1], "stories that it has not read"),
        "train": (COLORS[0], "the 100 stories that it reads"),
    }
    for name, (color, title) in looks.items():
        for curve in curves:
            steps, losses = zip(*((point["step"], point[name]) for point in curve), strict=True)
            axes.plot(steps, losses, color=color, marker="none")
        above = {"held out": 8, "train": 8}[name]
        axes.annotate(
            title, (steps[-1], losses[-1]), xytext=(0, above), textcoords="offset points", ha="right", color=color
        )
    axes.set(xlabel="step", ylabel="loss (nats per word)", ylim=(0, None))
    axes.set_title("Two losses, one model")
    ends = ", ".join(f"{title} {curves[0][-1][name]:.2f}" for name, (_, title) in looks.items())
    return (
        figure,
        f"On few stories, the loss on these falls to the end and that on others rises again. At the end: {ends}.",
    )


def draw_training(losses: Sequence[float], levels: Mapping[str, float], shown: Sequence[int]) -> Picture:
    """Loss of each batch, pale, and its running mean, over logarithmic steps: the whole run, and its last nat.

    Dots are the batches at which samples were taken. Of the `levels`, sorted from the highest, the first belongs to the
    whole run and up to two more to the last nat.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(11, 4))
    smooth = [float(np.mean(losses[max(0, i - i // 20) : i + 1])) for i in range(len(losses))]
    steps = np.arange(1, len(losses) + 1)
    last = len(losses) // 20  # the second panel begins here
    for axes, begin in zip(panels, (1, max(1, last)), strict=True):
        at = [step for step in shown if begin <= step + 1 <= len(losses)]
        axes.plot(steps, losses, color=COLORS[0], marker="none", linewidth=0.8, alpha=0.4)
        axes.plot(steps, smooth, color=COLORS[0], marker="none")
        axes.plot(
            steps[at],
            [losses[step] for step in at],
            color=COLORS[1],
            linestyle="none",
            marker="o",
            markersize=7,
            clip_on=begin > 1,
        )
        axes.set(xscale="log", xlim=(0.9 * begin, 1.15 * len(losses)), xlabel="step (logarithmic)")
        ticks = [tick for tick in (1, 3, 10, 30, 100, 300, 1000) if begin <= tick <= len(losses)]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    left, right = panels
    left.set(title="Training loss: all of it", ylabel="loss (nats per word)", ylim=(0, 7.2))
    right.set(title="The last nat", ylim=(0.3, 1.6))
    positions = (
        (left, len(losses), "right", "top"),
        (right, len(losses), "right", "bottom"),
        (right, last, "left", "top"),
    )
    for (name, height), (axes, x, across, up) in zip(levels.items(), positions, strict=False):  # clear of the curve
        axes.axhline(height, color=INK, linestyle="--", linewidth=1.4)
        gap = {"top": -3, "bottom": 3}[up]
        axes.annotate(
            name, (x, height), xytext=(0, gap), textcoords="offset points", ha=across, va=up, color=SOFT, fontsize=10
        )
    names = ", ".join(f"{name} at {height:.2f}" for name, height in levels.items())
    return figure, f"The loss falls from {losses[0]:.1f} steeply at first and slowly later; dashed lines: {names}."


# ---- what was learned ------------------------------------------------------------------------------------------------

KIND_LOOKS = {  # color, number of words of the kind, and where the label of its uniform guess stands
    "pronouns": (COLORS[3], 2, "bottom"),
    "things": (COLORS[1], 16, "top"),
    "names": (COLORS[0], 12, "bottom"),
}

FLAT = 0.15  # a probability that changes by less does not count as rising


def draw_growth(frame: DataFrame, first_loss: float, optimizer: str = "Muon") -> Picture:
    """Probability of the right word of each kind in each run, the first run enlarged and below its loss.

    `first_loss` is the loss before the first step. A dashed line marks where the loss has done nine tenths of its drop,
    dotted lines mark a uniform guess among the words of a kind.
    """
    import matplotlib.pyplot as plt

    chosen = frame[frame["optimizer"] == optimizer]
    runs = [list(curve) for curve in chosen["curve"]]
    same = len(set(chosen["lr"])) == 1
    titles = [f"Run {i}" if same else f"Learning rate {lr:g}" for i, lr in enumerate(chosen["lr"], 1)]
    figure = plt.figure(figsize=(11, 6.2))
    columns = figure.add_gridspec(1, 2, width_ratios=(1.25, 1))
    left = columns[0].subgridspec(2, 1, height_ratios=(1, 2.6))
    right = columns[1].subgridspec(max(1, len(runs) - 1), 1)
    loss = figure.add_subplot(left[0])
    others = [figure.add_subplot(right[row]) for row in range(right.nrows)]
    panels = [figure.add_subplot(left[1]), *others]
    steps_of, losses = zip((0, first_loss), *((point["step"], point["loss"]) for point in runs[0]), strict=True)
    loss.plot(steps_of, losses, color=INK, marker="none")
    loss.set(title=titles[0], ylabel="loss (nats)", ylim=(0, 7))
    for axes, curve in zip(panels, runs, strict=False):
        for kind, (color, words, _) in KIND_LOOKS.items():
            steps, values = zip(*((point["step"], point[kind]) for point in curve), strict=True)
            axes.plot(steps, values, color=color, marker="none", linewidth=2.2, label=kind)
            axes.axhline(1 / words, color=color, linestyle=":", linewidth=1.4)
        axes.set(ylim=(0, 1.03), yticks=(0, 0.5, 1))
    for axes, title in zip(others, titles[1:], strict=False):
        axes.set_title(title)
    for axes, curve in zip((loss, *panels), (runs[0], *runs), strict=False):
        drop = first_loss - curve[-1]["loss"]
        axes.axvline(
            next(point["step"] for point in curve if first_loss - point["loss"] >= 0.9 * drop),
            color=INK,
            linestyle="--",
            linewidth=1.2,
            label="nine tenths of the loss's drop are done",
        )
        axes.set_xlim(0, 1.02 * curve[-1]["step"])
    for kind, (color, words, side) in KIND_LOOKS.items():
        if abs(runs[0][-1][kind] - 1 / words) < FLAT:  # the curve is in the way
            continue
        panels[0].annotate(
            f"even guess: 1/{words}",
            (runs[0][-1]["step"], 1 / words),
            xytext=(0, {"top": -2, "bottom": 2}[side]),
            textcoords="offset points",
            ha="right",
            va=side,
            color=color,
            fontsize=10,
        )
    loss.tick_params(labelbottom=False)
    panels[0].set(ylabel="probability of the right word", yticks=(0, 0.2, 0.4, 0.6, 0.8, 1), xlabel="step")
    others[-1].set_xlabel("step")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, handlelength=2.4)
    halves = "; ".join(
        f"run {number}: " + ", ".join(f"{kind} {_passes(curve, kind)}" for kind in KIND_LOOKS)
        for number, curve in enumerate(runs, 1)
    )
    alt = (
        "In each run the loss drops most of its way first. The probabilities of the right words begin at an even guess "
        f"and rise later, if at all: they are halfway between their lowest and highest value at these steps: {halves}."
    )
    return figure, alt


def _passes(curve: Sequence[Mapping[str, float]], kind: str) -> str:
    """The step at which a kind's probability is halfway between its lowest and highest value, or "never"."""
    values = [point[kind] for point in curve]
    if max(values) - min(values) < FLAT:
        return "never"
    middle = (min(values) + max(values)) / 2
    return f"{next(point['step'] for point in curve if point[kind] >= middle):g}"


def draw_patches(words: Sequence[str], renamed: Sequence[float], head: str) -> Picture:
    """How probable the other name is at the end, with the head's numbers changed at each word in turn."""
    from tfbook.plot import shaded_text

    figure, _ = shaded_text(words, {f"Lucy speaks, if head {head} is changed here": (len(words) - 1, renamed)})
    place = max(range(len(words)), key=renamed.__getitem__)
    most = f"most after a change at word {place + 1}, “{words[place]}”, with probability {renamed[place]:.2f}"
    return figure, f"The text, each word shaded by the probability that Lucy speaks if it is changed there: {most}."
