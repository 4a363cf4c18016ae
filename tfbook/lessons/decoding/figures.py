"""Figures of lesson 06, each with its alt text: the loop, the cache, filters, search trees, and the measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tfbook.course.summaries import bands
from tfbook.course.translators import Task
from tfbook.generation.search import BeamStep, beam_search, gnmt_penalty
from tfbook.models.transformer import Transformer
from tfbook.plot.beam import beam_tree
from tfbook.plot.curves import lines
from tfbook.plot.house import COLORS, EDGE, FAINT, INK, ROLES
from tfbook.text.pairs import Pair, collate
from tfbook.text.words import detokenize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.plot import Schematic

    Picture = tuple[Figure, str]


# ---- the loop --------------------------------------------------------------------------------------------------------


def draw_loop(text: Sequence[str], share: Tensor, words: Sequence[str]) -> Picture:
    """The text so far → the model → its five likeliest next words → the first of them, appended to the text."""
    from tfbook.plot import Schematic

    picture = Schematic("One word at a time: read, choose, append", gap=(46, 34))
    likely = {words[i]: float(share[i]) for i in share.topk(min(5, len(words))).indices.tolist()}
    chosen = next(iter(likely))
    so_far = picture.tokens([*text, "…"], (0, 0), "stream", width=64)
    model = picture.box("model", (1, 0), "parameter", note="reads: Section 3")
    bars = picture.bars(list(likely.values()), (2, 0), "weight", high=max(likely.values()), names=list(likely))
    choose = picture.box("choose one", (2, 1), "query", note="how: Sections 4 to 6")
    word = picture.tokens([chosen], (1, 1), "value", width=64)
    picture.arrow(so_far, model)
    picture.arrow(model, bars, "softmax", "weight")
    picture.arrow(bars, choose, role="weight", sides=("bottom", "top"))
    picture.arrow(choose, word, role="query")
    picture.arrow(word, so_far.column(len(text)), "append", "value", sides=("left", "bottom"), label_side="top")
    alt = (
        f"The model reads “{' '.join(text)}” and gives a probability to every next word. One of them, “{chosen}”, is "
        "chosen and appended to the text, which the model reads again."
    )
    return picture.figure(), alt


# ---- the cache -------------------------------------------------------------------------------------------------------


def draw_cache(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, words: Sequence[str]) -> Picture:
    """Causal attention over all words but the last at once, and then for the last one with the cache."""
    from tfbook.plot import Schematic

    picture = Schematic("Keys and values are computed once and kept", gap=(17, 30))
    last = len(words) - 1
    _draw_step(picture, 0, range(last), (x, W_Q, W_K, W_V), words, "Prefill: all words of the beginning at once")
    _draw_step(picture, 4, range(last, last + 1), (x, W_Q, W_K, W_V), words, "Decode: one new word")
    alt = (
        f"Left, prefill: {last} words get queries, keys, and values at once, under a causal mask. Right, decode: a new "
        "word appends a key and a value to the cache, and its query gets one row of weights over all keys."
    )
    return picture.figure(), alt


def _draw_step(
    picture: Schematic, column: int, new: range, numbers: Sequence[Tensor], words: Sequence[str], title: str
) -> None:
    """Queries of the `new` words, whose keys and values join a cache with room for two more words."""
    x, W_Q, W_K, W_V = numbers
    q, k, v = x[new.start : new.stop] @ W_Q, x[: new.stop] @ W_K, x[: new.stop] @ W_V
    visible = torch.ones(len(new), new.stop, dtype=torch.bool).tril(new.start)
    weights = (q @ k.T / q.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf).softmax(dim=-1)
    room = torch.full((len(words) + 1 - new.stop, k.shape[1]), torch.nan)
    cell = 18
    read = picture.matrix(
        x[new.start : new.stop], (column, 2), "stream", cell=cell, label="$x$", rows=words[new.start : new.stop]
    )
    asks = picture.matrix(q, (column + 1, 2), "query", cell=cell, label="$q$")
    keys = picture.matrix(torch.cat([k, room]).T, (column + 2, 1), "key", cell=cell, label=r"keys $K^{\!\top}$")
    values = picture.matrix(torch.cat([v, room]), (column + 3, 1), "value", cell=cell, label="values $V$")
    shown = picture.matrix(
        weights, (column + 2, 2), "weight", cell=cell, label="weights", allowed=visible, darkest=1, align="left"
    )
    mixed = picture.matrix(weights @ v, (column + 3, 2), "value", cell=cell, label="output")
    above = picture.point((column, 0))  # leaves room for the arrow to the values
    picture.frame([above, read, asks, keys, values, shown, mixed], title, pad=14)
    picture.arrow(read, asks, role="query")
    picture.arrow(read, keys, "append", "key", sides=("top", "left"))
    picture.arrow(asks, shown, role="query")
    picture.arrow(read, values, "append", "value", sides=("top", "top"), lane=-9)
    picture.arrow(keys, shown, role="key", sides=("bottom", "top"))
    picture.arrow(values, mixed, role="value", sides=("bottom", "top"))
    picture.arrow(shown, mixed, role="weight")
    picture.outline(*(keys.column(i) for i in new), *(values.row(i) for i in new))


def draw_times(frame: DataFrame) -> Picture:
    """Milliseconds for one more token against the length of the text, with and without a cache."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    series = {name: (frame["length"], frame[name]) for name in ("recomputed", "cached")}
    lines(axes, series, title="The longer the text, the more a cache saves", x="words so far", y="ms per token")
    axes.set(xticks=frame["length"][-4:], ylim=(0, None))
    first, last = frame.iloc[0], frame.iloc[-1]
    alt = (
        f"From {first['length']:,.0f} to {last['length']:,.0f} words, the time of one more token rises from "
        f"{first['recomputed']:.0f} to {last['recomputed']:.0f} ms without a cache, "
        f"and from {first['cached']:.0f} to {last['cached']:.0f} ms with one."
    )
    return figure, alt


