"""Figures of lesson 19's images with texts: two towers, found scenes, swapped captions, and where a word looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from tfbook.plot.house import COLORS, EDGE, GREEN, INK, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.data.scenes import Scene

PICTURE_METHODS = {  # one look for each model
    "CLIP": Method(COLORS[0], "o"),
    "CLIP, swaps as negatives": Method(GREEN, "D"),
    "words as labels": Method(COLORS[1], "s"),
    "color histograms, linear": Method(COLORS[3], "^"),
}
PICTURE_ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "swaps": (
        "How often the true caption beats a false one. A false color is noticed nearly always; swapped colors or "
        "places 53 to 54% of the time, and 62% by a CLIP that was trained with swapped captions. A coin gets half."
    ),
    "covered": "An image of two objects, and three maps of how the cosine falls, largest at patches on the objects.",
}


def _bare(axes: Axes, title: str = "") -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.set_title(title, fontsize=9.5, fontweight="normal", loc="center")


def _picture(axes: Axes, scene: Scene, title: str = "") -> None:
    axes.imshow(scene.image.permute(1, 2, 0), interpolation="nearest")
    _bare(axes, title)


# ---- two towers ------------------------------------------------------------------------------------------------------


def draw_two_towers(d_shared: int) -> Figure:
    """Images and texts through encoders of their own into one space, and the matrix of all scores."""
    from tfbook.plot import Schematic

    picture = Schematic("Two encoders, one space", gap=(34, 22))
    images = picture.box("4 images", (0, 0), note="3 × 32 × 32")
    tower = picture.box("image tower", (1, 0), "parameter", note="16 patches, 2 blocks")
    vectors = picture.box("4 unit vectors", (2, 0), "stream", note=f"{d_shared} numbers")
    texts = picture.box("4 captions", (0, 1), note="up to 16 words")
    reader = picture.box("text tower", (1, 1), "parameter", note="words, 2 blocks")
    words = picture.box("4 unit vectors", (2, 1), "stream", note=f"{d_shared} numbers")
    scores = picture.matrix(
        [[0.9, 0.2, 0.1, 0.3], [0.1, 0.8, 0.3, 0.2], [0.2, 0.1, 0.9, 0.1], [0.3, 0.2, 0.2, 0.8]],
        (3, 0),
        "weight",
        cell=30,
        label="scale · cosine",
        darkest=1.0,
    )
    for one, other in ((images, tower), (tower, vectors), (texts, reader), (reader, words)):
        picture.arrow(one, other)
    picture.arrow(vectors, scores, "rows")
    picture.arrow(words, scores, "columns", sides=("right", "bottom"))
    return picture.figure()


# ---- found scenes ----------------------------------------------------------------------------------------------------


def draw_found(asked: str, scenes: Sequence[Scene], cosines: Float[Tensor, " image"], *, count: int = 6) -> Figure:
    """The scenes that are most like a text, best first, each with its cosine and its own caption."""
    import matplotlib.pyplot as plt

    from tfbook.plot.house import literal

    best = cosines.topk(count)
    figure, panels = plt.subplots(1, count, figsize=(1.75 * count, 2.7), dpi=80)
    for axes, cosine, row in zip(panels, best.values.tolist(), best.indices.tolist(), strict=True):
        _picture(axes, scenes[row], f"{cosine:.2f}")
        axes.set_xlabel(_wrapped(str(scenes[row])), fontsize=8.5)
    title = f"“{literal(asked)}”"
    figure.suptitle(title, x=0.01, y=1.07, ha="left", fontsize=12, fontweight="bold")
    return figure


def _wrapped(text: str, width: int = 20) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


# ---- swapped captions ------------------------------------------------------------------------------------------------


def draw_swaps(rows: DataFrame, kinds: Sequence[str]) -> Figure:
    """How often the true caption beats each kind of false one: bars are means, dots are seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.8))
    names = [name for name in PICTURE_METHODS if name in set(rows.model)]
    each = 0.8 / len(names)
    for number, name in enumerate(names):
        own, color = rows[rows.model == name], PICTURE_METHODS[name].color
        for place, kind in enumerate(kinds):
            x = place + (number - (len(names) - 1) / 2) * each
            axes.bar(x, 100 * own[kind].mean(), 0.9 * each, color=color, label=name if not place else "_")
            axes.text(
                x, 100 * own[kind].max() + 1.5, f"{100 * own[kind].mean():.0f}", ha="center", fontsize=9, color=color
            )
            if len(own) > 1:
                axes.plot([x] * len(own), 100 * own[kind], "o", color=INK, markersize=3)
    axes.axhline(50, color=EDGE, linestyle=":", linewidth=1.2)
    axes.text(0.5, 51, "a coin", color=SOFT, fontsize=9, ha="center")
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set(title="CLIP knows which words belong, hardly in which order", ylabel="true caption wins, %", ylim=(0, 112))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)
    return figure


# ---- where a word looks ----------------------------------------------------------------------------------------------


def draw_places(scene: Scene, maps: Mapping[str, Float[Tensor, "row column"]], title: str) -> Figure:
    """A map over the patches of a scene for each text: warmer where its number is larger."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 1 + len(maps), figsize=(2.2 * (1 + len(maps)), 2.6))
    _picture(panels[0], scene, "the image")
    side = scene.image.shape[-1]
    most = max(float(values.abs().max()) for values in maps.values())
    for axes, (text, values) in zip(panels[1:], maps.items(), strict=True):
        axes.imshow(scene.image.mean(dim=0), cmap="Greys_r", vmin=0, vmax=1.4, interpolation="nearest")
        shown = axes.imshow(
            np.asarray(values), cmap="PuOr_r", alpha=0.75, extent=(-0.5, side - 0.5, side - 0.5, -0.5),
            vmin=-most, vmax=most, interpolation="nearest",
        )  # fmt: skip
        _bare(axes, text)
    figure.colorbar(shown, ax=panels, label="fall of the cosine", fraction=0.02, pad=0.01)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure
