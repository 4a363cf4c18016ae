"""The first exercises of lesson 00: rows that sum to 1, softmax, and contexts with the letter after each."""

from __future__ import annotations

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn


def _counts() -> list[tuple[Tensor, float]]:
    square = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 2.0]])  # the pairs of "assess"
    return [
        (square, 0.0),
        (square, 0.01),
        (torch.tensor([[3.0, 1.0], [0.0, 0.0]]), 1.0),
        (torch.tensor([[5.0, 0.0, 2.0, 1.0], [1.0, 1.0, 0.0, 0.0]]), 0.5),
    ]


@exercise(
    cases=_counts,
    hints=[
        "First `counts + extra`. Then divide by the sums of the rows, whose shape has to be (letter, 1).",
        "`table.sum(dim=1, keepdim=True)` keeps the axis that is summed over, with size 1.",
    ],
    differentiable=False,
)
def shares(counts: Tensor, extra: float) -> Tensor:
    table = counts + extra
    return table / table.sum(dim=1, keepdim=True)


shares.mistakes(
    {
        "row j's sum has met column j: without `keepdim=True` the sums line up with the last axis": (
            lambda counts, extra: (counts + extra) / (counts + extra).sum(dim=1)
        ),
        "each column sums to 1, not each row: a row is one letter's, so sum over the last axis, dim=1": (
            lambda counts, extra: (counts + extra) / (counts + extra).sum(dim=0)
        ),
        "the whole table sums to 1: give each row its own sum, with dim=1 and keepdim=True": (
            lambda counts, extra: (counts + extra) / (counts + extra).sum()
        ),
        "`extra` is missing: add it to every count before you divide": (
            lambda counts, extra: counts / counts.sum(dim=1, keepdim=True)
        ),
        "a row sums to more than 1: divide by the sums of the counts with `extra`, not of the bare counts": (
            lambda counts, extra: (counts + extra) / counts.sum(dim=1, keepdim=True)
        ),
        "this adds `extra` once to each sum, but each of the row's counts has one: sum the counts with `extra`": (
            lambda counts, extra: (counts + extra) / (counts.sum(dim=1, keepdim=True) + extra)
        ),
        "a row sums to less than 1: `extra` is in the sums, but not in the counts above them": (
            lambda counts, extra: counts / (counts + extra).sum(dim=1, keepdim=True)
        ),
        "a row sums to more than 1: add `extra` to the counts, before the division and not after it": (
            lambda counts, extra: counts / counts.sum(dim=1, keepdim=True) + extra
        ),
        "this is a softmax of the counts: they are to be divided by their sum, not exponentiated first": (
            lambda counts, extra: torch.softmax(counts + extra, dim=1)
        ),
        "these are counts: divide each row by its sum": lambda counts, extra: counts + extra,
    }
)

# ---- softmax -----------------------------------------------------------------------------------------------------


def _scores() -> list[tuple[Tensor]]:
    small = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    large = torch.tensor([[1000.0, 1001.0], [-1000.0, -1002.0], [5.0, -5.0], [0.0, 150.0]])
    return [(small,), (large,), (torch.tensor([[1000.0, 0.0, 0.0], [0.0, -1000.0, -1000.0]]),), (randn(4, 5, seed=7),)]


@exercise(
    cases=_scores,
    hints=[
        "Exponentiate every score, then divide each row by its sum. `keepdim=True` lets the division broadcast.",
        "exp(1000) is infinite. Subtracting one number from a whole row changes nothing: which number helps?",
    ],
)
def softmax(scores: Tensor) -> Tensor:
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return weights / weights.sum(dim=-1, keepdim=True)


