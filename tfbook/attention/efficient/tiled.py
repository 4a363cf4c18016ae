"""Exact attention with memory linear in the length: tiles of keys, one after the other (FlashAttention).

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
    """softmax(s) v and log Σ exp(s), for scores s and values v that come one tile of keys at a time, each seen once.

    Sums so far are relative to the highest score so far; when a higher one comes they shrink (Milakov & Gimelshein,
    2018, algorithm 3). A row of blocked scores, `LOWEST`, gives 0 and 0. Raises ValueError when there is no tile.
    """
    highest: float | Tensor = FLOOR
    total: float | Tensor = 0.0
    mixture: float | Tensor = 0.0
    for scores, values in tiles:
        higher = scores.amax(dim=-1, keepdim=True).clamp(min=highest)
        shrink, weights = torch.exp(highest - higher), torch.exp(scores - higher)
        total = shrink * total + weights.sum(dim=-1, keepdim=True)
        mixture = shrink * mixture + weights @ values
        highest = higher
    if not isinstance(total, Tensor):
        raise ValueError("tiles is empty; expected one or more pairs of scores and values")
    some = total > 0
    total = total.masked_fill(~some, 1.0)
    return mixture / total, (highest + total.log()).masked_fill(~some, 0.0)


def slices(length: int, tile: int) -> Iterator[slice]:
    """The positions 0 … `length` − 1 in tiles, the last of which may be shorter."""
    return (slice(begin, min(begin + tile, length)) for begin in range(0, length, tile))


def attended(queries: slice, tile: int, visibility: Visibility) -> Iterator[slice]:
    """The tiles of keys that these queries may partly see."""
    first = visibility.start + queries.start - visibility.before
    last = visibility.start + queries.stop - 1 + visibility.after
    return (keys for keys in slices(visibility.keys, tile) if keys.stop > first and keys.start <= last)


def tile_scores(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    queries: slice,
    keys: slice,
    visibility: Visibility,
) -> Float[Tensor, "batch head some_queries some_keys"]:
    """q kᵀ / √d_head for one tile of queries and one of keys; `LOWEST` where the mask blocks."""
    scores = (q[:, :, queries] / math.sqrt(q.shape[-1])) @ k[:, :, keys].mT
    query = torch.arange(visibility.start + queries.start, visibility.start + queries.stop, device=q.device)
    allowed = visibility.allows(query[:, None], torch.arange(keys.start, keys.stop, device=q.device))
    return scores.masked_fill(~(allowed if allowed.ndim == 2 else allowed[:, None]), LOWEST)


def attend_by_tiles(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_value"],
    visibility: Visibility,
    tile: int,
) -> tuple[Float[Tensor, "batch head query d_value"], Float[Tensor, "batch head query 1"]]:
    """The output and log Σ exp(scores) of each query (Dao et al., 2022, algorithm 1)."""
    parts = [
        online_softmax(
            (tile_scores(q, k, queries, keys, visibility), v[:, :, keys])
            for keys in attended(queries, tile, visibility)
        )
        for queries in slices(visibility.queries, tile)
    ]
    output, normalizer = (torch.cat(part, dim=2) for part in zip(*parts, strict=True))
    return output, normalizer


def gradients(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_value"],
    output: Float[Tensor, "batch head query d_value"],
    normalizer: Float[Tensor, "batch head query 1"],
    grad: Float[Tensor, "batch head query d_value"],
    visibility: Visibility,
    tile: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from the output's: weights p = exp(s − normalizer) are recomputed tile by tile.

    ∂s = p (∂p − Σ p ∂p), and the sum over all keys is ∂output · output (Dao et al., 2022, algorithm 4).
    """
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    inner = (grad * output).sum(dim=-1, keepdim=True)
    for queries in slices(visibility.queries, tile):
        for keys in attended(queries, tile, visibility):
            p = torch.exp(tile_scores(q, k, queries, keys, visibility) - normalizer[:, :, queries])
            ds = p * (grad[:, :, queries] @ v[:, :, keys].mT - inner[:, :, queries]) / math.sqrt(q.shape[-1])
            dv[:, :, keys] += p.mT @ grad[:, :, queries]
            dq[:, :, queries] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, queries]
    return dq, dk, dv


class _Tiles(torch.autograd.Function):
    """`attend_by_tiles`, which saves the output and one number per query for `gradients` instead of all weights."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, tile: int) -> Tensor:
        output, normalizer = attend_by_tiles(q, k, v, visibility, tile)
        ctx.save_for_backward(q, k, v, output, normalizer)
        ctx.visibility, ctx.tile = visibility, tile
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad.device.type, enabled=False):
            q, k, v, output, normalizer = ctx.saved_tensors
            return *gradients(q, k, v, output, normalizer, grad, ctx.visibility, ctx.tile), None, None


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
    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, dropout: float) -> Tensor:
        """Forward and backward by tiles; no second derivative."""
        return _Tiles.apply(q, k, v, visibility, self.tile)
