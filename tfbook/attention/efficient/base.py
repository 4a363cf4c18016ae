"""The base of all efficient implementations: settings, the common signature, and a mask read as numbers.

Shapes: batch, head, query and key (positions), d_head, d_value. None builds a matrix of queries × keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tfbook.attention.implementations import Supports, admit
from tfbook.attention.masks import Band, Both, Causal, Lengths, Mask, padding_mask


class Visibility(NamedTuple):
    """A mask as numbers: a query sees `before` keys to its left and `after` to its right, of the first `lengths` only.

    The queries are the last of the keys' positions, as in `tfbook.attention.masks`.
    """

    queries: int
    keys: int
    before: int
    after: int
    lengths: Int[Tensor, " batch"] | None = None

    @classmethod
    def of(cls, mask: Mask | None, q: Tensor, k: Tensor) -> Visibility:
        """The intersection of all rules in `mask`.

        Raises NotImplementedError for a kind of mask that is not one of `tfbook.attention.masks` itself, and ValueError
        when there are more queries than keys under a rule by position, or the lengths do not fit the batch.
        """
        everything = q.shape[2] + k.shape[2]
        return cls(q.shape[2], k.shape[2], everything, everything).under(mask, len(q))

    def under(self, mask: Mask | None, batch: int) -> Visibility:
        """The visibility under one more mask."""
        if mask is None:
            return self
        narrow = NARROWED_BY.get(type(mask))
        if narrow is None:
            known = ", ".join(kind.__name__ for kind in NARROWED_BY)
            raise NotImplementedError(f"mask is a {type(mask).__name__}, whose rule is unknown; known are {known}")
        return narrow(self, mask, batch)

    def narrowed(self, before: int, after: int) -> Visibility:
        """At most `before` keys to the left and `after` to the right."""
        if self.queries > self.keys:
            counts = f"there are {self.queries} queries and {self.keys} keys"
            raise ValueError(f"{counts}; a mask by position expects queries ≤ keys")
        return self._replace(before=min(self.before, before), after=min(self.after, after))

    def shortened(self, lengths: Int[Tensor, " batch"], batch: int) -> Visibility:
        """Only the first `lengths` keys of each sequence."""
        padding_mask(lengths, self.keys)  # refuses impossible lengths
        if len(lengths) not in (1, batch):
            raise ValueError(f"mask holds {len(lengths)} lengths; expected one for each of {batch} sequences")
        lengths = lengths.expand(batch)
        return self._replace(lengths=lengths if self.lengths is None else self.lengths.minimum(lengths))

    @property
    def start(self) -> int:
        """The position of the first query."""
        return self.keys - self.queries

    @property
    def causal(self) -> bool:
        """Whether no query sees a later key."""
        return self.after == 0

    def allows(
        self, query: Int[Tensor, "*#pairs"], key: Int[Tensor, "*#pairs"]
    ) -> Bool[Tensor, "*pairs"] | Bool[Tensor, "batch *pairs"]:
        """Whether the positions `query` may attend to the positions `key`, some of which may not exist."""
        ahead = key - query
        in_window = (ahead >= -self.before) & (ahead <= self.after) & (key >= 0)
        if self.lengths is None:
            return in_window & (key < self.keys)
        return in_window & (key < self.lengths.to(key.device).view(-1, *[1] * in_window.ndim))

    def shown(self, device: torch.device) -> Bool[Tensor, "batch key"] | None:
        """The keys that are not padding; None where no key is."""
        return None if self.lengths is None else padding_mask(self.lengths.to(device), self.keys)


NARROWED_BY = {  # kind of mask → what stays visible; a subclass may mean anything, so it is not found here
    Causal: lambda visibility, mask, batch: visibility.narrowed(visibility.before, 0),
    Band: lambda visibility, mask, batch: visibility.narrowed(mask.before, mask.after),
    Lengths: lambda visibility, mask, batch: visibility.shortened(mask.lengths, batch),
    Both: lambda visibility, mask, batch: visibility.under(mask.first, batch).under(mask.second, batch),
}


class EfficientAttention:
    """An implementation with settings. Subclasses are frozen dataclasses that declare what they support and attend."""

    supports: ClassVar[Supports]

    def __call__(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
        v: Float[Tensor, "batch head key d_value"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch head query d_value"]:
        """Attention as every implementation of `tfbook.attention` computes it.

        Raises ValueError for shapes that do not fit and NotImplementedError for what `supports` leaves out.
        """
        rule, _ = admit(type(self).__name__, self.supports, q, k, v, mask, bias, dropout)
        visibility = Visibility.of(rule, q, k)
        if not (visibility.queries and visibility.keys):
            return q @ k.mT @ v  # nothing, or zeros
        return self.attend(q, k, v, visibility, dropout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, dropout: float) -> Tensor:
        """The output, for inputs that were checked."""
        raise NotImplementedError


def in_float32(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Makes `attend` compute in at least float32, since half precision loses small terms of a long sum."""

    @wraps(attend)
    def precise(
        self: EfficientAttention, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, dropout: float
    ) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            wide = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
            return attend(self, *wide, visibility, dropout).to(v.dtype)

    return precise


def check_same_length(implementation: EfficientAttention, visibility: Visibility) -> None:
    """Raises ValueError unless there are as many queries as keys."""
    if visibility.queries != visibility.keys:
        name, counts = type(implementation).__name__, f"{visibility.queries} queries and {visibility.keys} keys"
        raise ValueError(f"the implementation {name} got {counts}; expected as many of both: it has no cache")
