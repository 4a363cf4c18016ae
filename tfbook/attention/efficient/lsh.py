"""Attention to keys that are likely to be close, found by hashing (Reformer).

Shapes: batch, head, round (of hashing), item (a position, or the key or the query of one), d_head, d_value; a row is a
round of a head, cut into blocks of `size` items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.efficient.base import EfficientAttention, Visibility, check_same_length, in_float32
from tfbook.attention.efficient.blocks import in_blocks
from tfbook.attention.implementations import LOWEST, Supports
from tfbook.attention.masks import Causal, Dense, Lengths, Mask
from tfbook.checks import check_positive

SELF_SCORE = -1e15  # the score of a position with itself: nothing beside another, everything where there is no other


def hashed(
    x: Float[Tensor, "*batch item d_head"], rotations: Float[Tensor, "round d_head half"]
) -> Int[Tensor, "*batch round item"]:
    """The bucket of each vector in each round: argmax of [x R; −x R] (Reformer, section 2; Andoni et al., 2015).

    Vectors with a small angle between them are likely to share one; their lengths do not matter.
    """
    rotated = x[..., None, :, :] @ rotations
    return torch.cat([rotated, -rotated], dim=-1).argmax(dim=-1)


def sort_by_bucket(
    buckets: Int[Tensor, "batch head round item"], width: int
) -> tuple[Int[Tensor, "batch head round item"], Int[Tensor, "batch head round item"]]:
    """Sorts the items of each round by bucket, then by position; returns the items in that order, and each item's rank.

    Ranks of neighbors in a bucket differ by 1, with a gap of `width` between buckets. They start at `width`, so that
    rank 0 is in nobody's window.
    """
    items = torch.arange(buckets.shape[-1], device=buckets.device)
    order = (buckets * len(items) + items).argsort(dim=-1)
    rank = torch.empty_like(order).scatter_(-1, order, items.expand_as(order))
    return order, rank + (buckets + 1) * width


def in_window(
    query: Int[Tensor, "*#pairs"], key: Int[Tensor, "*#pairs"], width: int, causal: bool
) -> Bool[Tensor, "*pairs"]:
    """Whether two ranks differ by less than `width`; causal: and the key does not come after the query."""
    ahead = query - key
    return (ahead >= 0) & (ahead < width) if causal else ahead.abs() < width


def with_neighbors(
    blocks: Shaped[Tensor, "batch row block size d"], causal: bool
) -> Shaped[Tensor, "batch row block several d"]:
    """Each block with the one before it and, unless causal, the one after it; zeros beyond the ends."""
    padded, count = F.pad(blocks, (0, 0, 0, 0, 1, 1)), blocks.shape[2]
    return torch.cat([padded[:, :, first : first + count] for first in range(2 if causal else 3)], dim=3)


class Items(NamedTuple):
    """The sorted items: positions or, where keys differ from queries, each position's key and query in turn."""

    q: Float[Tensor, "batch head item d_head"]
    k: Float[Tensor, "batch head item d_head"]
    v: Float[Tensor, "batch head item d_value"]
    order: Int[Tensor, "batch head round item"]  # the items in sorted order
    rank: Int[Tensor, "batch head round item"]  # of each item in that order
    key_rank: Int[Tensor, "batch head round item"]  # the same for items that may be attended to; 0 for the others


def window_scores(
    items: Items, width: int, causal: bool
) -> tuple[Float[Tensor, "batch row block size several"], Float[Tensor, "batch row block several d_value"]]:
    """Scores of each item with the keys in its window, round by round and sorted, and the values that belong to them.

    Each round compares its own ranks only, so the cost is linear in the number of rounds.
    """
    order = items.order[..., None]

    def sort(x: Shaped[Tensor, "batch head #round item d"]) -> Shaped[Tensor, "batch row block size d"]:
        return in_blocks(torch.take_along_dim(x, order, dim=3).flatten(1, 2), width)

    q, rank = sort(items.q[:, :, None] / math.sqrt(items.q.shape[-1])), sort(items.rank[..., None])
    keys = items.k[:, :, None], items.v[:, :, None], items.key_rank[..., None]
    k, v, key_rank = (with_neighbors(sort(x), causal) for x in keys)
    scores = (q @ k.mT).masked_fill(rank == key_rank.mT, SELF_SCORE)
    return scores.masked_fill(~in_window(rank, key_rank.mT, width, causal), LOWEST), v


