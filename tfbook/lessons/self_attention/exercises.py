"""Exercises of lesson 03: masks, heads and cross-attention, and what a layer can and cannot see."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tfbook.course.attempts import Answer, Attempt, Cases
from tfbook.course.exercises import Exercise, exercise, randn
from tfbook.course.extremes import (
    BY_HAND,
    FILLED,
    ZERO_IS_BLOCKED,
    Softmax,
    extreme_scores,
    filled,
    with_scores,
    zero_is_blocked,
)
from tfbook.lessons.self_attention.first_exercises import (
    attend_per_head as attend_per_head,
    causal_mask as causal_mask,
    cross_attention as cross_attention,
    mask_from_lengths as mask_from_lengths,
    prune_heads as prune_heads,
    reach as reach,
    scaled,
)
from tfbook.lessons.self_attention.weights_exercises import attention_weights as attention_weights

# ---- find the bug: the picture -----------------------------------------------------------------------------------


def _one_head_of_each() -> list[tuple[Tensor, ...]]:
    padded = torch.tensor([[True, True, True, False], [True, True, False, False]])[:, None]
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    extreme, allowed = extreme_scores()
    some = torch.tensor([[True, False, True, True], [False, True, False, True]])[:, None]
    masks = ((13, padded), (16, causal), (82, some))
    zeros = randn(2, 4, 3, seed=85).index_fill(1, torch.tensor(2), 0.0)  # all scores of a query are 0
    return [
        *((*(randn(2, 4, 3, seed=seed + i) for i in range(3)), mask) for seed, mask in masks),
        (*with_scores(extreme[None]), randn(1, 3, 4, seed=19), allowed[None, None]),
        (zeros, randn(2, 4, 3, seed=86), randn(2, 4, 3, seed=87), padded),
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
    weights = weigh(scaled(q, k), mask)
    return weights @ v, weights


attend_and_record.mistakes(
    {
        "the picture now agrees with the output, but both are wrong: the output was masked, and is no longer": (
            lambda q, k, v, mask: attend_and_record.reference(q, k, v, torch.ones_like(mask))
        ),
        "better: blocked positions are dark in the picture; "
        "but its rows no longer sum to 1, so these are not the weights that were applied": (
            lambda q, k, v, mask: (attend_and_record.reference(q, k, v, mask)[0], scaled(q, k).softmax(dim=-1) * mask)
        ),
        "output and picture agree, but the mask comes after the softmax: the rows no longer sum to 1": (
            lambda q, k, v, mask: ((weights := scaled(q, k).softmax(dim=-1) * mask) @ v, weights)
        ),
        "these are the masked scores; what multiplies the values is their softmax": lambda q, k, v, mask: (
            attend_and_record.reference(q, k, v, mask)[0],
            scaled(q, k).masked_fill(~mask, -torch.inf),
        ),
        "the mask is the wrong way around: True means 'may attend'": (
            lambda q, k, v, mask: attend_and_record.reference(q, k, v, ~mask)
        ),
        ZERO_IS_BLOCKED: partial(_recorded, weigh=zero_is_blocked),
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
        tuple(randn(2, 3, 5, 4, seed=76 + i) for i in range(3)),
        (torch.zeros(1, 2, 3, 4), randn(1, 2, 3, 4, seed=88), randn(1, 2, 3, 4, seed=89)),  # all scores are 0
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
    weights = weigh(scaled(q, k), torch.ones(time, time, dtype=torch.bool).tril())
    return (weights @ v).transpose(1, 2).flatten(2)


def _causal(q: Tensor, k: Tensor, v: Tensor, *, diagonal: int = 1, dim: int = -1, merge: bool = True) -> Tensor:
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(diagonal)
    mixed = scaled(q, k).masked_fill(later, -torch.inf).softmax(dim=dim) @ v
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
        "the merge is right now, but the mask is gone: every position sees the later ones": partial(
            _causal, diagonal=10**6
        ),
        ZERO_IS_BLOCKED: partial(_weighed, weigh=zero_is_blocked),
        "the merge is right now, but the softmax was, too: weights must sum to 1 over the keys": (
            partial(_causal, dim=-2)
        ),
        "the heads are not merged: put them side by side in the last axis, (batch, time, heads · d_head)": (
            lambda q, k, v: causal_heads.reference(q, k, v).unflatten(2, (q.shape[1], -1)).transpose(1, 2)
        ),
        "you exchanged batch and heads: bring the time before the heads, `transpose(1, 2)`": (
            lambda q, k, v: (
                causal_heads.reference(q, k, v)
                .unflatten(2, (q.shape[1], -1))
                .permute(2, 0, 1, 3)
                .reshape(len(q), q.shape[2], -1)
            )
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
        if found.keys() != expected.keys() or any(found[name].shape != w.shape for name, w in expected.items()):
            raise AttributeError(_unlike(found, expected))
        return functional_call(built, expected, (x, context, mask))


def _unlike(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Says which weights a layer has in the place of those expected."""
    layers, wanted = (list(dict.fromkeys(name.partition(".")[0] for name in names)) for names in (found, expected))
    if sorted(layers) != sorted(wanted):
        return f"found weights in {', '.join(layers)}; expected {', '.join(wanted)}, each nn.Linear(d_model, d_model)"
    if missing := [name for name in expected if name not in found]:
        return f"there is no {', '.join(missing)}; expected weight and bias in each nn.Linear(d_model, d_model)"
    name = next(name for name in expected if found[name].shape != expected[name].shape)
    return f"{name} has shape {tuple(found[name].shape)}; expected {tuple(expected[name].shape)}"


