"""Figures of lesson 18: a hop in numbers, what hops are worth and where they look, stories with their facts lit up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tfbook.data.stories.errands import ASKING, FACTS
from tfbook.lessons.memory.machine_figures import (
    MACHINE_ALTS as MACHINE_ALTS,
    draw_addressing as draw_addressing,
    draw_copying as draw_copying,
    draw_hull as draw_hull,
    draw_pointing as draw_pointing,
    draw_pondering as draw_pondering,
    draw_shares as draw_shares,
    draw_tape as draw_tape,
    draw_write as draw_write,
)
from tfbook.plot.house import BROWN, COLORS, INK, KHAKI, RED, ROLES, Method
from tfbook.plot.schematic import Schematic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.plot import AskedStory

    Picture = tuple[Figure, str]

KINDS_LOOK = {  # one color and marker for each kind of question, in all figures
    kind: Method(color, marker) for kind, color, marker in zip(ASKING, (KHAKI, BROWN, RED, INK), "osD^", strict=True)
}
BESIDE = {"person": 4.0, "holder": -4.0}  # two lines that lie on each other: one label above, one below
LINKS = {"first fact": ROLES["key"].dark, "second fact": ROLES["weight"].dark, "other sentences": "#d5d9de"}

# ---- one hop, in numbers ---------------------------------------------------------------------------------------------


def draw_hop(
    sentences: Sequence[str], features: Sequence[str], query: Tensor, addresses: Tensor, contents: Tensor
) -> Picture:
    """Sentences as rows: address, score, weight and content; below, the query, the mixture and their sum."""
    scores = addresses @ query
    weights = torch.softmax(scores, dim=-1)
    mixture = weights @ contents
    picture = Schematic("One hop: ask, weigh, fetch, add", gap=(24, 30))
    look: dict[str, Any] = {"cell": (42, 28), "numbers": "{:.1f}"}
    m = picture.matrix(addresses, (0, 0), "key", label="addresses $m_i$", columns=features, rows=sentences, **look)
    e = picture.matrix(scores[:, None], (1, 0), "weight", label="scores", shape="$m_i \\cdot u$", **look)
    look["numbers"] = "{:.2f}"
    p = picture.matrix(weights[:, None], (2, 0), "weight", label="weights $p_i$", shape="sum to 1", **look)
    look["numbers"] = "{:.1f}"
    c = picture.matrix(contents, (3, 0), "value", label="contents $c_i$", columns=features, **look)
    u = picture.matrix(query[None], (0, 1), "query", shape="question $u$", **look)
    o = picture.matrix(mixture[None], (3, 1), "value", shape="fetched: $o = \\sum_i p_i c_i$", **look)
    plus = picture.circle("+", ((1, 2), 1))
    new = picture.matrix((query + mixture)[None], ((1, 2), 2), "query", shape="next question: $u + o$", **look)
    picture.arrow(m, e, "", "weight")
    picture.arrow(e, p, "softmax", "weight")
    picture.arrow(p, c, "", "weight")
    picture.arrow(u, m, "", "query", sides=("top", "bottom"))
    picture.arrow(c, o, "", "value")
    picture.arrow(u, plus, "", "query")
    picture.arrow(o, plus, "", "value")
    picture.arrow(plus, new, "", "query")
    return picture.figure(), (
        f"A hop with {len(sentences)} sentences, one per row: address, score, weight {_listed(weights)}, and content. "
        f"Below, the question {_listed(query)}, the fetched vector {_listed(mixture)}, and their sum."
    )


def _listed(vector: Tensor) -> str:
    return "(" + ", ".join(f"{x:.2f}" for x in vector.tolist()) + ")"


# ---- hops: accuracy, and where they look -----------------------------------------------------------------------------


def draw_hops(frame: DataFrame) -> Picture:
    """Accuracy by number of hops for each kind of question, mean and range of the seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4))
    readers = ["1 hop", "2 hops", "3 hops"]
    for kind, look in KINDS_LOOK.items():
        shares = [[100 * right[kind] for right in frame[frame["reader"] == name]["right"]] for name in readers]
        means = [float(np.mean(each)) for each in shares]
        line = "-" if FACTS[kind] == 2 else "--"
        axes.plot((1, 2, 3), means, marker=look.marker, color=look.color, linestyle=line)
        axes.fill_between((1, 2, 3), [min(s) for s in shares], [max(s) for s in shares], color=look.color, alpha=0.2)
        at = means[0] + BESIDE.get(kind, 0.0)
        axes.text(0.95, at, f"{ASKING[kind]}?", color=look.color, ha="right", va="center")
    axes.set(
        title="A second hop finds the second fact",
        xlabel="hops",
        ylabel="right answers (%)",
        xticks=(1, 2, 3),
        xlim=(0.05, 3.1),
        ylim=(0, 107),
    )
    return figure, (
        "Right answers against the number of hops. Questions that follow from one fact (dashed) are near 100% with one "
        "hop. Questions that follow from two facts (solid) rise steeply from one hop to two."
    )


