"""The pictures of lesson 06: the loop, the cache, filtered distributions, trees of texts and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tfbook.course.experiments.summaries import bands
from tfbook.course.experiments.translators import Task
from tfbook.generation.search import BeamStep, beam_search, gnmt_penalty
from tfbook.models.transformer import Transformer
from tfbook.plot.beam import beam_tree
from tfbook.plot.curves import lines
from tfbook.plot.house import COLORS, FAINT, INK, ROLES
from tfbook.text.pairs import Pair, collate
from tfbook.text.words import detokenize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.plot import Schematic

# ---- the loop ----------------------------------------------------------------------------------------------------


def draw_loop(text: Sequence[str], shares: Mapping[str, float], chosen: str) -> Figure:
    """The text so far → the model → probabilities of the next word → one of them, which joins the text."""
    from tfbook.plot import Schematic

    picture = Schematic("One word at a time: read, choose, append", gap=(46, 34))
    so_far = picture.tokens(text, (0, 0), "stream", width=64)
    model = picture.box("model", (1, 0), "parameter", note="reads the text")
    bars = picture.bars(list(shares.values()), (2, 0), "weight", high=max(shares.values()), names=list(shares))
    choose = picture.box("choose one", (2, 1), "query", note="the question of this lesson")
    word = picture.tokens([chosen], (1, 1), "value", width=64)
    picture.arrow(so_far, model)
    picture.arrow(model, bars, "softmax", "weight")
    picture.arrow(bars, choose, role="weight", sides=("bottom", "top"))
    picture.arrow(choose, word, role="query")
    picture.arrow(word, so_far, "append", "value", sides=("left", "bottom"), label_side="top")
    return picture.figure()


# ---- the cache ---------------------------------------------------------------------------------------------------


def draw_cache(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, words: Sequence[str]) -> Figure:
    """Causal attention over all words but the last at once, and then the last one with the cache."""
    from tfbook.plot import Schematic

    picture = Schematic("Keys and values are computed once and kept", gap=(17, 30))
    last = len(words) - 1
    _draw_step(picture, 0, range(last), (x, W_Q, W_K, W_V), words, "Prefill: all words of the beginning at once")
    _draw_step(picture, 4, range(last, last + 1), (x, W_Q, W_K, W_V), words, "Decode: one new word")
    return picture.figure()


def _draw_step(
    picture: Schematic, column: int, new: range, numbers: Sequence[Tensor], words: Sequence[str], title: str
) -> None:
    """The `new` words ask, and join a cache with room for two words more than there are."""
    x, W_Q, W_K, W_V = numbers
    q, k, v = x[new.start : new.stop] @ W_Q, x[: new.stop] @ W_K, x[: new.stop] @ W_V
    visible = torch.ones(len(new), new.stop, dtype=torch.bool).tril(new.start)
    weights = (q @ k.T / q.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf).softmax(dim=-1)
    room = torch.full((len(words) + 1 - new.stop, k.shape[1]), torch.nan)
    cell = 18
    read = picture.matrix(
        x[new.start : new.stop], (column, 1), "stream", cell=cell, label="$x$", rows=words[new.start : new.stop]
    )
    asks = picture.matrix(q, (column + 1, 1), "query", cell=cell, label="$q$")
    keys = picture.matrix(torch.cat([k, room]).T, (column + 2, 0), "key", cell=cell, label=r"keys $K^{\!\top}$")
    values = picture.matrix(torch.cat([v, room]), (column + 3, 0), "value", cell=cell, label="values $V$")
    shown = picture.matrix(
        weights, (column + 2, 1), "weight", cell=cell, label="weights", allowed=visible, darkest=1, align="left"
    )
    mixed = picture.matrix(weights @ v, (column + 3, 1), "value", cell=cell, label="output")
    picture.frame([read, asks, keys, values, shown, mixed], title, pad=14)
    picture.arrow(read, asks, role="query")
    picture.arrow(read, keys, "append", "key", sides=("top", "left"))
    picture.arrow(asks, shown, role="query")
    picture.arrow(shown, mixed, role="weight")
    picture.outline(*(keys.column(i) for i in new), *(values.row(i) for i in new))


def draw_times(frame: DataFrame) -> Figure:
    """Milliseconds for one more token against the length of the text, with a cache and without."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    series = {name: (frame["length"], frame[name]) for name in ("recomputed", "cached")}
    lines(axes, series, title="A cached token costs about the same at any length", x="words so far", y="ms per token")
    axes.set(xticks=frame["length"][-4:], ylim=(0, None))
    return figure


