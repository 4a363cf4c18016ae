"""Figures of lesson 16: the roofline, batches, who runs when, groups, the rule of speculation and its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.course.roofline import Roofline
from tfbook.lessons.inference.drawings import (
    draw_heads as draw_heads,
    draw_round as draw_round,
    draw_travel as draw_travel,
)
from tfbook.plot.curves import label_ends
from tfbook.plot.house import COLORS, EDGE, INK, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tfbook.lessons.inference.guessing_ahead import Acceptance, Gain, Pair
    from tfbook.lessons.inference.law import Rate, Step
    from tfbook.lessons.inference.timing import Predicted

PREDICTED, MEASURED = Method(COLORS[3], "o"), Method(COLORS[0], "s")
DRAFTS = {"draft model": Method(COLORS[2], "^"), "table of counts": Method(COLORS[1], "D")}
REQUESTS = ("#cfe2f3", "#f9d9c0", "#e0d0ea", "#d5e8d4", "#f3e6b8", "#dcdfe3")

ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "law": (
        "Milliseconds per token against megabytes, both logarithmic. The measured curve begins flat, at the time of "
        "the calls, and then rises beside the line of bytes divided by bandwidth, somewhat above it."
    ),
    "prefill": (
        "Operations per second against operations per byte. Two lines form a roof. Decode is on its slope at 0.5, "
        "prefill under its flat part at 49; the measured points are below."
    ),
    "contexts": (
        "Two panels, tokens per second against texts, for six heads and two groups. After 60 tokens both rise alike; "
        "after 900, six heads rise little beyond a few texts, and two groups end well above them."
    ),
    "timeline": (
        "Two panels of three seats. With static batching, seats stay empty until the longest story of a batch has "
        "ended; with continuous batching, the next story takes a seat at once, and everything ends earlier."
    ),
    "groups": (
        "Two panels, loss against groups. Right after the conversion, the loss is several nats; after training "
        "further, it is near the storyteller's again, a little higher with fewer groups."
    ),
    "pairs": (
        "A grid: rows for 32 bits, 8 bits, and 2 groups, columns for one text, guesses, 16 texts, 16 long texts. Each "
        "cell has its speed and the product of its levers' speeds: larger than the speed for 8 bits, smaller for 2 "
        "groups with long texts."
    ),
    "speeds": (
        "Speed against the number of proposals. The heavy storyteller's curve rises far above one, beside its "
        "dotted prediction; the storyteller's stays near one."
    ),
}
TITLES = {
    "law": "Small models wait for calls, large ones for their bytes",
    "speeds": "Guessing ahead pays where reading the weights takes the time",
    "pairs": "Some levers give less than multiplied, some more",
    "contexts": "A cache that grows with every text ends what sharing the weights can give",
    "prefill": "By the roofline, arithmetic limits prefill, and memory limits decode",
}
CAPTIONS = {
    "pairs": (
        "Heavy storyteller: times as fast as 32 bits with one text, after 60 tokens (long texts: 900). Small: what "
        "its levers alone, multiplied, would give. Orange: less than that; blue: more. All measured."
    ),
    "timeline": "Each bar is a story, numbered by arrival. White is paid for and not used.",
}

PLACES = {  # of labels that would lie on others; the rest are left of their marks
    "guess 4": ((8, -13), "left"),
    "guess ahead": ((-4, 22), "right"),
    "16 texts": ((-2, 8), "right"),
    "prefill": ((0, 7), "center"),
}

# ---- the roofline ----------------------------------------------------------------------------------------------------


def draw_roofline(panels: Sequence[tuple[Roofline, Sequence[Predicted]]], title: str) -> Figure:
    """For each machine its two limits, and each run where the roofline puts it (open) and where it was (filled).

    A run that was not measured, one of NaN, has no filled mark.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels) + 1.2, 4.4), squeeze=False)
    for place, (machine, runs) in zip(axes[0], panels, strict=True):
        _draw_machine(place, machine, runs)
    axes[0][0].set_ylabel("operations per second")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _draw_machine(axes: Axes, machine: Roofline, runs: Sequence[Predicted]) -> None:
    intensities = [run.work.intensity for run in runs]
    low, high = min(intensities) / 2.5, max(*intensities, machine.ridge) * 4
    xs = np.geomspace(low, high, 200)
    axes.plot(xs, [machine.attainable(x) for x in xs], color=INK, linewidth=1.6, marker="none")
    for run in runs:
        per_token = run.work.flops / run.tokens
        x, y, seen = run.work.intensity, run.predicted * per_token, run.measured * per_token
        axes.plot([x, x], [seen, y], color=EDGE, linewidth=0.9, marker="none")
        axes.plot(x, y, marker="o", color="white", markeredgecolor=PREDICTED.color, markersize=8, linestyle="none")
        axes.plot(x, seen, marker="s", color=MEASURED.color, markersize=6, linestyle="none")
        offset, side = PLACES.get(run.name, ((-7, 5), "right"))
        axes.annotate(run.name, (x, y), xytext=offset, textcoords="offset points", ha=side, fontsize=9.5, color=INK)
    axes.set(xscale="log", yscale="log", xlim=(low / 12, high), xlabel="operations per byte")
    axes.set_ylim(machine.attainable(low) / 12, machine.peak * 4)
    axes.text(high * 0.9, machine.peak * 2, f"peak, {_big(machine.peak)}FLOP/s", ha="right", fontsize=9, color=SOFT)
    axes.set_title(f"{machine.name}\nmemory: {_big(machine.bandwidth)}B/s", fontsize=10, fontweight="normal")


