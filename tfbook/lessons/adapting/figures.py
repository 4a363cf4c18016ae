"""Figures of lesson 11: LoRA, gain against forgetting, GPT-1's input formats, few-shot prompts, routing and spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.plot.house import COLORS, INK, MARKERS, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

    Picture = tuple[Figure, str]


NAMES = {"full": "full", "last": "last layer", "lora": "LoRA"}
LOOKS = {  # color, marker, and offsets in points: of a rate from its point, of the name from the first point
    "full": (COLORS[0], MARKERS[0], (-11, -3), (-4, -16)),
    "lora": (COLORS[1], MARKERS[1], (11, -1), (24, -15)),
    "last": (COLORS[2], MARKERS[2], (3, 10), (-16, 50)),
}

# ---- fine-tuning -----------------------------------------------------------------------------------------------------


def draw_curves(curve: Sequence[tuple[int, float, float]], even: float) -> Picture:
    """Losses on plays and on tales during fine-tuning; first values beyond the axis are written at its edge."""
    import matplotlib.pyplot as plt

    steps, new, old = (list(each) for each in zip(*curve, strict=True))
    figure, axes = plt.subplots(figsize=(7.6, 3.8))
    axes.plot(steps, new, color=COLORS[0], marker=MARKERS[0])
    axes.plot(steps, old, color=COLORS[1], marker=MARKERS[1])
    axes.axhline(even, color=SOFT, linestyle="--", linewidth=1.2)
    right = steps[-1]
    axes.text(right, even + 0.15, "a uniform guess", ha="right", va="bottom", fontsize=10, color=SOFT)
    near = abs(new[-1] - old[-1]) < 0.8
    upper = 0.4 if near else 0.0
    for values, name, color in ((new, "plays", COLORS[0]), (old, "tales", COLORS[1])):
        shift = upper if values[-1] == max(new[-1], old[-1]) else -upper
        axes.text(right * 1.03, values[-1] + shift, name, color=color, va="center", fontsize=10.5)
    axes.set(title="Plays are learned, and tales are forgotten", xlabel="step of fine-tuning")
    axes.set(ylabel="held-out loss (nats per token)", ylim=(0, max(new) + 0.8), xlim=(-1, right * 1.14))
    alt = (
        f"Held-out loss against steps: on plays from {new[0]:.1f} to {new[-1]:.1f} nats per token, on tales from "
        f"{old[0]:.2f} to {old[-1]:.2f}; a uniform guess would cost {even:.1f}."
    )
    return figure, alt


def draw_lora() -> Picture:
    """The input, the frozen matrix, the two thin matrices of LoRA beside it, and the sum of the two paths."""
    from tfbook.plot import Schematic

    picture = Schematic("LoRA: a narrow detour around a frozen matrix", gap=(46, 34))
    x = picture.matrix((6, 1), (0, (0, 1)), "stream", label="x", shape="d_in")
    frozen = picture.matrix((6, 6), ((1, 2), 0), "stream", label="W, frozen", shape="d_out × d_in")
    A = picture.matrix((2, 6), (1, 1), "parameter", label="A, random at first", shape="r × d_in")
    B = picture.matrix((6, 2), (2, 1), "parameter", label="B, zeros at first", shape="d_out × r")
    plus = picture.circle("+", (3, (0, 1)))
    h = picture.matrix((6, 1), (4, (0, 1)), "stream", label="h", shape="d_out")
    picture.arrow(x, frozen)
    picture.arrow(x, A.column(0))
    picture.arrow(A.column(5), B.column(0), "r numbers")
    picture.arrow(frozen, plus)
    picture.arrow(B.column(1), plus, "times α / r", label_side="right")
    picture.arrow(plus, h)
    alt = (
        "The input x goes through the frozen matrix W, d_out by d_in, and through a detour of two thin trained "
        "matrices, A with r rows and then B with r columns; the detour times alpha over r is added to W x."
    )
    return picture.figure(), alt


def undominated(runs: DataFrame) -> DataFrame:
    """The runs that no other run beats on both losses, sorted by their loss on plays."""
    runs = runs.sort_values("new")
    return runs[runs["old"] <= runs["old"].cummin()]


def draw_frontier(frame: DataFrame) -> Picture:
    """Loss on tales against loss on plays: one line per method, from its lowest learning rate to its best one.

    Every run is a small dot, and the mean at each rate a marker: filled up to the best rate, which is ringed, and
    hollow beyond. The baseline that trains only the new words appears at its best rate alone. A vertical line marks
    LoRA's lowest loss on plays, and an arrow on it shows how much more LoRA forgets there than full fine-tuning,
    interpolated between two of its rates.
    """
    import matplotlib.pyplot as plt

    before = frame.iloc[0]
    by_rate = {name: runs.groupby("lr")[["new", "old"]].mean() for name, runs in frame.groupby("method")}
    lora, words = (by_rate[name].loc[by_rate[name]["new"].idxmin()] for name in ("lora", "rows"))
    figure, axes = plt.subplots(figsize=(8.6, 5))
    axes.set(xscale="log", yscale="log", xlim=(0.4, 10.5), ylim=(0.42, 14))
    said = []
    for name in LOOKS:
        runs, (color, marker, beside, offset) = frame[frame["method"] == name], LOOKS[name]
        means, best = by_rate[name], by_rate[name]["new"].idxmin()
        up, beyond = means.loc[:best], means[means.index > best]
        axes.scatter(runs["new"], runs["old"], color=color, s=7, alpha=0.5, linewidths=0)
        axes.plot(up["new"], up["old"], color=color, marker=marker, markersize=6, linewidth=1.8)
        axes.plot(beyond["new"], beyond["old"], color=color, marker=marker, mfc="none", markersize=6, linestyle="none")
        axes.scatter(means["new"][best], means["old"][best], s=150, facecolors="none", edgecolors=color, linewidths=1.8)
        for lr, point in means.iterrows():
            label = axes.annotate(f"{lr:g}", tuple(point), xytext=beside, textcoords="offset points", fontsize=8.5)
            label.set(ha="left" if beside[0] > 0 else "right", va="center", color=color)
        axes.annotate(NAMES[name], tuple(up.iloc[0]), xytext=offset, textcoords="offset points", **_bold(color))
        said += [f"{NAMES[name]} at {lr:g}: plays {x:.2f}, tales {y:.2f}" for lr, (x, y) in means.iterrows()]
    said.append(_draw_gap(axes, undominated(by_rate["full"]), lora))
    for point, name, color, marker in ((words, "new words alone", SOFT, "d"), (before, "before", INK, "*")):
        axes.plot([point["new"]], [point["old"]], color=color, marker=marker, markersize=8, linestyle="none")
        where = (point["new"], point["old"])
        axes.annotate(name, where, xytext=(0, 13), textcoords="offset points", **_bold(color))
        said.append(f"{name}: plays {point['new']:.2f}, tales {point['old']:.2f}")
    for axis, ticks in ((axes.xaxis, (0.5, 1, 2, 4, 8)), (axes.yaxis, (0.5, 1, 2, 4, 8))):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set(title="At equal loss on plays, full fine-tuning forgets less than LoRA of rank 2")
    axes.set(xlabel="loss on plays (nats per token)", ylabel="loss on tales (nats per token)")
    return figure, f"Loss on tales against loss on plays, means over seeds: {'; '.join(said)}."


def _draw_gap(axes: Axes, full: DataFrame, lora: Series) -> str:
    """A vertical line at LoRA's lowest loss on plays, and an arrow from full fine-tuning's curve up to LoRA."""
    equal, top = float(lora["new"]), float(lora["old"])
    gap = top - float(np.interp(equal, full["new"], full["old"]))  # linear, as in claim 4
    bottom = float(np.exp(np.interp(np.log(equal), np.log(full["new"]), np.log(full["old"]))))
    arrow = {"arrowstyle": "<->", "color": INK, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.axvline(equal, color=SOFT, linestyle="--", linewidth=1.2, zorder=0)
    axes.annotate("", (equal, bottom), xytext=(equal, top), arrowprops=arrow)
    axes.text(equal * 1.03, bottom * 1.09, f"≥ {gap:.1f} nats", va="center", fontsize=9, color=INK)
    axes.text(equal * 0.97, 0.46, "equal loss on plays", ha="right", va="center", fontsize=10, color=SOFT)
    return f"at equal loss on plays, {equal:.2f}, LoRA's loss on tales is at least {gap:.1f} nats more than full's"


def draw_ranks(ranks: DataFrame, dialect: DataFrame) -> Picture:
    """LoRA's losses on plays and on tales by rank, each at its best learning rate: marks are seeds, lines are means.

    Dashed lines show full fine-tuning: its mean at its best rate, and its loss on tales, `full`, at LoRA's loss on
    plays.
    """
    import matplotlib.pyplot as plt

    means = ranks.pivot_table(index="rank", columns="lr", values="new")
    runs = ranks[ranks["lr"] == ranks["rank"].map(means.idxmin(axis=1))]
    best = runs.groupby("rank")[["new", "old", "full"]].mean()
    full = float(dialect[dialect["method"] == "full"].groupby("lr")["new"].mean().min())
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    (lora, marker, *_), (blue, round_marker, *_) = LOOKS["lora"], LOOKS["full"]
    for axes, column, what in ((left, "new", "plays"), (right, "old", "tales")):
        axes.plot(best.index, best[column], color=lora, marker="none", linewidth=1.8)
        axes.scatter(runs["rank"], runs[column], color=lora, marker=marker, s=22, alpha=0.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks(best.index, [str(rank) for rank in best.index])
        axes.set(xlabel="rank of LoRA", ylabel=f"loss on {what} (nats per token)")
    left.axhline(full, color=blue, linestyle="--", linewidth=1.4)
    left.text(best.index[0], full + 0.01, "full fine-tuning", va="bottom", fontsize=10, color=blue)
    left.set(ylim=(full - 0.08, runs["new"].max() + 0.05))
    left.set_title("Each doubling of the rank helps less", fontsize=11.5)
    right.plot(best.index, best["full"], color=blue, marker="none", linestyle="--", linewidth=1.4)
    right.scatter(runs["rank"], runs["full"], color=blue, marker=round_marker, s=16, alpha=0.6)
    right.set(ylim=(0, max(runs["old"].max(), runs["full"].max()) + 0.4))
    right.text(best.index[0], best["old"].iloc[0] + 0.14, "LoRA", va="bottom", fontsize=10, color=lora)
    low = best["full"].iloc[0] - 0.14
    right.text(best.index[0], low, "full fine-tuning at the\nsame loss on plays", va="top", fontsize=10, color=blue)
    right.set_title("The extra forgetting shrinks", fontsize=11.5)
    said = "; ".join(
        f"rank {rank}: plays {row['new']:.2f}, tales {row['old']:.2f}, full fine-tuning's there {row['full']:.2f}"
        for rank, row in best.iterrows()
    )
    return figure, f"LoRA's losses by rank, means over seeds: {said}. Full fine-tuning's best on plays: {full:.2f}."


def _bold(color: str) -> dict[str, Any]:
    return {"color": color, "ha": "center", "va": "center", "fontsize": 11, "weight": "bold"}


# ---- judging ---------------------------------------------------------------------------------------------------------

INPUTS = {
    "one text": (["Start", "text", "Extract"],),
    "does B follow from A?": (["Start", "A", "Delim", "B", "Extract"],),
    "are A and B alike?": (["Start", "A", "Delim", "B", "Extract"], ["Start", "B", "Delim", "A", "Extract"]),
    "which answer is right?": tuple(["Start", "question", "Delim", f"answer {n}", "Extract"] for n in (1, 2)),
}


def draw_transformations() -> Picture:
    """GPT-1's four ways to write a task as text, and where the head reads (Radford et al., 2018, figure 1)."""
    from tfbook.plot import Schematic

    picture = Schematic("Every task becomes texts that end with Extract", gap=(34, 16))
    row = 0
    for name, texts in INPUTS.items():
        last = row + len(texts) - 1
        picture.text(name, (0, (row, last)), align="left", weight="bold")
        ends = []
        for words in texts:
            chips = picture.tokens(words, (1, row), "stream", width=76)
            model = picture.box("GPT", (2, row), "plain", width=52)
            picture.arrow(chips, model)
            ends.append(model)
            row += 1
        what = {1: "head", 2: "add, head" if "alike" in name else "score each, softmax"}[len(texts)]
        head = picture.box(what, (3, (row - len(texts), last)), "parameter", width=172)
        for model in ends:
            picture.arrow(model, head, sides=("right", "left"))
    alt = (
        "Four tasks as token sequences: one text; a pair with a delimiter; a pair in both orders, whose vectors are "
        "added; and a question with each answer, whose scores go through a softmax. Each ends with Extract, passes "
        "through the same GPT and then a head."
    )
    return picture.figure(), alt


