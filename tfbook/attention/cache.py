"""The cache of keys and values, so that decoding computes each of them once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Cache:
    """The keys and values that one attention layer has seen so far, in memory that doubles when it is full.

    For decoding, without gradients: each step appends to the `length` positions already there. `queries` counts the
    query positions so far, which in cross-attention differ from the keys.
    """

    def __init__(self) -> None:
        self.length: Any = 0
        self.queries = 0
        self._kept: tuple[Tensor, ...] = ()

    def extend(
        self, k: Float[Tensor, "batch head new d_head"], v: Float[Tensor, "batch head new d_head"]
    ) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_head"]]:
        """Appends the new positions and returns all. Raises ValueError when their batch size differs.

        The length is updated last, so an interrupted call appends nothing.
        """
        if self._kept and self._kept[0].shape[0] != k.shape[0]:
            raise ValueError(f"k holds {k.shape[0]} sequences; the cache holds {self._kept[0].shape[0]}")
        end = self.length + k.shape[2]
        if not self._kept or end > self._kept[0].shape[2]:
            self._kept = self._enlarged(0, k), self._enlarged(1, v)
        keys, values = self._kept
        keys[:, :, self.length : end] = k
        values[:, :, self.length : end] = v
        self.length = end
        return self.seen()

    def _enlarged(self, which: int, new: Tensor) -> Tensor:
        room = new.new_empty(*new.shape[:2], 2 * (self.length + new.shape[2]), new.shape[3])
        if self._kept:
            old = self._kept[which]
            room[:, :, : old.shape[2]] = old
        return room

    def seen(self) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_head"]]:
        """Keys and values of all positions so far."""
        keys, values = self._kept
        return keys[:, :, : self.length], values[:, :, : self.length]

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keeps the sequences `rows`, in that order; beam search may keep one several times."""
        self._kept = tuple(kept[rows] for kept in self._kept)


class FixedCache(Cache):
    """The same in memory of one size, so that every step is the same program, which a CUDA graph can replay.

    `length` lies on the device and belongs to whoever shares it between layers: `extend` writes from there on without
    changing it. Positions beyond it hold zeros or what was there before, and a mask has to hide them.
    """

    def __init__(self, room: Float[Tensor, "batch head longest d_head"], length: Int[Tensor, ""]):
        super().__init__()
        self.length = length
        self._kept = room, torch.zeros_like(room)

    def extend(
        self, k: Float[Tensor, "batch head new d_head"], v: Float[Tensor, "batch head new d_head"]
    ) -> tuple[Float[Tensor, "batch head longest d_head"], Float[Tensor, "batch head longest d_head"]]:
        """Writes the new positions and returns the whole memory."""
        places = self.length.view(1)
        if (new := k.shape[2]) > 1:
            places = places + torch.arange(new, device=k.device)
        keys, values = self._kept
        return keys.index_copy_(2, places, k), values.index_copy_(2, places, v)

    def seen(self) -> tuple[Float[Tensor, "batch head longest d_head"], Float[Tensor, "batch head longest d_head"]]:
        """The whole memory."""
        keys, values = self._kept
        return keys, values
