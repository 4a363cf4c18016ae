"""Positional encodings: five of them behind one interface, and none.

An encoding acts in one of three ways: it adds a vector to each embedding, rotates queries and keys, or biases the
scores. Positions count from 0; `start` is the position of the first one given, so that a decoder with a cache can pass
its newest position alone. Shapes: batch, head, time (query, key), d_model = head · d_head.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.parts import packaged

Start = int | Int[Tensor, ""]  # a position on a device is never looked at: that would wait for the device
Starts = Start | Int[Tensor, "batch 1"]  # of each sequence its own


class Position(nn.Module):
    """No encoding: attention alone sees a set. Each encoding overrides `add`, `rotate` or `bias`."""

    def add(self, x: Float[Tensor, "batch time d_model"], start: Starts = 0) -> Float[Tensor, "batch time d_model"]:
        """The embeddings at positions `start`, `start` + 1, …, with their positions encoded.

        Positions below 0 are padding in front of a sequence, where anything may be added.
        """
        return x

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: Start = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """Queries or keys at positions `start`, `start` + 1, …, rotated by their positions."""
        return x

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: Start | None = None
    ) -> Float[Tensor, "#batch head query key"] | None:
        """A bias on the scores of queries at `start`, `start` + 1, … and keys at 0, 1, …; None for no bias.

        Without a `start` the queries are the last of the keys' positions; then more queries than keys raise ValueError.
        """
        return None

    def prepared(
        self, start: Start, time: int, device: torch.device | None = None, earlier: Position | None = None
    ) -> Position:
        """The same encoding for `time` positions from `start` on, with work that all layers share done once.

        `earlier` is the result of the call before, which may be reused. Most encodings have nothing to prepare.
        """
        return self

    def flops(self, time: int, heads: int) -> int:
        """Floating-point operations of matrix products for `time` queries in one layer; 0 for most encodings."""
        return 0


NOWHERE = Position()


# ---- added to the embeddings -------------------------------------------------------------------------------------


def sinusoid(positions: Float[Tensor, " time"], d_model: int) -> Float[Tensor, "time d_model"]:
    """PE(p, 2i) = sin(p / 10000^(2i / d_model)), PE(p, 2i + 1) = cos(…) (Vaswani et al., 2017, section 3.5).

    Raises ValueError when `d_model` is odd: each frequency needs a sine and a cosine.
    """
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model is {d_model}; expected an even number, a sine and a cosine for each frequency")
    frequencies = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=positions.dtype, device=positions.device) / d_model)
    angles = torch.outer(positions, frequencies)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Sinusoidal(Position):
    """Adds sine and cosine waves of d_model / 2 frequencies, for any length (Vaswani et al., 2017, section 3.5)."""

    def __init__(self, d_model: int):
        super().__init__()
        sinusoid(torch.zeros(1), d_model)  # raises at once for an odd width
        self.d_model = d_model

    def add(self, x: Float[Tensor, "batch time d_model"], start: Starts = 0) -> Float[Tensor, "batch time d_model"]:
        """x + PE."""
        positions = position_range(start, x.shape[1], x.device)
        return x + sinusoid(positions.flatten(), self.d_model).unflatten(0, positions.shape).to(x.dtype)


class Learned(Position):
    """Adds a trained vector for each of `max_length` positions (Gehring et al., 2017; Devlin et al., 2019)."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        if max_length < 1:
            raise ValueError(f"max_length is {max_length}; expected 1 or more positions")
        self.embedding = nn.Embedding(max_length, d_model)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def add(self, x: Float[Tensor, "batch time d_model"], start: Starts = 0) -> Float[Tensor, "batch time d_model"]:
        """x + embedding. Raises ValueError for a position at or beyond `max_length`."""
        if isinstance(start, Tensor):
            return x + self.embedding((start + torch.arange(x.shape[1], device=x.device)).clamp(min=0)).to(x.dtype)
        end, last = start + x.shape[1], self.embedding.num_embeddings
        if end > last:
            raise ValueError(f"the sequence ends at position {end - 1}; learned positions end at {last - 1}")
        return x + self.embedding.weight[start:end].to(x.dtype)


# ---- queries and keys rotated ------------------------------------------------------------------------------------