# ---- filters ---------------------------------------------------------------------------------------------------------

Filtered = Callable[[Tensor], Tensor]


def draw_filters(rows: Mapping[str, Tensor], ways: Mapping[str, Filtered], words: Sequence[str]) -> Picture:
    """For each context a row of logits under each filter: the likeliest words' probabilities, removed ones in gray."""
    import matplotlib.pyplot as plt

    shown = min(12, len(words))
    figure, panels = plt.subplots(len(rows), len(ways), figsize=(3 * len(ways), 2.9 * len(rows)), squeeze=False)
    for (context, logits), line in zip(rows.items(), panels, strict=True):
        order = logits.argsort(descending=True)[:shown]
        highest = max(float(way(logits).softmax(dim=-1).max()) for way in ways.values())
        for axes, (name, way) in zip(line, ways.items(), strict=True):
            left = way(logits).softmax(dim=-1)
            kept = int((left > 0).sum())
            _bars(axes, left[order], [words[i] for i in order.tolist()], 1.1 * highest)
            axes.set_title(f"{name}: {kept} left", fontsize=11)
        line[0].set_ylabel(f"after “{context}”", fontsize=10)
    contexts = " and ".join(f"“{context}”" for context in rows)
    return figure, f"Bars of the likeliest words after {contexts}, for {', '.join(ways)}."


def _bars(axes: Axes, shares: Tensor, names: Sequence[str], top: float) -> None:
    positions = range(len(names))
    axes.bar(positions, shares.tolist(), color=ROLES["weight"].dark)
    axes.set(xticks=positions, ylim=(0, top))
    axes.set_xticklabels(names, rotation=60, ha="right", rotation_mode="anchor", fontsize=9)
    for label, share in zip(axes.get_xticklabels(), shares.tolist(), strict=True):
        label.set_color(INK if share else COLORS[3])
    axes.grid(visible=False, axis="x")


