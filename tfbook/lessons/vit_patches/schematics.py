"""Schematics of lesson 13: memory by image size, a worked example's image, a patch filter, and the ViT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tfbook.plot.house import COLORS, SOFT
from tfbook.plot.schematic import Schematic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# ---- what pixels cost ------------------------------------------------------------------------------------------------


def draw_memory(pixels: Mapping[int, float], patches: Mapping[int, float], goal: int) -> Figure:
    """Megabytes by side of the image: a token per pixel, extrapolated to `goal` as its fourth power, or per patch."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 4.1))
    axes.set(xscale="log", yscale="log")
    last = max(pixels)
    there = pixels[last] * (goal / last) ** 4
    axes.plot(list(pixels), list(pixels.values()), color=COLORS[1], marker="s")
    axes.plot([last, goal], [pixels[last], there], color=COLORS[1], linestyle="--", marker="none", linewidth=1.4)
    axes.plot(goal, there, "s", markerfacecolor="white", markeredgecolor=COLORS[1])
    axes.plot(list(patches), list(patches.values()), color=COLORS[0], marker="o")
    axes.text(30, 60, "every pixel is a token", color=COLORS[1], ha="right")
    axes.annotate("extrapolated", (goal, there), (-12, -2), textcoords="offset points", ha="right", color=COLORS[1])
    axes.text(40, 0.06, "patches of 16 × 16", color=COLORS[0])
    ticks = sorted({*pixels, *patches, goal})
    axes.set_xticks(ticks, [str(side) for side in ticks])
    axes.set_yticks([0.01, 1, 100, 10_000], ["0.01", "1", "100", "10,000"])
    axes.minorticks_off()
    axes.set(title="One head over all pixels of a photograph needs gigabytes")
    axes.set(xlabel="side of the image (pixels)", ylabel="MB at the peak", xlim=(7, 300))
    return figure


# ---- patches, and the machine ----------------------------------------------------------------------------------------


def draw_napkin(image: Tensor, patches: Tensor) -> Figure:
    """An image (row, column) with its quarters in four colors, and its patches (patch, pixel) as rows."""
    side = len(image) // 2
    picture = Schematic("Cut: squares become rows, read like a page", gap=(60, 14))
    whole = picture.matrix(image, (0, (0, 3)), "plain", cell=34, numbers="{:.0f}", label="image", shape="4 × 4 pixels")
    rows = []
    for i, (role, patch) in enumerate(zip(("query", "key", "value", "weight"), patches, strict=True)):
        label, shape = "patches" if not i else "", "4 patches × 4 numbers" if i == 3 else ""
        rows.append(
            picture.matrix(patch[None], (1, i), role, cell=34, numbers="{:.0f}", label=label, shape=shape, darkest=60)
        )
    picture.arrow(whole, picture.frame(rows, pad=4))
    figure = picture.figure()
    for i, node in enumerate(rows):  # the same color is behind a square and behind its row
        row, column = divmod(i, 2)
        _tint(figure.axes[0], whole, row * side, column * side, side, node)
    return figure


def _tint(axes: Axes, whole: Any, row: int, column: int, side: int, node: Any) -> None:
    from matplotlib.patches import Rectangle

    from tfbook.plot.house import ROLES

    box = whole.rect
    width, height = box.width / whole.columns, box.height / whole.rows
    corner = box.left + column * width, box.top + row * height
    edge = ROLES[node.role].edge
    axes.add_patch(
        Rectangle(corner, side * width, side * height, facecolor=edge, alpha=0.22, edgecolor="none", zorder=5)
    )
    axes.add_patch(Rectangle(corner, side * width, side * height, fill=False, edgecolor=edge, linewidth=2.2, zorder=6))


