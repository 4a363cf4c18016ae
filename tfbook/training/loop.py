"""The training loop of every lesson: one function, `fit`, with its recipe."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tfbook import runtime
from tfbook.attention.tuned import joined_projections
from tfbook.checks import trusted
from tfbook.modes import evaluating
from tfbook.training import distributed, optimizers
from tfbook.training.checkpoints import About, History, resume, save_checkpoint
from tfbook.training.gradients import LossFunction, gradient
from tfbook.training.optimizers import Optimizer
from tfbook.training.placement import Run, checkpointed_blocks, clip_gradients, compiled_blocks, place
from tfbook.training.recipe import Recipe
from tfbook.training.stopping import stop_flag
from tfbook.training.vocabulary import padded_vocabulary

Evaluate = Callable[[Any], dict[str, float]]  # of the model

Report = Callable[[History], None]

RUNS_AHEAD = ("cuda",)  # kinds of devices that work on their own, and that only a look at a value stops
LOOK_EVERY = 50  # steps there: the device then stands still for about a millisecond


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


class _Unseen:
    """Losses and norms of steps that the host has not looked at: to look at them is to wait for the device.

    Where the host runs ahead, `spoiled` is 1 from the first step on in which one is not finite, and the steps of the
    optimizer change nothing from then on. Elsewhere each is looked at before its step.
    """

    def __init__(self, history: History, optimizer: Optimizer, device: torch.device):
        self.history, self.device, self.pairs = history, device, list[Tensor]()
        self.spoiled = optimizers.skippable(optimizer, device) if device.type in RUNS_AHEAD else None

    def add(self, value: Tensor, norm: Tensor) -> None:
        """Keeps loss and norm of a step, whose update follows."""
        self.pairs.append(torch.stack((value.to(self.device), norm.to(self.device))))
        if self.spoiled is None:
            self.look()
        else:
            self.spoiled.logical_or_(~self.pairs[-1].isfinite().all())

    def trust(self) -> AbstractContextManager[None]:
        """Where the host runs ahead, models check the values of the first batch alone: to check is to wait."""
        return trusted(self.spoiled is not None and bool(self.pairs or self.history.loss))

    def look(self) -> None:
        """Waits, and adds them to the history. Raises NonFiniteLoss, with the history up to the last good step."""
        pairs, self.pairs = torch.stack(self.pairs).tolist() if self.pairs else [], []
        for value, norm in pairs:
            if not math.isfinite(value) or not math.isfinite(norm):
                good = self.history.steps
                del self.history.lr[good:], self.history.seconds[good:]
                raise NonFiniteLoss(value, norm, self.history)
            self.history.loss.append(value)
            self.history.grad_norm.append(norm)


def _step(model: nn.Module, value: Tensor, optimizer: Optimizer, recipe: Recipe, unseen: _Unseen, number: int) -> None:
    """Takes step `number`; the weights stay as they are when loss or gradient is not finite."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.lr * group.get("lr_factor", 1) * recipe.schedule(number, recipe.steps)
    unseen.add(value, clip_gradients(model, recipe.clip))
    with runtime.autocast(recipe.mixed_precision):  # for the products of Muon
        optimizer.step()
    unseen.history.lr.append(optimizer.param_groups[0]["lr"])


def _evaluate(
    model: nn.Module, run: Run, evaluate: Evaluate | None, report: Report | None, history: History
) -> dict[str, float]:
    """The metrics that `evaluate` returns in eval mode; random numbers drawn there do not affect training."""
    if evaluate is None:
        return {}
    with evaluating(model), torch.no_grad(), runtime.fork_rng():
        metrics = {name: float(value) for name, value in run(evaluate).items()}  # which checkpoints and JSON can hold
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

    On CUDA the host runs ahead of the device: it looks at losses and norms where it evaluates, saves or ends, and every
    `LOOK_EVERY` steps. NonFiniteLoss then comes late, with the history and the weights of the last good step all the
    same; `seconds` are exact at the looks.

    All of the model begins in train mode; a module that `loss` puts into eval mode, such as a frozen block, stays in
    it. The model comes back in eval mode, however training ends. Raises NonFiniteLoss, CheckpointError, and ValueError
    when there is nothing to train.
    """
    run = place(model.train())
    optimizer = _optimizer(model, recipe)
    settings = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    history = History() if checkpoint is None else resume(checkpoint, model, optimizer, about=about)
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own)  # the recipe's, where a checkpoint holds those of an earlier one
    unseen = _Unseen(history, optimizer, next(model.parameters()).device)
    compiles = recipe.compiles(model, recipe.steps - history.steps)
    if compiles and distributed.world_size() == 1:
        loss = torch.compile(loss)
    with (
        _ending_in_eval_mode(model),
        joined_projections(model),
        padded_vocabulary(model),
        compiled_blocks(model) if compiles and distributed.world_size() > 1 else nullcontext(),
        checkpointed_blocks(model) if recipe.checkpoint_activations else nullcontext(),
        stop_flag() as stop,
        _progress(history.steps, recipe.steps) as bar,
    ):
        done, last = history.steps, history.steps >= recipe.steps
        while not last:
            start, before = time.perf_counter(), history.elapsed
            optimizer.zero_grad(set_to_none=True)
            with unseen.trust():
                value = gradient(model, run, loss, batches, recipe, done)
            _step(model, value, optimizer, recipe, unseen, done)
            done += 1
            last = done == recipe.steps or distributed.mean(stop.is_set()) > 0
            evaluates, saves = (last or done % each == 0 for each in (recipe.evaluate_every, recipe.checkpoint_every))
            if evaluates or saves or done % LOOK_EVERY == 0:
                unseen.look()
            history.seconds.append(before + time.perf_counter() - start)
            if evaluates:
                bar.set_postfix(_evaluate(model, run, evaluate, report, history), refresh=False)
            if checkpoint is not None and saves:
                save_checkpoint(checkpoint, model, optimizer, history, about=about)
            if history.loss:
                bar.set_description(f"loss {history.loss[-1]:.3f}", refresh=False)
            bar.update()
        if done < recipe.steps:
            bar.say_stopped(done)
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

    hidden: dict[str, Any] = {"disable": True} if distributed.rank() > 0 else {}  # else as TQDM_DISABLE says
    return tqdm(total=steps, initial=done, leave=False, unit="step", mininterval=0.5, **hidden)
