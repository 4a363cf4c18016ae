"""Windows: batches of excerpts from a long text, to train language models.

Shapes: batch, time. Every id tensor is int64.
"""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

import numpy as np
import torch
from jaxtyping import Int64, Integer
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor


class Windows:
    """`windows(step)` is the batch of that training step: `size` excerpts of `length` ids from a text.

    It is the same each time, since the excerpts are drawn from (seed, step). `in_order` they follow one another from
    the beginning of the text to its end, and again: each begins with the last id of the one before. The ids may be
    memory-mapped, as those of `read_tokens` are. With several processes (`rank` of `ranks`), each takes its share of
    the batch that a single one would take. Raises ValueError when the text is shorter than a window or the shares are
    not equal.
    """

    def __init__(
        self,
        ids: Integer[Tensor, " time"],
        *,
        length: int,
        size: int,
        seed: SupportsIndex,
        rank: int = 0,
        ranks: int = 1,
        in_order: bool = False,
    ):
        if ids.ndim != 1:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected the ids of one text, with one axis")
        if not 1 <= length <= len(ids) or size < 1:
            expected = f"1 ≤ length ≤ {len(ids)}, the length of the text, and size ≥ 1"
            raise ValueError(f"length is {length} and size is {size}; expected {expected}")
        if not 0 <= rank < ranks or size % ranks:
            raise ValueError(f"size is {size}, rank {rank} of {ranks}; expected 0 ≤ rank < ranks and equal shares")
        self.length, self.size, self.seed, self.share = length, size, index(seed), slice(rank, None, ranks)
        self._ids, self.in_order = ids.numpy(), in_order

    def __call__(self, step: int) -> Int64[Tensor, "batch time"]:
        if step < 0:
            raise ValueError(f"step is {step}; expected 0 or more")
        windows = sliding_window_view(self._ids, self.length)  # one row for each place, without a copy
        places = (self._following(step) if self.in_order else self._drawn(step, len(windows)))[self.share]
        return torch.from_numpy(windows[places.numpy()].astype(np.int64))

    def _drawn(self, step: int, count: int) -> Int64[Tensor, " batch"]:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**32)
        return torch.randint(count, (self.size,), generator=generator)

    def _following(self, step: int) -> Int64[Tensor, " batch"]:
        apart = max(1, self.length - 1)
        numbers = torch.arange(step * self.size, (step + 1) * self.size)
        return numbers % ((len(self._ids) - self.length) // apart + 1) * apart
