"""Figures of lesson 03: the layer, its heads, painted scenes, attention maps and words; charts are in charts.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tfbook.lessons.self_attention.captions import (
    describe_maps as describe_maps,
    describe_moves as describe_moves,
    describe_paintings as describe_paintings,
    describe_pointing as describe_pointing,
)
from tfbook.lessons.self_attention.charts import (
    draw_binding as draw_binding,
    draw_cost as draw_cost,
    draw_depth as draw_depth,
    draw_growth as draw_growth,
)
from tfbook.lessons.self_attention.scenes import Scenes, is_right, middle
from tfbook.plot.house import INK, ROLES, SOFT

Painter = Callable[[Tensor, Tensor], Tensor]  # (kinds, colors) → what is painted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tfbook.plot import Schematic


CELL, SMALL = 31, 21  # pixels

# ---- the layer -------------------------------------------------------------------------------------------------------


def draw_attention(
    x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, names: Sequence[str], features: Sequence[str] = (), row: int = -1
) -> Figure:
    """X → Q, K and V → scores → weights → Y, with numbers; the query of `row` meets the key with its largest weight.

    `features` names the columns of X.
    """
    from tfbook.plot import Schematic

    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.T
    weights = scores.softmax(dim=-1)
    y = weights @ v
    row %= len(names)
    column = int(weights[row].argmax())
    picture = Schematic("Every token asks, every token answers", gap=(16, 34))
    whole: dict[str, Any] = {"cell": CELL, "numbers": "{:g}"}
    hundredths: dict[str, Any] = {"cell": (44, CELL), "numbers": "{:.2f}"}
    source = picture.matrix(x, (0, 0), "stream", label="$X$", shape=_size(x), rows=names, columns=features, **whole)
    queries = picture.matrix(q, (0, 1), "query", label="$Q$", shape=_size(q), rows=names, **whole)
    keys = picture.matrix(
        k.T,
        (1, 0),
        "key",
        cell=(37, CELL),
        numbers="{:g}",
        label=r"$K^{\!\top}$",
        shape=_size(k.T),
        columns=[name.split()[-1] for name in names],
    )
    shown = picture.matrix(
        scores,
        (1, 1),
        "weight",
        cell=(37, CELL),
        numbers="{:g}",
        label=r"$QK^{\!\top}$",
        shape=f"scores: {_size(scores)}",
    )
    applied = picture.matrix(
        weights, (2, 1), "weight", label="weights $A$", shape="each row sums to 1", darkest=1, **hundredths
    )
    values = picture.matrix(v, (3, 0), "value", label="$V$", shape=_size(v), rows=names, **whole)
    mixed = picture.matrix(y, (3, 1), "value", label="$Y=AV$", shape=_size(y), **hundredths)
    picture.arrow(source, queries, "$W_Q$", "query")
    picture.arrow(source, keys, "$W_K$", "key")
    picture.arrow(source, values, "$W_V$", "value", sides=("top", "top"))
    picture.arrow(queries, shown, "", "weight")
    picture.arrow(keys, shown, "", "weight")
    picture.arrow(shown, applied, "softmax", "weight")
    picture.arrow(applied, mixed, "", "value")
    picture.arrow(values, mixed, "", "value")
    picture.outline(queries.row(row), keys.column(column), shown.cell(row, column), applied.row(row), mixed.row(row))
    return picture.figure()


def _size(matrix: Tensor) -> str:
    return f"{matrix.shape[0]} × {matrix.shape[1]}"


def draw_heads(q: Tensor, k: Tensor, v: Tensor, W_O: Tensor) -> Figure:
    """Q, K and V split into heads (head × token × d_head), attention in each, the outputs concatenated, and W_O.

    In each head: the scores Sₕ are the scaled Qₕ Kₕᵀ, the weights Aₕ their softmax, and the output is Yₕ = Aₕ Vₕ.
    """
    from tfbook.plot import Schematic

    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.softmax(dim=-1)
    mixed = weights @ v
    output = _merged(mixed) @ W_O
    heads, middle = len(q), (len(q) - 1) / 2
    whole_of = {"Q": (q, "query"), "K": (k, "key"), "V": (v, "value")}
    parts = {
        "Q": (q, "query"),
        "K": (k.mT, "key"),
        "S": (scores, "weight"),
        "A": (weights, "weight"),
        "V": (v, "value"),
        "Y": (mixed, "value"),
    }
    picture = Schematic(f"{heads} heads: the same attention on slices of Q, K, and V", gap=(14, 18))
    whole = [
        picture.matrix(
            _merged(x), (0, index * middle), role, cell=SMALL, label=f"${name}$", shape=_size(_merged(x)), beside="left"
        )
        for index, (name, (x, role)) in enumerate(whole_of.items())
    ]
    frames = [_draw_head(picture, head, parts) for head in range(heads)]
    joined = picture.matrix(
        _merged(mixed), (9, middle), "value", cell=SMALL, label="side by side", shape=_size(_merged(mixed))
    )
    out = picture.matrix(output, (10, middle), "stream", cell=SMALL, label="output", shape=_size(output))
    picture.point((1, middle))  # room for the brace
    picture.brace(whole, "")
    picture.brace(frames, "")
    picture.arrow(joined, out, "$W_O$", "parameter")
    for matrix in [*whole, joined]:
        for head in range(heads):
            picture.outline(_columns(matrix, head * q.shape[-1], (head + 1) * q.shape[-1]))
    return picture.figure()


def _draw_head(picture: Schematic, head: int, parts: Mapping[str, tuple[Tensor, str]]) -> Any:
    """A frame with the computation of one head."""
    drawn = {
        name: picture.matrix(
            x[head],
            (index, head),
            role,
            cell=SMALL,
            label=rf"${name}_{head + 1}^{{\top}}$" if name == "K" else f"${name}_{head + 1}$",
            shape=_size(x[head]),
            numbers="{:.1f}" if name in "SAY" else "{:g}",
        )
        for index, (name, (x, role)) in enumerate(parts.items(), start=2)
    }
    picture.arrow(drawn["K"], drawn["S"], "", "weight")
    picture.arrow(drawn["S"], drawn["A"], "", "weight")
    picture.arrow(drawn["V"], drawn["Y"], "", "value")
    return picture.frame(list(drawn.values()), f"head {head + 1}")


def _merged(x: Tensor) -> Tensor:
    """(head, token, d_head) reshaped to (token, d_model)."""
    return x.transpose(0, 1).flatten(1)


def _columns(matrix: Any, first: int, last: int) -> Any:
    from tfbook.plot.schematic.nodes import Region

    return Region(matrix, (0, matrix.rows), (first, last))


# ---- painted scenes --------------------------------------------------------------------------------------------------

MARKERS = ("o", "^", "s", "*")
SIZES = (330, 330, 290, 560)
GUESS = 25  # percent


def draw_paintings(
    scenes: Scenes, models: Mapping[str, Sequence[Painter]], right: Mapping[str, Sequence[float]], title: str
) -> Figure:
    """The first scene, its right answer, the painting of each model's middle run, and the accuracy of all runs."""
    import matplotlib.pyplot as plt

    rows = {"the scene": scenes.colors.repeat(1, 1, scenes.target.shape[-1] // 3), "right answer": scenes.target}
    with torch.no_grad():
        rows |= {name: middle(runs, right[name])(scenes.kinds, scenes.colors) for name, runs in models.items()}
    height = 0.74 * len(rows) + 1
    figure, (picture, shares) = plt.subplots(
        1, 2, figsize=(8.8, height), width_ratios=(2.9, 1), sharey=True, layout="none"
    )
    figure.subplots_adjust(left=0.16, right=0.98, bottom=0.55 / height, top=1 - 0.35 / height, wspace=0.06)
    for index, (name, painting) in enumerate(rows.items()):
        _paint_row(picture, scenes, painting, -index, judged=name in models, seen=index == 0)
        values = [100 * share for share in right.get(name, ())]
        heights = [-index + 0.18 * (run - (len(values) - 1) / 2) for run in range(len(values))]  # none hidden
        shares.plot(values, heights, "o", color=INK, markersize=6, fillstyle="none", clip_on=False)
    picture.set(xlim=(-0.6, 7.6), ylim=(0.4 - len(rows), 0.5), xticks=[])
    picture.set_yticks([-index for index in range(len(rows))], list(rows))
    shares.axvline(GUESS, color=SOFT, linestyle="--", linewidth=1.2)
    shares.annotate("a guess", (GUESS, 0), (5, 0), textcoords="offset points", color=SOFT, fontsize=9.5, va="center")
    shares.set(xlim=(-3, 103), xticks=[0, 25, 50, 75, 100])
    shares.set_xlabel("% right (a circle per run)", fontsize=10.5)
    for axes in (picture, shares):
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    shares.spines["bottom"].set_visible(True)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def draw_first_tries(
    scenes: Scenes, models: Mapping[str, Sequence[Painter]], right: Mapping[str, Sequence[float]]
) -> tuple[Figure, str]:
    """The paintings of the models without attention, and their alt text."""
    alt = f"The scene, the right answer, and what three models painted. {describe_paintings(scenes, models, right)}"
    return draw_paintings(scenes, models, right, "Three models paint the same scene"), alt


def draw_rims(
    scenes: Scenes, models: Mapping[str, Sequence[Painter]], right: Mapping[str, Sequence[float]]
) -> tuple[Figure, str]:
    """The paintings of one head and of two, and their alt text."""
    shown = describe_paintings(scenes, models, right)
    alt = f"The scene, the right answer with insides and rims, and three paintings. {shown}"
    return draw_paintings(scenes, models, right, "Insides and rims"), alt


def _paint_row(axes: Axes, scenes: Scenes, painting: Tensor, y: float, *, judged: bool, seen: bool) -> None:
    found = is_right(scenes, painting)[0].tolist() if judged else []
    for x, (kind, parts) in enumerate(zip(scenes.kinds[0].tolist(), painting[0].clamp(0, 1).tolist(), strict=True)):
        _draw_shape(axes, x, y, kind % 4, parts)
        if seen and kind >= 4:
            axes.text(x, y, "?", ha="center", va="center", fontsize=10, color="white", weight="bold")
        if judged and kind >= 4:
            axes.text(x, y - 0.44, _verdict(found[x]), ha="center", va="center", fontsize=8.5, color=INK)


def _verdict(right: Sequence[bool]) -> str:
    """Which parts of a shape are right, in a word, for readers who cannot tell the colors apart."""
    if len(right) == 1:
        return "right" if right[0] else "wrong"
    inside, rim = right
    return "both" if inside and rim else "only inside" if inside else "only rim" if rim else "neither"


def _draw_shape(axes: Axes, x: float, y: float, shape: int, parts: Sequence[float], size: float = 1.0) -> None:
    """A shape with this inside color, and with a rim if there are six numbers."""
    inside, rim = parts[:3], parts[3:]
    look: dict[str, Any] = {"edgecolors": [rim or INK], "linewidths": 3.4 if rim else 0.8, "clip_on": False}
    axes.scatter([x], [y], s=size * SIZES[shape] * (0.75 if rim else 1), marker=MARKERS[shape], c=[inside], **look)


def draw_moves(scenes: Scenes, before: Tensor, after: Tensor, title: str) -> Figure:
    """The colors of the first scene's tokens before and after something was added to them, in the hue plane.

    Both are (scene, token, rgb). Since paint is linear, the arrow is what was fetched, painted.
    """
    import matplotlib.pyplot as plt

    starts, ends, goals = (_hue_plane(colors[0]) for colors in (before, after, scenes.target))
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 4.1), sharex=True, sharey=True)
    for axes, gray, name in zip(panels, (True, False), ("gray shapes", "colored shapes"), strict=True):
        axes.set_title(name, fontsize=11, fontweight="normal")
        for token in (scenes.asked[0] == gray).nonzero().flatten().tolist():
            kind, seen, wanted = scenes.kinds[0, token] % 4, scenes.colors[0, token], scenes.target[0, token]
            axes.plot(*goals[token], "o", color=wanted.tolist(), markersize=30, alpha=0.35, markeredgewidth=0, zorder=0)
            look: dict[str, Any] = {"color": INK, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", ends[token], starts[token], arrowprops={"arrowstyle": "-|>", **look})
            x, y = starts[token]
            _draw_shape(axes, x, y, int(kind), seen.tolist(), size=0.45)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.margins(0.12)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_color("#d8dce0")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _hue_plane(colors: Tensor) -> list[tuple[float, float]]:
    """Where colors lie seen along the gray axis: equally bright ones on a ring by hue, all grays in its center."""
    red, green, blue = colors.detach().unbind(dim=-1)
    across, up = (2 * red - green - blue) / 6**0.5, (green - blue) / 2**0.5
    return list(zip(across.tolist(), up.tolist(), strict=True))


# ---- maps ------------------------------------------------------------------------------------------------------------


def draw_maps(scenes: Scenes, weights: Tensor, title: str) -> Figure:
    """Weights (head × query × key) in the first scene, with rows and columns labeled by the shapes themselves."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("weights", ["white", ROLES["weight"].dark])
    heads = len(weights)
    figure, panels = plt.subplots(1, heads, figsize=(4.6 * heads, 4.7), squeeze=False)
    for number, (axes, head) in enumerate(zip(panels[0], weights.tolist(), strict=True), start=1):
        axes.pcolormesh(np.array(head), cmap=shades, vmin=0, vmax=1, edgecolors="#d8dce0", linewidth=0.6)
        for i, row in enumerate(head):
            for j, weight in enumerate(row):
                if weight >= 0.05:
                    ink = "white" if weight > 0.5 else INK
                    axes.text(j + 0.5, i + 0.5, f"{weight:.2f}", ha="center", va="center", fontsize=8.5, color=ink)
        for index, (kind, color) in enumerate(zip(scenes.kinds[0].tolist(), scenes.colors[0].tolist(), strict=True)):
            for x, y in ((-0.5, index + 0.5), (index + 0.5, 8.5)):
                _draw_shape(axes, x, y, kind % 4, color, size=0.6)
        axes.set(xlim=(0, 8), ylim=(8, 0), aspect="equal", xticks=[], yticks=[])
        axes.set_xlabel("key: who is looked at", labelpad=32, fontsize=10.5)
        axes.set_title(f"head {number}" if heads > 1 else "", fontsize=11, fontweight="normal", loc="center")
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    panels[0, 0].set_ylabel("query: who looks", labelpad=32, fontsize=10.5)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


# ---- words -----------------------------------------------------------------------------------------------------------


def draw_pointing(names: Sequence[str], sentences: Sequence[str], weights: Tensor, word: int, title: str) -> Figure:
    """For each sentence an arc from one word to every other, as thick as its weight: `weights` is (sentence, key).

    `names` stand before the sentences: which model looks.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch

    figure, rows = plt.subplots(len(sentences), 1, figsize=(8.8, 1.2 * len(sentences)), squeeze=False)
    for axes, name, sentence, row in zip(rows[:, 0], names, sentences, weights.tolist(), strict=True):
        axes.text(-1.5, 0, name, va="center", fontsize=10.5, color=SOFT)
        for place, (text, weight) in enumerate(zip(sentence.split(), row, strict=True)):
            bold = "bold" if place == word or weight >= 0.5 else "normal"
            axes.text(place, 0, text, ha="center", va="center", fontsize=12, color=INK, fontweight=bold)
            if weight >= 0.05:
                axes.text(
                    place, -0.42, f"{weight:.2f}", ha="center", va="center", fontsize=9.5, color=ROLES["weight"].dark
                )
            if weight >= 0.05 and place != word:
                bend = 0.25 if place < word else -0.25
                look: dict[str, Any] = {
                    "color": ROLES["weight"].dark,
                    "linewidth": 4 * weight,
                    "shrinkA": 3,
                    "shrinkB": 3,
                }
                arc = f"arc3,rad={bend}"
                axes.add_patch(
                    FancyArrowPatch(
                        (word, 0.22), (place, 0.22), connectionstyle=arc, arrowstyle="-|>", mutation_scale=14, **look
                    )
                )
        axes.set(xlim=(-1.5, len(row) - 0.4), ylim=(-0.65, 1.35))
        axes.axis("off")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure
