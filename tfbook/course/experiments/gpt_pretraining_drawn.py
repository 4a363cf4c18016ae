"""A picture of what lesson 09 goes further with: residual streams before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfbook.plot.curves import lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Picture = tuple[Figure, str]  # and its alt text


def draw_variance(variance: Mapping[tuple[int, bool], Sequence[float]]) -> Picture:
    """Variance of the residual stream after each block, by (layers, scaled), a panel for each number of layers."""
    import matplotlib.pyplot as plt

    depths = list(dict.fromkeys(layers for layers, _ in variance))
    figure, panels = plt.subplots(1, len(depths), figsize=(10.5, 3.8), sharey=True)
    for axes, layers in zip(panels, depths, strict=True):
        curves = {
            name: (range(layers + 1), variance[layers, scaled])
            for name, scaled in (("unscaled", False), ("scaled", True))
        }
        axes.set_yscale("log")  # before the labels find their places
        lines(axes, curves, title=f"{layers} blocks", x="after block (0: embedding)", y="variance (logarithmic)")
    last = ", ".join(f"{layers} blocks {variance[layers, False][-1]:.3f}" for layers in depths)
    alt = f"Unscaled, the variance after the last block grows with depth ({last}); scaled, it does not."
    return figure, alt
