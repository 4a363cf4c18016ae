"""Bars in groups, each with its percentage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def grouped_bars(
    axes: Axes, rows: Mapping[str, Mapping[str, float]], colors: Sequence[str], *, width: float = 0.8
) -> None:
    """A group of bars, `width` wide, for each key of the shares in `rows`; each row is a color, labeled with its name.

    Every row has the same keys. Heights are in percent, and each bar has its number above it.
    """
    keys = list(next(iter(rows.values())))
    each = width / len(rows)
    for number, ((name, shares), color) in enumerate(zip(rows.items(), colors, strict=False)):
        middles = np.arange(len(keys)) + (number - (len(rows) - 1) / 2) * each
        heights = [100 * shares[key] for key in keys]
        axes.bar(middles, heights, 0.92 * each, color=color, label=name)
        for x, height in zip(middles, heights, strict=True):
            axes.text(x, height + 1.5, f"{height:.0f}", ha="center", fontsize=9, color=color)
