"""Figures of lesson 05: training, attention, norms, and the comparison with lesson 01."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log, nan
from typing import TYPE_CHECKING

import numpy as np

from tfbook import plot
from tfbook.course.summaries import Curve, bands, unnest
from tfbook.lessons.transformer.inside import AttentionMap, swapped
from tfbook.lessons.transformer.schematics import (
    draw_blocks as draw_blocks,
    draw_masks as draw_masks,
    draw_residual as draw_residual,
    draw_transformer as draw_transformer,
)
from tfbook.lessons.transformer.stacks import KNOWING_NOTHING, NOT_WHERE, RATES
from tfbook.plot.attention import ALLOWED, BLOCKED
from tfbook.plot.house import COLORS, FAINT, SOFT, literal
from tfbook.text.pairs import Pair
from tfbook.training import running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]


# ---- training --------------------------------------------------------------------------------------------------------


def draw_spreads(spreads: Mapping[str, Sequence[float]]) -> Picture:
    """How much positions differ from one another after each layer."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    axes.set_yscale("log")
    plot.lines(
        axes,
        {name: (range(len(values)), values) for name, values in spreads.items()},
        title="A stack of attention alone makes all positions the same",
        x="layers",
        y="spread between positions",
    )
    alone = spreads["attention alone"]
    axes.text(0.75 * (len(alone) - 1), 2 * alone[-1], "rounding of 32-bit numbers", fontsize=9.5, ha="center")
    alt = (
        "Spread between twelve vectors against the number of untrained layers, on a logarithmic axis. With "
        "attention alone it falls from 1 to rounding error within a few layers; where the input is added to "
        "each layer's output, it stays close to 1."
    )
    return figure, alt


def draw_training(losses: Sequence[float], words: int) -> Picture:
    """The translator's training loss, and the loss of a model that finds all `words` equally likely."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    axes.set_yscale("log")
    smooth = running_mean(losses, 10)
    title = "The loss falls about a hundredfold"
    plot.lines(axes, {"": (range(len(smooth)), smooth)}, title=title, x="training step", y="loss (nats per word)")
    axes.axhline(log(words), color=SOFT, linestyle="--", linewidth=1.1)
    axes.text(
        len(smooth), 1.1 * log(words), f"knowing nothing: ln {words} = {log(words):.1f}", fontsize=9.5, ha="right"
    )
    axes.set_yticks((0.1, 0.3, 1, 3, 10), ("0.1", "0.3", "1", "3", "10"))
    alt = (
        "Training loss against steps, on a logarithmic axis: it falls from that of knowing nothing, nearly 7 nats per "
        "word, to about a tenth of a nat."
    )
    return figure, alt


def draw_three_attentions(maps: Sequence[AttentionMap], pair: Pair) -> Picture:
    """One head of each attention, a row per query; what a decoder may not see is hatched, gold links have rings."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(13, 4.9), width_ratios=(1, 1, 1.25), layout="constrained")
    for axes, found, causal in zip(panels, maps, (False, True, False), strict=True):
        _weights(axes, found, causal=causal)
    for source, target in sorted(pair.sure):
        panels[2].plot(
            source + 0.5, target + 0.5, marker="o", markersize=11, markerfacecolor="none", color=COLORS[1], mew=2.2
        )
    for (j, t), (k, u) in pairwise(swapped(pair)):
        panels[2].plot([j + 0.5, k + 0.5], [t + 0.5, u + 0.5], color=COLORS[1], linewidth=2.2, marker="none")
    cross = maps[2].weights[: len(pair.target)].argmax(dim=-1).tolist()
    hits = sum((source, target) in pair.sure for target, source in enumerate(cross))
    panels[2].set_title(f"Cross: {hits} of {len(cross)} find their word", pad=10)
    alt = (
        "Three maps of attention weights on one sentence, a row for each word that looks. Encoder: any source word "
        "may look at any other. Decoder: nothing right of the diagonal. Cross-attention: each target word looks at the "
        f"source while it is written; rings mark gold alignments, in which {hits} of {len(cross)} words look most, and "
        "a line joins those of two neighbors that change places."
    )
    return figure, alt


