"""Multi-head attention. Shapes: batch, head, query and key (positions), time, d_model = head · d_head."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.cache import Cache
from tfbook.attention.implementations import Implementation, fastest
from tfbook.attention.masks import Mask
from tfbook.attention.positions import NOWHERE, Position

# ---- multi-head attention ----------------------------------------------------------------------------------------


def split_heads(x: Float[Tensor, "batch time d_model"], heads: int) -> Float[Tensor, "batch head time d_head"]:
    """Cuts each vector into `heads` pieces of width d_head = d_model / heads."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "batch head time d_head"]) -> Float[Tensor, "batch time d_model"]:
    """Puts the pieces side by side again."""
    return x.transpose(1, 2).flatten(2)


def cast_once(x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
    """x in autocast's precision where that is on, so that not every layer that reads x casts it anew."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


class MultiHeadAttention(nn.Module):
    """[head_1; …; head_h] W_O with head_i = Attention(Q W_Qi, K W_Ki, V W_Vi) (Vaswani et al., 2017, section 3.2.2).

    `d_key` is the width of what comes in as keys where it differs from `d_model`, `d_value` that of the values where it
    differs from the keys'; `dropout` drops weights in train mode. Raises ValueError when `heads` does not divide
    `d_model`.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        implementation: Implementation | None = None,
    ):
        super().__init__()
        if heads < 1 or d_model < 1 or d_model % heads:
            raise ValueError(f"heads is {heads} and d_model is {d_model}; expected heads to divide d_model")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; expected 0 ≤ dropout < 1")
        self.heads, self.dropout, self.implementation = heads, dropout, implementation or fastest
        self.W_Q = nn.Linear(d_model, d_model, bias=bias)
        self.W_K = nn.Linear(d_key or d_model, d_model, bias=bias)
        self.W_V = nn.Linear(d_value or d_key or d_model, d_model, bias=bias)
        self.W_O = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_key"] | None = None,
        value: Float[Tensor, "batch key d_value"] | None = None,
        *,
        mask: Mask | Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        position: Position = NOWHERE,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Self-attention of `query`; with `key` cross-attention to it; `value` is `key` unless it is given.

        `position` turns queries and keys or biases scores. With a `cache`, `query` continues what earlier calls have
        read; in cross-attention the first call fills it. Raises ValueError for widths, batches or lengths that do not
        fit.
        """
        start = 0 if cache is None else cache.length
        known = key is not None and start > 0  # an earlier call has made keys and values of what is crossed to
        query = cast_once(query)
        key = query if key is None else cast_once(key)
        value = key if value is None else value
        self._check(query=(query, self.W_Q), key=(key, self.W_K), value=(value, self.W_V))
        if known:
            q, (k, v) = split_heads(self.W_Q(query), self.heads), cache.seen()
        else:
            q, k, v = self._project(query, key, value)
            k = position.rotate(k, start)
            k, v = (k, v) if cache is None else cache.extend(k, v)
        q = position.rotate(q, start)
        placed = position.bias(q, k.shape[2])
        bias = placed if bias is None else bias if placed is None else bias + placed
        mixed = self.implementation(q, k, v, mask=mask, bias=bias, dropout=self.dropout if self.training else 0.0)
        return self.W_O(merge_heads(mixed))

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Q W_Q, K W_K and V W_V, split into heads."""
        layers = (self.W_Q, self.W_K, self.W_V)
        same, plain = query is key is value, all(type(layer) is nn.Linear for layer in layers)
        if same and plain and query.dtype == torch.bfloat16 and torch.is_grad_enabled():
            return self._project_together(query, layers)
        inputs = zip(layers, (query, key, value), strict=True)
        return tuple(split_heads(layer(x), self.heads) for layer, x in inputs)

    def _project_together(self, x: Tensor, layers: tuple[nn.Linear, ...]) -> tuple[Tensor, ...]:
        """The same by one product, which trains faster in bfloat16 (benchmarks/README.md)."""
        weight = torch.cat([layer.weight for layer in layers])
        bias = None if self.W_Q.bias is None else torch.cat([layer.bias for layer in layers])
        side_by_side = F.linear(x, weight, bias).unflatten(-1, (len(layers), self.heads, -1))
        return side_by_side.permute(2, 0, 3, 1, 4).unbind()

    def _check(self, **inputs: tuple[Tensor, nn.Linear]) -> None:
        for name, (x, project) in inputs.items():
            if x.ndim != 3 or x.shape[-1] != project.in_features:
                raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (batch, time, {project.in_features})")
        (query, _), (key, _), (value, _) = inputs.values()
        if len(key) != len(query):
            raise ValueError(f"key has {len(key)} sequences; expected {len(query)}, one for each of query")
        if value.shape[:2] != key.shape[:2]:
            raise ValueError(
                f"value has shape {tuple(value.shape)}; expected batch and time of key, {tuple(key.shape)}"
            )
