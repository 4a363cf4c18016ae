"""Swin: a ViT whose attention stays in windows, which shift from block to block, and whose patches merge on the way up.

(Liu et al., 2021.) Shapes: batch, channel, height and width of images; time = row · column of the grid of patches;
window, place (in a window); d_model, which doubles from stage to stage; label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.implementations import softmax
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.windows import Pair, allowed_in_windows, into_windows, out_of_windows, window_numbers
from tfbook.checks import check_dropout, check_heads, check_positive
from tfbook.models.blocks import PreNorm
from tfbook.models.config import Savable
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm
from tfbook.models.vit import PatchEmbedding, grid_of
from tfbook.parts import Part


@dataclass(frozen=True, kw_only=True)
class SwinConfig(Savable):
    """Sizes of a Swin; each further stage has twice the width and half the rows and columns.

    Raises ValueError for impossible sizes, and unless there are as many `heads` as `depths`.
    """

    d_model: int = 96  # of the first stage
    depths: tuple[int, ...] = (2, 2, 6, 2)  # blocks of each stage
    heads: tuple[int, ...] = (3, 6, 12, 24)  # of each stage
    window: int = 7
    patch: int = 4
    channels: int = 3
    expansion: int = 4  # d_ff / d_model
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_positive(window=self.window, patch=self.patch, channels=self.channels, expansion=self.expansion)
        check_dropout(self.dropout)
        if len(self.depths) != len(self.heads) or min(self.depths, default=0) < 1:
            found = f"depths is {self.depths} and heads is {self.heads}"
            raise ValueError(f"{found}; expected a number of blocks and one of heads for each stage")
        for stage, heads in enumerate(self.heads):
            check_heads(self.width(stage), heads)

    def width(self, stage: int) -> int:
        """d_model of a stage, counted from 0."""
        return self.d_model * 2**stage


SWIN_TINY = SwinConfig()  # 28 million parameters with 1,000 labels
SWIN_SMALL = SwinConfig(depths=(2, 2, 18, 2))  # 50 million
SWIN_BASE = SwinConfig(d_model=128, depths=(2, 2, 18, 2), heads=(4, 8, 16, 32))  # 88 million


# ---- attention in windows ----------------------------------------------------------------------------------------


def relative_places(window: int) -> Int64[Tensor, "place place"]:
    """The number of (row, column) of a query minus that of a key, one of (2 · window − 1)² differences."""
    place = torch.arange(window**2)
    row, column = (line[:, None] - line + window - 1 for line in (place // window, place % window))
    return row * (2 * window - 1) + column


class WindowAttention(Part):
    """Multi-head attention in windows with a trained bias per head and relative place (Liu et al., 2021, eq. 4).

    `shift` moves the windows by so many rows and columns. A grid that whole windows do not fill is filled up with
    zeros, which are keys like others, as in the paper's code.
    """

    relative: Int64[Tensor, "place place"]
    UNDECAYED = ("table",)  # as in the paper's code

    def __init__(self, d_model: int, heads: int, *, window: int, shift: int = 0, dropout: float = 0.0):
        super().__init__()
        self.window, self.shift = window, shift
        self.attention = MultiHeadAttention(d_model, heads, dropout=dropout, implementation=softmax)
        self.table = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        self.register_buffer("relative", relative_places(window), persistent=False)

    def bias(self) -> Float[Tensor, "head place place"]:
        """The table's entry for each pair of places in a window."""
        return rearrange(self.table[self.relative], "query key head -> head query key")

    def shifts(self, size: Pair) -> Pair:
        """Rows and columns by which windows move: none along a side that one window covers."""
        return tuple(self.shift if self.window < length else 0 for length in size)  # type: ignore[return-value]

    def allowed(self, size: Pair, device: torch.device | None = None) -> Bool[Tensor, "window place place"] | None:
        """The mask of each window; None without a shift, where a window holds neighbors alone."""
        shift, window = self.shifts(size), (self.window, self.window)
        if not any(shift):
            return None
        filled = tuple(length + -length % self.window for length in size)
        numbers = window_numbers(filled, window, shift, device)  # type: ignore[arg-type] # a pair
        return allowed_in_windows(numbers, window, shift)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, size: Pair, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """All windows of all images are one batch. `size` holds the rows and columns of the grid."""
        window, shift, allowed = (self.window, self.window), self.shifts(size), self.allowed(size, x.device)
        apart = into_windows(x.unflatten(1, size), window, shift)
        mask = None if allowed is None else allowed.repeat(len(x), 1, 1)[:, None]
        mixed = self.attention(apart.flatten(0, 1), mask=mask, bias=self.bias()).unflatten(0, apart.shape[:2])
        return out_of_windows(mixed, size, window, shift).flatten(1, 2)

    @property
    def output(self) -> nn.Linear:
        """W_O."""
        return self.attention.W_O

    def parameter_count(self) -> int:
        """Those of the attention, and (2 · window − 1)² for each head."""
        return self.attention.parameter_count() + self.table.numel()

    def flops(self, time: int, *, size: Pair, **context: Any) -> int:
        """Those of attention on window² positions, for each window: linear in the number of positions."""
        windows = -(-size[0] // self.window) * -(-size[1] // self.window)
        return windows * self.attention.flops(self.window**2)


# ---- stages ------------------------------------------------------------------------------------------------------


class SwinBlock(nn.Module):
    """The ViT's block with attention in windows."""

    def __init__(self, d_model: int, heads: int, config: SwinConfig, *, shift: int):
        super().__init__()
        dropout = config.dropout
        attention = WindowAttention(d_model, heads, window=config.window, shift=shift, dropout=dropout)
        feed_forward = FeedForward(d_model, config.expansion * d_model, activation=F.gelu, dropout=dropout)
        self.mixer = PreNorm(attention, LayerNorm(d_model), dropout)
        self.feed_forward = PreNorm(feed_forward, LayerNorm(d_model), dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"], size: Pair) -> Float[Tensor, "batch time d_model"]:
        """`size` holds the rows and columns of the grid."""
        return self.feed_forward(self.mixer(x, size=size))


def squares_of_four(x: Float[Tensor, "batch time d_model"], size: Pair) -> Float[Tensor, "batch merged {4*x.shape[2]}"]:
    """The vectors of each 2 × 2 square side by side, columns first; an odd side is filled up with zeros."""
    grid = F.pad(x.unflatten(1, size), (0, 0, 0, size[1] % 2, 0, size[0] % 2))
    return rearrange(grid, "batch (row p) (column q) d -> batch (row column) (q p d)", p=2, q=2)


class PatchMerging(nn.Module):
    """Linear(norm(four neighbors side by side)): a quarter of the positions, twice as wide (section 3.1)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.norm = LayerNorm(4 * d_model)
        self.reduction = nn.Linear(4 * d_model, 2 * d_model, bias=False)

    def forward(self, x: Float[Tensor, "batch time d_model"], size: Pair) -> tuple[Tensor, Pair]:
        """The merged positions, and the rows and columns of their grid."""
        return self.reduction(self.norm(squares_of_four(x, size))), (-(-size[0] // 2), -(-size[1] // 2))


class SwinStage(nn.Module):
    """Merges patches, except in the first stage, then alternates windows and shifted windows."""

    def __init__(self, stage: int, config: SwinConfig):
        super().__init__()
        self.merging = PatchMerging(config.width(stage - 1)) if stage else None
        shifts = [config.window // 2 * (number % 2) for number in range(config.depths[stage])]
        block = partial(SwinBlock, config.width(stage), config.heads[stage], config)
        self.blocks = nn.ModuleList([block(shift=shift) for shift in shifts])

    def forward(self, x: Float[Tensor, "batch time d_model"], size: Pair) -> tuple[Tensor, Pair]:
        """The stage's vectors, and the rows and columns of their grid."""
        if self.merging is not None:
            x, size = self.merging(x, size)
        for block in self.blocks:
            x = block(x, size)
        return x, size


class Swin(nn.Module):
    """Patches through stages of windowed blocks; the mean over the last grid is classified.

    It reads images of any size that the patch divides: no layer knows the number of positions.
    """

    def __init__(self, labels: int, config: SwinConfig):
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(config.channels, config.patch, config.d_model)
        self.patch_norm = LayerNorm(config.d_model)
        self.stages = nn.ModuleList([SwinStage(stage, config) for stage in range(len(config.depths))])
        self.norm = LayerNorm(config.width(len(config.depths) - 1))
        self.head = nn.Linear(config.width(len(config.depths) - 1), labels)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)

    def grids(self, images: Float[Tensor, "batch channel height width"]) -> Sequence[Float[Tensor, "batch _ _ _"]]:
        """The grid of vectors (batch, row, column, d_model) after each stage, from fine to coarse.

        Raises ValueError when the patch does not divide the image.
        """
        size, grids = grid_of(images.shape[2], images.shape[3], self.config.patch), []
        x = self.patch_norm(self.patches(images))
        for stage in self.stages:
            x, size = stage(x, size)
            grids.append(x.unflatten(1, size))
        return grids

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """One row of logits per image."""
        return self.head(self.norm(self.grids(images)[-1]).mean(dim=(1, 2)))
