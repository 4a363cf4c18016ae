"""Figures of lesson 17: fading words, one recurrence in three views, Mamba's block, recall and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tfbook.lessons.state_spaces.convolution_figures import (
    draw_blind_spot as draw_blind_spot,
    draw_orders as draw_orders,
    draw_receptive_fields as draw_receptive_fields,
    draw_sounds as draw_sounds,
    draw_two_filters as draw_two_filters,
)
from tfbook.lessons.state_spaces.filling_figures import (
    draw_filled as draw_filled,
    draw_overflow as draw_overflow,
    draw_steps_taken as draw_steps_taken,
)
from tfbook.lessons.state_spaces.step_figures import draw_selected as draw_selected, draw_step as draw_step
from tfbook.plot.curves import label_ends
from tfbook.plot.house import BROWN, COLORS, EDGE, FAINT, GREEN, INK, KHAKI, RED, ROLES, SOFT, Method, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {  # one look for each way to read, in all figures of the lesson
    "attention": Method(COLORS[0], "o"),
    "window": Method(COLORS[2], "^"),  # as in lesson 15
    "LSTM": Method(COLORS[1], "s"),
    "minGRU": Method(BROWN, "P"),
    "gated linear attention": Method(GREEN, "D"),  # as in lesson 15
    "Mamba": Method(RED, "v"),
    "S4D": Method(KHAKI, "X"),
    "hybrid": Method(COLORS[3], "h"),
}
STUCK = 0.3  # right answers by which one seed of a reader lies below another
ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "fixed": (
        "Right answers against words since the lantern changed hands. Three lines of fixed decays start near one, fall "
        "to two thirds after 24 words, and end between one in eight, which is chance, and three in ten after 48."
    ),
    "gated": (
        "The same axes: the fixed decays fall as before, and three lines of gated decays stay at one up to 95 words."
    ),
    "full": (
        "Right answers against facts written, 2 to 128, for keys of 8, 16, and 32 numbers. Each curve stays near one "
        "at first and bends down; it crosses nine in ten near as many facts as a key has numbers."
    ),
    "chosen": (
        "Fifteen bars, one for each word: long at Rosa and Tom or at one of the three words after each, and short at "
        "the weather that follows."
    ),
    "selection": (
        "Three heat maps with a row for each of twelve words. Left, Δ: vertical stripes, from short to long steps, "
        "nearly the same in all rows. Middle and right, B and C: colors that change from row to row."
    ),
    "recall": (
        "Right answers about 16 facts, a line of dots for each reader, the best on top: attention and gated linear "
        "attention of 256 numbers at one, the wide LSTM near two thirds. minGRU, S4D, and the narrow Mamba lie on the "
        "dotted line of the most frequent thing, near one in four; a window of four positions at chance."
    ),
    "asked": (
        "Right answers against the number of facts, 2 to 16, three lines for each of six ways to read one state. "
        "Multiplied by the question, or after SiLU or ReLU of the sum, it stays above 0.9; read as it is, through a "
        "ReLU alone, or with the question added, it falls to 0.25."
    ),
    "costs": (
        "Left: milliseconds for one more word against the words read so far; attention's line rises, those of the "
        "states are flat. Right: bytes kept, attention's rising in proportion to the words, the others flat."
    ),
}

# ---- a state forgets -------------------------------------------------------------------------------------------------


def draw_fading(words: Sequence[str], readers: Mapping[str, Sequence[float]], title: str, *, per_line: int = 13) -> Any:
    """The words as each reader's state holds them after the last one: as dark as the share that is left."""
    import matplotlib.pyplot as plt

    rows = -(-len(words) // per_line)
    figure, grid = plt.subplots(len(readers), 1, figsize=(10.5, (0.42 * rows + 0.42) * len(readers)), squeeze=False)
    for axes, (name, left) in zip(grid[:, 0], readers.items(), strict=True):
        for number, (word, share) in enumerate(zip(words, map(float, left), strict=True)):
            fill, ink = ROLES["weight"].shade(share)
            y, x = divmod(number, per_line)
            axes.text(
                x,
                -y,
                literal(word),
                ha="center",
                va="center",
                fontsize=11,
                color=ink,
                bbox={"boxstyle": "round,pad=0.25", "facecolor": fill, "edgecolor": "none"},
            )
        axes.set(xlim=(-0.6, per_line - 0.4), ylim=(0.6 - rows, 0.6))
        axes.set_title(name, fontsize=11, loc="left")
        axes.axis("off")
    figure.suptitle(title, fontsize=13)
    return figure


def draw_gaps(gaps: Sequence[tuple[int, int]], readers: Mapping[str, Sequence[Sequence[float]]], title: str) -> Figure:
    """Right answers against the words since the lantern changed hands: a line for each seed of each reader."""
    import matplotlib.pyplot as plt

    looks = {"fixed decays": METHODS["S4D"], "decays set by the input": METHODS["minGRU"]}
    figure, axes = plt.subplots(figsize=(7.5, 3.6))
    places = [(low * high) ** 0.5 for low, high in gaps]
    for name, runs in readers.items():
        for number, run in enumerate(runs):
            (line,) = axes.plot(places, run, color=looks[name].color, marker=looks[name].marker, alpha=0.8)
            if number == 0:
                line.set_label(name)
    axes.axhline(1 / 8, color=EDGE, linestyle=":", linewidth=1)
    axes.text(places[0], 1 / 8 + 0.02, "chance", color=SOFT, fontsize=9)
    axes.set(xscale="log", ylim=(0, 1.06), title=title, ylabel="right answers")
    axes.set_xlabel("words since the lantern changed hands")
    axes.set_xticks(places, [f"{low}–{high - 1}" for low, high in gaps])
    axes.minorticks_off()
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.17))
    return figure


