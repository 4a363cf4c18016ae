"""Attention and its heads as lesson 03 writes them, for readers who skip its exercises."""

from __future__ import annotations

import math

from jaxtyping import Bool, Float
from torch import Tensor, nn


def attention_weights(
    q: Float[Tensor, "*batch query d"], k: Float[Tensor, "*batch key d"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*batch query key"]:
    """softmax(Q Kᵀ / √d), with −∞ for the scores where the mask is False."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)


class MultiHead(nn.Module):
    """Multi-head attention (Vaswani et al., 2017, section 3.2.2): one product per matrix for all heads together."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.W_Q, self.W_K = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.W_V, self.W_O = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch heads n d_head"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(
        self,
        x: Float[Tensor, "batch n d_model"],
        context: Float[Tensor, "batch m d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        context = x if context is None else context
        q, k, v = (self.split(t) for t in (self.W_Q(x), self.W_K(context), self.W_V(context)))
        y = attention_weights(q, k, mask) @ v  # (batch, head, n, d_head)
        return self.W_O(y.transpose(1, 2).flatten(2))
