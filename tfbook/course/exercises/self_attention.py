"""Exercises of lesson 03: masks, heads and cross-attention, and what a layer can and cannot see."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from tfbook.course.exercises.engine import Answer, Cases, Exercise, Verdict, exercise, randn
from tfbook.course.exercises.extremes import BY_HAND, FILLED, Softmax, extreme_scores, filled, with_scores

# ---- the mask of the padding -------------------------------------------------------------------------------------


def _lengths() -> list[tuple[Tensor, int]]:
    # as many sequences as positions, so that a mask with its axes in the wrong place raises no error
    return [(torch.tensor([3, 1, 4, 2]), 4), (torch.tensor([2, 0, 3]), 3), (torch.tensor([2, 1, 3, 0]), 4)]


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


def _vectors_and_heads() -> list[tuple[Tensor, int, Callable[[Tensor], Tensor]]]:
    return [(2 * randn(2, 4, 12, seed=1), 2, _look_back), (2 * randn(1, 4, 16, seed=2), 4, _look_back)]


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
        "heads is how many there are, not how wide each is: its width is d_model // heads": (
            lambda x, heads, attend: attend_per_head.reference(x, x.shape[-1] // heads, attend)
        ),
        "this is one head of full width: the weights are shared by all entries of a position": (
            lambda x, heads, attend: attend(x)
        ),
    }
)


# ---- the causal mask ---------------------------------------------------------------------------------------------


def _scores() -> list[tuple[Tensor]]:
    return [(randn(2, 4, 4, seed=26),), (randn(3, 2, 5, seed=27),), (randn(1, 1, 3, seed=28),)]


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
        "this is the upper triangle: every position sees itself and the future, and never the past": (
            lambda scores: torch.ones(scores.shape[-2:], dtype=torch.bool).triu(scores.shape[-1] - scores.shape[-2])
        ),
        "these are numbers to add to the scores, 0 and −∞; the exercise asks for a mask, True and False": (
            lambda scores: torch.zeros(scores.shape[-2:]).masked_fill(~causal_mask.reference(scores), -torch.inf)
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
    extreme, allowed = extreme_scores()
    return [
        (*inputs(3, 3), mask),
        (*inputs(4, 6), mask),
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


def _scaled(query: Tensor, keys: Tensor) -> Tensor:
    return query @ keys.mT / math.sqrt(query.shape[-1])


def _crossed(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, weigh: Softmax) -> Tensor:
    return weigh(_scaled(query, keys), mask[:, None]) @ values


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
            lambda q, k, v, mask: _scaled(q, k).masked_fill(~mask[:, None], -torch.inf).softmax(dim=-2) @ v
        ),
        "the mask is the wrong way around: True means 'may attend', so block where it is False": (
            lambda q, k, v, mask: cross_attention.reference(q, k, v, ~mask)
        ),
        "the mask comes after the softmax: padding has taken its share, and no row sums to 1": (
            lambda q, k, v, mask: (_scaled(q, k).softmax(dim=-1) * mask[:, None]) @ v
        ),
        "a score of 0 is not 'blocked': exp(0) = 1; give padding the score −∞": (
            lambda q, k, v, mask: (_scaled(q, k) * mask[:, None]).softmax(dim=-1) @ v
        ),
    }
    | {message: partial(_crossed, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)


# ---- pruning heads -----------------------------------------------------------------------------------------------


def _heads_to_remove() -> list[tuple[Tensor, Tensor, list[int]]]:
    return [
        (randn(2, 4, 3, 2, seed=9), randn(8, 8, seed=10), [1]),
        (randn(1, 4, 2, 2, seed=11), randn(8, 8, seed=12), [3, 0, 2]),
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
    rows = W_O.unflatten(0, (mixed.shape[1], -1)).index_fill(0, torch.tensor(removed), 0.0).flatten(0, 1)
    return prune_heads.reference(mixed, rows, [])


def _moved_up(mixed: Tensor, W_O: Tensor, removed: list[int]) -> Tensor:
    kept = [head for head in range(mixed.shape[1]) if head not in removed]
    merged = mixed[:, kept].transpose(1, 2).flatten(2)
    return merged @ W_O[:, : merged.shape[-1]].T


prune_heads.mistakes(
    {
        "merged without bringing time before head: `reshape` read positions of one head as entries of one vector": (
            lambda mixed, W_O, removed: (
                mixed.index_fill(1, torch.tensor(removed), 0.0).reshape(len(mixed), mixed.shape[2], -1) @ W_O.T
            )
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
    return [(band, 1), (band, 3), (strict, 2), (causal, 4), (ones.tril(-1).triu(-2), 2), (ring, 3), (strict, 7)]


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
        "shorter paths count here as well, as if a position could skip a layer: that takes a residual branch; "
        "every path must be exactly as long as there are layers": (
            lambda mask, layers: torch.stack([reach.reference(mask, depth + 1) for depth in range(layers)]).any(dim=0)
        ),
        "this is the reach of deep stacks; few layers reach no further than their number of steps": (
            lambda mask, layers: torch.ones_like(mask).tril()
        ),
    }
)


# ---- find the bug: the picture -----------------------------------------------------------------------------------


def _one_head_of_each() -> list[tuple[Tensor, ...]]:
    padded = torch.tensor([[True, True, True, False], [True, True, False, False]])[:, None]
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    extreme, allowed = extreme_scores()
    return [
        *((*(randn(2, 4, 3, seed=seed + i) for i in range(3)), mask) for seed, mask in ((13, padded), (16, causal))),
        (*with_scores(extreme[None]), randn(1, 3, 4, seed=19), allowed[None, None]),
    ]


@exercise(
    cases=_one_head_of_each,
    hints=[
        "Add up the weights that are returned: how much of each row lies on positions that the mask blocks?",
        "Weights and output must come from the same softmax. How many do you count?",
    ],
)
def attend_and_record(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    return weights @ v, weights


@attend_and_record.given
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores, dim=-1)
    output = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1) @ v
    return output, weights


def _recorded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, weigh: Softmax) -> tuple[Tensor, Tensor]:
    weights = weigh(_scaled(q, k), mask)
    return weights @ v, weights


attend_and_record.mistakes(
    {
        "the picture now agrees with the output, but both are wrong: the output was masked, and is no longer": (
            lambda q, k, v, mask: attend_and_record.reference(q, k, v, torch.ones_like(mask))
        ),
        "better: blocked positions are dark in the picture; "
        "but its rows no longer sum to 1, so these are not the weights that were applied": (
            lambda q, k, v, mask: (attend_and_record.reference(q, k, v, mask)[0], _scaled(q, k).softmax(dim=-1) * mask)
        ),
        "output and picture agree, but the mask comes after the softmax: the rows no longer sum to 1": (
            lambda q, k, v, mask: ((weights := _scaled(q, k).softmax(dim=-1) * mask) @ v, weights)
        ),
        "these are the masked scores; what multiplies the values is their softmax": lambda q, k, v, mask: (
            attend_and_record.reference(q, k, v, mask)[0],
            _scaled(q, k).masked_fill(~mask, -torch.inf),
        ),
        "the mask is the wrong way around: True means 'may attend'": (
            lambda q, k, v, mask: attend_and_record.reference(q, k, v, ~mask)
        ),
    }
    | {message: partial(_recorded, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)


# ---- find the bug: the leak --------------------------------------------------------------------------------------


def _heads_that_look_back() -> list[tuple[Tensor, ...]]:
    extreme = torch.tensor([[-40.0, -90.0, -90.0], [-2000.0, -2001.0, 5.0], [200.0, 199.0, 198.0]])
    return [
        *(
            tuple(randn(batch, heads, 4, 2, seed=seed + i) for i in range(3))
            for batch, heads, seed in ((2, 2, 20), (1, 3, 23))
        ),
        (*with_scores(extreme.expand(1, 2, -1, -1)), randn(1, 2, 3, 4, seed=29)),
    ]


@exercise(
    cases=_heads_that_look_back,
    hints=[
        "The mask is right. Change the last vector of v alone: which rows of the result change, and should they?",
        "The last line turns (batch, head, time, d_head) into (batch, time, d_model). In which order does a reshape "
        "read the entries?",
    ],
)
def causal_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, heads, time, d_head = q.shape
    later = torch.ones(time, time, dtype=torch.bool).triu(1)
    scores = q @ k.mT / math.sqrt(d_head)
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    return (weights @ v).transpose(1, 2).reshape(batch, time, heads * d_head)


@causal_heads.given
def _(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, heads, time, d_head = q.shape
    later = torch.ones(time, time, dtype=torch.bool).triu(1)
    scores = q @ k.mT / math.sqrt(d_head)
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    return (weights @ v).reshape(batch, time, heads * d_head)


STILL = "and the reshape still mixes heads with positions"


def _weighed(q: Tensor, k: Tensor, v: Tensor, *, weigh: Softmax) -> Tensor:
    time = q.shape[2]
    weights = weigh(_scaled(q, k), torch.ones(time, time, dtype=torch.bool).tril())
    return (weights @ v).transpose(1, 2).flatten(2)


def _causal(q: Tensor, k: Tensor, v: Tensor, *, diagonal: int = 1, dim: int = -1, merge: bool = True) -> Tensor:
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(diagonal)
    mixed = _scaled(q, k).masked_fill(later, -torch.inf).softmax(dim=dim) @ v
    return (mixed.transpose(1, 2) if merge else mixed).reshape(len(q), q.shape[2], -1)


causal_heads.mistakes(
    {
        "the positions are right, but the heads are interleaved: head h must fill neighboring entries, "
        "as W_O expects": lambda q, k, v: causal_heads.reference(q, k, v).unflatten(2, (q.shape[1], -1)).mT.flatten(2),
        "the mask was right: without the diagonal the first position has nothing to attend to, which gives NaN": (
            partial(_causal, diagonal=0)
        ),
        "the mask was right: `triu(1)` marks the later positions; now the earlier ones are blocked": (
            lambda *qkv: causal_heads.reference(*(x.flip(2) for x in qkv)).flip(1)
        ),
        "the merge is right now, but the softmax was, too: weights must sum to 1 over the keys": (
            partial(_causal, dim=-2)
        ),
        "the leak is closed by averaging the heads; they belong side by side, each in its own entries": (
            lambda q, k, v: (
                causal_heads.reference(q, k, v).unflatten(2, (q.shape[1], -1)).mean(dim=2).repeat(1, 1, q.shape[1])
            )
        ),
        f"the mask was right: without the diagonal the first position sees nothing; {STILL}": (
            partial(_causal, diagonal=0, merge=False)
        ),
        f"the mask was right: `triu(2)` lets each position see the next one; {STILL}": (
            partial(_causal, diagonal=2, merge=False)
        ),
        f"the softmax was right: weights must sum to 1 over the keys, the last axis; {STILL}": (
            partial(_causal, dim=-2, merge=False)
        ),
    }
    | {message: partial(_weighed, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)


# ---- the whole layer ---------------------------------------------------------------------------------------------


class _Layer(nn.Module):
    """The weights of a layer, which an answer's own layer takes over."""

    def __init__(self, d_model: int, heads: int, seed: int):
        super().__init__()
        self.d_model, self.heads = d_model, heads
        for i, name in enumerate(("W_Q", "W_K", "W_V", "W_O")):
            linear = nn.Linear(d_model, d_model)
            with torch.no_grad():
                linear.weight.copy_(randn(d_model, d_model, seed=seed + i))
                linear.bias.copy_(randn(d_model, seed=seed + 10 + i))
            self.add_module(name, linear)


