"""Multi-head attention. Shapes: batch, head, query and key (positions), time, d_model = head · d_head."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from tfbook.attention.cache import Cache
from tfbook.attention.implementations import Implementation, fastest
from tfbook.attention.masks import Mask
from tfbook.attention.positions import NOWHERE, Position
from tfbook.checks import check_dropout, check_heads
from tfbook.parts import Part


def split_heads(x: Float[Tensor, "batch time d_model"], heads: int) -> Float[Tensor, "batch head time d_head"]:
    """Splits each vector into `heads` pieces of width d_head = d_model / heads."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "batch head time d_head"]) -> Float[Tensor, "batch time d_model"]:
    """Puts the pieces side by side again."""
    return x.transpose(1, 2).flatten(2)


class MultiHeadAttention(Part):
    """[head_1; …; head_h] W_O with head_i = Attention(Q W_Qi, K W_Ki, V W_Vi) (Vaswani et al., 2017, section 3.2.2).

    `d_key` is the width of the keys that come in (by default `d_model`), `d_value` that of the values (by default the
    keys'). In train mode `dropout` is applied to the weights. Raises ValueError when `heads` does not divide `d_model`.
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
        check_heads(d_model, heads)
        check_dropout(dropout)
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
        """Self-attention of `query`, or cross-attention to `key`; `value` is `key` unless it is given.

        `position` rotates queries and keys or biases scores. With a `cache`, `query` continues the sequence that
        earlier calls have read; in cross-attention the first call fills it. Raises ValueError for widths, batches or
        lengths that do not fit.
        """
        crosses = key is not None
        start = 0 if cache is None else cache.queries if crosses else cache.length  # the position of the first query
        key = query if key is None else key
        value = key if value is None else value
        self._check(query=(query, self.W_Q), key=(key, self.W_K), value=(value, self.W_V))
        if cache is not None and crosses and cache.length:  # an earlier call has made these keys and values
            q, (k, v) = split_heads(self.W_Q(query), self.heads), cache.seen()
        else:
            q, k, v = self.project(query, key, value)
            k = position.rotate(k, start)
            k, v = (k, v) if cache is None else cache.extend(k, v)
        q = position.rotate(q, start)
        if cache is not None:
            cache.queries += query.shape[1]
        by_position = position.bias(q, k.shape[2], start)
        bias = by_position if bias is None else bias if by_position is None else bias + by_position
        k, v = self.for_every_head(k), self.for_every_head(v)
        dropout = self.dropout if self.training else 0.0
        return self.W_O(merge_heads(self.implementation(q, k, v, mask=mask, bias=bias, dropout=dropout)))

    def project(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[
        Float[Tensor, "batch head query d_head"],
        Float[Tensor, "batch kv_head key d_head"],
        Float[Tensor, "batch kv_head key d_head"],
    ]:
        """Q W_Q, K W_K and V W_V, split into heads."""
        q, k, v = self.W_Q(query), self.W_K(key), self.W_V(value)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)

    def for_every_head(self, x: Float[Tensor, "batch kv_head key d_head"]) -> Float[Tensor, "batch head key d_head"]:
        """Keys or values for each head of queries: here they have heads of their own."""
        return x

    def new_cache(self) -> Cache:
        """An empty cache of keys and values."""
        return Cache()

    @property
    def output(self) -> nn.Linear:
        """W_O."""
        return self.W_O

    def parameter_count(self) -> int:
        """W_Q, W_K, W_V and W_O with their biases: 4 d_model² + 4 d_model where all widths are d_model."""
        layers = (self.W_Q, self.W_K, self.W_V, self.W_O)
        return sum(layer.out_features * (layer.in_features + (layer.bias is not None)) for layer in layers)

    def flops(self, time: int, *, past: int = 0, source: int | None = None, position: Position = NOWHERE) -> int:
        """8 d_model² per position, and 4 d_model per pair of positions for scores and weighted values.

        The queries are `time` positions after `past` cached ones, or attend to `source` positions of another sequence.
        By convention every pair counts, even if a mask blocks it.
        """
        keys, new = (past + time, time) if source is None else (source, source)
        d_q, d_k, d_v = self.W_Q.weight.numel(), self.W_K.weight.numel(), self.W_V.weight.numel()
        projections = 2 * time * (d_q + self.W_O.weight.numel()) + 2 * new * (d_k + d_v)
        return projections + 4 * time * keys * self.W_Q.out_features + position.flops(time, self.heads)

    def _check(self, **inputs: tuple[Tensor, nn.Linear]) -> None:
        for name, (x, project) in inputs.items():
            if x.ndim != 3 or x.shape[-1] != project.in_features:
                raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (batch, time, {project.in_features})")
        (query, _), (key, _), (value, _) = inputs.values()
        if len(key) != len(query):
            raise ValueError(f"key has {len(key)} sequences; expected {len(query)}, one for each of query")
        if value.shape[:2] != key.shape[:2]:
            expected = f"batch and time of key, {tuple(key.shape)}"
            raise ValueError(f"value has shape {tuple(value.shape)}; expected {expected}")
