"""Pictures of lesson 09, each with its description: the question, the model, counting, training, what was learned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbook.plot.house import COLORS, EDGE, INK, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.plot import Schematic
    from tfbook.plot.schematic.nodes import Item

    Picture = tuple[Figure, str]  # and its alt text

CHIP = 62  # pixels of a token

# ---- the question and the model ------------------------------------------------------------------------------------


def draw_questions(words: Sequence[str], shares: Sequence[float]) -> Picture:
    """A row for each question that a text asks: what is read, the next word with its probability, and what it costs."""
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
    """The whole model from the bottom to the top, with shapes; `sizes` are d_model, heads, d_ff and layers."""
    from tfbook.plot import Schematic

    (d_model, heads, d_ff, layers), n = sizes, len(words) - 1
    picture = Schematic("A GPT, from words to next words", gap=(26, 18))
    up, thick = ("top", "bottom"), {"role": "stream", "thickness": 5}
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
    """A layer with its norm beside the stream, and the sum to which it is added."""
    layer = picture.box(text, (1, row), role, note=note, width=190)
    norm = picture.box("norm", (1, row + 1), width=70)
    fork, add = picture.point((2, row + 1)), picture.circle("+", (2, row))
    picture.arrow(fork, norm, sides=("left", "right"))
    picture.arrow(norm, layer, sides=("top", "bottom"))
    picture.arrow(layer, add)
    return layer, norm, add


# ---- counting and training -----------------------------------------------------------------------------------------


def draw_counting(losses: Sequence[float], unseen: Mapping[int, float], bound: float) -> Picture:
    """Loss of counting against how many words it looks back; by length, the share of held-out runs that are new."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
    back = range(len(losses))
    left.plot(back, losses)
    left.axhline(bound, color=EDGE, linestyle="--", linewidth=1.2)
    left.text(0, bound - 0.08, "a perfect model needs at most this", va="top", color=SOFT, fontsize=10)
    left.set(title="Each further word helps less", xlabel="words looked back", ylabel="loss (nats per word)")
    left.set(xticks=list(back), ylim=(-0.2, 1.08 * losses[0]))
    right.plot(list(unseen), [100 * share for share in unseen.values()], color=COLORS[1], marker="s")
    right.set(title="Long contexts are nearly always new", xlabel="words in a row (logarithmic)", xscale="log")
    right.set(ylabel="new in held-out stories (%)", ylim=(-3, 103))
    right.set_xticks(list(unseen), [str(n) for n in unseen])
    right.minorticks_off()
    shares = ", ".join(f"{n} words {share:.0%}" for n, share in unseen.items())
    alt = (
        f"Left: the loss falls from {losses[0]:.1f} to {losses[-1]:.2f} as counting looks back up to {len(losses) - 1} "
        f"words; a perfect model needs at most {bound:.2f}. Right: runs of words that are new: {shares}."
    )
    return figure, alt


