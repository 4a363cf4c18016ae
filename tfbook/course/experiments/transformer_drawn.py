"""The pictures of lesson 05: the residual stream, blocks, the whole machine, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from tfbook import plot
from tfbook.course.experiments.summaries import bands, unnest
from tfbook.course.experiments.transformer_stacks import KNOWING_NOTHING, RATES
from tfbook.plot import Schematic
from tfbook.plot.house import COLORS, FAINT, ROLES, SOFT
from tfbook.text.pairs import Pair
from tfbook.training import running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.plot.schematic.nodes import Item

ROLE = {"Q": "query", "K": "key", "V": "value"}
CHIP = 56  # pixels of a word
STREAM = 4.0  # pixels of its line

# ---- parts -------------------------------------------------------------------------------------------------------


def _stream(picture: Schematic, *nodes: Item) -> None:
    """The residual stream from the first node up to the last."""
    for one, other in pairwise(nodes):
        up = other is nodes[-1]
        picture.arrow(one, other, role="stream", thickness=STREAM, head=up, sides=("top", "bottom"))


def _branch(
    picture: Schematic, row: int, text: str, note: str, left: int, reads: str = "", *, pre_norm: bool = True
) -> tuple[Item, Item, Item]:
    """A layer beside the stream in column left + 1, its norm, and the sum to which it is added.

    The branch leaves the stream `row` rows above the picture's zero. `reads` are the letters among Q, K and V that
    come from the stream. Without `pre_norm` the norm lies on the stream behind the sum, in the row after it.
    """
    layer = picture.box(text, (left, -row - 1), "weight" if reads else "plain", note=note, width=136)
    fork, add = picture.point((left + 1, -row)), picture.circle("+", (left + 1, -row - 1))
    norm = picture.box("norm", (left, -row) if pre_norm else (left + 1, -row - 2), width=70)
    picture.arrow(layer, add)
    if not pre_norm:
        picture.arrow(fork, layer, sides=("left", "bottom"))
        return layer, norm, add
    picture.arrow(fork, norm, sides=("left", "right"))
    for letter in reads or " ":
        lane = 26 * ("QKV".find(letter) - 1) * (len(reads) > 1)
        role = ROLE.get(letter, "plain")
        picture.arrow(norm, layer, letter.strip(), role, sides=("top", "bottom"), lane=lane, label_side="right")
    return layer, norm, add


# ---- the residual stream and the block ---------------------------------------------------------------------------


def draw_residual() -> Figure:
    """A chain of three layers, and the same layers as branches of a residual stream."""
    picture = Schematic("In a chain every layer replaces; beside a stream it adds", gap=(26, 30))
    rows = {0: "a chain", 1: "a stream"}
    for row, name in rows.items():
        y = 3 * row
        picture.text(name, (0, y), weight="bold")
        start, end = picture.box("$x$", (1, y), "stream"), picture.box("output", (8, y), "stream")
        layers = [picture.box(f"layer {i + 1}", (2 * i + 2.5 - row * 0.5, y - row), width=80) for i in range(3)]
        if row == 0:
            for one, other in pairwise([start, *layers, end]):
                picture.arrow(one, other, role="stream", thickness=STREAM)
            continue
        sums = [picture.circle("+", (2 * i + 3, y)) for i in range(3)]
        forks = [picture.point((2 * i + 2, y)) for i in range(3)]
        for one, other in pairwise([start, *sums, end]):
            picture.arrow(one, other, role="stream", thickness=STREAM, head=other is end, sides=("right", "left"))
        for fork, layer, add in zip(forks, layers, sums, strict=True):
            picture.arrow(fork, layer, sides=("top", "bottom"))
            picture.arrow(layer, add, sides=("right", "top"))
    return picture.figure()


def draw_blocks() -> Figure:
    """The block of 2017, whose norms lie on the stream, beside a pre-norm block."""
    picture = Schematic("Where the norm stands", gap=(26, 20))
    for left, pre_norm, title in ((0, False, "2017: post-norm"), (3, True, "today: pre-norm")):
        start, end = picture.point((left + 1, 0)), picture.point((left + 1, -7))
        attend = _branch(picture, 1, "self-attention", "", left, "QKV", pre_norm=pre_norm)
        feed = _branch(picture, 4, "feed-forward", "", left, pre_norm=pre_norm)
        if pre_norm:
            _stream(picture, start, attend[2], feed[2], end)
        else:
            _stream(picture, start, attend[2], attend[1], feed[2], feed[1], end)
        picture.frame([attend[0], attend[1], feed[0], feed[1], start, end], title, pad=14)
    return picture.figure()


# ---- the whole machine -------------------------------------------------------------------------------------------


def draw_transformer(source: Sequence[str], target: Sequence[str]) -> Figure:
    """Encoder and decoder with everything that they need, on a pair of sentences; `target` without `<bos>`."""
    picture = Schematic("The Transformer: branches read the gray stream and add to it", gap=(22, 14))
    words = picture.tokens(source, ((1, 2), 0), label="source: $n$ words", width=CHIP)
    wanted = picture.tokens(target, ((5, 6), 0), label="target: $m$ words", width=CHIP)
    shifted = picture.tokens(["<bos>", *target[:-1]], ((5, 6), -1), width=CHIP)
    picture.arrow(wanted, shifted, "shifted by one", sides=("top", "bottom"), label_side="right")
    _, below = _embedding(picture, words, 1, 1)
    tied, entrance = _embedding(picture, shifted, 5, 2)

    read = _branch(picture, 3, "self-attention", r"weights $n \times n$", 1, "QKV")
    think = _branch(picture, 5, "feed-forward", r"$d \to 4d \to d$", 1)
    memory = picture.box("norm", (2, -7), note="memory", width=78)
    _stream(picture, below, read[2], think[2], memory)
    past = _branch(picture, 4, "self-attention", r"weights $m \times m$", 5, "QKV")
    look = _branch(picture, 6, "cross-attention", r"weights $m \times n$", 5, "Q")
    decide = _branch(picture, 8, "feed-forward", r"$d \to 4d \to d$", 5)
    last = picture.box("norm", (6, -10), width=78)
    _stream(picture, entrance, past[2], look[2], decide[2], last)
    picture.arrow(memory, look[0], "K", "key", sides=("right", "left"), lane=-8, label_side="top")
    picture.arrow(memory, look[0], "V", "value", sides=("right", "left"), lane=8, label_side="bottom")

    logits = picture.box("embedding, transposed", ((5, 6), -11), "parameter")
    softmax = picture.box("softmax", ((5, 6), -12))
    written = picture.tokens(target, ((5, 6), -13), width=CHIP)
    picture.arrow(last, logits, sides=("top", "bottom"))
    picture.arrow(logits, softmax, r"$m \times$ vocabulary", sides=("top", "bottom"), label_side="right")
    picture.arrow(softmax, written, "the next words", sides=("top", "bottom"), label_side="right")
    _tie(picture, tied, logits)

    real, causal = np.tile(np.arange(5) < 4, (5, 1)), np.tri(5, dtype=bool)
    for allowed, place, layer, name in ((real, (0, -4), read[0], "padding"), (causal, (4, -5), past[0], "causal")):
        picture.arrow(_mask(picture, allowed, place, name), layer, role="weight", sides=("right", "left"))
    over = _mask(picture, real, (4, -8.4), "padding")
    picture.arrow(over, look[0], role="weight", sides=("right", "top"), lane=-44)
    encoder = picture.frame([read[1], think[0], think[2]], "encoder block", pad=9)
    decoder = picture.frame([past[1], decide[0], decide[2]], "decoder block", pad=9)
    for frame in (encoder, decoder):
        picture.brace([frame], r"$\times N$")
    return picture.figure()


def _embedding(picture: Schematic, words: Item, left: int, row: int) -> tuple[Item, Item]:
    """The embedding of the words, and the sum with the positions, where the stream begins."""
    table = picture.box(r"embedding $\cdot \sqrt{d}$", ((left, left + 1), -row), "parameter")
    add, places = picture.circle("+", (left + 1, -row - 1)), picture.box("positions", (left, -row - 1), width=100)
    picture.arrow(words, table, sides=("top", "bottom"))
    picture.arrow(table, add, role="stream", thickness=STREAM, head=False, sides=("top", "bottom"))
    picture.arrow(places, add)
    return table, add


def _tie(picture: Schematic, table: Item, logits: Item) -> None:
    """A line from the decoder's embedding to the matrix of its output: they are the same."""
    low, high = picture.point((8, -2)), picture.point((8, -11))
    picture.arrow(table, low, role="parameter", head=False, sides=("right", "left"))
    picture.arrow(low, high, role="parameter", head=False, sides=("top", "bottom"))
    picture.arrow(high, logits, role="parameter", sides=("left", "right"))
    picture.text("one matrix: tied", (7.5, -10.5), color=ROLES["parameter"].edge)


