"""The first exercises of lesson 14, on windows; the others are in exercises.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from einops import rearrange
from torch import Tensor

from tfbook.course.exercises import exercise, randn

# ---- windows -----------------------------------------------------------------------------------------------------


def _pictures() -> list[tuple[Tensor, int, int]]:
    """(batch, row, column, d) grids that whole windows fill, with and without a shift."""
    sizes = [(3, 4, 6, 3, 2, 0), (1, 6, 4, 5, 2, 1), (2, 6, 9, 1, 3, 1), (1, 3, 3, 2, 3, 2), (3, 8, 4, 3, 4, 2)]
    return [
        (randn(batch, rows, columns, d, seed=number), window, shift)
        for number, (batch, rows, columns, d, window, shift) in enumerate(sizes)
    ]


@exercise(
    cases=_pictures,
    hints=[
        "Cutting windows is cutting patches: split both sides into (which window, where in it), then bring the two "
        "numbers of the window together. The roll comes first.",
        "`x.roll((-shift, -shift), dims=(1, 2))`, then `reshape(b, rows // w, w, columns // w, w, d)`, "
        "`permute(0, 1, 3, 2, 4, 5)` and `reshape(b, -1, w * w, d)`.",
    ],
)
def partition(x: Tensor, window: int, shift: int) -> Tensor:
    batch, rows, columns, d = x.shape
    x = x.roll((-shift, -shift), dims=(1, 2))
    x = x.reshape(batch, rows // window, window, columns // window, window, d)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, -1, window * window, d)


def _cut(
    x: Tensor,
    window: int,
    shift: int,
    *,
    roll: tuple[int, int] = (-1, -1),
    squares: str = "b (r p) (c q) d -> b (r c) (p q) d",
) -> Tensor:
    x = x.roll((roll[0] * shift, roll[1] * shift), dims=(1, 2))
    return rearrange(x, squares, p=window, q=window)


partition.mistakes(
    {
        "nothing is shifted: roll the grid back by `shift` rows and columns first": partial(_cut, roll=(0, 0)),
        "the grid is rolled forward: the first window should begin at row and column `shift`": partial(
            _cut, roll=(1, 1)
        ),
        "the rows are rolled, the columns are not": partial(_cut, roll=(-1, 0)),
        "the columns are rolled, the rows are not": partial(_cut, roll=(0, -1)),
        "windows are numbered down the columns: list them row by row, as a page is read": partial(
            _cut, squares="b (r p) (c q) d -> b (c r) (p q) d"
        ),
        "the places in a window are listed down the columns: list them row by row": partial(
            _cut, squares="b (r p) (c q) d -> b (r c) (q p) d"
        ),
        "without the permutation, a window is window² neighbors along one row and the next: first bring the two "
        "numbers of the window together": lambda x, window, shift: x.roll((-shift, -shift), (1, 2)).reshape(
            len(x), -1, window * window, x.shape[-1]
        ),
        "these places stand apart: a window is a square of neighbors": partial(
            _cut, squares="b (p r) (q c) d -> b (r c) (p q) d"
        ),
    }
)

# ---- the mask of the shift ---------------------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int]]:
    return [(4, 4, 2, 1), (6, 9, 3, 1), (6, 3, 3, 2), (8, 4, 4, 2), (4, 6, 2, 0)]


@exercise(
    cases=_sizes,
    hints=[
        "Give each place of the grid, before the roll, a number that says in which of the shifted windows it is. Where "
        "do the numbers change along one side? Then roll and cut the numbers as you cut the vectors.",
        "`(torch.arange(rows) - shift) // window` numbers the shifted windows down the rows; what is above the first "
        "border has the number −1. One number for both sides: 1000 · row number + column number.",
        "`numbers.view(1, rows, columns, 1)` can go through your own `partition`. Two places may meet where their "
        "numbers are equal.",
    ],
    differentiable=False,
)
def shift_mask(rows: int, columns: int, window: int, shift: int) -> Tensor:
    row = (torch.arange(rows).roll(-shift) - shift).div(window, rounding_mode="floor")
    column = (torch.arange(columns).roll(-shift) - shift).div(window, rounding_mode="floor")
    numbers = 1000 * row[:, None] + column  # one for each shifted window, rolled already
    cut = numbers.reshape(rows // window, window, columns // window, window).transpose(1, 2)
    cut = cut.reshape(-1, window * window)
    return cut[:, :, None] == cut[:, None, :]


def _masked(
    rows: int,
    columns: int,
    window: int,
    shift: int,
    *,
    roll: int = -1,
    sides: Callable[[Tensor, Tensor], Tensor] = lambda row, column: 1000 * row + column,
    begin: Callable[[int, int], int] = lambda window, shift: window - shift,
) -> Tensor:
    row, column = ((torch.arange(side) + begin(window, shift)) // window for side in (rows, columns))
    numbers = sides(row[:, None], column)[None, :, :, None]
    cut = partition.reference(numbers, window, -roll * shift)[0, :, :, 0]
    return cut[:, :, None] == cut[:, None]


shift_mask.mistakes(
    {
        "these numbers are for adding to scores: return the Boolean mask itself, True where two places may meet": (
            lambda *sizes: torch.where(shift_mask.reference(*sizes), 0.0, -100.0)
        ),
        "everything is allowed: after the roll, the last windows hold pieces from both ends of the grid": (
            lambda *sizes: torch.ones_like(shift_mask.reference(*sizes))
        ),
        "True should mean that two places may meet: these are the pairs that may not": (
            lambda *sizes: ~shift_mask.reference(*sizes)
        ),
        "only the rows are compared: a window can hold pieces from the left and the right end, too": partial(
            _masked, sides=lambda row, column: row + 0 * column
        ),
        "only the columns are compared: a window can hold pieces from the top and the bottom, too": partial(
            _masked, sides=lambda row, column: 0 * row + column
        ),
        "the sum of both numbers mixes windows up: row 1, column 0 and row 0, column 1 have the same one": partial(
            _masked, sides=lambda row, column: row + column
        ),
        "the numbers are those of windows without a shift: the borders move with it": partial(
            _masked, begin=lambda window, shift: 0
        ),
        "the numbers are not rolled back as the vectors are": partial(_masked, roll=0),
        "the numbers are rolled forward, the vectors back": partial(_masked, roll=1),
        "the borders move the wrong way: the first window begins at `shift`": partial(
            _masked, begin=lambda window, shift: shift
        ),
    }
)
