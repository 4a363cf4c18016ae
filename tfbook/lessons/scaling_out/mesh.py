"""Figures of servers: an all-reduce in two levels, and a combined plan with its copies below each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tfbook.parallel.mesh import computing_seconds, links
from tfbook.parallel.planning import Plan
from tfbook.plot.house import COLORS, FAINT, GREEN, INK, ROLES, SOFT

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


# ---- an all-reduce in two levels -------------------------------------------------------------------------------------


def draw_servers(title: str, size: int = 4) -> Figure:
    """Two servers of `size` GPUs, each with its vector in as many pieces: how many GPUs are in each sum, by stage.

    In each server a reduce-scatter, over the cards a ring of GPUs with the same number, in each server an all-gather.
    """
    import matplotlib.pyplot as plt

    own = [[1] * size for _ in range(size)]  # [gpu][piece]
    stages = {
        "start": own,
        "1. inside: reduce-scatter": [[size if p == g else 0 for p in range(size)] for g in range(size)],
        "2. over the cards: a ring": [[2 * size if p == g else 0 for p in range(size)] for g in range(size)],
        "3. inside: all-gather": [[2 * size] * size for _ in range(size)],
    }
    figure, panels = plt.subplots(1, len(stages), figsize=(11.5, 5.3))
    for number, (axes, (name, counts)) in enumerate(zip(panels, stages.items(), strict=True)):
        for server, top in enumerate((2 * size + 1.9, size)):
            _server(axes, counts, top, server, inside=number in (1, 3))
        if number == 2:
            for gpu in range(size):
                _arrow(axes, (gpu + 0.47, size + 1.75), (gpu + 0.47, size + 0.15), LINKS["copies"], "<|-|>")
        axes.text(-0.5, -0.42, "GPU", ha="center", va="center", fontsize=9, color=SOFT)
        axes.set(xlim=(-0.9, size + 0.15), ylim=(-0.75, 2 * size + 2.2), aspect="equal")
        axes.set_title(name, fontsize=10.5, loc="center", fontweight="normal")
        axes.axis("off")
    figure.suptitle(title, fontsize=13)
    return figure


def _server(axes: Axes, counts: Sequence[Sequence[int]], top: float, server: int, *, inside: bool) -> None:
    """A frame around the server's GPUs, a column each; it is thick and violet while they talk over NVLink."""
    from matplotlib.patches import Rectangle

    size = len(counts)
    edge = LINKS["tensor"] if inside else SOFT
    width = 2.4 if inside else 0.8
    axes.add_patch(Rectangle((-0.1, top - size - 0.1), size + 0.14, size + 0.14, fill=False, edgecolor=edge, lw=width))
    axes.text(-0.5, top - size / 2, f"server {server}", rotation=90, ha="center", va="center", fontsize=9, color=SOFT)
    for gpu, pieces in enumerate(counts):
        for piece, count in enumerate(pieces):
            fill, ink = ROLES["weight"].shade(count / (2 * size))
            y = top - 1 - piece
            axes.add_patch(Rectangle((gpu, y), 0.94, 0.94, facecolor=fill if count else FAINT, edgecolor="none"))
            axes.text(gpu + 0.47, y + 0.47, str(count or ""), ha="center", va="center", color=ink, fontsize=10)
        if server:
            axes.text(gpu + 0.47, top - size - 0.42, f"{gpu}", ha="center", va="center", fontsize=9, color=SOFT)


# ---- a combined plan -------------------------------------------------------------------------------------------------


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