def draw_judging(frame: DataFrame) -> Picture:
    """Accuracy by number of labels, from scratch and pretrained, with the range over seeds and λ."""
    import matplotlib.pyplot as plt

    from tfbook.plot.curves import label_ends

    figure, axes = plt.subplots(figsize=(8, 4.2))
    runs = frame[frame["labels"] > 0]
    scratch = runs["kind"] == "from scratch"
    lines = (("from scratch", runs[scratch], COLORS[3]), ("pretrained, any λ", runs[~scratch], COLORS[0]))
    for marker, (name, own, color) in zip(MARKERS, lines, strict=False):
        by = own.groupby("labels")["accuracy"]
        axes.plot(by.mean().index, by.mean(), color=color, marker=marker, label=name)
        axes.fill_between(by.mean().index, by.min(), by.max(), color=color, alpha=0.15, linewidth=0)
    yes = float(frame["accuracy"].iloc[0])
    axes.axhline(yes, color=SOFT, linestyle="--", linewidth=1.2)
    labels = sorted(runs["labels"].unique())
    axes.text(labels[0], yes - 0.012, "always yes", fontsize=10, color=SOFT, va="top")
    axes.set(xscale="log", ylim=(0.4, 1.05), xlim=(labels[0] * 0.9, labels[-1] * 1.05))
    axes.set_xticks(labels, [str(n) for n in labels])
    axes.set_yticks([0.4, 0.6, 0.8, 1.0], ["40%", "60%", "80%", "100%"])
    axes.minorticks_off()
    axes.set(title="Pretraining replaces labels", xlabel="labeled stories", ylabel="right on new stories")
    label_ends(axes, gap=0.065)
    means = runs.groupby(["kind", "labels"])["accuracy"].mean()
    said = ", ".join(f"{kind} with {n} labels {value:.0%}" for (kind, n), value in means.items())
    return figure, f"Accuracy against the number of labels, means: {said}; always yes {yes:.0%}."


