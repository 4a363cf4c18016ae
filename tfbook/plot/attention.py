"""Attention: maps of the weights, and pictures of masks."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tfbook.plot.house import FAINT, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MAX_CELLS = 20  # a mask with more rows or columns is drawn without borders and check marks
BLOCKED = {"facecolor": FAINT, "edgecolor": "#b8b8b8", "hatch": "////"}  # the background, seen where a mask blocks
ALLOWED = "#1f5f9e"


def attention_map(
    axes: Axes,
    weights: Tensor,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str,
    gold: Set[tuple[int, int]] = frozenset(),
    bar: bool = True,
) -> None:
    """Attention weights (target × source), 0 to 1, one row per target word; rings mark gold links (source, target).

    Raises ValueError when the numbers of words do not match the weights.
    """
    if tuple(weights.shape) != (len(target), len(source)):
        expected = f"{len(target)} target × {len(source)} source words"
        raise ValueError(f"weights have shape {tuple(weights.shape)}; expected {expected}")
    _cells(axes, weights, target, source, bar=bar)
    for i, j in sorted(gold):
        axes.plot(
            i + 0.5,
            j + 0.5,
            marker="o",
            markersize=8,
            markerfacecolor="none",
            markeredgecolor="#ff5e5e",
            markeredgewidth=1.8,
        )
    axes.set_title(title, pad=10)
    axes.set(xlabel="source word", ylabel="target word")


def _cells(
    axes: Axes,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    blocked: Tensor | None = None,
    bar: bool = False,
) -> None:
    """One cell per weight, colored from 0 to 1; blocked cells are left out, so the hatched background shows."""
    import seaborn as sns

    sns.heatmap(
        weights.detach().float().cpu().numpy(),
        ax=axes,
        mask=None if blocked is None else blocked.cpu().numpy(),
        vmin=0,
        vmax=1,
        cmap="cividis",
        cbar=bar,
        cbar_kws={"label": "attention weight"} if bar else None,
        square=True,
        linewidths=0.5,
        linecolor="#555555",
        xticklabels=[*map(literal, keys)],
        yticklabels=[*map(literal, queries)],
    )
    if blocked is not None:
        axes.patch.set(**BLOCKED)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_xticklabels([*map(literal, keys)], rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticklabels([*map(literal, queries)], rotation=0)


def head_maps(
    figure: Figure,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str,
    names: Sequence[str] | None = None,
    mask: Tensor | None = None,
    columns: int = 4,
) -> None:
    """One map per head of the weights (head × query × key), on one scale from 0 to 1, with blocked cells hatched.

    Keys default to the queries, names to "head 1", "head 2", …; the mask is True where a query may attend. Raises
    ValueError when tokens or names do not match the weights, and the errors of `blocked_cells`.
    """
    keys = queries if keys is None else keys
    if weights.ndim != 3 or weights.shape[1:] != (len(queries), len(keys)):
        expected = f"(head, {len(queries)} queries, {len(keys)} keys)"
        raise ValueError(f"weights has shape {tuple(weights.shape)}; expected {expected}")
    names = [f"head {head}" for head in range(1, len(weights) + 1)] if names is None else names
    if len(names) != len(weights):
        raise ValueError(f"names holds {len(names)}; expected one for each of {len(weights)} heads")
    blocked = [None] * len(weights) if mask is None else blocked_cells(weights, mask)
    rows = -(-len(weights) // columns)
    columns = -(-len(weights) // rows)  # six heads look better as 3 + 3 than as 4 + 2
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for place, (axes, name) in enumerate(zip(panels, names, strict=False)):
        _cells(axes, weights[place], queries, keys, blocked=blocked[place])
        axes.set_title(name, fontsize=10.5, fontweight="normal")
        axes.tick_params(labelsize=9.5, labelleft=place % columns == 0, labelbottom=place + columns >= len(weights))
    for axes in panels[len(weights) :]:
        axes.remove()
    label = "attention weight" if mask is None else "attention weight (hatched: blocked)"
    figure.colorbar(panels[0].collections[0], ax=figure.axes, label=label, fraction=0.04, aspect=30, pad=0.02)
    figure.suptitle(title, x=0.01, y=1.02, ha="left", va="bottom", fontsize=12, fontweight="bold")
    figure.supxlabel("key", fontsize=11)
    figure.supylabel("query", fontsize=11)


def blocked_cells(weights: Tensor, mask: Tensor) -> Tensor:
    """Where a mask (True: may attend) blocks, in the shape of the weights.

    Raises TypeError when the mask is not Boolean, and ValueError when it does not broadcast to the weights or blocks a
    cell whose weight is not 0, since hatching that cell would hide an error.
    """
    _expect_boolean(mask)
    try:
        blocked = ~mask.to(weights.device).expand(weights.shape)
    except RuntimeError:
        message = f"mask has shape {tuple(mask.shape)}; expected one that broadcasts to weights, {tuple(weights.shape)}"
        raise ValueError(message) from None
    if wrong := int(weights[blocked].count_nonzero()):
        raise ValueError(f"mask blocks {wrong} cells whose weight is not 0; the weights were made without this mask")
    return blocked


def _expect_boolean(mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(f"mask has dtype {mask.dtype}; expected torch.bool, where True means 'may attend'")


def mask_picture(
    axes: Axes,
    mask: Tensor,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    title: str,
) -> None:
    """The keys (columns) that each query (row) may attend to: filled where the mask (query × key) is True.

    Keys default to the queries; without either, rows and columns are positions from 0. Other cells are hatched. Raises
    TypeError when the mask is not Boolean, and ValueError when it is not a matrix or the tokens do not match it.
    """
    from matplotlib.colors import ListedColormap

    _expect_boolean(mask)
    keys = queries if keys is None else keys
    given = [None if tokens is None else len(tokens) for tokens in (queries, keys)]
    if mask.ndim != 2 or any(size not in (None, have) for size, have in zip(given, mask.shape, strict=True)):
        expected = " × ".join(f"{size or 'any'} {side}" for size, side in zip(given, ("queries", "keys"), strict=True))
        raise ValueError(f"mask has shape {tuple(mask.shape)}; expected {expected}")
    axes.pcolormesh(np.ma.masked_equal(mask.cpu().numpy(), False), cmap=ListedColormap([ALLOWED]))
    axes.patch.set(**BLOCKED)
    axes.grid(False)
    if max(mask.shape) <= MAX_CELLS:
        axes.hlines(range(1, mask.shape[0]), 0, mask.shape[1], color="white", linewidth=1.5)
        axes.vlines(range(1, mask.shape[1]), 0, mask.shape[0], color="white", linewidth=1.5)
        for query, key in mask.nonzero().tolist():
            axes.text(key + 0.5, query + 0.5, "✓", ha="center", va="center", color="white")
    axes.set(title=title, aspect="equal", xlim=(0, mask.shape[1]), ylim=(mask.shape[0], 0))
    _name_cells(axes.yaxis, queries, mask.shape[0], "query")
    _name_cells(axes.xaxis, keys, mask.shape[1], "key")
    if keys is not None:
        axes.set_xticklabels([*map(literal, keys)], rotation=45, ha="right", rotation_mode="anchor")


def _name_cells(axis: Axis, tokens: Sequence[str] | None, size: int, side: str) -> None:
    """Tokens, or as many positions as are legible, at the centers of an axis's cells."""
    from matplotlib.ticker import MaxNLocator

    places = np.arange(size)
    if tokens is None and size > MAX_CELLS:
        places = np.array([place for place in MaxNLocator(8, integer=True).tick_values(0, size) if place < size])
    axis.set_ticks(places + 0.5, [f"{place:.0f}" for place in places] if tokens is None else [*map(literal, tokens)])
    axis.set_tick_params(length=0 if tokens else 3)
    axis.set_label_text(side if tokens else f"{side} (position)")
