"""Figures of lesson 20: who holds what, the ring's steps, memory by part, a pipeline's time, a restart, growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbook.lessons.scaling_out.facts import GROWTH
from tfbook.lessons.scaling_out.mesh import draw_mesh as draw_mesh, draw_servers as draw_servers
from tfbook.parallel.overlap import Stint
from tfbook.parallel.planning import Plan
from tfbook.parallel.schedules import Schedule, timetable
from tfbook.plot.curves import label_ends
from tfbook.plot.house import COLORS, EDGE, FAINT, GREEN, INK, RED, ROLES, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MACHINES = (COLORS[0], COLORS[1], COLORS[2], GREEN)  # one color for each machine, in all figures
METHODS = {  # one look for each cut
    "data": Method(COLORS[0], "o"),
    "sharded": Method(COLORS[1], "s"),
    "tensor": Method(COLORS[2], "^"),
    "pipeline": Method(GREEN, "D"),
}
PARTS = {"weights": COLORS[0], "gradients": COLORS[1], "optimizer": COLORS[2], "activations": COLORS[3]}

# ---- who holds what --------------------------------------------------------------------------------------------------


def _held(axes: Axes, x: float, y: float, width: float, height: float, color: str | None) -> None:
    from matplotlib.patches import Rectangle

    face = color or FAINT
    axes.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor="white", linewidth=1))


def draw_cuts() -> Figure:
    """Four machines, four layers and a batch of eight: what each machine holds and reads, for each of four cuts."""
    import matplotlib.pyplot as plt

    titles = {
        "data": "data parallel\ncuts the batch",
        "sharded": "sharded\ncuts batch and memory",
        "tensor": "tensor parallel\ncuts each matrix",
        "pipeline": "pipeline\ncuts the stack of layers",
    }
    figure, panels = plt.subplots(1, 4, figsize=(11.5, 3.9), sharey=True)
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        for m, color in enumerate(MACHINES):
            left = m * 1.25
            for row in range(8):  # of the batch
                reads = kind in ("tensor", "pipeline") or row // 2 == m
                _held(axes, left, 5.9 - 0.16 * row, 1, 0.15, color if reads else None)
            for layer in range(4):
                _layer(axes, kind, m, left, 0.2 + layer, color, layer)
            axes.text(left + 0.5, -0.22, f"{m}", ha="center", va="center", fontsize=10, color=color, weight="bold")
        axes.set_title(title, fontsize=11, loc="center")
        axes.set(xlim=(-0.1, 4.85), ylim=(-0.75, 6.15))
        axes.text(2.37, -0.62, "machine", ha="center", va="center", fontsize=9, color=SOFT)
        axes.axis("off")
    panels[0].text(-0.25, 5.4, "batch", rotation=90, ha="center", va="center", fontsize=9.5, color=SOFT)
    panels[0].text(-0.25, 2.1, "layers", rotation=90, ha="center", va="center", fontsize=9.5, color=SOFT)
    figure.suptitle("Four ways to cut one training run for four machines", fontsize=13)
    return figure


def _layer(axes: Axes, kind: str, m: int, left: float, bottom: float, color: str, layer: int) -> None:
    """A layer's weights on one machine: whole, a quarter of its numbers, a slice of its matrices, or all or nothing."""
    whole = kind == "data" or (kind == "pipeline" and layer == m)
    _held(axes, left, bottom, 1, 0.92, color if whole else None)
    if kind == "sharded":
        _held(axes, left, bottom + 0.69 - 0.23 * m, 1, 0.23, color)
    if kind == "tensor":
        _held(axes, left + 0.25 * m, bottom, 0.25, 0.92, color)


# ---- the ring --------------------------------------------------------------------------------------------------------


