"""The first exercises of lesson 09; the others are in exercises.py."""

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

# ---- shift the targets -------------------------------------------------------------------------------------------


def _ids() -> list[tuple[Tensor]]:
    several = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9]])
    padded = torch.tensor([[1, 4, 6, 3], [1, 3, 0, 0]])
    return [(several,), (torch.tensor([[2, 7]]),), (padded,)]


@exercise(
    cases=_ids,
    hints=[
        "Write the ids of one row down, and below each the id that comes next. Which one has nothing below it?",
        "Both parts are one shorter than the text: the inputs leave out the last id, the targets the first.",
    ],
)
def shift(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-1], ids[:, 1:]


shift.mistakes(
    {
        "the targets are the inputs: the model sees the answer, and learns to copy it": lambda ids: (ids, ids),
        "both parts leave out the last id, so each target is its own input: nothing is shifted": (
            lambda ids: (ids[:, :-1], ids[:, :-1])
        ),
        "the wrong way round: this asks for the id before, which a causal model has already seen": (
            lambda ids: (ids[:, 1:], ids[:, :-1])
        ),
        "the last input has no target: a model that gets all ids gives one row of logits too many": (
            lambda ids: (ids, ids[:, 1:])
        ),
        "`roll` goes round the circle: the last target is the first id of the text, which does not come next": (
            lambda ids: (ids, ids.roll(-1, dims=1))
        ),
        (
            "shifted twice: each target is the id after the next. So does a loss that shifts by itself and is given "
            "shifted targets; it falls, and the texts lack every second token"
        ): lambda ids: (ids[:, :-2], ids[:, 2:]),
        "shifted over the batch: time is the second axis, and row i + 1 is another text": (
            lambda ids: (ids[:-1], ids[1:])
        ),
        "padding is shifted like any other id: that it does not count is for the loss to say": (
            lambda ids: (ids[:, :-1], ids[:, 1:].masked_fill(ids[:, 1:] == 0, -100))
        ),
    }
)

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
    """Queries or keys, (batch, heads, n, d_head), turned by their positions as the lesson does it."""
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
        "`F.scaled_dot_product_attention(q, k, v, is_causal=True)` scales, masks and mixes. It returns (batch, heads, "
        "n, d_head); `W_O` wants (batch, n, d_model), with the heads of one word side by side.",
    ],
)
def attend(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (layer.split(W(x)) for W in (layer.W_Q, layer.W_K, layer.W_V))
    mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
    return layer.W_O(mixed.transpose(1, 2).flatten(2))


Heads = tuple[Tensor, Tensor, Tensor]  # queries, keys, values: (batch, heads, n, d_head)


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
        "the heads are not merged: (batch, heads, n, d_head) was cut into rows as it lay in memory, which mixes words. "
        "Swap heads and positions back before you flatten": _unmerged,
        "`W_O` is missing: the heads' results lie side by side, and nothing has mixed them": _without_output,
        "the input is added here: `Residual` does that, so this would add it twice": (
            lambda layer, x: x + attend.reference(layer, x)
        ),
    }
)

# ---- how many numbers does GPT-2 have? ---------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int, int, int]]:
    return [(50_257, 1024, 768, 12, 3072, 12), (50_257, 1024, 1600, 25, 6400, 48), (11, 7, 6, 3, 5, 2)]


@exercise(
    cases=_sizes,
    hints=[
        "A linear layer from n to m has n · m + m numbers, a layer norm 2 · d_model. Each block begins both branches "
        "with a norm; what stands behind the last block?",
        "Two tables, `layers` blocks of four matrices of attention, two of the feed-forward net and two norms, and one "
        "norm at the end. The output's matrix is the table of words again.",
    ],
)
def count_parameters(vocab: int, context: int, d_model: int, heads: int, d_ff: int, layers: int) -> int:
    norm = 2 * d_model
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = (d_model * d_ff + d_ff) + (d_ff * d_model + d_model)
    return (vocab + context) * d_model + layers * (norm + attention + norm + feed_forward) + norm


def _count(*sizes: int, but: Callable[[int, int, int, int, int, int], int]) -> int:
    """The right count less what `but` says."""
    return count_parameters.reference(*sizes) - but(*sizes)


