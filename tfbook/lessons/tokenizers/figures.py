"""Figures of lesson 07, each with its alt text: splits, merges, costs by script, vocabularies, and word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.plot.curves import lines
from tfbook.plot.house import COLORS, INK, MARKERS, ROLES
from tfbook.plot.tokens import token_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Picture = tuple[Figure, str]


Pair = tuple[str, str]
Words = Mapping[tuple[str, ...], int]
Cut = tuple[Sequence[str], Sequence[float]]  # the tokens of a word, and the contribution of each
LOST = frozenset({"<unk>", "�"})
SOFT = "#59636e"

# ---- from text to vectors --------------------------------------------------------------------------------------------

TITLES = {  # of the figures that answer predictions: a lesson's code does not give them away
    "three_alphabets": "Words and characters have gaps; bytes are many",
}


def draw_job(text: str, pieces: Sequence[str], ids: Sequence[int], vectors: Tensor, vocab: int) -> Picture:
    """A text, its tokens, their ids, and the rows of the embedding that a Transformer reads."""
    from tfbook.plot import Schematic

    picture = Schematic("The tokenizer stands between your text and the model", gap=(44, 26))
    said = picture.tokens([text], (0, 0), "plain", label="text")
    cut = picture.box("tokenizer", (1, 0), "key", note="this lesson")
    tokens = picture.tokens(pieces, (2, 0), "key", label="tokens")
    numbers = picture.tokens([str(i) for i in ids], (2, 1), "key", label="ids")
    table = picture.box("embedding", (1, 1), "parameter", note=f"{vocab} rows, learned")
    rows = picture.matrix(vectors, (0, 1), "stream", cell=20, label="vectors", rows=[str(i) for i in ids])
    model = picture.box("Transformer", (0, 2), "parameter")
    picture.arrow(said, cut)
    picture.arrow(cut, tokens, role="key")
    picture.arrow(tokens, numbers, "look up", "key", sides=("bottom", "top"))
    picture.arrow(numbers, table, role="key", sides=("left", "right"))
    picture.arrow(table, rows, sides=("left", "right"))
    picture.arrow(rows, model, sides=("bottom", "top"))
    alt = (
        f"“{text}” goes through the tokenizer and becomes the tokens {', '.join(pieces)}, whose ids are "
        f"{', '.join(map(str, ids))}. Each id picks a row of the embedding, and these vectors enter the Transformer."
    )
    return picture.figure(), alt


# ---- cuts ------------------------------------------------------------------------------------------------------------


def draw_cuts(rows: Mapping[str, Sequence[str]], title: str, lost: AbstractSet[str] = LOST) -> Picture:
    """One text split in several ways, one row of boxes for each; `lost` text stands out."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    seen = {name: [token.replace(" ", "␣").replace("\n", "↵") for token in tokens] for name, tokens in rows.items()}
    token_rows(axes, seen, title=title, marked=lost)
    counts = (f"{name}: {len(tokens)} tokens, {sum(t in lost for t in tokens)} lost" for name, tokens in seen.items())
    return figure, f"The same text in rows of boxes, a box for each token. {'; '.join(counts)}."


