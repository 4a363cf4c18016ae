"""Batches of sequences of many lengths: sequences of similar length share a batch, so little of it is padding.

Shapes: row (one for each sequence), batch, time (padded on the right). Every id tensor is int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import index
from typing import SupportsIndex

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor


class Sequences:
    """Id sequences of many lengths in one flat tensor, so that a padded batch is one indexing operation."""

    def __init__(self, sequences: Sequence[Sequence[int]], *, pad: int):
        self.pad = pad
        self.lengths = torch.tensor([len(ids) for ids in sequences])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.flat = torch.from_numpy(np.fromiter(chain.from_iterable(sequences), dtype=np.int64))

    def padded(self, rows: Int64[Tensor, " batch"], *, skip: int = 0, drop: int = 0) -> Int64[Tensor, "batch time"]:
        """The chosen sequences as rows, without their first `skip` and last `drop` ids."""
        starts, lengths = self.starts[rows] + skip, self.lengths[rows] - skip - drop
        columns = torch.arange(int(lengths.max()))
        places = (starts[:, None] + columns).clamp(max=len(self.flat) - 1)
        return self.flat[places].masked_fill(columns >= lengths[:, None], self.pad)


class LengthGroupedSampler:
    """`rows(step)` are the rows of that training step's batch, the same ones each time it is called.

    An epoch is `len(rows)` steps and contains every row once, in an order drawn from (seed, epoch), so the step is all
    that is needed to resume training. Rows of similar length share a batch: the shuffled rows are sorted by length (the
    first of `lengths`, then the next) within pools of `POOL` batches, and the batches are shuffled.
    """

    POOL = 50

    def __init__(self, *lengths: Int64[Tensor, " row"], size: int, seed: SupportsIndex):
        if size < 1:
            raise ValueError(f"size is {size}; expected 1 or more per batch")
        self.lengths, self.size, self.seed = lengths, size, index(seed)
        self._epochs: dict[int, list[Tensor]] = {}  # the batches of the two epochs asked for last

    def __len__(self) -> int:
        return -(-len(self.lengths[0]) // self.size)

    def __call__(self, step: int) -> Int64[Tensor, " batch"]:
        if step < 0:
            raise ValueError(f"step is {step}; expected 0 or more")
        epoch, place = divmod(step, len(self))
        if epoch not in self._epochs:
            self._epochs = dict([*self._epochs.items()][-1:]) | {epoch: self._shuffled(epoch)}
        return self._epochs[epoch][place]

    def _shuffled(self, epoch: int) -> list[Int64[Tensor, " batch"]]:
        """The rows of each batch of an epoch."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**32)
        rows = torch.randperm(len(self.lengths[0]), generator=generator)
        width = max(int(lengths.max()) for lengths in self.lengths) + 1
        key = torch.arange(len(rows)) // (self.size * self.POOL)
        for lengths in self.lengths:
            key = key * width + lengths[rows]
        batches = rows[key.argsort(stable=True)].split(self.size)
        return [batches[place] for place in torch.randperm(len(batches), generator=generator)]
