"""Exact attention in memory that grows with the length alone: tiles of keys, one after the other (FlashAttention).

Shapes: batch, head, query, key, d_head, d_value; a tile is some queries with some keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from tfbook.attention.efficient.base import EfficientAttention, Visibility, in_float32
from tfbook.attention.implementations import LOWEST, Supports
from tfbook.attention.masks import Band, Causal, Lengths
from tfbook.checks import check_positive

FLOOR = -1e15  # where the running maximum begins: below every score, above a blocked one


def online_softmax(
    tiles: Iterable[tuple[Float[Tensor, "*rows _"], Float[Tensor, "*#rows _ d_value"]]],
) -> tuple[Float[Tensor, "*rows d_value"], Float[Tensor, "*rows 1"]]:
    """softmax(s) v and log Σ exp(s), where scores s and values v come a tile of keys at a time and each is seen once.

    Sums so far are relative to the highest score so far; when a higher one comes they shrink (Milakov & Gimelshein,
    2018, algorithm 3). A row of blocked scores, `LOWEST`, gives 0 and 0. Raises ValueError when there is no tile.
    """
    highest, total, mixture = FLOOR, 0.0, 0.0
    for scores, values in tiles:
        higher = scores.amax(dim=-1, keepdim=True).clamp(min=highest)
        shrink, weights = torch.exp(highest - higher), torch.exp(scores - higher)
        total = shrink * total + weights.sum(dim=-1, keepdim=True)
        mixture = shrink * mixture + weights @ values
        highest = higher
    if not isinstance(total, Tensor):
        raise ValueError("tiles is empty; expected one or more pairs of scores and values")
    some = total > 0
    total = total.where(some, 1.0)
    return mixture / total, torch.where(some, highest + total.log(), 0.0)


def cuts(length: int, tile: int) -> Iterator[slice]:
    """The positions 0 … `length` − 1 in pieces of `tile`."""
    return (slice(begin, min(begin + tile, length)) for begin in range(0, length, tile))


def touched(queries: slice, tile: int, sight: Visibility) -> Iterator[slice]:
    """The tiles of keys of which the sight may show something to these queries."""
    first, last = sight.start + queries.start - sight.before, sight.start + queries.stop - 1 + sight.after
    return (keys for keys in cuts(sight.keys, tile) if keys.stop > first and keys.start <= last)


def tile_scores(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    queries: slice,
    keys: slice,
    sight: Visibility,
) -> Float[Tensor, "batch head some few"]:
    """q kᵀ / √d_head for some of the queries and a few of the keys; `LOWEST` where the sight blocks."""
    scores = (q[:, :, queries] / math.sqrt(q.shape[-1])) @ k[:, :, keys].mT
    query = torch.arange(sight.start + queries.start, sight.start + queries.stop, device=q.device)
    allowed = sight.allows(query[:, None], torch.arange(keys.start, keys.stop, device=q.device))
    return scores.masked_fill(~(allowed if allowed.ndim == 2 else allowed[:, None]), LOWEST)


def attend_by_tiles(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_value"],
    sight: Visibility,
    tile: int,
) -> tuple[Float[Tensor, "batch head query d_value"], Float[Tensor, "batch head query 1"]]:
    """The output and log Σ exp(scores) of each query (Dao et al., 2022, algorithm 1)."""
    parts = [
        online_softmax((tile_scores(q, k, some, few, sight), v[:, :, few]) for few in touched(some, tile, sight))
        for some in cuts(sight.queries, tile)
    ]
    output, normaliser = (torch.cat(part, dim=2) for part in zip(*parts, strict=True))
    return output, normaliser


def gradients(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_value"],
    output: Float[Tensor, "batch head query d_value"],
    normaliser: Float[Tensor, "batch head query 1"],
    grad: Float[Tensor, "batch head query d_value"],
    sight: Visibility,
    tile: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Those of q, k and v from that of the output: weights p = exp(s − normaliser) are computed again, tile by tile.

    ∂s = p (∂p − Σ p ∂p), and the sum over all keys is ∂output · output (Dao et al., 2022, algorithm 4).
    """
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    inner = (grad * output).sum(dim=-1, keepdim=True)
    for some in cuts(sight.queries, tile):
        for few in touched(some, tile, sight):
            p = torch.exp(tile_scores(q, k, some, few, sight) - normaliser[:, :, some])
            ds = p * (grad[:, :, some] @ v[:, :, few].mT - inner[:, :, some]) / math.sqrt(q.shape[-1])
            dv[:, :, few] += p.mT @ grad[:, :, some]
            dq[:, :, some] += ds @ k[:, :, few]
            dk[:, :, few] += ds.mT @ q[:, :, some]
    return dq, dk, dv


class _Tiles(torch.autograd.Function):
    """`attend_by_tiles`, which keeps the output and one number a query for `gradients` instead of all weights."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sight: Visibility, tile: int) -> Tensor:
        output, normaliser = attend_by_tiles(q, k, v, sight, tile)
        ctx.save_for_backward(q, k, v, output, normaliser)
        ctx.sight, ctx.tile = sight, tile
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad.device.type, enabled=False):
            return *gradients(*ctx.saved_tensors, grad, ctx.sight, ctx.tile), None, None


@dataclass(frozen=True)
class Tiled(EfficientAttention):
    """Softmax attention, exact, `tile` queries with `tile` keys at a time: O(n²) time and O(n) memory.

    (Dao et al., 2022; there a tile fits into the fast memory of a GPU.) Raises ValueError when `tile` < 1.
    """

    tile: int = 256
    supports: ClassVar[Supports] = Supports(masks=(Causal, Band, Lengths), bias=False, dropout=False)

    def __post_init__(self) -> None:
        check_positive(tile=self.tile)

    @in_float32
    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Visibility, dropout: float) -> Tensor:
        """Forward and backward by tiles; no second derivative."""
        return _Tiles.apply(q, k, v, sight, self.tile)
