"""The training loop of every lesson: one function, `fit`, with its recipe."""

from __future__ import annotations

import math
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tfbook import runtime
from tfbook.attention.tuned import joined_projections
from tfbook.modes import evaluating
from tfbook.training import distributed, optimizers
from tfbook.training.checkpoints import About, History, resume, save_checkpoint
from tfbook.training.losses import Loss, at_least_one
from tfbook.training.optimizers import Optimizer
from tfbook.training.schedules import Schedule, constant

LossFunction = Callable[[Any, Any], Loss | Tensor]  # of the model, of any class, and a batch


Evaluate = Callable[[Any], dict[str, float]]  # of the model


Report = Callable[[History], None]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long and how to train. `lr` is AdamW's learning rate; `clip` bounds the norm of the gradient.

    `weight_decay` shrinks matrices, embeddings among them, and leaves vectors alone: biases, the weights of norms,
    class tokens and the positions of a grid. The optimizer "muon" takes the matrices of the blocks, with `momentum` and
    steps of size lr · `rms`, and leaves the rest to AdamW. A step reads `accumulate` batches, as if they were one: for
    batches that do not fit into memory at once.

    With `mixed_precision` matrix products run at `runtime.precision()`; steps of many small products, such as those of
    recurrent networks, gain nothing from it.
    """

    steps: int
    lr: float = 1e-3
    embedding_lr_factor: float = 1.0  # on the learning rate of an embedding that is tied to the output's matrix
    embedding_decay_factor: float = 1.0  # on its weight decay
    schedule: Schedule = constant
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = 1.0
    optimizer: str = "adamw"  # or "muon"
    momentum: float = 0.95  # Muon's
    rms: float = 0.2  # Muon's, 0.2 being what AdamW's steps have
    accumulate: int = 1
    evaluate_every: int = 100
    checkpoint_every: int = 100
    mixed_precision: bool = True

    def __post_init__(self) -> None:
        positive = ("steps", "lr", "embedding_lr_factor", "clip", "rms", "accumulate")
        for name in (*positive, "evaluate_every", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {self.betas}; expected 0 ≤ beta < 1 for both")
        for name in ("weight_decay", "embedding_decay_factor"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}; expected 0 ≤ momentum < 1")
        if self.optimizer not in ("adamw", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}; expected 'adamw' or 'muon'")


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and up to `window` − 1 before it; raises ValueError when `window` < 1."""
    if window < 1:
        raise ValueError(f"window is {window}; expected 1 or more")
    return [statistics.fmean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


class NonFiniteLoss(FloatingPointError):
    """The loss or its gradient became NaN or infinite. `history` and the weights are those of the last good step."""

    def __init__(self, loss: float, norm: float, history: History):
        found = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {norm}"
        super().__init__(f"{found} at step {history.steps + 1}; lower lr or look for a division by zero")
        self.history = history


@contextmanager
def _interrupt_as_flag() -> Iterator[threading.Event]:
    """Turns the first stop signal into a flag, so that a step is never cut in half; the second one raises as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return

    def on_interrupt(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


def _optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(
            f"model {type(model).__name__} has nothing to train; expected parameters that require gradients"
        )
    names = ("lr", "betas", "weight_decay", "embedding_lr_factor", "embedding_decay_factor")
    options = {name: getattr(recipe, name) for name in names}
    if recipe.optimizer == "muon":
        return optimizers.muon(model, **options, momentum=recipe.momentum, rms=recipe.rms)
    tied, vectors = optimizers.tied_embeddings(model), optimizers.added_vectors(model)
    return optimizers.adamw(parameters, **options, embeddings=tied, vectors=vectors)


def _gradient(model: nn.Module, loss: LossFunction, batches: Callable[[int], Any], recipe: Recipe, step: int) -> float:
    """Σ total / Σ count over the batches of a step in all processes; its gradient is left in the weights."""
    numbers = range(step * recipe.accumulate, (step + 1) * recipe.accumulate)
    losses = (_loss(model, loss, batches(number), recipe) for number in numbers)
    value = _backward(next(losses)) if recipe.accumulate == 1 else _accumulate(model, losses)
    distributed.add_gradients(model)
    return float(distributed.total(value))


def _loss(model: nn.Module, loss: LossFunction, batch: Any, recipe: Recipe) -> Loss:
    with runtime.autocast(recipe.mixed_precision):
        found = loss(model, batch.to(next(model.parameters()).device))
    totals = found.totals if isinstance(found, Loss) else [found]
    if not all(isinstance(total, Tensor) and not total.shape and total.requires_grad for total in totals):
        expected = "a Loss, or a Tensor of shape (), that depends on the model's weights"
        raise ValueError(f"loss returned {_described(found)}; expected {expected}")
    return found if isinstance(found, Loss) else Loss(found, 1)


def _backward(found: Loss) -> Tensor:
    """The gradient of one batch, whose counts are known before it. Returns this process's share of the mean."""
    share = found.over([distributed.total(count) for count in found.counts])
    share.backward()
    return share.detach()


@dataclass
class _Term:
    """One term of a loss, summed over batches, and its gradient."""

    gradients: list[Tensor | None]
    total: float | Tensor = 0.0
    count: int | Tensor = 0

    def add(self, weights: list[nn.Parameter], total: Tensor, count: int | Tensor, *, last: bool) -> None:
        """Adds the total of one more batch; `last` unless other terms need its graph."""
        for weight, gradient in zip(weights, self.gradients, strict=True):
            weight.grad = gradient  # to which `backward` adds
        total.backward(retain_graph=not last)
        self.gradients = [weight.grad for weight in weights]
        self.total, self.count = self.total + total.detach(), self.count + count


def _accumulate(model: nn.Module, losses: Iterable[Loss]) -> Tensor:
    """The gradient of several batches: each term has one of its own until all are counted. Returns as `_backward`."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    terms: list[_Term] = []
    for found in losses:
        terms = terms or [_Term([None] * len(weights)) for _ in found.totals]
        for number, (term, total, count) in enumerate(zip(terms, found.totals, found.counts, strict=True), 1):
            term.add(weights, total, count, last=number == len(terms))
        del found, total  # the graph that they hold, before the next batch makes one
    counts = [at_least_one(distributed.total(term.count)) for term in terms]
    for weight, *gradients in zip(weights, *(term.gradients for term in terms), strict=True):
        shares = [gradient / count for gradient, count in zip(gradients, counts, strict=True) if gradient is not None]
        weight.grad = sum(shares) if shares else None
    return sum(term.total / count for term, count in zip(terms, counts, strict=True))  # type: ignore[return-value]


def _described(value: object) -> str:
    if isinstance(value, Loss):
        return f"a Loss of {' + '.join(map(_described, value.totals))}"
    form = f" of shape {tuple(value.shape)}, requires_grad {value.requires_grad}" if isinstance(value, Tensor) else ""
    return f"a {type(value).__name__}{form}"


def _step(model: nn.Module, value: float, optimizer: Optimizer, recipe: Recipe, history: History) -> None:
    """Takes one step and adds it to `history`; the weights stay as they are when loss or gradient is not finite."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.lr * group.get("lr_factor", 1) * recipe.schedule(history.steps, recipe.steps)
    norm = nn.utils.clip_grad_norm_(model.parameters(), recipe.clip).item()
    if not math.isfinite(value) or not math.isfinite(norm):
        raise NonFiniteLoss(value, norm, history)
    with runtime.autocast(recipe.mixed_precision):  # for the products of Muon
        optimizer.step()
    history.loss.append(value)
    history.grad_norm.append(norm)
    history.lr.append(optimizer.param_groups[0]["lr"])


def _evaluate(model: nn.Module, evaluate: Evaluate | None, report: Report | None, history: History) -> dict[str, float]:
    """The metrics that `evaluate` returns in eval mode; random numbers drawn there do not affect training."""
    if evaluate is None:
        return {}
    with evaluating(model), torch.no_grad(), runtime.fork_rng():
        metrics = evaluate(model)
    history.evaluations.append({"step": history.steps, "seconds": history.elapsed, **metrics})
    if report is not None:
        report(history)
    return metrics


def fit(
    model: nn.Module,
    loss: LossFunction,
    batches: Callable[[int], Any],
    recipe: Recipe,
    *,
    evaluate: Evaluate | None = None,
    checkpoint: str | Path | None = None,
    report: Report | None = None,
    about: About | None = None,
) -> History:
    """Minimizes `loss(model, batches(number))` for `recipe.steps` steps and returns the history.

    A step follows the gradient of Σ total / Σ count, the totals and counts of a `Loss` summed over its batches and over
    all processes. A loss may also return one number as a Tensor: it counts as 1, so that batches are averaged, large or
    small.

    `batches` maps a number to a batch (a tensor, or anything with `.to(device)`), always the same one, so that a run
    resumed from `checkpoint` sees the batches that it would have seen; step s reads batch s, or `accumulate` batches
    from number s · `accumulate` on. A checkpoint says what it is `about`, and one about something else is refused.
    `report` is called after each evaluation. The stop button ends training after the current step. Inside
    `distributed.processes()` each process makes batches of its own.

    All of the model begins in train mode; a module that `loss` puts into eval mode, such as a frozen block, stays in
    it. The model comes back in eval mode, however training ends. Raises NonFiniteLoss, CheckpointError, and ValueError
    when there is nothing to train.
    """
    optimizer = _optimizer(model, recipe)
    history = History() if checkpoint is None else resume(checkpoint, model, optimizer, about=about)
    distributed.broadcast(model.train())
    with (
        _ending_in_eval_mode(model),
        joined_projections(model),
        _interrupt_as_flag() as stop,
        _progress(history.steps, recipe.steps) as bar,
    ):
        last = history.steps >= recipe.steps
        while not last:
            start, before = time.perf_counter(), history.elapsed
            optimizer.zero_grad(set_to_none=True)
            value = _gradient(model, loss, batches, recipe, history.steps)
            _step(model, value, optimizer, recipe, history)
            history.seconds.append(before + time.perf_counter() - start)
            last = history.steps == recipe.steps or distributed.mean(stop.is_set()) > 0
            if history.steps % recipe.evaluate_every == 0 or last:
                bar.set_postfix(_evaluate(model, evaluate, report, history), refresh=False)
            if checkpoint is not None and (history.steps % recipe.checkpoint_every == 0 or last):
                save_checkpoint(checkpoint, model, optimizer, history, about=about)
            bar.set_description(f"loss {history.loss[-1]:.3f}", refresh=False)
            bar.update()
    history.interrupted = history.steps < recipe.steps
    return history


@contextmanager
def _ending_in_eval_mode(model: nn.Module) -> Iterator[None]:
    try:
        yield
    finally:
        model.eval()


def _progress(done: int, steps: int) -> Any:
    from tfbook.training.progress import tqdm  # here, because it looks for a notebook when imported

    return tqdm(total=steps, initial=done, leave=False, unit="step", mininterval=0.5, disable=distributed.rank() > 0)
