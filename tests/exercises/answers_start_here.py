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


def train_with_a_new_optimizer_and_no_clearing(model: nn.Module, batches: ex.Batches, lr: float) -> list[float]:
    losses = []
    for x, y in batches:
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
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


def descend_without_the_factor_2(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    for _ in range(steps):
        w = w - lr * x.T @ (x @ w - y) / len(y)
    return w


def descend_to_the_end(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return torch.linalg.inv(x.T @ x) @ x.T @ y


def descend_by_steps_that_get_shorter(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    return descend_with_an_optimizer(w, x, y, lr / steps, steps)


def descend_with_a_cleared_gradient(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    w = w.clone().requires_grad_()
    for _ in range(steps):
        ((x @ w - y) ** 2).mean().backward()
        assert w.grad is not None
        w.data -= lr * w.grad
        w.grad.zero_()
    return w.detach()


def windows_in_a_loop(ids: Tensor, context: int) -> tuple[Tensor, Tensor]:
    x, y = [], []
    for end in range(context, len(ids)):
        x.append(ids[end - context : end].tolist())
        y.append(ids[end].item())
    return torch.tensor(x), torch.tensor(y)


def windows_by_broadcasting(ids: Tensor, context: int) -> list[Tensor]:
    first = torch.arange(len(ids) - context)
    return [ids[first[:, None] + torch.arange(context)], ids[first + context]]


def windows_with_their_last_letter_as_target(ids: Tensor, context: int) -> tuple[Tensor, Tensor]:
    x = torch.stack([ids[i : i + context] for i in range(len(ids) - context)])
    return x, x[:, -1]


def windows_up_to_the_end(ids: Tensor, context: int) -> tuple[Tensor, Tensor]:
    return torch.stack([ids[i : i + context] for i in range(len(ids) - context + 1)]), ids[context:]


def forward_by_matrices(network: Any, letters: Tensor) -> Tensor:
    x = network.embed.weight[letters].reshape(len(letters), -1)
    hidden = (x @ network.hidden.weight.T + network.hidden.bias).clamp(min=0)
    return hidden @ network.out.weight.T + network.out.bias


def forward_letter_by_letter(network: Any, letters: Tensor) -> Tensor:
    x = torch.cat([network.embed(column) for column in letters.T], dim=1)
    return network.out(F.relu(network.hidden(x)))


def forward_without_relu(network: Any, letters: Tensor) -> Tensor:
    return network.out(network.hidden(network.embed(letters).flatten(1)))


def forward_that_flattens_the_batch(network: Any, letters: Tensor) -> Tensor:
    return network.out(torch.relu(network.hidden(network.embed(letters).flatten())))


def windows_one_short(ids: Tensor, context: int) -> tuple[Tensor, Tensor]:
    starts = range(len(ids) - context - 1)
    return torch.stack([ids[i : i + context] for i in starts]), torch.stack([ids[i + context] for i in starts])


def softmax_without_values(scores: Tensor) -> Tensor:
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True))  # type: ignore[operator]
    return weights / weights.sum(dim=-1, keepdim=True)


def forward_to_probabilities(network: Any, letters: Tensor) -> Tensor:
    return F.softmax(forward_by_matrices(network, letters), dim=1)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        ex.train,
        lambda model, batches, lr: [
            torch.tensor(loss).requires_grad_() for loss in ex.train.reference(model, batches, lr)
        ],
        "append `loss.item()`",
    ),
    (
        ex.forward,
        lambda network, x: torch.relu(network.out(network.hidden(network.embed(x).flatten(1)))),
        "the `relu` stands after the last layer: it belongs between",
    ),
    (ex.shares, shares_with_extra_in_the_sum_once, "`extra` once to each sum"),
    (ex.shares, shares_along_the_wrong_axis_with_keepdim, "each column sums to 1"),
    (ex.train, train_without_clearing, "the gradients of all batches pile up"),
    (ex.train, train_with_a_new_optimizer_and_no_clearing, "two slips: a new optimizer in every step"),
    (ex.train, train_that_clears_too_late, "the model never moves"),
    (ex.train, train_on_probabilities, "takes logits and applies the softmax itself"),
    (ex.train, train_that_returns_at_once, "the losses of the first batches alone"),
    (ex.softmax, nn.LogSoftmax(dim=-1), "these are the logarithms of the weights"),
    (ex.descend, descend_without_the_factor_2, "the derivative of a square has a factor 2"),
    (ex.windows, windows_with_their_last_letter_as_target, "the last letter of its own context"),
    (ex.windows, windows_up_to_the_end, "leave that run out"),
    (ex.forward, forward_without_relu, "the `relu` is missing"),
    (ex.forward, forward_to_probabilities, "these are probabilities"),
    (ex.forward, forward_that_flattens_the_batch, "`.flatten()` joins the examples of the batch"),
    (ex.windows, windows_one_short, "the last example is missing"),
    (ex.softmax, softmax_without_values, "take its `.values`"),
    (ex.descend, descend_by_steps_that_get_shorter, "the step gets shorter"),
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
    (ex.windows, windows_in_a_loop),
    (ex.windows, windows_by_broadcasting),
    (ex.forward, forward_by_matrices),
    (ex.forward, forward_letter_by_letter),
    (ex.descend, descend_with_a_cleared_gradient),
    (ex.descend, descend_with_an_optimizer),
    (ex.descend, descend_by_the_formula),
]