# ---- filters -----------------------------------------------------------------------------------------------------

Filtered = Callable[[Tensor], Tensor]


def draw_filters(rows: Mapping[str, Tensor], ways: Mapping[str, Filtered], words: Sequence[str]) -> Figure:
    """For each context its row of logits under each way: probabilities of the likeliest words, gray where removed."""
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
    return figure


def _bars(axes: Axes, shares: Tensor, names: Sequence[str], top: float) -> None:
    places = range(len(names))
    axes.bar(places, shares.tolist(), color=ROLES["weight"].dark)
    axes.set(xticks=places, ylim=(0, top))
    axes.set_xticklabels(names, rotation=60, ha="right", rotation_mode="anchor", fontsize=9)
    for label, share in zip(axes.get_xticklabels(), shares.tolist(), strict=True):
        label.set_color(INK if share else "#b5b5b5")
    axes.grid(visible=False, axis="x")


def draw_flaws(flaws: Mapping[str, tuple[float, float]], reference: str) -> Figure:
    """Each way to choose as a point: how much it repeats, how often it puts words together that nobody did."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    for name, (repeats, odd) in flaws.items():
        true = name == reference
        axes.scatter(100 * repeats, 100 * odd, s=110 if true else 50, marker="*" if true else "o", zorder=3)
        axes.collections[-1].set_color(COLORS[1] if true else COLORS[0])
        below = name.startswith("top-p")  # which lies near a temperature
        away = {"xytext": (-9, -4), "ha": "right"} if true else {"xytext": (7, -13 if below else 5)}
        axes.annotate(name, (100 * repeats, 100 * odd), **away, textcoords="offset points", fontsize=10)
    axes.set(xlabel="three-word pieces that the text has had before (%)", ylabel="odd word pairs (%)")
    axes.set(title="Near the star is where text should be")
    axes.margins(x=0.22, y=0.15)
    return figure


# ---- likely text -------------------------------------------------------------------------------------------------


def draw_likelihood(frame: DataFrame) -> Figure:
    """How often human and likely text surprise, and nats per character of every way to write."""
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
    for place, (name, nats) in enumerate(means.items()):
        seeds = frame[frame["way"] == name]["nats"]
        color = COLORS[1] if name == "human" else COLORS[0]
        right.barh(place, nats, color=color, alpha=0.8)
        right.plot(seeds, [place] * len(seeds), color=INK, marker="|", linestyle="none", markersize=9)
    right.set_yticks(range(len(means)), ["Shakespeare" if name == "human" else name for name in means.index])
    right.set(xlabel="nats per character", title="Sampled text is about as surprising")
    right.grid(visible=False, axis="y")
    return figure


# ---- beams -------------------------------------------------------------------------------------------------------


def draw_tree(after: Mapping[str, tuple[float, Mapping[str, float]]], width: int) -> Figure:
    """Texts of two words with probabilities on the branches; the `width` best of each length are highlighted."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.9))
    kept = sorted(after, key=lambda word: -after[word][0])[:width]
    leaves = [(first, word, p, q) for first, (p, rest) in after.items() for word, q in rest.items()]
    totals = [p * q if first in kept else 0.0 for first, _, p, q in leaves]
    best = sorted(range(len(leaves)), key=lambda place: -totals[place])[:width]
    middle = (len(leaves) - 1) / 2
    _node(axes, (0, middle), "start", INK)
    for first, (p, _) in after.items():
        rows = [i for i, leaf in enumerate(leaves) if leaf[0] == first]
        height = sum(rows) / len(rows)
        color = COLORS[0] if first in kept else "#a0a0a0"
        _edge(axes, (0, middle), (1, height), f"{p:g}", color)
        _node(axes, (1, height), first, color)
        for i in rows:
            _, word, _, q = leaves[i]
            shade = COLORS[1] if i == best[0] else COLORS[0] if i in best else "#a0a0a0"
            _edge(axes, (1, height), (2, i), f"{q:g}", shade)
            _node(axes, (2, i), f"{first} {word}", shade)
            total = f"{p:g} × {q:g} = {p * q:.2f}" if first in kept else "dropped"
            axes.text(2.28, i, total, va="center", color=shade, weight="bold" if i == best[0] else "normal")
    axes.set(xlim=(-0.2, 3), ylim=(len(leaves) - 0.5, -0.5), title=f"A beam of {width} finds what greedy misses")
    axes.axis("off")
    return figure


