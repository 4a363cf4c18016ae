"""Exercises of lesson 00: how exercises work, and the one bug that every training loop has had."""

from __future__ import annotations

import torch
from torch import Tensor

from tfbook.exercises.engine import exercise


def _scores() -> list[tuple[Tensor]]:
    small = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    return [(small,), (torch.tensor([[1000.0, 1001.0], [-1000.0, -1002.0], [5.0, -5.0]]),)]


@exercise(
    cases=_scores,
    hints=[
        "Exponentiate every score, then divide each row by its sum. `keepdim=True` lets the division broadcast.",
        "exp(1000) is infinite. The result does not change when you subtract the same number from a whole row: which one?",
    ],
)
def softmax(scores: Tensor) -> Tensor:
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return weights / weights.sum(dim=-1, keepdim=True)


@softmax.mistake("each row should sum to 1: you exponentiated but did not divide by the sum")
def _(scores: Tensor) -> Tensor:
    return torch.exp(scores - scores.max(dim=-1, keepdim=True).values)


@softmax.mistake("each row should sum to 1: your columns do; sum over the last dimension, dim=-1")
def _(scores: Tensor) -> Tensor:
    return torch.softmax(scores, dim=0)


@softmax.mistake("the whole matrix sums to 1: sum over the last dimension only, with dim=-1 and keepdim=True")
def _(scores: Tensor) -> Tensor:
    return torch.softmax(scores.flatten(), dim=0).view_as(scores)


@softmax.mistake("scores of 1000 give NaN: exp overflows; subtract each row's largest score first")
def _(scores: Tensor) -> Tensor:
    return torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)


def _regressions() -> list[tuple[Tensor, Tensor, Tensor, float, int]]:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    y = x @ torch.tensor([2.0, -1.0])
    return [(torch.zeros(2), x, y, 0.1, 1), (torch.zeros(2), x, y, 0.1, 20)]


@exercise(
    cases=_regressions,
    hints=[
        "Print `w.grad` at the first two steps. What should the second be, given the new `w`? What is it?",
        "`backward()` adds to `.grad`; it does not replace it.",
    ],
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


@descend.mistake("the loss goes up: you now add the gradient; descending means subtracting it")
def _(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return descend.reference(w, x, y, -lr, steps)


@descend.mistake("`w` never moves: clear the gradient before `backward`, not between `backward` and the update")
def _(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return w.clone()


@descend.mistake("one step too few: the update of the last step is missing")
def _(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return descend.reference(w, x, y, lr, steps - 1)


@descend.mistake("the gradient is that of the sum, not of the mean: keep the loss as it was")
def _(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return descend.reference(w, x, y, lr * len(y), steps)