def _big(number: float) -> str:
    """With a prefix such as G."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {prefix}"
    return f"{number:.3g} "


# ---- batches ---------------------------------------------------------------------------------------------------------


def draw_law(steps: Mapping[int, Step], floor: float, machine: Roofline) -> Figure:
    """Milliseconds of a step against the megabytes that it reads: the fixed cost, the law, both, and measured."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 4.4))
    xs = np.geomspace(min(step.bytes for step in steps.values()) / 1.6, max(step.bytes for step in steps.values()), 60)
    slope, both = xs / machine.bandwidth, floor + xs / machine.bandwidth
    axes.plot(xs / 1e6, 1e3 * slope, ":", color=SOFT, linewidth=1.3, marker="none")
    axes.plot(xs / 1e6, np.full_like(xs, 1e3 * floor), ":", color=SOFT, linewidth=1.3, marker="none", label="calls")
    axes.plot(xs / 1e6, 1e3 * both, "--", color=PREDICTED.color, marker="none", label="predicted")
    places = [step.bytes / 1e6 for step in steps.values()]
    measured = [1e3 * step.measured for step in steps.values()]
    axes.plot(places, measured, color=MEASURED.color, marker=MEASURED.marker, label="measured")
    axes.set(xscale="log", yscale="log", xlabel="MB that a step reads", ylabel="milliseconds per token")
    axes.set_xticks(places, [f"{place:.0f}" for place in places])
    axes.set_title(TITLES["law"])
    axes.set_ylim(0.3 * 1e3 * floor, 1.6 * max(measured))
    place = 1e3 * floor * machine.bandwidth / 1e9  # MB that take half as long as the calls
    axes.annotate("bytes ÷ bandwidth", (place / 2, 0.5e3 * floor), xytext=(12, -6), **BESIDE, color=SOFT)
    _plain_ticks(axes)
    label_ends(axes)
    return figure


def _plain_ticks(axes: Axes) -> None:
    """Milliseconds as 1, 2, 5, 10, … on a logarithmic axis."""
    low, high = axes.get_ylim()
    ticks = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.minorticks_off()


