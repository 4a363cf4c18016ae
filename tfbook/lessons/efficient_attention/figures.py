"""Figures of lesson 15: tiles, two memories, two orders of a product, windows, BigBird, hashing, and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.plot.curves import label_ends
from tfbook.plot.house import BROWN, COLORS, EDGE, FAINT, GREEN, INK, KHAKI, MARKERS, RED, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


METHODS = {  # one look for each kind of attention, in all figures of the lesson
    "dense": Method(COLORS[0], "o"),  # as attention is in lessons 01, 03, and 17
    "tiled": Method(COLORS[1], "s"),
    "window": Method(COLORS[2], "^"),
    "linear": Method(GREEN, "D"),
    "dense, window": Method(BROWN, "P"),
    "BigBird": Method(COLORS[3], "X"),
    "LSH": Method(KHAKI, "v"),
}
GRAYS = ("#1f2328", "#717b86", "#b4bcc5", "#e2e6ea")  # for everything that is not a kind of attention

# ---- tiles -----------------------------------------------------------------------------------------------------------

ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "twice_the_length": (
        "Megabytes against the number of tokens on logarithmic axes: a straight line of slope two that is "
        "continued, dashed, to more than two thousand megabytes at 16,384 tokens."
    ),
    "tiles": (
        "The steep line of dense attention from before, and a flatter line for tiles that rises from three to "
        "nine megabytes at 16,384 tokens."
    ),
    "distances": (
        "Right answers against distance. The windowed model answers everything near, fades before 62 tokens, "
        "and guesses beyond. One dense and one windowed layer stay at one."
    ),
    "recall": (
        "Recall against rounds, one to eight, for three kinds of vectors: tight clusters rise from about one "
        "half to above nine tenths, no structure from about a seventh to two thirds; random keys stay below."
    ),
}


def draw_tiles(scores: Tensor, values: Tensor, tile: int) -> Figure:
    """Scores (query, key) and values (key, d), and the running state while tiles of keys pass a block of queries."""
    from tfbook.plot import Schematic

    picture = Schematic("Tiles of keys pass by; only three small things stay", gap=(44, 16))
    names = (
        "values of this tile",
        "scores of this tile",
        "running maximum $m$",
        "weights $e^{S-m}$",
        "factor $c$ for what was\ncollected so far",
        "running sum",
        "running mixture",
    )
    for row, name in enumerate(names):
        picture.text(name, (0, row + 1), align="left", size=10)
    highest = torch.full((len(scores), 1), -math.inf)
    total, mixture = torch.zeros_like(highest), torch.zeros(len(scores), values.shape[1])
    tiles: list[list[Tensor]] = []
    for s, v in zip(scores.split(tile, dim=1), values.split(tile), strict=True):
        higher = highest.maximum(s.amax(dim=1, keepdim=True))
        shrink, weights = torch.exp(highest - higher), torch.exp(s - higher)
        highest, total, mixture = higher, shrink * total + weights.sum(1, keepdim=True), shrink * mixture + weights @ v
        tiles.append([v, s, highest, weights, shrink, total, mixture])
    darkest = [float(torch.cat(row).max()) for row in zip(*tiles, strict=True)]  # one color scale per row
    darkest[3] = darkest[4] = 4.0  # weights and factors are at most 1, so they stay pale and legible
    roles = ("value", "weight", "weight", "weight", "plain", "weight", "value")
    numbers = ("{:.0f}", "{:.1f}", "{:.1f}", "{:.2f}", "{:.2f}", "{:.2f}", "{:.2f}")
    before: list[Any] = []
    for j, parts in enumerate(tiles, start=1):
        picture.text(f"tile {j}", (j, 0), weight="bold", size=10.5)
        looks = zip(parts, roles, numbers, darkest, strict=True)
        nodes = [
            picture.matrix(part, (j, row), role, cell=(46, 24), numbers=number, darkest=most)
            for row, (part, role, number, most) in enumerate(looks, start=1)
        ]
        picture.frame(nodes, pad=9)
        for row, label in ((2, ""), (5, r"$\times c$"), (6, r"$\times c$")):
            if before:
                picture.arrow(before[row], nodes[row], label, "value" if row == 6 else "weight")
        before = nodes
    last = len(scores[0]) // tile + 1
    picture.text("output", (last, 6), weight="bold", size=10.5)
    result = picture.matrix(mixture / total, (last, 7), "value", cell=(46, 24), numbers="{:.2f}")
    picture.arrow(before[6], result, "/ sum", "value")
    return picture.figure()


QKV = ("query", "key", "value")


def draw_traffic() -> Figure:
    """Traffic between the two memories: with the scores stored, and with tiles."""
    from tfbook.plot import Schematic

    picture = Schematic("Tiles keep the scores out of the slow memory", gap=(18, 56))

    def stored(name: str, columns: Any, role: str, width: int = 2, shape: str = "$n \\times d$") -> Any:
        return picture.matrix((6, width), (columns, 2), role, cell=11, shape=f"{name}\n{shape}")

    query, key = stored("$Q$", 1, "query"), stored("$K$", 2, "key")
    scores, weights = (stored(name, at, "weight", 8, "$n \\times n$") for name, at in (("scores", 3), ("weights", 5)))
    value, output = stored("$V$", 6, "value"), stored("output", 7, "value")
    product, softmax = picture.box("$QK^T$", ((1, 2), 1)), picture.box("softmax", (4, 1))
    mixture = picture.box("weights × $V$", ((6, 7), 1))
    inputs = [stored(f"${name}$", 9 + i, role) for i, (name, role) in enumerate(zip("QKV", QKV, strict=True))]
    result = stored("output", 12, "value")
    tile = picture.box("one tile: scores,\nsoftmax, mixture", ((9, 12), 1), "weight")
    up, down = ("top", "bottom"), ("bottom", "top")
    read = [(query, product), (key, product), (value, mixture), *((matrix, tile) for matrix in inputs)]
    for matrix, operation in read:
        picture.arrow(matrix, operation, sides=up)
    for operation, matrix in ((mixture, output), (tile, result)):
        picture.arrow(operation, matrix, sides=down)
    for operation, matrix, following in ((product, scores, softmax), (softmax, weights, mixture)):
        picture.arrow(operation, matrix.column(1), role="weight", sides=("right", "top"))
        picture.arrow(matrix.column(6), following, role="weight", sides=("top", "left"))
    for name, span, fast, slow in (
        ("scores stored", (1, 7), (product, softmax, mixture), (query, key, scores, weights, value, output)),
        ("in tiles", (9, 12), (tile,), (*inputs, result)),
    ):
        picture.text(name, (span, 0.25), weight="bold", size=10.5)
        picture.frame(fast, "fast memory")
        picture.frame(slow)
        picture.text("slow memory", (span, 2.8), size=9.5, color=SOFT, weight="bold")
    return picture.figure()


# ---- two orders of the same product ----------------------------------------------------------------------------------


def draw_orders(n: int = 8, d: int = 2) -> Figure:
    """(Q Kᵀ) V with its n × n matrix, above Q (Kᵀ V) with its d × d matrix."""
    from tfbook.plot import Schematic

    picture = Schematic("The same three matrices, multiplied in two orders", gap=(30, 40))
    cell = 15.0
    tall, flat, square, small = (n, d), (d, n), (n, n), (d, d)

    def matrix(size: tuple[int, int], column: int, row: int, role: str, label: str, shape: str) -> Any:
        return picture.matrix(size, (column, row), role, cell=cell, label=label, shape=shape)

    for row, name in ((0, "$(QK^T)\\,V$"), (1, "$Q\\,(K^T V)$")):
        picture.text(name, (0, row), size=13, align="left")
    query = matrix(tall, 1, 0, "query", "$Q$", "$n \\times d$")
    key = matrix(flat, 2, 0, "key", "$K^T$", "$d \\times n$")
    weights = matrix(square, 3, 0, "weight", "$QK^T$", "$n \\times n$: grows with the square")
    value = matrix(tall, 4, 0, "value", "$V$", "$n \\times d$")
    both = picture.frame([weights, value], "second")
    picture.arrow(picture.frame([query, key], "first"), both)
    picture.arrow(both, matrix(tall, 5, 0, "value", "output", "$n \\times d$"))
    key = matrix(flat, 1, 1, "key", "$K^T$", "$d \\times n$")
    value = matrix(tall, 2, 1, "value", "$V$", "$n \\times d$")
    query = matrix(tall, 3, 1, "query", "$Q$", "$n \\times d$")
    state = matrix(small, 4, 1, "parameter", "$K^T V$", "$d \\times d$: stays small")
    both = picture.frame([query, state], "second")
    picture.arrow(picture.frame([key, value], "first"), both)
    picture.arrow(both, matrix(tall, 5, 1, "value", "output", "$n \\times d$"))
    picture.outline(weights, state)
    return picture.figure()


# ---- patterns --------------------------------------------------------------------------------------------------------

INGREDIENTS = {"window": METHODS["window"].color, "global": RED, "random": "#c07a00"}


def draw_reach(window: int = 4, layers: int = 3, tokens: int = 14) -> Figure:
    """The tokens that can reach the last one through layers whose windows hold `window` tokens, itself included."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 3.0))
    color = METHODS["window"].color
    for layer in range(layers + 1):
        first = tokens - 1 - (layers - layer) * (window - 1)
        for position in range(tokens):
            seen = position >= first
            look: dict[str, Any] = {"facecolor": color if seen else "white", "edgecolor": color if seen else EDGE}
            axes.scatter(position, layer, s=110, linewidth=1.3, zorder=3, **look)
            for source in range(max(0, position - window + 1), position + 1) if layer and seen else ():
                axes.plot([source, position], [layer - 1, layer], color=color, alpha=0.45, linewidth=0.9, marker="none")
    names = ["tokens", *(f"layer {layer}" for layer in range(1, layers + 1))]
    axes.set(yticks=range(layers + 1), yticklabels=names, xticks=[tokens - 1], xticklabels=["last token"])
    title = f"{layers} layers with a window of {window} reach {layers * (window - 1)} tokens back"
    axes.set(ylim=(-0.4, layers + 0.4), title=title)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    return figure