def draw_merging(words: Words, history: Sequence[tuple[Pair, int, Words]]) -> Picture:
    """The words as letters and after each merge, the letters of one token in one box; new tokens are purple."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 0.75 * len(history) + 1.3))
    stages: list[tuple[str, str, Words]] = [("letters", "", words)]
    stages += [
        (f"merge {n}: {a} + {b}, {count} times", a + b, after) for n, ((a, b), count, after) in enumerate(history, 1)
    ]
    right = 0.0
    for row, (name, made, after) in enumerate(stages):
        axes.text(-0.6, row, name, ha="right", va="center", fontsize=11, color=INK)
        x = 0.0
        for word, times in after.items():
            for token in word:
                _box(axes, x, row, token, "weight" if token == made else "stream")
                x += len(token)
            if row == 0:
                axes.text(x - len("".join(word)) / 2, -0.85, f"{times} ×", ha="center", fontsize=10, color=SOFT)
            x += 1
        right = max(right, x - 1)
    axes.set(xlim=(-8.6, right + 0.2), ylim=(len(stages) - 0.4, -1.1), title="Frequent neighbors grow together")
    axes.axis("off")
    said = (f"{name}: {', '.join(' '.join(word) for word in after)}" for name, _, after in stages)
    return figure, f"The words, row by row. {'; '.join(said)}."


def _box(axes: Axes, x: float, y: float, token: str, role: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    fill, edge, _ = ROLES[role]
    shape = "round,pad=0,rounding_size=0.18"
    axes.add_patch(
        FancyBboxPatch((x + 0.06, y - 0.34), len(token) - 0.12, 0.68, boxstyle=shape, facecolor=fill, edgecolor=edge)
    )
    for index, letter in enumerate(token):
        axes.text(x + index + 0.5, y, letter, ha="center", va="center", fontsize=12, family="monospace", color=INK)


def draw_training(words: Words, counts: Mapping[Pair, int], merges: Sequence[Pair]) -> Picture:
    """The training loop: pairs are counted, as in round 1; the best one joins the merges and is merged everywhere."""
    from tfbook.plot import Schematic

    picture = Schematic("Training: count, choose, merge, repeat", gap=(48, 40))
    named = {"".join(word): times for word, times in words.items()}
    most = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:4])
    text = picture.box("text", (0, 0), "plain", note="split at its spaces")
    chunks = picture.tokens([f"{times} {word}" for word, times in named.items()], (1, 0), "stream")
    bars = picture.bars(
        [*most.values()], (2, 0), "weight", high=max(most.values()), numbers="{:.0f}", names=["+".join(p) for p in most]
    )
    best = picture.box("best pair", (2, 1), "query", note="ties: the smaller one")
    made = picture.tokens(
        [f"{n}: {' '.join(pair)}" for n, pair in enumerate(merges, 1)], (1, 2), "value", label="one merge per round"
    )
    picture.arrow(text, chunks)
    picture.arrow(chunks, bars, "round 1", "weight")
    picture.arrow(bars, best, role="weight", sides=("bottom", "top"))
    picture.arrow(best, chunks, "merge everywhere", "query", sides=("left", "bottom"))
    picture.arrow(best, made, "append", "value", sides=("bottom", "right"))
    alt = (
        f"The text is split at its spaces: {', '.join(f'{n} {word}' for word, n in named.items())}. Pairs "
        f"are counted, in round 1 {', '.join(f'{a} {b} {n} times' for (a, b), n in most.items())}. The best is merged "
        f"everywhere and appended to the list of merges: {', '.join(' '.join(pair) for pair in merges)}."
    )
    return picture.figure(), alt


# ---- unusual scripts -------------------------------------------------------------------------------------------------


def draw_languages(before: Mapping[str, int], after: Mapping[str, int], cured: str) -> Picture:
    """Tokens of one sentence by language, with a gray bar for a tokenizer that has also read the `cured` ones."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.55 * len(before) + 1.1))
    least = next(iter(before.values()))
    for index, (name, count) in enumerate(before.items()):
        changed = after[name] != count
        y = index - 0.19 if changed else index
        axes.barh(y, count, 0.36, color=COLORS[1 if index else 0])
        axes.text(count + 1, y, f"{count}  ({count / least:.1f}×)", va="center", fontsize=9.5, color=INK)
        if changed:
            axes.barh(index + 0.19, after[name], 0.36, color="#8a939d")
            axes.text(after[name] + 1, index + 0.19, str(after[name]), va="center", fontsize=9.5, color=SOFT)
    axes.set_yticks(range(len(before)), before)
    title = "One sentence, seven languages: English is cheap, the others pay"
    axes.set(xlabel=f"tokens (gray: a tokenizer that has also read {cured})", title=title)
    axes.set(xlim=(0, 1.18 * max(before.values())), ylim=(len(before) - 0.5, -0.5))
    axes.grid(visible=False, axis="y")
    said = ", ".join(f"{name} {count}, then {after[name]}" for name, count in before.items())
    return figure, f"Tokens of the same sentence before and after reading {cured}: {said}."