class _LayerExercise(Exercise):
    """An exercise whose answer may be a class, of which `check` makes a layer."""

    def attempt(self, answer: Answer, may_change: Collection[str]) -> Attempt:
        return super().attempt(_Built(answer) if isinstance(answer, type) else answer, may_change)


def _layer_exercise(*, cases: Cases, hints: Sequence[str]) -> Callable[[Answer], Exercise]:
    return lambda solution: _LayerExercise(solution, cases, hints)


def _layers_and_inputs() -> list[tuple[_Layer, Tensor, Tensor | None, Tensor | None]]:
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    extreme, allowed = extreme_scores()
    q, k = (each.repeat(1, 1, 2) for each in with_scores(extreme[None, [0, 1, 3]]))  # as many queries as keys
    padding = torch.tensor([[True, True, True, True, False], [True, False, False, False, False]])[:, None, None]
    some = (randn(4, 3, 5, 7, seed=68) > 0) | torch.eye(5, 7, dtype=torch.bool)
    return [
        (_Layer(8, 2, seed=40), randn(2, 5, 8, seed=60), None, None),
        (_Layer(8, 4, seed=41), randn(2, 5, 8, seed=61), None, causal),
        (_Layer(8, 2, seed=42), randn(2, 5, 8, seed=62), randn(2, 5, 8, seed=63), padding),
        (_Layer(8, 2, seed=43), randn(2, 5, 8, seed=64), randn(2, 3, 8, seed=65), None),
        (_plain_layer(8, 2), q, k, allowed[None, None, None]),
        (_plain_layer(8, 2), torch.zeros(1, 3, 8), k, allowed[None, None, None]),  # all scores are 0
        (_Layer(6, 3, seed=44), randn(4, 5, 6, seed=66), randn(4, 7, 6, seed=67), some),  # another mask for each head
    ]


@_layer_exercise(
    cases=_layers_and_inputs,
    hints=[
        "`__init__` keeps `heads` and makes four `nn.Linear(d_model, d_model)` called W_Q, W_K, W_V, and W_O.",
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
            lambda layer, *rest: _split_and_merge(layer, *rest, scale=float(layer.d_model))
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
        "a score of 0 does not block: exp(0) = 1; fill with −∞ before the softmax": (
            partial(_split_and_merge, weigh=filled(0.0))
        ),
        "the mask is not used where there is a context: padding of the other sequence takes part": (
            lambda layer, x, context, mask: multi_head.reference(layer, x, context, mask if context is None else None)
        ),
        "x is added to the result: the residual connection belongs to the block around this layer": (
            lambda layer, x, *rest: x + multi_head.reference(layer, x, *rest)
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
        ),
        "the mask comes after the softmax: the blocked keys have taken their share, and no row sums to 1": partial(
            _split_and_merge, weigh=lambda scores, mask: scores.softmax(dim=-1) * mask
        ),
        ZERO_IS_BLOCKED: partial(_split_and_merge, weigh=zero_is_blocked),
        "the first head's mask is used for all: heads may have masks of their own, (batch, head, query, key)": (
            lambda layer, x, context, mask: multi_head.reference(
                layer, x, context, mask[:, :1] if mask is not None and mask.ndim == 4 else mask
            )
        ),
    }
)