def draw_flaws(flaws: Mapping[str, tuple[float, float]], reference: str) -> Picture:
    """Each decoding method as a point: how much it repeats, against how many of its word pairs nobody wrote."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    for name, (repeats, odd) in flaws.items():
        true = name == reference
        axes.scatter(100 * repeats, 100 * odd, s=110 if true else 50, marker="*" if true else "o", zorder=3)
        axes.collections[-1].set_color(COLORS[1] if true else COLORS[0])
        left = true or name.startswith("top-p")  # two pairs of close points: true text and top-p, and the temperatures
        group = [each for each in flaws if each.startswith("top-p" if left else "temperature")] + [reference] * left
        up = name not in group or odd >= max(flaws[each][1] for each in group)
        away: dict[str, Any] = {"xytext": (-9 if left else 7, 6 if up else -14), "ha": "right" if left else "left"}
        axes.annotate(name, (100 * repeats, 100 * odd), **away, textcoords="offset points", fontsize=10)
    axes.set(xlabel="three-word sequences seen before in the text (%)", ylabel="odd word pairs (%)")
    axes.set(title="Near the star is where text should be")
    axes.margins(x=0.22, y=0.15)
    points = (f"{name} repeats {repeats:.0%} and has {odd:.0%} odd pairs" for name, (repeats, odd) in flaws.items())
    return figure, "; ".join(points) + "."


# ---- likely text -----------------------------------------------------------------------------------------------------


def draw_likelihood(frame: DataFrame) -> Picture:
    """Surprise per character of human and of likely text, and nats per character of every decoding method."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.9))
    ends = (0, 0.1, 0.5, 0.9, 1.01)
    for name, color, shift in (("beam of 8", COLORS[0], -0.2), ("human", COLORS[1], 0.2)):
        shares = np.exp(np.concatenate(frame[frame["way"] == name]["each"].to_list()))
        counts = np.histogram(shares, ends)[0] / len(shares)
        left.bar(np.arange(4) + shift, 100 * counts, 0.38, color=color, alpha=0.85)
        label = "Shakespeare" if name == "human" else name
        most = int(counts.argmax())
        left.text(most + shift, 100 * counts[most] + 1, label, color=color, ha="center", fontsize=10)
    left.set_xticks(range(4), ["below 0.1", "0.1 to 0.5", "0.5 to 0.9", "above 0.9"])
    left.set(xlabel="probability of a character", ylabel="characters (%)", title="Real text keeps surprising the model")
    left.margins(y=0.1)
    left.grid(visible=False, axis="x")
    means = frame.groupby("way", sort=False)["nats"].mean().sort_values()
    for position, (name, nats) in enumerate(means.items()):
        seeds = frame[frame["way"] == name]["nats"]
        color = COLORS[1] if name == "human" else COLORS[0]
        right.barh(position, nats, color=color, alpha=0.8)
        right.plot(seeds, [position] * len(seeds), color=INK, marker="|", linestyle="none", markersize=9)
    right.set_yticks(range(len(means)), ["Shakespeare" if name == "human" else name for name in means.index])
    right.set(xlabel="nats per character", title="Full-softmax samples surprise it as much")
    right.grid(visible=False, axis="y")
    means_said = ", ".join(f"{name} {nats:.2f}" for name, nats in means.items())
    alt = (
        "Left: 40% of a passage of Shakespeare has a probability below 0.1, of the beam’s text 8%. "
        f"Right, mean surprise in nats per character: {means_said}."
    )
    return figure, alt


# ---- beams -----------------------------------------------------------------------------------------------------------


