"""Curves with direct labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbook.plot.house import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MAX_MARKERS = 60  # a line with more points has no markers


def label_ends(axes: Axes, gap: float = 0.05) -> None:
    """Writes each line's label next to its last finite point, in its color, and moves apart labels that would overlap.

    A line without any such point has no label.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    low, high = axes.get_ylim()
    last = [(xy[-1], line) for line in lines if len(xy := _finite(line))]
    ends = sorted(((axes.transData.transform((0, xy[1]))[1], xy, line) for xy, line in last), key=lambda e: e[0])
    bottom, top = axes.transData.transform((0, low))[1], axes.transData.transform((0, high))[1]
    place = -np.inf
    for y, xy, line in ends:
        place = max(y, place + gap * (top - bottom))
        axes.annotate(
            str(line.get_label()),
            tuple(xy),
            xytext=(8, (place - y) * 72 / axes.figure.dpi),
            textcoords="offset points",
            color=line.get_color(),
            va="center",
            fontsize=10.5,
            annotation_clip=False,
        )


def _finite(line: Line2D) -> np.ndarray:
    """The points (x, y) of a line that are drawn: none that is NaN, as where a metric has no value."""
    points = np.asarray(line.get_xydata(), dtype=float)
    return points[np.isfinite(points).all(axis=1)]


def lines(
    axes: Axes,
    series: Mapping[
        str, tuple[Sequence[float], Sequence[float]] | tuple[Sequence[float], Sequence[float], Sequence[float]]
    ],
    *,
    title: str,
    x: str,
    y: str,
) -> None:
    """A labeled line for each entry of `series`: (x, y), or (x, y, half-width of its band).

    A method in `METHODS` has its color and marker from there, the same in every figure.
    """
    for label, (xs, ys, *band) in series.items():
        (line,) = axes.plot(xs, ys, label=label)
        if label in METHODS:
            line.set(color=METHODS[label].color, marker=METHODS[label].marker)
        if len(xs) > MAX_MARKERS:
            line.set_marker("none")
        if band:
            low, high = np.asarray(ys) - band[0], np.asarray(ys) + band[0]
            axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    axes.set(title=title, xlabel=x, ylabel=y)
    label_ends(axes)