def draw_training(losses: Sequence[float], levels: Mapping[str, float], shown: Sequence[int]) -> Picture:
    """The loss of each step, steps logarithmic: all of it, and the last nat. Dots show where samples were taken.

    Of the `levels`, from the highest, the first belongs to the whole and up to two more to the last nat.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(11, 4))
    smooth = [float(np.mean(losses[max(0, i - i // 20) : i + 1])) for i in range(len(losses))]
    steps = np.arange(1, len(losses) + 1)
    at = [step for step in shown if step < len(losses)] + [len(losses) - 1]
    last = len(losses) // 20  # the second panel begins here
    for axes, begin in zip(panels, (1, max(1, last)), strict=True):
        axes.plot(steps, smooth, color=COLORS[0], marker="none")
        axes.plot(steps[at], [smooth[step] for step in at], color=COLORS[0], linestyle="none", marker="o", markersize=8)
        axes.set(xscale="log", xlim=(0.9 * begin, 1.15 * len(losses)), xlabel="step (logarithmic)")
        ticks = [tick for tick in (1, 3, 10, 30, 100, 300, 1000) if begin <= tick <= len(losses)]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    left, right = panels
    left.set(title="All of it", ylabel="loss (nats per word)", ylim=(0, 7.2))
    right.set(title="The last nat", ylim=(0.35, 1.6))
    for (name, height), (axes, above) in zip(
        levels.items(), ((left, -0.12), (right, 0.02), (right, -0.02)), strict=False
    ):  # where the curve is not
        axes.axhline(height, color=INK, linestyle="--", linewidth=1.4)
        place = {"x": len(losses), "ha": "right", "va": "bottom" if above > 0 else "top"}
        axes.text(y=height + above, s=name, color=SOFT, fontsize=10, **place)
    names = ", ".join(f"{name} at {height:.2f}" for name, height in levels.items())
    return figure, f"The loss falls from {losses[0]:.1f} steeply at first and slowly later; dashed lines: {names}."


# ---- what was learned ----------------------------------------------------------------------------------------------

KIND_LOOKS = {  # color and line
    "pronouns": (COLORS[3], "-"),
    "places": (COLORS[2], "-."),
    "things": (COLORS[1], "-"),
    "names": (COLORS[0], "-"),
}


FLAT = 0.15  # a probability that changes less does not rise


def draw_growth(frame: DataFrame, first_loss: float, optimizer: str = "Muon") -> Picture:
    """The probability of the right word of each kind in each run, the first one enlarged and below its loss.

    `first_loss` is that before the first step. A dashed line marks where nine tenths of the loss's drop are done.
    """
    import matplotlib.pyplot as plt

    chosen = frame[frame["optimizer"] == optimizer]
    runs = [list(curve) for curve in chosen["curve"]]
    same = len(set(chosen["lr"])) == 1
    titles = [f"Run {i}" if same else f"Learning rate {lr:g}" for i, lr in enumerate(chosen["lr"], 1)]
    figure = plt.figure(figsize=(11, 6))
    large, small = figure.add_gridspec(1, 2, width_ratios=(1.8, 1))
    above, below = large.subgridspec(2, 1, height_ratios=(1, 2.6))
    loss = figure.add_subplot(above)
    others = [figure.add_subplot(place) for place in small.subgridspec(max(1, len(runs) - 1), 1)]
    panels = [figure.add_subplot(below), *others]
    loss.plot(*zip(*((point["step"], point["loss"]) for point in runs[0]), strict=True), color=INK, marker="none")
    loss.set(title=f"{titles[0]} (before training, the loss is {first_loss:.1f})", ylabel="loss (nats)", ylim=(0, None))
    for axes, curve in zip(panels, runs, strict=False):
        for kind, (color, style) in KIND_LOOKS.items():
            steps, values = zip(*((point["step"], point[kind]) for point in curve), strict=True)
            axes.plot(steps, values, color=color, linestyle=style, marker="none", linewidth=2.2, label=kind)
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
        axes.set_xscale("log")
        ticks = [tick for tick in (30, 100, 300, 1000) if curve[0]["step"] <= tick <= curve[-1]["step"]]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    loss.tick_params(labelbottom=False)
    panels[0].set(
        ylabel="probability of the right word", yticks=(0, 0.2, 0.4, 0.6, 0.8, 1), xlabel="step (logarithmic)"
    )
    others[-1].set_xlabel("step (logarithmic)")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, handlelength=2.4)
    halves = "; ".join(
        f"run {number}: " + ", ".join(f"{kind} {_passes(curve, kind)}" for kind in KIND_LOOKS)
        for number, curve in enumerate(runs, 1)
    )
    alt = (
        "In each run the loss drops most of its way first. The probabilities of the right words rise later, if at all: "
        f"they are halfway between their lowest and highest value at these steps: {halves}."
    )
    return figure, alt


def _passes(curve: Sequence[Mapping[str, float]], kind: str) -> str:
    """The step at which a kind is halfway between its lowest and its highest value, if these are far apart."""
    values = [point[kind] for point in curve]
    if max(values) - min(values) < FLAT:
        return "never"
    middle = (min(values) + max(values)) / 2
    return f"{next(point['step'] for point in curve if point[kind] >= middle):g}"


def draw_judged(rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """Shares of stories that are right in each respect, a group of bars for each respect."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 3.9))
    respects = list(next(iter(rows.values())))
    width = 0.8 / len(rows)
    for number, ((name, shares), color) in enumerate(zip(rows.items(), (COLORS[3], *COLORS[:3]), strict=False)):
        places = np.arange(len(respects)) + (number - (len(rows) - 1) / 2) * width
        heights = [100 * shares[respect] for respect in respects]
        axes.bar(places, heights, 0.92 * width, color=color, label=name)
        for x, height in zip(places, heights, strict=True):
            axes.text(x, height + 1.5, f"{round(height, 1):g}", ha="center", fontsize=9, color=color)
    titles = {"sentences": "sentences that\nthe world can say", "all": "stories right in\nevery respect"}
    axes.set_xticks(
        range(len(respects)), [titles.get(each, f"stories with no\nwrong {each[:-1]}") for each in respects]
    )
    axes.set(ylabel="%", ylim=(0, 112), title="Who keeps the facts of a story?")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(rows), frameon=False)
    said = "; ".join(f"{name}: " + ", ".join(f"{k} {v:.0%}" for k, v in row.items()) for name, row in rows.items())
    return figure, f"Shares of sentences and stories that are right. {said}."


SAID = 0.15  # a weight that is written


def draw_looks(
    words: Sequence[str], steps: Mapping[str, tuple[int, Sequence[float]]], *, per_line: int = 14
) -> Picture:
    """A text in lines, once for each step: a word that reads, outlined, and every word shaded by its weight.

    Large weights are written beside their words.
    """
    import matplotlib.pyplot as plt

    rows = math.ceil(len(words) / per_line)
    figure, panels = plt.subplots(len(steps), 1, figsize=(11, (0.34 * rows + 0.5) * len(steps)))
    for axes, (title, (reader, weights)) in zip(np.atleast_1d(panels), steps.items(), strict=True):
        for number, (word, weight) in enumerate(zip(words, weights, strict=True)):
            fill, ink = ROLES["weight"].shade(float(weight))
            edge = ROLES["query"].edge if number == reader else "none"
            y, x = divmod(number, per_line)
            said = f"{word} {weight:.2f}" if weight >= SAID else word
            box = {"boxstyle": "round,pad=0.25", "facecolor": fill, "edgecolor": edge, "linewidth": 2.2}
            axes.text(x, -y, said, ha="center", va="center", color=ink, fontsize=11, bbox=box)
        axes.set(xlim=(-0.6, per_line - 0.4), ylim=(0.6 - rows, 0.6))
        axes.set_title(title, fontsize=12)
        axes.axis("off")
    found = []
    for title, (reader, weights) in steps.items():
        most = int(np.argmax(weights))
        found.append(f"{title}: “{words[reader]}” looks most at “{' '.join(words[max(0, most - 1) : most + 1])}”")
    return figure, f"A story whose words are shaded by attention weights. {'; '.join(found)}."
