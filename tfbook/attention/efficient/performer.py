"""Random features whose products are unbiased estimates of the softmax's exponentials (FAVOR+).

Shapes: batch, head, query and key (positions), feature, d_head, d_value. Features are kept as logarithms, since their
exponentials leave the range of float32 as soon as queries or keys are long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.efficient.base import Visibility
from tfbook.attention.efficient.linear import Linear
from tfbook.attention.efficient.tiled import FLOOR
from tfbook.attention.implementations import LOWEST
from tfbook.checks import check_positive


def projection(
    features: int, d_head: int, generator: torch.Generator, *, orthogonal: bool = True
) -> Float[Tensor, "feature d_head"]:
    """Standard normal directions; if `orthogonal`, every d_head consecutive ones are perpendicular.

    (Choromanski et al., 2021, section 2.4.) Their lengths are those of independent normal vectors, so that each single
    direction is distributed as a normal vector.
    """
    normal = torch.randn(features, d_head, generator=generator)
    if not orthogonal:
        return normal
    squares = torch.randn(-(-features // d_head), d_head, d_head, generator=generator)
    Q, R = torch.linalg.qr(squares)
    rows = (Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None]).mT  # without the signs, not all directions are as likely
    return rows.flatten(0, 1)[:features] * normal.norm(dim=-1, keepdim=True)


def log_features(
    x: Float[Tensor, "*rows d_head"], directions: Float[Tensor, "feature d_head"]
) -> Float[Tensor, "*rows feature"]:
    """w · x − (‖x‖² + log m) / 2 for each of m directions w, where x is divided by d_head^¼.

    The exponentials φ are positive, and E[φ(q) · φ(k)] = exp(q · k / √d_head) (Choromanski et al., 2021, lemma 1).
    """
    x = x / x.shape[-1] ** 0.25
    return x @ directions.mT - (x.square().sum(dim=-1, keepdim=True) + math.log(len(directions))) / 2


# ---- sums that neither overflow nor vanish -----------------------------------------------------------------------

RISE = 40.0  # how far the maximum of a feature may rise within a chunk: e⁻⁴⁰ is far from vanishing in float32


class PerformerState(NamedTuple):
    """The state after all keys so far: the maximum of each feature, and sums relative to it."""

    highest: Float[Tensor, "batch head 1 feature"]  # max log φ(k)
    sums: Float[Tensor, "batch head feature d_value"]  # Σ φ(k) vᵀ / exp(highest)

    @classmethod
    def of(
        cls, log_k: Float[Tensor, "batch head key feature"], v: Float[Tensor, "batch head key d_value"]
    ) -> PerformerState:
        """The state after these keys; there may be none."""
        highest = F.pad(log_k.detach(), (0, 0, 1, 0), value=FLOOR).amax(dim=2, keepdim=True)
        return cls(highest, torch.exp(log_k - highest).mT @ v)


def relative_queries(
    log_q: Float[Tensor, "batch head query feature"], highest: Float[Tensor, "batch head 1 feature"]
) -> Float[Tensor, "batch head query feature"]:
    """φ(q) exp(highest), divided by the largest feature of each query: a factor that attention's quotient cancels."""
    log_q = log_q + highest
    return torch.exp(log_q - log_q.detach().amax(dim=-1, keepdim=True))


def attend_chunk(
    state: PerformerState,
    log_q: Float[Tensor, "batch head query feature"],
    log_k: Float[Tensor, "batch head query feature"],
    v: Float[Tensor, "batch head query d_value"],
) -> tuple[Float[Tensor, "batch head query d_value"], PerformerState]:
    """Σ_{j ≤ i} φ(q_i) · φ(k_j) v_j up to a factor for each i, and the next state: of a chunk, or of a single position.

    When the maximum of a feature rises, its sums so far shrink, as in the online softmax. If it rises so far inside the
    chunk that early keys would vanish beside a later one, which early queries do not see, the chunk is halved.
    """
    highest = log_k.detach().amax(dim=2, keepdim=True).maximum(state.highest)
    rise = highest - log_k.detach()[:, :, :1].maximum(state.highest)
    if rise.max() > RISE:  # it does not rise in a single position
        halves = (x.tensor_split(2, dim=2) for x in (log_q, log_k, v))
        return attend_chunks(state, zip(*halves, strict=True))
    q, k = relative_queries(log_q, highest), torch.exp(log_k - highest)
    past = torch.exp(state.highest - highest).mT * state.sums
    return q @ past + (q @ k.mT).tril() @ v, PerformerState(highest, past + k.mT @ v)


def attend_chunks(
    state: PerformerState, chunks: Iterable[tuple[Tensor, Tensor, Tensor]]
) -> tuple[Float[Tensor, "batch head query d_value"], PerformerState]:
    """`attend_chunk` for one chunk of queries, keys and values after the other."""
    outputs = []
    for log_q, log_k, v in chunks:
        output, state = attend_chunk(state, log_q, log_k, v)
        outputs.append(output)
    return torch.cat(outputs, dim=2), state


def stable_causal_sums(
    log_q: Float[Tensor, "batch head query feature"],
    log_k: Float[Tensor, "batch head key feature"],
    v: Float[Tensor, "batch head key d_value"],
    chunk: int,
) -> Float[Tensor, "batch head query d_value"]:
    """`causal_sums` of the exponentials, up to a factor for each query. The queries are the last of the positions."""
    start = log_k.shape[2] - log_q.shape[2]
    past = PerformerState.of(log_k[:, :, :start], v[:, :, :start])
    chunks = (x.split(chunk, dim=2) for x in (log_q, log_k[:, :, start:], v[:, :, start:]))
    return attend_chunks(past, zip(*chunks, strict=True))[0]


@dataclass(frozen=True)
class Performer(Linear):
    """Linear attention that approximates softmax attention by random features (Choromanski et al., 2021).

    The more `features`, the closer: the error falls as their number to the −½. They are sampled from `seed`, the same
    for all heads. Weights before normalization have no bias; their quotient has. Raises ValueError when `features` < 1.
    """

    features: int = 256
    orthogonal: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(features=self.features, chunk=self.chunk)

    @torch.compiler.assume_constant_result
    def directions(self, d_head: int) -> Float[Tensor, "feature d_head"]:
        """The directions of the features, on the CPU."""
        generator = torch.Generator().manual_seed(self.seed)
        return projection(self.features, d_head, generator, orthogonal=self.orthogonal)

    def sums(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
        v: Float[Tensor, "batch head key d_value"],
        visibility: Visibility,
    ) -> Float[Tensor, "batch head query d_value"]:
        """Σ_j φ(q_i) · φ(k_j) v_j over the keys j that query i sees, up to a factor for each query."""
        directions = self.directions(q.shape[-1]).to(q)
        log_q, log_k = log_features(q, directions), log_features(k, directions)
        shown = visibility.shown(k.device)
        if shown is not None:
            log_k = log_k.masked_fill(~shown[:, None, :, None], LOWEST)
        if visibility.causal:
            return stable_causal_sums(log_q, log_k, v, self.chunk)
        state = PerformerState.of(log_k, v)
        return relative_queries(log_q, state.highest) @ state.sums
