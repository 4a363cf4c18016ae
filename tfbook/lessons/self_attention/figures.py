"""Figures of lesson 03: the layer, its heads, painted scenes, attention maps, and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tfbook.lessons.self_attention.study import Scenes, is_right
from tfbook.plot.curves import label_ends
from tfbook.plot.house import INK, METHODS, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tfbook.plot import Schematic


CELL, SMALL = 31, 21  # pixels

# ---- the layer -------------------------------------------------------------------------------------------------------


def draw_attention(
    x: Tensor,
    W_Q: Tensor,
    W_K: Tensor,
    W_V: Tensor,
    names: Sequence[str],
    features: Sequence[str] = (),
    *,
    context: Tensor | None = None,
    context_names: Sequence[str] = (),
    mask: Tensor | None = None,
    row: int = -1,
) -> Figure:
    """X → Q, K and V → scores → weights → Y, with numbers; the query of `row` meets the key with its largest weight.

    With `context`, keys and values come from it: cross-attention. With `mask`, True where a query may attend, the
    masked scores have a panel of their own. `features` names the columns of X.
    """
    from tfbook.plot import Schematic

    read = x if context is None else context
    read_names = names if context is None else context_names
    q, k, v = x @ W_Q, read @ W_K, read @ W_V
    scores = q @ k.T / q.shape[-1] ** 0.5
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    row %= len(names)
    column = int(weights[row].argmax())
    title = (
        "Every token asks, every token answers"
        if context is None
        else "Queries from one sequence, keys and values from another"
    )
    title = title if mask is None else "Under a causal mask no token sees a later one"

    picture = Schematic(title, gap=(20 if mask is None else 16, 34))
    steps = 1 if mask is None else 2  # columns between scores and Y
    whole: dict[str, Any] = {"cell": CELL, "numbers": "{:g}"}
    tenths: dict[str, Any] = {"cell": (37, CELL), "numbers": "{:.1f}"}
    hundredths: dict[str, Any] = {"cell": (44, CELL), "numbers": "{:.2f}"}
    source = picture.matrix(
        read,
        (0, 0),
        "stream" if context is None else "key",
        label="$X$" if context is None else "$C$",
        shape=f"{_size(read)}",
        rows=read_names,
        columns=features,
        **whole,
    )
    queries = picture.matrix(q, (0, 1), "query", label="$Q$", shape=_size(q), rows=names, **whole)
    short = [name.split()[-1] for name in read_names]
    keys = picture.matrix(
        k.T, (1, 0), "key", cell=(37, CELL), numbers="{:g}", label=r"$K^{\!\top}$", shape=_size(k.T), columns=short
    )
    shown = picture.matrix(
        scores,
        (1, 1),
        "weight",
        label=rf"$QK^{{\!\top}}\!/\sqrt{{{q.shape[-1]}}}$",
        shape=f"scores: {_size(scores)}",
        **tenths,
    )
    before = shown
    if mask is not None:
        before = picture.matrix(
            scores, (2, 1), "weight", label="masked", shape=r"hatched: $-\infty$", allowed=allowed, **tenths
        )
        picture.arrow(shown, before, "mask", "weight")
    applied = picture.matrix(
        weights,
        (1 + steps, 1),
        "weight",
        label="weights $A$",
        shape="each row sums to 1",
        allowed=allowed,
        darkest=1,
        **hundredths,
    )
    values = picture.matrix(v, (2 + steps, 0), "value", label="$V$", shape=_size(v), rows=read_names, **whole)
    y = weights @ v
    mixed = picture.matrix(y, (2 + steps, 1), "value", label="$Y=AV$", shape=_size(y), **hundredths)
    if context is None:
        picture.arrow(source, queries, "$W_Q$", "query")
    else:
        asking = picture.matrix(x, (0, 2), "query", label="$X$", shape=_size(x), rows=names, **whole)
        picture.arrow(asking, queries, "$W_Q$", "query")
    picture.arrow(source, keys, "$W_K$", "key")
    picture.arrow(source, values, "$W_V$", "value", sides=("top", "top"))
    picture.arrow(before, applied, "softmax", "weight")
    picture.outline(queries.row(row), keys.column(column), shown.cell(row, column), applied.row(row), mixed.row(row))
    return picture.figure()


def _size(matrix: Tensor) -> str:
    return f"{matrix.shape[0]} × {matrix.shape[1]}"


def draw_heads(q: Tensor, k: Tensor, v: Tensor, W_O: Tensor) -> Figure:
    """Q, K and V split into heads (head × token × d_head), attention in each, the outputs concatenated, and W_O.

    In each head: the weights Aₕ are the softmax of the scaled Qₕ Kₕᵀ, and the output is Yₕ = Aₕ Vₕ.
    """
    from tfbook.plot import Schematic

    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    mixed = weights @ v
    output = _merged(mixed) @ W_O
    heads, middle = len(q), (len(q) - 1) / 2
    whole_of = {"Q": (q, "query"), "K": (k, "key"), "V": (v, "value")}
    parts = {"Q": (q, "query"), "K": (k.mT, "key"), "A": (weights, "weight"), "V": (v, "value"), "Y": (mixed, "value")}
    picture = Schematic(f"{heads} heads: the same attention on slices of Q, K and V", gap=(16, 18))
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
    picture.text("split", (2, middle), size=10.5)
    picture.text("merge", (8, middle), size=10.5)
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
        )
        for index, (name, (x, role)) in enumerate(parts.items(), start=3)
    }
    picture.arrow(drawn["K"], drawn["A"], "", "weight")
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
    scenes: Scenes, models: Mapping[str, Sequence[nn.Module]], right: Mapping[str, Sequence[float]], title: str
) -> Figure:
    """The first scene, its right answer, the first run's painting for each model, and the accuracy of all runs."""
    import matplotlib.pyplot as plt

    rows = {"the scene": scenes.colors.repeat(1, 1, scenes.target.shape[-1] // 3), "right answer": scenes.target}
    with torch.no_grad():
        rows |= {name: runs[0](scenes.kinds, scenes.colors) for name, runs in models.items()}
    height = 0.6 * len(rows) + 1
    figure, (picture, shares) = plt.subplots(
        1, 2, figsize=(8.8, height), width_ratios=(2.9, 1), sharey=True, layout="none"
    )
    figure.subplots_adjust(left=0.16, right=0.98, bottom=0.55 / height, top=1 - 0.35 / height, wspace=0.06)
    for index, (name, painting) in enumerate(rows.items()):
        _paint_row(picture, scenes, painting, -index, judged=name in models, seen=index == 0)
        values = [100 * share for share in right.get(name, ())]
        heights = [-index + 0.18 * (run - (len(values) - 1) / 2) for run in range(len(values))]  # none hidden
        shares.plot(values, heights, "o", color=INK, alpha=0.6, markersize=6, clip_on=False)
    picture.set(xlim=(-0.6, 7.6), ylim=(0.45 - len(rows), 0.6), xticks=[])
    picture.set_yticks([-index for index in range(len(rows))], list(rows))
    shares.axvline(GUESS, color=SOFT, linestyle="--", linewidth=1.2)
    shares.annotate("a guess", (GUESS, 0), (5, 0), textcoords="offset points", color=SOFT, fontsize=9.5, va="center")
    shares.set(xlim=(-3, 103), xticks=[0, 25, 50, 75, 100])
    shares.set_xlabel("% right (a dot per run)", fontsize=10.5)
    for axes in (picture, shares):
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    shares.spines["bottom"].set_visible(True)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _paint_row(axes: Axes, scenes: Scenes, painting: Tensor, y: float, *, judged: bool, seen: bool) -> None:
    found = is_right(scenes, painting).all(dim=-1)[0].tolist() if judged else []
    for x, (kind, parts) in enumerate(zip(scenes.kinds[0].tolist(), painting[0].clamp(0, 1).tolist(), strict=True)):
        _draw_shape(axes, x, y, kind % 4, parts)
        if seen and kind >= 4:
            axes.text(x, y, "?", ha="center", va="center", fontsize=10, color="white", weight="bold")
        if judged and kind >= 4:
            mark, color = ("✓", "#1a7f37") if found[x] else ("✗", "#b42318")
            axes.annotate(mark, (x, y), (13, -10), textcoords="offset points", ha="left", fontsize=11, color=color)


def _draw_shape(axes: Axes, x: float, y: float, shape: int, parts: Sequence[float], size: float = 1.0) -> None:
    """A shape with this inside color, and with a rim if there are six numbers."""
    inside, rim = parts[:3], parts[3:]
    look: dict[str, Any] = {"edgecolors": [rim or INK], "linewidths": 3.4 if rim else 0.8, "clip_on": False}
    axes.scatter([x], [y], s=size * SIZES[shape] * (0.75 if rim else 1), marker=MARKERS[shape], c=[inside], **look)


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


# ---- what it costs ---------------------------------------------------------------------------------------------------


def draw_cost(
    lengths: Sequence[int], operations: Mapping[str, Sequence[float]], seconds: Mapping[str, Sequence[float]]
) -> Figure:
    """Operations and time of a layer against length, on logarithmic axes, with the fitted exponents."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    from tfbook.course.cost import exponent

    figure, (work, time) = plt.subplots(1, 2, figsize=(9.2, 3.9))
    for axes, costs, unit in ((work, operations, 1e6), (time, seconds, 1e-3)):
        axes.set(xscale="log", yscale="log")
        for name, values in costs.items():
            power = rf" $n^{{{exponent(lengths, values):.1f}}}$" if axes is work else ""
            look = METHODS[name]
            axes.plot(lengths, [v / unit for v in values], color=look.color, marker=look.marker, label=name + power)
        axes.set_xticks(lengths, lengths)
        axes.minorticks_off()
        axes.set_xlabel("length n (tokens of width 64)")
        label_ends(axes, gap=0.08)
    work.set(title="Work: attention grows fastest", ylabel="million operations")
    time.set(title="Time: the recurrent layer takes longest", ylabel="milliseconds")
    time.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    time.yaxis.set_major_formatter("{x:g}")
    return figure
