"""Figures of lesson 14: a scene told and found, the two questions, and the contest."""

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
    "linear classifier": Method(COLORS[3], "v"),
}
FAMILIES = {COLORS[0]: "attention", COLORS[2]: "one MLP over all places", COLORS[1]: "convolution", GREEN: "both"}

ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "same_color": "",
    "jigsaw": "",
    "shift": "",
}

# ---- a scene told and found --------------------------------------------------------------------------------------


def draw_told(image: Tensor, words: Sequence[str], looks: Tensor, found: Sequence[Any], shown: Sequence[int]) -> Figure:
    """An image (3, height, width) with the found boxes, and where the captioner looked at each of the `shown` words."""
    import matplotlib.pyplot as plt

    columns = max(2, (len(shown) + 1) // 2)
    figure = plt.figure(figsize=(9.6, 4.5))
    whole, right = figure.subfigures(1, 2, width_ratios=(1.25, columns / 1.75))
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


def draw_questions(images: Mapping[str, Tensor], answers: Mapping[str, Sequence[str]]) -> Figure:
    """Some images of each question, a row each, with their answers."""
    import matplotlib.pyplot as plt

    count = max(len(each) for each in images.values())
    figure, rows = plt.subplots(len(images), count, figsize=(9.2, 3.7))
    for panels, (question, some) in zip(rows, images.items(), strict=True):
        for axes, image, said in zip(panels, some, answers[question], strict=True):
            axes.imshow((image / 4 + 0.5).permute(1, 2, 0).clamp(0, 1))
            bare(axes, said)
        panels[0].set_ylabel(question, fontsize=10.5, fontweight="bold")
    figure.suptitle("Two questions: one about a place, one about two places", fontsize=12, fontweight="bold")
    return figure


# ---- the contest -------------------------------------------------------------------------------------------------


def _strip(axes: Axes, values: Mapping[str, Sequence[float]], *, filled: bool = True, label: str = "") -> None:
    """A row of dots for each model, one dot per seed."""
    names = list(METHODS)
    for name, seeds in values.items():
        color = METHODS[name].color
        row = [names.index(name)] * len(seeds)
        axes.plot(seeds, row, "o", color=color, markerfacecolor=color if filled else "white", markersize=6, alpha=0.85)
    axes.set_ylim(len(names) - 0.4, -0.6)
    if label:
        first = values[names[0]]
        axes.annotate(
            label,
            (sum(first) / len(first), -0.15),
            (0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=SOFT,
        )


def _named(axes: Axes) -> None:
    axes.set_yticks(range(len(METHODS)), list(METHODS))
    for tick, look in zip(axes.get_yticklabels(), METHODS.values(), strict=True):
        tick.set_color(look.color)


def draw_contest(
    few: Mapping[str, Any], many: Mapping[str, Any], color: Mapping[str, Any], counts: Sequence[int]
) -> Figure:
    """Right answers of each model and seed, in percent: kinds from few and many images, and the same color."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 5.0), sharey=True, width_ratios=(1.25, 1))
    _strip(left, few, filled=False, label=f"{counts[0]:,} images")
    _strip(left, many, label=f"{counts[1]:,} images")
    _strip(right, color)
    for axes, guess in ((left, 12.5), (right, 50)):
        axes.axvline(guess, color=EDGE, linestyle="--", linewidth=1.2)
        axes.text(guess + 1, len(METHODS) - 0.55, "guessing", fontsize=8.5, color=SOFT)
    left.set(title="1. Which kind is it?", xlabel="right answers (%)", xlim=(5, 101))
    right.set(title="2. The same color?", xlabel="right answers (%)", xlim=(44, 101))
    _named(left)
    return figure


def _lines(axes: Axes, values: Mapping[str, Mapping[float, Sequence[float]]], names: Sequence[str]) -> None:
    """The mean of each model by a number, its seeds as small dots."""
    for name in names:
        color, marker = METHODS[name]
        at = sorted(values[name])
        means = [sum(values[name][x]) / len(values[name][x]) for x in at]
        axes.plot(at, means, color=color, marker=marker, label=name, markerfacecolor="white")
        for x in at:
            axes.plot([x] * len(values[name][x]), values[name][x], ".", color=color, markersize=4, alpha=0.5)


def draw_distances(values: Mapping[str, Any], names: Sequence[str], title: str) -> Figure:
    """Right answers to the question of the same color by the distance between the objects, in percent."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.2))
    _lines(axes, values, names)
    axes.axhline(50, color=EDGE, linestyle="--", linewidth=1.2)
    at = sorted(next(iter(values.values())))
    axes.set_xticks(at, [f"{8 * x:.1f}–{8 * (x + 0.1):.1f}" for x in at])
    axes.set(title=title, xlabel="distance between the objects (patches)", ylabel="right answers (%)", ylim=(44, 101))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9.5)
    return figure


def draw_jigsaw(losses: Mapping[str, Sequence[float]], pictures: tuple[Tensor, Tensor], title: str) -> Figure:
    """Two images in order and as a jigsaw, and the right answers that the jigsaw costs each model, in points."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9.4, 4.6))
    left, right = figure.subfigures(1, 2, width_ratios=(1, 2.2))
    for axes, image, name in zip(
        left.subplots(2, 2).T.flat, [*pictures[0][:2], *pictures[1][:2]], ("in order", "", "jigsaw", ""), strict=True
    ):
        axes.imshow((image / 4 + 0.5).permute(1, 2, 0).clamp(0, 1))
        bare(axes, name)
    axes = right.subplots()
    _strip(axes, losses)
    _named(axes)
    axes.axvline(0, color=EDGE, linewidth=1.2)
    axes.set(title=title, xlabel="right answers with the patches shuffled, minus in order (points)")
    return figure


def draw_shifts(values: Mapping[str, Any], names: Sequence[str], title: str) -> Figure:
    """Right answers about kinds by how far all images are moved to the right, in percent."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.2))
    _lines(axes, values, names)
    axes.set(
        title=title, xlabel="moved to the right (pixels; a patch has 4)", ylabel="right answers (%)", ylim=(0, 101)
    )
    axes.set_xticks([0, 2, 4, 6, 8, 10, 12])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9.5)
    return figure


def draw_published(rows: Sequence[tuple[str, float, float, str]]) -> Figure:
    """Published models: name, millions of parameters, accuracy on ImageNet in percent, and their way to mix."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, 4.2))
    looks = {"attention": (COLORS[0], "o"), "mlp": (COLORS[2], "s"), "convolution": (COLORS[1], "^")}
    for name, size, right, way in rows:
        color, marker = looks[way]
        axes.plot(size, right, marker, color=color, markersize=8)
        axes.annotate(name, (size, right), (7, -3), textcoords="offset points", fontsize=9.5, color=color)
    axes.set(title="ConvMixer's figure: accuracy against parameters", xlabel="parameters (millions)")
    axes.set(ylabel="ImageNet, right (%)", xlim=(0, 160), ylim=(75.5, 82.5))
    return figure
