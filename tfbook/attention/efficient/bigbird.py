"""BigBird: a window, a few blocks that see everything and that everything sees, and a few random blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tfbook.attention.efficient.block_sparse import BlockAttention
from tfbook.checks import check_positive


@dataclass(frozen=True)
class BigBird(BlockAttention):
    """Each block sees `window` blocks around it, the `global_blocks` and `random_blocks` others (Zaheer et al., 2020).

    The global blocks are the first ones, and see every block. Under a causal mask the random blocks are sampled from
    the past and do not change when the text grows. Raises ValueError for an even `window`, which has no middle, and for
    numbers out of range.
    """

    window: int = 3
    global_blocks: int = 1
    random_blocks: int = 3
    block: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(window=self.window, block=self.block)
        if self.window % 2 == 0:
            raise ValueError(f"window is {self.window}; expected an odd number of blocks")
        if min(self.global_blocks, self.random_blocks) < 0:
            counts = f"{self.global_blocks} and {self.random_blocks}"
            raise ValueError(f"global_blocks and random_blocks are {counts}; expected 0 or more each")

    def layout(self, blocks: int, causal: bool) -> Bool[Tensor, "block block"]:
        """The window, the rows and columns of the global blocks, and the random blocks."""
        number = torch.arange(blocks)
        in_window = (number[:, None] - number).abs() <= self.window // 2
        seen = in_window | (number < self.global_blocks) | (number < self.global_blocks)[:, None]
        free = (~seen).tril() if causal else ~seen
        scores = random_scores(blocks, self.seed).masked_fill(~free, -1.0)
        highest, chosen = scores.topk(min(self.random_blocks, blocks), dim=1)
        return seen.scatter(1, chosen, seen.gather(1, chosen) | (highest >= 0))


def random_scores(blocks: int, seed: int) -> Float[Tensor, "block block"]:
    """A random number for each pair of blocks, independent of `blocks` on and below the diagonal."""
    generator, scores = torch.Generator().manual_seed(seed), torch.empty(blocks, blocks)
    for offset, triangle in ((0, torch.tril_indices), (1, torch.triu_indices)):
        rows, columns = triangle(blocks, blocks, offset)
        scores[rows, columns] = torch.rand(len(rows), generator=generator)
    return scores