# ---- examples in the prompt ------------------------------------------------------------------------------------------


def draw_shots(frame: DataFrame, perfect: Sequence[float]) -> Picture:
    """Accuracy by number of lines before the question: means early in pretraining, and each run at its end."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.4))
    moments = sorted(frame["step"].unique())
    early, last = moments[:3], moments[-1]
    shades = [plt.get_cmap("Blues")(depth) for depth in np.linspace(0.6, 0.85, len(early))]
    for step, color in zip(early, shades, strict=True):
        mean = frame[frame["step"] == step].groupby("shots")["accuracy"].mean()
        axes.plot(mean.index, mean, color=color, marker="o", label=f"{step:,} steps", markersize=4)
    for number, (_, run) in enumerate(frame[frame["step"] == last].groupby("seed")):
        name = "_" if number else f"{last:,} steps, each run"
        axes.plot(run["shots"], run["accuracy"], color=COLORS[1], marker=MARKERS[number], label=name, markersize=4)
    axes.axhline(perfect[0], color=SOFT, linestyle=":", linewidth=1.4)
    axes.text(len(perfect) - 1, perfect[0] - 0.02, "chance", ha="right", va="top", fontsize=10, color=SOFT)
    axes.plot(range(len(perfect)), perfect, color=INK, linestyle="--", marker="none", label="perfect memory")
    axes.set(title="Examples help, once the model has learned to use them", ylim=(-0.06, 1.03))
    axes.set(xlabel="lines of the list before the question (shots)", ylabel="right place")
    axes.set_xticks(range(0, len(perfect), 2))
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    from tfbook.plot.curves import label_ends

    label_ends(axes, gap=0.065)
    ends = frame[frame["shots"] == frame["shots"].max()].groupby("step")["accuracy"].mean()
    said = ", ".join(f"{share:.0%} after {step:,} steps" for step, share in ends.items())
    return figure, f"Accuracy against the number of examples; with {len(perfect) - 1} examples: {said}."


# ---- a mixture of experts --------------------------------------------------------------------------------------------


def draw_routing(words: Sequence[str], probabilities: Sequence[Sequence[float]]) -> Picture:
    """Tokens, the router's probabilities with each first choice outlined, and the experts that process the tokens."""
    from tfbook.plot import Schematic

    table = np.asarray(probabilities, float)
    count = table.shape[1]
    chosen = table.argmax(axis=1)
    picture = Schematic("The router sends each token to one expert", gap=(52, 18))
    tokens = picture.matrix((len(words), 1), (0, (0, count - 1)), "stream", cell=(40, 30), rows=words, label="tokens")
    names = [f"{i + 1}" for i in range(count)]
    weights = picture.matrix(
        table, (1, (0, count - 1)), "weight", cell=(46, 30), numbers="{:.2f}", columns=names, label="p, by expert"
    )
    picture.arrow(tokens, weights, "router")
    outputs = picture.matrix((len(words), 1), (3, (0, count - 1)), "stream", cell=(40, 30), label="output")
    for i in range(count):
        taken = [word for word, expert in zip(words, chosen, strict=True) if expert == i]
        role = ("query", "key", "value")[i % 3]
        box = picture.box(f"expert {i + 1}", (2, i), role, note=", ".join(taken) or "idle", width=130)
        for row in np.flatnonzero(chosen == i):
            picture.arrow(weights.cell(int(row), count - 1), box, role=role, sides=("right", "left"))
            picture.arrow(box, outputs.cell(int(row), 0), role=role, sides=("right", "left"))
    picture.outline(*(weights.cell(row, int(expert)) for row, expert in enumerate(chosen)))
    said = "; ".join(f"{word} to expert {expert + 1}" for word, expert in zip(words, chosen, strict=True))
    return picture.figure(), f"Probabilities of a router for each token and expert; the largest is outlined: {said}."