def _plain_layer(d_model: int, heads: int) -> _Layer:
    """Queries, keys, values and outputs are the vectors themselves."""
    layer = _Layer(d_model, heads, seed=0)
    with torch.no_grad():
        for numbers in layer.parameters():
            numbers.copy_(torch.eye(d_model) if numbers.ndim == 2 else torch.zeros(d_model))
    return layer


class _Built:
    """A learner's class as a function of a case: a layer of that class, with the weights of the case."""

    def __init__(self, layer_class: type):
        self.layer_class, self.__name__ = layer_class, layer_class.__name__
        self.__code__ = getattr(getattr(layer_class, "forward", None), "__code__", None)

    def __call__(self, layer: _Layer, x: Tensor, context: Tensor | None, mask: Tensor | None) -> object:
        built = self.layer_class(layer.d_model, layer.heads)
        found, expected = dict(built.named_parameters()), dict(layer.named_parameters())
        if not found:  # a blank
            return ...
        if {name: w.shape for name, w in found.items()} != {name: w.shape for name, w in expected.items()}:
            names = ", ".join(sorted({name.partition(".")[0] for name in found}))
            raise AttributeError(
                f"found weights in {names}; expected W_Q, W_K, W_V, W_O, each nn.Linear(d_model, d_model)"
            )
        built.load_state_dict(layer.state_dict())
        return built(x, context, mask)


