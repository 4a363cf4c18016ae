"""Where a token stands: five encodings of positions behind one interface, and none.

An encoding acts in one of three places: it adds a vector to each embedding, rotates queries and keys, or biases the
scores. Positions count from 0; `start` is the position of the first one given, so that a decoder which keeps its keys
may ask for its newest position alone. Shapes: batch, head, time (query, key), d_model = head · d_head.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Position(nn.Module):
    """No encoding: attention alone sees a set. Each encoding overrides one of the three methods."""

    def add(self, x: Float[Tensor, "batch time d_model"], start: int = 0) -> Float[Tensor, "batch time d_model"]:
        """The embeddings of the positions `start`, `start` + 1, …, with what says where they stand."""
        return x

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: int = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """Queries or keys of the positions `start`, `start` + 1, …, turned by their position."""
        return x

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: int | None = None
    ) -> Float[Tensor, "#batch head query key"] | None:
        """What is added to the scores of queries at `start`, `start` + 1, … and keys at 0, 1, …; None for nothing.

        Without a `start` the queries are the last of the keys' positions; then more queries than keys raise ValueError.
        """
        return None

    def flops(self, time: int, heads: int) -> int:
        """Floating-point operations of the matrix products for `time` queries in one layer: most have none."""
        return 0


NOWHERE = Position()


# ---- added to the embeddings -------------------------------------------------------------------------------------


def sinusoid(positions: Float[Tensor, " time"], d_model: int) -> Float[Tensor, "time d_model"]:
    """PE(p, 2i) = sin(p / 10000^(2i / d_model)), PE(p, 2i + 1) = cos(…) (Vaswani et al., 2017, section 3.5).

    Raises ValueError when `d_model` is odd: each frequency needs a sine and a cosine.
    """
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model is {d_model}; expected an even number, a sine and a cosine for each frequency")
    frequencies = 10_000.0 ** (-torch.arange(0, d_model, 2, device=positions.device) / d_model)
    angles = torch.outer(positions, frequencies)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Sinusoidal(Position):
    """Adds waves of d_model / 2 frequencies; has no parameters and no end (Vaswani et al., 2017, section 3.5)."""

    def __init__(self, d_model: int):
        super().__init__()
        sinusoid(torch.zeros(1), d_model)  # refuses an odd width at once
        self.d_model = d_model

    def add(self, x: Float[Tensor, "batch time d_model"], start: int = 0) -> Float[Tensor, "batch time d_model"]:
        """x + PE."""
        return x + sinusoid(places(start, x.shape[1], x.device), self.d_model).to(x.dtype)


class Learned(Position):
    """Adds a trained vector for each of `max_length` positions (Gehring et al., 2017; Devlin et al., 2019)."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        if max_length < 1:
            raise ValueError(f"max_length is {max_length}; expected 1 or more positions")
        self.embedding = nn.Embedding(max_length, d_model)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def add(self, x: Float[Tensor, "batch time d_model"], start: int = 0) -> Float[Tensor, "batch time d_model"]:
        """x + embedding. Raises ValueError for a position beyond the last one that could be trained."""
        end, last = start + x.shape[1], self.embedding.num_embeddings
        if end > last:
            raise ValueError(f"the sequence ends at position {end - 1}; learned positions end at {last - 1}")
        return x + self.embedding.weight[start:end].to(x.dtype)


# ---- queries and keys rotated ------------------------------------------------------------------------------------