def attend_in_window(items: Items, width: int, causal: bool) -> Float[Tensor, "batch head item d_value"]:
    """Softmax attention of each item to the keys in its window; to itself only if alone.

    Rounds are weighted by their sums of exponentials, so together they are one softmax over
    all meetings, in which a pair that meets in three rounds counts three times.
    """
    scores, v = window_scores(items, width, causal)
    rounds, order = items.order.shape[2], items.order[..., None]
    total = scores.logsumexp(dim=-1, keepdim=True)
    by_round = torch.cat([torch.exp(scores - total) @ v, total], dim=-1).flatten(2, 3).unflatten(1, (-1, rounds))
    mixed, total = torch.take_along_dim(by_round, order.argsort(dim=3), dim=3).split([v.shape[-1], 1], dim=-1)
    some = total.amax(dim=2) > LOWEST / 2
    return (total.softmax(dim=2) * mixed).sum(dim=2) * some


def interleave(first: Tensor, second: Tensor, dim: int = -1) -> Tensor:
    """The first of both, the second of both, … along a dimension."""
    dim %= first.ndim
    return torch.stack([first, second], dim=dim + 1).flatten(dim, dim + 1)


@dataclass(frozen=True)
class Lsh(EfficientAttention):
    """Softmax attention to those of the nearest `window` positions in the same bucket, in any of some `rounds`.

    (Kitaev et al., 2020.) With `shared`, as in the paper, k is ignored, a query's key is the query divided by its
    length, and a position attends to itself only if it meets no other. Otherwise keys and queries are hashed and sorted
    together.

    A pair counts once per meeting. The paper divides by the number of meetings (appendix A), for which every round has
    to be compared with every other; here the cost is linear in the rounds.

    The paper cuts the sorted items into chunks, each of which sees itself and the one before. Even under a causal mask,
    later positions then decide where chunks begin, and so what earlier ones see; a window around each position does not
    leak. Raises ValueError for an odd number of `buckets`, since they come in opposite pairs.
    """

    buckets: int = 64
    window: int = 64
    rounds: int = 4
    shared: bool = True
    seed: int = 0
    supports: ClassVar[Supports] = Supports(masks=(Causal, Lengths), bias=False, dropout=False, exact=False)

    def __post_init__(self) -> None:
        check_positive(buckets=self.buckets, window=self.window, rounds=self.rounds)
        if self.buckets % 2:
            raise ValueError(f"buckets is {self.buckets}; expected an even number")

    @property
    def width(self) -> int:
        """`window` in items."""
        return self.window if self.shared else 2 * self.window

    @torch.compiler.assume_constant_result
    def rotations(self, d_head: int) -> Float[Tensor, "round d_head half"]:
        """The random rotations of each round, on the CPU."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(self.rounds, d_head, self.buckets // 2, generator=generator)

    def items(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Items:
        """The items with their ranks; padding gets a last bucket of its own, which has no keys."""
        rotations = self.rotations(q.shape[-1]).to(q)
        shown = visibility.shown(q.device)
        shown = torch.ones(1, visibility.keys, dtype=torch.bool, device=q.device) if shown is None else shown
        if self.shared:
            k, is_key, buckets = F.normalize(q, dim=-1), shown, hashed(q, rotations)
        else:
            is_key, buckets = interleave(shown, shown & False), interleave(hashed(k, rotations), hashed(q, rotations))
            shown, q = interleave(shown, shown), interleave(torch.zeros_like(q), q, dim=2)
            k, v = (interleave(x, torch.zeros_like(x), dim=2) for x in (k, v))
        order, rank = sort_by_bucket(buckets.masked_fill(~shown[:, None, None], self.buckets), self.width)
        return Items(q, k, v, order, rank, rank * is_key[:, None, None])

    def meetings(self, q: Tensor, k: Tensor, mask: Mask | None = None) -> Float[Tensor, "batch head query key"]:
        """The number of rounds in which each pair meets; its logarithm, added to dense scores, gives the same output.

        With `shared`, a position's meetings with itself count only if it meets no other.
        """
        visibility, step = Visibility.of(mask, q, k), 1 if self.shared else 2
        items = self.items(q, k, k, visibility)
        rank, key_rank = items.rank[..., step - 1 :: step, None], items.key_rank[..., None, ::step]
        count = in_window(rank, key_rank, self.width, visibility.causal).sum(dim=2).to(q.dtype)
        others = count.masked_fill(torch.eye(visibility.keys, dtype=torch.bool, device=q.device), 0)
        return torch.where(others.any(dim=-1, keepdim=True), others, count) if self.shared else count

    def mask(self, q: Tensor, k: Tensor, mask: Mask | None = None) -> Dense:
        """Which pairs attend."""
        return Dense(self.meetings(q, k, mask) > 0)

    @in_float32
    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, dropout: float) -> Tensor:
        """Hashes, sorts, attends and sorts back. Raises ValueError when queries are missing."""
        check_same_length(self, visibility)
        mixed = attend_in_window(self.items(q, k, v, visibility), self.width, visibility.causal)
        return mixed if self.shared else mixed[:, :, 1::2]
