"""Answers to the exercises of lesson 03: wrong ones and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.self_attention import exercises as ex

# ---- an allowed score is 0 ---------------------------------------------------------------------------------------


def blocked_where_0(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1]) * mask
    return scores.masked_fill(scores == 0, -torch.inf).softmax(dim=-1)


def triangle_of_the_scores(scores: Tensor) -> Tensor:
    queries, keys = scores.shape[-2:]
    return torch.tril(scores[0], diagonal=keys - queries) != 0


def cross_where_not_0(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return blocked_where_0(query, keys, mask[:, None]) @ values


def record_where_not_0(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = blocked_where_0(q, k, mask)
    return weights @ v, weights


def heads_where_not_0(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.tril(q @ k.mT / math.sqrt(q.shape[-1]))
    return (scores.masked_fill(scores == 0, -torch.inf).softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


def layer_with(weigh: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def layer(each: Any, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
        context = x if context is None else context
        q, k, v = (
            part.unflatten(-1, (each.heads, -1)).transpose(1, 2)
            for part in (each.W_Q(x), each.W_K(context), each.W_V(context))
        )
        mixed = weigh(q, k, torch.tensor(True) if mask is None else mask) @ v
        return each.W_O(mixed.transpose(1, 2).flatten(2))

    return layer


def masked_too_late(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1) * mask


def one_mask_for_all_heads(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    if mask.ndim == 4:
        mask = mask[:, 0].unsqueeze(1)
    return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf).softmax(dim=-1)


# ---- the weights alone -------------------------------------------------------------------------------------------


def weights_by_columns(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return F.softmax(scores if mask is None else scores.where(mask, -torch.inf), dim=-2)


def weights_masked_afterwards(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    weights = torch.softmax(q @ k.mT * q.size(-1) ** -0.5, -1)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def weights_of_scores_as_they_are(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.einsum("...id,...jd->...ij", q, k)
    return (scores if mask is None else scores.masked_fill(mask.logical_not(), -math.inf)).softmax(-1)


def weights_blocked_where_true(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None and not mask.all():
        scores = scores.masked_fill(mask, -torch.inf)
    return scores.softmax(dim=-1)


def weights_renormalized(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is None:
        return scores.softmax(dim=-1)
    allowed = scores.where(mask, -torch.inf)
    shares = (allowed - allowed.amax(dim=-1, keepdim=True)).exp()
    return shares / shares.sum(dim=-1, keepdim=True)


def weights_of_a_bias(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    bias = 0 if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return torch.softmax((q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1) + bias, dim=-1)


def cross_with_a_mask_of_queries(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    return scores.masked_fill(~mask.unsqueeze(-1), -math.inf).softmax(-1) @ values


def cross_without_an_axis(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ values


def future_alone(scores: Tensor) -> Tensor:
    return torch.triu(torch.ones(scores.shape[1:]), 1) > 0


# ---- many paths, and other edges ---------------------------------------------------------------------------------


def reach_by_power(mask: Tensor, layers: int) -> Tensor:
    return torch.linalg.matrix_power(mask.float(), layers) > 0


def reach_by_counts(dtype: torch.dtype) -> Callable[[Tensor, int], Tensor]:
    def reach(mask: Tensor, layers: int) -> Tensor:
        paths = mask.to(dtype)
        for _ in range(layers - 1):
            paths = paths @ mask.to(dtype)
        return paths.bool()

    return reach


def reach_with_a_residual(mask: Tensor, layers: int) -> Tensor:
    own = mask | torch.eye(len(mask), dtype=torch.bool)
    return torch.linalg.matrix_power(own.double(), layers) > 0


def heads_without_a_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def prune_some(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    kept = mixed.index_fill(1, torch.tensor(removed), 0.0)
    return kept.transpose(1, 2).flatten(2) @ W_O.T


# ---- calls of attend ---------------------------------------------------------------------------------------------

Attend = Callable[[Tensor], Tensor]


def called_to_look_first(x: Tensor, heads: int, attend: Attend) -> Tensor:
    split = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    assert attend(split).shape == split.shape
    return attend(split).transpose(1, 2).flatten(2)


def called_on_one_head(x: Tensor, heads: int, attend: Attend) -> Tensor:
    return attend(x.unsqueeze(1)).squeeze(1)


def called_never(x: Tensor, heads: int, attend: Attend) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2).transpose(1, 2).flatten(2)


def called_with_heads_first(x: Tensor, heads: int, attend: Attend) -> Tensor:
    return attend(x.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3)).permute(1, 2, 0, 3).flatten(2)


def called_with_heads_in_the_batch(x: Tensor, heads: int, attend: Attend) -> Tensor:
    split = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    mixed = attend(split.reshape(len(x) * heads, 1, x.shape[1], -1))
    return mixed.view_as(split).transpose(1, 2).flatten(2)


# ---- right answers -----------------------------------------------------------------------------------------------


def reach_by_sets(mask: Tensor, layers: int) -> Tensor:
    sees = [set(torch.nonzero(row)[:, 0].tolist()) for row in mask]
    found = sees
    for _ in range(layers - 1):
        found = [set().union(*(found[k] for k in row)) for row in sees]
    return torch.tensor([[j in row for j in range(len(mask))] for row in found])


def reach_by_any(mask: Tensor, layers: int) -> Tensor:
    seen = mask
    for _ in range(1, layers):
        seen = (mask[:, :, None] & seen).any(dim=1)
    return seen


def prune_by_a_sum(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    batch, heads, time, d_head = mixed.shape
    total = mixed.new_zeros(batch, time, len(W_O))
    for head in set(range(heads)).difference(removed):
        total = total + mixed[:, head] @ W_O[:, head * d_head : (head + 1) * d_head].T
    return total


def chunks_stacked(x: Tensor, heads: int, attend: Attend) -> Tensor:
    return torch.cat(attend(torch.stack(x.chunk(heads, dim=-1), dim=1)).unbind(1), dim=-1)


def causal_by_infinity(scores: Tensor) -> Tensor:
    queries, keys = scores.shape[-2:]
    return torch.full((queries, keys), -torch.inf).triu(keys - queries + 1) == 0


def cross_without_the_padding(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    rows = zip(query, keys, values, mask, strict=True)
    return torch.cat([F.scaled_dot_product_attention(q[None], k[m][None], v[m][None]) for q, k, v, m in rows])


class Heads(nn.Module):
    """A right layer; its parts can be changed."""

    def __init__(self, d_model: int, heads: int, bias: bool = True):
        super().__init__()
        self.heads = heads
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=bias))

    def scale(self, d_model: int) -> float:
        return math.sqrt(d_model // self.heads)

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        layers = (self.W_Q, x), (self.W_K, context), (self.W_V, context)
        q, k, v = (W(each).unflatten(-1, (self.heads, -1)).transpose(1, 2) for W, each in layers)
        scores = q @ k.mT / self.scale(x.shape[-1])
        weights = (scores if mask is None else self.blocked(scores, mask)).softmax(dim=-1)
        return self.W_O((weights @ v).transpose(1, 2).flatten(2))

    def blocked(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, scores, -torch.inf)


class HeadsDividedByTheModelsWidth(Heads):
    def scale(self, d_model: int) -> float:
        return math.sqrt(d_model)


class HeadsThatBlockWith0(Heads):
    def blocked(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, scores, 0.0)


class HeadsWithoutBiases(Heads):
    def __init__(self, d_model: int, heads: int):
        super().__init__(d_model, heads, bias=False)


class HeadsOfAnotherWidth(Heads):
    def __init__(self, d_model: int, heads: int):
        super().__init__(d_model, heads)
        self.W_O = nn.Linear(d_model // heads, d_model)


def heads_side_by_side(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads_before_the_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(0, 1).reshape(q.shape[0], q.shape[2], -1)


def triangle_of_all_keys(scores: Tensor) -> Tensor:
    keys = torch.arange(scores.shape[2])
    return keys <= keys[:, None]


def triangle_for_each_item(scores: Tensor) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool).tril(scores.shape[2] - scores.shape[1])


def mask_of_integers(lengths: Tensor, size: int) -> Tensor:
    rows = [[1] * int(n) + [0] * (size - int(n)) for n in lengths]
    return torch.tensor(rows)[:, None, None]


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        ex.causal_mask,
        lambda scores: torch.ones(scores.shape[1:]).tril(scores.shape[2] - scores.shape[1]),
        "a mask is Boolean",
    ),
    (ex.reach, lambda mask, layers: torch.linalg.matrix_power(mask.float(), layers + 1) > 0, "one layer too many"),
    (
        ex.attend_per_head,
        lambda x, heads, attend: attend(x.unflatten(-1, (heads, -1)).transpose(1, 2)).permute(0, 2, 3, 1).flatten(2),
        "the numbers are right, but in other places",
    ),
    (ex.causal_mask, triangle_of_the_scores, "a score can be 0, too"),
    (ex.cross_attention, cross_where_not_0, "score can be 0, too"),
    (ex.attention_weights, weights_by_columns, "the softmax runs over the queries"),
    (ex.attention_weights, weights_masked_afterwards, "the mask comes after the softmax"),
    (ex.attention_weights, weights_of_scores_as_they_are, "the scores are not divided by √d"),
    (ex.attention_weights, weights_blocked_where_true, "the mask is the wrong way around"),
    (ex.cross_attention, cross_with_a_mask_of_queries, "the mask lies on the queries"),
    (ex.cross_attention, cross_without_an_axis, "the mask has no axis for the queries"),
    (ex.causal_mask, future_alone, "the mask is the wrong way around, True for the future"),
    (ex.attend_and_record, record_where_not_0, "score can be 0, too"),
    (ex.causal_heads, heads_where_not_0, "score can be 0, too"),
    (ex.multi_head, layer_with(blocked_where_0), "score can be 0, too"),
    (ex.multi_head, layer_with(masked_too_late), "the mask comes after the softmax"),
    (ex.multi_head, layer_with(one_mask_for_all_heads), "the first head's mask is used for all"),
    (ex.reach, reach_by_power, "the number of paths outgrows"),
    (ex.reach, reach_by_counts(torch.int64), "the number of paths outgrows"),
    (ex.reach, reach_by_counts(torch.uint8), "the number of paths outgrows"),
    (ex.reach, reach_with_a_residual, "as a residual connection does"),
    (ex.causal_heads, heads_without_a_mask, "the mask is gone"),
    (ex.prune_heads, prune_some, "index_fill"),
    (ex.attend_per_head, called_to_look_first, "called twice"),
    (ex.attend_per_head, called_on_one_head, "one head of full width"),
    (ex.attend_per_head, called_never, "never called"),
    (ex.attend_per_head, called_with_heads_first, "the heads come before the batch"),
    (ex.attend_per_head, called_with_heads_in_the_batch, "folded into the batch"),
    (ex.multi_head, HeadsDividedByTheModelsWidth, "you divided by √d_model"),
    (ex.multi_head, HeadsThatBlockWith0, "a score of 0 does not block"),
    (ex.multi_head, HeadsWithoutBiases, "there is no W_Q.bias, W_K.bias, W_V.bias, W_O.bias; expected weight and bias"),
    (ex.multi_head, HeadsOfAnotherWidth, "W_O.weight has shape (8, 4); expected (8, 8)"),
    (ex.causal_heads, heads_side_by_side, "the heads are not merged"),
    (ex.causal_heads, heads_before_the_batch, "you exchanged batch and heads"),
    (ex.causal_mask, triangle_of_all_keys, "keep the rows of the queries"),
    (ex.causal_mask, triangle_for_each_item, "once for each item of the batch"),
    (ex.mask_from_lengths, mask_of_integers, "these are the integers 1 and 0"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.attention_weights, weights_renormalized),
    (ex.attention_weights, weights_of_a_bias),
    (ex.reach, reach_by_sets),
    (ex.reach, reach_by_any),
    (ex.prune_heads, prune_by_a_sum),
    (ex.attend_per_head, chunks_stacked),
    (ex.causal_mask, causal_by_infinity),
    (ex.cross_attention, cross_without_the_padding),
    (ex.multi_head, layer_with(lambda q, k, mask: (q @ k.mT * q.shape[-1] ** -0.5 + mask.log()).softmax(dim=-1))),
]
