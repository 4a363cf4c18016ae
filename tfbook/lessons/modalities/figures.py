"""Figures of lesson 19: four tokenizers before one stack, a row as tokens, contests on tables, the scoreboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from tfbook.lessons.modalities.asking_figures import draw_answers as draw_answers, draw_joined as draw_joined
from tfbook.lessons.modalities.graph_figures import (
    draw_codes as draw_codes,
    draw_friends as draw_friends,
    draw_hops as draw_hops,
    draw_mask as draw_mask,
    draw_rings as draw_rings,
    layout as layout,
    steps_apart as steps_apart,
)
from tfbook.lessons.modalities.picture_figures import (
    PICTURE_ALTS as PICTURE_ALTS,
    draw_found as draw_found,
    draw_places as draw_places,
    draw_swaps as draw_swaps,
    draw_two_towers as draw_two_towers,
)
from tfbook.lessons.modalities.sound_figures import (
    SOUND_ALTS as SOUND_ALTS,
    draw_chord as draw_chord,
    draw_digit_contest as draw_digit_contest,
    draw_from_wave_to_tokens as draw_from_wave_to_tokens,
    draw_read_back as draw_read_back,
    draw_voices as draw_voices,
)
from tfbook.plot.house import COLORS, EDGE, GREEN, INK, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.lessons.modalities.board import BoardRow

CONTEST_COLORS = {
    "FT-Transformer": COLORS[0],
    "boosted trees": COLORS[1],
    "linear model": COLORS[2],
    "MLP": GREEN,
    "trivial": COLORS[3],
}
FIGURE_ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "tables": "Differences of test scores on three tables: the linear model is level or ahead in eight of nine splits.",
    "reasons": "R² of four models at the stand: as it is, with 16 useless columns, and with its axes turned.",
    "hops": "Right clubs against 1, 2, 4, and 6 layers for three kinds of networks; all lines rise up to four layers.",
    "codes": "Right rings of three readers: with neighbors only, with Laplacian vectors, with return probabilities.",
}


def _bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


# ---- the idea --------------------------------------------------------------------------------------------------------

FIELDS = (  # name, the tool before, how it is cut
    ("a table", "boosted trees", "one token per column"),
    ("a graph", "graph convolutions", "one token per node"),
    ("a sound", "recurrent networks", "one token per strip\nof its spectrogram"),
    ("an image", "convolutions", "one token per patch"),
    ("a text", "recurrent networks", "one token per word piece"),
)


def draw_landscape() -> Figure:
    """Five kinds of things, the tools of each before Transformers, each cut in its pieces, and the one stack behind."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyBboxPatch

    figure, axes = plt.subplots(figsize=(9.8, 5.2), dpi=80)
    rows, arrow = len(FIELDS), {"arrowstyle": "-|>", "color": EDGE, "linewidth": 1.4}
    for number, ((name, before, cut), draw) in enumerate(zip(FIELDS, CUTS, strict=True)):
        y = rows - 1 - number
        axes.text(0, y, name, fontsize=11, va="center", fontweight="bold")
        axes.text(1.25, y, before, fontsize=10, va="center", color=SOFT)
        inset = axes.inset_axes((3.35, y - 0.4, 2.2, 0.8), transform=axes.transData)
        draw(inset)
        _bare(inset)
        axes.text(5.65, y, cut, fontsize=9, va="center")
        axes.annotate("", (7.62, y), (7.38, y), arrowprops=arrow)
    middle = (rows - 1) / 2
    box = FancyBboxPatch((7.72, -0.35), 1.05, rows - 0.3, boxstyle="round,pad=0.05", facecolor=ROLES["stream"].fill)
    box.set_edgecolor(SOFT)
    axes.add_patch(box)
    axes.text(8.25, middle, "the same\nblocks", fontsize=12, va="center", ha="center", fontweight="bold")
    axes.annotate("", (9.2, middle), (8.85, middle), arrowprops=arrow)
    axes.text(9.25, middle, "an\nanswer", fontsize=11, va="center")
    for x, title in ((1.25, "the tool before"), (3.35, "cut into tokens")):
        axes.text(x, rows - 0.4, title, fontsize=9.5, color=INK, style="italic")
    axes.set(xlim=(-0.1, 9.9), ylim=(-0.5, rows - 0.2))
    _bare(axes)
    axes.set_title("One way to cut each thing, and one stack for all of them")
    figure.set_label("schematic")
    return figure


def _cells(axes: Axes, cells: Sequence[str]) -> None:
    from matplotlib.patches import Rectangle

    for place, cell in enumerate(cells):
        axes.add_patch(Rectangle((place + 0.05, 0.25), 0.9, 0.5, facecolor="white", edgecolor=COLORS[0]))
        axes.text(place + 0.5, 0.48, cell, ha="center", va="center", fontsize=8.5)
    axes.set(xlim=(0, len(cells)), ylim=(0, 1))


