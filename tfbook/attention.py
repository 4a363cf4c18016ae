"""The masked softmax, kernels, multi-head attention and the recording of what it attends to.

Shapes: batch, head, query and key (positions), d_model = head · d_head. A kernel computes attention from queries, keys
and values that are already split into heads; all kernels have one signature, so a model swaps them by one word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.cache import Cache
from tfbook.masks import Both, Causal, Mask, as_mask
from tfbook.positions import NOWHERE, Position


def masked_softmax(scores: Float[Tensor, "*rows key"], mask: Bool[Tensor, "..."] | None) -> Float[Tensor, "*rows key"]:
    """exp(s_j) / Σ_k exp(s_k) over the keys k that the mask allows; 0 for the others.

    A row whose keys are all blocked gets weights 0, never NaN, and gradient 0. `mask` broadcasts to the shape of
    `scores`; None allows every key. Raises TypeError when the scores are no floating-point numbers or the mask is not
    Boolean, ValueError when the mask does not fit.
    """
    if not scores.is_floating_point():
        raise TypeError(f"scores has dtype {scores.dtype}; expected floating-point numbers")
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask has dtype {mask.dtype}; expected torch.bool, where True means 'may attend'")
    try:
        mask = mask.expand(scores.shape)
    except RuntimeError:
        message = f"mask has shape {tuple(mask.shape)}; expected one that broadcasts to scores, {tuple(scores.shape)}"
        raise ValueError(message) from None
    lowest = torch.finfo(scores.dtype).min  # finite, so that a row of blocked keys stays free of NaN
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)


# ---- kernels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Supports:
    """What a kernel can do. What it cannot, it refuses."""

    masks: tuple[type[Mask], ...] = (Mask,)  # alone and joined by &
    bias: bool = True
    dropout: bool = True
    exact: bool = True  # computes softmax attention itself, not an approximation of it

    def refuse(self, name: str, mask: Mask | None, bias: Tensor | None, dropout: float) -> None:
        """Raises NotImplementedError for what the kernel called `name` does not support."""
        if isinstance(mask, Both):
            self.refuse(name, mask.first, bias, dropout)
            self.refuse(name, mask.second, bias, dropout)
        elif mask is not None and not isinstance(mask, self.masks):
            known = " and ".join(kind.__name__ for kind in self.masks) or "no"
            raise NotImplementedError(f"the kernel {name} supports {known} masks; got {type(mask).__name__}")
        if bias is not None and not self.bias:
            raise NotImplementedError(f"the kernel {name} supports no bias on the scores")
        if dropout and not self.dropout:
            raise NotImplementedError(f"the kernel {name} supports no dropout; got {dropout}")


Kernel = Callable[..., Tensor]  # kernel(q, k, v, mask=None, bias=None, dropout=0.0)


def kernel(supports: Supports) -> Callable[[Kernel], Kernel]:
    """Makes a function a kernel: it declares what it supports, checks shapes and takes Boolean tensors as masks.

    Raises ValueError for shapes that do not fit and NotImplementedError for what `supports` leaves out.
    """

    def declare(compute: Kernel) -> Kernel:
        @wraps(compute)
        def checked(
            q: Float[Tensor, "batch head query d_head"],
            k: Float[Tensor, "batch head key d_head"],
            v: Float[Tensor, "batch head key d_value"],
            mask: Mask | Bool[Tensor, "..."] | None = None,
            bias: Float[Tensor, "..."] | None = None,
            dropout: float = 0.0,
            **options: object,
        ) -> Float[Tensor, "batch head query d_value"]:
            rule = admit(compute.__name__, supports, q, k, v, mask, bias, dropout)
            return compute(q, k, v, rule, bias, dropout, **options)

        checked.supports = supports
        return checked

    return declare


def admit(
    name: str,
    supports: Supports,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Mask | None:
    """The mask as a rule, once the inputs fit one another and the kernel called `name` supports them.

    Raises ValueError for shapes that do not fit and NotImplementedError for what `supports` leaves out.
    """
    _check_shapes(q, k, v)
    if bias is not None and not _broadcasts(bias, q, k):
        raise ValueError(f"bias has shape {tuple(bias.shape)}; expected one that broadcasts to {_shape(q, k)}")
    rule = as_mask(mask)
    supports.refuse(name, rule, bias, dropout)
    return rule


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 4:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected (batch, head, position, width)")
    if k.shape != (*q.shape[:2], k.shape[2], q.shape[3]):
        raise ValueError(f"k has shape {tuple(k.shape)}; expected batch, heads and d_head of q, {tuple(q.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v has shape {tuple(v.shape)}; expected batch, heads and positions of k, {tuple(k.shape)}")


def _shape(q: Tensor, k: Tensor) -> tuple[int, ...]:
    """(batch, head, query, key)."""
    return (*q.shape[:3], k.shape[2])


def _broadcasts(tensor: Tensor, q: Tensor, k: Tensor) -> bool:
    """Whether the tensor broadcasts to (batch, head, query, key) and not to more than that."""
    pairs = zip(tensor.shape[::-1], _shape(q, k)[::-1], strict=False)
    return tensor.ndim <= 4 and all(n in (1, m) for n, m in pairs)


PLAIN_CAUSAL = Causal  # by this name, so that a subclass or an edited `Causal` takes the long way and has its effect


def dense_mask(mask: Mask | None, q: Tensor, k: Tensor) -> Bool[Tensor, "..."] | None:
    """The mask's matrix, with four axes; None where every query may attend to every key.

    Raises ValueError when it does not broadcast to (batch, head, query, key).
    """
    if mask is None or (type(mask) is PLAIN_CAUSAL and q.shape[2] == 1 <= k.shape[2]):  # the last position sees all
        return None
    allowed = mask.dense(q.shape[2], k.shape[2], q.device)
    if not _broadcasts(allowed, q, k):
        raise ValueError(f"mask has shape {tuple(allowed.shape)}; expected one that broadcasts to {_shape(q, k)}")
    return allowed[(None,) * (4 - allowed.ndim)]


LOWEST = -1e30  # a score whose weight is 0 beside any other; finite, and so is its sum with another score


def finite_bias(bias: Float[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "#batch #head #query #key"]:
    """The bias with four axes and at least `LOWEST` / 10: −∞ would be 0/0 alone, or less than what the mask blocks."""
    lowest = max(LOWEST / 10, torch.finfo(dtype).min / 4)
    return bias[(None,) * (4 - bias.ndim)].clamp(min=lowest).to(dtype)


def attention_weights(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    mask: Mask | None = None,
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "batch head query key"]:
    """softmax_j(q_i · k_j / √d_head + bias_ij) over the keys that the mask allows (Vaswani et al., 2017, eq. 1).

    The others get weight 0, and so do all keys of a query that may attend to nothing. Raises ValueError when the mask
    does not broadcast to the shape of the weights.
    """
    allowed = dense_mask(mask, q, k)
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if bias is not None:
        scores = scores + finite_bias(bias, scores.dtype)
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    if scores.dtype == torch.float16:  # too narrow for the sum below
        return masked_softmax(scores, allowed)
    blocked = torch.zeros(allowed.shape, dtype=scores.dtype, device=q.device).masked_fill(~allowed, LOWEST)
    weights = torch.softmax(scores + blocked, dim=-1)
    some = allowed.any(dim=-1, keepdim=True)
    return weights if some.all() else weights * some


@kernel(Supports())
def softmax(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    seen: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """softmax(q kᵀ / √d_head + bias) v, written out; `seen` is shown the weights that are applied to the values."""
    weights = F.dropout(attention_weights(q, k, mask, bias), dropout)
    if seen is not None:
        seen(weights.detach())
    return weights @ v


@kernel(Supports())
def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """The same by PyTorch's `scaled_dot_product_attention`, which keeps no matrix of weights for the gradient."""
    if bias is None and type(mask) is PLAIN_CAUSAL and q.shape[2] == k.shape[2]:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    allowed = dense_mask(mask, q, k)
    added = None if bias is None else finite_bias(bias, q.dtype)
    if allowed is None:
        return F.scaled_dot_product_attention(q, k, v, added, dropout)
    some = allowed.any(dim=-1, keepdim=True)
    allowed = allowed | ~some  # a row of blocked keys would be 0/0
    added = allowed if added is None else torch.where(allowed, added, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, added, dropout).masked_fill(~some, 0.0)


