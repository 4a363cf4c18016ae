"""Figures of lesson 05: training, norms, the comparison with lesson 01, activations, and published results."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

from torch import Tensor

from tfbook import plot
from tfbook.course.summaries import Curve, bands, unnest
from tfbook.lessons.transformer.schematics import (
    draw_blocks as draw_blocks,
    draw_masks as draw_masks,
    draw_residual as draw_residual,
    draw_transformer as draw_transformer,
)
from tfbook.lessons.transformer.stacks import KNOWING_NOTHING, NOT_WHERE, RATES
from tfbook.plot.house import COLORS, FAINT, SOFT
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


def draw_spelling(losses: Mapping[str, Sequence[float]]) -> Picture:
    """Losses of stacks that learn to spell backwards."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    smooth = {name: running_mean(values, 10) for name, values in losses.items()}
    plot.lines(
        axes,
        {name: (range(len(values)), values) for name, values in smooth.items()},
        title="One plus sign per layer makes the stack trainable",
        x="training step",
        y="loss (nats per letter)",
    )
    axes.set_ylim(bottom=-0.15)
    alt = (
        "Training loss of six attention layers alone, which ends only a little below 3.3, the loss of knowing "
        "nothing; of six with residual connections, which falls to nearly 0; and of one layer alone, which falls, too."
    )
    return figure, alt


def draw_training(losses: Sequence[float]) -> Picture:
    """The translator's training loss."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    axes.set_yscale("log")
    smooth = running_mean(losses, 10)
    title = "The loss falls about a hundredfold"
    plot.lines(axes, {"": (range(len(smooth)), smooth)}, title=title, x="training step", y="loss (nats per word)")
    axes.set_yticks((0.1, 0.3, 1, 3), ("0.1", "0.3", "1", "3"))
    alt = (
        "Training loss against steps, on a logarithmic axis: it falls from above 6 nats per word to less than a tenth."
    )
    return figure, alt


def draw_alignment(weights: Tensor, pair: Pair, place: tuple[int, int]) -> Picture:
    """Weights (target, source) of one head, one row per word written, with rings on the gold links."""
    import matplotlib.pyplot as plt

    layer, head = place
    figure, axes = plt.subplots(figsize=(6.4, 5))
    title = f"A head that aligns: layer {layer + 1}, head {head + 1}"
    plot.attention_map(axes, weights, pair.source, pair.target, gold=set(pair.sure), title=title)
    axes.set_ylabel("word that is written")
    alt = (
        "Weights of one head of cross-attention: a row for each French word that is written, a column for "
        "each English word. Rings mark gold alignments."
    )
    return figure, alt


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
    """Pre-norm and post-norm, with and without warm-up, and post-norm with a small initialization."""
    names = {
        "pre-norm": "pre-norm",
        "pre-norm, warm-up": "pre-norm,\nwarm-up",
        "post-norm": "post-norm",
        "post-norm, warm-up": "post-norm,\nwarm-up",
        "post-norm, small weights": "post-norm,\nsmall weights",
    }
    alt = (
        "Final loss against learning rate in five panels, a dot for each run. Pre-norm, with and without warm-up, "
        "reaches losses near 0 at three of the four rates. Post-norm stays above 1.6 at every rate: with warm-up, near "
        "1.7 at three rates; without, near 1.7 at two rates and at 2.3 at the others; small weights change little."
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
        title="Post-norm's gradients are larger in every block",
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


# ---- context ---------------------------------------------------------------------------------------------------------


def draw_activations() -> Picture:
    """ReLU and GELU, and their derivatives."""
    import matplotlib.pyplot as plt
    import torch
    from torch.nn import functional as F

    figure, panels = plt.subplots(1, 2, figsize=(10, 3.4))
    x = torch.linspace(-4, 4, 161, requires_grad=True)
    curves = {"ReLU": F.relu(x), "GELU": F.gelu(x)}
    slopes = {name: torch.autograd.grad(y.sum(), x)[0] for name, y in curves.items()}
    slopes["ReLU"][x.abs() < 1e-6] = nan  # a jump is drawn as a gap
    shown = ((curves, "GELU is a smooth ReLU", "output"), (slopes, "Its slope has no jump", "derivative"))
    for axes, (table, title, label) in zip(panels, shown, strict=True):
        series = {name: (x.tolist(), y.tolist()) for name, y in table.items()}
        plot.lines(axes, series, title=title, x="input", y=label)
    alt = (
        "Left: ReLU and GELU, which agree far from zero; GELU dips slightly below zero. Right: the derivative "
        "of ReLU jumps from 0 to 1, that of GELU rises smoothly and overshoots a little."
    )
    return figure, alt


PUBLISHED = {  # Vaswani et al. (2017), Table 2: BLEU on newstest2014, and training cost in floating-point operations
    "English to German": {
        "GNMT + RL": (24.6, 2.3e19),
        "ConvS2S": (25.16, 9.6e18),
        "MoE": (26.03, 2.0e19),
        "GNMT + RL, ensemble": (26.30, 1.8e20),
        "ConvS2S, ensemble": (26.36, 7.7e19),
        "Transformer (base)": (27.3, 3.3e18),
        "Transformer (big)": (28.4, 2.3e19),
    },
    "English to French": {
        "Deep-Att + PosUnk": (39.2, 1.0e20),
        "GNMT + RL": (39.92, 1.4e20),
        "ConvS2S": (40.46, 1.5e20),
        "MoE": (40.56, 1.2e20),
        "Deep-Att, ensemble": (40.4, 8.0e20),
        "GNMT + RL, ensemble": (41.16, 1.1e21),
        "ConvS2S, ensemble": (41.29, 1.2e21),
        "Transformer (base)": (38.1, 3.3e18),
        "Transformer (big)": (41.8, 2.3e19),
    },
}
FINDINGS = {"English to German": "better and cheaper", "English to French": "cheaper, and best when big"}
LABELED_LEFT = ("MoE", "ConvS2S, ensemble")  # their neighbors are labeled on the right


def draw_published() -> Picture:
    """Translation quality against training cost, as published."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 4.4))
    for axes, (pair, table) in zip(panels, PUBLISHED.items(), strict=True):
        title = f"{pair}: {FINDINGS[pair]}"
        axes.set(xscale="log", xlabel="training cost (floating-point operations)", ylabel="BLEU", title=title)
        for name, (score, cost) in table.items():
            color = COLORS[1] if name.startswith("Transformer") else COLORS[3]
            axes.plot(cost, score, marker="o", color=color)
            left = name in LABELED_LEFT
            look = {"color": color, "fontsize": 9.5, "ha": "right" if left else "left"}
            axes.annotate(name, (cost, score), (-6 if left else 6, -3), textcoords="offset points", **look)
        axes.set_xlim(2e18, 1.5e22)
    alt = (
        "BLEU against training cost on a logarithmic axis. To German the base Transformer is above all "
        "earlier models at a third of the cheapest one's cost, and the big one is higher still. To French the "
        "base model is below the others at a thirtieth of their cost."
    )
    return figure, alt
