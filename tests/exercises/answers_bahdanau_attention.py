"""Answers to the exercises of lesson 01: wrong ones and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.bahdanau_attention import exercises as ex

# ---- a word's own score is 0 -------------------------------------------------------------------------------------


def blocked_where_0(scores: Tensor, mask: Tensor) -> Tensor:
    """The given bug, "mended" by blocking what its product with the mask has made 0."""
    scores = scores * mask
    return scores.masked_fill(scores == 0, -torch.inf).softmax(dim=-1)


def contexts_where_not_0(scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    return blocked_where_0(scores, mask[:, None]) @ states


def softmax_where_not_0(scores: Tensor, mask: Tensor) -> Tensor:
    return blocked_where_0(scores, mask).nan_to_num(0.0)


def step_where_not_0(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = blocked_where_0(torch.tanh(query[:, None] + keys) @ v, mask)
    return torch.einsum("bs,bsd->bd", weights, values), weights


# ---- other wrong answers -----------------------------------------------------------------------------------------


def contexts_over_targets(scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=1) @ states


def step_that_reads_padding(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    weights = (torch.tanh(query[:, None] + keys) @ v).masked_fill(mask, -torch.inf).softmax(dim=1)
    return torch.einsum("bs,bsd->bd", weights, values), weights


def step_without_axes_of_size_1(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    weights = (torch.tanh(query[:, None] + keys) @ v).masked_fill(~mask, -torch.inf).softmax(dim=1)
    return (weights[:, None] @ values).squeeze(), weights


def gradient_of_three_scores(f: Callable[[Tensor], Tensor], scores: Tensor, epsilon: float) -> Tensor:
    steps = epsilon * torch.eye(3)
    return torch.stack([(f(scores + step) - f(scores - step)) / (2 * epsilon) for step in steps])


# ---- right answers -----------------------------------------------------------------------------------------------


def softmax_of_what_is_allowed(scores: Tensor, mask: Tensor) -> Tensor:
    some = mask.any(dim=-1, keepdim=True)
    weights = torch.where(mask | ~some, scores, -torch.inf).softmax(dim=-1)
    return torch.where(some, weights, 0.0)


def contexts_with_a_bias(scores: Tensor, mask: Tensor, states: Tensor) -> Tensor:
    bias = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return (scores + bias.unsqueeze(1)).softmax(dim=2).bmm(states)


def step_sentence_by_sentence(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    contexts, weights = [], []
    for i in range(len(query)):
        scores = torch.stack([v.dot(torch.tanh(query[i] + key)) for key in keys[i]])
        weights.append(scores.masked_fill(mask[i].logical_not(), -torch.inf).softmax(dim=0))
        contexts.append(weights[-1] @ values[i])
    return torch.stack(contexts), torch.stack(weights)


def gradient_entry_by_entry(f: Callable[[Tensor], Tensor], scores: Tensor, epsilon: float) -> Tensor:
    slopes = []
    for i in range(scores.numel()):
        up, down = scores.clone(), scores.clone()
        up[i] += epsilon
        down[i] -= epsilon
        slopes.append(float(f(up) - f(down)) / (2 * epsilon))
    return torch.tensor(slopes)


class CountedErrorRate:
    """One object for all alignments, called like a function."""

    def __call__(self, found: ex.Links, sure: ex.Links, possible: ex.Links) -> float:
        hits = sum((link in sure) + (link in possible) for link in found)
        return 1.0 - hits / (len(found) + len(sure))


def score_with_two_tanhs(query: Tensor, keys: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    return (torch.tanh(query @ W.T).unsqueeze(1) + torch.tanh(keys @ U.T)) @ v


def contexts_after_another_softmax(weights: Tensor, states: Tensor) -> Tensor:
    return torch.einsum("bts,bsd->btd", torch.softmax(weights, dim=2), states)


def error_rate_of_sets_apart(found: ex.Links, sure: ex.Links, possible: ex.Links) -> float:
    hits = sum(link in sure or link in possible for link in found)
    return 1 - hits / (len(found) + len(sure))


def gradient_that_moves_on(f: Callable[[Tensor], Tensor], scores: Tensor, epsilon: float) -> Tensor:
    scores, slopes = scores.clone(), []
    for i in range(len(scores)):
        scores[i] += epsilon
        above = f(scores)
        scores[i] -= 2 * epsilon
        slopes.append((above - f(scores)) / (2 * epsilon))
    return torch.stack(slopes)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        ex.alignment_error_rate,
        lambda a, s, p: 1 - (len(a.union(s)) + len(a.union(p))) / (len(a) + len(s)),
        "`|` is the union",
    ),
    (ex.attend, contexts_where_not_0, "score can be 0, too"),
    (ex.masked_softmax, softmax_where_not_0, "score can be 0, too"),
    (ex.attention_step, step_where_not_0, "score can be 0, too"),
    (ex.attend, contexts_over_targets, "the softmax runs over the target words"),
    (ex.attention_step, step_that_reads_padding, "the mask is the wrong way around"),
    (ex.attention_step, step_without_axes_of_size_1, "the result has shape (4,); expected (1, 4)"),
    (ex.estimate_gradient, gradient_of_three_scores, "must match the size"),
    (ex.additive_score, score_with_two_tanhs, "add them first"),
    (ex.context, contexts_after_another_softmax, "one softmax too far"),
    (ex.alignment_error_rate, error_rate_of_sets_apart, "in yours it counts once"),
    (ex.estimate_gradient, gradient_that_moves_on, "bring it back first"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.masked_softmax, softmax_of_what_is_allowed),
    (ex.attend, contexts_with_a_bias),
    (ex.attention_step, step_sentence_by_sentence),
    (ex.estimate_gradient, gradient_entry_by_entry),
    (ex.alignment_error_rate, CountedErrorRate()),
]