def _mask(picture: Schematic, allowed: np.ndarray, place: tuple[float, float], name: str) -> Item:
    return picture.matrix((5, 5), place, "weight", cell=9, allowed=allowed, shape=name)


def draw_masks(source: Sequence[str], target: Sequence[str], encoder: Tensor, decoder: Tensor, cross: Tensor) -> Figure:
    """The masks of the three attentions, each (query, key)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 4))
    masks = (
        ("Encoder: all words", encoder, source, source),
        ("Decoder: itself and earlier", decoder, target, target),
        ("Cross: all words of the source", cross, target, source),
    )
    for axes, (title, mask, queries, keys) in zip(panels, masks, strict=True):
        plot.mask_picture(axes, mask, queries, keys, title=title)
    return figure


# ---- training ----------------------------------------------------------------------------------------------------


def draw_spreads(spreads: Mapping[str, Sequence[float]]) -> Figure:
    """How much differs between positions after each layer."""
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
    return figure


def draw_spelling(losses: Mapping[str, Sequence[float]]) -> Figure:
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
    axes.set_ylim(bottom=0)
    return figure


def draw_training(losses: Sequence[float]) -> Figure:
    """The loss of the translator."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    axes.set_yscale("log")
    smooth = running_mean(losses, 10)
    title = "Slow at first, then fast"
    plot.lines(axes, {"": (range(len(smooth)), smooth)}, title=title, x="training step", y="loss (nats per word)")
    axes.set_yticks((0.1, 0.3, 1, 3), ("0.1", "0.3", "1", "3"))
    return figure