def _node(axes: Axes, at: tuple[float, float], text: str, color: str) -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": color, "linewidth": 1.8}
    axes.text(*at, text, ha="center", va="center", color=color, bbox=box, zorder=4)


def _edge(axes: Axes, start: tuple[float, float], end: tuple[float, float], label: str, color: str) -> None:
    axes.plot(*zip(start, end, strict=True), color=color, marker="none", linewidth=1.6, zorder=2)
    x, y = (a + 0.58 * (b - a) for a, b in zip(start, end, strict=True))
    blank = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
    axes.text(x, y, label, ha="center", va="center", color=color, fontsize=10, bbox=blank, zorder=3)


def draw_search(model: Transformer, pair: Pair, task: Task, *, width: int) -> Figure:
    """The texts that a beam search without a length penalty kept for one sentence, as a tree."""
    import matplotlib.pyplot as plt

    steps: list[BeamStep] = []
    batch = collate([pair], task.source_vocab, task.target_vocab).to(next(model.parameters()).device)
    none = gnmt_penalty(0.0)
    beam_search(model, batch.source, batch.source_lengths, width=width, penalty=none, on_step=steps.append)
    figure, axes = plt.subplots(figsize=(12, 4.6))
    title = f"A beam of {width} translates “{detokenize(pair.source, 'english')}”"
    beam_tree(axes, steps, lambda word: task.target_vocab.tokens[word], title=title)
    return figure


def draw_searches(frame: DataFrame) -> Figure:
    """What a wider beam finds, without a length penalty and with one: log-probability, length and BLEU."""
    import matplotlib.pyplot as plt

    panels = {
        "log p": ("More likely …", "log-probability per sentence"),
        "length": ("… but shorter …", "length ÷ reference's"),
        "bleu": ("… and not always better", "BLEU"),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
    names = {"none": "no penalty", "GNMT, α = 0.6": "penalty"}
    frame = frame[frame["penalty"] != "mean"].replace({"penalty": names})
    for panel, (column, (title, label)) in zip(axes, panels.items(), strict=True):
        lines(panel, bands(frame, "penalty", "width", column), title=title, x="beam width", y=label)
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes[1].axhline(1, color=FAINT, linewidth=4, zorder=0)
    return figure


# ---- calibration -------------------------------------------------------------------------------------------------


def draw_reliability(frame: DataFrame) -> Figure:
    """Accuracy against confidence, with and without label smoothing, for much training data and for little."""
    import matplotlib.pyplot as plt

    amounts = list(dict.fromkeys(frame["sentences"]))
    figure, panels = plt.subplots(1, len(amounts), figsize=(10, 4.2), sharey=True)
    for axes, amount in zip(panels, amounts, strict=True):
        axes.plot([0, 1], [0, 1], color="#b5b5b5", linestyle="--", marker="none", linewidth=1.5)
        some = frame[frame["sentences"] == amount]
        series = {}
        for name, runs in some.groupby("variant", sort=False):
            table = np.mean([np.array(each) for each in runs["reliability"]], axis=0)
            table = table[table[:, 0] > 0.005]  # bins of a few words say little
            series[str(name)] = (table[:, 1], table[:, 2])
        lines(axes, series, title=amount, x="confidence", y="share that is right")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    return figure