def draw_looks(frame: DataFrame, kind: str = "thing") -> Picture:
    """For each network and hop: how much of the attention lies on the first fact, on the second, and elsewhere."""
    import matplotlib.pyplot as plt

    readers = ["1 hop", "2 hops", "3 hops"]
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True, width_ratios=(1, 2, 3))
    for axes, name in zip(panels, readers, strict=True):
        found = np.array([looks[kind] for looks in frame[frame["reader"] == name]["looks"]])  # seed, hop, link
        _stack(axes, 100 * found.mean(axis=0), name)
    panels[0].set_ylabel("attention (%)")
    panels[2].legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    figure.suptitle(
        "Two hops read one fact after the other; a single hop spreads",
        x=0.01,
        ha="left",
        fontweight="bold",
        fontsize=12,
    )
    return figure, (
        f"Stacked bars of attention on the first fact, on the second fact, and elsewhere, for “{ASKING[kind]}?”: each "
        "hop of networks with one, two, and three hops. The single hop looks mostly elsewhere; with more, the "
        "first hop looks at the first fact and the next ones at the second."
    )


def _stack(axes: Axes, shares: np.ndarray, name: str) -> None:
    rest = 100 - shares.sum(axis=1)
    bottom = np.zeros(len(shares))
    for (label, color), heights in zip(LINKS.items(), (*shares.T, rest), strict=True):
        axes.bar(range(1, len(shares) + 1), heights, 0.7, bottom=bottom, color=color, label=label)
        for x, (height, base) in enumerate(zip(heights, bottom, strict=True), start=1):
            if height >= 9:
                ink = "white" if label == "second fact" else "black"
                axes.text(x, base + height / 2, f"{height:.0f}", ha="center", va="center", color=ink, fontsize=10)
        bottom += heights
    axes.set(title=name, xlabel="hop", xticks=range(1, len(shares) + 1), ylim=(0, 100))
    axes.grid(visible=False)


# ---- stories with their facts lit up ---------------------------------------------------------------------------------


def draw_readings(stories: Sequence[tuple[Sequence[str], AskedStory, Sequence[int], str]]) -> Picture:
    """For each story: its sentences, and the weight of each hop on each; boxes mark the facts."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    rows = max(len(sentences) for sentences, *_ in stories)
    figure, panels = plt.subplots(1, len(stories), figsize=(5.3 * len(stories), 0.36 * rows + 1.5), squeeze=False)
    for axes, (sentences, asked, facts, truth) in zip(panels[0], stories, strict=True):
        weights = np.array(asked.weights).T
        axes.imshow(weights, cmap="Purples", vmin=0, vmax=1, aspect="auto")
        wrong = "" if asked.answer == truth else f" (wrong: {truth})"
        axes.set(title=f"{asked.question}\n→ {asked.answer}{wrong}", xlabel="hop")
        axes.set_xticks(range(weights.shape[1]), [str(hop + 1) for hop in range(weights.shape[1])])
        axes.set_yticks(range(len(sentences)), sentences, fontsize=9.5)
        axes.grid(visible=False)
        for (row, hop), weight in np.ndenumerate(weights):
            if weight >= 0.1:
                axes.text(hop, row, f"{100 * weight:.0f}", ha="center", va="center", fontsize=9,
                          color="white" if weight > 0.55 else "black")  # fmt: skip
        for row in facts:
            box = Rectangle((-0.5, row - 0.5), weights.shape[1], 1, fill=False, edgecolor=COLORS[1], linewidth=2.2)
            axes.add_patch(box)
    return figure, "; ".join(
        f"“{asked.question}” {asked.answer}: hops look most at “{'”, “'.join(_most(sentences, asked))}”"
        for sentences, asked, *_ in stories
    )


def _most(sentences: Sequence[str], asked: AskedStory) -> list[str]:
    return [sentences[int(np.argmax(hop))] for hop in asked.weights]
