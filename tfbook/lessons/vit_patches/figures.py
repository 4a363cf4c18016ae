"""Figures of lesson 13: images, training, what the ViT has learned, the contest, patch sizes, and shuffles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.lessons.vit_patches.schematics import (
    draw_filter as draw_filter,
    draw_memory as draw_memory,
    draw_napkin as draw_napkin,
    draw_vit as draw_vit,
)
from tfbook.plot.curves import label_ends
from tfbook.plot.house import COLORS, EDGE, INK, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LOOKS = {name: (COLORS[i], MARKERS[i]) for i, name in enumerate(("ViT", "CNN", "linear classifier", "MLP"))}

# ---- images, and their patches ---------------------------------------------------------------------------------------

ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "twice_the_side": (
        "Megabytes against the side of the image. With every pixel a token, the line rises to more than ten "
        "thousand at 224 pixels; with patches of 16 by 16 it stays below one."
    ),
    "vit": (
        "Test accuracy of the ViT against training steps, with dashed lines for the linear classifier and the "
        "MLP. The ViT crosses the line of the linear classifier early."
    ),
    "neighbors": (
        "Left, 13 by 13 offsets: red in the middle, above and below it, and along both sides. Right, cosine "
        "against distance: down a column it falls from 0.56; along a row it starts at 0.19, falls below 0, "
        "and ends at 0.47."
    ),
    "four_orders": (
        "Left, three images under maps in orange: rollout marks many patches, ablation one or two or none. "
        "Right, accuracy against hidden patches: it falls slowest at random, fastest by ablation; rollout and "
        "its mean map lie between."
    ),
    "contest": (
        "Left, accuracy against training images: with 1,000 the MLP is best; with 30,000 the CNN, then MLP, "
        "ViT, linear classifier. Right, accuracy against work, the CNN on top."
    ),
    "new_orders": (
        "Changes in points below two images in each order. With one order, ViT and linear classifier stay "
        "near 0, the CNN loses about 1. With a new order per image, the ViT loses about 5, the CNN over 20, "
        "the linear classifier over 30. Without positions: about 3."
    ),
    "patch_size": (
        "Accuracy against seconds of training for three sizes of patches, three marks each. Those of 14 by 14 "
        "pixels are highest and furthest left, those of 4 by 4 lowest and right."
    ),
    "enlarged": (
        "Accuracy against patches along each side, 4 to 8, for three ways to get positions. Interpolated "
        "positions stay highest; one line and the mean drop further."
    ),
}


def draw_samples(images: Tensor, names: Sequence[str], patch: int) -> Figure:
    """Images (image, 1, height, width), one per label, with the lines along which they are cut."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 5, figsize=(8.4, 4.0))
    for axes, image, name in zip(panels.flat, images, names, strict=True):
        _cut_image(axes, image, patch)
        axes.set_title(name, fontsize=10, loc="center", fontweight="normal")
    figure.suptitle("Each image is a sentence of 16 patches", fontsize=12, fontweight="bold")
    return figure


def draw_training(at: Sequence[int], seen: Sequence[float], baselines: Mapping[str, float]) -> Figure:
    """Accuracy during the training of a ViT, and that of the baselines after theirs."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 4.0))
    axes.plot(at, [100 * share for share in seen], color=COLORS[0], marker="o", label="ViT")
    for name, share in baselines.items():
        color, _ = LOOKS[name]
        axes.plot(at, [100 * share] * len(at), color=color, linestyle="--", marker="none", label=name)
    axes.set(title="The ViT passes the linear classifier", xlabel="training step")
    axes.set(ylabel="test images right (%)", xlim=(0, at[-1] * 1.01))
    label_ends(axes, gap=0.09)
    return figure


# ---- looking inside --------------------------------------------------------------------------------------------------


def draw_positions(at: Tensor, along: Mapping[str, Tensor]) -> Figure:
    """Left, mean similarity of two patches by row and column offset; right, along an axis: {name: (seed, distance)}."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 4.1), width_ratios=(1, 1.25))
    far = len(at) // 2
    shown = left.imshow(at, cmap="RdBu_r", vmin=-1, vmax=1, extent=(-far - 0.5, far + 0.5, far + 0.5, -far - 0.5))
    left.plot(0, 0, "o", color=INK, markeredgecolor="white", markersize=7)
    left.set(xticks=[-far, 0, far], yticks=[-far, 0, far], xlabel="columns to the right", ylabel="rows down")
    left.set_title("1. Stripes, not a spot", loc="left")
    left.grid(visible=False)
    figure.colorbar(shown, ax=left, shrink=0.8, ticks=[-1, 0, 1], label="mean cosine similarity")
    for (name, seeds), color, marker in zip(along.items(), COLORS, MARKERS, strict=False):
        steps = range(1, seeds.shape[1] + 1)
        right.plot(steps, seeds.mean(dim=0), color=color, marker=marker, label=name)
        for each in seeds:
            right.plot(steps, each, marker, color=color, markersize=4, alpha=0.5)
    right.axhline(0, color=EDGE, linewidth=1.2)
    right.set(
        title="2. Alike: neighbors in a column, ends of rows", xlabel="distance (patches)", ylabel="cosine similarity"
    )
    right.legend(loc="upper center", frameon=False)
    return figure


