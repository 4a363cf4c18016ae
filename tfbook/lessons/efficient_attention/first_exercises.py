"""The first exercises of lesson 15, on states of the online softmax; the others are in exercises.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tfbook.course.exercises import exercise, randn

State = tuple[Tensor, Tensor, Tensor]  # of the online softmax: highest and total (query, 1), mixture (query, d)


def _state(keys: int, shift: float, seed: int) -> State:
    """Of three queries and some keys; without any key, of what has not begun."""
    scores, values = randn(3, keys, seed=seed) + shift, randn(keys, 2, seed=seed + 10)
    if not keys:
        return torch.full((3, 1), -torch.inf), torch.zeros(3, 1), torch.zeros(3, 2)
    highest = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - highest)
    return highest, weights.sum(dim=-1, keepdim=True), weights @ values


def _states() -> list[tuple[State, State]]:
    """Where either holds the highest score, where one or both have seen nothing, and where exp(score) is infinite."""
    return [
        (_state(5, 0.0, 1), _state(4, 3.0, 21)),
        (_state(4, 0.0, 2), _state(6, -3.0, 22)),
        (_state(0, 0.0, 3), _state(3, 0.0, 23)),
        (_state(3, 0.0, 5), _state(0, 0.0, 25)),
        (_state(0, 0.0, 6), _state(0, 0.0, 26)),
        (_state(3, 200.0, 4), _state(5, 203.0, 24)),
    ]


# ---- one step of the online softmax ------------------------------------------------------------------------------


def _tiles() -> list[tuple[State, Tensor, Tensor, Tensor, Tensor]]:
    """Where all is seen, and nothing came before; a triangle; a query that sees nothing, now or ever; large scores."""
    part = torch.ones(3, 4, dtype=torch.bool).tril(1)
    hidden = torch.tensor([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    kinds = [
        (_state(0, 0.0, 1), 1.0, part | True),
        (_state(5, 0.0, 2), 1.0, part),
        (_state(4, -3.0, 3), 1.0, hidden),
        (_state(0, 0.0, 4), 1.0, hidden),
        (_state(5, 200.0, 5), 20.0, part),
    ]
    return [
        (state, size * randn(3, 5, seed=i + 30), size * randn(4, 5, seed=i + 40), randn(4, 2, seed=i + 50), seen)
        for i, (state, size, seen) in enumerate(kinds)
    ]


@exercise(
    cases=_tiles,
    hints=[
        "These are the five lines of the formula. Scores that are not seen become −∞ before the maximum is taken.",
        "`m.maximum(scores.amax(dim=-1, keepdim=True))` is the new maximum; c = exp(m − m_new) shrinks the total and "
        "the mixture that are there, and exp(scores − m_new) are the weights of the new keys.",
        "A query that has seen nothing has m_new = −∞, and −∞ − (−∞) is NaN. Its total and mixture are 0, its weights "
        "should be 0: `nan_to_num()` after exp makes them so.",
    ],
    differentiable=False,
)
def tile_step(
    state: State,
    Q: Float[Tensor, "query d"],
    K: Float[Tensor, "key d"],
    V: Float[Tensor, "key d_v"],
    seen: Bool[Tensor, "query key"],
) -> State:
    m, total, mixture = state
    scores = (Q @ K.T / math.sqrt(Q.shape[-1])).masked_fill(~seen, -torch.inf)
    m_new = m.maximum(scores.amax(dim=-1, keepdim=True))
    c, weights = (torch.exp(x - m_new).nan_to_num() for x in (m, scores))
    return m_new, c * total + weights.sum(dim=-1, keepdim=True), c * mixture + weights @ V


def _stepped(state: State, Q: Tensor, K: Tensor, V: Tensor, seen: Tensor, kind: str, fill: float = -torch.inf) -> State:
    """One step with a mistake of some kind."""
    m, total, mixture = state
    scale = 1.0 if kind == "scale" else math.sqrt(Q.shape[-1])
    scores = (Q @ K.T / scale).masked_fill(~seen, fill)
    highest = scores.amax(dim=-1, keepdim=True)
    m_new = highest if kind == "own maximum" else m.maximum(highest)
    exponents = {"upside down": m_new - m}.get(kind, m - m_new)
    c, weights = (torch.exp(x) if kind == "nan" else torch.exp(x).nan_to_num() for x in (exponents, scores - m_new))
    c_total, c_mixture = (torch.ones_like(c) if kind in (part, "none") else c for part in ("total", "mixture"))
    after = c_total * total + weights.sum(dim=-1, keepdim=True), c_mixture * mixture + weights @ V
    return m_new, after[0], after[1] / after[0] if kind == "divided" else after[1]


tile_step.mistakes(
    {
        "this is the largest score of the tile alone: keep the larger of it and the one so far": (
            lambda state, Q, K, V, seen: (
                (Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill(~seen, -torch.inf).amax(dim=-1, keepdim=True),
                *tile_step.reference(state, Q, K, V, seen)[1:],
            )
        ),
        "nothing shrinks: when the maximum rises, total and mixture are multiplied by c": partial(
            _stepped, kind="none"
        ),
        "the total shrinks, the mixture does not: multiply both by c": partial(_stepped, kind="mixture"),
        "the mixture shrinks, the total does not: multiply both by c": partial(_stepped, kind="total"),
        "the factor is upside down: c = exp(m_old − m_new) is at most 1": partial(_stepped, kind="upside down"),
        "this maximum is the tile's own: the new one is the larger of it and the one before": partial(
            _stepped, kind="own maximum"
        ),
        "divided too early: the mixture stays a sum, and is divided by the total after the last tile": partial(
            _stepped, kind="divided"
        ),
        "scores are divided by √d, in a tile as anywhere": partial(_stepped, kind="scale"),
        "a key that is not seen has the score 0 here, and e⁰ = 1 gives it weight. Use −∞": partial(
            _stepped, kind="", fill=0.0
        ),
        "a query that sees nothing must keep its state; yours averages hidden keys, since −1e9 is a score like any "
        "other where no score is larger. Use −∞": partial(_stepped, kind="", fill=-1e9),
        "a query that sees nothing must keep its state; yours averages hidden keys, since the lowest float is a score "
        "like any other where no score is larger. Use −∞": partial(
            _stepped, kind="", fill=torch.finfo(torch.float32).min
        ),
        "`seen` is not used: a key that is not seen gets the score −∞": (
            lambda state, Q, K, V, seen: tile_step.reference(state, Q, K, V, seen | True)
        ),
        "a query that has seen nothing gives NaN, since −∞ − (−∞) is NaN: its total and mixture stay 0": partial(
            _stepped, kind="nan"
        ),
    }
)

# ---- two states of the online softmax, merged --------------------------------------------------------------------


@exercise(
    cases=_states,
    hints=[
        "What is exp(s − new) when you have exp(s − old)? The two differ by one factor for all the keys of a machine.",
        "With `higher`, the maximum of the two, that factor is exp(highest − higher), one for each machine. Total and "
        "mixture both hold exponentials, so both are multiplied by it; then add.",
        "Where neither machine has a key, −∞ − (−∞) is NaN. The sums there are 0, so any finite factor will do.",
    ],
    differentiable=False,
)
def merge(one: State, other: State) -> State:
    higher = one[0].maximum(other[0])
    first, second = (torch.exp(highest - higher).nan_to_num() for highest, _, _ in (one, other))
    return higher, first * one[1] + second * other[1], first * one[2] + second * other[2]


def _merged(one: State, other: State, first: Callable = torch.exp, second: Callable = torch.exp) -> State:
    """With factors that are other functions of how far each state's maximum is from the higher one, a number ≤ 0."""
    higher = one[0].maximum(other[0])
    a, b = first(one[0] - higher), second(other[0] - higher)
    return higher, a * one[1] + b * other[1], a * one[2] + b * other[2]