def draw_alignment(weights: Tensor, pair: Pair, place: tuple[int, int]) -> Figure:
    """Weights (target, source) of one head, a row for each word that is written, with the gold links."""
    import matplotlib.pyplot as plt

    layer, head = place
    figure, axes = plt.subplots(figsize=(6.4, 5))
    title = f"A head that aligns: layer {layer + 1}, head {head + 1}"
    plot.attention_map(axes, weights, pair.source, pair.target, gold=set(pair.sure), title=title)
    axes.set_ylabel("word that is written")
    return figure


# ---- norms -------------------------------------------------------------------------------------------------------


def _sweep(axes: Axes, runs: DataFrame, variant: str, title: str, color: str) -> None:
    """The last loss of each run of a variant, and the mean at each learning rate."""
    rows = runs[runs["variant"] == variant]
    means = rows.groupby("lr")["last"].mean()
    axes.axhline(KNOWING_NOTHING, color=SOFT, linestyle="--", linewidth=1.2)
    axes.plot(rows["lr"], rows["last"], color=color, linestyle="none", marker="o", alpha=0.6)
    axes.plot(means.index, means, color=color, marker="none")
    axes.set(xscale="log", ylim=(-0.15, 3.2), title=title)
    axes.set_xticks(RATES, [f"{rate:g}" for rate in RATES], rotation=45)
    axes.minorticks_off()


def draw_norms(runs: DataFrame) -> Figure:
    """Stacks with layer norm and without, from the same small weights, at each learning rate."""
    return _panels(
        runs,
        {"pre-norm, small weights": "with layer norm", "no norms, small weights": "without"},
        "Layer norm opens up larger learning rates",
    )


def draw_sweep(runs: DataFrame) -> Figure:
    """Pre- and post-norm, with and without warm-up, and post-norm with small weights."""
    names = {
        "pre-norm": "pre-norm",
        "pre-norm, warm-up": "pre-norm,\nwarm-up",
        "post-norm": "post-norm",
        "post-norm, warm-up": "post-norm,\nwarm-up",
        "post-norm, small weights": "post-norm,\nsmall weights",
    }
    return _panels(runs, names, "Pre-norm trains at more learning rates")