class _LayerExercise(Exercise):
    """An exercise whose answer may be a class, of which `check` makes a layer."""

    def judge(self, answer: object) -> Verdict:
        return super().judge(_Built(answer) if isinstance(answer, type) else answer)


def _layer_exercise(*, cases: Cases, hints: Sequence[str]) -> Callable[[Answer], Exercise]:
    return lambda solution: _LayerExercise(solution, cases, hints)


def _layers_and_inputs() -> list[tuple[_Layer, Tensor, Tensor | None, Tensor | None]]:
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    extreme, allowed = extreme_scores()
    q, k = (each.repeat(1, 1, 2) for each in with_scores(extreme[None, [0, 1, 3]]))  # as many queries as keys
    padding = torch.tensor([[True, True, True, True, False], [True, False, False, False, False]])[:, None, None]
    return [
        (_Layer(8, 2, seed=40), randn(2, 5, 8, seed=60), None, None),
        (_Layer(8, 4, seed=41), randn(2, 5, 8, seed=61), None, causal),
        (_Layer(8, 2, seed=42), randn(2, 5, 8, seed=62), randn(2, 5, 8, seed=63), padding),
        (_Layer(8, 2, seed=43), randn(2, 5, 8, seed=64), randn(2, 3, 8, seed=65), None),
        (_plain_layer(8, 2), q, k, allowed[None, None, None]),
    ]


