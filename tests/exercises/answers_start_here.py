"""Answers to the exercises of lesson 00: wrong ones and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.start_here import exercises as ex


def shares_by_a_product(counts: Tensor, extra: float) -> Tensor:
    table = counts.double() + extra
    return (table * (1 / table.sum(-1))[:, None]).float()


def shares_by_normalize(counts: Tensor, extra: float) -> Tensor:
    return F.normalize(counts + extra, p=1, dim=1)


def shares_row_by_row(counts: Tensor, extra: float) -> Tensor:
    return torch.stack([(row + extra) / (row + extra).sum() for row in counts])


def shares_transposed(counts: Tensor, extra: float) -> Tensor:
    table = counts + extra
    return (table.T / table.sum(dim=1)).T


def shares_with_extra_in_the_sum_once(counts: Tensor, extra: float) -> Tensor:
    return (counts + extra) / (counts.sum(dim=1, keepdim=True) + extra)


def shares_along_the_wrong_axis_with_keepdim(counts: Tensor, extra: float) -> Tensor:
    table = counts + extra
    return table / table.sum(dim=0, keepdim=True)


def train_with_set_to_none(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr), []
    for x, y in batches:
        for parameter in model.parameters():
            parameter.grad = None
        loss = -model(x).log_softmax(dim=-1)[torch.arange(len(y)), y].mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def train_that_clears_at_the_end(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    optimizer, losses = torch.optim.AdamW([*model.parameters()], lr=lr), []
    for inputs, targets in batches:
        loss = nn.CrossEntropyLoss()(model(inputs), targets)
        losses += [loss.item()]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def train_without_clearing(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_that_clears_too_late(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_on_probabilities(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.softmax(model(x), dim=1), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_that_returns_at_once(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return losses
    return losses


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
    (ex.shares, shares_with_extra_in_the_sum_once, "`extra` once to each sum"),
    (ex.shares, shares_along_the_wrong_axis_with_keepdim, "each column sums to 1"),
    (ex.train, train_without_clearing, "the gradients of all batches pile up"),
    (ex.train, train_that_clears_too_late, "the model never moves"),
    (ex.train, train_on_probabilities, "takes logits and applies the softmax itself"),
    (ex.train, train_that_returns_at_once, "the losses of the first batches alone"),
    (ex.distances, distances_by_the_binomial_formula, "subtract before you square"),
    (ex.softmax, nn.LogSoftmax(dim=-1), "these are the logarithms of the weights"),
    (ex.surprise, surprise_with_an_axis_of_length_1, "take it away with `[:, 0]`"),
    (ex.surprise, surprise_in_bits, "these are bits"),
    (ex.descend, descend_without_the_factor_2, "the derivative of a square has a factor 2"),
    (ex.descend, descend_to_the_end, "this is the exact solution"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.shares, shares_by_a_product),
    (ex.shares, shares_by_normalize),
    (ex.shares, shares_row_by_row),
    (ex.shares, shares_transposed),
    (ex.train, train_with_set_to_none),
    (ex.train, train_that_clears_at_the_end),
    (ex.softmax, nn.Softmax(dim=-1)),
    (ex.distances, distances_by_larger_and_smaller),
    (ex.distances, distances_by_the_binomial_formula_in_double_precision),
    (ex.distances, distances_by_roots_of_squares),
    (ex.surprise, surprise_by_one_hot),
    (ex.descend, descend_with_an_optimizer),
    (ex.descend, descend_by_the_formula),
]