def _a_row(axes: Axes) -> None:
    _cells(axes, ("34.1°", "10.4 h", "$4.50".replace("$", r"\$"), "sun"))


def _a_text(axes: Axes) -> None:
    _cells(axes, ("to", "ken", "izer", "s"))


def _a_graph(axes: Axes) -> None:
    at = np.array([(0.0, 0.1), (0.3, 0.9), (0.9, 0.5), (1.6, 0.8), (1.7, 0.15), (2.4, 0.5)])
    for one, other in ((0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (2, 4), (3, 5)):
        axes.plot(*at[[one, other]].T, color=EDGE, marker="none", linewidth=1.2, zorder=1)
    axes.scatter(at[:, 0], at[:, 1], s=70, facecolor="white", edgecolor=COLORS[0], zorder=2, marker="o")
    axes.set(xlim=(-0.3, 2.7), ylim=(-0.2, 1.2))


def _a_sound(axes: Axes) -> None:
    from tfbook.data.spoken import Voice, recorded
    from tfbook.models.audio import log_mel

    bands = log_mel(recorded(6, Voice(pitch=115), start=0.3, noise=0.001))
    pieces = np.full((32, 80 + 19 * 2), np.nan)
    for piece in range(20):
        pieces[:, 6 * piece : 6 * piece + 4] = bands[:, 4 * piece : 4 * piece + 4]
    axes.imshow(pieces, origin="lower", aspect="auto", cmap="magma", interpolation="nearest", vmin=-6)


def _an_image(axes: Axes) -> None:
    from tfbook.data.scenes import SceneObject, compose

    scene = compose([SceneObject("fish", "red", 0.5, 0.5, size=0.7)], ground="sand", side=32)
    apart = np.ones((35, 35, 3))
    for row in range(4):
        for column in range(4):
            piece = scene.image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            apart[9 * row : 9 * row + 8, 9 * column : 9 * column + 8] = piece.permute(1, 2, 0)
    axes.imshow(apart, interpolation="nearest")


CUTS = (_a_row, _a_graph, _a_sound, _an_image, _a_text)


def draw_row_tokens(
    columns: Sequence[str], cells: Sequence[str], made: Sequence[str], tokens: Float[Tensor, "column d_model"]
) -> Figure:
    """A row of a table above its tokens: how each is `made`, and a strip of numbers under each column."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure, axes = plt.subplots(figsize=(7.6, 2.9))
    role = (ROLES["key"], ROLES["value"], ROLES["query"])
    for number, (column, cell, recipe, token) in enumerate(zip(columns, cells, made, tokens.tolist(), strict=True)):
        x, look = 2.4 * number, role[number % len(role)]
        axes.add_patch(Rectangle((x, 2.0), 1.9, 0.75, facecolor="white", edgecolor=EDGE))
        axes.text(x + 0.95, 2.95, column, ha="center", fontsize=10, color=SOFT)
        axes.text(x + 0.95, 2.37, cell, ha="center", va="center", fontsize=12, fontweight="bold")
        axes.annotate("", (x + 0.95, 1.02), (x + 0.95, 1.95), arrowprops={"arrowstyle": "-|>", "color": EDGE})
        axes.text(x + 1.02, 1.48, recipe, fontsize=9.5, va="center", color=look.edge)
        for place, value in enumerate(token):
            width = 1.9 / len(token)
            axes.add_patch(Rectangle((x + width * place, 0.4), width, 0.55, facecolor=look.fill, edgecolor=look.edge))
            axes.text(x + width * (place + 0.5), 0.67, f"{value:.1f}", ha="center", va="center", fontsize=9.5)
    axes.set(xlim=(-0.2, 2.4 * len(columns) - 0.2), ylim=(0.2, 3.3))
    _bare(axes)
    axes.set_title("A row becomes a short sequence")
    figure.set_label("schematic")
    return figure


# ---- contests on tables ----------------------------------------------------------------------------------------------


def _points(axes: Axes, runs: DataFrame, group: str, order: Sequence[str]) -> None:
    """A point for each split and a bar at the mean: groups along x, contestants beside one another."""
    models = [name for name in CONTEST_COLORS if name in set(runs["model"])]
    for place, key in enumerate(order):
        for number, model in enumerate(models):
            scores = runs[(runs[group] == key) & (runs["model"] == model)]["test"]
            x = place + (number - (len(models) - 1) / 2) * 0.17
            color = CONTEST_COLORS[model]
            axes.scatter([x] * len(scores), scores, s=30, color=color, label=model if not place else "_", marker="o")
            axes.plot([x - 0.06, x + 0.06], [scores.mean()] * 2, color=color, marker="none", linewidth=3)
            axes.text(x, scores.max() + 0.025, f"{scores.mean():.2f}", ha="center", fontsize=8.5, color=color)
    axes.set(xticks=range(len(order)), xlim=(-0.5, len(order) - 0.5))
    axes.set_xticklabels(order)


def draw_tables(runs: DataFrame) -> Figure:
    """FT-Transformer's test score minus each rival's on the same split, by table: points are splits."""
    import matplotlib.pyplot as plt

    scores = runs.pivot_table(index=["table", "seed"], columns="model", values="test")
    tables = list(runs["table"].unique())
    figure, axes = plt.subplots(figsize=(7.8, 3.2), dpi=85)
    for number, rival in enumerate(("linear model", "boosted trees")):
        leads, color = scores["FT-Transformer"] - scores[rival], CONTEST_COLORS[rival]
        for place, table in enumerate(tables):
            y = [-place + (0.5 - number) * 0.3 + (0.5 - seed / (len(leads[table]) - 1)) * 0.12 for seed in range(3)]
            axes.scatter(leads[table], y, s=42, color=color, marker="os"[number], label=rival if not place else "_")
    axes.axvline(0, color=INK, linewidth=1.2)
    axes.set(yticks=[-place for place in range(len(tables))], ylim=(0.5 - len(tables), 0.5), xlim=(-0.15, 0.12))
    axes.set_yticklabels([f"{name} ({'R²' if name == 'diabetes' else 'accuracy'})" for name in tables])
    axes.set_xlabel("FT-Transformer minus rival (left: behind, right: ahead)")
    axes.set_title("FT-Transformer is seldom ahead of a straight line")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, title="rival", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def draw_reasons(runs: DataFrame) -> Figure:
    """R² at the stand by variant of the table."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.9), dpi=85)
    _points(axes, runs, "variant", list(runs["variant"].unique()))
    axes.set(ylabel="R² on unseen hours", ylim=(0.4, 1.04))
    axes.set_title("Turned axes hurt trees and FT-Transformer, an MLP hardly")
    axes.legend(frameon=False, loc="lower left", fontsize=9.5)
    return figure


# ---- the scoreboard --------------------------------------------------------------------------------------------------


STRETCHED, PRESSED = 80, 4  # the scoreboard's axis is pressed by this factor below that score


def draw_scoreboard(board: Sequence[BoardRow]) -> Figure:
    """For each task our blocks, the best rival by its name, and the trivial answer: points are seeds or splits."""
    import matplotlib.pyplot as plt

    looks = {"our blocks": COLORS[0], "best rival": COLORS[1], "trivial": COLORS[3]}
    figure, axes = plt.subplots(figsize=(9.2, 0.46 * len(board) + 1.4), dpi=80)
    for place, row in enumerate(board):
        texts: list[str] = []
        for (name, color), scores, y in zip(looks.items(), row.scores, (0.14, -0.14, 0), strict=True):
            values = 100 * np.asarray(scores)
            axes.scatter(values, [y - place] * len(values), s=26, color=color, label=name if not place else "_",
                         marker="osD"[len(texts)], zorder=3)  # fmt: skip
            texts.append(f"{values.mean():.0f}")
        axes.text(101.5, 0.18 - place, f"{texts[0]}  our blocks", color=COLORS[0], fontsize=9.5, va="center")
        axes.text(101.5, -0.18 - place, f"{texts[1]}  {row.rival}", color=COLORS[1], fontsize=9.5, va="center")
        axes.axhline(-place - 0.5, color=EDGE, linewidth=0.5, alpha=0.5)
    axes.axvline(STRETCHED, color=SOFT, linestyle=":", linewidth=1.2)
    axes.set_xscale("function", functions=(
        lambda x: np.where(x < STRETCHED, STRETCHED + (x - STRETCHED) / PRESSED, x),
        lambda x: np.where(x < STRETCHED, STRETCHED + (x - STRETCHED) * PRESSED, x),
    ))  # fmt: skip
    axes.set(xlim=(-4, 117), yticks=[-place for place in range(len(board))])
    axes.set(ylim=(-len(board) + 0.5, 0.5), xticks=[0, 20, 40, 60, *range(STRETCHED, 101, 5)])
    axes.set_xlabel(f"right answers (%), or R² · 100; the axis is stretched from {STRETCHED} on", x=0.36)
    axes.set_yticklabels([row.task for row in board])
    axes.grid(visible=False, axis="y")
    axes.set_title("One kind of stack for eleven tasks: clearly ahead on one, at equal steps")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.36, -0.14))
    return figure
