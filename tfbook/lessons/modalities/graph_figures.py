"""Figures of lesson 19's graphs: where nodes lie, friends and clubs, rings, hops, and a tree in two spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tfbook.plot.house import COLORS, EDGE, GREEN, INK, KHAKI, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

RED_CLUB, BLUE_CLUB = "#bd1f01", "#2d78bf"
RING_COLORS = {0: "#d7dbe0", 3: "#c04c00", 4: KHAKI, 5: "#5e1a8c", 6: "#2d78bf", 7: GREEN}
READER_COLORS = {"our blocks along edges": COLORS[0], "GAT": COLORS[2], "GCN": COLORS[1], "boosted trees": GREEN}


def steps_apart(edges: Bool[Tensor, "node node"]) -> Float[Tensor, "node node"]:
    """The number of edges between any two nodes; where there is no path, one more than the longest."""
    nodes = len(edges)
    apart = torch.where(edges, 1.0, torch.inf).fill_diagonal_(0)
    for middle in range(nodes):
        apart = torch.minimum(apart, apart[:, middle : middle + 1] + apart[middle])
    longest = apart[apart.isfinite()].max()
    return apart.nan_to_num(posinf=float(longest) + 1)


def layout(edges: Bool[Tensor, "node node"], rounds: int = 300) -> Float[Tensor, "node 2"]:
    """Places of nodes whose distances are near their steps apart (stress majorization; Gansner et al., 2005)."""
    nodes, apart = len(edges), steps_apart(edges)
    angle = 2 * torch.pi * torch.arange(nodes) / nodes
    best, least = torch.zeros(nodes, 2), float("inf")
    weight = (1 / apart.clamp(min=1) ** 2).fill_diagonal_(0)
    for start in range(4):
        noise = torch.randn(nodes, 2, generator=torch.Generator().manual_seed(start))
        at = torch.stack([angle.cos(), angle.sin()], dim=1) + 0.6 * noise
        for _ in range(rounds):
            off = at[:, None] - at
            length = off.norm(dim=-1).clamp(min=1e-3)
            pulled = at[None] + off * (apart / length)[..., None]
            at = (weight[..., None] * pulled).sum(dim=1) / weight.sum(dim=1, keepdim=True).clamp(min=1e-6)
        stress = float((weight * (torch.cdist(at, at) - apart) ** 2).sum())
        best, least = (at, stress) if stress < least else (best, least)
    best = best - best.mean(dim=0)
    return best @ torch.linalg.svd(best, full_matrices=False)[2].T  # the long side lies flat


def _graph(
    axes: Axes,
    edges: Bool[Tensor, "node node"],
    names: Sequence[str],
    fills: Sequence[str],
    heavy: Sequence[bool],
    *,
    size: float = 620,
) -> None:
    """Nodes as named discs, edges as lines; heavy rims where asked for."""
    from matplotlib.colors import to_rgb

    at = layout(edges).numpy()
    for one, other in edges.triu().nonzero().tolist():
        axes.plot(*at[[one, other]].T, color=EDGE, linewidth=1.4, marker="none", zorder=1)
    rims, widths = [INK if each else "white" for each in heavy], [2.4 if each else 1.0 for each in heavy]
    axes.scatter(at[:, 0], at[:, 1], s=size, c=fills, edgecolors=rims, linewidths=widths, zorder=2, marker="o")
    for (x, y), name, fill in zip(at, names, fills, strict=True):
        light = np.dot(to_rgb(fill), (0.3, 0.59, 0.11)) > 0.6
        axes.text(x, y, name, ha="center", va="center", fontsize=8.5, color=INK if light else "white", zorder=3)
    margin = 0.16 * max(float(np.ptp(at)), 1)
    low, high = at.min(axis=0) - margin, at.max(axis=0) + margin
    axes.set(xticks=[], yticks=[], xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _between(share: float) -> str:
    """From blue (0) over white to red (1)."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    return to_hex(LinearSegmentedColormap.from_list("clubs", [BLUE_CLUB, "#f4f4f4", RED_CLUB])(float(share)))


def draw_friends(
    names: Sequence[str], edges: Bool[Tensor, "node node"], red: Sequence[float], known: Sequence[str], title: str
) -> Figure:
    """Friends colored by the probability of the red club, heavy rims where the club is known."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.6))
    _graph(axes, edges, names, [_between(p) for p in red], [name in known for name in names])
    axes.set_title(title)
    figure.set_label("schematic")
    return figure


def draw_rings(names: Sequence[str], edges: Bool[Tensor, "node node"], sizes: Sequence[int], title: str) -> Figure:
    """A skeleton whose nodes are colored by the ring that the model sees them in."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(figsize=(7.4, 3.6))
    _graph(axes, edges, names, [RING_COLORS[size] for size in sizes], [False] * len(names), size=480)
    seen = sorted(set(sizes))
    words = {size: f"ring of {size}" if size else "in no ring" for size in seen}
    handles = [Patch(facecolor=RING_COLORS[size], edgecolor=EDGE, label=words[size]) for size in seen]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set_title(title)
    figure.set_label("schematic")
    return figure