def _weights(axes: Axes, found: AttentionMap, *, causal: bool) -> None:
    """A cell for each weight, from white at 0 to dark at 1, with the later words of a causal map hatched."""
    from matplotlib.colors import LinearSegmentedColormap

    weights = np.ma.masked_array(found.weights.numpy(), mask=False)
    if causal:
        weights.mask = np.triu(np.ones(weights.shape, dtype=bool), 1) & (weights.data == 0)
        axes.patch.set(**BLOCKED)
    shades = LinearSegmentedColormap.from_list("weights", ["white", ALLOWED])
    axes.pcolormesh(weights, cmap=shades, vmin=0, vmax=1, edgecolors="#d8dce0", linewidth=0.6)
    axes.set(aspect="equal", ylim=(len(weights), 0), xlabel="is looked at (key)", ylabel="looks (query)")
    keys = [*map(literal, found.keys)]
    axes.set_xticks(np.arange(len(keys)) + 0.5, keys, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(found.queries)) + 0.5, [*map(literal, found.queries)])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set_title(found.title, pad=10)


# ---- norms -----------------------------------------------------------------------------------------------------------


TOP = 3.0  # nats: larger losses are drawn here


def _sweep(axes: Axes, runs: DataFrame, variant: str, title: str, color: str) -> None:
    """The final loss of each run of a variant, with a cross at the top for each one that diverged."""
    rows = runs[runs["variant"] == variant]
    for level in (KNOWING_NOTHING, NOT_WHERE):
        axes.axhline(level, color=SOFT, linestyle="--", linewidth=1.1)
    for marker, chosen in (("o", rows[rows["last"] < TOP]), ("x", rows[rows["last"] >= TOP])):
        heights = chosen["last"].clip(upper=TOP)
        axes.plot(chosen["lr"], heights, color=color, linestyle="none", marker=marker, markersize=8, alpha=0.75)
    for lr, exploded in rows[rows["last"] >= TOP].groupby("lr"):
        axes.annotate(
            f"{len(exploded)} runs", (lr, TOP), (0, -7), textcoords="offset points", fontsize=9.5, ha="center", va="top"
        )
    axes.set(xscale="log", ylim=(-0.15, TOP + 0.2), xlim=(7e-4, 4.3e-2), title=title)
    axes.set_xticks(RATES, [f"{rate:g}" for rate in RATES], rotation=45)
    axes.minorticks_off()


def draw_norms(runs: DataFrame) -> Picture:
    """Stacks with and without layer norm, from the same small initialization, at each learning rate."""
    names = {"pre-norm, small weights": "with layer norm", "no norms, small weights": "without"}
    alt = (
        "Final loss against learning rate, a dot for each run. With layer norm and without, losses are near 0 at 0.003 "
        "and 0.01. At 0.03 the three runs without layer norm explode; with it they stay finite, and one of them learns."
    )
    return _panels(runs, names, "Without layer norm, training explodes\nat the largest learning rate"), alt


def draw_sweep(runs: DataFrame) -> Picture:
    """Pre-norm and post-norm, each with and without warm-up."""
    names = {
        "pre-norm": "pre-norm",
        "pre-norm, warm-up": "pre-norm,\nwarm-up",
        "post-norm": "post-norm",
        "post-norm, warm-up": "post-norm,\nwarm-up",
    }
    alt = (
        "Final loss against learning rate in four panels, a dot for each run. Pre-norm, with and without warm-up, "
        "reaches losses near 0 at three of the four rates, but for one of three runs at 0.03 without warm-up, which "
        "ends at 2.1. Post-norm stays above 1.6 at every rate: with warm-up, near 1.7 at three rates; without, near "
        "1.7 at two rates and at 2.3 at the others."
    )
    return _panels(runs, names, "In 200 steps six pre-norm blocks learn, and six post-norm blocks do not"), alt


