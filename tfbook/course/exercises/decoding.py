"""Exercises of lesson 06: a step of beam search, a filter of logits, and label smoothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises.engine import exercise, randn

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


# ---- one step of a beam search -----------------------------------------------------------------------------------


Step = tuple[Tensor, Tensor, Tensor]  # parents, words, scores


def _beams() -> list[tuple[Tensor, Tensor, int]]:
    def inputs(scores: list[float], vocab: int, width: int, seed: int) -> tuple[Tensor, Tensor, int]:
        logits = 2 * randn(len(scores), vocab, seed=seed)
        return torch.tensor(scores), torch.log_softmax(logits, dim=-1), width

    return [
        inputs([-1.0, -1.2, -3.5], 6, 3, 10),
        inputs([-2.0, -2.1], 4, 2, 11),
        inputs([0.0, -torch.inf, -torch.inf], 5, 3, 12),  # the first step: all beams are the same text, one counts
        inputs([-1.5, -1.0, -2.5, -2.0], 3, 2, 14),  # fewer texts are kept than there were beams
    ]


@exercise(
    cases=_beams,
    hints=[
        "The log-probability of a longer text is a sum. `scores[:, None] + logp` holds all (beam, vocab) of them.",
        "`totals.flatten().topk(width)` finds the best of all. A place p of the flat list belongs to beam p // vocab "
        "and word p % vocab.",
    ],
)
def beam_step(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals, places = (scores[:, None] + logp).flatten().topk(width)
    vocab = logp.shape[1]
    return places // vocab, places % vocab, totals


def _best(totals: Tensor, width: int, *, row: int | None = None, largest: bool = True) -> Step:
    """The best of all, where a beam's row in the flat list has `row` places, as many as there are words."""
    scores, places = totals.flatten().topk(width, largest=largest)
    row = row or totals.shape[1]
    return places // row, places % row, scores


def _best_of_each(scores: Tensor, logp: Tensor, width: int, *, best_first: bool = True) -> Step:
    best, words = (scores[:, None] + logp).max(dim=1)
    parents = best.topk(width).indices if best_first else torch.arange(len(scores))
    return parents, words[parents], best[parents]


def _best_beam_alone(scores: Tensor, logp: Tensor, width: int) -> Step:
    best = scores.argmax()
    totals, words = (scores[best] + logp[best]).topk(width)
    return best.expand(width), words, totals


def _changed_step(change: Callable[[Tensor, Tensor, Tensor, Tensor], Step]) -> Callable[[Tensor, Tensor, int], Step]:
    """The right parents, words and scores, then what `change` makes of them and of the log-probabilities."""
    return lambda scores, logp, width: change(*beam_step.reference(scores, logp, width), logp)


beam_step.mistakes(
    {
        "each beam keeps one continuation, its best; the best of all may continue the same beam, while another dies": (
            _best_of_each
        ),
        (
            "each beam keeps one continuation, and in the order of the beams: the best of all, best first, may share a "
            "parent"
        ): partial(_best_of_each, best_first=False),
        "this keeps as many texts as there were beams: `width` says how many to keep": (
            lambda scores, logp, width: beam_step.reference(scores, logp, len(scores))
        ),
        "only the best beam is continued: the others are not lost yet, and may give better texts": _best_beam_alone,
        (
            "what the beams have cost so far is forgotten: a text's log-probability is its beam's plus that of the new "
            "word"
        ): lambda scores, logp, width: beam_step.reference(torch.zeros_like(scores), logp, width),
        "logarithms are multiplied: probabilities multiply, so their logarithms add": (
            lambda scores, logp, width: _best(scores[:, None] * logp, width)
        ),
        "the words are places in the flat list of all continuations: word p % vocab of beam p // vocab": (
            _changed_step(lambda parents, words, scores, logp: (parents, parents * logp.shape[1] + words, scores))
        ),
        (
            "parents and words are exchanged: the list runs through the words of beam 0 first, "
            "so p // vocab is the beam"
        ): _changed_step(lambda parents, words, scores, logp: (words, parents, scores)),
        "a beam's row in the flat list is as long as the vocabulary: divide by that, not by the number of beams": (
            lambda scores, logp, width: _best(scores[:, None] + logp, width, row=len(scores))
        ),
        "these are the worst texts: the largest log-probability is the one nearest to 0": (
            lambda scores, logp, width: _best(scores[:, None] + logp, width, largest=False)
        ),
        "the right texts, but best last: begin with the most probable": (
            lambda scores, logp, width: tuple(found.flip(0) for found in beam_step.reference(scores, logp, width))
        ),
        "the scores are those of the new words alone; the next step needs those of the whole texts": (
            _changed_step(lambda parents, words, scores, logp: (parents, words, logp[parents, words]))
        ),
        "these are probabilities; return logarithms: in float32 a text of fifty words would have probability 0": (
            _changed_step(lambda parents, words, scores, logp: (parents, words, scores.exp()))
        ),
    }
)


