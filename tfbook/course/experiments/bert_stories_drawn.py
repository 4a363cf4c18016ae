"""Pictures of lesson 08, each with its description: masking, the input, heads, filled blanks, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbook.plot.house import COLORS, EDGE, MARKERS, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]  # and its alt text

CHIP = 60  # pixels of a token

# ---- schematics ------------------------------------------------------------------------------------------------------


def draw_leak(words: Sequence[str]) -> Picture:
    """Words in plain sight and one block that looks both ways: the vector that has to name the next word reads it."""
    from tfbook.plot import Schematic

    picture = Schematic("Looking both ways, a model reads the word that it should predict", gap=(64, 40))
    for height, name in enumerate(("input", "after block 1")):
        picture.text(name, (0, -height), color=SOFT, align="right")
    roles = ["value" if word == words[1] else "stream" for word in words]
    read = [
        picture.box(text, (1 + column, 0), role, width=84)
        for column, (text, role) in enumerate(zip(words, roles, strict=True))
    ]
    vectors = [picture.box("vector", (1 + column, -1), "stream", width=84) for column in range(len(words))]
    up, path = ("top", "bottom"), {"role": "value", "thickness": 3.5}
    picture.arrow(read[1], vectors[0], "block 1 reads", sides=up, label_side="top", **path)
    asked = picture.box(f"Which word comes next? “{words[1]}”", (1, -2), "value")
    picture.arrow(vectors[0], asked, sides=up, **path)
    alt = f"The vector above “{words[0]}” has to name the next word, “{words[1]}”, which it has read in block 1."
    return picture.figure(), alt


def draw_masking(rate: float, mask: float, random: float) -> Picture:
    """What happens to 100 words: how many are selected, and what becomes of these."""
    from tfbook.plot import Schematic

    selected = 100 * rate
    picture = Schematic("What happens to 100 words", gap=(48, 16))
    words = picture.box("100 words", (0, 2), "stream", width=100)
    left = picture.box(f"{100 - selected:g} are not selected", (1, 3.4), "stream", width=160, note="read, no loss")
    chosen = picture.box(f"{selected:g} are selected", (1, 1), "query", width=160)
    shares = {
        "become [MASK]": (mask, "kite → [MASK]"),
        "become another word": (random, "kite → soup"),
        "stay as they are": (1 - mask - random, "kite → kite"),
    }
    fates = [
        picture.box(f"{selected * share:g} {what}", (2, row), "key", width=210, note=f"{share:.0%}: {example}")
        for row, (what, (share, example)) in enumerate(shares.items())
    ]
    picture.arrow(words, chosen, f"{rate:.0%}", "query", sides=("right", "left"))
    picture.arrow(words, left, sides=("right", "left"))
    for fate in fates:
        picture.arrow(chosen, fate, role="key", sides=("right", "left"))
    picture.brace(fates, "each time, the model\nis asked for kite")
    alt = f"Of 100 words {selected:g} are selected: " + ", ".join(
        f"{selected * share:g} {what}" for what, (share, _) in shares.items()
    )
    return picture.figure(), f"{alt}. All of these count in the loss; the other {100 - selected:g} do not."


def draw_input(tokens: Sequence[str], segments: Sequence[int], d_model: int) -> Picture:
    """Three rows of embeddings, one column per token, that are added up."""
    from tfbook.plot import Schematic

    picture = Schematic("The input of BERT: a sum of three embeddings", gap=(18, 16))
    n = len(tokens)
    rows = {
        "token": (tokens, "value"),
        "segment": (["AB"[segment] for segment in segments], "key"),
        "position": ([str(place) for place in range(n)], "query"),
    }
    chips = []
    for row, (name, (words, role)) in enumerate(rows.items()):
        picture.text(name, (0, 2 * row), color=SOFT, align="right")
        chips.append(picture.tokens(words, (1, 2 * row), role, width=CHIP))
        if row:
            picture.text("+", (1, 2 * row - 1), size=14)
    total = picture.tokens(["x"] * n, (1, 6), "stream", width=CHIP)
    picture.text("sum", (0, 6), color=SOFT, align="right")
    picture.text("=", (1, 5), size=14)
    picture.brace([total], f"{n} vectors of {d_model} numbers each", "bottom")
    alt = f"{n} tokens, {' '.join(tokens)}. Each is the sum of a token, a segment and a position embedding."
    return picture.figure(), alt


def draw_heads(tokens: Sequence[str]) -> Picture:
    """One body, and above it the heads of four tasks, each reading its positions."""
    from tfbook.plot import Schematic

    picture = Schematic("One body, four heads", gap=(22, 30))
    read = picture.tokens(tokens, ((0, 3), 2), "stream", width=CHIP)
    body = picture.box("BERT: embeddings and blocks, pretrained once", ((0, 3), 1), "parameter")
    picture.arrow(read, body, sides=("top", "bottom"))
    heads = {
        "masked words": ("vector at [MASK]", "scores of all words", "value"),
        "label of a text": ("vector at [CLS]", "happy or sad?", "query"),
        "label of each token": ("vectors of all", "name? thing? place?", "key"),
        "span": ("vectors of all", "start? end?", "weight"),
    }
    for column, (name, (source, answer, role)) in enumerate(heads.items()):
        head = picture.box(name, (column, 0), role, note=f"reads the {source}", width=182)
        out = picture.text(answer, (column, -1))
        picture.arrow(picture.point((column, 0.8)), head, role=role, sides=("top", "bottom"), thickness=2)
        picture.arrow(head, out, sides=("top", "bottom"))
    alt = "; ".join(f"{name} reads {source} and answers: {answer}" for name, (source, answer, _) in heads.items())
    return picture.figure(), f"Four heads on one body. {alt}."


# ---- results ---------------------------------------------------------------------------------------------------------


def draw_filled(rows: Mapping[str, Mapping[str, float]], counts: Mapping[str, int]) -> Picture:
    """Shares of blanks filled correctly, a group of bars for each kind, of which there are `counts`."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 3.9))
    kinds = list(next(iter(rows.values())))
    width = 0.84 / len(rows)
    for number, ((name, shares), color) in enumerate(zip(rows.items(), (*COLORS[::-1],), strict=False)):
        places = np.arange(len(kinds)) + (number - (len(rows) - 1) / 2) * width
        heights = [100 * shares[kind] for kind in kinds]
        axes.bar(places, heights, 0.92 * width, color=color, label=name)
        for x, height in zip(places, heights, strict=True):
            axes.text(x, height + 1.5, f"{height:.0f}", ha="center", fontsize=9, color=color)
    number_of = {"all": sum(counts.values()), **counts}
    axes.set_xticks(
        range(len(kinds)), [f"{'all blanks' if kind == 'all' else kind}\n({number_of[kind]})" for kind in kinds]
    )
    axes.set(ylabel="filled with the right word (%)", ylim=(0, 108))
    axes.set_title("Who fills in what the story determines?")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=len(rows), frameon=False)
    said = "; ".join(f"{name}: " + ", ".join(f"{k} {v:.0%}" for k, v in row.items()) for name, row in rows.items())
    return figure, f"Shares of blanks filled correctly. {said}."