def draw_ingredients(window: Tensor, everywhere: Tensor, random: Tensor) -> Figure:
    """Three layouts (block, block), each in its color, and their union."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import to_rgb

    figure, panels = plt.subplots(1, 4, figsize=(9, 3.1))
    parts = dict(zip(INGREDIENTS, (window, everywhere, random), strict=True))
    for axes, names in zip(panels, ([name] for name in parts), strict=False):
        _paint(axes, [(parts[names[0]], to_rgb(INGREDIENTS[names[0]]))])
        axes.set_title(names[0], color=INGREDIENTS[names[0]], loc="center", fontsize=12)
    order = ("random", "global", "window")
    _paint(panels[3], [(parts[name], to_rgb(INGREDIENTS[name])) for name in order])
    panels[3].set_title("together", loc="center", fontsize=12)
    panels[0].set_ylabel("block of queries")
    figure.supxlabel("block of keys", fontsize=10.5, y=0.08)
    return figure


def _paint(axes: Axes, layers: Sequence[tuple[Tensor, tuple[float, float, float]]]) -> None:
    """Draws the blocks that are visible in their colors, later layers on top."""
    from matplotlib.colors import to_rgb

    size = len(layers[0][0])
    image = torch.tensor(to_rgb(FAINT)).expand(size, size, 3).clone()
    for layout, color in layers:
        image[layout] = torch.tensor(color)
    axes.imshow(image.numpy(), extent=(0, size, size, 0))
    axes.set_xticks(range(size + 1), minor=True)
    axes.set_yticks(range(size + 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.grid(visible=False, which="major")
    axes.tick_params(which="minor", length=0)
    axes.set(xticks=[0.5, size - 0.5], yticks=[0.5, size - 0.5], xticklabels=[0, size - 1], yticklabels=[0, size - 1])


# ---- hashing ---------------------------------------------------------------------------------------------------------


def draw_hashing(vectors: Tensor, rotation: Tensor, buckets: Tensor, window: int = 2) -> Figure:
    """Two-dimensional vectors in their sectors, then sorted by bucket, and the keys that the second `window` reads."""
    import matplotlib.pyplot as plt

    figure, (circle, rows) = plt.subplots(1, 2, figsize=(9, 3.9), width_ratios=(1, 2.1))
    borders = rotation[:, 0] + rotation[:, 1], rotation[:, 0] - rotation[:, 1]
    for border in borders:
        x, y = (1.25 * border / border.norm()).tolist()
        circle.plot([-x, x], [-y, y], color=EDGE, linewidth=1.2, linestyle="--", marker="none")
    for direction, color in zip(torch.cat([rotation, -rotation], dim=1).T.tolist(), BUCKETS, strict=False):
        tip = {"arrowstyle": "-|>", "color": color, "linewidth": 1.6}
        circle.annotate("", [0.6 * part for part in direction], (0, 0), arrowprops=tip)
    order = buckets.argsort(stable=True)
    for i, (vector, bucket) in enumerate(zip(vectors, buckets.tolist(), strict=True)):
        x, y = (vector / vector.norm()).tolist()
        circle.plot(x, y, "o", color=BUCKETS[bucket], markersize=7)
        circle.text(1.2 * x, 1.2 * y, str(i), ha="center", va="center", fontsize=9)
        position = order.tolist().index(i)
        rows.plot([i, position], [0.89, 0.36], color=BUCKETS[bucket], linewidth=1.3, marker="none")
        for column, height in ((i, 1.0), (position, 0.25)):
            box = {"boxstyle": "square,pad=0.38", "facecolor": BUCKETS[bucket], "edgecolor": "white"}
            rows.text(column, height, f"{i}".rjust(2), ha="center", va="center", color="white", fontsize=9.5, bbox=box)
    start = window
    _span(rows, start, start + window, 0.06, "one block\nof queries")
    _span(rows, start - window, start + 2 * window, -0.2, "the keys that it reads: one window to either side")
    end = start + 2 * window
    lost = [p for p in range(end, len(order)) if buckets[order[p]] == buckets[order[start]]]
    if lost:
        _span(rows, int(lost[0]), int(lost[-1]) + 1, 0.06, "same bucket,\nnot read")
    circle.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[], yticks=[])
    circle.set_title("1. Hash: which sector?", fontsize=11)
    rows.set(xlim=(-0.7, len(vectors) - 0.3), ylim=(-0.4, 1.24), xticks=[], yticks=[])
    rows.set_title(f"2. Sort by bucket. 3. Attend in blocks of {window}", fontsize=11)
    rows.text(-0.6, 1.15, "order of the text", fontsize=9.5, color=SOFT)
    for axes in (circle, rows):
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    return figure


BUCKETS = ("#0066a1", "#9c4d00", "#00735a", "#7a2a70")  # dark enough for white numbers


def _span(axes: Axes, first: int, end: int, height: float, text: str) -> None:
    """A bracket below the positions from `first` up to but excluding `end`, with a text below it."""
    left, right = first - 0.42, end - 0.58
    axes.plot(
        [left, left, right, right],
        [height + 0.04, height, height, height + 0.04],
        color=INK,
        linewidth=1.3,
        marker="none",
    )
    axes.text((left + right) / 2, height - 0.03, text, ha="center", va="top", fontsize=9.5, color=INK)


def draw_recall(met: Mapping[str, Sequence[Any]], rounds: Sequence[int]) -> Figure:
    """Share of the top keys that hashing finds, by kind of vectors, beside the share of all pairs that meet."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.8))
    for (name, row), color, marker in zip(met.items(), GRAYS, MARKERS, strict=False):
        axes.plot(rounds, [one.top for one in row], label=name, color=color, marker=marker)
    chance = [one.pairs for one in next(iter(met.values()))]
    axes.plot(rounds, chance, color=METHODS["LSH"].color, linestyle="--", marker="none", label="random keys")
    axes.set(xticks=rounds, yticks=[0, 0.25, 0.5, 0.75, 1], yticklabels=["0", "25%", "50%", "75%", "100%"])
    axes.set(ylim=(0, 1.02), title="Hashing finds most where vectors form clusters")
    axes.set(xlabel="rounds of hashing", ylabel="recall of the 8 top keys")
    label_ends(axes)
    return figure