def draw_tree(after: Mapping[str, tuple[float, Mapping[str, float]]], width: int) -> Picture:
    """Texts of two words with probabilities on the branches; the `width` best of each length are highlighted."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.9))
    kept = sorted(after, key=lambda word: -after[word][0])[:width]
    leaves = [(first, word, p, q) for first, (p, rest) in after.items() for word, q in rest.items()]
    totals = [p * q if first in kept else 0.0 for first, _, p, q in leaves]
    best = sorted(range(len(leaves)), key=lambda position: -totals[position])[:width]
    middle = (len(leaves) - 1) / 2
    _node(axes, (0, middle), "start", INK)
    for first, (p, _) in after.items():
        rows = [i for i, leaf in enumerate(leaves) if leaf[0] == first]
        height = sum(rows) / len(rows)
        color = COLORS[0] if first in kept else EDGE
        _edge(axes, (0, middle), (1, height), f"{p:g}", color)
        _node(axes, (1, height), first, color)
        for i in rows:
            _, word, _, q = leaves[i]
            shade = COLORS[1] if i == best[0] else COLORS[0] if i in best else EDGE
            _edge(axes, (1, height), (2, i), f"{q:g}", shade)
            _node(axes, (2, i), f"{first} {word}", shade)
            total = f"{p:g} × {q:g} = {p * q:g}" if first in kept else "dropped"
            axes.text(2.28, i, total, va="center", color=shade, weight="bold" if i == best[0] else "normal")
    axes.set(xlim=(-0.2, 3), ylim=(len(leaves) - 0.5, -0.5), title=f"A beam of {width} finds what greedy misses")
    axes.axis("off")
    first = max(after, key=lambda word: after[word][0])
    greedy = first, max(after[first][1].items(), key=lambda each: each[1])
    leaf = leaves[best[0]]
    alt = (
        f"Greedy decoding says {greedy[0]} {greedy[1][0]}, with probability {after[first][0] * greedy[1][1]:g}; "
        f"the best text is {leaf[0]} {leaf[1]}, with {leaf[2] * leaf[3]:g}."
    )
    return figure, alt


def _node(axes: Axes, at: tuple[float, float], text: str, color: str) -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": color, "linewidth": 1.8}
    axes.text(*at, text, ha="center", va="center", color=color, bbox=box, zorder=4)


def _edge(axes: Axes, start: tuple[float, float], end: tuple[float, float], label: str, color: str) -> None:
    axes.plot(*zip(start, end, strict=True), color=color, marker="none", linewidth=1.6, zorder=2)
    x, y = (a + 0.58 * (b - a) for a, b in zip(start, end, strict=True))
    blank = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
    axes.text(x, y, label, ha="center", va="center", color=color, fontsize=10, bbox=blank, zorder=3)


def draw_search(model: Transformer, pair: Pair, task: Task, *, width: int) -> Picture:
    """The texts that a beam search without a length penalty kept for one sentence, as a tree."""
    import matplotlib.pyplot as plt

    steps: list[BeamStep] = []
    batch = collate([pair], task.source_vocab, task.target_vocab).to(next(model.parameters()).device)
    none = gnmt_penalty(0.0)
    beam_search(model, batch.source, batch.source_lengths, width=width, penalty=none, on_step=steps.append)
    figure, axes = plt.subplots(figsize=(12, 4.6))
    title = f"A beam of {width} translates “{detokenize(pair.source, 'english')}”"
    beam_tree(axes, steps, lambda word: task.target_vocab.tokens[word], title=title)
    return figure, f"{title}: a tree of partial translations with a probability on each branch."


def draw_searches(frame: DataFrame) -> Picture:
    """Results of wider beams, without a length penalty and with one: log-probability, length and BLEU."""
    import matplotlib.pyplot as plt

    panels = {
        "log p": ("More likely …", "log-probability per sentence"),
        "length": ("… but shorter …", "length ÷ reference's"),
        "bleu": ("… and soon hardly better", "BLEU"),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
    names = {"none": "no penalty", "GNMT, α = 0.6": "penalty"}
    frame = frame[frame["penalty"] != "mean"].replace({"penalty": names})
    for panel, (column, (title, label)) in zip(axes, panels.items(), strict=True):
        lines(panel, bands(frame, "penalty", "width", column), title=title, x="beam width", y=label)
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes[1].axhline(1, color=FAINT, linewidth=4, zorder=0)
    alt = (
        "As the beam widens to 16, the log-probability rises and the length falls. BLEU rises by about four points "
        "up to width 2 and hardly after, with a length penalty a little longer than without."
    )
    return figure, alt


# ---- calibration -----------------------------------------------------------------------------------------------------


def draw_reliability(frame: DataFrame) -> Picture:
    """Accuracy against confidence, with and without label smoothing; the area of a dot is its share of the words."""
    import matplotlib.pyplot as plt

    amounts = list(dict.fromkeys(frame["sentences"]))
    figure, panels = plt.subplots(1, len(amounts), figsize=(10, 4.2), sharey=True)
    for axes, amount in zip(panels, amounts, strict=True):
        axes.plot([0, 1], [0, 1], color=EDGE, linestyle="--", marker="none", linewidth=1.5)
        some = frame[frame["sentences"] == amount]
        series = {}
        for name, runs in some.groupby("variant", sort=False):
            table = np.mean([np.array(each) for each in runs["reliability"]], axis=0)
            table = table[table[:, 0] > 0.005]  # bins of a few words say little
            series[str(name)] = (table[:, 1], table[:, 2])
            axes.scatter(
                table[:, 1], table[:, 2], s=300 * table[:, 0], color=COLORS[len(series) - 1], alpha=0.35, clip_on=False
            )
        lines(axes, series, title=amount, x="confidence", y="share that is right")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    alt = (
        "With all sentences, label smoothing lies well above the diagonal and hard targets a little. With 1,500 "
        "sentences, hard targets lie well below it and label smoothing above."
    )
    return figure, alt
