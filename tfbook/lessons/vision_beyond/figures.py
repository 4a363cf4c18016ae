"""Figures of lesson 14: a scene described and searched, the coloring book, and the contest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tfbook.lessons.vision_beyond.pictures import EIGHT, PIXELS
from tfbook.lessons.vision_beyond.schematics import (
    bare,
    draw_greedy as draw_greedy,
    draw_matching as draw_matching,
    draw_reach as draw_reach,
    draw_rectangles as draw_rectangles,
    draw_shift as draw_shift,
    outlined,
)
from tfbook.plot.house import BROWN, COLORS, EDGE, GREEN, KHAKI, RED, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {  # one look for each model, in all figures of the lesson; a color for each way to mix
    "bag": Method(COLORS[3], "v"),
    "windows": Method(COLORS[0], "^"),
    "shifted windows": Method(COLORS[0], "D"),
    "global attention": Method(COLORS[0], "o"),
    "MLP-Mixer": Method(COLORS[2], "o"),
    "convolution": Method(COLORS[1], "o"),
    "convolution, 5 × 5": Method(COLORS[1], "X"),
    "ConvMixer": Method(COLORS[1], "^"),
    "hybrid": Method(GREEN, "D"),
    "pool": Method(COLORS[3], "o"),
}
GROUPS = {  # where a place's weights come from
    **dict.fromkeys(("windows", "shifted windows", "global attention", "hybrid"), "the image"),
    **dict.fromkeys(("pool", "bag"), "a sum"),
    **dict.fromkeys(("MLP-Mixer", "convolution", "convolution, 5 × 5", "ConvMixer"), "fixed"),
}
ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "borders": (
        "Three pictures, painted twice, with the borders of the windows dashed. In the upper row, most objects whose "
        "partner is beyond the vertical border are crossed out; in the lower row, next to none."
    ),
    "reach": (
        "Six panels of right answers against distances 1 to 7, with a gray line for what reach allows. The convolution "
        "follows its line: all right up to 4, a guess from 5 on. With filters of 5 × 5 it is right at all distances."
    ),
    "contest": (
        "Three panels with dots for ten models. By row, shifted windows, global attention, filters of 5 × 5 and the "
        "hybrid are at 100 percent, the Mixer with two of three seeds. By twin in one window, global attention and "
        "the hybrid are at 100, plain windows at about 90, shifted ones at 65 and 74, fixed weights below 45. Across a "
        "border, only global attention and the hybrid are above the pool, which is at about 53."
    ),
    "orders": (
        "Four pictures of three colored rectangles, three times, each query's box in a color of its own. In the upper "
        "row, three boxes lie over one another in the middle; in the second, most lie on rectangles; in the third, "
        "all do."
    ),
}

# ---- a scene described and searched ------------------------------------------------------------------------------


def draw_told(image: Tensor, words: Sequence[str], light: Tensor, found: Sequence[Any], shown: Sequence[int]) -> Figure:
    """An image (3, height, width) with the found boxes, and where the captioner looked at each of the `shown` words.

    `light` is (word, height, width).
    """
    import matplotlib.pyplot as plt

    columns = max(2, (len(shown) + 1) // 2)
    figure = plt.figure(figsize=(9.6, 4.5))
    whole, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.25, columns / 1.75))[0]
    axes = whole.subplots()
    axes.imshow(image.permute(1, 2, 0).clamp(0, 1))
    for one, color in zip(found, (COLORS[0], COLORS[1], COLORS[2], GREEN, RED, BROWN, KHAKI, EDGE), strict=False):
        outlined(axes, one.box, image.shape[1], color, f"{one.kind} {one.chance:.0%}")
    bare(axes, "DETR's boxes")
    panels = right.subplots(2, columns, squeeze=False).flat
    for panel in panels:
        panel.axis("off")
    for panel, number in zip(right.axes, shown, strict=False):
        _looked_at(panel, image, light[number], words[number])
    text = " ".join(words).replace(" ,", ",")
    figure.suptitle(f"“{text}”", fontsize=12, fontweight="bold")
    return figure


def _looked_at(axes: Axes, image: Tensor, light: Tensor, word: str) -> None:
    """The image, dark where the attention (height, width) is small."""
    shade = 0.22 + 0.78 * (light / light.max()).clamp(0, 1)
    axes.imshow((image * shade).permute(1, 2, 0).clamp(0, 1))
    axes.set_title(word, fontsize=11, loc="center")


# ---- the coloring book -------------------------------------------------------------------------------------------


def _picture(axes: Axes, image: Tensor, title: str = "") -> None:
    """An image that is centered around 0."""
    axes.imshow((image / 4 + 0.5).permute(1, 2, 0).clamp(0, 1))
    bare(axes, title)


def draw_book(images: Mapping[str, Tensor]) -> Figure:
    """One picture as it is and as each rule paints it, by title."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(images), figsize=(9.4, 3.6))
    for axes, (title, image) in zip(panels, images.items(), strict=True):
        _picture(axes, image, title)
    figure.suptitle("One picture, two rules", fontsize=12, fontweight="bold")
    return figure


