"""The exercise of lesson 09 in which the attention of its GPT is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.positions import Rotary
from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import BY_HAND, Softmax, filled

# ---- causal attention with rotary positions ------------------------------------------------------------------------


class _Attention(nn.Module):
    """The lesson's layer before its `forward` is written: four matrices, and heads that lie side by side."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.W_Q, self.W_K = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.W_V, self.W_O = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def rotated(x: Tensor) -> Tensor:
    """Queries or keys, (batch, head, n, d_head), turned by their positions as the lesson does it."""
    return Rotary(x.shape[-1]).rotate(x)


def _layer(d_model: int, heads: int, seed: int) -> _Attention:
    layer = _Attention(d_model, heads)
    for number, weight in enumerate(layer.parameters()):
        weight.data = 0.6 * randn(*weight.shape, seed=seed + number)
    return layer


def _streams() -> list[tuple[_Attention, Tensor]]:
    without_bias, silent = _layer(8, 2, seed=50), randn(2, 4, 8, seed=5)
    for linear in (without_bias.W_Q, without_bias.W_K):
        nn.init.zeros_(linear.bias)
    silent[:, 2] = 0
    return [
        (_layer(12, 3, seed=10), randn(2, 5, 12, seed=1)),
        (_layer(16, 4, seed=20), randn(3, 4, 16, seed=2)),  # as many words as heads: wrong axes still fit
        (_layer(8, 2, seed=30), randn(1, 1, 8, seed=3)),
        (_layer(8, 2, seed=40), 8 * randn(2, 4, 8, seed=4)),  # scores that no exp and no −20 bears
        (without_bias, silent),  # scores that are 0 by themselves
    ]