@_layer_exercise(
    cases=_layers_and_inputs,
    hints=[
        "`__init__` keeps `heads` and makes four `nn.Linear(d_model, d_model)` called W_Q, W_K, W_V and W_O.",
        "`forward` has four steps: project, where keys and values come from `context` if there is one; split into "
        "heads; attend under the mask; merge and apply W_O.",
        "Split: `x.unflatten(-1, (heads, -1)).transpose(1, 2)`. Merge: `y.transpose(1, 2).flatten(2)`.",
    ],
)
def multi_head(layer: _Layer, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
    context = x if context is None else context
    q, k, v = layer.W_Q(x), layer.W_K(context), layer.W_V(context)
    q, k, v = (each.unflatten(-1, (layer.heads, -1)).transpose(1, 2) for each in (q, k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return layer.W_O((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


BLOCKED = filled(-torch.inf)


def _split_and_merge(
    layer: _Layer,
    x: Tensor,
    context: Tensor | None,
    mask: Tensor | None,
    *,
    scale: float | None = None,
    split: bool = True,
    merge: bool = True,
    output: bool = True,
    weigh: Softmax = BLOCKED,
) -> Tensor:
    """`multi_head` with one step changed."""
    context = x if context is None else context

    def pieces(vectors: Tensor) -> Tensor:
        if split:
            return vectors.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        return vectors.reshape(len(vectors), layer.heads, vectors.shape[1], -1)

    q, k, v = pieces(layer.W_Q(x)), pieces(layer.W_K(context)), pieces(layer.W_V(context))
    mixed = weigh(q @ k.mT / math.sqrt(scale or q.shape[-1]), torch.tensor(True) if mask is None else mask) @ v
    mixed = mixed.transpose(1, 2).flatten(2) if merge else mixed.reshape(x.shape)
    return layer.W_O(mixed) if output else mixed


multi_head.mistakes(
    {
        "the scores are not divided by the root of the head's width: they spread too far and the softmax hardens": (
            partial(_split_and_merge, scale=1.0)
        ),
        "you divided by √d_model; each head compares vectors of width d_head = d_model / heads, so divide by √d_head": (
            partial(_split_and_merge, scale=8.0)
        ),
        "W_O is missing: the heads lie side by side, and nothing has mixed them yet": (
            partial(_split_and_merge, output=False)
        ),
        "the context is ignored: keys and values come from it, and only the queries from x": (
            lambda layer, x, context, mask: multi_head.reference(layer, x, None, mask)
        ),
        "the mask is not used": lambda layer, x, context, mask: multi_head.reference(layer, x, context, None),
        "the mask is the wrong way around: True means 'may attend', so block where it is False": (
            lambda layer, x, context, mask: multi_head.reference(layer, x, context, None if mask is None else ~mask)
        ),
        "the split mixes tokens and heads: cut the width into (heads, d_head) first, then transpose": (
            partial(_split_and_merge, split=False)
        ),
        "the merge mixes tokens and heads: transpose back before you flatten": (partial(_split_and_merge, merge=False)),
        "split and merge both mix tokens and heads: a view keeps the order in memory, so transpose as well": (
            partial(_split_and_merge, split=False, merge=False)
        ),
    }
    | {message: partial(_split_and_merge, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
    | {
        "a blocked score of −15 is not low enough: allowed scores can be lower": partial(
            _split_and_merge, weigh=filled(-15)
        )
    }
)
