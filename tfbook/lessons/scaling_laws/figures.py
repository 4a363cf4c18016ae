"""Figures of lesson 10: costs, directions of a gradient, the race, the law of the losses, and induction heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.plot.curves import lines
from tfbook.plot.house import COLORS, EDGE, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]


# ---- what a run costs ------------------------------------------------------------------------------------------------


def draw_budget(runs: DataFrame, law: Callable[[Any, Any], Any] | None = None) -> Picture:
    """Held-out loss of models of different sizes at about the same cost, by their number of parameters.

    If a `law(N, D)` is given, it is drawn in place of notes, with the tokens of the sizes in between interpolated.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4))
    axes.set_xscale("log")
    if law:
        _law_at_equal_cost(axes, runs, law)
    axes.plot(runs["with"], runs["loss"], "o" if law else "-o", color=COLORS[0])
    best = runs["with"].iloc[runs["loss"].argmin()]
    look: dict[str, Any] = {"fontsize": 9, "color": SOFT, "textcoords": "offset points"}
    for size, tokens, loss in () if law else zip(runs["with"], runs["tokens"], runs["loss"], strict=True):
        if size < best:  # labels stay on the outer side of the line
            place: dict[str, Any] = {"xytext": (0, 8), "ha": "center", "va": "bottom"}
        else:
            place = {"xytext": (8, -6), "ha": "left", "va": "top"}
        note = f"reads {tokens / 1000:,.0f}k\ncharacters"
        axes.annotate(note, (size, loss), **place, **look)
    axes.set_xticks(runs["with"], [f"{size:,.0f}" for size in runs["with"]])
    axes.minorticks_off()
    finding = "the law runs close to the points" if law else "the largest model is the worst"
    axes.set(
        title=f"About the same compute, and {finding}",
        xlabel="parameters in matrices, with the embedding",
        ylabel="held-out loss (nats)",
        ylim=(1.45, 2.25),
        xlim=(runs["with"].min() / 1.5, runs["with"].max() * 2),
    )
    said = ", ".join(f"{size:,.0f}: {loss:.2f}" for size, loss in zip(runs["with"], runs["loss"], strict=True))
    added = " A dashed line, the law's, runs close to the points." if law else ""
    return figure, f"Loss against parameters at equal compute, a curve with its lowest point inside ({said}).{added}"


def _law_at_equal_cost(axes: Axes, runs: DataFrame, law: Callable[[Any, Any], Any]) -> None:
    sizes = np.geomspace(runs["with"].min(), runs["with"].max(), 200)
    tokens = np.exp(np.interp(np.log(sizes), np.log(runs["with"]), np.log(runs["tokens"])))
    axes.plot(sizes, law(sizes, tokens), "--", color=COLORS[1], marker="none")
    i = len(sizes) * 9 // 10
    end = sizes[i], law(sizes[i], tokens[i])
    axes.annotate("the law", end, (-8, 4), textcoords="offset points", color=COLORS[1], fontsize=10.5, ha="right")


def draw_six(W: Any, x: Any, g: Any) -> Picture:
    """The three products that a training step computes with a matrix W: one forward, two in the backward pass."""
    from tfbook.plot import Schematic

    W, x, g = (np.asarray(each, float) for each in (W, x, g))
    rows, columns = W.shape
    picture = Schematic("One matrix, one token: 2 + 4 operations for every weight", gap=(26, 30))
    looks: dict[str, Any] = {"numbers": "{:g}", "cell": 26}
    products = (
        ("forward", "additions", (W, "parameter", "W"), (x[:, None], "stream", "x"), ("stream", "Wx")),
        ("back to the input", "additions", (W.T, "parameter", "Wᵀ"), (g[:, None], "weight", "g"), ("weight", "Wᵀg")),
        (
            "back to the weights",
            "additions to\nthe running gradient",
            (g[:, None], "weight", "g"),
            (x[None], "stream", "xᵀ"),
            ("weight", "g xᵀ"),
        ),
    )
    for row, (name, added, left, right, made) in enumerate(products):
        picture.text(name, (0, row), weight="bold", align="left")
        picture.matrix(left[0], (1, row), left[1], label=left[2], **looks)
        picture.text("×", (2, row), size=14)
        picture.matrix(right[0], (3, row), right[1], label=right[2], **looks)
        picture.text("=", (4, row), size=14)
        picture.matrix(left[0] @ right[0], (5, row), made[0], label=made[1], **looks)
        price = f"{W.size} products, {W.size} {added}:\n2 operations per weight"
        picture.text(price, (6, row), color=SOFT, align="left")
    alt = (
        f"Three products with a matrix W of {rows} by {columns}: W times x forward, W transposed times g for the "
        "gradient of the input, and g times x transposed for the gradient of W. Each costs 2 operations per weight."
    )
    return picture.figure(), alt