def draw_ring(steps: Sequence[Sequence[Sequence[int]]]) -> Figure:
    """How many machines' numbers each piece holds, for machine (column) and piece (row), before and after each step."""
    import matplotlib.pyplot as plt

    n, columns = len(steps[0]), 1 + (len(steps) - 1) // 2
    figure, grid = plt.subplots(2, columns, figsize=(2.35 * columns, 4.9), squeeze=False)
    places = [(0, c) for c in range(columns)] + [(1, c) for c in range(1, columns)]
    for axes in grid.flat:
        axes.axis("off")
    for number, ((row, column), counts) in enumerate(zip(places, steps, strict=True)):
        axes = grid[row, column]
        for m in range(n):
            for p in range(n):
                fill, ink = ROLES["weight"].shade(counts[m][p] / n)
                axes.add_patch(plt.Rectangle((m, n - 1 - p), 0.94, 0.94, facecolor=fill, edgecolor="none"))
                axes.text(m + 0.47, n - 0.53 - p, counts[m][p], ha="center", va="center", color=ink, fontsize=10)
                if number and counts[m][p] != steps[number - 1][m][p]:
                    _arrival(axes, m, n - 0.53 - p)
        axes.set(xlim=(-0.6, n), ylim=(-0.55, n + 0.05), aspect="equal")
        for m in range(n):
            axes.text(-0.42, n - 0.53 - m, str(m), ha="center", va="center", fontsize=9, color=SOFT)
            axes.text(m + 0.47, -0.3, str(m), ha="center", va="center", fontsize=9, color=MACHINES[m % 4])
        name = "start" if number == 0 else f"step {number}: " + ("add" if number < n else "pass on")
        axes.set_title(name, fontsize=10.5, loc="center", fontweight="normal")
    legend = (
        "columns: machines\nrows: pieces\nnumbers: how many\nmachines are in\nthe sum\narrows: what has\njust arrived"
    )
    grid[1, 0].text(0, 0.75, legend, fontsize=9.5, color=SOFT, va="top", transform=grid[1, 0].transAxes)
    figure.suptitle(f"{n - 1} steps that add, {n - 1} steps that pass on", fontsize=13)
    return figure


def _arrival(axes: Axes, m: int, y: float) -> None:
    """An arrow into a cell of machine m, from its left neighbor."""
    arrow = {"arrowstyle": "-|>", "color": RED, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(m + 0.28, y), xytext=(m - 0.24, y), arrowprops=arrow, annotation_clip=False)


def draw_ring_bytes(machines: Sequence[int], ring: Sequence[float], center: Sequence[float], title: str) -> Figure:
    """Times the gradient's size that the busiest machine sends, for a ring and for one machine that adds for all."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    axes.plot(machines, center, color=COLORS[3], marker="X", label="machine 0 adds for all")
    axes.plot(machines, ring, color=METHODS["data"].color, marker="o", label="ring")
    axes.set(xscale="log", yscale="log", title=title, xlabel="machines")
    axes.set_ylabel("busiest machine sends\n(× size of the gradient)")
    axes.set_xticks(machines, [str(n) for n in machines])
    axes.set_yticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.minorticks_off()
    label_ends(axes)
    return figure


# ---- memory ----------------------------------------------------------------------------------------------------------


def draw_memory(bars: Mapping[str, Mapping[str, float]], title: str, *, limit: float | None = None) -> Figure:
    """Bytes on one machine by part, a stacked bar for each entry; `limit` is the memory that a machine has."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.55 * len(bars) + 1.3))
    names = list(bars)[::-1]
    left = [0.0] * len(names)
    for part, color in PARTS.items():
        sizes = [bars[name].get(part, 0.0) / 1e9 for name in names]
        if any(sizes):
            axes.barh(names, sizes, left=left, color=color, label=part, height=0.7, edgecolor="white")
            left = [a + b for a, b in zip(left, sizes, strict=True)]
    for y, total in enumerate(left):
        axes.text(total + 0.012 * max(left), y, f"{total:.2f} GB" if total < 10 else f"{total:,.0f} GB", va="center")
    axes.set(title=title, xlabel="gigabytes on one machine", xlim=(0, 1.14 * max(left)))
    if limit:
        axes.axvline(limit / 1e9, color=INK, linestyle="--", linewidth=1.2)
        axes.text(limit / 1e9, -0.62, f"one GPU: {limit / 1e9:.0f} GB ", fontsize=9, color=INK, ha="right", va="center")
        axes.set_ylim(-0.85, len(names) - 0.5)
    axes.grid(axis="y", visible=False)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# ---- tensor parallel -------------------------------------------------------------------------------------------------


