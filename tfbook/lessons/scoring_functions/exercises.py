"""Exercises of lesson 02: scores from their formulas, temperature, and which score fits which task."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import unshifted, with_scores

# ---- the cosine score --------------------------------------------------------------------------------------------


def _directions() -> list[tuple[Tensor, Tensor, float]]:
    # as many sentences as keys and entries, so that a wrong axis gives a wrong number and not an error about shapes
    return [
        (3 * randn(3, 3, seed=1), randn(3, 3, 3, seed=2), 5.0),
        (0.2 * randn(1, 4, seed=3), 0.3 * randn(1, 6, 4, seed=4), 0.5),  # shorter than 1
        (randn(2, 5, seed=26), randn(2, 4, 5, seed=27), 2.0),
    ]


@exercise(
    cases=_directions,
    hints=[
        "cos(q, k) = q · k / (|q| |k|). `keys.norm(dim=-1)` gives the length of every key.",
        "The products are `torch.einsum('bd,bkd->bk', query, keys)`; the query's length needs an axis: `keepdim=True`.",
    ],
)
def cosine_score(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    products = torch.einsum("bd,bkd->bk", query, keys)
    return sharpness * products / (query.norm(dim=-1, keepdim=True) * keys.norm(dim=-1))


cosine_score.mistakes(
    {
        "this is the dot product: a key gets a larger score by being longer; divide by both lengths": (
            lambda query, keys, sharpness: sharpness * torch.einsum("bd,bkd->bk", query, keys)
        ),
        "the query's length is still in the score: a longer query would make the choice sharper": (
            lambda query, *rest: cosine_score.reference(query, *rest) * query.norm(dim=-1, keepdim=True)
        ),
        "the keys' lengths are still in the score: a key gets a larger score by being longer": (
            lambda query, keys, sharpness: cosine_score.reference(query, keys, sharpness) * keys.norm(dim=-1)
        ),
        "you took one length for the whole batch: each query and each key has its own, over its entries (dim=-1)": (
            lambda query, keys, sharpness: (
                sharpness * torch.einsum("bd,bkd->bk", query, keys) / (query.norm() * keys.norm(dim=-1))
            )
        ),
        "the sharpness multiplies the cosine; dividing by it makes it a temperature": (
            lambda query, keys, sharpness: cosine_score.reference(query, keys, 1 / sharpness)
        ),
        "the sharpness is missing: with scores between −1 and 1 no softmax gets sharp": (
            lambda query, keys, sharpness: cosine_score.reference(query, keys, 1.0)
        ),
        "lengths below 1 are raised to 1, so short vectors count less: to guard against 0 clamp far lower": (
            lambda q, k, sharpness: (
                sharpness * torch.einsum("bd,bkd->bk", *(x / x.norm(dim=-1, keepdim=True).clamp(min=1) for x in (q, k)))
            )
        ),
        "a divisor below 1 is raised to 1, so short vectors count less: to guard against 0 clamp far lower": (
            lambda q, k, sharpness: (
                sharpness
                * torch.einsum("bd,bkd->bk", q, k)
                / (q.norm(dim=-1, keepdim=True) * k.norm(dim=-1)).clamp(min=1)
            )
        ),
        "you took lengths along the axis of the keys: each key has its own length, over its entries (dim −1)": (
            lambda q, k, sharpness: sharpness * torch.einsum("bd,bkd->bk", F.normalize(q), F.normalize(k, dim=1))
        ),
        "you divided by the squares of the lengths: a length is the root of the sum of squares": (
            lambda q, k, *rest: cosine_score.reference(q, k, *rest) / (q.norm(dim=-1)[:, None] * k.norm(dim=-1))
        ),
        "these are weights, one softmax too far: the exercise asks for the scores": (
            lambda *case: torch.softmax(cosine_score.reference(*case), dim=-1)
        ),
    }
)

# ---- the general score -------------------------------------------------------------------------------------------


def _queries_keys_matrix() -> list[tuple[Tensor, Tensor, Tensor]]:
    square = randn(2, 3, 3, seed=5), randn(2, 3, 3, seed=6), randn(3, 3, seed=7)
    return [square, (randn(2, 3, 2, seed=8), randn(2, 5, 4, seed=9), randn(2, 4, seed=10))]


@exercise(
    cases=_queries_keys_matrix,
    hints=[
        "qᵀ W k is a sum over both widths. `query @ W` brings the queries into the space of the keys.",
        "Then every query meets every key: (batch, query, d_key) @ (batch, d_key, key). `.mT` swaps the last two axes.",
    ],
)
def general_score(query: Tensor, keys: Tensor, W: Tensor) -> Tensor:
    return query @ W @ keys.mT


general_score.mistakes(
    {
        "W is transposed: its rows belong to the query, its columns to the key": (
            lambda query, keys, W: query @ W.T @ keys.mT
        ),
        "rows and columns are exchanged: the result is (batch, query, key), one row per query": (
            lambda query, keys, W: (query @ W @ keys.mT).mT
        ),
        "you divided by √d: the general score has no scale, and W can learn one": (
            lambda query, keys, W: query @ W @ keys.mT / math.sqrt(keys.shape[-1])
        ),
        "these are weights: the exercise asks for the scores, before the softmax": (
            lambda query, keys, W: torch.softmax(query @ W @ keys.mT, dim=-1)
        ),
        "the sentences of the batch are mixed up: a query should meet only the keys of its own sentence": (
            lambda query, keys, W: query @ W @ keys.sum(dim=0, keepdim=True).mT
        ),
    }
)

# ---- the scaled dot score ----------------------------------------------------------------------------------------


def _queries_and_keys() -> list[tuple[Tensor, Tensor]]:
    square = randn(2, 3, 4, seed=11), randn(2, 3, 4, seed=12)
    return [
        square,
        (randn(1, 2, 9, seed=13), randn(1, 6, 9, seed=14)),
        (randn(3, 2, 5, seed=28), randn(3, 4, 5, seed=29)),
    ]


@exercise(
    cases=_queries_and_keys,
    hints=[
        "(batch, query, d) and (batch, key, d) become (batch, query, key): d is summed over.",
        "`query @ keys.mT` are all products. d is `query.shape[-1]`, and its root is `math.sqrt(d)`.",
    ],
)
def scaled_dot_score(query: Tensor, keys: Tensor) -> Tensor:
    return query @ keys.mT / math.sqrt(query.shape[-1])


scaled_dot_score.mistakes(
    {
        "the scale is missing: the variance of these scores is d, and the softmax saturates": (
            lambda query, keys: query @ keys.mT
        ),
        "1/d is too much: the standard deviation grows with √d, and 1/d leaves 1/√d of it": (
            lambda query, keys: query @ keys.mT / query.shape[-1]
        ),
        "you multiplied by √d: that makes large scores larger still": (
            lambda query, keys: query @ keys.mT * math.sqrt(query.shape[-1])
        ),
        "you divided by the root of the number of keys; d is the width of a query": (
            lambda query, keys: query @ keys.mT / math.sqrt(keys.shape[1])
        ),
        "rows and columns are exchanged: the result is (batch, query, key), one row per query": (
            lambda query, keys: scaled_dot_score.reference(keys, query)
        ),
        "these are weights, one softmax too far: the exercise asks for the scores": (
            lambda query, keys: torch.softmax(scaled_dot_score.reference(query, keys), dim=-1)
        ),
        "this is the cosine: √d is one number for all, the lengths of q and k stay in the score": (
            lambda query, keys: query @ keys.mT / (query.norm(dim=-1)[:, :, None] * keys.norm(dim=-1)[:, None])
        ),
    }
)

# ---- a soft lookup that hardens ----------------------------------------------------------------------------------


def _lookups() -> list[tuple[Tensor, Tensor, float]]:
    scores, values = randn(3, 4, seed=15), randn(4, 2, seed=16)
    close = torch.tensor([[0.0, 1e-20, -1.0, -2.0], [-3.0, 1e-20, 0.0, -1.0]])
    cold = torch.tensor([[0.0, 1e-3, -1.0, -2.0]]), values, 1e-3
    return [*((scores, values, temperature) for temperature in (1.0, 0.2, 0.01, 0.0, 5.0)), (close, values, 0.0), cold]


@exercise(
    cases=_lookups,
    hints=[
        "Temperature T divides the scores before the softmax; `weights @ values` mixes the values.",
        "T = 0 would divide by zero. Its limit is one-hot: return `values[scores.argmax(dim=-1)]`.",
    ],
)
def soft_lookup(scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return values[scores.argmax(dim=-1)]
    return torch.softmax(scores / temperature, dim=-1) @ values


def _warm(scores: Tensor, values: Tensor, temperature: float, *, weigh: Callable[[Tensor, float], Tensor]) -> Tensor:
    """Right at temperature 0, and elsewhere with the weights `weigh(scores, temperature)`."""
    return soft_lookup.reference(scores, values, 0.0) if temperature == 0 else weigh(scores, temperature) @ values


soft_lookup.mistakes(
    {
        "at temperature 0 you divide by zero and get NaN; return the value of the largest score there": (
            lambda scores, values, temperature: torch.softmax(scores / temperature, dim=-1) @ values
        ),
        "you multiplied by the temperature: a cold lookup should be sharp, yours becomes even": (
            lambda scores, values, temperature: torch.softmax(scores * temperature, dim=-1) @ values
        ),
        "at temperatures above 0 you multiplied by it: a cold lookup should be sharp, yours becomes even": (
            partial(_warm, weigh=lambda scores, temperature: torch.softmax(scores * temperature, dim=-1))
        ),
        "the temperature is not used above 0: divide the scores by it": (
            partial(_warm, weigh=lambda scores, temperature: torch.softmax(scores, dim=-1))
        ),
        "this takes the best value at every temperature: nothing soft is left": (
            lambda scores, values, temperature: values[scores.argmax(dim=-1)]
        ),
        "the temperature belongs inside: divide the scores before the softmax, not the weights after it": (
            partial(_warm, weigh=lambda scores, temperature: torch.softmax(scores, dim=-1) / temperature)
        ),
        "a temperature that is a little above 0 is not 0: two scores that are close enough still share the weight": (
            lambda scores, values, temperature: torch.softmax(scores / max(temperature, 1e-4), dim=-1) @ values
        ),
        "a lowest temperature of 0.01 is not 0, and every lookup colder than that comes out too soft": (
            lambda scores, values, temperature: torch.softmax(scores / max(temperature, 0.01), dim=-1) @ values
        ),
        "a small temperature is not 0: above 0, scores that are as close as it is small still share the weight": (
            lambda scores, values, temperature: soft_lookup.reference(
                scores, values, temperature * (temperature > 2e-3)
            )
        ),
        "at low temperatures exp overflows: subtract the row's largest score first, as torch.softmax does": (
            partial(_warm, weigh=lambda scores, temperature: unshifted(scores / temperature, torch.tensor(True)))
        ),
    }
)

# ---- the temperature for a wanted weight -------------------------------------------------------------------------


def _gaps() -> list[tuple[Tensor, float]]:
    pairs = [([2.0, 1.0, 8.0], 0.9), ([0.5, 3.0], 0.99), ([0.01], 0.51), ([500.0, 0.02], 0.6)]
    return [(torch.tensor(gaps), share) for gaps, share in pairs]


@exercise(
    cases=_gaps,
    hints=[
        "With two keys the weights' ratio is exp(gap / T). Which ratio do you want?",
        "share / (1 − share) = exp(gap / T): take the logarithm and solve for T.",
    ],
    differentiable=False,
)
def temperature_for(gap: Tensor, share: float) -> Tensor:
    return gap / math.log(share / (1 - share))


temperature_for.mistakes(
    {
        "this is the inverse, the sharpness β = 1/T": lambda gap, share: math.log(share / (1 - share)) / gap,
        "the other key gets the rest: the ratio of the weights is share / (1 − share), not share": (
            lambda gap, share: gap / math.log(share)
        ),
        "a ratio of weights is exp of a difference of scores: you left out the logarithm": (
            lambda gap, share: gap / (share / (1 - share))
        ),
        "your temperature is negative: it prefers the worse key; the better one has the larger share": (
            lambda gap, share: gap / math.log((1 - share) / share)
        ),
    }
)

# ---- which score for which task ----------------------------------------------------------------------------------

_FITTING = {
    "the keys are counts of words in documents of 10 to 10,000 words; the topic matters": "cosine",
    "the third item of the list, whatever it is": "location",
    "queries of width 300 and keys of width 512, related by some linear map; as cheap as can be": "general",
    "queries and keys of width 512, made by layers that learn to match; as fast as can be trained": "scaled dot",
    "a key matches when its entries have the right squares, whatever their signs": "additive",
}


def _tasks() -> list[tuple[list[str]]]:
    return [([*_FITTING],)]


def _answer(tasks: list[str], **wrong: str) -> list[str]:
    """The right names, some exchanged: `cosine="dot"` says "dot" where "cosine" is right."""
    return [wrong.get(_FITTING[task].replace(" ", "_"), _FITTING[task]) for task in tasks]


@exercise(
    cases=_tasks,
    hints=[
        "Ask of each task: does the content decide, or the place? Do lengths matter? Is there a matrix that would do?",
        "Each of these fits once: additive, cosine, general, location, scaled dot. Plain dot is the best fit for none.",
    ],
)
def which_score(tasks: list[str]) -> list[str]:
    names = {"counts": "cosine", "third": "location", "300": "general", "fast": "scaled dot", "signs": "additive"}
    return [next(name for word, name in names.items() if word in task) for task in tasks]


which_score.mistakes(
    {
        "documents: with a dot product the longest document wins, whatever the topic; compare directions": (
            partial(_answer, cosine="dot")
        ),
        "widths 300 and 512 have no dot product; something has to map one to the other, and a matrix can": (
            partial(_answer, general="dot")
        ),
        "300 and 512: an additive score learns it, too, but it pays a hidden layer per pair; a matrix is enough": (
            partial(_answer, general="additive")
        ),
        "documents: dividing by √d leaves the longest document ahead, whatever the topic; compare directions": (
            partial(_answer, cosine="scaled dot")
        ),
        "the layers already learn a matrix, so W adds nothing; what is left to fix at width 512 is the scale, √d": (
            partial(_answer, scaled_dot="general")
        ),
        "at width 512 the plain dot product has variance 512: the softmax begins saturated; divide by √d": (
            partial(_answer, scaled_dot="dot")
        ),
        "squares are not linear in the key: no matrix W can make them; the additive score has a nonlinearity inside": (
            partial(_answer, additive="general")
        ),
        "'the third item' does not depend on what the items are; no comparison of contents can find it": (
            partial(_answer, location="additive")
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _attention_inputs() -> list[tuple[Tensor, ...]]:
    sizes = [(2, 3, 8, 4), (1, 2, 5, 16)]  # batch, query, key, d
    large = with_scores(torch.tensor([[[2000.0, 1999.0, 1998.0], [-2000.0, -2001.0, -2002.0]]]))
    return [
        *((randn(b, q, d, seed=17), randn(b, k, d, seed=18), randn(b, k, 3, seed=19)) for b, q, k, d in sizes),
        (*large, randn(1, 3, 3, seed=20)),
    ]


@exercise(
    cases=_attention_inputs,
    hints=[
        "Give it one query and a memory, then the same memory with 100 poor keys added. What happened to the scores?",
        "Print `scores.shape`. Which axis is last, and is that the d of √d?",
    ],
)
def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = query @ keys.mT
    scores = scores / math.sqrt(query.shape[-1])
    return torch.softmax(scores, dim=-1) @ values


@attend.given
def _(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = query @ keys.mT
    scores = scores / math.sqrt(scores.shape[-1])
    return torch.softmax(scores, dim=-1) @ values


attend.mistakes(
    {
        "without any scale a longer memory no longer blurs the choice, but a wider query still sharpens it": (
            lambda query, keys, values: torch.softmax(query @ keys.mT, dim=-1) @ values
        ),
        "now the scale is the square root of the number of queries: look at the shape of the scores again": (
            lambda query, keys, values: torch.softmax(query @ keys.mT / math.sqrt(query.shape[1]), dim=-1) @ values
        ),
        "this is the root of the width of the values; d is the width of queries and keys": (
            lambda query, keys, values: torch.softmax(query @ keys.mT / math.sqrt(values.shape[-1]), dim=-1) @ values
        ),
        "right number, but take its square root: 1/d makes the weights nearly even at large d": (
            lambda query, keys, values: torch.softmax(query @ keys.mT / query.shape[-1], dim=-1) @ values
        ),
        "the scale is right, but exp overflows at large scores: subtract the row's largest first, as softmax does": (
            lambda query, keys, values: unshifted(scaled_dot_score.reference(query, keys), torch.tensor(True)) @ values
        ),
        "the softmax runs over the queries: the weights of one query over its keys should sum to 1": (
            lambda query, keys, values: torch.softmax(query @ keys.mT / math.sqrt(query.shape[-1]), dim=1) @ values
        ),
    }
)

# ---- a whole lookup with a learned matrix ------------------------------------------------------------------------


def _memories() -> list[tuple[Tensor, ...]]:
    sizes = [(3, 3, 3, 2), (2, 5, 4, 3)]  # batch, key, d, d_value
    drawn = [
        (randn(b, d, seed=21), randn(b, n, d, seed=22), randn(b, n, v, seed=23), randn(d, d, seed=24))
        for b, n, d, v in sizes
    ]
    return [*drawn, (torch.tensor([[2000.0, -2000.0]]), torch.eye(2)[None], randn(1, 2, 3, seed=25), torch.eye(2))]


@exercise(
    cases=_memories,
    hints=[
        "Scores and weights are (batch, key), answers are (batch, d_value). `query @ W` is (batch, d).",
        "Give the query an axis of length 1: `(query @ W)[:, None] @ keys.mT` has shape (batch, 1, key).",
        "d is `query.shape[-1]`. `weights @ values` has shape (batch, 1, d_value); `[:, 0]` drops the axis.",
    ],
)
def general_lookup(query: Tensor, keys: Tensor, values: Tensor, W: Tensor) -> Tensor:
    scores = (query @ W)[:, None] @ keys.mT / math.sqrt(query.shape[-1])
    return (torch.softmax(scores, dim=-1) @ values)[:, 0]


def _look_up(query: Tensor, keys: Tensor, values: Tensor, W: Tensor, *, scale: float = 0.0) -> Tensor:
    """The solution with another scale, if one is given."""
    return general_lookup.reference(query * (scale or 1) * math.sqrt(query.shape[-1]), keys, values, W)


def _unnormalized(query: Tensor, keys: Tensor, values: Tensor, W: Tensor) -> Tensor:
    return ((query @ W)[:, None] @ keys.mT / math.sqrt(query.shape[-1]) @ values)[:, 0]


def _transposed(query: Tensor, keys: Tensor, values: Tensor, W: Tensor) -> Tensor:
    return general_lookup.reference(query, keys, values, W.T if W.shape[0] == W.shape[1] else W)


general_lookup.mistakes(
    {
        "the scale is missing: divide the scores by √d before the softmax, where d is the width of the keys": _look_up,
        "1/d is too much: divide the scores by the square root of d": (
            lambda query, *rest: _look_up(query, *rest, scale=1 / query.shape[-1])
        ),
        "W is transposed: its rows belong to the query and its columns to the key, so the score is q W kᵀ": _transposed,
        "the softmax is missing: the values are mixed with the raw scores, which do not sum to 1": _unnormalized,
        "W is never used: this is the scaled dot product": (
            lambda query, keys, values, W: general_lookup.reference(query, keys, values, torch.eye(*W.shape))
        ),
        "the softmax runs over the sentences of the batch: each query's weights over its keys should sum to 1": (
            lambda query, keys, values, W: (
                torch.softmax((query @ W)[:, None] @ keys.mT / math.sqrt(query.shape[-1]), dim=0) @ values
            )[:, 0]
        ),
        "you return the average of the values, whatever the query asks: the weights should come from the scores": (
            lambda query, keys, values, W: values.mean(dim=1)
        ),
    }
)
