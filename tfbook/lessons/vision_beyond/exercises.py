"""Exercises of lesson 14: windows and their mask, mixing places, what a match costs, neighbors at the edge, pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.vision_beyond.first_exercises import (
    partition as partition,
    shift_mask as shift_mask,
)

# ---- mixing places -----------------------------------------------------------------------------------------------


def _mixed() -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """Images of some places and channels; a square one; a single place."""
    sizes = [(2, 5, 3, 7), (1, 4, 4, 4), (3, 1, 2, 3), (2, 3, 6, 1)]
    return [
        (
            randn(batch, places, d, seed=10 * number),
            randn(hidden, places, seed=10 * number + 1),
            randn(hidden, seed=10 * number + 2),
            randn(places, hidden, seed=10 * number + 3),
            randn(places, seed=10 * number + 4),
        )
        for number, (batch, places, d, hidden) in enumerate(sizes)
    ]


@exercise(
    cases=_mixed,
    hints=[
        "The feed-forward network of a block mixes the last axis. Which axis has to be the last one here?",
        "`x.mT` is (batch, d, places): each row is one channel, seen at all places. Then W₁, GELU, W₂, and turn back.",
    ],
)
def mix_places(x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    hidden = F.gelu(x.mT @ W1.T + b1)
    return (hidden @ W2.T + b2).mT


def _mixed_so(
    x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor, *, bend: Callable = F.gelu, kind: str = ""
) -> Tensor:
    first, second = (0 if kind == bias else value for bias, value in (("first", b1), ("second", b2)))
    mixed = bend(x.mT @ W1.T + first) @ W2.T + second
    return mixed if kind == "not back" else x + mixed.mT if kind == "residual" else mixed.mT


mix_places.mistakes(
    {
        "the GELU stands behind both layers: it belongs between them": (
            lambda x, W1, b1, W2, b2: F.gelu(W2 @ (W1 @ x + b1[:, None]) + b2[:, None])
        ),
        "the result is still turned: turn it back, to (batch, places, d)": partial(_mixed_so, kind="not back"),
        "the block adds x itself: return what is mixed, without the residual": partial(_mixed_so, kind="residual"),
        "nothing bends between the two matrices, so they are one: GELU belongs between": partial(
            _mixed_so, bend=lambda hidden: hidden
        ),
        "this is ReLU; the Mixer has GELU": partial(_mixed_so, bend=F.relu),
        "this is GELU's approximation by tanh: use `F.gelu` as it is": partial(
            _mixed_so, bend=partial(F.gelu, approximate="tanh")
        ),
        "the first bias, one number for each hidden unit, is missing": partial(_mixed_so, kind="first"),
        "the second bias, one number for each place, is missing": partial(_mixed_so, kind="second"),
    }
)

# ---- what a match costs ------------------------------------------------------------------------------------------


def _answers() -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """More queries than objects; as many; none of a kind twice; no objects; large logits."""
    cases = []
    for number, (queries, objects, size) in enumerate([(5, 3, 1.0), (2, 2, 1.0), (4, 1, 1.0), (3, 0, 1.0), (4, 3, 90)]):
        labels = torch.tensor([2, 0, 2])[:objects]
        logits, giou = size * randn(queries, 4, seed=50 + number), randn(queries, objects, seed=60 + number).tanh()
        boxes, targets = (randn(n, 4, seed=70 + number + n).sigmoid() for n in (queries, objects))
        cases.append((logits, boxes, labels, targets, giou))
    return cases


@exercise(
    cases=_answers,
    hints=[
        "The result has a row per query and a column per object. A table of probabilities, (query, label): which of "
        "its columns does object j need?",
        "`logits.softmax(dim=-1)[:, labels]` is (query, object). For the distances, `boxes[:, None] - targets` is "
        "(query, object, 4): absolute values, summed over the last axis.",
    ],
    differentiable=False,
)
def match_cost(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, giou: Tensor) -> Tensor:
    likely = logits.softmax(dim=-1)[:, labels]
    distance = (boxes[:, None] - targets).abs().sum(dim=-1)
    return 5 * distance - 2 * giou - likely


def _costs(
    logits: Tensor,
    boxes: Tensor,
    labels: Tensor,
    targets: Tensor,
    giou: Tensor,
    *,
    chance: Callable[[Tensor], Tensor] = lambda logits: logits.softmax(dim=-1),
    far: Callable[[Tensor], Tensor] = lambda apart: apart.abs().sum(dim=-1),
    signs: tuple[int, int, int] = (5, -2, -1),
) -> Tensor:
    distance, likely = far(boxes[:, None] - targets), chance(logits)[:, labels]
    return signs[0] * distance + signs[1] * giou + signs[2] * likely


match_cost.mistakes(
    {
        "a likely label should make a match cheap: subtract its probability": partial(_costs, signs=(5, -2, 1)),
        "a large overlap should make a match cheap: subtract it": partial(_costs, signs=(5, 2, -1)),
        "the signs are all turned: the least cost is the best match": partial(_costs, signs=(-5, 2, 1)),
        "the three terms weigh 5, 2, and 1: these are all 1": partial(_costs, signs=(1, -1, -1)),
        "the weights 5 and 2 are exchanged: 5 is the distance's": partial(_costs, signs=(2, -5, -1)),
        "the probabilities are missing: without them, any label will do": partial(_costs, signs=(5, -2, 0)),
        "these are log probabilities; the cost takes the probability itself": partial(
            _costs, chance=lambda logits: logits.log_softmax(dim=-1)
        ),
        "these are logits: a softmax over the labels makes them probabilities": partial(
            _costs, chance=lambda logits: logits
        ),
        'the softmax leaves out "no object", the last label: it takes its share of the probability': partial(
            _costs, chance=lambda logits: logits[:, :-1].softmax(dim=-1)
        ),
        "the softmax is over the queries: each query has its own distribution over labels": partial(
            _costs, chance=lambda logits: logits.softmax(dim=0)
        ),
        "this distance is a mean of four numbers: take their sum": partial(
            _costs, far=lambda apart: apart.abs().mean(dim=-1)
        ),
        "this distance squares; ‖·‖₁ is the sum of absolute values": partial(
            _costs, far=lambda apart: apart.square().sum(dim=-1)
        ),
        "this is the Euclidean distance; ‖·‖₁ is the sum of absolute values": partial(
            _costs, far=lambda apart: apart.square().sum(dim=-1).sqrt()
        ),
    }
)

# ---- find the bug: neighbors at the edge -------------------------------------------------------------------------


def _grids() -> list[tuple[Tensor, Tensor, Tensor, int]]:
    """(row, column, d) grids: larger than the neighborhood, as large, lines, a place; large scores; keys of zeros."""
    sizes = [(4, 5, 3, 1, 1), (3, 3, 2, 1, 1), (5, 6, 2, 2, 1), (1, 4, 3, 1, 1), (1, 1, 2, 2, 1), (1, 9, 3, 1, 60)]
    cases = []
    for number, (rows, columns, d, reach, size) in enumerate(sizes):
        q, k, v = (size * randn(rows, columns, d, seed=100 + 3 * number + part) for part in range(3))
        cases.append((q, k, v, reach))
    q, k, v, reach = cases[0]
    return [*cases, (q, k.relu(), v, reach)]


@exercise(
    cases=_grids,
    hints=[
        "Take the corner of a grid. How many neighbors does it have, and over how many numbers does its softmax go?",
        "What is padded with zeros has the score 0, and e⁰ = 1 is a weight. Pad ones in the same way to know which "
        "neighbors are there, and give the others the score −∞.",
    ],
)
def near_attention(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    width = 2 * reach + 1

    def around(x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, reach, reach, reach, reach))
        return x.unfold(0, width, 1).unfold(1, width, 1).flatten(3)  # (row, column, d, near)

    scores = torch.einsum("rcd,rcdn->rcn", q, around(k)) / math.sqrt(q.shape[-1])
    there = around(torch.ones_like(k)).all(dim=2)
    weights = scores.masked_fill(~there, -torch.inf).softmax(dim=-1)
    return torch.einsum("rcn,rcdn->rcd", weights, around(v))


@near_attention.given
def _(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    width = 2 * reach + 1

    def around(x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, reach, reach, reach, reach))
        return x.unfold(0, width, 1).unfold(1, width, 1).flatten(3)

    scores = torch.einsum("rcd,rcdn->rcn", q, around(k)) / math.sqrt(q.shape[-1])
    return torch.einsum("rcn,rcdn->rcd", scores.softmax(dim=-1), around(v))


LOW = -1e9  # with which keys are padded by those who mean scores


def _near(q: Tensor, k: Tensor, v: Tensor, reach: int, *, kind: str, fill: float = 0.0) -> Tensor:
    """With another way to treat what is beyond the edge."""
    width = 2 * reach + 1

    def around(x: Tensor, fill: float = 0.0) -> Tensor:
        if kind == "wrapped":
            steps = range(-reach, reach + 1)
            return torch.stack([x.roll((-i, -j), (0, 1)) for i in steps for j in steps], dim=-1)
        if kind == "repeated":
            x = F.pad(x.permute(2, 0, 1)[None], (reach,) * 4, mode="replicate")[0].permute(1, 2, 0)
            return x.unfold(0, width, 1).unfold(1, width, 1).flatten(3)
        x = F.pad(x, (0, 0, reach, reach, reach, reach), value=fill)
        return x.unfold(0, width, 1).unfold(1, width, 1).flatten(3)

    if kind == "low keys":
        scores = torch.einsum("rcd,rcdn->rcn", q, around(k, LOW)) / math.sqrt(q.shape[-1])
        return torch.einsum("rcn,rcdn->rcd", scores.softmax(dim=-1), around(v, fill))
    scores = torch.einsum("rcd,rcdn->rcn", q, around(k)) / (1 if kind == "scale" else math.sqrt(q.shape[-1]))
    there = around(torch.ones_like(k))[:, :, 0] > 0
    if kind == "scores":
        there = there & (scores > 0)
    if kind == "zeros":
        there = scores != 0
    hidden = scores.masked_fill(~there, -1.0 if kind == "tiny" else -torch.inf)
    return torch.einsum("rcn,rcdn->rcd", hidden.softmax(dim=-1).nan_to_num(), around(v))


near_attention.mistakes(
    {
        "the neighborhood is one place too small: `reach` rows and columns away still count": (
            lambda q, k, v, reach: near_attention.reference(q, k, v, reach - 1)
        ),
        "the score −1 leaves the weight 1/e: use −∞": partial(_near, kind="tiny"),
        "keys are padded with a large negative number: times a negative query, that is a huge score. Hide the scores "
        "of what is beyond the edge, not its keys": partial(_near, kind="low keys"),
        "values are padded with a large negative number, too, and enter the mean: hide scores, and leave the padding "
        "at 0": partial(_near, kind="low keys", fill=LOW),
        "the image is wrapped around: the left edge is no neighbor of the right one": partial(_near, kind="wrapped"),
        "the edge is repeated: what is beyond it is no neighbor, so it should have no weight": (
            partial(_near, kind="repeated")
        ),
        "scores of 0 are hidden, but a neighbor can have the score 0, too: mark who is there, as in hint 2": partial(
            _near, kind="zeros"
        ),
        "neighbors with a negative score are hidden, too: only those beyond the edge should be": (
            partial(_near, kind="scores")
        ),
        "the edge is right now, but the scores are no longer divided by √d": partial(_near, kind="scale"),
    }
)

# ---- pairs -------------------------------------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int]]:
    return [(8, 8, 4), (56, 56, 7), (10, 6, 4), (3, 3, 7), (5, 12, 1), (7, 13, 3)]


@exercise(
    cases=_sizes,
    hints=[
        "How many windows are needed along each side? The last one may stand over the edge, and is then filled up.",
        "`math.ceil(rows / window)` windows down, as many across for the columns; each has window² places and "
        "window² · window² pairs.",
    ],
)
def pairs(rows: int, columns: int, window: int) -> int:
    windows = math.ceil(rows / window) * math.ceil(columns / window)
    return windows * window**4


def _paired(rows: int, columns: int, window: int, *, side: Callable[[float], Any] = math.ceil, power: int = 4) -> int:
    return int(side(rows / window) * side(columns / window) * window**power)


pairs.mistakes(
    {
        "these are the pairs of dense attention: each place meets the places of its window alone": (
            lambda rows, columns, window: (rows * columns) ** 2
        ),
        "these are places: each of a window's places meets each of them": partial(_paired, power=2),
        "a window has window² places, so it has window⁴ pairs": partial(_paired, power=3),
        "windows that the grid does not fill are lost: they are filled up, and count in full": partial(
            _paired, side=math.floor
        ),
        "windows that the grid does not fill count in part here: they are filled up, and count in full": partial(
            _paired, side=float
        ),
        "rounded up once, for all windows together: each side has whole windows": (
            lambda rows, columns, window: math.ceil(rows * columns / window**2) * window**4
        ),
    }
)