def turned(
    x: Float[Tensor, "*rows time d_head"], angles: Float[Tensor, "time half"]
) -> Float[Tensor, "*rows time d_head"]:
    """Rotates the pair (x_i, x_{i + d_head / 2}) of each position by its i-th angle."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Rotary(Position):
    """Rotates pair i of q_m and k_n by m θ_i and n θ_i: their product depends on m − n alone (Su et al., 2021, eq. 16).

    θ_i = base^(−2i / d_head). The paper pairs neighbors, x_2i with x_2i+1; pairs of halves, as here and in LLaMA, are
    equivalent up to a permutation of the outputs of W_Q and W_K. Raises ValueError when `d_head` is odd.
    """

    def __init__(self, d_head: int, *, base: float = 10_000.0):
        super().__init__()
        if d_head < 2 or d_head % 2:
            raise ValueError(f"d_head is {d_head}; expected an even number, since pairs of coordinates are rotated")
        self.d_head, self.base = d_head, base

    def angles(self, positions: Float[Tensor, " time"]) -> Float[Tensor, "time half"]:
        """p θ_i for each position p."""
        pairs = torch.arange(0, self.d_head, 2, dtype=positions.dtype, device=positions.device)
        return torch.outer(positions, self.base ** (-pairs / self.d_head))

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: Start = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """The same angles for every head."""
        return turned(x, self.angles(position_range(start, x.shape[2], x.device)))

    def prepared(
        self, start: Start, time: int, device: torch.device | None = None, earlier: Position | None = None
    ) -> Position:
        """The rotations with cosines and sines computed once for all layers, or as matrices where a decoder steps."""
        if type(self).rotate is not Rotary.rotate or not packaged(Rotary.rotate):  # it may rotate in another way
            return self
        if isinstance(start, Tensor) or time > 1 or not start:
            return Rotation(self.angles(position_range(start, time, device)), start)
        if isinstance(earlier, RotationAhead) and earlier.covers(self, start):
            return earlier
        return RotationAhead(self, start, device)


class InterpolatedRotary(Rotary):
    """Rotary positions divided by `stretch`, so that a longer text fits the trained angles (Chen et al., 2023, eq. 4).

    The factor is fixed: if it grew with the text, cached keys would have been rotated by another one.
    """

    def __init__(self, d_head: int, *, stretch: float, base: float = 10_000.0):
        super().__init__(d_head, base=base)
        if stretch < 1:
            raise ValueError(f"stretch is {stretch}; expected 1 or more: the new length over the trained one")
        self.stretch = stretch

    def angles(self, positions: Float[Tensor, " time"]) -> Float[Tensor, "time half"]:
        """(p / stretch) θ_i for each position p."""
        return super().angles(positions / self.stretch)


class Rotation(Position):
    """Rotary positions from `start` on, with their cosines and sines computed."""

    def __init__(self, angles: Float[Tensor, "time half"], start: Start):
        super().__init__()
        self.start = start
        cos, sin = angles.cos(), angles.sin()
        self.cos, self.sin = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: Start = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """`turned`, as x · cos + (x with its halves exchanged) · sin."""
        cos, sin, time = self.cos.to(x.dtype), self.sin.to(x.dtype), x.shape[2]
        if start is not self.start and (start != self.start or time != len(cos)):  # a slice costs as much as a product
            rows = slice(start - self.start, start - self.start + time)
            cos, sin = cos[rows], sin[rows]
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


AHEAD = 64  # positions that a decoder's rotations are computed for at once


class RotationAhead(Position):
    """The rotations of the next positions as matrices: in decoding, one product per layer instead of four calls."""

    def __init__(self, rotary: Rotary, start: int, device: torch.device | None = None):
        super().__init__()
        self.rotary, self.start = rotary, start
        angles = rotary.angles(position_range(start, AHEAD, device)).repeat(1, 2)[:, None]
        keep = torch.eye(angles.shape[-1], device=device)
        first, second = keep.chunk(2)
        self.matrices = keep * angles.cos() + torch.cat([second, -first]) * angles.sin()

    def rotate(self, x: Float[Tensor, "batch head 1 d_head"], start: Start = 0) -> Float[Tensor, "batch head 1 d_head"]:
        """`turned` for the single position `start`, as a product from the right."""
        return x @ self.matrices[start - self.start].to(x.dtype)

    def covers(self, position: Position, start: int) -> bool:
        """Whether it holds that encoding's rotation for position `start`."""
        return self.rotary is position and self.start <= start < self.start + AHEAD


# ---- scores biased -----------------------------------------------------------------------------------------------


