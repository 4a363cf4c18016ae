"""Exercises of lesson 06: a cache, a filter of logits, a step of beam search, and label smoothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises.engine import exercise, randn
from tfbook.course.exercises.extremes import BY_HAND, FILLED, Softmax, filled, unshifted, with_scores

# ---- attention with a cache --------------------------------------------------------------------------------------


Cached = tuple[Tensor, Tensor, Tensor]  # what the new queries found, and all keys and values


def _new_and_past() -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    # as many sequences as heads and as numbers in a head, so that a wrong axis gives wrong numbers and no error
    def inputs(past: int, new: int, seed: int, d_head: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        q, k, v = 2 * randn(3, 2, 2, new, d_head, seed=seed)
        keys, values = randn(2, 2, 2, past, d_head, seed=seed + 1)
        return q, k, v, keys, values

    extreme = torch.tensor([[-40.0, -41.0, -90.0, -90.0], [-2000.0, -2001.0, -2002.0, 5.0], [200.0, 199.0, 5.0, 4.0]])
    q, k = with_scores(extreme[None, None])
    v = randn(1, 1, 4, 4, seed=29)
    return [
        *(inputs(3, 1, 21), inputs(0, 3, 23), inputs(2, 2, 25), inputs(2, 3, 27, d_head=5)),
        (q, k[:, :, 1:], v[:, :, 1:], k[:, :, :1], v[:, :, :1]),
    ]


@exercise(
    cases=_new_and_past,
    hints=[
        "`torch.cat([keys, k], dim=2)` puts the new keys behind the old ones; the same for the values.",
        "The scores are (…, new, all). The first new token may see all old ones and itself: "
        "`torch.ones(new, total, dtype=torch.bool).tril(total - new)`.",
    ],
)
def cached_attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Cached:
    keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
    new, total = q.shape[2], keys.shape[2]
    visible = torch.ones(new, total, dtype=torch.bool).tril(total - new)
    scores = (q @ keys.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    return scores.softmax(dim=-1) @ values, keys, values


def _mixed(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None, scale: float = 0.5) -> Tensor:
    """What the queries find among all keys, with a mask or without."""
    scores = q @ keys.mT / q.shape[-1] ** scale
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(dim=-1) @ values


def _masked_by(diagonal: Callable[[int, int], int], scale: float = 0.5) -> Callable[..., Cached]:
    """The right cache, but a lower triangle from another diagonal, which may depend on (new, total)."""

    def wrong(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Cached:
        _, keys, values = cached_attention.reference(q, k, v, keys, values)
        new, total = q.shape[2], keys.shape[2]
        visible = torch.ones(new, total, dtype=torch.bool).tril(diagonal(new, total))
        return _mixed(q, keys, values, visible, scale), keys, values

    return wrong


def _weighed(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, *, weigh: Softmax) -> Cached:
    """The right cache and mask, applied by another softmax."""
    _, keys, values = cached_attention.reference(q, k, v, keys, values)
    new, total = q.shape[2], keys.shape[2]
    visible = torch.ones(new, total, dtype=torch.bool).tril(total - new)
    return weigh(q @ keys.mT / math.sqrt(q.shape[-1]), visible) @ values, keys, values


def _changed_cache(change: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Cached]:
    """What the queries find is right; `change` says which keys and values are handed on."""
    return lambda q, k, v, keys, values: (
        cached_attention.reference(q, k, v, keys, values)[0],
        *change(k, v, keys, values),
    )


cached_attention.mistakes(
    {
        "the new tokens see each other's future: the causal mask is missing": (_masked_by(lambda new, total: total)),
        "the first new token sees only the first key: shift the triangle right by the number of old tokens": (
            _masked_by(lambda new, total: 0)
        ),
        "a token may attend to itself: your triangle ends one key too early": (
            _masked_by(lambda new, total: total - new - 1)
        ),
        "your triangle ends one key too late, so each token sees the next one": (
            _masked_by(lambda new, total: total - new + 1)
        ),
        "the scores are not divided by √d_head": _masked_by(lambda new, total: total - new, scale=0.0),
        "the scores are divided by d_head instead of its root": _masked_by(lambda new, total: total - new, scale=1.0),
        "the outputs are right, but you hand back the old cache: the next step would not see the new tokens": (
            _changed_cache(lambda k, v, keys, values: (keys, values))
        ),
        "the outputs are right, but you hand back only the new keys and values: the old ones would be lost": (
            _changed_cache(lambda k, v, keys, values: (k, v))
        ),
        "the outputs are right, but keys and values are exchanged in what you hand back": (
            _changed_cache(lambda k, v, keys, values: (torch.cat([values, v], 2), torch.cat([keys, k], 2)))
        ),
        "the new tokens see each other but not the cache: append them to the old keys and values first": (
            lambda q, k, v, keys, values: (
                cached_attention.reference(q, k, v, keys[:, :, :0], values[:, :, :0])[0],
                torch.cat([keys, k], dim=2),
                torch.cat([values, v], dim=2),
            )
        ),
        "nothing is kept: the old keys and values are missing everywhere": (
            lambda q, k, v, keys, values: cached_attention.reference(q, k, v, keys[:, :, :0], values[:, :, :0])
        ),
        "the new keys stand in front of the old ones: append them behind": (
            lambda q, k, v, keys, values: (
                cached_attention.reference(q, k, v, keys, values)[0],
                torch.cat([k, keys], dim=2),
                torch.cat([v, values], dim=2),
            )
        ),
    }
    | {message: partial(_weighed, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)


# ---- top-p -------------------------------------------------------------------------------------------------------


def _logits_and_p() -> list[tuple[Tensor, float]]:
    flat, sure = [0.1, 0.4, 0.05, 0.25, 0.2], [0.03, 0.02, 0.9, 0.01, 0.04]
    logits = torch.tensor([flat, sure]).log() + torch.tensor([[2.0], [-1.0]])  # a constant changes no probability
    ties = torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 2.0, 2.0]])
    large = torch.tensor([[200.0, 201.0, 199.0]])
    many = torch.zeros(1, 40)  # so many that a sort that is not stable leaves their order
    return [*((logits, p) for p in (0.3, 0.6, 0.91, 1.0)), (ties, 0.5), (large, 0.7), (many, 0.51)]


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
        "of equally probable tokens the first ones stay, and here the last: `sort(descending=True, stable=True)`": (
            lambda logits, p: top_p.reference(logits.flip(-1), p).flip(-1)
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


# ---- find the bug ------------------------------------------------------------------------------------------------


def _ids_past_and_tables() -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    def inputs(past: int, ids: list[list[int]], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        E, P = randn(7, 4, seed=seed), randn(9, 4, seed=seed + 1)
        before = torch.arange(len(ids) * past).view(len(ids), past) % 7
        return torch.tensor(ids), E[before] + P[:past], E, P

    long = F.pad(torch.tensor([[1.0], [1e6]]), (0, 3))  # token 1 points where token 0 does, a million times as far
    drawn = inputs(3, [[5], [1]], 31), inputs(0, [[4, 2, 6]], 33), inputs(2, [[1, 3, 0], [6, 6, 2]], 35)
    return [*drawn, (torch.tensor([[0, 1]]), torch.zeros(1, 0, 4), long, torch.zeros(9, 4))]


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
        "the mask was right: a new token must not see the new tokens after it": _without_mask,
    }
    | {message: partial(_read_with, weigh=weigh) for message, weigh in BY_HAND.items()}
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