# ---- three views -----------------------------------------------------------------------------------------------------


def _dots(axes: Axes, names: Sequence[str], y: float, color: str) -> None:
    for x, name in enumerate(names):
        box = {"boxstyle": "round,pad=0.3", "facecolor": color, "edgecolor": EDGE}
        axes.text(x, y, name, ha="center", va="center", fontsize=11, bbox=box, zorder=3)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], label: str = "", at: float = 0.5) -> None:
    style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 13, "shrinkB": 13, "linewidth": 1.2}
    axes.annotate("", end, start, arrowprops=style)
    if label:
        x, y = start[0] + at * (end[0] - start[0]), start[1] + at * (end[1] - start[1])
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(x, y, label, ha="center", va="center", fontsize=9, color=SOFT, bbox=box)


def draw_views(x: Sequence[float], h: Sequence[float]) -> Figure:
    """h_t = h_{t−1} / 2 + x_t over four inputs: as a loop, as a convolution (of the last output), and as a scan."""
    import matplotlib.pyplot as plt

    inputs, states = [f"{value:g}" for value in x], [f"{value:g}" for value in h]
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.7))
    loop, convolution, scan = panels
    for axes, title in zip(
        panels, ("loop: 4 steps in a row", "convolution: one sum each", "scan: 2 levels"), strict=True
    ):
        axes.set(xlim=(-0.5, 3.5), ylim=(-0.45, 2.45))
        axes.set_title(title, fontsize=11)
        axes.axis("off")
        _dots(axes, inputs, 0, FAINT)
    for t in range(4):
        _arrow(loop, (t, 0), (t, 2))
        if t:
            _arrow(loop, (t - 1, 2), (t, 2), "½")
        weight = ("⅛", "¼", "½", "1")[t]
        _arrow(convolution, (t, 0), (3, 2), weight, 0.35)
    _dots(loop, states, 2, ROLES["stream"].shade(0.5)[0])
    _dots(convolution, ["", "", "", states[3]], 2, ROLES["stream"].shade(0.5)[0])
    middle = [f"{x[0]:g}", f"{x[0] / 2 + x[1]:g}", f"{x[1] / 2 + x[2]:g}", f"{x[2] / 2 + x[3]:g}"]
    for t in range(4):
        _arrow(scan, (t, 0), (t, 1))
        _arrow(scan, (t, 1), (t, 2))
        if t:
            _arrow(scan, (t - 1, 0), (t, 1), "½")
        if t > 1:
            _arrow(scan, (t - 2, 1), (t, 2), "¼", 0.35)
    _dots(scan, middle, 1, ROLES["weight"].shade(0.25)[0])
    _dots(scan, states, 2, ROLES["stream"].shade(0.5)[0])
    for text in list(convolution.texts):
        if not text.get_text() and text.get_bbox_patch() is not None:
            text.remove()
    figure.suptitle("One recurrence, three ways to compute it", fontsize=13)
    return figure


def draw_mamba() -> Figure:
    """The mixer of a Mamba block: a convolution over four words, Δ, B and C from its output, the scan, and a gate."""
    from tfbook.plot import Schematic

    picture = Schematic("Mamba: Δ, B, and C are made from the input", gap=(34, 20))
    x = picture.box("$x$", (0, 1), "stream", note="time × d")
    up = picture.box("$W_{in}$", (1, 1), "parameter")
    convolution = picture.box("convolution\nover 4 words", (2, 0), "plain", note="then SiLU: $u$")
    sizes = picture.box("$\\Delta, B, C$", (3, -0.9), "query", note="from $u$")
    scan = picture.box("selective scan", (4, 0), "weight", note="state: width × N")
    gate = picture.box("SiLU", (3, 2), "plain", note="$g$: the gate")
    product = picture.circle("×", (5, 1))
    down = picture.box("$W_O$", (6, 1), "parameter")
    picture.arrow(x, up)
    picture.arrow(up, convolution)
    picture.arrow(up, gate)
    picture.arrow(convolution, sizes)
    picture.arrow(convolution, scan, "$u$")
    picture.arrow(sizes, scan)
    picture.arrow(scan, product, "$h C + D \\odot u$")
    picture.arrow(gate, product)
    picture.arrow(product, down)
    return picture.figure()