def draw_patterns(patterns: Tensor, shares: Sequence[float]) -> Figure:
    """Square patterns (pattern, pixel) that make up the filters, and the share of variance that each explains."""
    import matplotlib.pyplot as plt

    side = round(patterns.shape[1] ** 0.5)
    figure, panels = plt.subplots(1, len(patterns), figsize=(9.2, 2.9))
    for axes, values, share in zip(panels, patterns, shares, strict=True):
        most = float(values.abs().max())
        axes.imshow(values.view(side, side), cmap="RdBu_r", vmin=-most, vmax=most)
        axes.set_title(f"{share:.0%}", fontsize=10.5, loc="center", fontweight="normal")
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
    title = f"These patterns make up {sum(shares):.0%} of what training adds to the filters"
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return figure


def draw_rollout(image: Tensor, blocks: Sequence[Tensor], arrived: Tensor) -> Figure:
    """The product of two blocks' matrices (token, token), its row for the class token, and that row over the image."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure, panels = plt.subplots(1, 4, figsize=(9.4, 3.0))
    words = ("second block", "first block", "arrived")
    off_diagonal = ~torch.eye(len(arrived), dtype=torch.bool)
    most = max(float(values[off_diagonal].max()) for values in (*blocks, arrived))  # the diagonal may exceed the scale
    for axes, values, name in zip(panels, (*reversed(blocks), arrived), words, strict=False):
        axes.imshow(values, cmap="Purples", vmin=0, vmax=most)
        axes.set_title(name, fontsize=10.5, loc="center", fontweight="normal")
    for axes in (panels[0], panels[2]):  # the class token's row of the left matrix determines the product's
        axes.add_patch(Rectangle((-0.5, -0.5), len(arrived), 1, fill=False, edgecolor=INK, linewidth=1.6))
    for axes, sign in zip(panels, "×=→", strict=False):
        axes.annotate(sign, (1.06, 0.5), xycoords="axes fraction", fontsize=15, ha="left", va="center")
    panels[0].set_ylabel("reading token", fontsize=10)
    for axes in panels[:3]:
        axes.set_xlabel("token read", fontsize=10)
    _overlay(panels[3], image, arrived[0, 1:], float(arrived[0, 1:].max()))
    panels[3].set_title("its first row", fontsize=10.5, loc="center", fontweight="normal")
    for axes in panels:
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
    figure.suptitle("Rollout multiplies the mixing of the blocks", fontsize=12, fontweight="bold")
    return figure


def _overlay(axes: Axes, image: Tensor, values: Tensor, most: float) -> Any:
    """A map (patch) in orange over a gray image (1, height, width), more opaque for values closer to `most`."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    clear, full = to_rgba(COLORS[1], 0.0), to_rgba(COLORS[1], 0.75)
    grid, height, width = round(len(values) ** 0.5), *image.shape[1:]
    axes.imshow(image[0], cmap="gray")
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    return axes.imshow(
        values.view(grid, grid),
        cmap=LinearSegmentedColormap.from_list("orange", [clear, full]),
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        vmin=0,
        vmax=most,
    )


