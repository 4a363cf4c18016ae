"""A text in lines, its words shaded by attention weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tfbook.plot.house import ROLES, literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Picture = tuple[Figure, str]


SAID = 0.15  # a weight that is written


def shaded_text(
    words: Sequence[str], steps: Mapping[str, tuple[int, Sequence[float]]], *, per_line: int = 14
) -> Picture:
    """A text in lines, repeated for each step: the reading word outlined, and every word shaded by its weight.

    Large weights are written beside their words. An arrow leads from a reading word to the word with its largest weight
    if that is the reading word of the next step.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import ConnectionPatch

    rows = math.ceil(len(words) / per_line)
    figure, grid = plt.subplots(len(steps), 1, figsize=(11, (0.34 * rows + 0.5) * len(steps)), squeeze=False)
    panels = grid[:, 0]
    for axes, (title, (reader, weights)) in zip(panels, steps.items(), strict=True):
        for number, (word, weight) in enumerate(zip(words, weights, strict=True)):
            fill, ink = ROLES["weight"].shade(float(weight))
            edge = ROLES["query"].edge if number == reader else "none"
            y, x = divmod(number, per_line)
            said = literal(f"{word} {weight:.2f}" if weight >= SAID else word)
            box = {"boxstyle": "round,pad=0.25", "facecolor": fill, "edgecolor": edge, "linewidth": 2.2}
            axes.text(x, -y, said, ha="center", va="center", color=ink, fontsize=11, bbox=box)
        axes.set(xlim=(-0.6, per_line - 0.4), ylim=(0.6 - rows, 0.6))
        axes.set_title(
            title, fontsize=12, bbox={"facecolor": "white", "edgecolor": "none", "pad": 2}
        )  # hides the arrow
        axes.axis("off")
    for (upper, lower), ((_, weights), (reader, _)) in zip(pairwise(panels), pairwise(steps.values()), strict=True):
        if int(np.argmax(weights)) != reader:
            continue
        y, x = divmod(reader, per_line)
        figure.add_artist(
            ConnectionPatch(
                (x + 0.34, -y),
                (x + 0.12, -y),
                coordsA=upper.transData,
                coordsB=lower.transData,
                arrowstyle="-|>",
                connectionstyle="arc3,rad=-0.12",
                color=ROLES["query"].edge,
                linewidth=2,
                mutation_scale=16,
                zorder=-1,
            )
        )
    found = []
    for title, (reader, weights) in steps.items():
        most = int(np.argmax(weights))
        found.append(f"{title}: “{words[reader]}” looks most at “{' '.join(words[max(0, most - 1) : most + 1])}”")
    return figure, f"A story whose words are shaded by attention weights. {'; '.join(found)}."