NOT_COUNTED: dict[str, Callable[[int, int, int, int, int, int], int]] = {
    "the output's matrix is counted as well: it is the table of words once more, and learned once": (
        lambda vocab, context, d, heads, d_ff, layers: -vocab * d
    ),
    "positions have a table, too, a vector for each that the model can read": (
        lambda vocab, context, d, heads, d_ff, layers: context * d
    ),
    "the table of words is missing, which in the smallest GPT-2 is a third of the whole": (
        lambda vocab, context, d, heads, d_ff, layers: vocab * d
    ),
    "the norm behind the last block is missing: pre-norm blocks leave a sum that nobody has normalized": (
        lambda vocab, context, d, heads, d_ff, layers: 2 * d
    ),
    "the layer norms are missing: two a block and one at the end, a gain and a shift each": (
        lambda vocab, context, d, heads, d_ff, layers: (2 * layers + 1) * 2 * d
    ),
    "a block has two layer norms, one before attention and one before the feed-forward net": (
        lambda vocab, context, d, heads, d_ff, layers: layers * 2 * d
    ),
    "the biases are missing: every linear layer of GPT-2 has one, as wide as its output": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (5 * d + d_ff)
    ),
    "biases and layer norms are missing: 12 · layers · d² and the tables are near, but asked for is all of it": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (5 * d + d_ff) + (2 * layers + 1) * 2 * d
    ),
    "this is `matrix_count`, what a token is multiplied by: positions, biases and norms are learned as well": (
        lambda vocab, context, d, heads, d_ff, layers: context * d + layers * (5 * d + d_ff) + (2 * layers + 1) * 2 * d
    ),
    "attention has four matrices: queries, keys, values, and W_O, which mixes what the heads found": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (d * d + d)
    ),
    "the feed-forward net has two matrices: one widens to d_ff, one narrows to d_model again": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (d_ff * d + d)
    ),
    "each head is d_model / heads wide: all heads together are d_model wide, however many there are": (
        lambda vocab, context, d, heads, d_ff, layers: -layers * 3 * (heads - 1) * (d * d + d)
    ),
    "a layer norm has a shift as well as a gain: 2 · d_model numbers": (
        lambda vocab, context, d, heads, d_ff, layers: (2 * layers + 1) * d
    ),
    "d_ff is given and need not be 4 · d_model": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (2 * d + 1) * (d_ff - 4 * d)
    ),
}
count_parameters.mistakes({message: partial(_count, but=but) for message, but in NOT_COUNTED.items()})

# ---- the first loss ----------------------------------------------------------------------------------------------


def _beginnings() -> list[tuple[int, int, float]]:
    return [(50_257, 768, 0.02), (65, 128, 0.02), (103, 64, 0.1), (1000, 64, 0.0)]


@exercise(
    cases=_beginnings,
    hints=[
        "The loss is log Σ e^z minus the target's logit z. What is the mean of that logit, if the model knows nothing? "
        "And what would the sum be, were all logits 0?",
        "A logit is the dot product of a vector of length √d_model with a row of d_model numbers of standard deviation "
        "std. What is its variance s²? A normal z with mean 0 has the mean of e^z at e^{s²/2}.",
    ],
)
def first_loss(vocab: int, d_model: int, std: float) -> float:
    variance = d_model * std**2
    return math.log(vocab) + variance / 2


first_loss.mistakes(
    {
        "ln(vocab) is what equal logits give; these differ by chance, and their spread costs a little more": (
            lambda vocab, d_model, std: math.log(vocab)
        ),
        "this is in bits: a loss is in nats, so take the natural logarithm": (
            lambda vocab, d_model, std: math.log2(vocab) + d_model * std**2 / 2
        ),
        "the mean of e^z is e to half the variance: divide by 2": (
            lambda vocab, d_model, std: math.log(vocab) + d_model * std**2
        ),
        "std is a standard deviation: the variance is its square": (
            lambda vocab, d_model, std: math.log(vocab) + d_model * std / 2
        ),
        "one product has this variance; a logit is the sum of d_model of them": (
            lambda vocab, d_model, std: math.log(vocab) + std**2 / 2
        ),
        "a variance does not grow with d_model²: d_model products that do not depend on each other add up": (
            lambda vocab, d_model, std: math.log(vocab) + (d_model * std) ** 2 / 2
        ),
        "the sign: guesses that differ by chance are worse than equal ones, not better": (
            lambda vocab, d_model, std: math.log(vocab) - d_model * std**2 / 2
        ),
        "√d_model · std is the standard deviation of a logit: the mean of e^z takes half of its square, the variance": (
            lambda vocab, d_model, std: math.log(vocab) + math.sqrt(d_model) * std / 2
        ),
    }
)