def draw_batches(models: Mapping[str, Mapping[int, Step]]) -> Figure:
    """Milliseconds of a step against the number of texts, as predicted and as measured: a panel for each model."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(models), figsize=(4.8 * len(models), 3.8), squeeze=False)
    for axes, (name, steps) in zip(panels[0], models.items(), strict=True):
        sizes = [*steps]
        predicted = [1e3 * step.predicted for step in steps.values()]
        measured = [1e3 * step.measured for step in steps.values()]
        axes.plot(sizes, predicted, "--", color=PREDICTED.color, marker=PREDICTED.marker, label="predicted")
        axes.plot(sizes, measured, color=MEASURED.color, marker=MEASURED.marker, label="measured")
        axes.set(xscale="log", yscale="log", xlabel="texts in the batch", title=name)
        axes.set_xticks(sizes, map(str, sizes))
        axes.set_ylim(0.5 * predicted[0], 2 * max(measured))
        _plain_ticks(axes)
        label_ends(axes)
    panels[0][0].set_ylabel("milliseconds per step")
    figure.suptitle(
        "The second text nearly doubles a step, sixteen take far less than 16 times as long",
        x=0.01,
        ha="left",
        fontweight="bold",
    )
    return figure


def draw_contexts(found: Mapping[int, Mapping[str, Mapping[int, Rate]]]) -> Figure:
    """Tokens per second against the number of texts, predicted and measured, for each model: a panel per context."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(found), figsize=(4.8 * len(found), 3.8), squeeze=False, sharey=True)
    for axes, (past, models) in zip(panels[0], found.items(), strict=True):
        for (name, rates), method in zip(models.items(), (MEASURED, Method(COLORS[1], "D")), strict=True):
            sizes = [*rates]
            axes.plot(sizes, [rate.predicted for rate in rates.values()], ":", color=method.color, marker="none")
            measured = [rate.measured for rate in rates.values()]
            axes.plot(sizes, measured, color=method.color, marker=method.marker, label=name)
        axes.set(xscale="log", xlabel="texts in the batch", title=f"after {past} tokens")
        axes.set_xticks(sizes, map(str, sizes))
        axes.minorticks_off()
        label_ends(axes)
    panels[0][0].set(ylabel="tokens per second", ylim=(0, None))
    figure.suptitle(TITLES["contexts"], x=0.01, ha="left", fontweight="bold")
    return figure


def draw_timeline(schedules: Mapping[str, Sequence[Sequence[int]]], seats: int) -> Figure:
    """Who holds which seat in each step: a panel for each schedule, a row for each seat, a color for each request."""
    import matplotlib.pyplot as plt

    longest = max(map(len, schedules.values()))
    figure, axes = plt.subplots(len(schedules), 1, figsize=(9, 1.75 * len(schedules) + 0.4), sharex=True, squeeze=False)
    figure.set_label("schematic")
    for place, (name, steps) in zip(axes[:, 0], schedules.items(), strict=True):
        for request, (seat, first, last) in _stays(steps, seats).items():
            place.barh(seat, last - first + 1, left=first, height=0.86, color=REQUESTS[request % 6], edgecolor=EDGE)
            place.text(first + 0.35, seat, str(request + 1), va="center", fontsize=9.5, color=INK)
        place.axvline(len(steps), color=SOFT, linewidth=1.4, linestyle=":")
        place.set(ylim=(seats - 0.4, -0.6), yticks=range(seats), yticklabels=[f"seat {i + 1}" for i in range(seats)])
        place.set_title(f"{name}: {len(steps)} steps", fontsize=11)
        place.grid(visible=False)
        place.spines["left"].set_visible(False)
        place.tick_params(axis="y", length=0)
    axes[-1, 0].set(xlim=(0, longest + 0.5), xlabel="step (one pass of the model)")
    return figure


