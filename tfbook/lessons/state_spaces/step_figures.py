"""Figures of lesson 17: one step of Mamba in numbers, and Δ, B and C of a trained one, word by word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfbook.lessons.state_spaces.selecting import Selected
from tfbook.lessons.state_spaces.stepping import BEFORE, INPUT, A, B, C, D, Step
from tfbook.plot.house import EDGE, INK, ROLES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = {  # heading → place, and the role whose color its boxes have
    "before\n$h_{t-1}$": (0.0, "stream"),
    "raw\n$W_\\Delta u + b_\\Delta$": (1.45, "plain"),
    "step\n$\\Delta$ = softplus(raw)": (2.9, "query"),
    "decay\n$e^{\\Delta A}$": (4.35, "weight"),
    "kept\n$e^{\\Delta A} \\odot h_{t-1}$": (5.8, "stream"),
    "written\n$\\Delta\\, u\\, B$": (7.25, "value"),
    "after\n$h_t$": (8.7, "stream"),
    "read\n$h_t \\cdot C + D u$": (10.15, "query"),
}
SIGNS = {2.18: "→", 3.62: "→", 6.52: "+", 7.97: "=", 9.42: "→"}  # between the boxes


def draw_step(steps: Mapping[str, Step]) -> Figure:
    """A row for each word: raw, Δ, e^{ΔA}, what is kept, what is written, the state after it, and what is read."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 1.1 + 1.2 * len(steps)))
    for row, (word, step) in enumerate(steps.items()):
        y = -1.5 * row
        axes.text(-0.75, y, f"{word}", ha="right", va="center", fontsize=13, color=INK)
        columns = (BEFORE, (step.raw,), (step.step,), step.decay, step.kept, step.written, step.state, (step.output,))
        for numbers, (place, role) in zip(columns, COLUMNS.values(), strict=True):
            _numbers(axes, numbers, place, y, role)
        for x, sign in SIGNS.items():
            axes.text(x, y, sign, ha="center", va="center", fontsize=14, color=SOFT)
    for heading, (place, _) in COLUMNS.items():
        axes.text(place, 0.78, heading, ha="center", va="bottom", fontsize=9.5, color=INK, linespacing=1.5)
    given = f"$A$ = {_pair(A)},  $B$ = {_pair(B)},  $C$ = {_pair(C)},  $D$ = {D:g},  $u$ = {INPUT:g}, for both words"
    axes.text(4.7, -1.5 * (len(steps) - 1) - 0.85, given, ha="center", va="top", fontsize=10, color=SOFT)
    axes.set(xlim=(-1.9, 10.9), ylim=(-1.5 * (len(steps) - 1) - 1.1, 1.5))
    axes.axis("off")
    figure.suptitle("A small step keeps the state, a large one replaces it", fontsize=13)
    return figure


def _numbers(axes: Axes, numbers: Sequence[float], x: float, y: float, role: str) -> None:
    from matplotlib.patches import Rectangle

    for number, value in enumerate(numbers):
        middle = y + 0.27 * (len(numbers) - 1) - 0.54 * number
        box = Rectangle((x - 0.48, middle - 0.27), 0.96, 0.54, facecolor=ROLES[role].fill, edgecolor=EDGE)
        axes.add_patch(box)
        text = f"{value:.2f}".replace("-", "−")
        axes.text(x, middle, text, ha="center", va="center", fontsize=11, color=INK)


def draw_selected(words: Mapping[str, Selected], title: str) -> Figure:
    """A row for each word: Δ of all channels, ordered by their mean, then the numbers of B and of C."""
    import matplotlib.pyplot as plt
    import torch
    from matplotlib.colors import LogNorm

    step, B, C = (torch.stack([getattr(seen, key) for seen in words.values()]).cpu() for key in Selected._fields)
    figure, panels = plt.subplots(1, 3, figsize=(11, 0.9 + 0.26 * len(words)), width_ratios=(3, 1, 1))
    ordered = step[:, step.mean(dim=0).argsort()]
    names = ("$\\Delta$, one column per channel", "$B$", "$C$")
    for axes, numbers, name in zip(panels, (ordered, B, C), names, strict=True):
        if axes is panels[0]:
            image = axes.imshow(numbers, aspect="auto", cmap="cividis", norm=LogNorm())
        else:
            limit = float(numbers.abs().max())
            image = axes.imshow(numbers, aspect="auto", cmap="PuOr", vmin=-limit, vmax=limit)
        figure.colorbar(image, ax=axes, pad=0.02)
        axes.set_title(name, fontsize=11)
        axes.set_xticks([])
        axes.set_yticks(range(len(words)), list(words) if axes is panels[0] else [""] * len(words))
        axes.tick_params(length=0)
        axes.grid(False)
    figure.suptitle(title, fontsize=13)
    return figure


def _pair(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:g}".replace("-", "−") for value in numbers) + ")"
