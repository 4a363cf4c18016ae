"""Figures of lesson 02: the soft dictionary, towers of the six scores, accuracies, and curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.course.summaries import bands, unnest
from tfbook.lessons.scoring_functions.study import package_score
from tfbook.plot.attention import attention_map
from tfbook.plot.curves import lines
from tfbook.plot.house import EDGE, INK, METHODS, SOFT
from tfbook.plot.schematic import Schematic

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]


Weights = Mapping[str, Sequence[Tensor]]  # the learned numbers of each score, in the order of its formula
FORMULAS = {
    "dot": r"$q \cdot k$",
    "scaled dot": r"$q \cdot k\;/\sqrt{d}$",
    "cosine": r"$\beta\,\cos(q, k)$",
    "general": r"$qW \cdot k$",
    "additive": r"$\tanh(qW + kU + b) \cdot v$",
    "location": r"$(q\,W^{\top})_j$",
}

# ---- the soft dictionary ---------------------------------------------------------------------------------------------


def draw_soft_dictionary(names: Sequence[str], query: Tensor, records: Tensor, keys: Tensor, values: Tensor) -> Picture:
    """One row per record: its features, key, score, weight and value; below, the query and the answer."""
    scores = keys @ query
    weights = torch.softmax(scores, dim=-1)
    picture = Schematic("A soft dictionary: each row is one record, from left to right", gap=(26, 26))
    look: dict[str, Any] = {"cell": (42, 30), "numbers": "{:.0f}"}
    shapes = [" × ".join(map(str, each.shape)) for each in (records, keys, values)]
    x = picture.matrix(
        records, (0, 1), label=f"records $X$: {shapes[0]}", shape="meow    bark      kg      legs ", rows=names, **look
    )
    k = picture.matrix(keys, (1, 1), "key", label=f"keys $K$: {shapes[1]}", shape="meow    bark", **look)
    e = picture.matrix(scores[:, None], (2, 1), "weight", label="scores", shape="$Kq$", cell=(42, 30), numbers="{:.1f}")
    a = picture.matrix(
        weights[:, None], (3, 1), "weight", label="weights", shape="sum to 1", cell=(50, 30), numbers="{:.2f}"
    )
    v = picture.matrix(values, (4, 1), "value", label=f"values $V$: {shapes[2]}", shape=" kg      legs", **look)
    look["numbers"] = "{:.1f}"
    q = picture.matrix(query[None], (1, 2), "query", shape="query $q$", **look)
    y = picture.matrix((weights @ values)[None], (4, 2), "value", shape="answer: weights $\\cdot\\, V$", **look)
    picture.arrow(x, k, "$W_K$", "key")
    picture.arrow(x, v, "$W_V$", "value", sides=("top", "top"))
    picture.arrow(k, e, "· $q$", "weight")
    picture.arrow(e, a, "softmax", "weight")
    picture.arrow(a, v, "mix", "weight")
    picture.arrow(q, k, "", "query")
    picture.arrow(v, y, "", "value")
    return picture.figure(), (
        "Three records, cat, dog, and parrot, one per row. From left to right: the record, its key, its score "
        "(0.9, 0.1, 1.0), its weight (0.39, 0.18, 0.43), and its value. The answer below is 5.5 kg and 3.1 legs."
    )


# ---- where the query meets the key -----------------------------------------------------------------------------------


class _Tower:
    """One score from top to bottom: query and keys, their maps, the node where they meet, and the scores."""

    def __init__(self, picture: Schematic, place: int, names: Sequence[str], query: Tensor, keys: Tensor):
        self.picture, self.names = picture, names
        self.left, self.top = 3 * (place % 3), 7 * (place // 3)
        self.nodes: list[Any] = []
        self.query = self.numbers(query[None], 0, 0, "query", label="$q$")
        self.keys = self.numbers(keys, 1, 0, "key", label="$K$")

    def keep(self, node: Any) -> Any:
        self.nodes.append(node)
        return node

    def numbers(self, values: Tensor, column: float, row: float, role: str, **look: Any) -> Any:
        look = {"cell": (36, 22), "numbers": "{:.1f}"} | look
        return self.keep(self.picture.matrix(values, (self.left + column, self.top + row), role, **look))

    def box(self, text: str, column: float, row: float, role: str = "plain") -> Any:
        return self.keep(self.picture.box(text, (self.left + column, self.top + row), role))

    def down(self, start: Any, end: Any, role: str) -> Any:
        """Draws an arrow down and returns its end."""
        self.picture.arrow(start, end, "", role)
        return end

    def meet(self, symbol: str, query: Any, keys: Any) -> Any:
        """A circle below and between the two, into which both flow."""
        circle = self.keep(self.picture.circle(symbol, (self.left + 0.5, self.top + 2)))
        self.picture.arrow(query, circle, "", "query", sides=("bottom", "left"))
        self.picture.arrow(keys, circle, "", "key", sides=("bottom", "right"))
        return circle

    def end(self, last: Any, scores: Tensor, name: str, *, column: float = 0.5, rows: Sequence[str] = ()) -> None:
        """The scores, the largest one outlined, and a frame around the whole tower."""
        found = self.numbers(scores[:, None], column, 5, "weight", rows=rows or self.names, cell=(42, 22))
        self.picture.arrow(last, found, "", "weight", sides=("bottom", "top"))
        self.picture.outline(found.cell(int(scores.argmax()), 0))
        self.picture.frame(self.nodes, f"{name}:  {FORMULAS[name]}")


def draw_towers(
    names: Sequence[str], query: Tensor, keys: Tensor, weights: Weights, scores: Mapping[str, Tensor]
) -> Picture:
    """Six towers, one per score: where the query meets the keys, what is learned (yellow), and the scores (key)."""
    picture = Schematic("In five of six scores, the query meets the key", gap=(18, 14))
    dot, scaled, cosine, general, additive, location = (
        _Tower(picture, place, names, query, keys) for place in range(len(FORMULAS))
    )
    dot.end(dot.meet("·", dot.query, dot.keys), scores["dot"], "dot")

    root = scaled.box(rf"$\div\sqrt{{{len(query)}}}$", 0.5, 3)
    scaled.end(
        scaled.down(scaled.meet("·", scaled.query, scaled.keys), root, "weight"), scores["scaled dot"], "scaled dot"
    )
    q = cosine.down(cosine.query, cosine.box("÷ length", 0, 1), "query")
    k = cosine.down(cosine.keys, cosine.box("÷ length", 1, 1), "key")
    sharpness = cosine.box(rf"$\times\,\beta = {float(weights['cosine'][0]):g}$", 0.5, 3, "parameter")
    cosine.end(cosine.down(cosine.meet("·", q, k), sharpness, "weight"), scores["cosine"], "cosine")

    W = general.numbers(weights["general"][0], 0, 1, "parameter", label="$W$", beside="left")
    met = general.meet("·", general.down(general.query, W, "query"), general.keys)
    general.end(met, scores["general"], "general")

    W, U, _, v = weights["additive"]
    q = additive.down(additive.query, additive.numbers(W, 0, 1, "parameter", label="$W$", beside="left"), "query")
    k = additive.down(additive.keys, additive.numbers(U, 1, 1, "parameter", label="$U$", beside="right"), "key")
    bend = additive.down(additive.meet("+", q, k), additive.box("tanh", 0.5, 3), "weight")
    last = additive.numbers(v[None], 0.5, 4, "parameter", label="$v$", beside="left")
    additive.end(additive.down(bend, last, "weight"), scores["additive"], "additive")

    W = location.numbers(weights["location"][0], 0, 1, "parameter", label="$W$", beside="left")
    location.keep(picture.text("never\nread", (location.left + 1, location.top + 1), color=SOFT))
    places = [f"place {number}" for number in range(1, len(keys) + 1)]
    location.end(location.down(location.query, W, "query"), scores["location"], "location", column=0, rows=places)
    return picture.figure(), (
        "Six small diagrams. Dot: query and keys meet in a product. Scaled dot also divides by the root of 2. "
        "Cosine divides both by their lengths first, and multiplies by beta at the end. General multiplies the "
        "query by W first. Additive maps both, adds them, applies tanh, and multiplies by v. Location multiplies "
        "the query by W and never reads the keys. The parrot wins under dot and scaled dot, the cat under cosine, "
        "general, and additive, and place 2 under location."
    )


def draw_meeting(names: Sequence[str], query: Tensor, keys: Tensor, learned: Mapping[str, Sequence[Tensor]]) -> Picture:
    """The six scores of one query and a few keys, as six towers with the learned numbers of each."""
    inputs = query[None, None], keys[None]
    scores = {name: package_score(name)(*inputs, *weights)[0, 0].detach() for name, weights in learned.items()}
    return draw_towers(names, query, keys, learned, scores)


# ---- accuracies ------------------------------------------------------------------------------------------------------


def draw_accuracies(frame: DataFrame, relations: Sequence[str], guess: float) -> Picture:
    """One panel per relation, one bar per score: mean accuracy, a dot per seed, and a line for chance."""
    import matplotlib.pyplot as plt

    names = [name for name in METHODS if name in set(frame["score"])]
    figure, panels = plt.subplots(1, len(relations), figsize=(11, 3.3), sharex=True, sharey=True, squeeze=False)
    panels = panels[0]
    for axes, relation in zip(panels, relations, strict=True):
        shares = frame[frame["relation"] == relation].groupby("score")["accuracy"]
        for place, name in enumerate(names):
            axes.barh(place, shares.mean()[name], color=METHODS[name].color, height=0.7)
            seeds = shares.get_group(name)
            axes.plot(seeds, [place] * len(seeds), "o", color=INK, markersize=3)
        axes.axvline(guess, color=EDGE, linestyle="--", linewidth=1.2)
        axes.set(title=relation, xlim=(0, 1.02), xticks=[0, 0.5, 1], xticklabels=["0", "50%", "100%"])
        axes.grid(False, axis="y")
    figure.suptitle("No score wins everywhere", x=0.01, ha="left", fontweight="bold")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.supxlabel("accuracy (dashed: guessing; dots: three seeds)", fontsize=10.5)
    return figure, (
        "Five panels, one per relation, with a bar for each of six scores. Same: all but location are near 100%. "
        "Stretched: only cosine is. Turned: only general and additive. Squared: additive reaches about 70%, the "
        "others less than 20%. Place: only location."
    )


# ---- weights, training and costs -------------------------------------------------------------------------------------


def draw_failure(
    share: Sequence[float],
    answers: Mapping[str, Sequence[float]],
    asking: Mapping[str, Sequence[float]],
    stored: Tensor,
) -> Picture:
    """Answers of lookups as the query slides from one key to another, and as gradient descent improves it."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    left.plot([0, 1], stored, "D", color=INK, markersize=9, zorder=5)
    curves = {name: (share, ys) for name, ys in answers.items()}
    lines(left, curves, title="A hard lookup is flat, with one jump", x="share of bark in the query", y="answer (kg)")
    curves = {name: (range(len(ys)), ys) for name, ys in asking.items()}
    lines(right, curves, title="… so its query never improves", x="step of gradient descent", y="answer (kg)")
    right.axhline(float(stored[-1]), color=EDGE, linestyle="--")
    return figure, (
        "Left: the answer against the share of bark in the query. The hard lookup is a step at one half, the soft "
        "one a smooth curve; two diamonds mark the queries that a Python dictionary can answer. Right: during "
        "gradient descent the soft answer climbs from 4 to nearly 20 kg, and the hard one stays at 4."
    )