def _stays(steps: Sequence[Sequence[int]], seats: int) -> dict[int, tuple[int, int, int]]:
    """The seat of each request, its first step and its last; a seat is taken again once its request is gone."""
    stays: dict[int, tuple[int, int, int]] = {}
    for step, present in enumerate(steps):
        taken = {stays[request][0] for request in present if request in stays}
        free = iter([seat for seat in range(seats) if seat not in taken])
        for request in present:
            seat, first, _ = stays[request] if request in stays else (next(free), step, step)
            stays[request] = seat, first, step
    return stays


def draw_pool(tables: Mapping[str, Sequence[int]], blocks: int, columns: int = 16) -> Figure:
    """The blocks of a pool as cells, each with the letters of the requests whose tables name it."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    rows = -(-blocks // columns)
    figure, axes = plt.subplots(figsize=(8.4, 0.55 * rows + 0.5))
    figure.set_label("schematic")
    for block in range(blocks):
        users = [name for name, table in tables.items() if block in table]
        color = "white" if not users else "#b9a7cf" if len(users) > 1 else REQUESTS[[*tables].index(users[0]) % 6]
        x, y = block % columns, block // columns
        axes.add_patch(Rectangle((x, y), 0.92, 0.86, facecolor=color, edgecolor=EDGE))
        label = "all" if len(users) == len(tables) else "".join(users)
        axes.text(x + 0.46, y + 0.45, label, ha="center", va="center", fontsize=8.5, color=INK)
    axes.set(xlim=(-0.1, columns), ylim=(rows, -0.1), title="Sixteen requests share the blocks of their beginning")
    axes.set_axis_off()
    return figure


# ---- groups ----------------------------------------------------------------------------------------------------------


def draw_groups(found: Mapping[int, Mapping[str, float]], original: float) -> Figure:
    """The loss against the groups: right after the conversion, and after some training, with the spread over seeds."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.6))
    places = range(len(found))
    left.plot(places, [row["before"] for row in found.values()], color=COLORS[0], marker="o")
    after = [row["after"] for row in found.values()]
    spread = [
        [row["after"] - row["lowest"] for row in found.values()],
        [row["highest"] - row["after"] for row in found.values()],
    ]
    right.errorbar(places, after, spread, color=COLORS[0], marker="o", capsize=3)
    for axes, title in ((left, "Right after the conversion"), (right, "After 2% of the training steps")):
        axes.axhline(original, color=SOFT, linestyle="--", linewidth=1.3)
        axes.set_xticks(places, [f"{count}\n{row['bytes']:,.0f} bytes" for count, row in found.items()])
        axes.set(xlabel="groups, and the cache of a token", title=title)
    left.set(ylabel="loss (nats per token)", ylim=(0, None))
    return figure


BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 10}


# ---- speculation -----------------------------------------------------------------------------------------------------


def draw_rule(words: Sequence[str], p: Sequence[float], q: Sequence[float]) -> Figure:
    """Each word's p and q as one bar: what both have, what the draft proposes too often, and what is missing."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.4))
    places, shared = np.arange(len(words)), np.minimum(p, q)
    over, under = np.maximum(0, np.subtract(q, p)), np.maximum(0, np.subtract(p, q))
    axes.bar(places, shared, 0.6, color=COLORS[0], label="min(p, q): accepted")
    axes.bar(
        places, over, 0.6, bottom=shared, color="#d4d8dd", label="q above p: rejected", hatch="///", edgecolor=SOFT
    )
    axes.bar(places, under, 0.6, bottom=shared, color=COLORS[1], label="p above q: drawn after a rejection")
    for x, (mine, theirs) in enumerate(zip(p, q, strict=True)):
        axes.text(x, max(mine, theirs) + 0.02, f"p = {mine:g}\nq = {theirs:g}", ha="center", fontsize=9.5, color=INK)
    axes.set_xticks(places, words)
    axes.set(ylim=(0, max(*p, *q) + 0.2), title="Gray and orange have the same total: orange fills what p lacks")
    axes.legend(frameon=False, fontsize=9.5, loc="upper right")
    axes.grid(visible=False)
    return figure


def draw_acceptances(found: Sequence[Acceptance]) -> Figure:
    """The probability that a proposal is accepted against the draft's loss."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.8))
    for each in found:
        method = DRAFTS["draft model" if each.name in ("draft model", "itself") else "table of counts"]
        axes.plot(each.loss, each.overlap, marker=method.marker, color=method.color, markersize=8, linestyle="none")
        axes.annotate(each.name, (each.loss, each.overlap), xytext=(8, 4), textcoords="offset points", fontsize=9.5)
    axes.set(xlabel="the draft's own loss (nats per token)", ylabel="α = mean of Σ min(p, q)", ylim=(0, 1.08))
    axes.set_xlim(0, max(each.loss for each in found) * 1.3)
    axes.set_title("Good drafts are accepted more often")
    return figure


