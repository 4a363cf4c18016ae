"""Figures of lesson 14: a scene described and searched, the two questions, and the contest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional as F

from tfbook.lessons.vision_beyond.schematics import (
    bare,
    draw_matching as draw_matching,
    draw_reach as draw_reach,
    draw_shift as draw_shift,
    outlined,
)
from tfbook.plot.house import BROWN, COLORS, EDGE, GREEN, KHAKI, RED, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {  # one look for each model, in all figures of the lesson; a color for each way to mix
    "ViT": Method(COLORS[0], "o"),
    "windows": Method(COLORS[0], "^"),
    "shifted windows": Method(COLORS[0], "D"),
    "neighborhood": Method(COLORS[0], "P"),
    "axial": Method(COLORS[0], "X"),
    "Swin": Method(COLORS[0], "s"),
    "MLP-Mixer": Method(COLORS[2], "o"),
    "ResMLP": Method(COLORS[2], "s"),
    "convolution": Method(COLORS[1], "o"),
    "ConvMixer": Method(COLORS[1], "^"),
    "CNN": Method(COLORS[1], "s"),
    "CNN + attention": Method(GREEN, "D"),
    "bag": Method(COLORS[3], "v"),
    "bag + positions": Method(COLORS[3], "s"),
    "bag, batch norms": Method(COLORS[3], "v"),
    "bag, layer norms": Method(COLORS[3], "P"),
}
ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "contest": (
        "Two or three dots for each of fourteen models. Axial attention is at 100 percent in all runs, MLP-Mixer near "
        "it, ConvMixer at 86, ResMLP from 33 to 100, the convolution from 51 to 68; most others stay near guessing."
    ),
    "reach": (
        "Ten panels of right answers against distances 1 to 5, with a gray line for what reach allows. The ConvMixer "
        "follows its line: 100 percent up to 4, a third at 5. Others stay below theirs."
    ),
    "limits": (
        "Left: right answers against training images for three models. Right: right answers of four models fall to a "
        "third or less when test images are shifted by one or two pixels."
    ),
    "jigsaw": (
        "Two pictures in order and with their patches shuffled, and the right answers of five models to both. The "
        "dots of the ViT and of the bag coincide; the others lose from about seven to thirty points."
    ),
}

# ---- a scene described and searched ------------------------------------------------------------------------------


def draw_told(image: Tensor, words: Sequence[str], looks: Tensor, found: Sequence[Any], shown: Sequence[int]) -> Figure:
    """An image (3, height, width) with the found boxes, and where the captioner looked at each of the `shown` words."""
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
        _looked_at(panel, image, looks[number], words[number])
    text = " ".join(words).replace(" ,", ",")
    figure.suptitle(f"“{text}”", fontsize=12, fontweight="bold")
    return figure


def _looked_at(axes: Axes, image: Tensor, look: Tensor, word: str) -> None:
    """The image, dark where the attention (row, column) is small."""
    light = F.interpolate(look[None, None], size=image.shape[1:], mode="bilinear")[0]
    light = 0.22 + 0.78 * (light / light.max()).clamp(0, 1)
    axes.imshow((image * light).permute(1, 2, 0).clamp(0, 1))
    axes.set_title(word, fontsize=11, loc="center")


def draw_question(images: Tensor, said: Sequence[str], question: str) -> Figure:
    """Some images and the answers to them."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(images), figsize=(9.4, 11.6 / len(images)))
    for axes, image, text in zip(panels, images, said, strict=True):
        axes.imshow((image / 4 + 0.5).permute(1, 2, 0).clamp(0, 1))
        bare(axes, text)
    figure.suptitle(question, fontsize=12, fontweight="bold")
    return figure


# ---- the contest -------------------------------------------------------------------------------------------------


def _strip(axes: Axes, values: Mapping[str, Sequence[float]]) -> None:
    """A row of dots for each model, one dot per run."""
    for row, (name, runs) in enumerate(values.items()):
        axes.plot(runs, [row] * len(runs), "o", color=METHODS[name].color, markersize=6.5, alpha=0.85)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.4, -0.6)
    for tick, name in zip(axes.get_yticklabels(), values, strict=True):
        tick.set_color(METHODS[name].color)


def draw_contest(values: Mapping[str, Sequence[float]]) -> Figure:
    """Right answers of each model in percent, one dot per run, and what guessing gets."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 0.3 * len(values) + 1.1))
    _strip(axes, values)
    axes.axvline(100 / 3, color=EDGE, linestyle="--", linewidth=1.2)
    axes.text(34, len(values) - 0.5, "guessing", fontsize=9, color=SOFT)
    title = "Fixed weights and rows learn it; bags and the ViT guess"
    axes.set(title=title, xlabel="right answers (%)", xlim=(15, 102))
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
        axes.set(ylim=(15, 106), yticks=(33, 67, 100), xticks=at)
    for axes in panels.flat[len(values) :]:
        axes.axis("off")
    figure.supxlabel("distance from the ring to the object in its row (places)", fontsize=10.5)
    figure.supylabel("right answers (%)", fontsize=10.5)
    figure.suptitle("No model answers farther than it reaches", fontsize=12, fontweight="bold")
    return figure


def draw_limits(images: Mapping[str, Mapping[int, float]], shifts: Mapping[str, Mapping[int, float]]) -> Figure:
    """Right answers in percent by the number of training images, and by the shift of test images in pixels."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.7), sharey=True)
    for axes, values in ((left, images), (right, shifts)):
        for name, points in values.items():
            color, marker = METHODS[name]
            axes.plot(list(points), list(points.values()), color=color, marker=marker, label=name)
        axes.axhline(100 / 3, color=EDGE, linestyle="--", linewidth=1.2)
    for axes, title in ((left, "fewer images to learn from"), (right, "test images off the grid of patches")):
        axes.set_title(title, fontsize=10.5, loc="center", fontweight="normal")
    ticks = sorted({count for points in images.values() for count in points})
    left.set_xscale("log")
    left.set_xticks(ticks, [f"{count:,}" for count in ticks])
    left.minorticks_off()
    left.set(xlabel="training images", ylabel="right answers (%)", ylim=(15, 104))
    right.set(xlabel="shift of the test images (pixels)", xticks=range(5))
    right.legend(frameon=False, fontsize=9.5, loc="upper right")
    figure.suptitle("Where the winners fail", fontsize=12, fontweight="bold")
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


def draw_jigsaw(
    whole: Mapping[str, Sequence[float]], jigsaw: Mapping[str, Sequence[float]], pictures: Tensor
) -> Figure:
    """Images in order and as a jigsaw (2, image, 3, height, width), and the right answers to both, in percent."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9.4, 3.7))
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.9))[0]
    for axes, image, name in zip(
        left.subplots(2, 2).flat,
        pictures[:, :2].transpose(0, 1).flatten(0, 1),
        ("in order", "jigsaw", "", ""),
        strict=True,
    ):
        axes.imshow((image / 4 + 0.5).permute(1, 2, 0).clamp(0, 1))
        bare(axes, name)
    axes = right.subplots()
    _strip(axes, jigsaw)
    for row, (name, runs) in enumerate(whole.items()):
        axes.plot(runs, [row] * len(runs), "o", color=METHODS[name].color, markerfacecolor="white", markersize=6.5)
    axes.axvline(54.1, color=EDGE, linestyle="--", linewidth=1.2)
    axes.set(title="The same color? Filled: the jigsaw", xlabel="right answers (%)", xlim=(45, 101))
    return figure
