"""Answers to the exercises of lesson 00: wrong ones and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.start_here import exercises as ex


def distances_by_the_binomial_formula(a: Tensor, b: Tensor) -> Tensor:
    squares = a.square()[:, None] + b.square()[None] - 2 * torch.outer(a, b)
    return squares.clamp_min(0).sqrt()


def distances_by_larger_and_smaller(a: Tensor, b: Tensor) -> Tensor:
    return torch.maximum(a[:, None], b) - torch.minimum(a[:, None], b)


def distances_by_the_binomial_formula_in_double_precision(a: Tensor, b: Tensor) -> Tensor:
    return distances_by_the_binomial_formula(a.double(), b.double())


def distances_by_roots_of_squares(a: Tensor, b: Tensor) -> Tensor:
    x, y = torch.meshgrid(a, b, indexing="ij")
    return F.mse_loss(x, y, reduction="none").sqrt()


def surprise_by_one_hot(logits: Tensor, target: Tensor) -> Tensor:
    return -(F.one_hot(target, logits.shape[-1]) * F.log_softmax(logits, dim=-1)).sum(dim=-1)


def descend_with_an_optimizer(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    weight = nn.Parameter(w.clone())
    optimizer = torch.optim.SGD([weight], lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(x @ weight, y).backward()
        optimizer.step()
    return weight.data


def descend_by_the_formula(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    for _ in range(steps):
        w = w - lr * 2 * x.T @ (x @ w - y) / len(y)
    return w


def surprise_with_an_axis_of_length_1(logits: Tensor, target: Tensor) -> Tensor:
    return -F.log_softmax(logits, dim=-1).gather(1, target[:, None])


def surprise_in_bits(logits: Tensor, target: Tensor) -> Tensor:
    return surprise_by_one_hot(logits, target) * torch.tensor(torch.e).log2()


def descend_without_the_factor_2(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    for _ in range(steps):
        w = w - lr * x.T @ (x @ w - y) / len(y)
    return w


def descend_to_the_end(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return torch.linalg.inv(x.T @ x) @ x.T @ y


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.distances, distances_by_the_binomial_formula, "subtract before you square"),
    (ex.softmax, nn.LogSoftmax(dim=-1), "these are the logarithms of the weights"),
    (ex.surprise, surprise_with_an_axis_of_length_1, "take it away with `[:, 0]`"),
    (ex.surprise, surprise_in_bits, "these are bits"),
    (ex.descend, descend_without_the_factor_2, "the derivative of a square has a factor 2"),
    (ex.descend, descend_to_the_end, "this is the exact solution"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.softmax, nn.Softmax(dim=-1)),
    (ex.distances, distances_by_larger_and_smaller),
    (ex.distances, distances_by_the_binomial_formula_in_double_precision),
    (ex.distances, distances_by_roots_of_squares),
    (ex.surprise, surprise_by_one_hot),
    (ex.descend, descend_with_an_optimizer),
    (ex.descend, descend_by_the_formula),
]
