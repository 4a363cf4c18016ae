"""Figures of lesson 00: softmax, broadcasting, a training step, mixtures of points, and surprises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.plot.house import COLORS, EDGE, FAINT
from tfbook.plot.schematic import Schematic

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_softmax(scores: Tensor) -> Schematic:
    """Scores (n,), their exponentials, and their softmax weights (n,), as bars."""
    exponentials = scores.exp()
    weights = exponentials / exponentials.sum()
    picture = Schematic("Softmax: exponentiate, then divide by the sum", gap=(60, 20))
    stages = [
        (scores, "stream", scores.max().item(), "{:.0f}", "s_{}"),
        (exponentials, "stream", exponentials.max().item(), "{:.2f}", "e^{{s_{}}}"),
        (weights, "weight", 1.0, "{:.2f}", "p_{}"),
    ]
    bars = []
    for column, (values, role, high, numbers, letter) in enumerate(stages):
        names = [f"${letter.format(number)}$" for number in range(1, len(values) + 1)]
        look: dict[str, Any] = {"high": high, "height": 120, "numbers": numbers, "names": names}
        bars.append(picture.bars(values.tolist(), (column, 0), role, **look))
    for column, text in enumerate(["scores: any numbers", f"sum: {exponentials.sum():.2f}", "weights: they sum to 1"]):
        picture.text(text, (column, 1))
    picture.arrow(bars[0], bars[1], "$e^s$")
    picture.arrow(bars[1], bars[2], "÷ sum", "weight")
    return picture


def draw_broadcast(table: Tensor) -> Schematic:
    """A 3 × 3 table divided by its row sums, without and with `keepdim`."""
    picture = Schematic("The same sums, lined up in two ways", gap=(22, 40))
    sums = table.sum(dim=1)
    _draw_division(picture, 0, "without\nkeepdim", table, sums[None])
    _draw_division(picture, 1, "with\nkeepdim=True", table, sums[:, None])
    return picture


def _draw_division(picture: Schematic, row: int, title: str, table: Tensor, divisor: Tensor) -> None:
    """`table` ÷ `divisor`, a row or a column, = result, with the fate of the first row outlined."""
    look: dict[str, Any] = {"cell": 34, "numbers": "{:.0f}"}
    shape = "(3,): repeated downward" if len(divisor) == 1 else "(3, 1): repeated across"
    picture.text(title, (0, row), size=10.5, weight="bold")
    counts = picture.matrix(table, (1, row), label="counts", shape="(3, 3)", **look)
    picture.text("÷", (2, row), size=14)
    repeated, given = divisor.expand(3, 3), torch.ones_like(divisor, dtype=torch.bool)
    given = torch.nn.functional.pad(given, (0, 3 - divisor.shape[1], 0, 3 - divisor.shape[0]))
    sums = picture.matrix(repeated, (3, row), "parameter", label="row sums", shape=shape, allowed=given, **look)
    picture.text("=", (4, row), size=14)
    result = picture.matrix(table / divisor, (5, row), "weight", label="result", cell=(46.0, 34.0), numbers="{:.2f}")
    picture.outline(counts.row(0), sums.row(0), result.row(0))
    picture.text(f"this row\nsums to {(table / divisor)[0].sum():.2f}", (6, row))


def draw_training_step() -> Schematic:
    """One training step: forward along the top, the gradient back below."""
    picture = Schematic("One training step", gap=(34, 46))
    batch = picture.box("batch", (0, 0), "stream", note="inputs and targets")
    model = picture.box("model", (1, 0), "parameter", note="with parameters θ")
    logits = picture.box("logits", (2, 0), "stream", note="one score per class")
    loss = picture.box("loss", (3, 0), "weight", note="−ln p of the target")
    gradient = picture.box("gradient", (3, 1), "weight", note="cleared, then ∂ loss / ∂θ")
    step = picture.box("θ ← θ − lr · gradient", (1, 1), "parameter", note="the optimizer's step")
    picture.arrow(batch, model)
    picture.arrow(model, logits)
    picture.arrow(logits, loss, "softmax")
    picture.arrow(batch, loss, "targets", sides=("top", "top"))
    picture.arrow(loss, gradient, "loss.backward()", "weight")
    picture.arrow(gradient, step)
    picture.arrow(step, model, "next step", "parameter")
    return picture


def draw_mixtures(axes: Axes, weights: Tensor, points: Tensor, mixed: Tensor) -> None:
    """A triangle of `points` (key, xy) and mixtures of them (query, xy) with their weights (query, key)."""
    axes.fill(*points.T, color=FAINT, edgecolor=EDGE)
    axes.plot(*points.T, "o", color=COLORS[3], markersize=9)
    axes.plot(*mixed.T, "D", color=COLORS[1], markersize=7)
    for (x, y), row in zip(mixed.tolist(), weights.tolist(), strict=True):
        average = " + ".join(f"{w:.1f} {name}" for w, name in zip(row, "ABC", strict=True) if w)
        axes.text(x + 0.14, y + 0.12, average, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    for (x, y), name, side in zip(points.tolist(), "ABC", (-0.35, 0.2, -0.35), strict=True):
        axes.text(x + side, y - 0.08, name, fontweight="bold", color=COLORS[3])
    axes.set(title="A mixture stays between the things it mixes", xlim=(-0.6, 4.6), ylim=(-0.4, 3.4), aspect="equal")
    axes.axis("off")


def draw_surprises(axes: Axes, surprises: Tensor, names: Sequence[str], uniform: float) -> None:
    """One bar per letter, the highest in another color, and a line for a model that knows nothing."""
    colors = [COLORS[1] if x == surprises.max() else COLORS[0] for x in surprises]
    axes.bar(range(len(surprises)), surprises, color=colors)
    axes.axhline(uniform, color=COLORS[3], linestyle="--")
    axes.text(len(names) - 0.5, uniform - 0.08, "uniform model", ha="right", va="top")
    axes.set_xticks(range(len(names)), names)
    axes.grid(False, axis="x")
    axes.set(title="The a of sea is the biggest surprise", ylabel="surprise (nats)", xlabel="letter that came")