def draw_distances(curves: Mapping[str, tuple[Sequence[float], ...]], reach: int, guess: float) -> Figure:
    """Accuracy against distance of the fact: (distance, mean, lowest, highest) for each kind of attention.

    The lines are interrupted at `reach`, around which nothing was measured.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.2))
    for name, columns in curves.items():
        color, marker = METHODS[name]
        near = sum(x <= reach for x in columns[0])
        for part, label in ((slice(near), "_"), (slice(near, None), name)):
            xs, means, low, high = (column[part] for column in columns)
            axes.plot(xs, means, color=color, marker=marker, markersize=5, label=label)
            axes.fill_between(xs, low, high, color=color, alpha=0.18, linewidth=0)
    axes.axvline(reach, color=EDGE, linestyle="--", linewidth=1.2)
    axes.text(reach + 3, 0.6, "reach of two\nwindowed layers", fontsize=9.5, color=SOFT, va="center")
    axes.axhline(guess, color=EDGE, linestyle=":", linewidth=1.2)
    axes.text(1, guess - 0.02, "guessing", fontsize=9.5, color=SOFT, va="top")
    axes.set(ylim=(0, 1.06), yticks=[0, 0.25, 0.5, 0.75, 1], yticklabels=["0", "25%", "50%", "75%", "100%"])
    axes.set(title="A window fades before its reach, then guesses; one dense layer cures it")
    axes.set_xlim(0, max(x for columns in curves.values() for x in columns[0]) + 1)  # labels beside the lines
    axes.set(xlabel="tokens from the question back to its fact", ylabel="right answers")
    label_ends(axes)
    return figure


# ---- costs -----------------------------------------------------------------------------------------------------------


def draw_memory(lengths: Sequence[int], dense: Sequence[float], tiled: Sequence[float], goal: int) -> Figure:
    """Megabytes against length, with the dense curves extrapolated to `goal` along n²."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.9))
    axes.set(xscale="log", yscale="log")
    short = [n for n, _ in zip(lengths, dense, strict=False)]
    color, marker = METHODS["dense"]
    last, there = short[-1], dense[-1] * (goal / short[-1]) ** 2
    axes.plot(short, dense, color=color, marker=marker, label="dense, written out")
    axes.plot([last, goal], [dense[-1], there], color=color, linestyle="--", linewidth=1.4)
    axes.plot(goal, there, marker, markerfacecolor="white", markeredgecolor=color)
    axes.annotate("continued as $n^2$", (goal, there), (-6, -2), textcoords="offset points", ha="right", va="bottom")
    if tiled:
        axes.plot(lengths, tiled, color=METHODS["tiled"].color, marker=METHODS["tiled"].marker, label="tiled")
    ticks = sorted({*lengths, goal})
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    title = "Tiles need memory for n tokens, not for n × n" if tiled else "Twice the tokens, four times the memory"
    axes.set(title=title, xlabel="tokens n", ylabel="MB at the peak", xlim=(min(ticks) / 1.2, goal * 1.9))
    axes.legend(loc="upper left")
    return figure


def draw_ratios(ratios: Mapping[str, tuple[Sequence[int], Sequence[float]]], title: str) -> Figure:
    """Time relative to PyTorch's dense attention, against length."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.4))
    axes.set(xscale="log", yscale="log")
    for name, (lengths, row) in ratios.items():
        color, marker = METHODS[name]
        axes.plot(lengths, row, label=name, color=color, marker=marker, markersize=5)
    axes.axhline(1, color=METHODS["dense"].color, linewidth=1.4, linestyle="--")
    ticks = max((lengths for lengths, _ in ratios.values()), key=len)
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
    axes.minorticks_off()
    axes.set(title=title, xlabel="tokens n", ylabel="time ÷ time of dense attention")
    label_ends(axes)
    return figure