def draw_mask(names: Sequence[str], edges: Bool[Tensor, "node node"]) -> Figure:
    """A graph and, beside it, the same graph as the mask of attention: filled where a row may look at a column."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.1), width_ratios=(1.25, 1))
    _graph(left, edges, names, [COLORS[0]] * len(names), [False] * len(names), size=900)
    allowed = (edges | torch.eye(len(edges), dtype=torch.bool)).numpy()
    right.imshow(allowed, cmap="Purples", vmin=0, vmax=1.4)
    right.set(xticks=range(len(names)), yticks=range(len(names)))
    right.set_xticklabels(names)
    right.set_yticklabels(names)
    right.set(xlabel="may be looked at (key)", ylabel="looks (query)")
    right.grid(visible=False)
    for row in range(len(names)):
        for column in range(len(names)):
            word = "yes" if allowed[row, column] else "·"
            right.text(column, row, word, ha="center", va="center", color="white" if allowed[row, column] else SOFT)
    left.set_title("A graph is …")
    right.set_title("… a mask")
    figure.set_label("schematic")
    return figure


def draw_hops(runs: DataFrame, rules: Mapping[str, float]) -> Figure:
    """Right clubs against layers: each seed a point, a line through the means; dashed, rules that train nothing."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 4))
    for name in ("our blocks along edges", "GAT", "GCN"):
        rows = runs[runs["reader"] == name]
        mean = 100 * rows.groupby("layers")["right"].mean()
        color = READER_COLORS[name]
        axes.scatter(rows["layers"], 100 * rows["right"], s=14, color=color, alpha=0.6, marker="o")
        axes.plot(mean.index, mean, color=color, label=name)
    blind = 100 * runs[runs["reader"] == "our blocks without edges"]["right"].mean()
    top = runs["right"].max()
    for rule, share in rules.items():
        axes.axhline(100 * share, color=GREEN, linestyle="--", linewidth=1.3)
        axes.text(
            2.7, 100 * share + (0.8 if share > top else -2.3), f"{rule} (trains nothing)", color=GREEN, fontsize=9.5
        )
    axes.axhline(blind, color=SOFT, linestyle=":", linewidth=1.3)
    axes.text(1, blind + 0.8, "our blocks without edges", color=SOFT, fontsize=9.5)
    axes.set(xlabel="layers", ylabel="right clubs (%)", xticks=sorted(runs["layers"].unique()), ylim=(46, 97))
    axes.set_title("Each layer hears one friend further away")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.1))
    return figure


def draw_codes(runs: DataFrame, common: float) -> Figure:
    """Right rings by what a node shows, for each reader: bars are means, points seeds."""
    import matplotlib.pyplot as plt

    sights, readers = runs["sight"].unique(), runs["reader"].unique()
    figure, axes = plt.subplots(figsize=(7.8, 3.8))
    each = 0.8 / len(readers)
    for number, reader in enumerate(readers):
        for place, sight in enumerate(sights):
            rows = 100 * runs[(runs["reader"] == reader) & (runs["sight"] == sight)]["right"]
            x = place + (number - (len(readers) - 1) / 2) * each
            axes.bar(
                x, rows.mean(), 0.92 * each, color=READER_COLORS[reader], label=reader if not place else "_", alpha=0.9
            )
            axes.scatter([x] * len(rows), rows, s=12, color=INK, zorder=3, marker="o")
            axes.text(x, rows.max() + 2, f"{rows.mean():.0f}", ha="center", fontsize=9, color=READER_COLORS[reader])
    axes.axhline(100 * common, color=SOFT, linestyle=":", linewidth=1.3)
    axes.text(len(sights) - 0.55, 100 * common + 1.5, "most frequent", color=SOFT, fontsize=9, ha="left")
    axes.set(xticks=range(len(sights)), ylabel="right rings (%)", ylim=(0, 109), xlim=(-0.5, len(sights) - 0.1))
    axes.set_xticklabels(sights)
    axes.set_title("Walks that come back tell a ring's size")
    axes.legend(frameon=False, loc="upper left", fontsize=9.5)
    return figure
