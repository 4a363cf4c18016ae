"""Masks: rules for which query may attend to which key. True means "may attend"."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tfbook.checks import may_look


def padding_mask(lengths: Int[Tensor, " batch"], size: int) -> Bool[Tensor, "batch key"]:
    """True at position j of row i when j < lengths[i]: real words may be attended to, padding may not.

    Raises ValueError unless `lengths` holds one integer per row, each from 0 to `size` (looked at where `may_look`).
    """
    if lengths.ndim != 1 or lengths.is_floating_point():
        raise ValueError(
            f"lengths has shape {tuple(lengths.shape)}, {lengths.dtype}; expected one integer for each row"
        )
    if may_look() and lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= size:
        raise ValueError(f"lengths run from {int(lengths.min())} to {int(lengths.max())}; expected 0 to size = {size}")
    return torch.arange(size, device=lengths.device) < lengths[:, None]


class Mask:
    """A rule for which query may attend to which key; `a & b` allows what both allow.

    It is lazy: the n × n matrix is built only when `dense` is called. Where there are fewer queries than keys, the
    queries are the last positions, so that a decoder with a cache can pass its newest position alone.
    """

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*#batch #query #key"]:
        """The rule as a matrix that broadcasts to (batch, head, query, key)."""
        raise NotImplementedError

    def __and__(self, other: Mask | Tensor) -> Mask:
        return Both(self, as_mask(other))  # type: ignore[arg-type] # `other` is not None


@dataclass(frozen=True)
class Band(Mask):
    """Query i may attend to the keys i − `before` … i + `after`; raises ValueError when one of them is negative."""

    before: int
    after: int

    def __post_init__(self) -> None:
        if min(self.before, self.after) < 0:
            raise ValueError(f"before and after are {self.before} and {self.after}; expected 0 or more each")

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*#batch #query #key"]:
        """True on 1 + `before` + `after` diagonals."""
        return _last(queries, keys, device).tril(keys - queries + self.after).triu(keys - queries - self.before)


@dataclass(frozen=True)
class Causal(Mask):
    """Query i may attend to the keys 0 … i: no position sees a later one."""

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*#batch #query #key"]:
        """True on and below the diagonal."""
        return _last(queries, keys, device).tril(keys - queries)


def _last(queries: int, keys: int, device: torch.device | str | None) -> Bool[Tensor, "query key"]:
    """All True, for queries that are the last of the keys' positions."""
    if queries > keys:
        raise ValueError(f"there are {queries} queries and {keys} keys; a mask by position expects queries ≤ keys")
    return torch.ones(queries, keys, dtype=torch.bool, device=device)


@dataclass(frozen=True, eq=False)
class Lengths(Mask):
    """Every query may attend to the first `lengths[b]` keys of its sequence b, excluding padding."""

    lengths: Int[Tensor, " batch"]

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*#batch #query #key"]:
        """One row for all queries and heads of a sequence: (batch, 1, 1, key)."""
        return padding_mask(self.lengths.to(device), keys)[:, None, None]


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Query i may attend to the keys 0 … i, and to all of the first `lengths[b]` keys of its sequence b.

    Attention is bidirectional within the prefix and causal after it: a prefix language model (Raffel et al., 2020,
    figure 3). A cache has to be given a whole prefix at once.
    """

    lengths: Int[Tensor, " batch"]

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "batch 1 query key"]:
        """True on and below the diagonal, and in the columns of each prefix."""
        return Causal().dense(queries, keys, device) | Lengths(self.lengths).dense(queries, keys, device)


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """A mask given as a Boolean matrix. Raises TypeError when it is not Boolean."""

    allowed: Bool[Tensor, "..."]
    _added: dict[torch.dtype, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.allowed.dtype != torch.bool:
            raise TypeError(f"mask has dtype {self.allowed.dtype}; expected torch.bool, where True means 'may attend'")

    def dense(self, queries: int, keys: int, device: torch.device | str | None = None) -> Bool[Tensor, "..."]:
        """The matrix itself."""
        return self.allowed.to(device)

    def added(self, dtype: torch.dtype) -> Float[Tensor, "..."]:
        """The mask as a bias of the scores, computed once for all layers: 0 where True, −∞ where False."""
        if dtype not in self._added:
            nothing = torch.zeros_like(self.allowed, dtype=dtype)
            self._added[dtype] = nothing.masked_fill_(~self.allowed, -torch.inf)
        return self._added[dtype]


@dataclass(frozen=True, eq=False)
class Both(Mask):
    """The intersection of two masks."""

    first: Mask
    second: Mask

    def dense(
        self, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*#batch #query #key"]:
        """The conjunction of both matrices."""
        return self.first.dense(queries, keys, device) & self.second.dense(queries, keys, device)


def as_mask(mask: Mask | Tensor | None) -> Mask | None:
    """A Boolean tensor as a `Dense` mask, a mask as it is. Raises TypeError for anything else."""
    if isinstance(mask, Tensor):
        return Dense(mask)
    if mask is not None and not isinstance(mask, Mask):
        raise TypeError(f"mask is {type(mask).__name__}; expected a Mask such as Causal(), or a Boolean tensor")
    return mask
