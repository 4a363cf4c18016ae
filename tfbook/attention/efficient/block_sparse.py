"""Block-sparse attention: a small matrix says which block of positions may see which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tfbook.attention.efficient.base import EfficientAttention, Visibility, check_same_length
from tfbook.attention.efficient.blocks import attend_rows, in_blocks
from tfbook.attention.implementations import Supports
from tfbook.attention.masks import Causal, Lengths, Mask
from tfbook.checks import check_positive


@dataclass(frozen=True, eq=False)
class Blocks(Mask):
    """A query may attend to a key if the layout lets the query's block of `size` positions see the key's."""

    layout: Bool[Tensor, "block block"]
    size: int

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*#batch #query #key"]:
        """Each entry of the layout as a square."""
        squares = self.layout.to(device).repeat_interleave(self.size, dim=0).repeat_interleave(self.size, dim=1)
        return squares[keys - queries : keys, :keys]


class BlockAttention(EfficientAttention):
    """Softmax attention between the pairs of blocks that `layout` allows, subject to the mask."""

    block: int
    supports: ClassVar[Supports] = Supports(masks=(Causal, Lengths), bias=False)

    def layout(self, blocks: int, causal: bool) -> Bool[Tensor, "block block"]:
        """True at (i, j) when block i of the queries may see block j of the keys."""
        raise NotImplementedError

    def mask(self, q: Tensor, k: Tensor, mask: Mask | None = None) -> Mask:
        """The mask under which dense attention computes the same."""
        squares = Blocks(self.layout(-(-k.shape[2] // self.block), Visibility.of(mask, q, k).causal), self.block)
        return squares if mask is None else mask & squares

    @torch.compiler.assume_constant_result  # a compiled model holds the groups as constants
    def groups(self, blocks: int, causal: bool) -> list[tuple[Int[Tensor, " some"], Int[Tensor, "some slot"]]]:
        """The `similar_rows` of the layout, on the CPU."""
        layout = self.layout(blocks, causal)
        return list(similar_rows(layout.tril() if causal else layout))

    def attend(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
        v: Float[Tensor, "batch head key d_value"],
        visibility: Visibility,
        dropout: float,
    ) -> Float[Tensor, "batch head query d_value"]:
        """One call for each group of similar rows. Raises ValueError when queries are missing."""
        check_same_length(self, visibility)
        q, k, v = (in_blocks(x, self.block) for x in (q, k, v))
        groups = [(rows.to(q.device), lists.to(q.device)) for rows, lists in self.groups(q.shape[2], visibility.causal)]
        mixed = [attend_rows(q.index_select(2, rows), k, v, rows, lists, visibility, dropout) for rows, lists in groups]
        order = torch.cat([rows for rows, _ in groups]).argsort()
        return torch.cat(mixed, dim=2).index_select(2, order).flatten(2, 3)[:, :, : visibility.queries]


def similar_rows(
    layout: Bool[Tensor, "row block"],
) -> Iterator[tuple[Int[Tensor, " some"], Int[Tensor, "some slot"]]]:
    """Groups of rows with about as many blocks each, and lists of the numbers of these blocks, filled up with −1.

    The first group has rows with at most the median number of blocks, the next ones at most twice, four times, … as
    many, so that a few rows that see everything do not lengthen all lists.
    """
    counts = layout.sum(dim=1).clamp(min=1)
    group = (counts / counts.median()).log2().ceil().clamp(min=0)
    for number in group.unique():
        rows = (group == number).nonzero().flatten()
        listed, blocks = layout[rows].int().topk(int(counts[rows].max()), dim=1)
        yield rows, blocks.where(listed > 0, -1)


@dataclass(frozen=True)
class BlockSparse(BlockAttention):
    """Attention under any `pattern`: number of blocks → which may see which (Child et al., 2019, section 5.5).

    Raises ValueError when `block` < 1, and in the call for a pattern of another shape.
    """

    pattern: Callable[[int], Bool[Tensor, "block block"]]
    block: int = 64

    def __post_init__(self) -> None:
        check_positive(block=self.block)

    def layout(self, blocks: int, causal: bool) -> Bool[Tensor, "block block"]:
        """The pattern."""
        layout = self.pattern(blocks)
        if layout.shape != (blocks, blocks) or layout.dtype != torch.bool:
            found = f"shape {tuple(layout.shape)} and dtype {layout.dtype}"
            raise ValueError(f"pattern({blocks}) has {found}; expected a Boolean matrix of {blocks} × {blocks}")
        return layout
