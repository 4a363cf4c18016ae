"""Exercises of lesson 06: a cache, a filter of logits, a step of beam search, and label smoothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import BY_HAND, ZERO_IS_BLOCKED, Softmax, filled, unshifted, zero_is_blocked
from tfbook.lessons.decoding.first_exercises import (
    beam_step as beam_step,
    cached_attention as cached_attention,
    top_p as top_p,
)

# ---- label smoothing ---------------------------------------------------------------------------------------------


def _logits_and_targets() -> list[tuple[Tensor, Tensor, float, int]]:
    return [
        (2 * randn(2, 3, 5, seed=8), torch.tensor([[3, 1, 4], [2, 0, 0]]), 0.1, 0),
        (2 * randn(1, 4, 6, seed=9), torch.tensor([[5, 0, 2, 1]]), 0.3, 1),
        (torch.tensor([[[0.0, -200.0, -1.0]]]), torch.tensor([[2]]), 0.1, 0),  # probabilities of 0 in float32
        (torch.tensor([[[200.0, 199.0, 198.0]]]), torch.tensor([[1]]), 0.1, 0),  # exp overflows
    ]


@exercise(
    cases=_logits_and_targets,
    hints=[
        "`log_softmax` gives the log-probabilities of all words. The cross-entropy with a distribution is minus the "
        "sum of its probabilities times these.",
        "(1 − ε) times the target's log-probability plus ε times the mean of all. `gather` or `nn.functional.one_hot` "
        "picks the target's; `targets != pad` says which positions count.",
    ],
)
def smoothed_loss(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    logp = torch.log_softmax(logits, dim=-1)
    right = logp.gather(-1, targets[..., None])[..., 0]
    losses = -(1 - epsilon) * right - epsilon * logp.mean(dim=-1)
    return losses[targets != pad].mean()


def _smoothed(logp: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    """The loss from log-probabilities that were found in another way."""
    right = logp.gather(-1, targets[..., None])[..., 0]
    return -((1 - epsilon) * right + epsilon * logp.mean(dim=-1))[targets != pad].mean()


def _minus(score: Callable[[Tensor, Tensor, float, int], Tensor]) -> Callable[[Tensor, Tensor, float, int], Tensor]:
    """The loss where each word's is minus `score(right, logp, epsilon, pad)`."""

    def wrong(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
        logp = torch.log_softmax(logits, dim=-1)
        right = logp.gather(-1, targets[..., None])[..., 0]
        return -score(right, logp, epsilon, pad)[targets != pad].mean()

    return wrong


smoothed_loss.mistakes(
    {
        "nothing is smoothed: this is the cross-entropy with the target word alone": (
            lambda logits, targets, epsilon, pad: smoothed_loss.reference(logits, targets, 0.0, pad)
        ),
        (
            "ε is spread over the other words only; here the target has its share of it as well, "
            "1 − ε + ε / vocab in all"
        ): _minus(
            lambda right, logp, epsilon, pad: (
                (1 - epsilon) * right + epsilon * (logp.sum(dim=-1) - right) / (logp.shape[-1] - 1)
            )
        ),
        "the probabilities sum to less than 1: the target has 1 − ε, and its own share of ε is missing": _minus(
            lambda right, logp, epsilon, pad: (
                (1 - epsilon - epsilon / logp.shape[-1]) * right + epsilon * logp.mean(dim=-1)
            )
        ),
        "ε is spread over all words but the target and the padding; here all words of the vocabulary share it": _minus(
            lambda right, logp, epsilon, pad: (
                (1 - epsilon) * right + epsilon * (logp.sum(dim=-1) - right - logp[..., pad]) / (logp.shape[-1] - 2)
            )
        ),
        "the target keeps probability 1, so that all together have 1 + ε: give it 1 − ε": (
            _minus(lambda right, logp, epsilon, pad: right + epsilon * logp.mean(dim=-1))
        ),
        "ε and 1 − ε are exchanged: most of the probability belongs to the target": (
            lambda logits, targets, epsilon, pad: smoothed_loss.reference(logits, targets, 1 - epsilon, pad)
        ),
        "each word gets ε; together they share it, so that each gets ε / vocab: mean, not sum": (
            _minus(lambda right, logp, epsilon, pad: (1 - epsilon) * right + epsilon * logp.sum(dim=-1))
        ),
        "you smoothed what the model says; smooth what it should say: the sum is over log-probabilities": (
            _minus(lambda right, logp, epsilon, pad: ((1 - epsilon) * right.exp() + epsilon / logp.shape[-1]).log())
        ),
        "a probability can be 0 in float32, and its logarithm is −∞: use log_softmax, not the logarithm of a softmax": (
            lambda logits, *rest: _smoothed(logits.softmax(dim=-1).log(), *rest)
        ),
        "exp(200) overflows in log Σ exp: torch.logsumexp and torch.log_softmax subtract the row's maximum first": (
            lambda logits, *rest: _smoothed(logits - logits.exp().sum(dim=-1, keepdim=True).log(), *rest)
        ),
        "the padding is `pad`, which need not be 0: with another one, padding counts and a word does not": (
            lambda logits, targets, epsilon, pad: smoothed_loss.reference(logits, targets, epsilon, 0)
        ),
        "padding is counted: the model would be trained to say it": (
            lambda logits, targets, epsilon, pad: smoothed_loss.reference(logits, targets, epsilon, -1)
        ),
        (
            "padding adds 0 but is counted in the mean: a batch with more of it would seem easier; divide by the words "
            "alone"
        ): lambda logits, targets, epsilon, pad: (
            smoothed_loss.reference(logits, targets, epsilon, pad) * (targets != pad).float().mean()
        ),
        "this is the sum; the loss is the mean over the words that count": lambda logits, targets, epsilon, pad: (
            smoothed_loss.reference(logits, targets, epsilon, pad) * (targets != pad).sum()
        ),
        "first a mean in each sentence, then one over sentences: words of short sentences would weigh more": (
            lambda logits, targets, epsilon, pad: torch.stack(
                [smoothed_loss.reference(*row, epsilon, pad) for row in zip(logits, targets, strict=True)]
            ).mean()
        ),
        "the sign: a loss falls as the target's log-probability rises": (
            lambda logits, targets, epsilon, pad: -smoothed_loss.reference(logits, targets, epsilon, pad)
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _ids_past_and_tables() -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    def inputs(past: int, ids: list[list[int]], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        E, P = randn(7, 4, seed=seed), randn(9, 4, seed=seed + 1)
        before = torch.arange(len(ids) * past).view(len(ids), past) % 7
        return torch.tensor(ids), E[before] + P[:past], E, P

    long = F.pad(torch.tensor([[1.0], [1e6]]), (0, 3))  # token 1 points where token 0 does, a million times as far
    drawn = inputs(3, [[5], [1]], 31), inputs(0, [[4, 2, 6]], 33), inputs(2, [[1, 3, 0], [6, 6, 2]], 35)
    nowhere = torch.zeros(1, 0, 4), torch.zeros(9, 4)
    at_right_angles = torch.eye(7, 4)  # scores of 0 that are allowed
    return [*drawn, *((torch.tensor([[0, 1]]), nowhere[0], E, nowhere[1]) for E in (long, at_right_angles))]


@exercise(
    cases=_ids_past_and_tables,
    hints=[
        "Which row of P did the third token get when the text was read in one go? Which one does it get when two "
        "tokens are in the cache already?",
        "`past.shape[1]` tokens came before. The first new one stands at that position.",
    ],
)
def read_on(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    start = past.shape[1]
    x = E[ids] + P[start : start + ids.shape[1]]
    seen = torch.cat([past, x], dim=1)
    visible = torch.ones(ids.shape[1], seen.shape[1], dtype=torch.bool).tril(start)
    scores = (x @ seen.mT).masked_fill(~visible, -math.inf)
    return scores.softmax(dim=-1) @ seen @ E.T, seen


@read_on.given
def _(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    start = past.shape[1]
    x = E[ids] + P[: ids.shape[1]]
    seen = torch.cat([past, x], dim=1)
    visible = torch.ones(ids.shape[1], seen.shape[1], dtype=torch.bool).tril(start)
    scores = (x @ seen.mT).masked_fill(~visible, -math.inf)
    return scores.softmax(dim=-1) @ seen @ E.T, seen


def _placed(where: Callable[[int, int], Tensor], *, late: bool = False) -> Callable[..., tuple[Tensor, Tensor]]:
    """Positions `where(past, new)`; with `late`, the vectors in the cache lack theirs, or have them twice."""

    def wrong(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
        start = past.shape[1]
        x = E[ids] + P[where(start, ids.shape[1])]
        seen = torch.cat([past + P[:start] if late else past, x], dim=1)
        visible = torch.ones(ids.shape[1], seen.shape[1], dtype=torch.bool).tril(start)
        scores = (x @ seen.mT).masked_fill(~visible, -math.inf)
        return scores.softmax(dim=-1) @ seen @ E.T, seen

    return wrong


def _without_mask(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    _, seen = read_on.reference(ids, past, E, P)
    x = seen[:, past.shape[1] :]
    return (x @ seen.mT).softmax(dim=-1) @ seen @ E.T, seen


def _read_with(ids: Tensor, past: Tensor, E: Tensor, P: Tensor, *, weigh: Softmax) -> tuple[Tensor, Tensor]:
    _, seen = read_on.reference(ids, past, E, P)
    visible = torch.ones(ids.shape[1], seen.shape[1], dtype=torch.bool).tril(past.shape[1])
    return weigh(seen[:, past.shape[1] :] @ seen.mT, visible) @ seen @ E.T, seen


def _without_positions(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    return read_on.reference(ids, past, E, torch.zeros_like(P))


read_on.mistakes(
    {
        "one position too far: counted from 0, the first new token stands at position `past.shape[1]`": (
            _placed(lambda past, new: torch.arange(past + 1, past + new + 1))
        ),
        "one position too early: the first new token gets the position of the last one in the cache": (
            _placed(lambda past, new: torch.arange(past - 1, past + new - 1) % 9)
        ),
        "all new tokens get the same position: each of them is one further than the one before": (
            _placed(lambda past, new: torch.full((new,), past))
        ),
        "the new positions are right, but the vectors in the cache already had theirs, and now they have them twice": (
            _placed(lambda past, new: torch.arange(past, past + new), late=True)
        ),
        "without positions the cached text agrees with nothing that was trained: the new tokens need theirs": (
            _without_positions
        ),
        "the logits are right, but only the new vectors are handed back: the next step needs all that was read": (
            lambda ids, past, E, P: (read_on.reference(ids, past, E, P)[0], E[ids] + P[past.shape[1] :][: ids.shape[1]])
        ),
        "the mask was right: with a triangle that is one key longer each new token sees the next one": (
            partial(
                _read_with,
                weigh=lambda scores, mask: filled(-math.inf)(
                    scores, torch.ones_like(mask).tril(mask.shape[1] - mask.shape[0] + 1)
                ),
            )
        ),
        "the mask was right: with `tril()` the first new token would see the first one in the cache alone": (
            partial(_read_with, weigh=lambda scores, mask: filled(-math.inf)(scores, torch.ones_like(mask).tril()))
        ),
        "the mask was right: a new token must not see the new tokens after it": _without_mask,
    }
    | {message: partial(_read_with, weigh=weigh) for message, weigh in BY_HAND.items()}
    | {ZERO_IS_BLOCKED: partial(_read_with, weigh=zero_is_blocked)}
    | {
        f"the mask was right: a blocked score of −{fill} leaves some weight, which shows where a vector is long": (
            partial(_read_with, weigh=filled(-fill))
        )
        for fill in (15, 20)
    }
    | {
        "exp overflows at large scores: subtract the row's largest allowed score first, as softmax does": (
            partial(_read_with, weigh=lambda scores, mask: unshifted(scores.masked_fill(~mask, -math.inf), mask))
        ),
    }
)
