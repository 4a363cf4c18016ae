"""Exercises of lesson 16 on speculative decoding: the rule of acceptance, what follows a rejection, and the best k."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.course.exercises import exercise, randn

# ---- the rule of acceptance --------------------------------------------------------------------------------------


def _proposals() -> list[tuple[Tensor, Tensor, int, float]]:
    """p, q, the proposed token, u: where p is larger, equal, smaller and zero; u close to p / q, and 0."""
    p, q = torch.tensor([0.6, 0.1, 0.3, 0.0]), torch.tensor([0.3, 0.4, 0.2, 0.1])
    drawn = [(0, 0.99), (1, 0.24), (1, 0.26), (1, 0.0), (2, 0.999), (3, 0.0), (3, 0.5), (1, 0.09), (1, 0.9), (2, 0.4)]
    same = torch.tensor([0.25, 0.75])
    large, small = torch.tensor([0.05, 0.95]), torch.tensor([0.5, 0.5])
    return [(p, q, token, u) for token, u in drawn] + [(same, same, 0, 0.9), (large, small, 0, 0.07)]


@exercise(
    cases=_proposals,
    hints=[
        "The token is accepted with probability min(1, p(x) / q(x)), and u is as likely to lie anywhere in [0, 1).",
        "A number that is uniform on [0, 1) is below r with probability r, for r from 0 to 1.",
    ],
    differentiable=False,
)
def accept(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], token: int, u: float) -> bool:
    return bool(u < p[token] / q[token])


accept.mistakes(
    {
        "u is compared with a difference: the token is accepted with probability p(x) / q(x), where that is below 1": (
            lambda p, q, token, u: bool(u < p[token] - q[token])
        ),
        "everything is accepted: then the text is the draft's": lambda p, q, token, u: True,
        "the quotient is upside down: what the large model finds likelier than the draft is always accepted": (
            lambda p, q, token, u: bool(u < q[token] / p[token])
        ),
        "this accepts with probability p(x). The draft has chosen x with probability q(x) already, so divide by it": (
            lambda p, q, token, u: bool(u < p[token])
        ),
        "no chance is left: where p(x) is below q(x), it is accepted sometimes, with probability p(x) / q(x)": (
            lambda p, q, token, u: bool(p[token] >= q[token])
        ),
        "a token to which the large model gives probability 0 must never be accepted, not even with u = 0": (
            lambda p, q, token, u: bool(u <= p[token] / q[token])
        ),
        "it is accepted when u is below the quotient; yours accepts when it is above": (
            lambda p, q, token, u: bool(u > p[token] / q[token])
        ),
        "the likeliest token isn't the only one that may be accepted: sampling takes others, too": (
            lambda p, q, token, u: bool(p.argmax() == token)
        ),
        "a difference is not a probability of acceptance: use the quotient": (
            lambda p, q, token, u: bool(u < 1 - (q[token] - p[token]))
        ),
    }
)

# ---- what follows a rejection ------------------------------------------------------------------------------------


def _pairs() -> list[tuple[Tensor, Tensor]]:
    pairs = [(torch.tensor([0.6, 0.1, 0.3]), torch.tensor([0.3, 0.5, 0.2]))]
    pairs += [(torch.tensor([0.0, 1.0]), torch.tensor([0.9, 0.1]))]
    return pairs + [(randn(7, seed=i).softmax(dim=0), (2 * randn(7, seed=i + 9)).softmax(dim=0)) for i in range(3)]


@exercise(
    cases=_pairs,
    hints=[
        "After a rejection, only tokens are missing that the draft proposes too rarely: those with p(x) > q(x).",
        "max(0, p − q) says how much is missing of each; divide by the sum, so that it is a distribution.",
    ],
    differentiable=False,
)
def residual(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"]) -> Float[Tensor, " vocab"]:
    missing = (p - q).clamp(min=0)
    return missing / missing.sum()


residual.mistakes(
    {
        "max(0, p − q) has to be divided by its sum: probabilities sum to 1": lambda p, q: (p - q).clamp(min=0),
        "this is p again. Tokens that the draft proposes have come through acceptance already, and would come too "
        "often": lambda p, q: p.clone(),
        "this is the other side: tokens that the draft proposes too often. Missing are those with p > q": (
            lambda p, q: (q - p).clamp(min=0) / (q - p).clamp(min=0).sum()
        ),
        "|p − q| counts what the draft proposes too often as well": lambda p, q: (p - q).abs() / (p - q).abs().sum(),
        "a softmax of p − q gives every token some probability, also those that are not missing": (
            lambda p, q: (p - q).softmax(dim=0)
        ),
        "p where p > q is too much: of such a token only p − q is missing": (
            lambda p, q: torch.where(p > q, p, 0.0) / torch.where(p > q, p, 0.0).sum()
        ),
    }
)

# ---- how many to propose -----------------------------------------------------------------------------------------

MOST = 16


def _bargains() -> list[tuple[float, float, float]]:
    """α, the draft's step and what each judged token adds, in steps of the large model."""
    return [
        (0.8, 0.05, 0.0),
        (0.8, 0.05, 0.2),
        (0.6, 0.3, 0.2),
        (0.5, 0.5, 0.3),
        (0.0, 0.1, 0.0),
        (0.9, 0.01, 0.01),
        (0.99, 0.0, 0.0),
        (0.87, 0.3, 0.0),
        (0.7, 0.2, 0.05),
    ]


@exercise(
    cases=_bargains,
    hints=[
        "Write the speedup for one k first: tokens per round, divided by the time of a round in steps.",
        "Tokens: 1 + α + α² + … + α^k. Time: k · cost for the draft, and 1 + k · extra for the pass that judges.",
        "`max(range(17), key=speedup)` returns the first k with the largest speedup.",
    ],
    differentiable=False,
)
def best_k(alpha: float, cost: float, extra: float) -> int:
    def speedup(k: int) -> float:
        return sum(alpha**i for i in range(k + 1)) / (k * cost + 1 + k * extra)

    return max(range(MOST + 1), key=speedup)


def _best(alpha: float, cost: float, extra: float, *, first: int = 0, tokens: str = "", most: int = MOST) -> int:
    def speedup(k: int) -> float:
        made = sum(alpha**i for i in range(1 if tokens == "accepted" else 0, k + 1))
        made = k * alpha + 1 if tokens == "linear" else made
        return made / (k * cost + 1 + k * extra)

    return max(range(first, most + 1), key=speedup)


best_k.mistakes(
    {
        "this is the speedup itself: return the k that brings it": (
            lambda alpha, cost, extra: max(
                sum(alpha**i for i in range(k + 1)) / (1 + k * (cost + extra)) for k in range(17)
            )
        ),
        (
            "a round of k guesses writes 1 + k words only if all are accepted: those before the first rejection "
            "count, too"
        ): (lambda alpha, cost, extra: max(range(17), key=lambda k: (1 + k * alpha**k) / (1 + k * (cost + extra)))),
        "sometimes it is best to propose nothing: k = 0 is among the choices": partial(_best, first=1),
        "a pass writes one token more than it accepts: the sum begins with α⁰ = 1": partial(_best, tokens="accepted"),
        "a proposal counts only if all before it were accepted: α + α² + …, not k · α": partial(_best, tokens="linear"),
        "the draft's steps take time as well": lambda alpha, cost, extra: _best(alpha, 0.0, extra),
        "judging more tokens takes longer here: the pass costs 1 + k · extra": (
            lambda alpha, cost, extra: _best(alpha, cost, 0.0)
        ),
        "k = 16 is among the choices, too": partial(_best, most=MOST - 1),
    }
)
