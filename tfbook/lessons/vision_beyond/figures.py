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
ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "contest": (
        "Three dots for each of thirteen models. ViT, ConvMixer, CNN and CNN with attention are between 70 and 95 "
        "percent, axial attention reaches 62, and all others stay within a few points of guessing."
    ),
    "distances": (
        "Right answers against the distance between the objects, four groups, for four models. The lines are nearly "
        "flat; the CNN's falls at the largest distance."
    ),
    "jigsaw": (
        "Two pictures in order and with their patches shuffled, and the right answers of four models to both. The "
        "ViT's dots coincide; the others lose from about ten to thirty points."
    ),
}

# ---- a scene told and found --------------------------------------------------------------------------------------


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


def draw_question(images: Tensor, said: Sequence[str]) -> Figure:
    """Some images and the answers to them."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(images), figsize=(9.4, 1.95))
    for axes, image, text in zip(panels, images, said, strict=True):
        axes.imshow((image / 4 + 0.5).permute(1, 2, 0).clamp(0, 1))
        bare(axes, text)
    figure.suptitle("The same color?", fontsize=12, fontweight="bold")
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
    """Right answers of each model in percent, one dot per learning rate."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.6))
    _strip(axes, values)
    axes.axvline(50, color=EDGE, linestyle="--", linewidth=1.2)
    axes.text(50.4, len(values) - 0.5, "guessing", fontsize=9, color=SOFT)
    axes.set(title="Four of thirteen learned to compare two places", xlabel="right answers (%)", xlim=(45, 100))
    return figure


def draw_distances(values: Mapping[str, Mapping[float, Sequence[float]]]) -> Figure:
    """Right answers by the distance between the objects, in percent."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 4.0))
    for name, groups in values.items():
        color, marker = METHODS[name]
        at = sorted(groups)
        axes.plot(at, [sum(groups[x]) / len(groups[x]) for x in at], color=color, marker=marker, label=name)
        for x in at:
            axes.plot([x] * len(groups[x]), groups[x], ".", color=color, markersize=4, alpha=0.5)
    axes.set_xticks(at, [f"{8 * x:.1f}–{8 * (x + 0.1):.1f}" for x in at])
    axes.set(
        title="Distance matters little to those who learned it",
        xlabel="distance between the objects (patches)",
        ylabel="right answers (%)",
        ylim=(60, 101),
    )
    axes.legend(loc="lower left", frameon=False, fontsize=9.5, ncols=2)
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
    axes.axvline(50, color=EDGE, linestyle="--", linewidth=1.2)
    axes.set(title="Only the ViT does not notice (filled: the jigsaw)", xlabel="right answers (%)", xlim=(45, 101))
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