# ---- what makes steps better -----------------------------------------------------------------------------------------

SHADES = {"0 rounds": COLORS[3], "1 round": COLORS[1], "3 rounds": COLORS[2], "5 rounds": COLORS[0]}


def draw_directions(polynomial: Mapping[str, tuple[Any, Any]], values: Mapping[str, tuple[Any, Any]]) -> Picture:
    """The effect of the rounds on any singular value, and on those of a gradient: one color per number of rounds."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4))
    for axes, series in ((left, polynomial), (right, values)):
        for name, (xs, ys) in series.items():
            axes.plot(xs, ys, color=SHADES[name], marker="none")
        axes.axhspan(0.7, 1.2, color=EDGE, alpha=0.35, linewidth=0, zorder=0)
        axes.set(yscale="log", ylim=(5e-4, 3))
    left.text(1.1e-4, 0.92, "0.7 to 1.2", color=SOFT, fontsize=9, va="center")
    left.set(xscale="log", title="Any singular value …", xlabel="before", ylabel="after")
    right.set(title="… and those of a gradient", xlabel="direction of the gradient, strongest first")
    right.set_ylabel("singular value")
    for name, height in {"0 rounds": 0.02, "1 round": 0.02, "3 rounds": 0.02, "5 rounds": 0.2}.items():
        _name_at(left, name, polynomial[name], height, right=name == "0 rounds")
    for name, height in {"0 rounds": 0.003, "1 round": 0.05, "3 rounds": 0.4, "5 rounds": 1.6}.items():
        xs, ys = values[name]
        place = len(xs) * {"0 rounds": 0.3, "5 rounds": 0.75}.get(name, 0.62)
        right.text(place, height, name, color=SHADES[name], fontsize=10.5)
    alt = (
        "Left: a singular value after 0, 1, 3, and 5 rounds; after five, all above a hundredth lie between 0.7 and "
        "1.1. Right: those of a gradient fall over orders of magnitude; after five rounds most of them are near 1."
    )
    return figure, alt


def _name_at(axes: Axes, name: str, line: tuple[Any, Any], height: float, *, right: bool) -> None:
    """Writes a name beside its rising line, where the line first reaches a height."""
    x = next(x for x, y in zip(*line, strict=True) if y >= height)
    offset, align = ((6, -4), "left") if right else ((-10, 3), "right")
    look: dict[str, Any] = {"color": SHADES[name], "fontsize": 10.5, "ha": align, "va": "center"}
    axes.annotate(name, (x, height), offset, textcoords="offset points", **look)


def draw_rates(losses: Mapping[str, Mapping[float, float]]) -> Picture:
    """Final loss by learning rate, one line per optimizer, its best rate ringed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.8))
    axes.set_xscale("log")
    series = {name: (list(found), list(found.values())) for name, found in losses.items()}
    lines(axes, series, title="Each at its own best rate, Muon ends lower", x="learning rate", y="loss (nats)")
    best = {name: min(found.items(), key=lambda each: each[1]) for name, found in losses.items()}
    for rate, loss in best.values():
        axes.plot(rate, loss, "o", markersize=13, markerfacecolor="none", markeredgecolor=INK)
    rates = sorted({rate for found in losses.values() for rate in found})
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    said = "; ".join(f"{name} is best at {rate:g}" for name, (rate, _) in best.items())
    return figure, f"The last losses of two optimizers against the learning rate. {said}."


