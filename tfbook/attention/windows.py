"""Windows of a grid of positions: cut out, shifted, put together again, and which positions share one.

Shapes: row and column (of the grid, or of a window), window, place (in a window, row by row), time (row · column).
"""

from __future__ import annotations

import torch
from einops import rearrange
from jaxtyping import Bool, Int64, Shaped
from torch import Tensor
from torch.nn import functional as F

Pair = tuple[int, int]  # rows and columns


def into_windows(
    grid: Shaped[Tensor, "*batch row column d"], window: Pair, shift: Pair = (0, 0)
) -> Shaped[Tensor, "*batch window place d"]:
    """Cuts a grid into windows, after it was filled up with zeros at its end and rolled back by `shift`."""
    down, across = (-size % side for size, side in zip(grid.shape[-3:-1], window, strict=True))
    grid = F.pad(grid, (0, 0, 0, across, 0, down)).roll((-shift[0], -shift[1]), dims=(-3, -2))
    squares = "... (row p) (column q) d -> ... (row column) (p q) d"
    return rearrange(grid, squares, p=window[0], q=window[1])


def out_of_windows(
    windows: Shaped[Tensor, "*batch window place d"], size: Pair, window: Pair, shift: Pair = (0, 0)
) -> Shaped[Tensor, "*batch row column d"]:
    """The inverse of `into_windows` for a grid of this size."""
    squares = "... (row column) (p q) d -> ... (row p) (column q) d"
    grid = rearrange(windows, squares, row=-(-size[0] // window[0]), p=window[0], q=window[1])
    return grid.roll(shift, dims=(-3, -2))[..., : size[0], : size[1], :]


def window_numbers(
    size: Pair, window: Pair, shift: Pair = (0, 0), device: torch.device | None = None
) -> Int64[Tensor, "row column"]:
    """The number, from 1 on, of the window in which each position is when windows begin `shift` later.

    What is before the first whole window is a smaller one, and what is left at the end another.
    """
    lines = [
        (torch.arange(length, device=device) + side - moved) // side
        for length, side, moved in zip(size, window, shift, strict=True)
    ]
    return 1 + lines[0][:, None] * (size[1] + 1) + lines[1]


def same_window(size: Pair, window: Pair, shift: Pair = (0, 0)) -> Bool[Tensor, "time time"]:
    """Whether two positions of the grid share a window: the mask under which dense attention is windowed."""
    number = window_numbers(size, window, shift).flatten()
    return number[:, None] == number


def allowed_in_windows(
    numbers: Int64[Tensor, "row column"], window: Pair, shift: Pair = (0, 0)
) -> Bool[Tensor, "window place place"]:
    """`same_window` for what `into_windows` has cut out: rolled, the last windows hold pieces from both ends.

    Places that the grid does not have, which have number 0, are keys for nobody.
    """
    number = into_windows(numbers[..., None], window, shift)[..., 0]
    return (number[:, :, None] == number[:, None]) & (number[:, None] > 0)