def _panels(runs: DataFrame, names: Mapping[str, str], title: str) -> Figure:
    """One panel with a title for each variant, by its name in `runs`."""
    import matplotlib.pyplot as plt

    size = (1.6 * len(names) + 2.2, 4.0)
    figure, panels = plt.subplots(1, len(names), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axes, (variant, name) in zip(panels[0], names.items(), strict=True):
        _sweep(axes, runs, variant, name, COLORS["post" in variant or "no norms" in variant])
    panels[0, 0].set_ylabel("final loss (nats per symbol)")
    for level, text in ((KNOWING_NOTHING, "knows nothing"), (NOT_WHERE, "knows what,\nnot where")):
        panels[0, -1].text(4.8e-2, level, text, fontsize=9.5, color=SOFT, va="center", clip_on=False)
    figure.supxlabel("learning rate", fontsize=11)
    figure.suptitle(title, fontsize=12.5, fontweight="bold")
    return figure


def draw_first_step(
    gradients: Mapping[str, Sequence[float]], depths: Sequence[int], moved: Mapping[str, Sequence[float]]
) -> Picture:
    """Gradients by block before training, and the output's change in one step of Adam, against depth."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8))
    plot.lines(
        left,
        {name: (range(1, len(sizes) + 1), sizes) for name, sizes in gradients.items()},
        title="Pre-norm's gradients shrink toward the output",
        x="block (12 = next to the output)",
        y="gradient norm of $W_2$",
    )
    plot.lines(
        right,
        {name: (depths, changes) for name, changes in moved.items()},
        title="Equal steps move its output farther",
        x="blocks",
        y="change of the output ÷ its size",
    )
    right.set_xticks(depths)
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    alt = (
        "Left: gradient norm by block in untrained models of twelve blocks. Post-norm's is about as large in all "
        "blocks, and pre-norm's shrinks toward the output, where it is several times smaller. Right: relative change "
        "of the output after Adam's first step against depth; it grows with depth for both, much faster for post-norm."
    )
    return figure, alt


# ---- against lesson 01 -----------------------------------------------------------------------------------------------


LONGEST = 20  # words in a sentence of the training set
_NAMES = {"Transformer": "smaller Transformer"}  # a stored model's name in the figure


def draw_lengths(race: DataFrame) -> Picture:
    """BLEU against source length for each model of the stored comparison: mean and range over the runs."""
    import matplotlib.pyplot as plt

    points = unnest(race, "by_length", ["from", "to", "bleu"])
    curves = bands(points.assign(words=(points["from"] + points["to"]) / 2), "model", "words", "bleu")
    figure, axes = plt.subplots(figsize=(7.5, 4))
    plot.lines(
        axes,
        {_NAMES.get(name, name): _broken(curve, LONGEST + 0.5) for name, curve in curves.items()},
        title="Transformers lead up to the trained lengths, and fall behind beyond",
        x="words in the source",
        y="BLEU",
    )
    axes.axvspan(LONGEST + 0.5, 50, color=FAINT, zorder=0)
    axes.text(LONGEST + 1, 3, "longer than any training sentence", fontsize=9.5)
    axes.set_ylim(0, 104)
    alt = (
        "BLEU against source length. Up to 20 words, the longest in training, both Transformers are above the "
        "recurrent translator. Right past 20 words, the Transformers drop much more steeply, and at greater lengths "
        "they stay 14 to 25 points below it."
    )
    return figure, alt


def _broken(curve: Curve, at: float) -> Curve:
    """The curve with a gap at x = `at`, so that no line joins the points on its two sides."""
    (xs, means, halves), i = curve, bisect(curve[0], at)
    return (
        [*xs[:i], at, *xs[i:]],
        [*means[:i], nan, *means[i:]],
        [*halves[:i], nan, *halves[i:]],
    )