def draw_race(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Seconds to about the same loss, one bar per recipe; each adds a change to the recipe above it."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 3.6))
    seconds = [row["seconds"] for row in rows]
    axes.barh([row["by"] for row in rows], seconds, color=[COLORS[3]] + [COLORS[0]] * (len(rows) - 1))
    for index, row in enumerate(rows):
        note = f"{row['seconds']:.0f} s, {row['characters read'] / 1000:,.0f}k characters"
        axes.text(row["seconds"] + 1, index, note, va="center", fontsize=9.5)
    axes.invert_yaxis()
    axes.grid(axis="y")
    axes.set(title="The same loss, sooner and sooner", xlabel="seconds on two cores")
    axes.set_xlim(0, 1.35 * max(seconds))
    said = ", ".join(f"{row['by']} {row['seconds']:.0f}" for row in rows)
    return figure, f"Seconds to about the same loss, each bar adds a change to the one above: {said}."


# ---- the law of the losses -------------------------------------------------------------------------------------------


def draw_power_law(sizes: Sequence[float], losses: Sequence[float], floors: Sequence[float]) -> Picture:
    """Losses against sizes, and the excess over each of three floors on logarithmic axes: right, too low, too high."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4))
    left.plot(sizes, losses, color=COLORS[0])
    left.axhline(floors[0], color=SOFT, linestyle="--", linewidth=1.2)
    left.text(sizes[0], floors[0] + 0.02, f"E = {floors[0]:g}", color=SOFT, va="bottom")
    left.set(title="The loss levels off at E …", ylabel="loss (nats)", ylim=(floors[0] - 0.15, max(losses) + 0.1))
    for floor, color, look, note in zip(
        floors, COLORS, ("-o", "--s", ":^"), ("", " (too low)", " (too high)"), strict=False
    ):
        above = [loss - floor for loss in losses]
        right.plot(sizes, above, look, color=color)
        place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
        right.annotate(f"E = {floor:g}{note}", (sizes[-1], above[-1]), (9, 0), color=color, **place)
    ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1)
    right.set(title="… and above it, it is a straight line", ylabel="loss − E (nats)", yscale="log", ylim=(0.015, 1.3))
    right.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    for axes in (left, right):
        axes.set(xscale="log", xlabel="size, in multiples of the smallest")
        axes.set_xticks(sizes, [f"{size:,.0f}×" for size in sizes])
        axes.minorticks_off()
    alt = (
        "Left: a loss that falls with size and levels off. Right, logarithmic: with the right E subtracted it is a "
        "straight line; with one too low the line flattens out, with one too high it dives."
    )
    return figure, alt


def _shade(index: int, last: int) -> Any:
    """The color of a size, from middle to very dark blue; the last size, which the law has not seen, is orange."""
    import matplotlib.pyplot as plt

    return COLORS[1] if index == last else plt.get_cmap("Blues")(0.73 + 0.09 * index)


def draw_prediction(
    frame: DataFrame,
    predict: Callable[[float, float], tuple[float, float, float]],
    errors: Mapping[str, Sequence[float]],
) -> Picture:
    """Losses by tokens for each size with the law's lines, and the errors of predictions for the largest size.

    `predict(N, D)` takes the parameters in `frame["with"]` and tokens, and returns the law's loss and its interval; the
    largest size's line is dashed, with its interval around it. The relative errors of three predictions, the law's
    first, are in order of the number of tokens.
    """
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(1.5, 1))
    sizes = sorted(float(size) for size in frame["with"].unique())
    ticks, last = sorted(frame["tokens"].unique()), len(sizes) - 1
    tokens, ends = np.geomspace(ticks[0], ticks[-1], 50), []
    for index, size in enumerate(sizes):
        unseen, color = index == last, _shade(index, last)
        runs = frame[frame["with"] == size]
        predicted, low, high = np.array([predict(size, float(each)) for each in tokens]).T
        ends.append(predicted[-1])
        left.plot(tokens, predicted, "--" if unseen else "-", color=color, linewidth=1.8, marker="none")
        left.plot(runs["tokens"], runs["loss"], "*" if unseen else "o", color=color, markersize=11 if unseen else 5)
    left.fill_between(tokens, low, high, color=_shade(last, last), alpha=0.2, linewidth=0)
    names = [f"{size:,.0f}{' (unseen)' * (index == last)}" for index, size in enumerate(sizes)]
    _name_ends(left, names, ends, tokens[-1] * 1.14, [_shade(index, last) for index in range(len(sizes))])
    left.set(title="Four sizes predict the fifth", ylabel="held-out loss (nats)")
    looks = (("--*", _shade(last, last)), ("-o", _shade(3, last)), ("-s", SOFT))
    for (name, each), (look, color) in zip(errors.items(), looks, strict=True):
        percent = [100 * error for error in each]
        right.plot(ticks, percent, look, color=color, markersize=9 if "*" in look else 5)
        note: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": color, "fontsize": 10}
        right.annotate(name, (ticks[-1], percent[-1]), (9, 0), **note, annotation_clip=False)
    measured = frame[frame["with"] == sizes[-1]].groupby("tokens")["loss"].mean()
    edges = np.array([predict(sizes[-1], float(each))[1:] for each in ticks]).T / measured.to_numpy() - 1
    right.fill_between(ticks, *(100 * edges), color=_shade(last, last), alpha=0.2, linewidth=0)
    right.axhline(0, color=EDGE, linewidth=1, zorder=0)
    right.set(
        title="Closer than two guesses, but not at the end", ylabel="predicted minus found (% of found)", ylim=(-8, 8)
    )
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{each / 1000:,.0f}k" for each in ticks])
        axes.minorticks_off()
        axes.set_xlabel("characters read, D")
    alt = (
        "Left: held-out loss against characters read, for five sizes. Lines of the law run through the points of four; "
        f"the dashed line of the largest, {sizes[-1]:,.0f} parameters, was predicted; its stars lie close to it and in "
        "its range, but the last ones above. Right: errors of the law, within 2% but for the last, whose range misses "
        "zero, of guessing the next smaller size's loss, 3 to 5%, and of a straight line in log N, -2 to -4%."
    )
    return figure, alt


def _name_ends(axes: Axes, names: Sequence[str], heights: Sequence[float], x: float, colors: Sequence[Any]) -> None:
    """Writes names at x beside the ends of lines, from top to bottom, so that none overlap."""
    low, high = axes.get_ylim()
    height = np.inf
    for name, own, color in sorted(zip(names, heights, colors, strict=True), key=lambda each: -each[1]):
        height = min(own, height - 0.055 * (high - low))
        axes.text(x, height, name, va="center", fontsize=9.5, color=color, clip_on=False)


def draw_frontier(frame: DataFrame, spent: Sequence[float], optima: Sequence[tuple[float, float, float]]) -> Picture:
    """Losses by compute for each size, with the law's optimum; the best size and number of tokens by compute.

    `optima` are the best N and D for each of `spent`, and the loss. Beyond the frame's N or D, the lines are dashed.
    """
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4))
    sizes = sorted(float(size) for size in frame["with"].unique())
    curves = [_loss_by_compute(frame, size) for size in sizes]
    fine = np.geomspace(curves[0][0][0], curves[-1][0][-1], 600)
    best = np.array([_between(fine, *curve) for curve in curves]).argmin(axis=0)
    for index, (size, curve) in enumerate(zip(sizes, curves, strict=True)):
        color, first = _shade(index, len(sizes) - 1), (curve[0][0], curve[1][0])
        left.plot(*curve, color=color, marker="o", markersize=4, linewidth=1.2)
        strip = np.where(best == index, 1.13, np.nan)
        left.plot(fine, strip, color=color, linewidth=9, marker="none", solid_capstyle="butt")
        left.annotate(f"{size:,.0f}", first, (6, 2), textcoords="offset points", color=color, fontsize=9.5)
    left.set_ylim(1.07, 2.65)
    left.text(fine[0], 1.17, "lowest of the sizes we ran", color=SOFT, fontsize=9.5, va="bottom")
    known = [_within(N, frame["with"]) and _within(D, frame["tokens"]) for N, D, _ in optima]
    numbers, tokens, losses = np.array(optima).T
    _solid_where(left, known, spent, losses, INK, width=1.2)
    middle = 3 * len(spent) // 8
    left.annotate(
        "the law's frontier", (spent[middle], losses[middle]), (-4, -26), textcoords="offset points", ha="right"
    )
    _solid_where(right, known, spent, numbers, COLORS[0])
    _solid_where(right, known, spent, tokens, COLORS[2])
    for name, height, color in (("parameters N", numbers[-1], COLORS[0]), ("characters D", tokens[-1], COLORS[2])):
        right.annotate(name, (spent[-1], height), (6, 0), textcoords="offset points", color=color, va="center")
    left.set(xscale="log", xlabel="operations, C = 6 N D", ylabel="held-out loss (nats)")
    left.set_title("For each budget, a different size is best")
    left.text(0.97, 0.95, "numbers: N, with embedding", transform=left.transAxes, ha="right", va="top", color=SOFT)
    right.set(xscale="log", yscale="log", xlabel="operations, C = 6 N D", ylabel="best number")
    right.set_title("The best use of a budget")
    alt = (
        "Left: a falling curve of loss against compute for each of five sizes, and a strip in the color of the lowest "
        "of them, which is a small model at little compute and a large one at much. The law's frontier, dashed "
        "beyond what was trained, runs close to the lowest. Right, logarithmic: the best number of parameters rises "
        "more steeply with compute than the best number of characters."
    )
    return figure, alt


def _within(number: float, column: Any) -> bool:
    return bool(column.min() <= number <= column.max())


def _loss_by_compute(frame: DataFrame, size: float) -> tuple[np.ndarray, np.ndarray]:
    """6 N D and the mean loss of each run of a size, sorted by number of tokens."""
    losses = frame[frame["with"] == size].groupby("tokens")["loss"].mean()
    return 6 * size * losses.index.to_numpy(float), losses.to_numpy(float)


def _between(x: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Linear interpolation at x between points on a logarithmic axis; infinite beyond the outer points."""
    return np.interp(np.log(x), np.log(xs), ys, left=np.inf, right=np.inf)


def _solid_where(
    axes: Axes, known: Sequence[bool], x: Sequence[float], y: Any, color: str, *, width: float = 2.2
) -> None:
    """A line that is solid where `known`, and dashed elsewhere."""
    axes.plot(x, y, "--", color=color, linewidth=min(width, 1.3), marker="none")
    axes.plot(x, np.where(known, y, np.nan), "-", color=color, linewidth=width, marker="none")


# ---- heads that copy -------------------------------------------------------------------------------------------------

Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]


