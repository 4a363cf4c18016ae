"""Attention between blocks of positions: each block of queries reads a list of blocks of keys, and nothing else.

Shapes: batch, head, block (of `size` positions), row (a block of queries), slot (of a list), d_head, d_value.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.efficient.base import Visibility
from tfbook.attention.implementations import fastest
from tfbook.attention.masks import Dense


def in_blocks(x: Shaped[Tensor, "batch head time d"], size: int) -> Shaped[Tensor, "batch head block {size} d"]:
    """Cuts the positions into blocks, the last one filled up with zeros."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))


def gather_blocks(
    blocks: Float[Tensor, "batch head block size d"], lists: Int[Tensor, "row slot"]
) -> Float[Tensor, "batch head row listed d"]:
    """The blocks on each row's list, side by side; an arbitrary block where one does not exist."""
    index = lists.clamp(0, blocks.shape[2] - 1)
    return blocks.index_select(2, index.flatten()).unflatten(2, lists.shape).flatten(3, 4)


def attend_rows(
    q: Float[Tensor, "batch head row size d_head"],
    k: Float[Tensor, "batch head block size d_head"],
    v: Float[Tensor, "batch head block size d_value"],
    rows: Int[Tensor, " row"],
    lists: Int[Tensor, "row slot"],
    visibility: Visibility,
    dropout: float = 0.0,
) -> Float[Tensor, "batch head row size d_value"]:
    """Softmax attention of the query blocks `rows` to the key blocks on their lists, where visible.

    All blocks go through one call of `fastest`, as if they were sequences. The number of a block that does not exist
    is ignored.
    """
    inside = torch.arange(q.shape[3], device=q.device)
    query = visibility.start + rows[:, None] * len(inside) + inside
    key = (lists[..., None] * len(inside) + inside).flatten(1)
    allowed = visibility.allows(query[:, :, None], key[:, None])
    if allowed.ndim == 4:  # one for each sequence: of all its heads
        allowed = allowed.repeat_interleave(q.shape[1], dim=0)
    rows_q, rows_k, rows_v = (x.flatten(0, 1) for x in (q, gather_blocks(k, lists), gather_blocks(v, lists)))
    return fastest(rows_q, rows_k, rows_v, Dense(allowed), dropout=dropout).unflatten(0, q.shape[:2])