@exercise(
    cases=_streams,
    hints=[
        "In lesson 05's order: project three times, split into heads, mix, merge the heads, project once more. New is "
        "that queries and keys go through `rotated` before they meet.",
        "`F.scaled_dot_product_attention(q, k, v, is_causal=True)` scales, masks, and mixes. It returns (batch, heads, "
        "n, d_head); `W_O` wants (batch, n, d_model), with the heads of one word side by side.",
    ],
)
def attend(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (layer.split(W(x)) for W in (layer.W_Q, layer.W_K, layer.W_V))
    mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
    return layer.W_O(mixed.transpose(1, 2).flatten(2))


Heads = tuple[Tensor, Tensor, Tensor]  # queries, keys, values: (batch, head, n, d_head)


def _heads(layer: Any, x: Tensor) -> Heads:
    return layer.split(layer.W_Q(x)), layer.split(layer.W_K(x)), layer.split(layer.W_V(x))


def _merged(mixed: Tensor) -> Tensor:
    return mixed.transpose(1, 2).flatten(2)


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def _with(layer: Any, x: Tensor, *, mix: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """The right layer but for what happens to the heads between the first three matrices and the last one."""
    return layer.W_O(_merged(mix(*_heads(layer, x))))


def _later(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu()
    return F.scaled_dot_product_attention(rotated(q), rotated(k), v, attn_mask=later)


def _rotated_whole(layer: Any, x: Tensor) -> Tensor:
    q, k = (layer.split(rotated(W(x)[:, None])[:, 0]) for W in (layer.W_Q, layer.W_K))
    return layer.W_O(_merged(_causal(q, k, layer.split(layer.W_V(x)))))


def _one_head(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (W(x)[:, None] for W in (layer.W_Q, layer.W_K, layer.W_V))
    return layer.W_O(_merged(_causal(rotated(q), rotated(k), v)))


def _unmerged(layer: Any, x: Tensor) -> Tensor:
    q, k, v = _heads(layer, x)
    return layer.W_O(_causal(rotated(q), rotated(k), v).reshape(x.shape))


def _without_output(layer: Any, x: Tensor) -> Tensor:
    q, k, v = _heads(layer, x)
    return _merged(_causal(rotated(q), rotated(k), v))


def _weighed(q: Tensor, k: Tensor, v: Tensor, *, weigh: Softmax) -> Tensor:
    scores = rotated(q) @ rotated(k).mT / math.sqrt(q.shape[-1])
    return weigh(scores, torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()) @ v


MIXED_WRONGLY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    (
        "nothing is masked: each position reads the words that it has to predict. In training the loss falls below "
        "what is possible, and the model cannot write. `is_causal=True` masks them"
    ): lambda q, k, v: F.scaled_dot_product_attention(rotated(q), rotated(k), v),
    "masked the wrong way round: a position may read itself and what comes before it, not what comes after it": _later,
    "no positions: neither queries nor keys went through `rotated`, so the order of the words before is lost": _causal,
    "the queries are rotated, the keys are not: only when both turn do they meet at the angle of their distance": (
        lambda q, k, v: _causal(rotated(q), k, v)
    ),
    "the keys are rotated, the queries are not: only when both turn do they meet at the angle of their distance": (
        lambda q, k, v: _causal(q, rotated(k), v)
    ),
    "the values are rotated, too: positions decide who looks where, and should not change what is read there": (
        lambda q, k, v: _causal(rotated(q), rotated(k), rotated(v))
    ),
    "queries and keys are swapped: a row of scores belongs to the position that asks": (
        lambda q, k, v: _causal(rotated(k), rotated(q), v)
    ),
    "the scores are not divided by √d_head: their spread then grows with the width of a head": (
        lambda q, k, v: _causal(rotated(q), rotated(k), v, scale=1.0)
    ),
    "divided by √d_head twice: `scaled_dot_product_attention` does it already": (
        lambda q, k, v: _causal(rotated(q), rotated(k), v, scale=1 / q.shape[-1])
    ),
    "masked wherever a score is 0, and a score can be 0 by itself: mask by position": partial(
        _weighed, weigh=lambda scores, mask: (scores * mask).masked_fill(scores * mask == 0, -math.inf).softmax(dim=-1)
    ),
    "a blocked score of −20 is not low enough, since allowed scores can be lower: block with −∞": partial(
        _weighed, weigh=filled(-20.0)
    ),
    "divided by √d_model: each head computes its own scores, so divide by the root of a head's width, d_head": (
        lambda q, k, v: _causal(rotated(q), rotated(k), v, scale=(q.shape[1] * q.shape[3]) ** -0.5)
    ),
    "a blocked score of 0 is a score like any other, and e⁰ = 1 gives it weight: block with −∞": partial(
        _weighed, weigh=filled(0.0)
    ),
    "masked after the softmax: the weights that are left don't sum to 1; mask the scores with −∞ before it": partial(
        _weighed, weigh=lambda scores, mask: scores.softmax(dim=-1) * mask
    ),
    "a position cannot read itself here, so the first has nothing to read: mask only what comes after": partial(
        _weighed, weigh=lambda scores, mask: scores.masked_fill(~mask.tril(-1), -math.inf).softmax(dim=-1)
    ),
    **{message: partial(_weighed, weigh=weigh) for message, weigh in BY_HAND.items()},
}
attend.mistakes(
    {message: partial(_with, mix=mix) for message, mix in MIXED_WRONGLY.items()}
    | {
        "rotated before the split: each head should turn by all frequencies, so split first, then rotate": (
            _rotated_whole
        ),
        "one wide head: without `split`, each position has one pattern of attention in place of several": _one_head,
        "the heads are not merged: (batch, head, n, d_head) was cut into rows as it lay in memory, which mixes words. "
        "Swap heads and positions back before you flatten": _unmerged,
        "`W_O` is missing: the heads' results lie side by side, and nothing has mixed them": _without_output,
        "the input is added here: `Residual` does that, so this would add it twice": (
            lambda layer, x: x + attend.reference(layer, x)
        ),
    }
)