def draw_speeds(models: Mapping[str, Sequence[Gain]]) -> Figure:
    """Speed beside plain decoding against k, for each model: as measured, and as it follows from the parts' times."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 4.0))
    for (name, found), method in zip(models.items(), (Method(COLORS[0], "s"), Method(COLORS[1], "D")), strict=True):
        ks = [gain.k for gain in found]
        axes.plot(ks, [gain.predicted for gain in found], ":", color=method.color, marker="none")
        measured = [gain.measured for gain in found]
        axes.plot(ks, measured, color=method.color, marker=method.marker, label=name)
    axes.axhline(1, color=SOFT, linestyle="--", linewidth=1.3)
    axes.set(xlabel="k, tokens that are proposed", ylabel="speed (plain decoding = 1)", ylim=(0, None))
    axes.set_xticks(ks)
    axes.set_title(TITLES["speeds"])
    label_ends(axes)
    return figure


# ---- pairs of levers -------------------------------------------------------------------------------------------------


def draw_pairs(pairs: Mapping[str, Pair]) -> Figure:
    """A grid of formats and of other levers: the speed of each pair, and that of its levers multiplied."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    first, *_ = pairs.values()
    columns = {"plain": "one text", "guessing": "guesses", "together": "16 texts", "long": "16 long texts"}
    figure, axes = plt.subplots(figsize=(8.2, 0.85 * len(pairs) + 1.1))
    figure.set_label("schematic")
    for row, (form, pair) in enumerate(pairs.items()):
        axes.text(-0.08, row + 0.45, form, ha="right", va="center", fontsize=11, color=INK)
        for column, (key, title) in enumerate(columns.items()):
            took, multiplied = getattr(pair, key), pair.multiplied(key, first)
            fill = _cell_color(first.plain / took / multiplied) if multiplied else "#f2f2f2"
            axes.add_patch(Rectangle((column, row), 0.96, 0.9, facecolor=fill, edgecolor=EDGE))
            middle = column + 0.48
            speed = f"{first.plain / took:.1f} ×" if took else "not tried"
            axes.text(middle, row + 0.36, speed, ha="center", va="center", fontsize=13 if took else 10, color=INK)
            alone = "one lever" if pair is not first or key != "plain" else "no lever"
            note = f"multiplied: {multiplied:.1f} ×" if multiplied else alone if took else ""
            axes.text(middle, row + 0.7, note, ha="center", va="center", fontsize=9, color=INK)
            if not row:
                axes.text(middle, -0.12, title, ha="center", va="bottom", fontsize=11, color=INK)
    axes.set(xlim=(-0.05, len(columns)), ylim=(len(pairs), -0.35), title=TITLES["pairs"])
    axes.set_axis_off()
    return figure


def _cell_color(share: float) -> str:
    """Orange for clearly less than the product, blue for clearly more, white between."""
    return "#f9d9c0" if share < 0.95 else "#cfe2f3" if share > 1.05 else "white"