def draw_filter(image: Tensor, patch: Tensor, kernel: Tensor, answers: Tensor, place: tuple[int, int]) -> Figure:
    """A filter (row, column) on one patch of a gray image, and its outputs (row, column), one per patch."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure, panels = plt.subplots(1, 4, figsize=(9.4, 2.9), width_ratios=(3, 1.5, 1.5, 3))
    most = float(answers.abs().max())
    shown = ((image, "gray", (0, 1)), (patch, "gray", (0, 1)), (kernel, "RdBu_r", (-1.6, 1.6)))
    for axes, (values, cmap, (low, high)) in zip(panels, (*shown, (answers, "RdBu_r", (-most, most))), strict=True):
        axes.imshow(values, cmap=cmap, vmin=low, vmax=high)
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
    row, column = place
    side = len(image) / len(answers)
    for axes, size in ((panels[0], side), (panels[3], 1)):
        corner = column * size - 0.5, row * size - 0.5
        axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=COLORS[1], linewidth=2.4))
    panels[0].set_title("image", fontsize=10.5, loc="center", fontweight="normal")
    panels[1].set_title("one patch", fontsize=10.5, loc="center", fontweight="normal")
    panels[2].set_title("× filter", fontsize=10.5, loc="center", fontweight="normal")
    panels[2].set_xlabel(f"mean of the products\n= {answers[row, column]:+.2f}", fontsize=10)
    panels[3].set_title("its answer to every patch", fontsize=10.5, loc="center", fontweight="normal")
    figure.suptitle("A filter gives one number per patch", fontsize=12, fontweight="bold")
    return figure


def draw_vit(image: Tensor, patches: Mapping[int, Tensor]) -> Figure:
    """The ViT on an actual image: patches, their embeddings, a class token in front, positions, blocks, and head.

    `patches` holds some of the patches (channel, height, width) by their index in the sequence.
    """
    picture = Schematic("A ViT reads an image as a sequence of patches", gap=(17, 12))
    last, cells = len(patches), (8, 20)
    photo = picture.matrix((1, 1), (0, (1, last)), cell=150, shape="224 × 224 pixels")
    squares = [picture.matrix((1, 1), (1, i + 1), cell=36) for i in range(last)]
    embed = picture.box("E", (2, (1, last)), "parameter", note="one matrix", width=70)
    token = picture.matrix((1, 6), (3, 0), "parameter", cell=cells)
    vectors = [picture.matrix((1, 6), (3, i + 1), "stream", cell=cells) for i in range(last)]
    picture.text("class token, learned", ((1, 2), 0), align="right")
    adds = [picture.circle("+", (4, i)) for i in range(last + 1)]
    positions = [picture.matrix((1, 6), (5, i), "parameter", cell=cells) for i in range(last + 1)]
    numbers = [picture.text(f"{number}", (6, i), size=9, color=SOFT) for i, number in enumerate((0, *patches))]
    blocks = picture.box("blocks", (7, (0, last)), "weight", note="each token\nreads all others", width=104)
    outputs = [picture.matrix((1, 6), (8, i), "stream", cell=cells) for i in range(last + 1)]
    head = picture.box("head", (9, 0), "parameter", note="one matrix", width=70)
    label = picture.text("“palace”", (9, 1), size=11)
    picture.text("one vector\nper patch", (3, last + 1), size=9, color=SOFT)
    picture.text("positions,\nlearned", (5, last + 1), size=9, color=SOFT)
    picture.text("the others\nare not read", (8, last + 1), size=9, color=SOFT)
    ground = picture.frame(squares, pad=6)
    picture.arrow(photo, ground)
    picture.arrow(ground, embed)
    picture.arrow(embed, picture.frame(vectors, pad=6))
    for one, add, position in zip([token, *vectors], adds, positions, strict=True):
        picture.arrow(one, add, head=False)
        picture.arrow(position, add, head=False)
    picture.arrow(picture.frame([*adds, *positions, *numbers], pad=6), blocks)
    picture.arrow(blocks, picture.frame(outputs, pad=6))
    picture.arrow(outputs[0], head)
    picture.arrow(head, label)
    picture.outline(outputs[0])
    figure = picture.figure()
    for node, pixels in zip([photo, *squares], [image, *patches.values()], strict=True):
        _photograph(figure.axes[0], node, pixels)
    _cuts(figure.axes[0], photo, 14)
    return figure


def _photograph(axes: Axes, node: Any, pixels: Tensor) -> None:
    """Pixels (channel, height, width) in place of a node."""
    box, limits = node.rect, (axes.get_xlim(), axes.get_ylim())
    extent = (box.left, box.right, box.bottom, box.top)
    axes.imshow(pixels.permute(1, 2, 0).numpy(), extent=extent, aspect="auto", zorder=6)
    axes.set(xlim=limits[0], ylim=limits[1])


def _cuts(axes: Axes, node: Any, count: int) -> None:
    """White lines along which an image is cut."""
    box = node.rect
    for i in range(1, count):
        x, y = box.left + i * box.width / count, box.top + i * box.height / count
        axes.plot([x, x], [box.top, box.bottom], color="white", linewidth=0.7, marker="none", zorder=7)
        axes.plot([box.left, box.right], [y, y], color="white", linewidth=0.7, marker="none", zorder=7)