def draw_circuit(text: str) -> Picture:
    """Two heads that copy together, on a text whose last character has occurred before: what each reads and writes."""
    from tfbook.plot import Schematic

    text = text.replace(" ", "␣")
    last = text[-1]
    earlier = text[:-1].rindex(last)
    picture = Schematic("Two heads that copy: the first leaves notes, the second reads them", gap=(44, 40))
    asks = picture.box(f"which place is “after {last}”?", (0, 0), "query", width=200)
    notes = picture.tokens(["", *(f"after {before}" for before in text[:-1])], (0, 1), "key", width=62)
    chips = picture.tokens(list(text), (0, 2), "stream", width=62)
    picture.text(f"head of block 2:\nat the last {last}, look for\nits note and copy", (1, 0), color=SOFT, align="left")
    picture.text("written by the\nhead of block 1", (1, 1), color=SOFT, align="left")
    picture.text("the text", (1, 2), color=SOFT, align="left")
    for position in range(1, len(text)):
        picture.arrow(chips.column(position - 1), notes.column(position), role="key", sides=("top", "bottom"))
    picture.arrow(chips.column(len(text) - 1), asks, role="query", sides=("right", "right"))
    picture.arrow(asks, notes.column(earlier + 1), role="query", sides=("bottom", "top"))
    picture.outline(notes.column(earlier + 1), chips.column(earlier + 1))
    found = text[earlier + 1]
    alt = (
        f"The text {text}. A head of the first block writes into every place which character came before it. At the "
        f"last {last} a head of block 2 looks for the note “after {last}”, finds it at {found} and copies that."
    )
    return picture.figure(), alt