# ---- recall and costs ------------------------------------------------------------------------------------------------


def draw_recall(rows: Sequence[Mapping[str, Any]], facts: int, counting: float, title: str) -> Figure:
    """Right answers about so many facts: a line of dots for each reader, one dot a seed, the best readers on top."""
    import matplotlib.pyplot as plt

    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        found.setdefault((row["method"], row["numbers"]), []).append(row[f"{facts} facts"])
    ordered = sorted(found, key=lambda reader: fmean(found[reader]))
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.3 * len(ordered)))
    for place, (method, numbers) in enumerate(ordered):
        look, shares = METHODS[method], found[method, numbers]
        axes.plot([min(shares), max(shares)], [place] * 2, color=look.color, linewidth=1.2, alpha=0.6)
        axes.scatter(shares, [place] * len(shares), color=look.color, marker=look.marker, s=40, zorder=3)
        if max(shares) - min(shares) > STUCK:
            axes.text(min(shares) - 0.02, place, "got stuck", ha="right", va="center", color=look.color, fontsize=9)
    for share, name in {1 / 8: "chance", counting: "always the most\nfrequent thing"}.items():
        axes.axvline(share, color=EDGE, linestyle=":", linewidth=1.5)
        axes.text(share + 0.01, len(ordered) - 0.7, name, ha="left", va="top", color=SOFT, fontsize=9)
    sizes = [f"{numbers:,} numbers" if numbers else "it grows" for _, numbers in ordered]
    names = [f"{method}, {size}" for (method, _), size in zip(ordered, sizes, strict=True)]
    axes.set_yticks(range(len(ordered)), names)
    axes.grid(axis="y", alpha=0.3)
    axes.set(xlim=(0, 1.04), ylim=(-0.7, len(ordered) - 0.4), title=title, xlabel=f"right answers, {facts} facts")
    return figure


def draw_asked(rows: Sequence[Mapping[str, Any]], counting: Mapping[int, float], title: str) -> Figure:
    """Right answers against the number of facts, for each way to read one state: a line for each seed."""
    import matplotlib.pyplot as plt

    looks = {
        "question multiplied": Method(INK, "*"),
        "SiLU of the sum": Method("#c2459a", "s"),
        "ReLU of the sum": Method("#5b6ee1", "^"),
        "ReLU of the state": Method(KHAKI, "X"),
        "question added": Method(SOFT, "o"),
        "read as it is": METHODS["minGRU"],
    }
    figure, axes = plt.subplots(figsize=(8.5, 3.9))
    facts = list(counting)
    for way, look in looks.items():
        for number, row in enumerate(row for row in rows if row["way"] == way):
            shares = [row[f"{count} facts"] for count in facts]
            label = way if number == 0 else None
            axes.plot(facts, shares, color=look.color, marker=look.marker, alpha=0.8, label=label)
    axes.plot(facts, list(counting.values()), color=INK, linestyle=":", linewidth=2, zorder=5)
    axes.text(
        facts[-1], counting[facts[-1]] - 0.09, "always the most frequent thing", ha="right", color=SOFT, fontsize=9
    )
    axes.set(xscale="log", ylim=(0, 1.06), title=title, xlabel="facts", ylabel="right answers")
    axes.set_xticks(facts, [str(count) for count in facts])
    axes.minorticks_off()
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def draw_costs(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Milliseconds for one more word, and bytes kept, against the words read so far."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10.5, 3.7))
    for axes, key, name in zip(panels, ("ms", "bytes"), ("milliseconds for the next word", "bytes kept"), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            points = [(row["length"], row[key]) for row in rows if row["method"] == method]
            look = METHODS[method]
            axes.plot(*zip(*points, strict=True), color=look.color, marker=look.marker, label=method)
        lengths = sorted({row["length"] for row in rows})
        axes.set(xscale="log", yscale="log" if key == "bytes" else "linear", xlabel="words read", ylabel=name)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.minorticks_off()
        label_ends(axes)
    panels[0].set_ylim(bottom=0)
    figure.suptitle(title, fontsize=13)
    return figure