def draw_judged(
    images: Tensor,
    names: Sequence[str],
    maps: Mapping[str, Tensor],
    curves: Mapping[str, Sequence[float]],
    counts: Sequence[int],
) -> Figure:
    """Left, maps (image, patch) over images, one row per kind of map; right, accuracy by number of hidden patches."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9.8, 4.3))
    grid = figure.add_gridspec(len(maps), len(images) + 1, width_ratios=[*(1 for _ in images), 3.3])
    for row, (name, values) in enumerate(maps.items()):
        for column, (image, each) in enumerate(zip(images, values, strict=True)):
            axes = figure.add_subplot(grid[row, column])
            _overlay(axes, image, each, float(values.max()))
            if not row:
                axes.set_title(names[column], fontsize=10, loc="center", fontweight="normal")
            if not column:
                axes.set_ylabel(name, fontsize=10)
    axes = figure.add_subplot(grid[:, -1])
    looks = zip(curves.items(), (COLORS[3], COLORS[0], COLORS[2], COLORS[1]), MARKERS, strict=False)
    for (name, shares), color, marker in looks:
        axes.plot(counts, [100 * share for share in shares], color=color, marker=marker, label=name)
    axes.set(title="Rollout beats chance; ablation beats rollout", xticks=counts, ylim=(0, 100))
    axes.set(xlabel=f"patches hidden, of {next(iter(maps.values())).shape[1]}", ylabel="test images right (%)")
    axes.legend(loc="upper right", frameon=False)
    return figure


# ---- measurements ----------------------------------------------------------------------------------------------------


def draw_contest(
    growth: Mapping[str, Mapping[int, Sequence[float]]], runs: Mapping[str, tuple[float, Sequence[float]]]
) -> Figure:
    """Left, accuracy by number of training images; right, runs on all of them by MFLOPs per image."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4))
    for name, row in growth.items():
        color, marker = LOOKS[name]
        means = [100 * sum(shares) / len(shares) for shares in row.values()]
        left.plot(list(row), means, color=color, marker=marker, label=name)
        for count, shares in row.items():
            left.plot([count] * len(shares), [100 * x for x in shares], marker, color=color, markersize=4, alpha=0.5)
    ticks = list(next(iter(growth.values())))
    left.set_xscale("log")
    left.set_xticks(ticks, [f"{count:,}" for count in ticks])
    left.minorticks_off()
    left.set(title="1. More images help the CNN most", xlabel="training images", ylabel="test images right (%)")
    left.legend(loc="lower right", frameon=False)
    right.set_xscale("log")
    for name, (work, shares) in runs.items():
        color, marker = LOOKS[name]
        heights = [100 * share for share in shares]
        right.plot([work] * len(heights), heights, marker, color=color, markersize=6, alpha=0.75)
        words, at = f"{name}\n{work:.2g} MFLOPs", (work, max(heights))
        right.annotate(words, at, (0, 8), textcoords="offset points", color=color, ha="center", fontsize=10)
    works = [work for work, _ in runs.values()]
    right.set_xlim(min(works) / 4, max(works) * 5)
    highest, lowest = (100 * f(share for _, shares in runs.values() for share in shares) for f in (max, min))
    right.set_ylim(lowest - 0.6, highest + 1.6)
    right.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    right.minorticks_off()
    right.set(title="2. The CNN leads with half the work", xlabel="MFLOPs per image", ylabel="test images right (%)")
    return figure