softmax.mistakes(
    {
        "each row should sum to 1: you exponentiated but did not divide by the sum": (
            lambda scores: torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
        ),
        "each row should sum to 1: your columns do; sum over the last dimension, dim=-1": (
            lambda scores: torch.softmax(scores, dim=0)
        ),
        "these are the logarithms of the weights: log_softmax stops before the exp that makes weights of them": (
            lambda scores: torch.log_softmax(scores, dim=-1)
        ),
        "the whole matrix sums to 1: sum over the last dimension only, with dim=-1 and keepdim=True": (
            lambda scores: torch.softmax(scores.flatten(), dim=0).view_as(scores)
        ),
        "scores of 1000 give NaN: exp overflows; subtract each row's largest score first": (
            lambda scores: scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        ),
        "you subtract each row's smallest score, so exp(150) still overflows: subtract the largest": (
            lambda scores: (
                (weights := (scores - scores.amin(dim=-1, keepdim=True)).exp()) / weights.sum(dim=-1, keepdim=True)
            )
        ),
        "a row far above its own mean overflows: subtract each row's largest score, not its mean": (
            lambda scores: (
                torch.exp(scores - scores.mean(dim=-1, keepdim=True))
                / torch.exp(scores - scores.mean(dim=-1, keepdim=True)).sum(dim=-1, keepdim=True)
            )
        ),
        "you divide by the sum of the whole matrix: give each row its own, with dim=-1 and keepdim=True": (
            lambda scores: scores.exp() / scores.exp().sum()
        ),
        "you divide by the sum of each column: give each row its own, with dim=-1 and keepdim=True": (
            lambda scores: scores.exp() / scores.exp().sum(dim=0)
        ),
        "rows far below the largest score of all become 0/0: subtract each row's own largest score": (
            lambda scores: (scores - scores.max()).exp() / (scores - scores.max()).exp().sum(dim=-1, keepdim=True)
        ),
    }
)

# ---- windows -----------------------------------------------------------------------------------------------------


def _texts() -> list[tuple[Tensor, int]]:
    return [(torch.tensor([3, 1, 4, 1, 5, 9]), 2), (torch.tensor([2, 7, 1, 8, 2]), 3), (torch.tensor([5, 6, 7, 7]), 1)]


@exercise(
    cases=_texts,
    hints=[
        "Write six letters on paper. Where does the first run of two begin, and where the last that a letter follows?",
        "`ids[i : i + context]` is the run that begins at i, and `ids[i + context]` the letter after it.",
        "`torch.stack([… for i in range(len(ids) - context)])` joins the rows of x. Entry i of y is ids[i + context].",
    ],
    differentiable=False,
)
def windows(ids: Tensor, context: int) -> tuple[Tensor, Tensor]:
    x = torch.stack([ids[i : i + context] for i in range(len(ids) - context)])
    return x, ids[context:]


def _runs(ids: Tensor, size: int) -> Tensor:
    return ids.unfold(0, size, 1)


windows.mistakes(
    {
        "each target is the last letter of its own context, so there is nothing to guess: take the letter after it": (
            lambda ids, context: (_runs(ids, context)[:-1], ids[context - 1 : -1])
        ),
        "each target is the letter two places after its context: one is skipped": (
            lambda ids, context: (_runs(ids, context)[:-2], ids[context + 1 :])
        ),
        "the last run has no letter after it, so `x` has a row more than `y`: leave that run out": (
            lambda ids, context: (_runs(ids, context), ids[context:])
        ),
        "the last example is missing: the last letter of the text is a target, too": (
            lambda ids, context: (_runs(ids, context)[:-2], ids[context:-1])
        ),
        "the first example is missing: the first run begins at the first letter": (
            lambda ids, context: (_runs(ids, context)[1:-1], ids[context + 1 :])
        ),
        "every run holds its own target, context + 1 letters in all: end it one letter earlier": (
            lambda ids, context: (_runs(ids, context + 1), ids[context:])
        ),
        "the runs do not overlap: begin one at every letter, not at every `context` letters": (
            lambda ids, context: (_runs(ids, context)[:-1][::context], ids[context:][::context])
        ),
        "the letters of a run stand in reverse order: keep the order of the text": (
            lambda ids, context: (_runs(ids, context)[:-1].flip(1), ids[context:])
        ),
        "`y` holds the next letter for every place of a run: the network guesses one letter, the one after the run": (
            lambda ids, context: (_runs(ids, context)[:-1], _runs(ids, context)[1:])
        ),
        "contexts and targets are exchanged: return the runs first": (
            lambda ids, context: windows.reference(ids, context)[::-1]
        ),
        "rows and columns are exchanged: `x` has a row for each example, of shape (example, context)": (
            lambda ids, context: (_runs(ids, context)[:-1].T, ids[context:])
        ),
    }
)
