"""Linear attention: a product of features replaces the softmax, so the keys can be summed before any query.

Shapes: batch, head, query and key (positions), chunk (of positions), feature, d_head, d_value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.efficient.base import EfficientAttention, Visibility, in_float32
from tfbook.attention.efficient.blocks import in_blocks
from tfbook.attention.implementations import Supports
from tfbook.attention.masks import Causal, Lengths
from tfbook.checks import check_positive


def elu_plus_one(x: Float[Tensor, "*rows d_head"]) -> Float[Tensor, "*rows d_head"]:
    """elu(x) + 1: x + 1 above 0 and exp(x) below, so never negative (Katharopoulos et al., 2020, eq. 7).

    Not `F.elu(x) + 1`, whose sum −1 + 1 loses all of exp(x) below −17 in float32.
    """
    return x.masked_fill(x > 0, 0.0).exp() + F.relu(x)


def all_at_once(
    q: Float[Tensor, "batch head query feature"],
    k: Float[Tensor, "batch head key feature"],
    v: Float[Tensor, "batch head key d_value"],
) -> Float[Tensor, "batch head query d_value"]:
    """q (kᵀ v): one feature × d_value matrix summarizes all keys and values."""
    return q @ (k.mT @ v)


def causal_sums(
    q: Float[Tensor, "batch head query feature"],
    k: Float[Tensor, "batch head key feature"],
    v: Float[Tensor, "batch head key d_value"],
    chunk: int,
) -> Float[Tensor, "batch head query d_value"]:
    """Σ_{j ≤ i} (q_i · k_j) v_j: prefix sums of kᵀ v from chunk to chunk, the masked product inside each chunk.

    The queries are the last of the keys' positions.
    """
    start = k.shape[2] - q.shape[2]
    past = k[:, :, :start].mT @ v[:, :, :start]
    queries, keys, values = (in_blocks(x, chunk) for x in (q, k[:, :, start:], v[:, :, start:]))
    sums = keys.mT @ values
    before = torch.cat([past[:, :, None], sums[:, :, :-1]], dim=2).cumsum(dim=2)
    mixed = queries @ before + (queries @ keys.mT).tril() @ values
    return mixed.flatten(2, 3)[:, :, : q.shape[2]]


class LinearState(NamedTuple):
    """The state of linear attention after all keys so far, whose size does not depend on their number."""

    sums: Float[Tensor, "batch head feature d_value"]  # Σ φ(k) vᵀ
    total: Float[Tensor, "batch head feature"]  # Σ φ(k)


def step(
    state: LinearState | None,
    q: Float[Tensor, "batch head feature"],
    k: Float[Tensor, "batch head feature"],
    v: Float[Tensor, "batch head d_value"],
) -> tuple[Float[Tensor, "batch head d_value"], LinearState]:
    """One step of the recurrent form: adds the key, then answers the query (Katharopoulos et al., eq. 16–20).

    q and k are features; None is the state before the first position.
    """
    new = k[..., None] * v[..., None, :]
    state = LinearState(new, k) if state is None else LinearState(state.sums + new, state.total + k)
    weight = (q * state.total).sum(dim=-1, keepdim=True)
    return (q[..., None, :] @ state.sums)[..., 0, :] / weight, state


@dataclass(frozen=True)
class Linear(EfficientAttention):
    """Σ_j φ(q_i) · φ(k_j) v_j / Σ_j φ(q_i) · φ(k_j) with φ = `elu_plus_one`: O(n) time (Katharopoulos et al., 2020).

    This is not an approximation of the softmax but another weighting of the pairs. Under a causal mask the sums go from
    one `chunk` of positions to the next. Raises ValueError when `chunk` < 1.
    """

    chunk: int = field(default=128, kw_only=True)

    supports: ClassVar[Supports] = Supports(masks=(Causal, Lengths), bias=False, dropout=False, exact=False)

    def __post_init__(self) -> None:
        check_positive(chunk=self.chunk)

    def sums(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
        v: Float[Tensor, "batch head key d_value"],
        visibility: Visibility,
    ) -> Float[Tensor, "batch head query d_value"]:
        """Σ_j φ(q_i) · φ(k_j) v_j over the keys j that query i sees; φ of padding is 0."""
        q, k = elu_plus_one(q), elu_plus_one(k)
        shown = visibility.shown(k.device)
        if shown is not None:
            k = k * shown[:, None, :, None]
        return causal_sums(q, k, v, self.chunk) if visibility.causal else all_at_once(q, k, v)

    @in_float32
    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, dropout: float) -> Tensor:
        """A column of ones beside the values sums the weights.

        Where the sum is 0, or so small that the gradient of the quotient would overflow, the output is 0.
        """
        counted = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
        mixed, total = self.sums(q, k, counted, visibility).split([v.shape[-1], 1], dim=-1)
        precision = torch.finfo(total.dtype)
        some = total > precision.tiny / precision.eps
        return mixed / total.masked_fill(~some, 1.0) * some
