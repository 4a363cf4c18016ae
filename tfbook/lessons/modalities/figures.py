"""Figures of lesson 19."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_runs(measured: Sequence[float]) -> Figure:
    """What each run measured."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.bar(range(len(measured)), measured)
    axes.set(title="Say here what the figure shows", xlabel="seed", ylabel="measured")
    return figure
