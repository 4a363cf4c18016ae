"""Exercises of lesson 00: a table, softmax, a network and its examples, the training loop, and a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.start_here.first_exercises import shares as shares, softmax as softmax, windows as windows

# ---- the network -------------------------------------------------------------------------------------------------


class Parts(nn.Module):
    """The layers of the lesson's network (Bengio et al., 2003), before its `forward` is written."""

    def __init__(self, context: int, width: int, hidden: int):
        super().__init__()
        self.embed = nn.Embedding(27, width)
        self.hidden = nn.Linear(context * width, hidden)
        self.out = nn.Linear(hidden, 27)


def _networks() -> list[tuple[Parts, Tensor]]:
    sizes = [
        ((2, 4, 5), [[7, 3]]),  # a batch of one, where flatten() raises no error
        ((3, 2, 6), [[1, 0, 26], [5, 5, 2]]),
        ((4, 4, 8), [[1, 2, 3, 4]] * 3 + [[4, 3, 2, 1]]),
    ]
    return [(_parts(*size, seed=seed), torch.tensor(letters)) for seed, (size, letters) in enumerate(sizes)]


def _parts(context: int, width: int, hidden: int, *, seed: int) -> Parts:
    """Its numbers are large, so that what a nonlinearity does shows."""
    network = Parts(context, width, hidden)
    for number, parameter in enumerate(network.parameters()):
        parameter.data = 2 * randn(*parameter.shape, seed=10 * seed + number)
    return network


@exercise(
    cases=_networks,
    hints=[
        "`network.embed(letters)` has shape (batch, context, width); `network.hidden` takes (batch, context · width).",
        "`.flatten(1)` joins all axes from axis 1 on: it puts the vectors of one context side by side.",
        "Three steps: embed and flatten; then `torch.relu(network.hidden(…))`; then `network.out(…)`, and that is all.",
    ],
)
def forward(network: Any, letters: Tensor) -> Tensor:
    x = network.embed(letters).flatten(1)  # (batch, context · width)
    return network.out(torch.relu(network.hidden(x)))


def _forward(
    network: Any,
    letters: Tensor,
    *,
    join: Callable[[Tensor], Tensor] = lambda x: x.flatten(1),
    bend: Callable[[Tensor], Tensor] = torch.relu,
) -> Tensor:
    return network.out(bend(network.hidden(join(network.embed(letters)))))


forward.mistakes(
    {
        "the `relu` is missing: without it two `nn.Linear` in a row can do no more than one": (
            lambda *case: _forward(*case, bend=lambda x: x)
        ),
        "`.flatten()` joins the examples of the batch, too: `.flatten(1)` joins all axes from axis 1 on": (
            lambda *case: _forward(*case, join=torch.flatten)
        ),
        "the `relu` stands after the last layer: it belongs between `hidden` and `out`; logits can be any numbers": (
            lambda *case: torch.relu(_forward(*case, bend=lambda x: x))
        ),
        "a `relu` after the last layer makes every negative logit 0: logits can be any numbers": (
            lambda *case: torch.relu(forward.reference(*case))
        ),
        "these are probabilities: return the logits, since the loss applies the softmax itself": (
            lambda *case: forward.reference(*case).softmax(dim=-1)
        ),
        "these are log-probabilities: return the logits, since the loss applies the softmax itself": (
            lambda *case: forward.reference(*case).log_softmax(dim=-1)
        ),
        "the `relu` stands before the hidden layer, on the letters' vectors: apply it to what `hidden` returns": (
            lambda *case: _forward(*case, join=lambda x: torch.relu(x).flatten(1), bend=lambda x: x)
        ),
        "the negative numbers of the letters' vectors are lost: one `relu`, after the hidden layer, is enough": (
            lambda *case: _forward(*case, join=lambda x: torch.relu(x).flatten(1))
        ),
        "the numbers of different letters are interleaved: flatten (batch, context, width) as it is, from axis 1 on": (
            lambda *case: _forward(*case, join=lambda x: x.transpose(1, 2).flatten(1))
        ),
        "the letters are in reverse order: the first letter's vector comes first": (
            lambda *case: _forward(*case, join=lambda x: x.flip(1).flatten(1))
        ),
        "this is the hidden layer: `network.out` makes 27 logits of it": (
            lambda network, letters: torch.relu(network.hidden(network.embed(letters).flatten(1)))
        ),
        "tanh, as in Bengio's paper, in place of relu: both can learn, but here it is `torch.relu`": (
            lambda *case: _forward(*case, bend=torch.tanh)
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
        "these tensors hold on to the whole computation: append `loss.item()`, a plain number": (
            lambda *case: [torch.tensor(loss, requires_grad=True) for loss in train.reference(*case)]
        ),
        "the gradients of all batches pile up: `backward` adds to `.grad`, so call `optimizer.zero_grad()` each time": (
            lambda *case: _trained(*case, order="backward step")
        ),
        "the model never moves: `optimizer.step()` is missing, or `zero_grad` stands between `backward` and it": (
            lambda *case: _trained(*case, order="zero backward")
        ),
        "a new optimizer in every step forgets the gradients that it has seen: make it once, before the loop": (
            lambda *case: _trained(*case, renew=True)
        ),
        "two slips: a new optimizer in every step, so make it once, before the loop; and the gradients of all batches "
        "pile up, so call `optimizer.zero_grad()` each time": (
            lambda *case: _trained(*case, order="backward step", renew=True)
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


def _by_the_mean_gradient(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
    gradient = torch.zeros_like(w)
    for step in range(1, steps + 1):
        gradient = gradient + 2 * x.T @ (x @ w - y) / len(y)
        w = w - lr * gradient / step
    return w


descend.mistakes(
    {
        "the gradient is cleared once, and then piles up again: clear it in every step": (
            lambda w, x, y, lr, steps: descend.start(descend.reference(w, x, y, lr, 1), x, y, lr, steps - 1)
        ),
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
        "the step gets shorter with the number of steps: each is `lr * w.grad`, and the gradient has to be cleared": (
            lambda w, x, y, lr, steps: descend.reference(w, x, y, lr / steps, steps)
        ),
        "the step gets shorter with the number of steps, and the gradients still pile up: clear them instead": (
            lambda w, x, y, lr, steps: descend.start(w, x, y, lr / steps, steps)
        ),
        "this divides what piles up by its number: the mean of all gradients so far is not the gradient here": (
            _by_the_mean_gradient
        ),
    }
)