# ---- spans -----------------------------------------------------------------------------------------------------------


def draw_spans(words: Sequence[str], cut: Sequence[bool], source: Sequence[str], target: Sequence[str]) -> Picture:
    """A text with spans to cut, the text with sentinels in their place, and the target that must be written."""
    from tfbook.plot import Schematic

    picture = Schematic("T5 cuts spans and asks for them", gap=(24, 30))
    width = 52
    shown = [("the text", list(words)), ("read", list(source)), ("written", list(target))]
    for row, (name, chips) in enumerate(shown):
        picture.text(name, (0, row), align="left", weight="bold")
        tokens = picture.tokens(chips, (1, row), ("stream", "query", "value")[row], width=width)
        if row == 0:
            picture.outline(*(tokens.column(i) for i, gone in enumerate(cut) if gone))
    alt = f"The text {' '.join(words)}; read: {' '.join(source)}; written: {' '.join(target)}."
    return picture.figure(), alt


# ---- three tasks as texts --------------------------------------------------------------------------------------------

PANELS = {
    "answer": ("answer a question", "right answers"),
    "restore": ("restore cut spans", "right words"),
    "retell": ("retell as a play", "right texts"),
}


def draw_texts(frame: DataFrame) -> Picture:
    """Scores of each model on three tasks, one dot per seed; dashed lines mark baselines that need no reading."""
    import matplotlib.pyplot as plt

    blind, runs = frame.iloc[0], frame.iloc[1:]
    kinds = list(dict.fromkeys(runs["kind"]))
    figure, panels = plt.subplots(1, len(PANELS), figsize=(9, 2.9), sharey=True)
    for axes, (task, (name, unit)) in zip(panels, PANELS.items(), strict=True):
        for row, (kind, color) in enumerate(zip(kinds, COLORS, strict=False)):
            own = runs.loc[runs["kind"] == kind, task]
            axes.plot(own, [row] * len(own), color=color, marker=MARKERS[row], linestyle="none", alpha=0.6)
            axes.plot([own.mean()] * 2, [row - 0.3, row + 0.3], color=color, linewidth=2.2, marker="none")
        axes.axvline(blind[task], color=SOFT, linestyle="--", linewidth=1.2)
        axes.set_xlim(-0.05, 1.05)
        axes.set_xticks([0, 0.5, 1], ["0", "50%", "100%"])
        axes.set_xlabel(unit)
        axes.set_title(name, fontsize=11, loc="center")
    panels[0].set_yticks(range(len(kinds)), kinds)
    panels[0].set_ylim(len(kinds) - 0.4, -0.6)
    title = "The encoder–decoder restores more words, and the mask changes little"
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=plt.rcParams["axes.titlesize"])
    means = runs.groupby("kind", sort=False)[list(PANELS)].mean()
    said = "; ".join(
        f"{kind}: " + ", ".join(f"{task} {share:.0%}" for task, share in row.items()) for kind, row in means.iterrows()
    )
    return figure, f"Shares on three tasks, means over seeds: {said}; without reading: " + ", ".join(
        f"{task} {blind[task]:.0%}" for task in PANELS
    )
