"""The first exercises of lesson 03; the others are in exercises.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import (
    BY_HAND,
    FILLED,
    ZERO_IS_BLOCKED,
    Softmax,
    extreme_scores,
    with_scores,
    zero_is_blocked,
)

# ---- the mask of the padding -------------------------------------------------------------------------------------


def _lengths() -> list[tuple[Tensor, int]]:
    # as many sequences as positions, so that a mask with its axes in the wrong place raises no error
    square = [(torch.tensor([3, 1, 4, 2]), 4), (torch.tensor([2, 0, 3]), 3), (torch.tensor([2, 1, 3, 0]), 4)]
    return [*square, (torch.tensor([2, 5]), 7)]


@exercise(
    cases=_lengths,
    hints=[
        "`torch.arange(size)` holds the positions of the keys. Compare it with the lengths, one row per sequence.",
        "The scores are (batch, head, query, key). Where must an axis of size 1 stand, so that all heads and queries "
        "of a sequence share its row? `[:, None, None]` puts two of them in.",
    ],
)
def mask_from_lengths(lengths: Tensor, size: int) -> Tensor:
    allowed = torch.arange(size) < lengths[:, None]
    return allowed[:, None, None]


mask_from_lengths.mistakes(
    {
        "the shape (batch, key) lines up with (query, key): sequence 2 would mask query 2 of every sequence": (
            lambda lengths, size: torch.arange(size) < lengths[:, None]
        ),
        "the shape (batch, 1, key) lines up with (head, query, key): sequence 2 would mask head 2 of every sequence": (
            lambda lengths, size: (torch.arange(size) < lengths[:, None])[:, None]
        ),
        "the mask is the wrong way around: here True means 'may attend', so words are True": (
            lambda lengths, size: ~mask_from_lengths.reference(lengths, size)
        ),
        "one position too many: positions count from 0, so the last word of 3 stands at 2 and position 3 is padding": (
            lambda lengths, size: mask_from_lengths.reference(lengths + 1, size)
        ),
        "the mask is as wide as the longest sequence, but the batch can be wider: `size` says how wide": (
            lambda lengths, size: mask_from_lengths.reference(lengths, int(lengths.max()))
        ),
        "this masks padded queries and lets everyone read the padding: the positions belong to the last axis, "
        "the keys": lambda lengths, size: mask_from_lengths.reference(lengths, size).mT,
        "padded queries are blocked as well; leave them alone: nobody reads their outputs, and the loss drops them": (
            lambda lengths, size: (keys := mask_from_lengths.reference(lengths, size)) & keys.mT
        ),
        "these are the integers 1 and 0; a mask is Boolean, True and False": (
            lambda lengths, size: mask_from_lengths.reference(lengths, size).long()
        ),
        "the padding stands in front here; each sequence's words come first, and its padding behind them": (
            lambda lengths, size: mask_from_lengths.reference(lengths, size).flip(-1)
        ),
        "these are the numbers 1.0 and 0.0; a mask is Boolean, True and False": (
            lambda lengths, size: mask_from_lengths.reference(lengths, size).float()
        ),
    }
)

# ---- split, attend, merge ----------------------------------------------------------------------------------------


def _look_back(x: Tensor) -> Tensor:
    """Attention to the positions so far, sharper from head to head: (batch, head, time, d_head) to the same shape."""
    heads, time, d_head = x.shape[-3:]
    scores = torch.arange(1, heads + 1)[:, None, None] * (x @ x.mT) / math.sqrt(d_head)
    later = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ x


@dataclass(eq=False)
class _LookBackOnce:
    """`_look_back` for one call; every further one gives NaN."""

    calls: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return _look_back(x) if self.calls == 1 else torch.full_like(x, torch.nan)


def _vectors_and_heads() -> list[tuple[Tensor, int, Callable[[Tensor], Tensor]]]:
    sizes = [(2, 4, 12, 2), (1, 4, 16, 4), (3, 5, 8, 2)]  # batch, n, d_model, heads
    return [(2 * randn(b, n, d, seed=i), heads, _LookBackOnce()) for i, (b, n, d, heads) in enumerate(sizes, start=1)]


@exercise(
    cases=_vectors_and_heads,
    hints=[
        "Two steps each way: cut the last axis into (heads, d_head), then bring the heads in front of the time.",
        "`x.view(batch, time, heads, -1).transpose(1, 2)` splits. Undo both, the last one first.",
    ],
)
def attend_per_head(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    batch, time, d_model = x.shape
    split = x.view(batch, time, heads, d_model // heads).transpose(1, 2)
    return attend(split).transpose(1, 2).reshape(batch, time, d_model)


def _called_twice(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    attend(x.unflatten(2, (heads, -1)).transpose(1, 2))
    return attend_per_head.reference(x, heads, attend)


def _folded(x: Tensor, heads: int, attend: Callable[[Tensor], Tensor]) -> Tensor:
    split = x.unflatten(2, (heads, -1)).transpose(1, 2)
    return attend(split.flatten(0, 1)[:, None]).view_as(split).transpose(1, 2).flatten(2)


attend_per_head.mistakes(
    {
        "positions and heads are mixed: a view keeps the order in memory, "
        "so cut (heads, d_head) out of the width first, then transpose": (
            lambda x, heads, attend: attend(x.view(len(x), heads, x.shape[1], -1)).reshape(x.shape)
        ),
        "the split is right; merging mixes positions and heads: "
        "transpose back before the reshape, or the future leaks": (
            lambda x, heads, attend: attend(x.unflatten(2, (heads, -1)).transpose(1, 2)).reshape(x.shape)
        ),
        "the heads of one position attend to each other: attend works on the last two axes, "
        "which must be (time, d_head)": lambda x, heads, attend: attend(x.unflatten(2, (heads, -1))).reshape(x.shape),
        "each head took every heads-th entry of the width; a head is a piece of neighbors: view as (heads, d_head)": (
            lambda x, heads, attend: attend(x.unflatten(2, (-1, heads)).movedim(-1, 1)).movedim(1, -1).flatten(2)
        ),
        "`attend` is called once per head: one call gets all of them, shaped (batch, head, time, d_head)": (
            lambda x, heads, attend: torch.cat([attend(head[:, None])[:, 0] for head in x.chunk(heads, dim=-1)], dim=-1)
        ),
        "`attend` is called once per head, without an axis for heads: one call gets all, (batch, head, time, d_head)": (
            lambda x, heads, attend: torch.cat([attend(head) for head in x.chunk(heads, dim=-1)], dim=-1)
        ),
        "`attend` is called twice: keep the result of its one call": _called_twice,
        "the heads come before the batch: `attend` gets (batch, head, time, d_head)": (
            lambda x, heads, attend: attend(x.unflatten(2, (heads, -1)).movedim(2, 0)).movedim(0, 2).flatten(2)
        ),
        "the heads are folded into the batch: `attend` gets (batch, head, time, d_head), with an axis for them": (
            _folded
        ),
        "heads is how many there are, not how wide each is: its width is d_model // heads": (
            lambda x, heads, attend: attend_per_head.reference(x, x.shape[-1] // heads, attend)
        ),
        "this is one head of full width, without an axis for heads: all entries of a position share its weights": (
            lambda x, heads, attend: attend(x)
        ),
        "this is one head of full width: the weights are shared by all entries of a position": (
            lambda x, heads, attend: attend(x[:, None])[:, 0]
        ),
        "`attend` is never called: splitting and merging alone give x back": lambda x, heads, attend: x.clone(),
    }
)

# ---- the causal mask ---------------------------------------------------------------------------------------------


def _scores() -> list[tuple[Tensor]]:
    zeros = randn(2, 3, 3, seed=29).tril().triu(-1)  # a score of 0 says nothing about who may look at whom
    return [(randn(2, 4, 4, seed=26),), (randn(3, 2, 5, seed=27),), (randn(1, 1, 3, seed=28),), (zeros,)]


@exercise(
    cases=_scores,
    hints=[
        "With n queries and m keys, query i stands at position m − n + i. Which keys are not later?",
        "Compare two `torch.arange`, one as a column and one as a row; or look up `diagonal` in the help of `tril`.",
    ],
)
def causal_mask(scores: Tensor) -> Tensor:
    queries, keys = scores.shape[-2:]
    position = torch.arange(keys - queries, keys)
    return torch.arange(keys) <= position[:, None]


causal_mask.mistakes(
    {
        "these are the numbers 1.0 and 0.0: a mask is Boolean, True and False": (
            lambda scores: causal_mask.reference(scores).float()
        ),
        "right for as many queries as keys; fewer queries are the last positions, and yours sit at the start: "
        "the newest word would see the first one alone": (
            lambda scores: torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        ),
        "a position may attend to itself: j ≤ i, not j < i; the first one would be left with nothing to attend to": (
            lambda scores: torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2] - 1)
        ),
        "the mask is the wrong way around: True means 'may attend', and here it is True for the future": (
            lambda scores: ~causal_mask.reference(scores)
        ),
        "the mask is the wrong way around, True for the future; and with fewer queries than keys it starts at the "
        "wrong position": lambda scores: torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1),
        "this is the upper triangle, itself and the future; and with fewer queries than keys it starts at the wrong "
        "position": lambda scores: torch.ones(scores.shape[-2:], dtype=torch.bool).triu(),
        "this is the upper triangle: every position sees itself and the future, and never the past": (
            lambda scores: torch.ones(scores.shape[-2:], dtype=torch.bool).triu(scores.shape[-1] - scores.shape[-2])
        ),
        "these are numbers to add to the scores, 0 and −∞; the exercise asks for a mask, True and False": (
            lambda scores: torch.zeros(scores.shape[-2:]).masked_fill(~causal_mask.reference(scores), -torch.inf)
        ),
        "the mask has a row for every key: keep the rows of the queries, which are the last ones": (
            lambda scores: torch.ones(scores.shape[-1], scores.shape[-1], dtype=torch.bool).tril()
        ),
        "the mask is right, once for each item of the batch: it is the same for all, (query, key)": (
            lambda scores: causal_mask.reference(scores).expand_as(scores)
        ),
        "a score can be 0, too: make the triangle from ones, since only the places count": (
            lambda scores: scores[0].tril(scores.shape[-1] - scores.shape[-2]) != 0
        ),
        "these are the masked scores; the exercise asks for the mask itself, True and False": (
            lambda scores: scores.masked_fill(~causal_mask.reference(scores), -torch.inf)
        ),
    }
)

# ---- cross-attention ---------------------------------------------------------------------------------------------


def _queries_keys_and_values() -> list[tuple[Tensor, ...]]:
    def inputs(queries: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        return randn(2, queries, 5, seed=seed), randn(2, 4, 5, seed=seed + 1), randn(2, 4, 5, seed=seed + 2)

    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    four = torch.arange(4) < torch.tensor([[4], [2], [3], [1]])
    extreme, allowed = extreme_scores()
    query, keys, values = inputs(4, 6)
    query[:, 1] = 0.0  # all its scores are 0
    return [
        (*(randn(4, 4, 5, seed=seed) for seed in (70, 71, 72)), four),  # a mask on the wrong axes raises no error
        (query, keys, values, mask),
        (*inputs(3, 3), mask),
        (*with_scores(extreme[None]), randn(1, 3, 4, seed=9), allowed[None]),
    ]


@exercise(
    cases=_queries_keys_and_values,
    hints=[
        "Three steps: scores (batch, n, m), weights that sum to 1 over the keys, mixtures of the values (batch, n, d).",
        "`keys.mT` exchanges the last two axes. The mask is (batch, m): where is the axis that the n queries share?",
    ],
)
def cross_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    return scores.softmax(dim=-1) @ values


def scaled(query: Tensor, keys: Tensor) -> Tensor:
    return query @ keys.mT / math.sqrt(query.shape[-1])


def _crossed(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, weigh: Softmax) -> Tensor:
    return weigh(scaled(query, keys), mask[:, None]) @ values


cross_attention.mistakes(
    {
        "the scores are not divided by √d: their spread grows with the width and the softmax hardens": (
            lambda q, *rest: cross_attention.reference(q * math.sqrt(q.shape[-1]), *rest)
        ),
        "you divided by d; the standard deviation of a sum of d products is √d": (
            lambda q, *rest: cross_attention.reference(q / math.sqrt(q.shape[-1]), *rest)
        ),
        "√d divides the weights, after the softmax: it belongs to the scores, before it": (
            lambda q, *rest: cross_attention.reference(q * math.sqrt(q.shape[-1]), *rest) / math.sqrt(q.shape[-1])
        ),
        "padding takes part: the mask is not used": (
            lambda q, k, v, mask: cross_attention.reference(q, k, v, torch.ones_like(mask))
        ),
        "you mixed the keys: they say where to look, the values say what is found there": (
            lambda q, k, v, mask: cross_attention.reference(q, k, k, mask)
        ),
        "the softmax runs over the queries, where a column of padding is 0/0: each query needs weights over the keys": (
            lambda q, k, v, mask: scaled(q, k).masked_fill(~mask[:, None], -torch.inf).softmax(dim=-2) @ v
        ),
        "the mask is the wrong way around: True means 'may attend', so block where it is False": (
            lambda q, k, v, mask: cross_attention.reference(q, k, v, ~mask)
        ),
        "the mask lies on the queries: it says which keys are words, so it needs an axis for the queries, "
        "`mask[:, None]`": (
            lambda q, k, v, mask: scaled(q, k).masked_fill(~mask[:, :, None], -torch.inf).softmax(dim=-1) @ v
        ),
        "the mask has no axis for the queries: (batch, key) lines up with (query, key); give it one, `mask[:, None]`": (
            lambda q, k, v, mask: scaled(q, k).masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v
        ),
        "the mask comes after the softmax: padding has taken its share, and no row sums to 1": (
            lambda q, k, v, mask: (scaled(q, k).softmax(dim=-1) * mask[:, None]) @ v
        ),
        ZERO_IS_BLOCKED: partial(_crossed, weigh=zero_is_blocked),
        "a score of 0 is not 'blocked': exp(0) = 1; give padding the score −∞": (
            lambda q, k, v, mask: (scaled(q, k) * mask[:, None]).softmax(dim=-1) @ v
        ),
    }
    | {message: partial(_crossed, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)

# ---- pruning heads -----------------------------------------------------------------------------------------------


def _heads_to_remove() -> list[tuple[Tensor, Tensor, list[int]]]:
    return [
        (randn(2, 4, 3, 2, seed=9), randn(8, 8, seed=10), [1]),
        (randn(1, 4, 2, 2, seed=11), randn(8, 8, seed=12), [3, 0, 2]),
        (randn(2, 2, 3, 2, seed=13), randn(4, 4, seed=14), []),
    ]


@exercise(
    cases=_heads_to_remove,
    hints=[
        "The output is a sum with one term per head: what head h found, times its own d_head columns of W_O.",
        "A removed head adds nothing. Set its d_head entries of the merged vector to 0 before W_O, in a copy.",
    ],
)
def prune_heads(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    batch, heads, time, d_head = mixed.shape
    kept = torch.tensor([head not in removed for head in range(heads)])
    merged = (mixed * kept[:, None, None]).transpose(1, 2).reshape(batch, time, heads * d_head)
    return merged @ W_O.T


def _rows_removed(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    rows = W_O.clone().unflatten(0, (mixed.shape[1], -1))
    rows[removed] = 0.0
    return prune_heads.reference(mixed, rows.flatten(0, 1), [])


def _merged_as_it_lies(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    kept = mixed.clone()
    kept[:, removed] = 0.0
    return kept.reshape(len(mixed), mixed.shape[2], -1) @ W_O.T


def _moved_up(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    kept = [head for head in range(mixed.shape[1]) if head not in removed]
    merged = mixed[:, kept].transpose(1, 2).flatten(2)
    return merged @ W_O[:, : merged.shape[-1]].T


prune_heads.mistakes(
    {
        "heads are counted from 0, as Python does": (
            lambda mixed, W_O, removed: prune_heads.reference(mixed, W_O, [head - 1 for head in removed])
        ),
        "merged without bringing time before head: `reshape` read positions of one head as entries of one vector": (
            _merged_as_it_lies
        ),
        "only the first head of the list is removed": (
            lambda mixed, W_O, removed: prune_heads.reference(mixed, W_O, removed[:1])
        ),
        "these are the removed heads: keep the others": lambda mixed, W_O, removed: prune_heads.reference(
            mixed, W_O, [head for head in range(mixed.shape[1]) if head not in removed]
        ),
        "nothing is removed: this is the output of all heads": (
            lambda mixed, W_O, removed: prune_heads.reference(mixed, W_O, [])
        ),
        "you multiplied by W_O; as in nn.Linear its rows are outputs and its columns inputs, so multiply by W_O.T": (
            lambda mixed, W_O, removed: prune_heads.reference(mixed, W_O.T, removed)
        ),
        "the rows of W_O are entries of the output, which all heads share; "
        "a head owns d_head neighboring columns": _rows_removed,
        "the heads that are left moved up and met the columns of others: "
        "each head keeps its own columns of W_O": _moved_up,
        "the others are scaled up, as dropout does in training; what is left of the sum are their terms as they were": (
            lambda mixed, W_O, removed: (
                prune_heads.reference(mixed, W_O, removed) * mixed.shape[1] / (mixed.shape[1] - len(removed))
            )
        ),
    }
)

# ---- what can influence what -------------------------------------------------------------------------------------


def _masks_and_depths() -> list[tuple[Tensor, int]]:
    ones = torch.ones(6, 6, dtype=torch.bool)
    band, strict, causal = ones.tril().triu(-1), ones.tril(-1), ones.tril()
    ring = torch.eye(6, dtype=torch.bool).roll(1, dims=0)  # each reads the one before, and the first the last
    groups = torch.block_diag(ones[:4, :4], ones[:2, :2])  # after 300 layers there are 4²⁹⁹ paths between two of four
    shallow = [(band, 1), (band, 3), (strict, 2), (causal, 4), (ones.tril(-1).triu(-2), 2), (ring, 3), (strict, 7)]
    return [*shallow, (groups, 300)]


@exercise(
    cases=_masks_and_depths,
    hints=[
        "Two layers: output i reads some k of the first layer, and k has read j. So there must be a k with "
        "mask[i, k] and mask[k, j].",
        "“There is a k” is a sum over k that is not 0: multiply the matrices as numbers and compare with 0.",
    ],
)
def reach(mask: Tensor, layers: int) -> Tensor:
    seen = mask
    for _ in range(layers - 1):
        seen = seen.float() @ mask.float() > 0
    return seen


def _with_shorter_paths(mask: Tensor, layers: int) -> Tensor:
    seen = mask
    for _ in range(layers - 1):
        seen = mask | (seen.float() @ mask.float() > 0)
    return seen


reach.mistakes(
    {
        "this is the reach of one layer; the next one reads positions that have read others, so the reach grows": (
            lambda mask, layers: mask.clone()
        ),
        "one layer too many: a single layer reaches what its mask allows, so begin with the mask": (
            lambda mask, layers: reach.reference(mask, layers + 1)
        ),
        "the direction is reversed: row i must hold what output i can see, as in the mask": (
            lambda mask, layers: reach.reference(mask, layers).mT
        ),
        "these are the numbers of paths from j to i; whether j can influence i is whether there is one: "
        "compare with 0": lambda mask, layers: torch.linalg.matrix_power(mask.float(), layers),
        "these are counts of paths; an influence is there or not: compare with 0": (
            lambda mask, layers: torch.linalg.matrix_power(mask.double(), layers)
        ),
        "in a deep stack the number of paths outgrows what the type can hold: compare with 0 after every layer": (
            lambda mask, layers: torch.linalg.matrix_power(mask.float(), layers) > 0
        ),
        "this lets every position keep what it has, as a residual connection does: here it sees itself only if the "
        "mask says so": lambda mask, layers: reach.reference(mask | torch.eye(len(mask), dtype=torch.bool), layers),
        "shorter paths count here as well, as if a position could skip a layer: that takes a residual branch; "
        "every path must be exactly as long as there are layers": _with_shorter_paths,
        "this is the reach of deep stacks; few layers reach no further than their number of steps": (
            lambda mask, layers: torch.ones_like(mask).tril()
        ),
    }
)
