"""A stranger's answers to lesson 06: the wrong ones are refused, the right ones in other styles accepted."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.decoding import exercises as decoding

Step = tuple[Tensor, Tensor, Tensor]

# ---- wrong -------------------------------------------------------------------------------------------------------


def step_through_probabilities(scores: Tensor, logp: Tensor, width: int) -> Step:
    best, flat = torch.topk((scores.exp()[:, None] * logp.exp()).reshape(-1), width)
    return flat // logp.shape[1], flat % logp.shape[1], best.log()


def step_without_an_order(scores: Tensor, logp: Tensor, width: int) -> Step:
    best, flat = torch.topk((scores[:, None] + logp).reshape(-1), width, sorted=False)
    return flat // logp.shape[1], flat % logp.shape[1], best


def step_of_beams_near_the_best(scores: Tensor, logp: Tensor, width: int) -> Step:
    near = torch.where(scores < scores.max() - 1, -torch.inf, scores)
    best, flat = torch.topk((near[:, None] + logp).reshape(-1), width)
    return flat // logp.shape[1], flat % logp.shape[1], best


def cache_behind_the_new(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Step:
    mask = torch.ones(q.shape[2], q.shape[2] + keys.shape[2], dtype=torch.bool).tril(keys.shape[2])
    keys, values = torch.cat([k, keys], dim=2), torch.cat([v, values], dim=2)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask), keys, values


def nucleus_by_gather(logits: Tensor, p: float) -> Tensor:
    probabilities, places = logits.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    drop = probabilities.cumsum(dim=-1) - probabilities >= p
    return logits.masked_fill(drop.gather(-1, places), -torch.inf)


def vectors_of_the_new_alone(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    x = E[ids] + P[past.shape[1] : past.shape[1] + ids.shape[1]]
    seen = torch.cat([past, x], dim=1)
    visible = torch.ones(ids.shape[1], seen.shape[1], dtype=torch.bool).tril(past.shape[1])
    return F.scaled_dot_product_attention(x, seen, seen, attn_mask=visible, scale=1.0) @ E.T, x


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        decoding.beam_step,
        lambda scores, logp, width: decoding.beam_step.reference(
            scores * 0, (scores.exp()[:, None] + logp.exp()).log(), width
        ),
        "probabilities have been added",
    ),
    (
        decoding.top_p,
        lambda logits, p: torch.where(logits.softmax(-1) >= 1 - p, logits, -torch.inf),
        "is compared with 1 − p by itself",
    ),
    (decoding.beam_step, step_through_probabilities, "stay with logarithms"),
    (decoding.beam_step, step_without_an_order, "case 5 of 5: item 0"),
    (decoding.beam_step, step_of_beams_near_the_best, "case 5 of 5"),
    (decoding.cached_attention, cache_behind_the_new, "where the mask takes them for old"),
    (decoding.top_p, nucleus_by_gather, "carried back with `gather`"),
    (decoding.read_on, vectors_of_the_new_alone, "only the new vectors are handed back"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def attention_token_by_token(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Step:
    past, keys, values = keys.shape[2], torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
    found = []
    for i in range(q.shape[2]):
        scores = torch.einsum("bhd,bhkd->bhk", q[:, :, i], keys[:, :, : past + i + 1]) / q.shape[-1] ** 0.5
        found.append(torch.einsum("bhk,bhkd->bhd", scores.softmax(dim=-1), values[:, :, : past + i + 1]))
    return torch.stack(found, dim=2), keys, values


def read_with_all_positions(ids: Tensor, past: Tensor, E: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    new, total = ids.shape[1], past.shape[1] + ids.shape[1]
    x = F.embedding(ids, E) + P[:total][-new:]
    seen = torch.cat((past, x), dim=1)
    blocked = torch.full((new, total), -torch.inf).triu(total - new + 1)
    return F.scaled_dot_product_attention(x, seen, seen, blocked, scale=1.0) @ E.T, seen


def top_p_token_by_token(logits: Tensor, p: float) -> Tensor:
    kept = torch.full_like(logits, -torch.inf)
    for row, place in zip(logits, kept, strict=True):
        shares, total = row.softmax(dim=0).tolist(), 0.0
        for token in sorted(range(len(shares)), key=lambda token: (-shares[token], token)):
            if total < p:
                place[token], total = row[token], total + shares[token]
    return kept


def step_in_double_precision(scores: Tensor, logp: Tensor, width: int) -> Step:
    totals = scores.double()[:, None] + logp.double()
    flat = totals.flatten().argsort(descending=True, stable=True)[:width]
    beams, words = torch.unravel_index(flat, totals.shape)
    return beams, words, totals.flatten()[flat]


def smoothed_by_one_hot(logits: Tensor, targets: Tensor, epsilon: float, pad: int) -> Tensor:
    share = F.one_hot(targets, logits.shape[-1]) * (1 - epsilon) + epsilon / logits.shape[-1]
    losses = -torch.einsum("btv,btv->bt", share, F.log_softmax(logits, dim=-1))
    return (losses * (targets != pad)).sum() / (targets != pad).sum()


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (decoding.cached_attention, attention_token_by_token),
    (decoding.read_on, read_with_all_positions),
    (decoding.top_p, top_p_token_by_token),
    (decoding.beam_step, step_in_double_precision),
    (decoding.smoothed_loss, smoothed_by_one_hot),
]
