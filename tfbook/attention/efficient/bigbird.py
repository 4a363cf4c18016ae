"""BigBird: neighbours, a few positions that everybody sees, a few drawn by lot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from tfbook.attention.efficient.base import Seeded
from tfbook.attention.efficient.block_sparse import BlockAttention
from tfbook.checks import check_positive


@dataclass(frozen=True)
class BigBird(Seeded, BlockAttention):
    """Each block sees `window` blocks around it, the first `everywhere`, and `drawn` others (Zaheer et al., 2020).

    The first `everywhere` blocks see all. Under a causal mask others are drawn from the past, and a longer text draws
    the same. Raises ValueError for a `window` that is even, since it has no middle, and for numbers out of range.
    """

    window: int = 3
    everywhere: int = 1
    drawn: int = 3
    block: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(window=self.window, block=self.block)
        if self.window % 2 == 0:
            raise ValueError(f"window is {self.window}; expected an odd number of blocks")
        if min(self.everywhere, self.drawn) < 0:
            raise ValueError(f"everywhere and drawn are {self.everywhere} and {self.drawn}; expected 0 or more each")

    def layout(self, blocks: int, causal: bool) -> Bool[Tensor, "block block"]:
        """Window, rows and columns of the global blocks, and lots."""
        number = torch.arange(blocks)
        near = (number[:, None] - number).abs() <= self.window // 2
        seen = near | (number < self.everywhere) | (number < self.everywhere)[:, None]
        free = (~seen).tril() if causal else ~seen
        lots = _lots(blocks, self.seed).masked_fill(~free, -1.0)
        found, place = lots.topk(min(self.drawn, blocks), dim=1)
        return seen.scatter(1, place, seen.gather(1, place) | (found >= 0))


def _lots(blocks: int, seed: int) -> Tensor:
    """A random number for each pair of blocks; those on and below the diagonal do not depend on how many blocks are."""
    dice, lots = torch.Generator().manual_seed(seed), torch.empty(blocks, blocks)
    for offset, triangle in ((0, torch.tril_indices), (1, torch.triu_indices)):
        rows, columns = triangle(blocks, blocks, offset)
        lots[rows, columns] = torch.rand(len(rows), generator=dice)
    return lots