merge.mistakes(
    {
        "the smaller of the two maxima: the state of all keys holds the larger": (
            lambda one, other: (torch.minimum(one[0], other[0]), *merge.reference(one, other)[1:])
        ),
        "maxima are not sums: of two of them, the larger is that of all keys": (
            lambda one, other: (one[0] + other[0], *merge.reference(one, other)[1:])
        ),
        "each is relative to its own maximum: both have to be brought to the higher of the two before you add": (
            partial(_merged, first=torch.ones_like, second=torch.ones_like)
        ),
        "one of them only is brought to the common maximum: either machine may have seen the higher score": (
            partial(_merged, second=torch.ones_like)
        ),
        "the factors are upside down: what is lower shrinks by exp(highest − higher)": (
            partial(_merged, first=lambda below: torch.exp(-below), second=lambda below: torch.exp(-below))
        ),
        "the totals shrink, the mixtures do not: both are sums of exponentials relative to an old maximum": (
            lambda one, other: (*_merged(one, other)[:2], one[2] + other[2])
        ),
        "divided too early: the mixture stays a sum, and is divided by the total once, at the very end": (
            lambda one, other: (*(state := _merged(one, other))[:2], state[2] / state[1])
        ),
        "two machines without keys give NaN, since −∞ − (−∞) is NaN: together they still have −∞, 0, and 0": _merged,
        "two machines without keys have a highest score of −∞; yours became a number": (
            lambda one, other: (merge.reference(one, other)[0].nan_to_num(), *merge.reference(one, other)[1:])
        ),
        "the mixtures shrink, the totals do not: both are sums of exponentials relative to an old maximum": (
            lambda one, other: (
                (right := merge.reference(one, other))[0],
                one[1] + other[1],
                right[2],
            )
        ),
        "everything is added, the maxima as well: the highest score of all keys is the larger of the two": (
            lambda one, other: tuple(a + b for a, b in zip(one, other, strict=True))
        ),
        "divided too early: mixtures stay sums until the very end; and without any key, this is 0 divided by 0": (
            lambda one, other: (*(state := merge.reference(one, other))[:2], state[2] / state[1])
        ),
    }
)
