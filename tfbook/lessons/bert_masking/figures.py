"""Figures of lesson 08, each with its alt text: masking, the input, task heads, filled blanks, tags, few labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.plot.bars import grouped_bars
from tfbook.plot.house import COLORS, INK, MARKERS, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]


CHIP = 60  # pixels of a token

# ---- schematics ------------------------------------------------------------------------------------------------------


def draw_sides(words: Sequence[str], masked: int) -> Picture:
    """One sentence twice: a GPT reads to the left and predicts every word; BERT reads everything and predicts one."""
    from tfbook.plot import Schematic

    picture = Schematic("BERT reads both sides, and is asked only where a word was selected", gap=(10, 26))
    look: dict[str, Any] = {"width": 68.0}
    columns = range(1, len(words) + 1)
    for row, (name, says) in {1: ("GPT", "loss at\nevery word"), 4: ("BERT", "loss at\none word")}.items():
        picture.text(f"{name}\n{says}", (0, row), color=SOFT)
    read = [picture.box(word, (column, 1), "stream", **look) for column, word in zip(columns, words, strict=True)]
    asked = [picture.box(word, (column, 0), "key", **look) for column, word in zip(columns, words[1:], strict=False)]
    for box in read[:masked]:
        picture.arrow(box, asked[masked - 1], role="key", sides=("top", "bottom"), thickness=2)
    shown = ["[MASK]" if position == masked else word for position, word in enumerate(words)]
    roles = ["value" if position == masked else "stream" for position in range(len(words))]
    read = [picture.box(word, (c, 4), role, **look) for c, word, role in zip(columns, shown, roles, strict=True)]
    answer = picture.box(words[masked], (masked + 1, 3), "value", **look)
    for box in read:
        picture.arrow(box, answer, role="value", sides=("top", "bottom"), thickness=2)
    alt = (
        f"“{' '.join(words)}” twice. A GPT predicts every next word, “{words[masked]}” from "
        f"“{' '.join(words[:masked])}” alone. BERT reads “{' '.join(shown)}” and predicts “{words[masked]}” from all "
        f"positions."
    )
    return picture.figure(), alt


def draw_masking(rate: float, mask: float, random: float) -> Picture:
    """Masking of 100 words: how many are selected, and what replaces each of them."""
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
    """The input as the sum of three rows of embeddings, one column per token."""
    from tfbook.plot import Schematic

    picture = Schematic("The input of BERT: a sum of three embeddings", gap=(18, 16))
    n = len(tokens)
    rows = {
        "token": (tokens, "value"),
        "segment": (["AB"[segment] for segment in segments], "key"),
        "position": ([str(position) for position in range(n)], "query"),
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
    alt = f"{n} tokens, {' '.join(tokens)}. Each is the sum of a token, a segment, and a position embedding."
    return picture.figure(), alt


def draw_task_heads(tokens: Sequence[str]) -> Picture:
    """One body with three heads on top, each reading its own positions."""
    from tfbook.plot import Schematic

    picture = Schematic("One body, and a small head for each task", gap=(30, 30))
    read = picture.tokens(tokens, ((0, 2), 2), "stream", width=CHIP)
    body = picture.box("BERT: embeddings and blocks, pretrained once", ((0, 2), 1), "parameter")
    picture.arrow(read, body, sides=("top", "bottom"))
    heads = {
        "masked words": ("the vector at [MASK]", "which word?", "value"),
        "a label for a word": ("the vector of the word", "name? animal? thing? place?", "key"),
        "a label for a text": ("the vector at [CLS]", "does it end well?", "query"),
    }
    for column, (name, (source, answer, role)) in enumerate(heads.items()):
        head = picture.box(name, (column, 0), role, note=f"reads {source}", width=210)
        out = picture.text(answer, (column, -1))
        picture.arrow(picture.point((column, 0.8)), head, role=role, sides=("top", "bottom"), thickness=2)
        picture.arrow(head, out, sides=("top", "bottom"))
    alt = "; ".join(f"{name} reads {source} and answers: {answer}" for name, (source, answer, _) in heads.items())
    return picture.figure(), f"Three heads on one body. {alt}."


# ---- results ---------------------------------------------------------------------------------------------------------


def draw_filled(rows: Mapping[str, Mapping[str, float]], counts: Mapping[str, int]) -> Picture:
    """Shares of blanks filled correctly, a group of bars per kind; `counts` is the number of blanks of each."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 3.9))
    kinds = list(next(iter(rows.values())))
    grouped_bars(axes, rows, COLORS[::-1], width=0.84)
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