def draw_asked(frame: DataFrame, level: float) -> Picture:
    """Blanks filled correctly during training, by what a run masks, a line per run: all of them, names, and things.

    `level` is the share of all blanks that a simple guesser gets.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.9), sharey=True)
    for axes, (kind, title) in zip(panels, (("all", "all blanks"), ("names",) * 2, ("things",) * 2), strict=True):
        for (name, part), color, marker in zip(frame.groupby("masked", sort=False), COLORS, MARKERS, strict=False):
            for number, curve in enumerate(part["curve"]):
                steps, shares = zip(*((point["step"], 100 * point[kind]) for point in curve), strict=True)
                axes.plot(steps, shares, color=color, marker=marker, linewidth=1.8, label="" if number else name)
        axes.set_title(title, fontsize=12)
        axes.set(xlabel="step", ylim=(0, 100), xlim=(0, 1.06 * steps[-1]))
    panels[0].axhline(100 * level, color=EDGE, linestyle="--", linewidth=1.2)
    panels[0].text(8, 100 * level + 2, "first of its kind", color=SOFT, fontsize=10)
    panels[0].set(ylabel="filled correctly (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Things come in a jump, and not in every run")
    said = "; ".join(
        f"{name}: " + ", ".join(f"{curve[-1]['all']:.0%} (things {curve[-1]['things']:.0%})" for curve in part["curve"])
        for name, part in frame.groupby("masked", sort=False)
    )
    return figure, f"Shares of all blanks, names and things filled correctly against steps. At the end, {said}."


def draw_labels(frame: DataFrame, level: float) -> Picture:
    """Right answers against the number of answered questions, pretrained and from scratch: a dot per seed, and means.

    `level` is that of a simple guesser.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.9))
    said = []
    looks = (("pretrained", "pretrained, then fine-tuned"), ("scratch", "the same model from scratch"))
    for (column, name), color, marker in zip(looks, COLORS, MARKERS, strict=False):
        by_seed = 100 * frame.groupby(["labels", "seed"])[column].mean()
        means = by_seed.groupby("labels").mean()
        axes.plot(range(len(means)), list(means), color=color, marker=marker, label=name)
        places = [list(means.index).index(count) for count, _ in by_seed.index]
        axes.plot(places, list(by_seed), color=color, linestyle="none", marker=marker, alpha=0.4)
        said.append(f"{name} " + ", ".join(f"{share:.0f}% with {count}" for count, share in means.items()))
    axes.axhline(100 * level, color=EDGE, linestyle="--", linewidth=1.2)
    axes.text(0.5, 100 * level + 2, "always the first name", color=SOFT, fontsize=10, ha="center")
    axes.set(xlabel="answered questions", ylabel="right answers (%)", ylim=(0, 100), xlim=(-0.3, len(means) - 0.7))
    axes.set_xticks(range(len(means)), [str(count) for count in means.index])
    axes.set_title("What pretraining is worth")
    axes.legend(loc="upper left", frameon=False)
    return figure, f"Right answers against the number of answered questions: {'; '.join(said)}."