SHORT = 1024  # keys; below, the backward pass of the CPU's fused kernel is slow in bfloat16


def fastest(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """`softmax` where gradients of short bfloat16 sequences are wanted on a CPU, `fused` otherwise.

    As benchmarks/attention_speed.py found.
    """
    short = q.device.type == "cpu" and q.dtype == torch.bfloat16 and k.shape[-2] < SHORT
    return (softmax if short and torch.is_grad_enabled() else fused)(q, k, v, mask, bias, dropout)


fastest.supports = Supports()  # without `kernel` around it: the one that it calls checks


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
        kernel: Kernel | None = None,
    ):
        super().__init__()
        if heads < 1 or d_model < 1 or d_model % heads:
            raise ValueError(f"heads is {heads} and d_model is {d_model}; expected heads to divide d_model")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; expected 0 ≤ dropout < 1")
        self.heads, self.dropout, self.kernel = heads, dropout, kernel or fastest
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
        mixed = self.kernel(q, k, v, mask=mask, bias=bias, dropout=self.dropout if self.training else 0.0)
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


def supports_of(layer: nn.Module) -> Supports | None:
    """What the layer's kernel supports, also through a `partial` that sets its options; None where there is none."""
    used = getattr(layer, "kernel", None)
    return getattr(getattr(used, "func", used), "supports", None)


def written_out(used: Kernel, seen: Callable[[Tensor], None]) -> Kernel:
    """`softmax` that shows its weights, under the mask that `used` narrows its mask to, where it has such a method."""
    narrowed = getattr(used, "mask", lambda q, k, mask: mask)

    @kernel(Supports())
    def shown(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        return softmax(q, k, v, narrowed(q, k, mask), bias, dropout, seen=seen)

    shown.mask = narrowed
    return shown


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, Float[Tensor, "batch head query key"]]]:
    """Inside the context, each layer of `model` that has a `kernel` puts the weights that it applies under its name.

    What is recorded is what multiplied the values: the same mask, bias and dropout, through the kernel `softmax`, and
    no key that a sparse kernel leaves out. A layer that is called twice keeps its last weights. Raises ValueError when
    `model` has no such layer, or one whose kernel is not exact.
    """
    layers = {name: layer for name, layer in model.named_modules() if supports_of(layer)}
    if not layers:
        raise ValueError(f"model, a {type(model).__name__}, holds no attention whose weights could be recorded")
    for name, layer in layers.items():
        if not supports_of(layer).exact:
            raise ValueError(f"the layer {name!r} of model approximates its weights; only an exact kernel has a record")
    kernels = {name: layer.kernel for name, layer in layers.items()}
    weights: dict[str, Tensor] = {}
    try:
        for name, layer in layers.items():
            layer.kernel = written_out(layer.kernel, partial(weights.__setitem__, name))
        yield weights
    finally:
        for name, layer in layers.items():
            layer.kernel = kernels[name]