def draw_painted(painted: Mapping[str, Any], count: int = 3) -> Figure:
    """Pictures as models painted them, a row for each model, wrong answers crossed out, windows' borders dashed."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(painted), count, figsize=(9.0, 3.15 * len(painted)), squeeze=False)
    for line, (name, (images, wrong)) in zip(panels, painted.items(), strict=True):
        for axes, image, crosses in zip(line, images, wrong, strict=False):
            _picture(axes, image)
            for at in crosses.nonzero().flatten().tolist():
                place = (PIXELS * (at % EIGHT + 0.5) - 0.5, PIXELS * (at // EIGHT + 0.5) - 0.5)
                axes.plot(*place, "x", color="white", markersize=13, markeredgewidth=5)
                axes.plot(*place, "x", color="black", markersize=12, markeredgewidth=2.4)
            for border in (axes.axhline, axes.axvline):
                border(PIXELS * EIGHT / 2 - 0.5, color="white", linestyle="--", linewidth=1.3)
        line[count // 2].set_title(name, fontsize=11, loc="center", color=METHODS[name].color)
    figure.suptitle("Crossed out: painted in a wrong color", fontsize=12, fontweight="bold")
    return figure


# ---- the contest -------------------------------------------------------------------------------------------------


def draw_contest(values: Mapping[str, Mapping[str, Sequence[float]]], guess: float) -> Figure:
    """Right answers in percent, a panel for each title and in it a row of dots for each model; a line for a guess."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(values), figsize=(10.4, 4.0), sharey=True)
    for axes, (title, models) in zip(panels, values.items(), strict=True):
        for row, (name, runs) in enumerate(models.items()):
            look = METHODS[name]
            axes.plot(runs, [row] * len(runs), look.marker, color=look.color, markersize=6.5, alpha=0.85)
        axes.axvline(guess, color=EDGE, linestyle="--", linewidth=1.2)
        axes.text(guess + 2, -0.85, "a guess", fontsize=8.5, color=SOFT, va="center")
        for row, (one, other) in enumerate(pairwise(models), start=1):
            if GROUPS[one] != GROUPS[other]:
                axes.axhline(row - 0.5, color=EDGE, linewidth=0.8)
        axes.set_yticks(range(len(models)), list(models))
        axes.set_ylim(len(models) - 0.5, -1.3)
        for tick, name in zip(axes.get_yticklabels(), models, strict=False):
            tick.set_color(METHODS[name].color)
        axes.set(xlabel="right answers (%)", xlim=(10, 104), xticks=(20, 40, 60, 80, 100))
        axes.set_title(title, fontsize=10.5, loc="center", fontweight="normal")
    figure.suptitle("By twin, attention learned it where one block hears the twin", fontsize=12, fontweight="bold")
    return figure


def draw_reach_curves(
    values: Mapping[str, Mapping[int, Sequence[float]]], allowed: Mapping[str, Mapping[int, float]]
) -> Figure:
    """Right answers in percent by distance, a panel for each model, and below what line its reach allows them."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, (len(values) + 1) // 2, figsize=(9.6, 4.9), sharex=True, sharey=True)
    for axes, (name, groups) in zip(panels.flat, values.items(), strict=False):
        color, at = METHODS[name].color, sorted(groups)
        axes.step(at, [allowed[name][x] for x in at], where="mid", color=EDGE, linewidth=5, alpha=0.35, marker="")
        for x in at:
            axes.plot([x] * len(groups[x]), groups[x], METHODS[name].marker, color=color, markersize=6)
        axes.set_title(name, fontsize=10.5, loc="center", fontweight="normal", color=color)
        axes.set(ylim=(10, 107), yticks=(20, 60, 100), xticks=at)
    for axes in panels.flat[len(values) :]:
        axes.axis("off")
    figure.supxlabel("distance to the colored object in the row (places)", fontsize=10.5)
    figure.supylabel("right answers (%)", fontsize=10.5)
    figure.suptitle("No model answers farther than it reaches", fontsize=12, fontweight="bold")
    return figure


def draw_cost(billions: Mapping[str, Mapping[int, float]]) -> Figure:
    """Billions of operations of each part of a model, by the side of its images."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.9))
    colors = {"inside places": SOFT, "global attention": COLORS[0], "windows of 7 × 7": COLORS[1]}
    for (name, points), marker in zip(billions.items(), "s^o", strict=False):
        axes.plot(list(points), list(points.values()), color=colors[name], marker=marker, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    sides = list(next(iter(billions.values())))
    axes.set_xticks(sides, [f"{side}" for side in sides])
    axes.minorticks_off()
    axes.set(title="Pairs overtake everything else as the image grows", xlabel="side of the image (pixels)")
    axes.set(ylabel="billions of operations")
    axes.legend(frameon=False, fontsize=9.5)
    return figure