def draw_head_maps(text: str, weights: Mapping[str, Any]) -> Picture:
    """Attention weights of heads over the characters of a text, one map per head."""
    import matplotlib.pyplot as plt
    from matplotlib.transforms import ScaledTranslation

    figure, panels = plt.subplots(1, len(weights), figsize=(5.6 * len(weights), 5.2), squeeze=False)
    up = ScaledTranslation(0, 4 / 72, figure.dpi_scale_trans)
    for axes, (name, table) in zip(panels[0], weights.items(), strict=True):
        shown = np.asarray(table, float)
        # The first queries have few keys, so their large weights would make all others pale.
        top = np.ceil(10 * np.sort(shown[len(text) // 8 :].ravel())[-3]) / 10
        image = axes.imshow(shown, cmap="Purples", vmin=0, vmax=top)
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, extend="neither" if top >= 1 else "max")
        bar.set_label("weight")
        axes.set_xticks(range(len(text)), [character.replace(" ", "␣") for character in text], fontsize=9)
        axes.set_yticks(range(len(text)), [character.replace(" ", "␣") for character in text], fontsize=9)
        for label, character in zip(axes.get_yticklabels(), text, strict=True):
            if character == " ":
                label.set(color=COLORS[1], fontweight="bold", fontsize=11)
                label.set_transform(label.get_transform() + up)  # the glyph sits low in its line
        axes.grid(visible=False)
        axes.set(title=name, xlabel="looks at", ylabel="at this character")
    alt = f"Attention weights of {' and '.join(weights)} over a text that repeats, {text!r}."
    return figure, alt


def draw_copying(losses: Mapping[str, Curve], looks: Mapping[str, Curve]) -> Picture:
    """Loss on repeated text and scores of heads during the training of models of one and two blocks."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4))
    right.set_prop_cycle(color=[COLORS[0], COLORS[1], COLORS[3]], marker=["o", "s", "D"])
    lines(left, losses, title="With two blocks, the loss drops to nearly zero", x="step", y="loss on repeats (nats)")
    lines(right, looks, title="Both heads appear together", x="step", y="highest score of a head")
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    alt = (
        "Left: with one block of either width the loss on repeated text falls slowly to 1.3; with two it drops from 2 "
        "to 0.3 between steps 80 and 200. Right: with two blocks a head that copies appears in that time, together "
        "with a head of the first block that looks one token back; with one block none does."
    )
    return figure, alt