def draw_counters(letter: str, of_tokens: Mapping[str, Sequence[Cut]]) -> Picture:
    """Contribution of each token to the count of a letter, for groups of words, with a line at the true count.

    A word is a bar with a segment for each token that contributes.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    said, place = [], 0.0
    for (group, cuts), color in zip(of_tokens.items(), COLORS, strict=False):
        for pieces, values in cuts:
            _counted(axes, place, values, "".join(pieces).count(letter), color)
            name = "|".join(pieces)
            axes.text(-0.08, place, name, ha="right", va="center", family="monospace", fontsize=10, color=color)
            said.append(f"{name} {sum(values):.1f} ({' '.join(group.split())})")
            place += 1
        middle = place - (len(cuts) + 1) / 2
        axes.text(3.3, middle, group, va="center", fontsize=10.5, color=color)
        place += 0.6
    axes.set(title="Seen tokens add up; a new token says nothing")
    axes.set(xlabel=f"number of {letter}’s: said (bar), true (line)")
    axes.set(yticks=[], xticks=range(4), xlim=(0, 3.2), ylim=(place - 1, -0.6))
    axes.grid(visible=False)
    return figure, f"How many {letter}’s the tokens of a word add up to: {', '.join(said)}."


def _counted(axes: Axes, place: float, values: Sequence[float], true: int, color: str) -> None:
    start = 0.0
    for value in values:
        if value > 0.05:
            axes.barh(place, value, 0.6, left=start, color=color, edgecolor="white", linewidth=1.5)
        start += value
    axes.plot([true], [place], marker="|", color=INK, markersize=13, markeredgewidth=2.5)


# ---- vocabularies ----------------------------------------------------------------------------------------------------


def draw_sizes(lengths: Mapping[int, float], bits: Mapping[str, Mapping[int, Sequence[float]]]) -> Picture:
    """Bytes per token by size of the vocabulary, and bits per byte of models by size, one dot per run."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.1))
    lines(
        left,
        {"_": ([*lengths], [*lengths.values()])},
        title="The first doubling buys the most",
        x="tokens in the vocabulary",
        y="bytes per token, held-out text",
    )
    names = {"tokens": "tokens read", "bytes": "text read", "operations": "compute"}
    for index, (what, found) in enumerate(bits.items()):
        aside = 2 ** (0.1 * (index - 1))  # so that runs of overlapping lines can be told apart
        sizes, means = [size * aside for size in found], [mean(runs) for runs in found.values()]
        right.plot(sizes, means, color=COLORS[index], marker="none")
        dots = [(size * aside, run) for size, runs in found.items() for run in runs]
        right.scatter(*zip(*dots, strict=True), color=COLORS[index], marker=MARKERS[index], s=22, zorder=3)
        away, side = {"tokens": ((2, -16), "right"), "bytes": ((6, 8), "left")}.get(what, ((8, 11), "left"))
        label: dict[str, Any] = {"xytext": away, "textcoords": "offset points", "ha": side}
        spot = len(sizes) // 2
        right.annotate(f"equal {names[what]}", (sizes[spot], means[spot]), color=COLORS[index], fontsize=10.5, **label)
    start = next(iter(next(iter(bits.values())).items()))
    note: dict[str, Any] = {"xytext": (14, 14), "textcoords": "offset points", "fontsize": 9.5, "color": SOFT}
    right.annotate(f"the same {len(start[1])} runs", (start[0], max(start[1])), **note)
    right.set(title="With equal compute, the curve flattens near 1,024", xlabel="tokens in the vocabulary")
    right.set(ylabel="bits per byte (lower is better)", ylim=(2.05, 2.8))
    for axes, ticks in ((left, [*lengths]), (right, [*next(iter(bits.values()))])):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
        axes.minorticks_off()
    said = (f"{what} {', '.join(f'{mean(runs):.2f}' for runs in found.values())}" for what, found in bits.items())
    grown = ", ".join(f"{length:.1f}" for length in lengths.values())
    return figure, f"Left: bytes per token, {grown}. Right: bits per byte with equal {'; '.join(said)}."


# ---- vectors ---------------------------------------------------------------------------------------------------------


def draw_map(vectors: Tensor, words: Sequence[str], kind_of: Mapping[str, str]) -> Picture:
    """Words in the plane of their vectors' first two principal components, colored by kind, some of them named."""
    import matplotlib.pyplot as plt
    from matplotlib.patheffects import withStroke

    shown = [word for word in kind_of if word in set(words)]
    chosen = vectors[torch.tensor([words.index(word) for word in shown])]
    generator_state = torch.get_rng_state()
    torch.manual_seed(0)
    _, _, axes_of = torch.pca_lowrank(chosen, q=2)
    torch.set_rng_state(generator_state)
    points = dict(zip(shown, ((chosen - chosen.mean(dim=0)) @ axes_of).tolist(), strict=True))
    figure, axes = plt.subplots(figsize=(9, 5.2))
    for kind, color, marker in zip(dict.fromkeys(kind_of.values()), COLORS, MARKERS, strict=False):
        x, y = zip(*(point for word, point in points.items() if kind_of[word] == kind), strict=True)
        axes.scatter(x, y, color=color, marker=marker, s=30, alpha=0.6, label=kind)
    halo: dict[str, Any] = {"path_effects": [withStroke(linewidth=3, foreground="white")]}
    for word, point in _with_room(points).items():
        axes.annotate(word, point, xytext=(5, -3), textcoords="offset points", fontsize=9, **halo)
    axes.margins(x=0.08, y=0.08)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.set(title="Words of one kind are close, though the vectors saw only sentences")
    axes.set(xlabel="first principal component", ylabel="second principal component")
    kinds = ", ".join(dict.fromkeys(kind_of.values()))
    return figure, f"Words as points, by the first two principal components of their vectors. The kinds are {kinds}."


def _with_room(points: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Words whose labels neither overlap an earlier label nor hide a point."""
    named: dict[str, tuple[float, float]] = {}
    for word, (x, y) in points.items():
        end = x + 0.08 + 0.043 * len(word)
        hides = any(x < a < end and abs(y - b) < 0.1 for a, b in points.values())
        if not hides and all(abs(x - a) > 0.5 or abs(y - b) > 0.13 for a, b in named.values()):
            named[word] = (x, y)
    return named
