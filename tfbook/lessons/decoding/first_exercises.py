"""The first exercises of lesson 06; the others are in exercises.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import BY_HAND, FILLED, ZERO_IS_BLOCKED, Softmax, with_scores, zero_is_blocked

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
    zero, keys = with_scores(torch.tensor([[[[0.0, 1.0]]]]))  # an allowed score may be 0
    return [
        *(inputs(3, 1, 21), inputs(0, 3, 23), inputs(2, 2, 25), inputs(2, 3, 27, d_head=5)),
        (*randn(3, 1, 3, 4, 6, seed=47), *randn(2, 1, 3, 2, 6, seed=48)),
        (q, k[:, :, 1:], v[:, :, 1:], k[:, :, :1], v[:, :, :1]),
        (zero, keys[:, :, 1:], v[:, :, 1:2], keys[:, :, :1], v[:, :, :1]),
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


def _new_ones_in_front(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Cached:
    new, past = k.shape[2], keys.shape[2]
    keys, values = torch.cat([k, keys], dim=2), torch.cat([v, values], dim=2)
    return _mixed(q, keys, values, torch.ones(new, new + past, dtype=torch.bool).tril(past)), keys, values


cached_attention.mistakes(
    {
        (
            "two slips: the first new token sees only the first key, so shift the triangle; and divide the "
            "scores by √d_head"
        ): (
            lambda q, k, v, keys, values: (
                _mixed(
                    q,
                    (all_keys := torch.cat([keys, k], dim=2)),
                    (all_values := torch.cat([values, v], dim=2)),
                    torch.ones(q.shape[2], all_keys.shape[2], dtype=torch.bool).tril(),
                    0.0,
                ),
                all_keys,
                all_values,
            )
        ),
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
        "the new keys stand in front of the old ones, where the mask takes them for old: append them behind": (
            _new_ones_in_front
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
    | {ZERO_IS_BLOCKED: partial(_weighed, weigh=zero_is_blocked)}
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
    differentiable=False,
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


def _kept_by_gather(logits: Tensor, p: float) -> Tensor:
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    return logits.masked_fill(top_p.reference(ordered, p).isinf().gather(-1, places), -torch.inf)


top_p.mistakes(
    {
        "each token is compared with 1 − p by itself: p is what all those that stay have together": (
            lambda logits, p: logits.masked_fill(logits.softmax(dim=-1) < 1 - p, -torch.inf)
        ),
        "these are probabilities: the tokens that stay keep their logits, and the others get −∞": (
            lambda logits, p: torch.where(top_p.reference(logits, p) == -torch.inf, 0.0, logits.softmax(dim=-1))
        ),
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
        "carried back with `gather`, which looks up places; `scatter` writes each decision to the place it is about": (
            _kept_by_gather
        ),
        "these are log-probabilities of what stays: a token that stays keeps the logit that it had": (
            lambda logits, p: top_p.reference(logits, p).log_softmax(dim=-1)
        ),
        "the token that brings the sum to p goes, too, even where the sum is exactly p": (
            _kept(lambda each, total, p: total < p)
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
        inputs([-300.0, -301.5, -302.0], 40, 8, 39),  # long texts, whose probability is 0 in float32; each is continued
    ]


@exercise(
    cases=_beams,
    hints=[
        "The log-probability of a longer text is a sum. `scores[:, None] + logp` holds all (beam, vocab) of them.",
        "`totals.flatten().topk(width)` finds the best of all. A place p of the flat list belongs to beam p // vocab "
        "and word p % vocab.",
    ],
    differentiable=False,
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
        "probabilities multiply along a text, so their logarithms add: here probabilities have been added": (
            lambda scores, logp, width: _best((scores.exp()[:, None] + logp.exp()).log(), width)
        ),
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
        "a long text's probability is 0 in float32: stay with logarithms, whose sum ranks the texts just as well": (
            lambda scores, logp, width: _best((scores.exp()[:, None] * logp.exp()).log(), width)
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