# ---- top-p -------------------------------------------------------------------------------------------------------


def _logits_and_p() -> list[tuple[Tensor, float]]:
    flat, sure = [0.1, 0.4, 0.05, 0.25, 0.2], [0.03, 0.02, 0.9, 0.01, 0.04]
    logits = torch.tensor([flat, sure]).log() + torch.tensor([[2.0], [-1.0]])  # a constant changes no probability
    ties = torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 2.0, 2.0]])
    large = torch.tensor([[200.0, 201.0, 199.0]])
    return [*((logits, p) for p in (0.3, 0.6, 0.91, 1.0)), (ties, 0.5), (large, 0.7)]


@exercise(
    cases=_logits_and_p,
    hints=[
        "Sort with `descending=True, stable=True`: you get values and places, equal ones in their old order. How much "
        "probability stands before each token? A cumulative sum counts the token itself as well.",
        "A token goes where the sum before it is p or more. `scatter` carries the decision back to the old order; "
        "`masked_fill` with −∞ makes a token impossible.",
    ],
)
def top_p(logits: Tensor, p: float) -> Tensor:
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    drop = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before >= p)
    return logits.masked_fill(drop, -torch.inf)


def _kept(
    where: Callable[[Tensor, Tensor, float], Tensor], *, descending: bool = True, softmax: bool = True
) -> Callable[[Tensor, float], Tensor]:
    """Keeps what `where(each, total, p)` says of the sorted probabilities (or logits) and their cumulative sum."""

    def wrong(logits: Tensor, p: float) -> Tensor:
        each, places = logits.sort(dim=-1, descending=descending, stable=True)
        each = each.softmax(dim=-1) if softmax else each
        keeps = where(each, each.cumsum(dim=-1), p)
        return logits.masked_fill(~torch.zeros_like(keeps).scatter(-1, places, keeps), -torch.inf)

    return wrong


def _exponentials(logits: Tensor, p: float, *, drop: Callable[[Tensor, float], Tensor]) -> Tensor:
    """A right rule with probabilities by hand, which are NaN where exp overflows."""
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.exp() / ordered.exp().sum(dim=-1, keepdim=True)
    dropped = drop(probabilities.cumsum(dim=-1) - probabilities, p)
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, places, dropped), -torch.inf)


top_p.mistakes(
    {
        "the token that brings the sum to p goes, too; where the first has more than p, none is left to draw": (
            _kept(lambda each, total, p: total <= p)
        ),
        "the first token is safe, but the one that brings the sum to p goes: what is left has less than p": (
            _kept(lambda each, total, p: F.pad((total <= p)[:, 1:], (1, 0), value=True))
        ),
        "one token too many: when the sum has reached p, the next one goes": (
            _kept(lambda each, total, p: F.pad(total - each < p, (1, -1), value=True))
        ),
        "this keeps the rarest tokens: sort with `descending=True`": (
            _kept(lambda each, total, p: total - each < p, descending=False)
        ),
        "the decision is in sorted order, the logits are not: carry it back with `scatter` and the places": (
            lambda logits, p: logits.masked_fill(
                top_p.reference(logits.sort(descending=True).values, p).isinf(), -torch.inf
            )
        ),
        "the right tokens, in sorted order: a token is known by its place, so put each back into its own": (
            lambda logits, p: top_p.reference(logits, p).sort(dim=-1, descending=True).values
        ),
        "tokens as probable as the last one kept stay, too, which can be too many: cut by place, not by value": (
            lambda logits, p: logits.masked_fill(
                logits < top_p.reference(logits, p).nan_to_num(neginf=torch.inf).amin(dim=-1, keepdim=True), -torch.inf
            )
        ),
        "where the sum is exactly p it is enough: a token goes when the sum before it is p or more": (
            _kept(lambda each, total, p: total - each <= p)
        ),
        "exp overflows at large logits, and NaN drops nothing: subtract the row's largest first, as softmax does": (
            partial(_exponentials, drop=lambda before, p: before >= p)
        ),
        "exp overflows at large logits, and NaN keeps nothing: subtract the row's largest first, as softmax does": (
            partial(_exponentials, drop=lambda before, p: ~(before < p))
        ),
        "this keeps every token with a probability of p or more: p bounds the sum of those that stay": (
            _kept(lambda each, total, p: each >= p)
        ),
        "0 is a logit like any other, and e⁰ = 1: what must not be drawn gets −∞": (
            lambda logits, p: top_p.reference(logits, p).nan_to_num(neginf=0.0)
        ),
        "the right tokens, but these are probabilities: return logits, so that filters can follow one another": (
            lambda logits, p: top_p.reference(logits, p).softmax(dim=-1)
        ),
        "these are sums of logits: softmax first, so that there are probabilities to add": (
            _kept(lambda each, total, p: total - each < p, softmax=False)
        ),
    }
)
