"""Batches of stories of similar length, used in lessons 08 and 09."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tfbook.text.vocabulary import PAD


class SortedBatches:
    """`batches(step)` is a padded batch of `size` rows of similar length, in a new order in each epoch.

    Rows that do not fill a batch wait for another epoch. Raises ValueError when there are fewer than `size`.
    """

    def __init__(self, rows: Sequence[Tensor], *, size: int, seed: SupportsIndex):
        if not 1 <= size <= len(rows):
            raise ValueError(f"size is {size}; expected 1 to {len(rows)}, the number of rows")
        self.rows, self.size, self.seed = rows, size, index(seed)
        self.epoch, self.batches = -1, list[list[Tensor]]()

    def __call__(self, step: int) -> Int[Tensor, "batch time"]:
        epoch, number = divmod(step, len(self.rows) // self.size)
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, self._shuffled(epoch)
        return pad_sequence(self.batches[number], batch_first=True, padding_value=PAD)

    def _shuffled(self, epoch: int) -> list[list[Tensor]]:
        generator = random.Random(1000 * self.seed + epoch)
        order = generator.sample(self.rows, len(self.rows))
        near = [sorted(order[i : i + 16 * self.size], key=len) for i in range(0, len(order), 16 * self.size)]
        batches = [part[j : j + self.size] for part in near for j in range(0, len(part), self.size)]
        batches = [batch for batch in batches if len(batch) == self.size]
        return generator.sample(batches, len(batches))
