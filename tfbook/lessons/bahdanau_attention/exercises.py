"""Exercises of lesson 01: attention by hand, from the score to the alignment, and why it has to be soft."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import BY_HAND, FILLED, ZERO_IS_BLOCKED, Softmax, extreme_scores, filled, zero_is_blocked

Links = set[tuple[int, int]]
# ---- the additive score ------------------------------------------------------------------------------------------


def _queries_and_keys() -> list[tuple[Tensor, ...]]:
    sizes = [(1, 3, 2, 2, 4), (2, 5, 3, 4, 6)]  # batch, key, d_query, d_key, d_score
    return [
        (randn(b, q, seed=1), randn(b, n, k, seed=2), randn(a, q, seed=3), randn(a, k, seed=4), randn(a, seed=5))
        for b, n, q, k, a in sizes
    ]


@exercise(
    cases=_queries_and_keys,
    hints=[
        "Start with the shapes: W q is (batch, d_score), U k is (batch, key, d_score). What is missing where?",
        "`(query @ W.T)[:, None]` is (batch, 1, d_score) and broadcasts over the keys. v is a vector: `hidden @ v`.",
    ],
)
def additive_score(query: Tensor, keys: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    hidden = torch.tanh((query @ W.T)[:, None] + keys @ U.T)
    return hidden @ v


additive_score.mistakes(
    {
        "without the tanh the score is linear: the query adds the same number to every key, and softmax removes it": (
            lambda query, keys, W, U, v: ((query @ W.T)[:, None] + keys @ U.T) @ v
        ),
        "you multiplied W q with U k; the additive score adds them before the tanh": (
            lambda query, keys, W, U, v: torch.tanh((query @ W.T)[:, None] * (keys @ U.T)) @ v
        ),
        "W q and U k each have a tanh of their own: add them first, one tanh is around the sum": (
            lambda query, keys, W, U, v: (torch.tanh(query @ W.T)[:, None] + torch.tanh(keys @ U.T)) @ v
        ),
        "the tanh is outside: it squashes the score; put it around W q + U k, before v": (
            lambda query, keys, W, U, v: torch.tanh(((query @ W.T)[:, None] + keys @ U.T) @ v)
        ),
        "the query is missing: every query would look at the same words": (
            lambda query, keys, W, U, v: torch.tanh(keys @ U.T) @ v
        ),
        "these are weights, one softmax too far: the exercise asks for the scores themselves": (
            lambda *case: torch.softmax(additive_score.reference(*case), dim=-1)
        ),
    }
)

# ---- the masked softmax ------------------------------------------------------------------------------------------


def _masked_scores() -> list[tuple[Tensor, Tensor]]:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [True, True, True, True]])
    blocked = torch.tensor([[False, True, True], [False, False, False]])
    extreme, allowed = extreme_scores()
    return [
        (randn(3, 4, seed=6), mask),
        (randn(2, 3, seed=7) * 4, blocked),
        (extreme, allowed.expand_as(extreme)),
        (torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]]), torch.tensor([[True, True, False], [True, True, False]])),
    ]


@exercise(
    cases=_masked_scores,
    hints=[
        "A blocked word needs exp(score) = 0 before the sum is taken, so its score must be −∞ or the lowest number.",
        "A row without an allowed word is 0/0. Use `torch.finfo(scores.dtype).min`, then set blocked weights to 0.",
    ],
)
def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)


# What is done about a row without an allowed word, and what else it does.
_MENDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "": lambda weights, mask: weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0),
    "; zeros in the place of NaN only hide that": lambda weights, mask: weights.nan_to_num(),
    "; and a row in which everything is blocked is 0/0": lambda weights, mask: weights,
}
_ZEROED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "": lambda weights, mask: weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0),
    ", and setting that to 0 afterward leaves a row that does not sum to 1": lambda weights, mask: weights * mask,
}


def _mended(scores: Tensor, mask: Tensor, *, weigh: Softmax, mend: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return mend(weigh(scores, mask), mask)


masked_softmax.mistakes(
    {
        "each row should sum to 1: you set weights to 0 after the softmax, when padding had taken its share": (
            lambda scores, mask: torch.softmax(scores, dim=-1) * mask
        ),
        "a score of 0 is not 'blocked': exp(0) = 1, so padding still gets weight": (
            lambda scores, mask: torch.softmax(scores * mask, dim=-1)
        ),
        "a row in which everything is blocked gives NaN: 0/0; its weights should all be 0": (
            lambda scores, mask: torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
        ),
        "a row in which everything is blocked attends to its padding evenly; its weights should all be 0": (
            lambda scores, mask: torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
        ),
        "the mask is the wrong way around: here True means 'may attend'": (
            lambda scores, mask: masked_softmax.reference(scores, ~mask)
        ),
        "the mask is not used: padding takes part like a word": lambda scores, mask: torch.softmax(scores, dim=-1),
        "the softmax runs over the sentences; each row needs weights over its own words that sum to 1": (
            lambda scores, mask: torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=0) * mask
        ),
        ZERO_IS_BLOCKED: lambda scores, mask: zero_is_blocked(scores, mask).nan_to_num(),
    }
    | {
        message + rest: partial(_mended, weigh=weigh, mend=mend)
        for softmaxes, mends in ((FILLED, _ZEROED), (BY_HAND, _MENDED))
        for message, weigh in softmaxes.items()
        for rest, mend in mends.items()
    }
)

# ---- the context vector ------------------------------------------------------------------------------------------


def _weights_and_states() -> list[tuple[Tensor, Tensor]]:
    # as many target as source words, so that a mixed-up index gives a wrong number and not an error about shapes
    square = [(torch.softmax(randn(2, n, n, seed=8), dim=-1), randn(2, n, 3, seed=9)) for n in (3, 5)]
    return [*square, (randn(3, 2, 4, seed=11), randn(3, 4, 5, seed=12))]


@exercise(
    cases=_weights_and_states,
    hints=[
        "c_t = Σ_j α_tj h_j: the index j is in both tensors and not in the result, so it is the one summed over.",
        "Name the axes: weights are 'b t j', states are 'b j d', and the contexts are 'b t d'.",
    ],
)
def context(weights: Tensor, states: Tensor) -> Tensor:
    return torch.einsum("btj,bjd->btd", weights, states)


context.mistakes(
    {
        "you summed over the target positions t; the context of step t is a sum over the source positions j": (
            partial(torch.einsum, "btj,btd->bjd")
        ),
        "the states are not weighted: this is their plain sum, the same for every step": (
            lambda weights, states: torch.einsum("btj,bkd->btd", torch.ones_like(weights) / weights.shape[2], states)
        ),
        "one softmax too far: these are weights already, and c_t = Σ_j α_tj h_j takes them as they are": (
            lambda weights, states: weights.softmax(dim=-1) @ states
        ),
        "you divided by the number of words; the weights of a step sum to 1 already, so the sum is the mean": (
            lambda weights, states: weights @ states / states.shape[1]
        ),
        "the steps are mixed up: you summed over t as well, which leaves one context a sentence": (
            partial(torch.einsum, "btj,bjd->bd")
        ),
        "the sentences of the batch are mixed up: 'b' must stand in both inputs and in the output": (
            partial(torch.einsum, "btj,cjd->btd")
        ),
    }
)

# ---- the alignment error rate ------------------------------------------------------------------------------------


def _alignments() -> list[tuple[Links, Links, Links]]:
    return [
        ({(0, 0), (1, 2), (2, 1)}, {(0, 0), (1, 2), (2, 1)}, {(0, 0), (1, 2), (2, 1)}),
        ({(0, 0), (1, 1), (2, 2), (3, 2)}, {(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 2), (3, 1)}),
        ({(0, 1)}, {(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 1), (2, 2), (0, 1)}),
        ({(0, 0), (1, 2)}, set(), {(0, 0), (1, 1)}),
        (set(), {(0, 0)}, {(0, 0), (1, 1)}),
    ]


@exercise(
    cases=_alignments,
    hints=[
        "AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|). Python's sets know `&` and `len`.",
        "A is what the model found, S the sure links, P the possible ones; S is a part of P.",
    ],
)
def alignment_error_rate(found: Links, sure: Links, possible: Links) -> float:
    return 1 - (len(found & sure) + len(found & possible)) / (len(found) + len(sure))


alignment_error_rate.mistakes(
    {
        "`|` is the union, all links of either set: those that both sets hold are `found & sure`": (
            lambda found, sure, possible: 1 - (len(found | sure) + len(found | possible)) / (len(found) + len(sure))
        ),
        "this is the agreement; the error rate is 1 minus it": lambda *case: 1 - alignment_error_rate.reference(*case),
        "possible links that were not found are no errors: the denominator is |A| + |S|, without P": (
            lambda found, sure, possible: 1 - (len(found & sure) + len(found & possible)) / (len(found) + len(possible))
        ),
        "links that are possible but not sure should count as half right: the term |A ∩ P| is missing": (
            lambda found, sure, possible: 1 - 2 * len(found & sure) / (len(found) + len(sure))
        ),
        "a sure link is possible, too, and counts in both |A ∩ S| and |A ∩ P|; in yours it counts once": (
            lambda found, sure, possible: (
                1 - (len(found & sure) + len(found & (possible - sure))) / (len(found) + len(sure))
            )
        ),
        "this only asks how many found links are possible; a model that finds one link would be perfect": (
            lambda found, sure, possible: 1 - len(found & possible) / len(found)
        ),
    }
)

# ---- why the choice has to be soft -------------------------------------------------------------------------------


def _soft(scores: Tensor) -> Tensor:
    return torch.softmax(scores, dim=-1) @ torch.tensor([1.0, 3.0, -2.0], dtype=scores.dtype)


def _hard(scores: Tensor) -> Tensor:
    return torch.tensor([1.0, 3.0, -2.0], dtype=scores.dtype)[scores.argmax()]


def _cubes(scores: Tensor) -> Tensor:
    return (scores**3).sum()


def _choices() -> list[tuple[Callable[[Tensor], Tensor], Tensor, float]]:
    scores = torch.tensor([0.2, 1.0, -0.5])
    return [(_soft, scores, 1e-2), (_hard, scores, 1e-2), (_soft, 3 * scores, 1e-1), (_cubes, randn(5, seed=13), 0.5)]


@exercise(
    cases=_choices,
    hints=[
        "Move one score up and down by ε and see how the output changes: (f(s + ε e_i) − f(s − ε e_i)) / 2ε.",
        "`scores.clone()` gives a copy to change. Fill a tensor of zeros, one entry a score.",
    ],
    differentiable=False,
)
def estimate_gradient(f: Callable[[Tensor], Tensor], scores: Tensor, epsilon: float) -> Tensor:
    gradient = torch.zeros_like(scores)
    for i in range(len(scores)):
        step = torch.zeros_like(scores)
        step[i] = epsilon
        gradient[i] = (f(scores + step) - f(scores - step)) / (2 * epsilon)
    return gradient


def _never_moved_back(f: Callable[[Tensor], Tensor], scores: Tensor, epsilon: float) -> Tensor:
    gradient, moved = torch.zeros_like(scores), scores.clone()
    for i in range(len(scores)):
        moved[i] += epsilon
        above = f(moved)
        moved[i] -= 2 * epsilon
        gradient[i] = (above - f(moved)) / (2 * epsilon)
    return gradient


estimate_gradient.mistakes(
    {
        "twice too large: up and down together are 2ε apart": lambda *case: 2 * estimate_gradient.reference(*case),
        "this is the difference; divide by the distance 2ε to get a slope": (
            lambda f, scores, epsilon: 2 * epsilon * estimate_gradient.reference(f, scores, epsilon)
        ),
        "each score stays moved down while the next ones are tried: bring it back first": _never_moved_back,
        "the sign: it is the output above minus the output below": lambda *case: -estimate_gradient.reference(*case),
        "a one-sided difference is off by a term in ε: go up and down, and divide by 2ε": lambda f, scores, epsilon: (
            torch.stack([(f(scores + step) - f(scores)) / epsilon for step in epsilon * torch.eye(len(scores))])
        ),
        "you moved all scores together: softmax and argmax do not notice that; move one at a time": (
            lambda f, scores, epsilon: ((f(scores + epsilon) - f(scores - epsilon)) / (2 * epsilon)).expand_as(scores)
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _attention_inputs() -> list[tuple[Tensor, ...]]:
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    scores, states = randn(2, 3, 4, seed=10), randn(2, 4, 5, seed=11)
    scores[:, 1, 0] = 0.0  # a word's
    extreme, allowed = extreme_scores()
    return [
        (scores, mask, states),
        (scores[:, :1] - 3, mask, states),
        (extreme[None], allowed[None], randn(1, 3, 5, seed=12)),
    ]


@exercise(
    cases=_attention_inputs,
    hints=[
        "Give it one sentence with padding and the same sentence without. Are the contexts the same?",
        "Which score would make a word weigh nothing after the softmax? It is not 0.",
    ],
)
def attend(scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    weights = torch.softmax(scores, dim=-1)
    return weights @ states


@attend.given
def _(scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    scores = scores * mask[:, None]
    weights = torch.softmax(scores, dim=-1)
    return weights @ states


def _attended(scores: Tensor, mask: Tensor, states: Tensor, *, weigh: Softmax) -> Tensor:
    return weigh(scores, mask[:, None]) @ states


attend.mistakes(
    {
        "now nothing is masked at all: padding takes part like a word": (
            lambda scores, mask, states: torch.softmax(scores, dim=-1) @ states
        ),
        "better: padding adds nothing to the context; but the weights of the words no longer sum to 1": (
            lambda scores, mask, states: (torch.softmax(scores, dim=-1) * mask[:, None]) @ states
        ),
        "the scores of padding are still 0 inside the softmax, and exp(0) = 1; "
        "mask them before it, not the weights after": (
            lambda scores, mask, states: (torch.softmax(scores * mask[:, None], dim=-1) * mask[:, None]) @ states
        ),
        "a score of −1 is small, not impossible: exp(−1) is 0.37; use −∞": partial(_attended, weigh=filled(-1.0)),
        "the mask is the wrong way around: the words are hidden and the padding is read": (
            lambda scores, mask, states: attend.reference(scores, ~mask, states)
        ),
        "the softmax runs over the target words: each target word needs weights over the source that sum to 1": (
            lambda scores, mask, states: torch.softmax(scores.masked_fill(~mask[:, None], -1e9), dim=1) @ states
        ),
        "the softmax runs over the target words, where a column of padding is 0/0: each target word needs weights "
        "over the source": (
            lambda scores, mask, states: torch.softmax(scores.masked_fill(~mask[:, None], -torch.inf), dim=1) @ states
        ),
        ZERO_IS_BLOCKED: partial(_attended, weigh=zero_is_blocked),
    }
    | {message: partial(_attended, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)

# ---- the whole step, which the lesson then trains ----------------------------------------------------------------


def _steps() -> list[tuple[Tensor, ...]]:
    two = torch.tensor([[True, True, True], [True, True, False]])
    three = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    sizes = [(two, 2, 2), (three, 3, 5)]  # mask, width of query and keys, width of values
    # makes scores of −2000 for words, lower than most numbers put in place of −∞, and of ±2000 for padding
    keys, low = torch.tensor([[9.0, 1.0], [9.0, -1.0], [9.0, 3.0]]).repeat(2, 1, 1), torch.tensor([-2000.0, 0.5])
    keys[1, 2, 0] = -9.0
    query = randn(1, 3, seed=25)
    opposite = randn(1, 3, 3, seed=26).index_copy(1, torch.tensor(0), -query[:, None])  # its score is 0
    return [
        (randn(len(m), d, seed=20), randn(*m.shape, d, seed=21), randn(*m.shape, w, seed=22), m, 2 * randn(d, seed=23))
        for m, d, w in sizes
    ] + [
        (torch.zeros(2, 2), keys, randn(2, 3, 4, seed=24), torch.tensor([[True, True, False]] * 2), low),
        (query, opposite, randn(1, 3, 4, seed=27), two[1:], randn(3, seed=28)),
    ]


@exercise(
    cases=_steps,
    hints=[
        "Four lines: scores, mask, softmax, mixture. `query[:, None]` is (batch, 1, d), so it adds to every key.",
        "Scores are `torch.tanh(query[:, None] + keys) @ v`, (batch, source). "
        "`scores.masked_fill(~mask, -torch.inf)` comes before the softmax over the last axis.",
        "`weights[:, None] @ values` is a batch of matrices with one row, (batch, 1, d_value); `[:, 0]` takes the row.",
    ],
)
def attention_step(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.tanh(query[:, None] + keys) @ v
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    return (weights[:, None] @ values)[:, 0], weights


def _step_with(
    change: Callable[[Tensor, Tensor], Tensor], inner: Callable[[Tensor], Tensor] = torch.tanh
) -> Callable[..., tuple[Tensor, Tensor]]:
    """The step with other weights, `change(scores, mask)`, or another function around query and key."""

    def step(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = change(inner(query[:, None] + keys) @ v, mask)
        return (weights[:, None] @ values)[:, 0], weights

    return step


attention_step.mistakes(
    {
        "the mask is not used: padding gets weight like a word": _step_with(
            lambda scores, mask: torch.softmax(scores, dim=-1)
        ),
        "the mask comes after the softmax: padding has already taken its share, so the weights sum to less than 1": (
            _step_with(lambda scores, mask: torch.softmax(scores, dim=-1) * mask)
        ),
        "a score of 0 does not block a word, since exp(0) is 1: set the scores of padding to −∞": _step_with(
            lambda scores, mask: torch.softmax(scores * mask, dim=-1)
        ),
        "the mask is the wrong way around: True marks the words that may be attended to": _step_with(
            lambda scores, mask: torch.softmax(scores.masked_fill(mask, torch.finfo(scores.dtype).min), dim=-1)
        ),
        "the mask is the wrong way around: you block the words, and a sentence without padding is 0/0": _step_with(
            lambda scores, mask: torch.softmax(scores.masked_fill(mask, -torch.inf), dim=-1)
        ),
        ZERO_IS_BLOCKED: _step_with(zero_is_blocked),
        "the softmax runs over the batch, dim=0: each sentence needs weights over its own words, dim=-1": _step_with(
            lambda scores, mask: torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=0)
        ),
        "the softmax runs over the batch: the weights of each sentence must sum to 1 over its source words": _step_with(
            lambda scores, mask: torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=0)
        ),
        "the tanh is missing: without it the query adds the same number to all scores, and the softmax cancels it": (
            _step_with(
                lambda scores, mask: torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1),
                inner=lambda hidden: hidden,
            )
        ),
        "you mixed the keys; the context is a mixture of the values": (
            lambda query, keys, values, mask, v: attention_step.reference(query, keys, keys, mask, v)
        ),
        "weights and context are the wrong way around: return the context first": (
            lambda *case: attention_step.reference(*case)[::-1]
        ),
        "this is the context alone: the weights are asked for, too; return (context, weights)": (
            lambda *case: attention_step.reference(*case)[0]
        ),
        "these are the weights alone: mix the values with them, and return (context, weights)": (
            lambda *case: attention_step.reference(*case)[1]
        ),
        "a blocked score of −1000 or more is not low enough: where the allowed ones are −2000, padding gets all the "
        "weight; use −∞": _step_with(filled(-1000.0)),
    }
    | {message: _step_with(weigh) for message, weigh in BY_HAND.items()}
)