def draw_asked(frame: DataFrame, levels: Mapping[str, Mapping[str, float]]) -> Picture:
    """Blanks filled correctly during training, by what is masked, one line per run: overall and for three kinds.

    `levels` maps the name of each horizontal line to its share for each kind.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(11, 3.7), sharey=True)
    for axes, kind in zip(panels, ("all", "names", "things", "pronouns"), strict=True):
        for (name, part), color, marker in zip(frame.groupby("masked", sort=False), COLORS, MARKERS, strict=False):
            for number, curve in enumerate(part["curve"]):
                steps, shares = zip(*((point["step"], 100 * point[kind]) for point in curve), strict=True)
                axes.plot(steps, shares, color=color, marker=marker, linewidth=1.6, label="" if number else name)
        for (name, level), style in zip(levels.items(), ("--", ":"), strict=True):
            axes.axhline(100 * level[kind], color=SOFT, linestyle=style, linewidth=1.6, label=name)
        axes.set_title("all blanks" if kind == "all" else kind, fontsize=12)
        axes.set(xlabel="step", ylim=(0, 103), xlim=(0, 1.06 * steps[-1]), xticks=(0, steps[-1] // 2, steps[-1]))
    panels[0].set(ylabel="filled correctly (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Things come in a jump, and not in every run")
    said = "; ".join(
        f"{name}: " + ", ".join(f"{curve[-1]['all']:.0%} (things {curve[-1]['things']:.0%})" for curve in part["curve"])
        for name, part in frame.groupby("masked", sort=False)
    )
    lines = ", ".join(f"{name} {level['all']:.0%}" for name, level in levels.items())
    return figure, f"Shares of blanks filled correctly against steps, all and three kinds. At the end, {said}; {lines}."


# ---- fine-tuning -----------------------------------------------------------------------------------------------------

TAG_ROLES = ("query", "key", "value", "weight")  # one for each tag


def draw_tags(
    words: Sequence[str], tags: Sequence[str], right: Sequence[int], guesses: Mapping[str, Sequence[int]]
) -> Picture:
    """A text once per tagger, its tagged words colored by the predicted tag and struck through where it is wrong.

    `right` has a negative number for each word without a tag.
    """
    import matplotlib.pyplot as plt

    per_line = 13
    rows = -(-len(words) // per_line)
    figure, panels = plt.subplots(len(guesses), 1, figsize=(11, (0.36 * rows + 0.5) * len(guesses)))
    said = []
    for axes, (name, guessed) in zip(np.atleast_1d(panels), guesses.items(), strict=True):
        wrong = [position for position, tag in enumerate(right) if tag >= 0 and tag != guessed[position]]
        for position, word in enumerate(words):
            y, x = divmod(position, per_line)
            box = None
            if right[position] >= 0:
                role = ROLES[TAG_ROLES[guessed[position]]]
                box = {"boxstyle": "round,pad=0.25", "facecolor": role.fill, "edgecolor": role.edge, "linewidth": 1.2}
            text = f"{word} ✗" if position in wrong else word
            axes.text(x, -y, text, ha="center", va="center", fontsize=11, color=INK if box else SOFT, bbox=box)
        axes.set(xlim=(-0.6, per_line - 0.4), ylim=(0.6 - rows, 0.6))
        count = sum(tag >= 0 for tag in right)
        axes.set_title(f"{name}: {count - len(wrong)} of {count} right", fontsize=12)
        axes.axis("off")
        said.append(f"{name}: {count - len(wrong)} of {count} right")
    handles = [
        plt.Line2D(
            [],
            [],
            marker="s",
            linestyle="none",
            markersize=11,
            label=tag,
            color=ROLES[role].fill,
            markeredgecolor=ROLES[role].edge,
        )
        for tag, role in zip(tags, TAG_ROLES, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(tags), frameon=False)
    return figure, f"A new story with words colored by the kind that a tagger gives them. {'; '.join(said)}."


STARTS = {  # how each start is drawn
    "pretrained": (COLORS[0], "o", "pretrained, then fine-tuned"),
    "from scratch": (COLORS[1], "s", "the same model from scratch"),
    "embeddings alone": (COLORS[2], "^", "pretrained embeddings, no blocks"),
    "look-up": (COLORS[3], "D", "looking up the labels, no network"),
    "majority": (SOFT, "v", "always the commonest tag"),
}


def draw_few_labels(tasks: dict[str, DataFrame]) -> Picture:
    """Share of correct tags against the number of labels, one panel per task: a mark per seed, lines through means."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(tasks), figsize=(10, 3.7), sharey=True)
    said, handles = [], {}
    for axes, (title, frame) in zip(panels, tasks.items(), strict=True):
        counts = sorted(set(frame["labels"]))
        for start in (start for start in STARTS if start in set(frame["start"])):
            color, marker, name = STARTS[start]
            rows = frame[frame["start"] == start]
            means = [100 * rows[rows["labels"] == count]["all"].mean() for count in counts]
            (handles[name],) = axes.plot(range(len(counts)), means, color=color, marker=marker)
            positions = [counts.index(count) for count in rows["labels"]]
            axes.plot(positions, 100 * rows["all"], color=color, linestyle="none", marker=marker, alpha=0.35)
            shares = ", ".join(f"{mean:.0f}% with {count}" for mean, count in zip(means, counts, strict=True))
            said.append(f"{title}, {name} {shares}")
        axes.set_title(title, fontsize=12)
        axes.set(xlabel="labels", ylim=(0, 103), xlim=(-0.3, len(counts) - 0.7))
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    panels[0].set(ylabel="right (%)")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("A word's kind is in its embedding; its role in the story is not")
    return figure, f"Right tags against the number of labels. {'; '.join(said)}."