def draw_temperature(temperatures: Tensor, weights: Mapping[str, Tensor]) -> Picture:
    """The weight of each key against the temperature, which falls to the right."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 3.5))
    axes.set_xscale("log")
    axes.invert_xaxis()
    curves = {name: (temperatures.tolist(), each.tolist()) for name, each in weights.items()}
    title = "A lookup hardens as it cools, and the order never changes"
    lines(axes, curves, title=title, x="temperature T (colder to the right)", y="weight")
    return figure, (
        "Weights of three keys against falling temperature. At 10 they are nearly equal; below 0.1 the parrot "
        "goes to 1 and the others to 0. The curves never cross."
    )


def draw_recall(memory: Any, maps: Mapping[str, Tensor]) -> Picture:
    """Maps of the weights (memory, pair), by title; a ring marks the right pair."""
    import matplotlib.pyplot as plt

    meant = (memory.values == memory.answer[:, None]).int().argmax(dim=1)
    rings = {(pair, row) for row, pair in enumerate(meant.tolist())}
    figure, panels = plt.subplots(1, len(maps), figsize=(12, 3.8))
    for axes, (title, weights) in zip(panels, maps.items(), strict=True):
        rows, pairs = ([str(i + 1) for i in range(size)] for size in weights.shape)
        attention_map(axes, weights, pairs, rows, title=title, gold=rings, bar=axes is panels[-1])
        axes.set(xlabel="pair", ylabel="memory" if axes is panels[0] else "")
        axes.set_xticks([0.5, 7.5, 15.5], ["1", "8", "16"], rotation=0)
        axes.set_yticks([0.5, 5.5, 11.5], ["1", "6", "12"])
    return figure, (
        "Three maps of attention weights, twelve memories by sixteen pairs, with a ring on the right pair. Before "
        "training the weights are scattered. After training the general score is bright in the rings; the "
        "location score is nearly even."
    )


def draw_widths(plain: Sequence[Any], scaled: Sequence[Any], keys: int) -> Picture:
    """Spread of the scores, effective number of keys, and gradient of the softmax against the width."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.6))
    widths = [row.width for row in plain]
    roots = [math.sqrt(width) for width in widths]
    panels[0].plot(widths, [1.6 * root for root in roots], "--", color=EDGE, marker="none", linewidth=1.5, label="_√d")
    panels[0].text(widths[len(widths) // 2], 2.2 * roots[len(widths) // 2], "slope of √d", color=SOFT, ha="right")
    panels[0].set(yscale="log", ylim=(0.6, 80))
    quantities: list[tuple[str, str, list[float], Callable[[Any], float]]] = [
        ("Scores grow with √d", "standard deviation of a score", [1, 2, 4, 8, 16, 32], lambda row: row.variance**0.5),
        (
            "Unscaled, the softmax sees one key",
            "effective number of keys",
            [1, 8, 16, 24, keys],
            lambda row: row.looked_at,
        ),
        ("Unscaled, the gradient fades", "median norm of ∂α/∂e", [0, 0.1, 0.2, 0.3, 0.4], lambda row: row.gradient),
    ]
    for axes, (title, y, ticks, quantity) in zip(panels, quantities, strict=True):
        axes.set_xscale("log")
        curves = {name: (widths, [*map(quantity, rows)]) for name, rows in (("dot", plain), ("scaled dot", scaled))}
        if axes is not panels[0]:
            axes.set_ylim(0, 1.06 * ticks[-1])
        lines(axes, curves, title=title, x="width d", y=y)
        axes.set_xticks(widths, widths)
        axes.set_yticks(ticks, ticks)
        axes.minorticks_off()
    return figure, (
        "Three panels against the width d from 4 to 1024, dot and scaled dot. The standard deviation of dot rises "
        "from 2 to 32, parallel to a dashed line of slope root d; scaled dot stays at 1. The effective number of "
        "keys falls from 10 to 1 for dot and stays near 20 for scaled dot. The median norm of the gradient "
        "falls from 0.30 to 0 for dot and stays near 0.24 for scaled dot, so dot has more gradient at widths 4 and 16."
    )


def draw_collapse(frame: DataFrame, width: int, equal: Mapping[str, float]) -> Picture:
    """Number of words that the weights look at during training, and weight on right words; bands span the seeds.

    Dashed: the number that `equal` weights look at.
    """
    import matplotlib.pyplot as plt

    points = unnest(frame[frame["width"] == width], "curve", ["step", "words", "right", "end"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8))
    parts = [
        (left, "words", "Unscaled, it picks one word within 15 steps", "words looked at (effective)"),
        (right, "right", "… and mostly the wrong one", "weight on the right words"),
    ]
    for axes, what, title, y in parts:
        lines(axes, bands(points, "score", "step", what), title=title, x="step of training", y=y)
        axes.axhline(equal[what], color=EDGE, linestyle="--", linewidth=1.2, zorder=0)
    left.set_ylim(bottom=0)
    right.set(ylim=(0, 1), yticks=[0, 0.25, 0.5, 0.75, 1], yticklabels=["0", "25%", "50%", "75%", "100%"])
    return figure, (
        "Left: the effective number of words looked at during 400 steps. The unscaled general score falls from 8 "
        "to 1 within 15 steps and stays there; the scaled one falls slowly from 9 to 1.6. Right: the share of "
        "weight on right words. Scaled, it climbs to about 80%; unscaled, it ends at about 35%, with a wide band "
        "over seeds."
    )


def draw_early_maps(frame: DataFrame, width: int, steps: Sequence[int], *, seed: int = 1) -> Picture:
    """Weights for one sentence: a row of maps per score, a column per step, rings on the true links."""
    import matplotlib.pyplot as plt

    runs = frame[(frame["width"] == width) & (frame["seed"] == seed)].set_index("score")["example"]
    figure, panels = plt.subplots(len(runs), len(steps), figsize=(11, 7), sharex=True, sharey=True, squeeze=False)
    for row, (name, found) in zip(panels, runs.items(), strict=True):
        rings = {(source, target) for source, target in found["links"]}
        for axes, step in zip(row, steps, strict=True):
            title = f"{name}: step {step}" if step else f"{name}: before training"
            weights = torch.tensor(found["maps"][str(step)])
            attention_map(axes, weights, found["source"], found["target"], title=title, gold=rings, bar=False)
            axes.set(xlabel="", ylabel="")
    return figure, (
        "Six attention maps: general above, general over root d below; before training, after 15, and after 400 "
        "steps. Before training they are nearly even. After 15 steps every row of the unscaled map has all its "
        "weight on the end mark, while the scaled map is spread out. After 400 steps each row of the unscaled map "
        "has picked one word, in half of the rows a wrong one; the scaled map has more weight on right words, though "
        "not in every row."
    )


def draw_costs(by_length: Mapping[int, Mapping[str, Any]], by_width: Mapping[int, Mapping[str, Any]]) -> Picture:
    """Time against length, and memory kept for the backward pass against length and against width."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.9))
    shown = ("additive", "general", "cosine", "dot")
    parts = [
        (by_length, "Time grows with length", "queries and keys (width 64)", "time (ms)", lambda c: 1000 * c.seconds),
        (by_length, "Memory grows with length", "queries and keys (width 64)", "kept (MB)", lambda c: c.kept / 2**20),
        (by_width, "… and with width", "width (64 queries and keys)", "kept (MB)", lambda c: c.kept / 2**20),
    ]
    for axes, (costs, title, x, y, quantity) in zip(panels, parts, strict=True):
        axes.set(xscale="log", yscale="log")
        curves = {name: ([*costs], [quantity(found[name]) for found in costs.values()]) for name in shown}
        lines(axes, curves, title=title, x=x, y=y)
        axes.set_xticks([*costs], [*costs])
        axes.minorticks_off()
    return figure, (
        "Time and kept memory of four scores on logarithmic axes, against length and against width. The additive "
        "score is the highest everywhere, and far above the others at larger sizes."
    )


def draw_growth(frame: DataFrame, lengths: Sequence[int], widths: Sequence[int]) -> Picture:
    """Accuracy against the length of a memory and the width of its keys; bands span the seeds.

    Location, which is at chance, and scaled dot, which equals dot, are left out.
    """
    import matplotlib.pyplot as plt

    shown = frame[frame["score"].isin(["additive", "general", "dot", "cosine"])]
    figure, panels = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
    parts = [
        ("{} pairs", lengths, "A longer memory is harder", "pairs in the memory (width 16)"),
        ("width {}", widths, "A wider key is easier", "width of query and key (16 pairs)"),
    ]
    for axes, (unit, sizes, title, x) in zip(panels, parts, strict=True):
        columns = {unit.format(size): size for size in sizes}
        points = shown.rename(columns=columns).melt("score", sizes, var_name="size", value_name="accuracy")
        axes.set(xscale="log", ylim=(0.3, 1.2))
        lines(axes, bands(points, "score", "size", "accuracy"), title=title, x=x, y="accuracy")
        axes.set_xticks(sizes, sizes)
        axes.set_yticks([0.4, 0.6, 0.8, 1.0])
        axes.minorticks_off()
    return figure, (
        "Two panels of accuracy for four scores, mean and range of three seeds. Left: from 4 to 64 pairs it falls "
        "slowly, and least for cosine. Right: from width 4 to 32 it rises to 100% for all four."
    )
