"""The exercise of lesson 03 that the rest of the lesson runs on: scores, scale, mask and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import (
    BY_HAND,
    FILLED,
    ZERO_IS_BLOCKED,
    Softmax,
    extreme_scores,
    filled,
    with_scores,
    zero_is_blocked,
)


def _queries_keys_and_masks() -> list[tuple[Tensor, Tensor, Tensor | None]]:
    # the first mask is square and not symmetric, so that one with its axes exchanged raises no error
    some = torch.tensor([[True, True, False, True], [True, False, True, False]])
    square = torch.stack([torch.ones(4, 4, dtype=torch.bool).tril(), some[[0, 1, 0, 1]]])
    extreme, allowed = extreme_scores()
    return [
        (randn(2, 4, 6, seed=31), randn(2, 4, 6, seed=32), square),
        (randn(2, 3, 5, seed=33), randn(2, 4, 5, seed=34), None),
        (randn(2, 2, 3, 6, seed=35), randn(2, 2, 4, 6, seed=36), some[:, None, None]),
        (*with_scores(extreme[None]), allowed[None, None]),
        (torch.zeros(1, 4, 4), randn(1, 4, 4, seed=37), torch.ones(4, 4, dtype=torch.bool).tril()),  # all scores are 0
    ]


@exercise(
    cases=_queries_keys_and_masks,
    hints=[
        "Three steps: scores, one for each query and key; −∞ where the mask is False, if there is one; a softmax.",
        "`q @ k.mT` are the dot products, `q.shape[-1]` is the width, and `scores.masked_fill(~mask, -math.inf)` "
        "blocks. Along which axis must the weights sum to 1?",
    ],
)
def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1)


BLOCKED = filled(-torch.inf)


def _changed(
    q: Tensor, k: Tensor, mask: Tensor | None, *, scale: float | None = None, weigh: Softmax = BLOCKED
) -> Tensor:
    """The solution with another divisor or another masked softmax."""
    scores = q @ k.mT / (scale or math.sqrt(q.shape[-1]))
    return weigh(scores, torch.ones_like(scores, dtype=torch.bool) if mask is None else mask)


def _over_queries(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-2)


def _too_late(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(dim=-1) * mask


def _nothing(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, 0.0).softmax(dim=-1)


def _inverted(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1) if not mask.all() else scores.softmax(dim=-1)


def _on_the_queries(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask.expand_as(scores).mT, -torch.inf).softmax(dim=-1)


def _masked_scores(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf)


UNSCALED = "the scores are not divided by √d, so they spread with the width and the softmax hardens"

MISTAKES: dict[str, Callable[..., Tensor]] = {
    UNSCALED: partial(_changed, scale=1.0),
    "you divided by d; the standard deviation of a sum of d products is √d": (
        lambda q, k, mask: _changed(q, k, mask, scale=float(q.shape[-1]))
    ),
    "you divided by the root of the number of keys; d is the width of a query, the last axis of q": (
        lambda q, k, mask: _changed(q, k, mask, scale=math.sqrt(k.shape[-2]))
    ),
    "you multiplied by √d, where you have to divide": (
        lambda q, k, mask: _changed(q, k, mask, scale=1 / math.sqrt(q.shape[-1]))
    ),
    "√d divides the weights, after the softmax: it belongs to the scores, before it": (
        lambda q, k, mask: _changed(q, k, mask, scale=1.0) / math.sqrt(q.shape[-1])
    ),
    "the softmax runs over the queries; each query needs weights over the keys that sum to 1, `dim=-1`": (
        partial(_changed, weigh=_over_queries)
    ),
    "the mask is not used": lambda q, k, mask: attention_weights.reference(q, k, None),
    "the mask is the wrong way around: True means 'may attend', so block where it is False": (
        partial(_changed, weigh=_inverted)
    ),
    "the mask comes after the softmax: the blocked keys have taken their share, and the rows no longer sum to 1": (
        partial(_changed, weigh=_too_late)
    ),
    "the mask lies on the wrong axes: its rows are queries, its columns keys": (
        partial(_changed, weigh=_on_the_queries)
    ),
    "a score of 0 does not block: exp(0) = 1; fill with −∞ before the softmax": partial(_changed, weigh=_nothing),
    "these are the masked scores; their softmax is missing": partial(_changed, weigh=_masked_scores),
    ZERO_IS_BLOCKED: partial(_changed, weigh=zero_is_blocked),
    f"two slips: {UNSCALED}; and the mask is not used": (lambda q, k, mask: _changed(q, k, None, scale=1.0)),
    f"two slips: {UNSCALED}; and the mask comes after the softmax": (partial(_changed, scale=1.0, weigh=_too_late)),
    f"two slips: {UNSCALED}; and the mask is the wrong way around": (partial(_changed, scale=1.0, weigh=_inverted)),
    f"two slips: {UNSCALED}; and the softmax runs over the queries": (
        partial(_changed, scale=1.0, weigh=_over_queries)
    ),
}
attention_weights.mistakes(
    MISTAKES | {message: partial(_changed, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)