def draw_sizes(sizes: Mapping[int, tuple[float, Sequence[float]]]) -> Figure:
    """Accuracy of ViTs by processor seconds of training, one group of runs per patch side in pixels."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.9))
    for i, (patch, (seconds, shares)) in enumerate(sizes.items()):
        heights = [100 * share for share in shares]
        axes.plot([seconds] * len(heights), heights, MARKERS[i], color=COLORS[i], markersize=7, alpha=0.8)
        words, at = f"{patch} × {patch} pixels", (seconds, max(heights))
        axes.annotate(words, at, (0, 8), textcoords="offset points", color=COLORS[i], ha="center")
    highest, lowest = (100 * f(share for _, shares in sizes.values() for share in shares) for f in (max, min))
    axes.set(
        title="In short runs, larger patches are faster and better",
        xlabel="processor seconds of training",
        ylabel="test images right (%)",
    )
    axes.set(ylim=(lowest - 0.5, highest + 1), xlim=(0, 1.25 * max(seconds for seconds, _ in sizes.values())))
    return figure


def draw_shuffles(
    changes: Mapping[str, Mapping[str, Sequence[float]]], pictures: Sequence[Tensor], patch: int
) -> Figure:
    """Points gained or lost, one mark per seed: {change: {model: differences}}.

    `pictures` holds images (image, 1, height, width) for each change, which are drawn above it.
    """
    import matplotlib.pyplot as plt

    count = len(pictures[0])
    figure = plt.figure(figsize=(8.8, 5.6))
    group = [*(1 for _ in range(count)), 0.35]  # images, and a gap before those of the next change
    grid = figure.add_gridspec(2, len(changes) * (count + 1), height_ratios=(1, 2.6), width_ratios=group * len(changes))
    for index, images in enumerate(pictures):
        for turn, image in enumerate(images):
            _cut_image(figure.add_subplot(grid[0, index * (count + 1) + turn]), image, patch)
    axes = figure.add_subplot(grid[1, :])
    for index, models in enumerate(changes.values()):
        for turn, (name, points) in enumerate(models.items()):
            color, marker = LOOKS[name]
            x = index + 0.24 * (turn - (len(models) - 1) / 2)
            spots = [x + 0.03 * (i - (len(points) - 1) / 2) for i in range(len(points))]
            label = name if not index else "_"
            axes.plot(spots, points, marker, color=color, markersize=6, alpha=0.8, label=label)
            mean = sum(points) / len(points)
            axes.plot([x - 0.1, x + 0.1], [mean, mean], color=color, linewidth=2, marker="none")
    axes.axhline(0, color=EDGE, linewidth=1.2)
    axes.set_xticks(range(len(changes)), list(changes))
    axes.set(xlim=(-0.5, len(changes) - 0.5), ylabel="change in accuracy (points)")
    axes.legend(loc="lower left", frameon=False)
    figure.suptitle("A ViT loses less without positions than with meaningless ones", fontsize=12, fontweight="bold")
    return figure


def _cut_image(axes: Axes, image: Tensor, patch: int) -> None:
    """A gray image (1, height, width) with the lines along which it is cut."""
    cuts = [patch * i - 0.5 for i in range(1, image.shape[-1] // patch)]
    axes.imshow(image[0], cmap="gray")
    axes.set(xticks=cuts, yticks=cuts)
    axes.tick_params(labelbottom=False, labelleft=False, length=0)
    axes.grid(color=COLORS[1], linewidth=0.8)


def draw_resized(curves: Mapping[str, Sequence[float]], cells: Sequence[int], trained: int) -> Figure:
    """Accuracy against the number of patches per side, for several ways to obtain positions."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 3.9))
    for name, shares in curves.items():
        axes.plot(cells, [100 * share for share in shares], label=name)
    axes.axvline(trained, color=EDGE, linestyle="--", linewidth=1.2)
    axes.set(title="Interpolated positions lose least", xticks=cells, ylim=(0, 100))
    axes.set(xlabel=f"patches along each side (trained with {trained})", ylabel="test images right (%)")
    label_ends(axes, gap=0.08)
    return figure


def draw_photograph(image: Tensor, maps: Mapping[str, Tensor]) -> Figure:
    """A photograph (3, height, width), and maps (row, column) over it in gray."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 1 + len(maps), figsize=(9, 3.4))
    height, width = image.shape[1:]
    for axes, (name, values) in zip(panels, {"the palace": None, **maps}.items(), strict=True):
        gray = image.mean(dim=0, keepdim=True).expand_as(image) if values is not None else image
        axes.imshow(gray.permute(1, 2, 0).numpy())
        if values is not None:
            extent = (-0.5, width - 0.5, height - 0.5, -0.5)
            axes.imshow(values.clamp(min=0).numpy(), cmap="viridis", alpha=0.6, extent=extent)
        axes.set_title(name, loc="center")
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
    return figure
