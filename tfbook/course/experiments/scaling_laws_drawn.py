"""Pictures of lesson 10: costs, directions of a gradient, the law of the losses, the race, heads that copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbook.plot.curves import lines
from tfbook.plot.house import COLORS, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]  # and its alt text


def draw_directions(
    after: Mapping[str, tuple[Any, Any]], spectrum: Mapping[str, tuple[Sequence[int], Sequence[float]]]
) -> Picture:
    """What Newton and Schulz's polynomial makes of a singular value, and of those of a gradient."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8))
    left.set_xscale("log")
    lines(left, after, title="Small values are lifted to about 1", x="singular value before", y="singular value after")
    right.set(yscale="log", ylim=(1e-4, 2))
    title = "A gradient's directions, made alike"
    lines(right, spectrum, title=title, x="direction, longest first", y="singular value")
    alt = (
        "Left: after five steps, values above a hundredth lie between 0.7 and 1.2. Right: the singular values of a "
        "gradient fall over orders of magnitude; after five steps most of them are near 1."
    )
    return figure, alt


Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]


def draw_copying(losses: Mapping[str, Curve], looks: Mapping[str, Curve]) -> Picture:
    """Loss on what is read again, and the scores of heads, while models of one and two blocks are trained."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4))
    lines(left, losses, title="With two blocks, the loss falls off a cliff", x="step", y="loss on repeats (nats)")
    lines(right, looks, title="Two heads of two blocks appear together", x="step", y="highest score of a head")
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    alt = (
        "Left: with one block of either width the loss on repeated text falls slowly to 1.3; with two it drops from 2 "
        "to 0.3 between steps 80 and 200. Right: with two blocks a head that copies appears in that time, together "
        "with a head of the first block that looks one token back; with one block none does."
    )
    return figure, alt


def draw_law(measured: DataFrame, spent: Sequence[float], optima: Sequence[Any]) -> Picture:
    """Losses by compute for each size, with the law's best; the best size and text for each compute.

    `measured` has a row for each number of parameters and a column for each number of tokens.
    """
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.4))
    for place, (size, losses) in enumerate(measured.iterrows()):
        compute = [6 * size * tokens for tokens in measured.columns]
        left.plot(compute, losses, color=plt.get_cmap("viridis")(0.85 - 0.2 * place), label=f"{size:,}")
    left.plot(spent, [each.loss for each in optima], color=INK, linestyle="--", marker="none", label="the law's best")
    left.set(xscale="log", xlabel="operations, 6 N D", ylabel="held-out loss (nats)")
    left.set_title("For each compute another size is best")
    left.legend(title="parameters", fontsize=9)
    right.set(xscale="log", yscale="log")
    best = {
        "parameters": (spent, [each.parameters for each in optima]),
        "characters": (spent, [each.tokens for each in optima]),
    }
    lines(right, best, title="The best size grows faster than its text", x="operations, 6 N D", y="best number")
    low, high = ([getattr(each, end) for each in optima] for end in ("low", "high"))
    right.fill_between(spent, low, high, color=COLORS[0], alpha=0.2)
    alt = (
        "Left: a falling curve of loss against compute for each of five sizes; small models are lowest at little "
        "compute and large ones at much. Right, logarithmic: the best number of parameters rises more steeply with "
        "compute than the best number of characters."
    )
    return figure, alt


def draw_race(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Seconds to about the same loss, a bar for each recipe, each with one change more than the one above."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 3.4))
    seconds = [row["seconds"] for row in rows]
    axes.barh([row["by"] for row in rows], seconds, color=[COLORS[3]] + [COLORS[0]] * (len(rows) - 1))
    for place, row in enumerate(rows):
        thousands = f"{row['characters read'] / 1000:,.0f} thousand characters"
        note = f"{row['seconds']:.0f} s, {thousands}, loss {row['loss']:.2f}"
        axes.text(row["seconds"] + 1, place, note, va="center", fontsize=9.5)
    axes.invert_yaxis()
    axes.grid(axis="y")
    axes.set(title="A loss of about 1.88, sooner and sooner", xlabel="seconds on two cores")
    axes.set_xlim(0, 1.35 * max(seconds))
    said = ", ".join(f"{row['by']} {row['seconds']:.0f}" for row in rows)
    return figure, f"Seconds to the published loss, each bar with one change more than the one above: {said}."
