"""Exercises of lesson 00: a table, softmax, cross-entropy, the bug of many training loops, and the loop itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.start_here.first_exercises import shares as shares, softmax as softmax

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

# ---- the training loop -------------------------------------------------------------------------------------------

Batches = Iterable[tuple[Tensor, Tensor]]


def _trainings() -> list[tuple[nn.Module, list[tuple[Tensor, Tensor]], float]]:
    return [(_model(seed), _batches(seed, count), lr) for seed, count, lr in ((1, 1, 0.1), (2, 6, 0.1), (3, 12, 0.02))]


def _model(seed: int) -> nn.Module:
    """From three letters to three logits each; the weights are large, so that weight decay shows."""
    model = nn.Embedding(3, 3)
    model.weight.data = 4 * randn(3, 3, seed=seed)
    return model


def _batches(seed: int, count: int) -> list[tuple[Tensor, Tensor]]:
    pairs = [torch.randint(3, (2, 5), generator=torch.Generator().manual_seed(100 * seed + i)) for i in range(count)]
    return [(x, y) for x, y in pairs]


@exercise(
    cases=_trainings,
    hints=[
        "Before the loop: `optimizer = torch.optim.AdamW(model.parameters(), lr=lr)` and an empty list of losses.",
        "For each `x, y` of `batches`: the loss is `F.cross_entropy(model(x), y)`. Then three lines: clear the old "
        "gradient, compute the new one, move.",
        "`optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()`; and `loss.item()` is the number to append.",
    ],
    differentiable=False,
)
def train(model: nn.Module, batches: Batches, lr: float) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _trained(
    model: nn.Module,
    batches: Batches,
    lr: float,
    *,
    order: str = "zero backward step",
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    loss_of: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    renew: bool = False,
) -> list[float]:
    """The losses of a loop that makes one mistake: another order of its lines, optimizer or loss."""
    moves, losses = optimizer(model.parameters(), lr=lr), []
    for x, y in batches:
        if renew:
            moves = optimizer(model.parameters(), lr=lr)
        loss = loss_of(model(x), y)
        actions = {"zero": moves.zero_grad, "backward": loss.backward, "step": moves.step}
        for action in order.split():
            actions[action]()
        losses.append(loss.item())
    return losses


def _loss_after_the_step(model: nn.Module, batches: Batches, lr: float) -> list[float]:
    losses, optimizer = [], torch.optim.AdamW(model.parameters(), lr=lr)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        losses.append(F.cross_entropy(model(x), y).item())
    return losses


train.mistakes(
    {
        "the gradients of all batches pile up: `backward` adds to `.grad`, so call `optimizer.zero_grad()` each time": (
            lambda *case: _trained(*case, order="backward step")
        ),
        "the model never moves: `optimizer.step()` is missing, or `zero_grad` stands between `backward` and it": (
            lambda *case: _trained(*case, order="zero backward")
        ),
        "a new optimizer in every step forgets the gradients that it has seen: make it once, before the loop": (
            lambda *case: _trained(*case, renew=True)
        ),
        "`F.cross_entropy` takes logits and applies the softmax itself: give it `model(x)`": (
            lambda *case: _trained(*case, loss_of=lambda logits, y: F.cross_entropy(logits.softmax(dim=-1), y))
        ),
        "this is the sum of the surprises of a batch: the loss is their mean": (
            lambda *case: _trained(*case, loss_of=lambda logits, y: F.cross_entropy(logits, y, reduction="sum"))
        ),
        "this is Adam, or AdamW without its weight decay: `torch.optim.AdamW(model.parameters(), lr=lr)`": (
            lambda *case: _trained(*case, optimizer=torch.optim.Adam)
        ),
        "this is plain gradient descent: take `torch.optim.AdamW`": (
            lambda *case: _trained(*case, optimizer=torch.optim.SGD)
        ),
        "`lr` is not used, so AdamW takes its own, 0.001: pass `lr=lr`": (
            lambda model, batches, lr: _trained(model, batches, 0.001)
        ),
        "these are the losses after each step: append the loss that you computed before it": _loss_after_the_step,
        "this is the last loss alone: append the loss of every batch to a list, and return the list": (
            lambda *case: train.reference(*case)[-1]
        ),
        "the losses of the first batches alone: `return` stands inside the loop, so it ends too early": (
            lambda *case: train.reference(*case)[:1]
        ),
        "this is the mean of all losses: return the list of them, one for each batch": (
            lambda *case: sum(losses := train.reference(*case)) / len(losses)
        ),
    }
)

# ---- all distances at once -------------------------------------------------------------------------------------------


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