def draw_split_layer() -> Figure:
    """x W₁ W₂ for two machines: W₁ in two parts side by side, W₂ in two parts one above the other, two sums to add."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 2.7))
    two = MACHINES[:2]

    def box(x: float, y: float, width: float, height: float, color: str, text: str) -> None:
        axes.add_patch(plt.Rectangle((x, y), width, height, facecolor=color, edgecolor="white", linewidth=2))
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color="white", fontsize=10)

    def note(x: float, text: str) -> None:
        axes.text(x, 0.15, text, ha="center", va="top", fontsize=9.5, color=SOFT)

    box(0, 0.8, 1, 0.7, COLORS[3], "$x$")
    note(0.5, "both machines\nhave x: time × d")
    for i, color in enumerate(two):
        box(1.9 + 1.05 * i, 0.6, 1, 1.1, color, f"$W_1$\npart {i}")
        box(4.9 + 1.05 * i, 0.8, 1, 0.7, color, f"$h$ part {i}")
        box(7.9, 1.2 - 0.8 * i, 1.4, 0.75, color, f"$W_2$ part {i}")
        box(10.2, 1.42 - 1.12 * i, 1.1, 0.6, color, f"sum {i}")
    note(2.9, "cut by outputs:\neach has its hidden units")
    note(5.9, "the nonlinearity sees\nwhole hidden units")
    note(8.6, "cut by inputs: the rows\nthat these units meet")
    note(10.75, "partial sums,\nadded over the wire")
    box(12.5, 0.8, 1, 0.7, COLORS[3], "$y$")
    note(13, "one all-reduce")
    for x, text in ((1.45, "×"), (4.4, "→"), (7.45, "×"), (9.75, "="), (11.9, "→")):
        axes.text(x, 1.15, text, ha="center", va="center", fontsize=15, color=INK)
    axes.text(10.75, 1.16, "+", ha="center", va="center", fontsize=15, color=INK)
    axes.set(xlim=(-0.2, 13.8), ylim=(-0.5, 2.15))
    axes.axis("off")
    figure.suptitle("A feed-forward network on two machines needs one sum", fontsize=13)
    return figure


# ---- pipeline --------------------------------------------------------------------------------------------------------


def draw_pipelines(schedules: Mapping[str, Schedule], title: str) -> Figure:
    """Each stage's passes in time: forward passes light, backward passes dark, twice as long; white is waiting."""
    import matplotlib.pyplot as plt

    stages = len(next(iter(schedules.values())))
    figure, panels = plt.subplots(len(schedules), 1, figsize=(11, (0.42 * stages + 0.75) * len(schedules)), sharex=True)
    for axes, (name, schedule) in zip([panels] if len(schedules) == 1 else panels, schedules.items(), strict=True):
        for each in timetable(schedule):
            color = MACHINES[each.stage % 4]
            alpha = 0.45 if each.kind == "F" else 1.0
            axes.barh(each.stage, each.end - each.start, left=each.start, color=color, alpha=alpha, height=0.86,
                      edgecolor="white", linewidth=1)  # fmt: skip
            middle = (each.start + each.end) / 2
            ink = INK if each.kind == "F" else "white"
            axes.text(
                middle, each.stage, f"{each.kind}{each.microbatch}", ha="center", va="center", fontsize=8.5, color=ink
            )
        axes.set_yticks(range(stages), [f"stage {s}" for s in range(stages)])
        axes.set_ylim(stages - 0.4, -0.6)
        axes.set_title(name, fontsize=11, fontweight="normal")
        axes.grid(visible=False)
    axes.set_xlabel("time (one forward pass of a microbatch = 1)")
    figure.suptitle(title, fontsize=13)
    return figure


# ---- a restart -------------------------------------------------------------------------------------------------------


