"""Schematics of lesson 14: what each mixer connects, windows with their shift and mask, and DETR's matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.plot.house import COLORS, INK, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TINTS = ("#b9d5ee", "#f3cfae", "#d9c6e6", "#cfe3d2", "#e8e2b4", "#efc9c9", "#c9d3da", "#d8c3b4", "#bfe0e0")


def bare(axes: Axes, title: str = "", size: float = 10) -> None:
    """No ticks, no grid, no frame, and a small centered title."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(title, fontsize=size, loc="center", fontweight="normal")


def paint(axes: Axes, fills: Sequence[Sequence[str]]) -> None:
    """A grid of squares in these colors, the first row at the top."""
    from matplotlib.patches import Rectangle

    for row, line in enumerate(fills):
        for column, fill in enumerate(line):
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=fill, edgecolor="#8a929a", linewidth=0.7))
    axes.set(xlim=(-0.1, len(fills[0]) + 0.1), ylim=(len(fills) + 0.1, -0.1), aspect="equal")


# ---- what each mixer connects ------------------------------------------------------------------------------------


def draw_reach(reaches: Mapping[str, Sequence[Tensor]], kinds: Mapping[str, str], place: tuple[int, int]) -> Figure:
    """For each mixer, the places (row, column) that one block and two blocks bring to `place`.

    `kinds` says where the weights come from: "attention" or "fixed".
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    figure, panels = plt.subplots(1, len(reaches), figsize=(10.4, 3.1))
    for axes, (name, (one, two)) in zip(panels, reaches.items(), strict=True):
        dark, light = ("#8c3280", "#e3c8df") if kinds[name] == "attention" else ("#c04c00", "#f6d5bd")
        fills = [
            [dark if near else light if far else "white" for near, far in zip(first, second, strict=True)]
            for first, second in zip(one.tolist(), two.tolist(), strict=True)
        ]
        paint(axes, fills)
        bare(axes, name, 10.5)
        axes.plot(place[1] + 0.5, place[0] + 0.5, "o", color="white", markeredgecolor=INK, markersize=8)
        axes.set_xlabel(f"{int(one.sum())} places, then {int(two.sum())}", fontsize=9, color=SOFT)
    looks = [("#8c3280", "one block, weights by attention"), ("#e3c8df", "two blocks")]
    looks += [("#c04c00", "one block, fixed weights"), ("#f6d5bd", "two blocks")]
    handles = [Patch(facecolor=color, edgecolor="#8a929a", label=label) for color, label in looks]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    figure.suptitle("Which places can reach the dot", fontsize=12, fontweight="bold")
    figure.set_label("schematic")
    return figure


# ---- windows, their shift, and the mask --------------------------------------------------------------------------


def _framed(axes: Axes, numbers: Tensor) -> None:
    """A thick line wherever two neighbors of a grid have different numbers, and around it."""
    rows, columns = numbers.shape
    for row in range(rows):
        for column in range(columns):
            here = numbers[row, column]
            if column == 0 or numbers[row, column - 1] != here:
                axes.plot([column] * 2, [row, row + 1], color=INK, linewidth=2, marker="")
            if row == 0 or numbers[row - 1, column] != here:
                axes.plot([column, column + 1], [row] * 2, color=INK, linewidth=2, marker="")
    axes.plot([columns, columns, 0], [0, rows, rows], color=INK, linewidth=2, marker="")


def draw_shift(numbers: Tensor, window: int, shift: int, allowed: Tensor) -> Figure:
    """The numbers (row, column) of shifted windows, the grid rolled, and the mask (place, place) of its last window."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    side, tints = len(numbers), dict(zip(numbers.unique().tolist(), TINTS, strict=False))
    plain = torch.arange(side) // window
    plain, rolled = plain[:, None] * side + plain, numbers.roll((-shift, -shift), (0, 1))
    titles = ("1. windows", f"2. the next block's, moved by {shift}", "3. rolled: all are whole")
    figure, panels = plt.subplots(1, 4, figsize=(10.2, 3.1), width_ratios=(1, 1, 1, 1.05))
    fills = (
        [["white"] * side] * side,
        *([[tints[at] for at in line] for line in x.tolist()] for x in (numbers, rolled)),
    )
    for axes, colors, frames, title in zip(panels[:3], fills, (plain, numbers, plain), titles, strict=True):
        paint(axes, colors)
        _framed(axes, frames)
        bare(axes, title)
    panels[1].annotate(
        "",
        (0.15, 0.15),
        (shift + 0.75, shift + 0.75),
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2.2},
    )
    last = Rectangle((side - window, side - window), window, window, fill=False, edgecolor=COLORS[1], linewidth=3.4)
    last.set_zorder(5)
    panels[2].add_patch(last)
    paint(panels[3], [[ROLES["weight"].dark if yes else "white" for yes in line] for line in allowed.tolist()])
    bare(panels[3], "4. the mask of the last window")
    panels[3].set_xlabel("key", fontsize=9)
    panels[3].set_ylabel("query", fontsize=9)
    figure.suptitle("Shifted windows cost no more than plain ones", fontsize=12, fontweight="bold")
    figure.set_label("schematic")
    return figure