class Relative(Position):
    """Adds q_i · a_{j−i} / √d_head to the score of j for i, a learned vector per distance (Shaw et al., 2018, eq. 4).

    Distances beyond `reach` share the vector of `reach`. All heads and layers share one embedding, where the paper has
    one per layer; values get none (its Table 3 suggests that keys may suffice).
    """

    def __init__(self, d_head: int, *, reach: int = 16):
        super().__init__()
        if reach < 1:
            raise ValueError(f"reach is {reach}; expected 1 or more positions")
        self.reach = reach
        self.embedding = nn.Embedding(2 * reach + 1, d_head)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: Start | None = None
    ) -> Float[Tensor, "batch head query key"]:
        """Scores of all 2 · reach + 1 vectors, from which each pair picks the one of its distance."""
        row = distances(q, keys, start).clamp(-self.reach, self.reach) + self.reach
        scores = (q / math.sqrt(q.shape[-1])) @ self.embedding.weight.T.to(q.dtype)
        return scores.gather(-1, row.expand(*q.shape[:2], *row.shape))

    def flops(self, time: int, heads: int) -> int:
        """2 d_head (2 · reach + 1) for each query of each head."""
        return 2 * time * heads * self.embedding.weight.numel()


def alibi_slopes(heads: int, device: torch.device | None = None) -> Float[Tensor, " head"]:
    """2^(−8/h), 2^(−16/h), …, 2^(−8) (Press et al., 2022, section 3).

    If h is not a power of two: those of the power below, then every other slope of the power above, as in their code.
    """
    if heads < 1:
        raise ValueError(f"heads is {heads}; expected 1 or more")
    below = 2 ** int(math.log2(heads))
    number = torch.arange(heads, dtype=torch.float32, device=device)
    slopes = 2.0 ** (-8 / below * (number[:below] + 1))
    between = 2.0 ** (-4 / below * (2 * number[: heads - below] + 1))
    return torch.cat([slopes, between])


class ALiBi(Position):
    """Adds −slope_h · |i − j| to the scores of head h: distant keys count less (Press et al., 2022, section 3)."""

    def __init__(self, heads: int):
        super().__init__()
        alibi_slopes(heads)  # raises at once where there are no slopes
        self.heads = heads

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: Start | None = None
    ) -> Float[Tensor, "1 head query key"]:
        """The same for every sequence."""
        slopes = alibi_slopes(self.heads, q.device)
        return -(slopes[:, None, None] * distances(q, keys, start).abs())[None].to(q.dtype)


# ---- helpers and the list ----------------------------------------------------------------------------------------


def position_range(start: Starts, count: int, device: torch.device | None = None) -> Float[Tensor, "*batch time"]:
    """The positions `start` … `start` + `count` − 1 as numbers, in float32 however coarse the embeddings are."""
    return start + torch.arange(count, dtype=torch.float32, device=device)


def distances(
    q: Float[Tensor, "batch head query d_head"], keys: int, start: Start | None = None
) -> Int[Tensor, "query key"]:
    """j − i for queries i = `start`, `start` + 1, … and keys j = 0, 1, …

    Without a `start` the queries are the last of the keys' positions. Raises ValueError when there are more of them.
    """
    queries = q.shape[2]
    if start is None and queries > keys:
        raise ValueError(f"there are {queries} queries and {keys} keys; a bias by position expects queries ≤ keys")
    first = keys - queries if start is None else start
    return torch.arange(keys, device=q.device) - (first + torch.arange(queries, device=q.device))[:, None]


MakePosition = Callable[[int, int, int], Position]  # (d_model, heads, max_length) → an encoding for one stack


def _none(d_model: int, heads: int, max_length: int) -> Position:
    return Position()


def _sinusoidal(d_model: int, heads: int, max_length: int) -> Position:
    return Sinusoidal(d_model)


def _learned(d_model: int, heads: int, max_length: int) -> Position:
    return Learned(max_length, d_model)


def _relative(d_model: int, heads: int, max_length: int) -> Position:
    return Relative(d_model // heads)


def _rotary(d_model: int, heads: int, max_length: int) -> Position:
    return Rotary(d_model // heads)


def _alibi(d_model: int, heads: int, max_length: int) -> Position:
    return ALiBi(heads)


POSITIONS: dict[str, MakePosition] = {  # by functions, which pickle and look their class up when they are called
    "none": _none,
    "sinusoidal": _sinusoidal,
    "learned": _learned,
    "relative": _relative,
    "rotary": _rotary,
    "ALiBi": _alibi,
}
