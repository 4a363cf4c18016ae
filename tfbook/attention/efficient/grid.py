"""Attention on a grid of positions, such as an image's patches row by row: each sees windows, neighbors or lines.

Shapes: batch, head, time = row · column, d_head, d_value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.efficient.base import EfficientAttention, Visibility, check_same_length
from tfbook.attention.implementations import Supports, masked_softmax, softmax
from tfbook.attention.masks import Dense, Mask
from tfbook.attention.windows import (
    Pair,
    allowed_in_windows,
    into_windows,
    out_of_windows,
    same_window,
    window_numbers,
)
from tfbook.checks import check_positive


@dataclass(frozen=True)
class GridAttention(EfficientAttention):
    """The base of attention on a grid of `columns` columns; a subclass says who sees whom, and attends.

    Positions outside the grid, such as a class token, have no place. Raises ValueError for numbers below 1, and when
    called with a number of positions that does not fill whole rows.
    """

    columns: int
    supports: ClassVar[Supports] = Supports(masks=(), bias=False)

    def __post_init__(self) -> None:
        check_positive(columns=self.columns)

    def size(self, time: int) -> Pair:
        """Rows and columns of the grid."""
        if time % self.columns:
            raise ValueError(f"there are {time} positions; expected whole rows of {self.columns}, and no class token")
        return time // self.columns, self.columns

    def sees(self, size: Pair, heads: int) -> Bool[Tensor, "#head time time"]:
        """Which position may attend to which."""
        raise NotImplementedError

    def mask(self, q: Tensor, k: Tensor, mask: Mask | None = None) -> Mask:
        """The mask under which dense attention computes the same."""
        seen = Dense(self.sees(self.size(k.shape[2]), q.shape[1]).to(q.device))
        return seen if mask is None else mask & seen

    def attend(
        self,
        q: Float[Tensor, "batch head time d_head"],
        k: Float[Tensor, "batch head time d_head"],
        v: Float[Tensor, "batch head time d_value"],
        visibility: Visibility,
        dropout: float,
    ) -> Float[Tensor, "batch head time d_value"]:
        """Attention of grids, laid out again row by row."""
        check_same_length(self, visibility)
        size = self.size(visibility.keys)
        q, k, v = (x.unflatten(2, size) for x in (q, k, v))
        return self.attend_on_grid(q, k, v, dropout).flatten(2, 3)

    def attend_on_grid(
        self,
        q: Float[Tensor, "batch head row column d_head"],
        k: Float[Tensor, "batch head row column d_head"],
        v: Float[Tensor, "batch head row column d_value"],
        dropout: float,
    ) -> Float[Tensor, "batch head row column d_value"]:
        """The output, as a grid."""
        raise NotImplementedError


@dataclass(frozen=True)
class Windowed(GridAttention):
    """Each position sees the `window` × `window` square that it is in: O(n · window²) (Liu et al., 2021, section 3.2).

    With a `shift` the squares begin that much later, so that what shared no window before may share one in the next
    layer: `alternate(stack, Windowed(8, 4), Windowed(8, 4, shift=2))`. Raises ValueError unless 0 ≤ shift < window.
    """

    window: int
    shift: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(window=self.window)
        if not 0 <= self.shift < self.window:
            raise ValueError(f"shift is {self.shift} and window is {self.window}; expected 0 ≤ shift < window")

    def sees(self, size: Pair, heads: int) -> Bool[Tensor, "1 time time"]:
        """Whether two positions share a window."""
        return same_window(size, (self.window,) * 2, (self.shift,) * 2)[None]

    def attend_on_grid(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Dense attention in each window, all windows as one batch."""
        size, window, shift = (q.shape[2], q.shape[3]), (self.window,) * 2, (self.shift,) * 2
        allowed = allowed_in_windows(window_numbers(size, window, shift, q.device), window, shift)
        apart = (into_windows(x, window, shift) for x in (q, k, v))
        q, k, v = (rearrange(x, "batch head window place d -> batch window head place d") for x in apart)
        mask = allowed.expand(len(q), *allowed.shape).flatten(0, 1)[:, None]
        mixed = softmax(*(x.flatten(0, 1) for x in (q, k, v)), mask=mask, dropout=dropout).unflatten(0, q.shape[:2])
        mixed = rearrange(mixed, "batch window head place d -> batch head window place d")
        return out_of_windows(mixed, size, window, shift)


