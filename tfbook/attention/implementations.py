"""The masked softmax, and attention implementations built on it.

Shapes: batch, head, query and key (positions), d_model = head · d_head. An implementation computes attention from
queries, keys and values that are already split into heads; all have one signature, so they are interchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.masks import Both, Causal, Dense, Mask, as_mask
from tfbook.checks import broadcasts, check_scores, surely_all
from tfbook.parts import exactly


def masked_softmax(scores: Float[Tensor, "*rows key"], mask: Bool[Tensor, "..."] | None) -> Float[Tensor, "*rows key"]:
    """exp(s_j) / Σ_k exp(s_k) over the keys k that the mask allows; 0 for the others.

    A row whose keys are all blocked gets weights 0, never NaN, and gradient 0. `mask`
    broadcasts to the shape of `scores`; None allows every key. Raises TypeError when the
    scores are not floating-point numbers or the mask is not Boolean, ValueError when it
    does not fit.
    """
    check_scores(scores, mask)
    if mask is None:
        return torch.softmax(scores, dim=-1)
    some = mask.any(dim=-1, keepdim=True)  # a row with only blocked keys would be 0/0
    blocked = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(some & ~mask, -torch.inf)
    weights = torch.softmax(scores + blocked, dim=-1)
    return weights if surely_all(some) else weights * some


# ---- attention implementations -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Supports:
    """The masks and options that an implementation supports; it refuses all others."""

    masks: tuple[type[Mask], ...] | None = None  # alone and joined by &; None: every mask
    bias: bool = True
    dropout: bool = True
    exact: bool = True  # computes softmax attention itself, not an approximation of it

    def refuse(self, name: str, mask: Mask | None, bias: Tensor | None, dropout: float) -> None:
        """Raises NotImplementedError for what the implementation called `name` does not support."""
        if isinstance(mask, Both):
            self.refuse(name, mask.first, bias, dropout)
            self.refuse(name, mask.second, bias, dropout)
        elif mask is not None and self.masks is not None and not isinstance(mask, self.masks):
            known = " and ".join(kind.__name__ for kind in self.masks) or "no"
            raise NotImplementedError(f"the implementation {name} supports {known} masks; got {type(mask).__name__}")
        if bias is not None and not self.bias:
            raise NotImplementedError(f"the implementation {name} supports no bias on the scores")
        if dropout and not self.dropout:
            raise NotImplementedError(f"the implementation {name} supports no dropout; got {dropout}")


EVERYTHING = Supports()
Implementation = Callable[..., Tensor]  # implementation(q, k, v, mask=None, bias=None, dropout=0.0)


def declares(supports: Supports) -> Callable[[Implementation], Implementation]:
    """Makes a function an attention implementation: it declares what it supports, and `admit` checks its inputs."""

    def declare(compute: Implementation) -> Implementation:
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
            mask, bias = admit(compute.__name__, supports, q, k, v, mask, bias, dropout)
            return compute(q, k, v, mask, bias, dropout, **options)

        checked.supports = supports  # type: ignore[attr-defined] # functions have attributes
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
) -> tuple[Mask | None, Float[Tensor, "#batch #head #query #key"] | None]:
    """Mask and bias as an implementation reads them, once the inputs fit one another and it supports them.

    A Boolean tensor becomes a mask, and so does −∞ in a bias, which gets four axes and finite numbers (`finite_bias`).
    `name` is the implementation's, for errors. Raises ValueError for shapes that do not fit and NotImplementedError for
    what `supports` leaves out.
    """
    _check_shapes(q, k, v)
    if bias is not None and not broadcasts(bias, _shape(q, k)):
        raise ValueError(f"bias has shape {tuple(bias.shape)}; expected one that broadcasts to {_shape(q, k)}")
    rule = as_mask(mask)
    supports.refuse(name, rule, bias, dropout)
    if bias is None:
        return rule, None
    return without_blocked(rule, bias), finite_bias(bias, q.dtype)


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


def dense_mask(mask: Mask | None, q: Tensor, k: Tensor) -> Bool[Tensor, "..."] | None:
    """The mask's matrix with four axes; None where every query may attend to every key.

    Raises ValueError when it does not broadcast to (batch, head, query, key).
    """
    if mask is None or (exactly(mask, Causal) and q.shape[2] == 1 <= k.shape[2]):  # the last position sees all
        return None
    allowed = mask.dense(q.shape[2], k.shape[2], q.device)
    if not broadcasts(allowed, _shape(q, k)):
        raise ValueError(f"mask has shape {tuple(allowed.shape)}; expected one that broadcasts to {_shape(q, k)}")
    return allowed[(None,) * (4 - allowed.ndim)]


LOWEST = -1e30  # a score whose weight is 0 beside any other; finite, and so is its sum with another score


def without_blocked(mask: Mask | None, bias: Float[Tensor, "..."]) -> Mask | None:
    """The mask without pairs whose bias is −∞, so that a row of such pairs has output 0, as under a mask."""
    allowed = bias != -torch.inf
    if surely_all(allowed):
        return mask
    return Dense(allowed) if mask is None else Both(mask, Dense(allowed))  # `&` with a tensor is not traced


def finite_bias(bias: Float[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "#batch #head #query #key"]:
    """The bias with four axes, at least `LOWEST` / 10: a lower one could be −∞ in `dtype` and give 0/0."""
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
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if bias is not None:
        scores = scores + bias
    return masked_softmax(scores, dense_mask(mask, q, k))


@declares(EVERYTHING)
def softmax(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    seen: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """softmax(q kᵀ / √d_head + bias) v, written out; `seen` is called with the weights that multiply the values."""
    weights = F.dropout(attention_weights(q, k, mask, bias), dropout)
    if seen is not None:
        seen(weights.detach())
    return weights @ v


SHORT = 1024  # keys; below, the backward pass of the CPU's fused implementation is slow in bfloat16


def fastest(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_value"],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    dropout: float = 0.0,
    *,
    short: int = SHORT,
) -> Float[Tensor, "batch head query d_value"]:
    """The same by PyTorch's `scaled_dot_product_attention`, which keeps no matrix of weights for the gradient.

    Where gradients of fewer than `short` keys in bfloat16 are needed on a CPU, `softmax` is faster
    (benchmarks/attention_speed.py) and takes over.
    """
    if k.shape[-2] < short and q.dtype == torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled():
        return softmax(q, k, v, mask, bias, dropout)
    mask, bias = admit("fastest", EVERYTHING, q, k, v, mask, bias, dropout)
    if bias is None and exactly(mask, Causal) and q.shape[2] == k.shape[2]:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    allowed = dense_mask(mask, q, k)
    if allowed is None:
        return F.scaled_dot_product_attention(q, k, v, bias, dropout)
    some = allowed.any(dim=-1, keepdim=True)
    allowed = allowed | ~some  # a row of blocked keys would be 0/0
    added = allowed if bias is None else torch.where(allowed, bias, bias.new_full((), -torch.inf))
    return F.scaled_dot_product_attention(q, k, v, added, dropout).masked_fill(~some, 0.0)


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """`scaled_dot_product_attention` at every length and precision."""
    return fastest(q, k, v, mask, bias, dropout, short=0)


for _each in (fastest, fused):  # without `declares` around them, since `fastest` admits its inputs itself: a call less
    _each.supports = EVERYTHING  # type: ignore[attr-defined] # functions have attributes
