"""The figure of a combined plan: servers in a row are a copy of the model, copies stand below each other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tfbook.parallel.mesh import computing_seconds, links
from tfbook.parallel.planning import Plan
from tfbook.plot.house import COLORS, FAINT, GREEN, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINKS = {"tensor": COLORS[2], "pipeline": GREEN, "copies": COLORS[0]}  # as the cuts have in the other figures
WIDTH, STEP, HEIGHT, ROW = 0.62, 1.0, 1.15, 1.75  # of a server, from one to the next; the same downwards


def draw_mesh(plan: Plan, title: str) -> Figure:
    """Servers with their chips, the stages of a copy from left to right, three copies of all; below, what links carry.

    Violet: the chips of a server, which share each matrix. Green: from stage to stage. Blue: between copies.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(11.5, 6.3))
    tops = [0.0, -ROW, -2 * ROW - 0.55]
    for top, number in zip(tops, (0, 1, plan.copies - 1), strict=True):
        _copy(axes, plan, top, number)
    right = plan.pipeline * STEP
    for stage in range(plan.pipeline):
        middle = stage * STEP + WIDTH / 2
        axes.text(middle, 0.12, str(stage), ha="center", va="bottom", fontsize=9, color=SOFT)
        for above, below in pairwise(tops):
            _arrow(axes, (middle, above - HEIGHT - 0.04), (middle, below + 0.04), LINKS["copies"], "<|-|>")
    axes.text(-0.35, 0.12, "stage", ha="right", va="bottom", fontsize=9, color=SOFT)
    axes.text(-0.35, tops[2] + 0.3, "⋮", ha="right", va="center", fontsize=15, color=SOFT)
    _legend(axes, plan, tops[2] - HEIGHT - 0.35)
    axes.set(xlim=(-3.1, right), ylim=(tops[2] - HEIGHT - 2.2, 0.5))
    axes.axis("off")
    figure.suptitle(title, fontsize=13)
    return figure


def _copy(axes: Axes, plan: Plan, top: float, number: int) -> None:
    """A copy of the model: its stages from left to right, each a server with two columns of chips."""
    from matplotlib.patches import Rectangle

    across = plan.tensor // 2
    for stage in range(plan.pipeline):
        left = stage * STEP
        axes.add_patch(Rectangle((left, top - HEIGHT), WIDTH, HEIGHT, facecolor=LINKS["tensor"], edgecolor="none"))
        for chip in range(plan.tensor):
            x = left + 0.06 + 0.26 * (chip // across)
            y = top - 0.06 - (HEIGHT - 0.08) / across * (chip % across)
            axes.add_patch(Rectangle((x, y - 0.23), 0.23, 0.22, facecolor=FAINT, edgecolor="none"))
        if stage:
            at = top - HEIGHT / 2
            _arrow(axes, (left - STEP + WIDTH + 0.02, at), (left - 0.02, at), LINKS["pipeline"], "-|>")
    texts = plan.tokens_per_copy // plan.text
    label = f"copy {number}\n{texts} texts,\n{plan.tokens_per_copy:,} tokens"
    axes.text(-0.35, top - HEIGHT / 2, label, ha="right", va="center", fontsize=9.5, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str, style: str) -> None:
    looks = {"arrowstyle": style, "color": color, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
    axes.annotate("", xy=end, xytext=start, arrowprops=looks)


def _legend(axes: Axes, plan: Plan, top: float) -> None:
    """For each link: who is on it, what a chip sends per step, and how long that takes beside the computing."""
    who = {
        "tensor": f"in a server, over NVLink: {plan.tensor} GPUs share each matrix",
        "pipeline": f"along a copy, over each GPU's card: {plan.pipeline} servers share the layers",
        "copies": f"between copies, over the same card: {plan.copies} share the batch",
    }
    right = plan.pipeline * STEP
    places = (right - 5.1, right - 2.4, right - 0.4)
    for x, name in zip(places, ("GB per GPU and step", "seconds", "waited for"), strict=True):
        axes.text(x, top, name, ha="right", va="center", fontsize=9.5, color=SOFT)
    busy = computing_seconds(plan)
    waited = {cut: f"{busy * plan.waits[cut]:.2f}" for cut in ("tensor", "copies")} | {"pipeline": "not counted"}
    rows = [
        (LINKS[cut], who[cut], (f"{link.bytes / 1e9:,.1f}", f"{link.seconds:.2f}", waited[cut]))
        for cut, link in links(plan).items()
    ]
    for number, (color, text, columns) in enumerate([*rows, (INK, "computing", ("", f"{busy:.2f}", ""))]):
        y = top - 0.42 * (number + 1)
        axes.text(-3.0, y, text, ha="left", va="center", fontsize=10.5, color=color)
        for x, column in zip(places, columns, strict=True):
            axes.text(x, y, column, ha="right", va="center", fontsize=10.5, color=color)