def turned(
    x: Float[Tensor, "*rows time d_head"], angles: Float[Tensor, "time half"]
) -> Float[Tensor, "*rows time d_head"]:
    """Turns the pair (x_i, x_{i + d_head / 2}) of each position by its i-th angle."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Rotary(Position):
    """Turns pair i of q_m and k_n by m θ_i and n θ_i: their product depends on m − n alone (Su et al., 2021, eq. 16).

    θ_i = base^(−2i / d_head). The paper pairs neighbours, x_2i with x_2i+1; halves, as here and in LLaMA, are the same
    after one permutation of the outputs of W_Q and W_K. Raises ValueError when `d_head` is odd.
    """

    def __init__(self, d_head: int, *, base: float = 10_000.0):
        super().__init__()
        if d_head < 2 or d_head % 2:
            raise ValueError(f"d_head is {d_head}; expected an even number, since pairs of coordinates are turned")
        self.d_head, self.base = d_head, base

    def angles(self, positions: Float[Tensor, " time"]) -> Float[Tensor, "time half"]:
        """p θ_i for each position p."""
        theta = self.base ** (-torch.arange(0, self.d_head, 2, device=positions.device) / self.d_head)
        return torch.outer(positions, theta)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: int = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """Each head is turned by the same angles."""
        return turned(x, self.angles(places(start, x.shape[2], x.device)))


class InterpolatedRotary(Rotary):
    """Rotary positions divided by `stretch`, so that a longer text fits the trained angles (Chen et al., 2023, eq. 4).

    The factor is fixed: one that grew with the text would not fit the keys that were kept.
    """

    def __init__(self, d_head: int, *, stretch: float, base: float = 10_000.0):
        super().__init__(d_head, base=base)
        if stretch < 1:
            raise ValueError(f"stretch is {stretch}; expected 1 or more, the new length beside the trained one")
        self.stretch = stretch

    def angles(self, positions: Float[Tensor, " time"]) -> Float[Tensor, "time half"]:
        """(p / stretch) θ_i for each position p."""
        return super().angles(positions / self.stretch)


# ---- scores biased -----------------------------------------------------------------------------------------------


class Relative(Position):
    """Adds q_i · a_{j−i} / √d_head to the score of j for i: a learned vector a distance (Shaw et al., 2018, eq. 4).

    Distances beyond `reach` share the vector of `reach`. One table serves all heads and layers, where the
    paper has one each; the values get none (its Table 3 suggests that keys may suffice).
    """

    def __init__(self, d_head: int, *, reach: int = 16):
        super().__init__()
        if reach < 1:
            raise ValueError(f"reach is {reach}; expected 1 or more positions")
        self.reach = reach
        self.embedding = nn.Embedding(2 * reach + 1, d_head)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: int | None = None
    ) -> Float[Tensor, "batch head query key"]:
        """Scores of all 2 · reach + 1 vectors, from which each query and key picks that of their distance."""
        row = distances(q, keys, start).clamp(-self.reach, self.reach) + self.reach
        scores = (q / math.sqrt(q.shape[-1])) @ self.embedding.weight.T.to(q.dtype)
        return scores.gather(-1, row.expand(*q.shape[:2], *row.shape))

    def flops(self, time: int, heads: int) -> int:
        """2 d_head (2 · reach + 1) for each query of each head."""
        return 2 * time * heads * self.embedding.weight.numel()


def alibi_slopes(heads: int) -> Float[Tensor, " head"]:
    """2^(−8/h), 2^(−16/h), …, 2^(−8) (Press et al., 2022, section 3).

    Where h is no power of two: those of the power below, then every other slope of the power above, as in their code.
    """
    if heads < 1:
        raise ValueError(f"heads is {heads}; expected 1 or more")
    below = 2 ** int(math.log2(heads))
    slopes = 2.0 ** (-8 / below * torch.arange(1, below + 1))
    between = 2.0 ** (-4 / below * (2 * torch.arange(heads - below) + 1))
    return torch.cat([slopes, between])


class ALiBi(Position):
    """Adds −slope_h · |i − j| to the scores of head h: what is far counts less (Press et al., 2022, section 3)."""

    def __init__(self, heads: int):
        super().__init__()
        alibi_slopes(heads)  # refuses what has no slopes at once
        self.heads = heads

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: int | None = None
    ) -> Float[Tensor, "1 head query key"]:
        """The same for every sequence."""
        slopes = alibi_slopes(self.heads).to(q.device)
        return -(slopes[:, None, None] * distances(q, keys, start).abs())[None].to(q.dtype)


# ---- helpers and the list ----------------------------------------------------------------------------------------


def places(start: int, count: int, device: torch.device | None = None) -> Float[Tensor, " time"]:
    """The positions `start` … `start` + `count` − 1 as numbers, in float32 however coarse the embeddings are."""
    return torch.arange(start, start + count, dtype=torch.float32, device=device)


def distances(
    q: Float[Tensor, "batch head query d_head"], keys: int, start: int | None = None
) -> Int[Tensor, "query key"]:
    """j − i for queries i = `start`, `start` + 1, … and keys j = 0, 1, …

    Without a `start` the queries are the last of the keys' positions. Raises ValueError when there are more of them.
    """
    queries = q.shape[2]
    if start is None and queries > keys:
        raise ValueError(f"there are {queries} queries and {keys} keys; a bias by position expects queries ≤ keys")
    first = keys - queries if start is None else start
    return torch.arange(keys, device=q.device) - torch.arange(first, first + queries, device=q.device)[:, None]


MakePosition = Callable[[int, int, int], Position]  # (d_model, heads, max_length) → an encoding for one stack
POSITIONS: dict[str, MakePosition] = {
    "none": lambda d_model, heads, max_length: Position(),
    "sinusoidal": lambda d_model, heads, max_length: Sinusoidal(d_model),
    "learned": lambda d_model, heads, max_length: Learned(max_length, d_model),
    "relative": lambda d_model, heads, max_length: Relative(d_model // heads),
    "rotary": lambda d_model, heads, max_length: Rotary(d_model // heads),
    "ALiBi": lambda d_model, heads, max_length: ALiBi(heads),
}