@dataclass(frozen=True)
class Neighborhood(GridAttention):
    """Each position sees those at most `reach` rows and columns away: O(n · (2 reach + 1)²) (Parmar et al., 2018).

    At the edge of the grid it sees fewer, as a convolution with zero padding does. Raises ValueError when `reach` < 1.
    """

    reach: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(reach=self.reach)

    def sees(self, size: Pair, heads: int) -> Bool[Tensor, "1 time time"]:
        """Whether both distances are at most `reach`."""
        place = torch.arange(size[0] * size[1])
        row, column = place // size[1], place % size[1]
        near = [(line[:, None] - line).abs() <= self.reach for line in (row, column)]
        return (near[0] & near[1])[None]

    def around(self, x: Float[Tensor, "*batch row column d"]) -> Float[Tensor, "*batch row column near d"]:
        """The neighbors of each position, with zeros beyond the edge."""
        width = 2 * self.reach + 1
        padded = F.pad(x, (0, 0, *(self.reach,) * 4))
        return rearrange(padded.unfold(-3, width, 1).unfold(-3, width, 1), "... d p q -> ... (p q) d")

    def attend_on_grid(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Each query with the keys and values around it."""
        there = self.around(q.new_ones(*q.shape[2:4], 1))[..., 0] > 0
        scores = (self.around(k) @ (q / math.sqrt(q.shape[-1]))[..., None])[..., 0]
        weights = F.dropout(masked_softmax(scores, there), dropout)
        return (weights[..., None, :] @ self.around(v))[..., 0, :]


@dataclass(frozen=True)
class Axial(GridAttention):
    """Half of the heads attend along their row, the others along their column: O(n^1.5) (Ho et al., 2019).

    Two layers connect every pair of positions. Ho et al. give each direction layers of its own; sharing the heads
    between both is a choice of Child et al. (2019, section 4.3). A single head attends along the row.
    """

    def _split(self, heads: int) -> list[int]:
        return [heads - heads // 2, heads // 2]

    def sees(self, size: Pair, heads: int) -> Bool[Tensor, "head time time"]:
        """Whether two positions are in the same row, or for the later heads in the same column."""
        place = torch.arange(size[0] * size[1])
        lines = (line[:, None] == line for line in (place // size[1], place % size[1]))
        return torch.cat([line.expand(count, -1, -1) for line, count in zip(lines, self._split(heads), strict=True)])

    def attend_on_grid(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Each row, and each column, is a sequence of its own."""
        (q_row, q_column), (k_row, k_column), (v_row, v_column) = (
            x.split(self._split(x.shape[1]), 1) for x in (q, k, v)
        )
        by_row = _along_lines(q_row, k_row, v_row, dropout)
        by_column = _along_lines(q_column.transpose(2, 3), k_column.transpose(2, 3), v_column.transpose(2, 3), dropout)
        return torch.cat([by_row, by_column.transpose(2, 3)], dim=1)


def _along_lines(
    q: Float[Tensor, "batch head line place d_head"],
    k: Float[Tensor, "batch head line place d_head"],
    v: Float[Tensor, "batch head line place d_value"],
    dropout: float,
) -> Float[Tensor, "batch head line place d_value"]:
    """Attention within each line."""
    q, k, v = (rearrange(x, "batch head line place d -> batch line head place d") for x in (q, k, v))
    mixed = softmax(*(x.flatten(0, 1) for x in (q, k, v)), dropout=dropout).unflatten(0, q.shape[:2])
    return rearrange(mixed, "batch line head place d -> batch head line place d")
