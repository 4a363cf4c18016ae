"""Exercises of lesson 00: softmax, broadcasting, cross-entropy, and the bug that every training loop once had."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn


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

# ---- broadcasting ------------------------------------------------------------------------------------------------


def _positions() -> list[tuple[Tensor, Tensor]]:
    three, two, one = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([2.0, 1.0]), torch.tensor([-1.0])
    close = torch.tensor([1000.0, 1000.25]), torch.tensor([1000.125, 1000.0, 999.0])
    return [(three, two), (two, two), (two, three), (one, three), (randn(3, seed=1), randn(4, seed=2)), close]


@exercise(
    cases=_positions,
    hints=[
        "The result has a row for each entry of `a` and a column for each entry of `b`. Which shape must `a` have?",
        "`a[:, None]` has shape (n, 1). Against (m,) it broadcasts to (n, m).",
    ],
    differentiable=False,
)
def distances(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b).abs()


distances.mistakes(
    {
        "rows and columns are swapped: a row belongs to an entry of a, so write a[:, None]": (
            lambda a, b: (a - b[:, None]).abs()
        ),
        "a distance has no sign: take the absolute value": lambda a, b: a[:, None] - b,
        "a distance has no sign, and b − a is the difference the other way around: take the absolute value": (
            lambda a, b: b - a[:, None]
        ),
        "these are squared distances: take the absolute value instead of the square": (
            lambda a, b: (a[:, None] - b) ** 2
        ),
        "a² + b² − 2ab loses the distance of large numbers that are close to rounding: subtract before you square": (
            lambda a, b: (a[:, None] ** 2 + b**2 - 2 * a[:, None] * b).clamp(min=0).sqrt()
        ),
    }
)

# ---- cross-entropy -----------------------------------------------------------------------------------------------


def _predictions() -> list[tuple[Tensor, Tensor]]:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    large = torch.tensor([[0.0, 200.0], [1.0, 1.0]])
    far = torch.tensor([[-300.0, 0.0, -290.0]]), torch.tensor([0])
    drawn = randn(4, 3, seed=6), torch.tensor([2, 0, 1, 0])
    return [(logits, torch.tensor([1, 2])), far, drawn, *((large, torch.tensor(target)) for target in ([0, 1], [1, 0]))]


@exercise(
    cases=_predictions,
    hints=[
        "For each row: take the softmax of its logits, pick the entry that `target` names, and minus its logarithm.",
        "`log_probabilities[torch.arange(len(target)), target]` picks one entry of each row.",
        "A probability of exp(−200) is 0 in float32, and its logarithm −∞. `torch.log_softmax` never computes it.",
    ],
)
def surprise(logits: Tensor, target: Tensor) -> Tensor:
    log_probabilities = torch.log_softmax(logits, dim=-1)
    return -log_probabilities[torch.arange(len(target)), target]


surprise.mistakes(
    {
        "an unlikely letter has an infinite surprise: use log_softmax, not the logarithm of a softmax": (
            lambda logits, target: -torch.softmax(logits, dim=-1)[torch.arange(len(target)), target].log()
        ),
        "exp(200) overflows in log Σ exp: torch.logsumexp and torch.log_softmax subtract the row's maximum first": (
            lambda logits, target: logits.exp().sum(dim=-1).log() - logits[torch.arange(len(target)), target]
        ),
        "the sign is missing: a probability is at most 1, so its logarithm is negative and a surprise is not": (
            lambda logits, target: -surprise.reference(logits, target)
        ),
        "these are the logits of the targets: they become log-probabilities by a log_softmax over each row": (
            lambda logits, target: -logits[torch.arange(len(target)), target]
        ),
        "these are probabilities: the surprise is minus their logarithm": (
            lambda logits, target: torch.softmax(logits, dim=-1)[torch.arange(len(target)), target]
        ),
        "the softmax runs down the columns, over the batch: each row is a prediction of its own, dim=-1": (
            lambda logits, target: -torch.log_softmax(logits, dim=0)[torch.arange(len(target)), target]
        ),
        "this picks every target in every row: index with torch.arange(len(target)) and target together": (
            lambda logits, target: -torch.log_softmax(logits, dim=-1)[:, target]
        ),
        "these are bits: the surprise is −ln p, with the natural logarithm, and `log2` makes it 1.44 times as large": (
            lambda logits, target: surprise.reference(logits, target) / math.log(2)
        ),
        "the right numbers, with an axis of length 1 behind the rows: after `gather`, take it away with `[:, 0]`": (
            lambda logits, target: surprise.reference(logits, target)[:, None]
        ),
        "this is the mean, the loss of the batch: the exercise asks for the surprise of each row": (
            lambda logits, target: surprise.reference(logits, target).mean()
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _regressions() -> list[tuple[Tensor, Tensor, Tensor, float, int]]:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    y = x @ torch.tensor([2.0, -1.0])
    return [
        (torch.zeros(2), x, y, 0.1, 1),
        (torch.zeros(2), x, y, 0.1, 20),
        (randn(2, seed=3), randn(5, 2, seed=4), randn(5, seed=5), 0.02, 3),
    ]


@exercise(
    cases=_regressions,
    hints=[
        "Print `w.grad` at the first two steps. What should the second be, given the new `w`? What is it?",
        "`backward()` adds to `.grad`; it does not replace it.",
    ],
    differentiable=False,
)
def descend(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    w = w.clone().requires_grad_()
    for _ in range(steps):
        w.grad = None
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= lr * w.grad
    return w.detach()


@descend.given
def _(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    w = w.clone().requires_grad_()
    for _ in range(steps):
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= lr * w.grad
    return w.detach()


descend.mistakes(
    {
        "the loss goes up: you now add the gradient; descending means subtracting it": (
            lambda w, x, y, lr, steps: descend.reference(w, x, y, -lr, steps)
        ),
        "`w` never moves: clear the gradient before `backward`, not between `backward` and the update": (
            lambda w, *_: w.clone()
        ),
        "every step is half as long as it should be: the derivative of a square has a factor 2": (
            lambda w, x, y, lr, steps: descend.reference(w, x, y, lr / 2, steps)
        ),
        "this is the exact solution: the exercise asks where `steps` steps from `w` lead": (
            lambda w, x, y, lr, steps: torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        ),
        "one step too few: the update of the last step is missing": (
            lambda w, x, y, lr, steps: descend.reference(w, x, y, lr, steps - 1)
        ),
        "the gradient is that of the sum, not of the mean: keep the loss as it was": (
            lambda w, x, y, lr, steps: descend.reference(w, x, y, lr * len(y), steps)
        ),
    }
)