def _panels(runs: DataFrame, names: Mapping[str, str], title: str) -> Figure:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(names), figsize=(2.5 * len(names) + 1, 3.6), sharey=True, squeeze=False)
    for axes, (variant, name) in zip(panels[0], names.items(), strict=True):
        _sweep(axes, runs, variant, name, COLORS["post" in variant or "no norms" in variant])
    panels[0, 0].set_ylabel("final loss (nats per symbol)")
    panels[0, 0].text(RATES[0], KNOWING_NOTHING + 0.08, "knowing nothing", fontsize=9, color=SOFT)
    figure.supxlabel("learning rate", fontsize=11)
    figure.suptitle(title)
    return figure


def draw_first_step(
    gradients: Mapping[str, Sequence[float]], depths: Sequence[int], moved: Mapping[str, Sequence[float]]
) -> Figure:
    """Gradients by block before training, and how far one step of Adam moves the output, against depth."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8))
    plot.lines(
        left,
        {name: (range(1, len(sizes) + 1), sizes) for name, sizes in gradients.items()},
        title="Post-norm's gradients are larger near the output",
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
    return figure


# ---- against lesson 01 -------------------------------------------------------------------------------------------


def lengths(ours: DataFrame, recurrent: DataFrame) -> DataFrame:
    """BLEU of each run by source length, of lesson 01's translator with attention and of both recipes."""
    import pandas as pd

    tables = []
    for frame, name in ((recurrent.assign(recipe="recurrent"), "recurrent"), (ours, "")):
        points = unnest(frame, "by_length", ["from", "to", "bleu", "exact"] if name else ["from", "to", "bleu"])
        tables.append(points[["recipe", "seed", "from", "to", "bleu"]])
    found = pd.concat(tables, ignore_index=True)
    return found.assign(words=(found["from"] + found["to"]) / 2)


def draw_lengths(by_length: DataFrame) -> Figure:
    """BLEU against source length: mean and range over the runs."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4))
    plot.lines(
        axes,
        bands(by_length, "recipe", "words", "bleu"),
        title="Better within the trained lengths, worse beyond them",
        x="words in the source",
        y="BLEU",
    )
    axes.axvspan(20.5, 50, color=FAINT, zorder=0)
    axes.text(21, 3, "longer than any training sentence", fontsize=9.5)
    axes.set_ylim(0, 104)
    return figure


# ---- further -----------------------------------------------------------------------------------------------------


def draw_activations() -> Figure:
    """ReLU and GELU, and their derivatives."""
    import matplotlib.pyplot as plt
    import torch
    from torch.nn import functional as F

    figure, panels = plt.subplots(1, 2, figsize=(10, 3.4))
    x = torch.linspace(-4, 4, 161, requires_grad=True)
    curves = {"ReLU": F.relu(x), "GELU": F.gelu(x)}
    slopes = {name: torch.autograd.grad(y.sum(), x)[0] for name, y in curves.items()}
    shown = ((curves, "GELU is a smooth ReLU", "output"), (slopes, "and so is its slope", "derivative"))
    for axes, (table, title, label) in zip(panels, shown, strict=True):
        series = {name: (x.tolist(), y.tolist()) for name, y in table.items()}
        plot.lines(axes, series, title=title, x="input", y=label)
    return figure


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
LABELED_LEFT = ("MoE", "ConvS2S, ensemble")  # their neighbors stand on the right


def draw_published() -> Figure:
    """Quality against the cost of training, as published."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 4.4))
    for axes, (title, table) in zip(panels, PUBLISHED.items(), strict=True):
        axes.set(xscale="log", xlabel="training cost (floating-point operations)", ylabel="BLEU", title=title)
        for name, (score, cost) in table.items():
            color = COLORS[1] if name.startswith("Transformer") else COLORS[3]
            axes.plot(cost, score, marker="o", color=color)
            left = name in LABELED_LEFT
            look = {"color": color, "fontsize": 9.5, "ha": "right" if left else "left"}
            axes.annotate(name, (cost, score), (-6 if left else 6, -3), textcoords="offset points", **look)
        axes.set_xlim(2e18, 1.5e22)
    return figure
