"""Figures of lesson 17: a matrix that fills up, trained readers with too many facts, and Mamba's steps over words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tfbook.lessons.state_spaces.filling import ENOUGH, MANY
from tfbook.plot.house import COLORS, EDGE, FAINT, GREEN, INK, RED, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALE = "#f2b8a8"  # red, for words that see a name through the filter
MARKS = {8: "o", 16: "s", 32: "P"}  # by the numbers of a key


def draw_filled(right: Mapping[int, Sequence[Mapping[int, float]]], title: str) -> Figure:
    """Right answers against the facts written, for keys of so many numbers: one line for each seed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 3.8))
    for key, runs in right.items():
        for run in runs:
            axes.plot(list(run), list(run.values()), color=GREEN, marker=MARKS[key], markersize=5, alpha=0.7)
        last = max(runs[0])
        _label(axes, last, fmean(run[last] for run in runs), f"keys of {key}")
    _facts(axes, list(next(iter(right.values()))[0]), title)
    return figure


def draw_overflow(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Right answers of trained readers against the facts: means over seeds, bands from the least to the largest."""
    import matplotlib.pyplot as plt

    colors = {"attention": COLORS[0], "gated linear attention": GREEN}
    figure, axes = plt.subplots(figsize=(7.5, 3.8))
    for method, key, steps in dict.fromkeys((row["method"], row["key"], row["steps"]) for row in rows):
        runs = [row for row in rows if (row["method"], row["key"], row["steps"]) == (method, key, steps)]
        shares = [[row[f"{facts} facts"] for row in runs] for facts in MANY]
        style = "--" if steps > min(row["steps"] for row in rows) else "-"
        color = colors[method]
        axes.plot(MANY, list(map(fmean, shares)), style, color=color, marker=MARKS[key], markersize=5)
        axes.fill_between(MANY, list(map(min, shares)), list(map(max, shares)), color=color, alpha=0.12, linewidth=0)
        if method != "attention" and style == "-":
            _label(axes, MANY[-1], fmean(shares[-1]), f"matrix, keys of {key}")
    _label(axes, MANY[-1], 1.0, "attention, keys\nof 8, 16, and 32", COLORS[0])
    _facts(axes, MANY, title)
    return figure


def _label(axes: Axes, x: float, y: float, text: str, color: str = GREEN) -> None:
    axes.annotate(text, (x, y), xytext=(8, 0), textcoords="offset points", va="center", color=color, fontsize=10)


def _facts(axes: Axes, counts: Sequence[int], title: str) -> None:
    for share, name in {ENOUGH: "nine in ten", 1 / 8: "chance"}.items():
        axes.axhline(share, color=EDGE, linestyle=":", linewidth=1.2)
        axes.text(counts[-1], share - 0.015, name, color=SOFT, fontsize=9, ha="right", va="top")
    axes.set(xscale="log", ylim=(0, 1.06), title=title, xlabel="facts", ylabel="right answers")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()


def draw_steps_taken(words: Sequence[str], steps: Sequence[float], names: Sequence[str], title: str) -> Figure:
    """Δ at each word, averaged over channels; `names` stand out, and so do the three words after each."""
    import matplotlib.pyplot as plt

    near = [any(word in names for word in words[max(place - 3, 0) : place + 1]) for place in range(len(words))]
    colors = [RED if word in names else PALE if seen else FAINT for word, seen in zip(words, near, strict=True)]
    figure, axes = plt.subplots(figsize=(9, 3.2))
    bars = axes.bar(range(len(words)), steps, color=colors, edgecolor=EDGE)
    axes.bar_label(bars, [f"{step:.2f}" for step in steps], fontsize=9, padding=2, color=INK)
    axes.set_xticks(range(len(words)), words, rotation=35, ha="right")
    axes.set(title=title, ylabel="mean step $\\Delta$", ylim=(0, 1.15 * max(steps)))
    axes.grid(axis="x", visible=False)
    return figure