def draw_restart(unbroken: Sequence[float], rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Losses in the order in which the steps were run, before and after a kill, on an undisturbed run's (gray)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 3.9))
    losses, first = [unbroken[row["step"]] for row in rows], sum(row["attempt"] == 0 for row in rows)
    again = first - rows[first]["step"]  # steps that are run twice
    parts = {"until the kill": range(first), "after the restart": range(first, len(rows))}
    for number, (name, part) in enumerate(parts.items()):
        gray = "same steps, nothing killed" if number == 0 else None
        axes.plot(part, [losses[x] for x in part], color=EDGE, linewidth=8, marker="none", label=gray)
        found = [rows[x]["loss"] for x in part]
        axes.plot(part, found, color=COLORS[number], marker="os"[number], markersize=4.5, linewidth=1.5, label=name)
        left = first - 0.5 + (number - 1) * again
        axes.axvspan(left, left + again, color=COLORS[number], alpha=0.13, linewidth=0)
    axes.axvline(first - 0.5, color=RED, linestyle="--", linewidth=1.2)
    axes.text(
        first - 0.5,
        1.02,
        "process 1 killed",
        color=RED,
        fontsize=9.5,
        ha="center",
        transform=axes.get_xaxis_transform(),
    )
    axes.set_title(title, pad=22)
    axes.set(xlabel="step (in the order in which they were run)", ylabel="loss (nats per token)")
    ticks = [x for x, row in enumerate(rows) if row["step"] % 4 == 0 or first - again <= x < first + again]
    axes.set_xticks(ticks, [str(rows[x]["step"]) for x in ticks], fontsize=9)
    axes.legend(loc="lower left")
    return figure


# ---- bytes to seconds ------------------------------------------------------------------------------------------------


def draw_speedup(plans: Mapping[str, Sequence[Plan]], title: str, texts: int | None = None) -> Figure:
    """Times as fast as one chip, against chips: a line for each wire, a circle where sending stops hiding.

    Dotted: as many chips as the batch has `texts`.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4))
    counts = [plan.chips for plan in next(iter(plans.values()))]
    axes.plot(counts, counts, color=EDGE, linestyle="--", marker="none", linewidth=1.2, label="sending is free")
    for (name, several), color in zip(plans.items(), (COLORS[0], COLORS[1]), strict=False):
        axes.plot(
            [plan.chips for plan in several], [plan.speedup for plan in several], color=color, marker="none", label=name
        )
        last = several[-1].batch / several[-1].tokens_to_hide
        axes.plot(last, last, color=color, marker="o", markersize=8, markerfacecolor="white", linestyle="none")
        axes.annotate(
            f"{last:,.0f} GPUs", (last, last), xytext=(9, -9), textcoords="offset points", fontsize=9.5, color=color
        )
    if texts is not None:
        axes.axvline(texts, color=EDGE, linestyle=":", linewidth=1.2, label="one text for each GPU")
    axes.set(xscale="log", yscale="log", title=title, xlabel="GPUs", ylabel="times as fast as one")
    ticks = [1, 10, 100, 1000, 10_000]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_yticks(ticks, [f"{n:,}" for n in ticks])
    axes.minorticks_off()
    axes.legend(loc="upper left")
    return figure


# ---- sending beside computing ----------------------------------------------------------------------------------------


def draw_overlap(panels: Mapping[str, Sequence[Stint]], title: str) -> Figure:
    """A GPU's passes and what is on its wire below, in time: one color for each layer; hatched: weights that arrive."""
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(panels), 1, figsize=(11, 1.65 * len(panels)), sharex=True)
    for axes, (name, jobs) in zip(rows, panels.items(), strict=True):
        for job in jobs:
            dark = job.kind in ("backward", "send")
            axes.barh(
                job.wire, job.end - job.start, left=job.start, color=MACHINES[job.layer % 4], height=0.86,
                alpha=1.0 if dark else 0.45, hatch="//" if job.kind == "gather" else None, edgecolor="white",
                linewidth=1,
            )  # fmt: skip
            letter = {"forward": "F", "backward": "B", "gather": "w", "send": "g"}[job.kind]
            axes.text((job.start + job.end) / 2, job.wire, f"{letter}{job.layer + 1}", ha="center", va="center",
                      fontsize=8.5, color="white" if dark else INK)  # fmt: skip
        axes.set_yticks([0, 1], ["GPU", "wire"])
        axes.set_ylim(1.6, -0.6)
        axes.set_title(name, fontsize=11, fontweight="normal")
        axes.grid(visible=False)
    rows[-1].set_xlabel("time (a layer's forward pass = 1)")
    figure.suptitle(title, fontsize=13)
    return figure


# ---- growth ----------------------------------------------------------------------------------------------------------


def draw_growth(title: str) -> Figure:
    """Parameters of language models by the month of their publication, on a logarithmic axis, and one GPU's memory."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9.5, 4.6))
    for fact in GROWTH:
        color = COLORS[1] if fact.active else COLORS[0]
        axes.plot(
            fact.year, fact.parameters, color=color, marker="s" if fact.active else "o", linestyle="none", markersize=6
        )
        axes.annotate(fact.name, (fact.year, fact.parameters), xytext=fact.offset, textcoords="offset points",
                      fontsize=9, color=color, ha=fact.align, va="center")  # fmt: skip
    axes.axhline(80e9 / 16, color=EDGE, linestyle="--", linewidth=1.2)
    label = "what one H100 of 2022, with 80 GB,\ncan train (16 bytes per parameter)"
    axes.text(2025.9, 80e9 / 16 * 1.12, label, fontsize=9, color=SOFT, ha="right", va="bottom")
    axes.set(yscale="log", ylim=(5e7, 3e12), xlim=(2017.2, 2026), title=title, ylabel="parameters")
    axes.set_yticks(
        [1e8, 1e9, 1e10, 1e11, 1e12], ["100 million", "1 billion", "10 billion", "100 billion", "1 trillion"]
    )
    axes.minorticks_off()
    return figure