# ---- matching ----------------------------------------------------------------------------------------------------


def outlined(axes: Axes, box: Tensor, side: int, color: str, text: str = "", *, dashed: bool = False) -> None:
    """A box by corners, as shares of the side, on an image of so many pixels, with a label above it."""
    from matplotlib.patches import Rectangle

    left, top, right, bottom = (float(value) * side - 0.5 for value in box)
    style: dict[str, Any] = {"linestyle": (0, (3, 2))} if dashed else {}
    axes.add_patch(
        Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=color, linewidth=2.2, **style)
    )
    if text:
        high = top > side / 10
        axes.text(
            *((left, top - 1) if high else (left, bottom + 1)),
            text,
            color="white",
            fontsize=8.5,
            va="bottom" if high else "top",
            bbox={"facecolor": color, "edgecolor": "none", "pad": 1.5},
        )


def draw_matching(
    image: Tensor,
    boxes: Tensor,
    names: Sequence[str],
    cost: Tensor,
    pairs: Sequence[tuple[int, int]],
    chances: Tensor,
) -> Figure:
    """The queries' boxes (query, 4) on an image, and the costs (query, object) with the matched pairs outlined.

    `chances` (query) are those of any object.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.4), width_ratios=(1, 1.15))
    left.imshow(image.permute(1, 2, 0).clamp(0, 1))
    matched = dict(pairs)
    for query, box in enumerate(boxes):
        color = COLORS[0] if query in matched else COLORS[3]
        outlined(left, box, image.shape[1], color, str(query), dashed=query not in matched)
    bare(left, "the box of each query")
    right.imshow(cost, cmap="Greys", vmin=float(cost.min()) - 1, vmax=3 * float(cost.max()), aspect="auto")
    for query in range(len(cost)):
        for number in range(cost.shape[1]):
            right.text(number, query, f"{cost[query, number]:+.1f}", ha="center", va="center", fontsize=10)
    for query, number in pairs:
        frame = Rectangle((number - 0.48, query - 0.46), 0.96, 0.92, fill=False, edgecolor=COLORS[0], linewidth=3)
        right.add_patch(frame)
    right.set_xticks(range(len(names)), names)
    right.set_yticks(
        range(len(cost)), [f"query {query}: {chance:.0%}" for query, chance in enumerate(chances.tolist())]
    )
    right.grid(visible=False)
    right.tick_params(length=0)
    right.set_title("what each match would cost", fontsize=10, loc="center", fontweight="normal")
    figure.suptitle("One query for each object, at the least total cost", fontsize=12, fontweight="bold")
    return figure


def draw_greedy(cost: Tensor, ways: Mapping[str, Sequence[tuple[int, int]]], names: Sequence[str]) -> Figure:
    """The same costs (query, object) once for each way to match, with the chosen entries outlined and their sum."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure, panels = plt.subplots(1, len(ways), figsize=(7.6, 2.5))
    for axes, (way, pairs) in zip(panels, ways.items(), strict=True):
        chosen = [int(cost[pair]) for pair in pairs]
        paint(axes, [["white"] * cost.shape[1]] * len(cost))
        for query, line in enumerate(cost.tolist()):
            for number, value in enumerate(line):
                axes.text(number + 0.5, query + 0.5, f"{value:.0f}", ha="center", va="center", fontsize=12)
        for query, number in pairs:
            frame = Rectangle((number + 0.04, query + 0.04), 0.92, 0.92, fill=False, edgecolor=COLORS[0], linewidth=3)
            axes.add_patch(frame)
        bare(axes, f"{way}: {' + '.join(map(str, chosen))} = {sum(chosen)}", 10.5)
        axes.set_aspect("auto")
        axes.set_xticks([number + 0.5 for number in range(len(names))], names)
        axes.set_yticks([query + 0.5 for query in range(len(cost))], [f"query {query}" for query in range(len(cost))])
        axes.tick_params(length=0)
    figure.suptitle("The smallest cost first is not the least in all", fontsize=12, fontweight="bold")
    figure.set_label("schematic")
    return figure


def draw_rectangles(images: Tensor, answers: Mapping[str, Tensor]) -> Figure:
    """Pictures (picture, 3, side, side), and a row for each model with its boxes by corners (picture, 3, 4)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(answers), len(images), figsize=(7.6, 1.75 * len(answers) + 0.3), squeeze=False)
    for line, (name, boxes) in zip(panels, answers.items(), strict=True):
        for axes, image, own in zip(line, images, boxes, strict=True):
            axes.imshow(0.2 + 0.6 * image.permute(1, 2, 0).clamp(0, 1))
            for box, color in zip(own, ("white", "#ffb000", "#ff7eb6"), strict=True):
                outlined(axes, box, image.shape[1], color)
            bare(axes)
        line[0].set_ylabel(name, fontsize=10.5)
    figure.suptitle(
        "In the order of a list, all queries learn to answer with the middle", fontsize=12, fontweight="bold"
    )
    return figure
