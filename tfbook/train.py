"""The training loop of every lesson: one function, `fit`, with its recipe, history and checkpoints."""

from __future__ import annotations

import math
import os
import signal
import statistics
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook import runtime

Schedule = Callable[[int, int], float]  # (step, steps) → factor on the learning rate
Evaluate = Callable[[nn.Module], dict[str, float]]


def constant(step: int, steps: int) -> float:
    """Factor 1 at every step."""
    return 1.0


def warmup_cosine(warmup: int, final: float = 0.1) -> Schedule:
    """Rises linearly over `warmup` steps, then falls along half a cosine to `final` (Loshchilov & Hutter, 2017).

    Raises ValueError when `warmup` is negative or `final` lies outside 0 to 1.
    """
    if warmup < 0 or not 0 <= final <= 1:
        raise ValueError(f"warmup is {warmup} and final is {final}; expected warmup ≥ 0 and 0 ≤ final ≤ 1")

    def factor(step: int, steps: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = (step - warmup) / max(1, steps - warmup)
        return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2

    return factor


def inverse_sqrt(warmup: int) -> Schedule:
    """min(t / warmup, √(warmup / t)) for t = 1, 2, …: rises to 1, then falls (Vaswani et al., 2017, eq. 3).

    Their learning rate is this times (d_model · warmup)^(−1/2). Raises ValueError when `warmup` < 1.
    """
    if warmup < 1:
        raise ValueError(f"warmup is {warmup}; expected 1 or more steps")
    return lambda step, steps: min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long and how to train. Learning rates are AdamW's; `clip` bounds the norm of the gradient.

    `weight_decay` shrinks matrices, embeddings among them, and leaves biases and gains alone.

    With `mixed_precision` matrix products run at `runtime.precision()`; steps of many small products, such as those of
    recurrent networks, gain nothing from it.
    """

    steps: int
    lr: float = 1e-3
    schedule: Schedule = constant
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = 1.0
    evaluate_every: int = 100
    checkpoint_every: int = 100
    mixed_precision: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "lr", "clip", "evaluate_every", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay is {self.weight_decay}; expected 0 or more")


@dataclass
class History:
    """What happened at each step; `seconds` counts training alone, evaluation and checkpoints left out."""

    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # since the start of training, at the end of each step
    evaluations: list[dict[str, float]] = field(default_factory=list)  # step, seconds and what `evaluate` returned
    interrupted: bool = False

    @property
    def steps(self) -> int:
        """Steps done so far."""
        return len(self.loss)

    @property
    def elapsed(self) -> float:
        """Seconds of training so far."""
        return self.seconds[-1] if self.seconds else 0.0

    def curve(self, metric: str, against: str = "step") -> tuple[list[float], list[float]]:
        """x and y of an evaluated metric, against `step` or `seconds`. Raises KeyError when it was never evaluated."""
        if not any(metric in row for row in self.evaluations):
            known = sorted({key for row in self.evaluations for key in row} - {"step", "seconds"})
            raise KeyError(f"metric {metric!r} was never evaluated; known: {', '.join(known) or 'none'}")
        return [row[against] for row in self.evaluations], [row[metric] for row in self.evaluations]


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and up to `window` − 1 before it; raises ValueError when `window` < 1."""
    if window < 1:
        raise ValueError(f"window is {window}; expected 1 or more")
    return [statistics.fmean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


class NonFiniteLoss(FloatingPointError):
    """The loss or its gradient became NaN or infinite. `history` holds the steps before; the weights are theirs."""

    def __init__(self, loss: float, norm: float, history: History):
        found = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {norm}"
        super().__init__(f"{found} at step {history.steps + 1}; lower lr or look for a division by zero")
        self.history = history


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read or does not belong to this model."""


# ---- checkpoints: everything that the next step depends on -------------------------------------------------------


def save_checkpoint(path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer, history: History) -> None:
    """Writes weights, optimiser, history and random state to `path` at one stroke; a crash leaves the old file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "history": asdict(history)}
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            torch.save(content | {"random": runtime.random_state()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def load_checkpoint(path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> History:
    """Restores what `save_checkpoint` wrote, random state included, and returns the history so far.

    Raises FileNotFoundError; and CheckpointError when the file is damaged or belongs to another model or optimiser, in
    which case model, optimiser and random state stay as they were.
    """
    content, history = _read_checkpoint(path)
    expected, found = _shapes(model.state_dict()), _shapes(content["model"])
    if expected != found:
        differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise CheckpointError(f"checkpoint {path} is another model's; these weights differ: {', '.join(differing)}")
    before = runtime.random_state()
    try:
        runtime.set_random_state(content["random"])
        optimizer.load_state_dict(content["optimizer"])  # changes nothing when it raises
    except Exception as error:
        runtime.set_random_state(before)
        raise CheckpointError(f"checkpoint {path} does not fit this optimiser or machine ({error!r})") from error
    model.load_state_dict(content["model"])
    return history


def _read_checkpoint(path: str | Path) -> tuple[dict[str, Any], History]:
    with Path(path).open("rb") as file:
        try:
            if zipfile.ZipFile(file).testzip():  # torch.load does not look at the checksums
                raise ValueError("a checksum is wrong")
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
            parts = {name: content[name] for name in ("model", "optimizer", "random")}
            return parts, History(**content["history"])
        except Exception as error:  # a cut or foreign file makes the reader raise nearly anything
            message = f"checkpoint {path} is damaged ({type(error).__name__}); delete it to start afresh"
            raise CheckpointError(message) from error


def _shapes(weights: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(getattr(weight, "shape", ())) for name, weight in weights.items()}


# ---- the loop ----------------------------------------------------------------------------------------------------


def smoothed_cross_entropy(
    logits: Float[Tensor, "*rows vocab"], targets: Int[Tensor, "*rows"], *, smoothing: float, ignore: int = -100
) -> Float[Tensor, ""]:
    """−(1 − ε) log p(target) − ε mean_v log p(v), mean over targets but `ignore` (Szegedy et al., 2016, section 7).

    ε is `smoothing`; at 0 it is the cross-entropy. Raises ValueError unless 0 ≤ ε < 1.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}; expected 0 ≤ smoothing < 1")
    logp, counted = torch.log_softmax(logits.float(), dim=-1), targets != ignore
    right = logp.gather(-1, targets.masked_fill(~counted, 0)[..., None])[..., 0]
    losses = (1 - smoothing) * right + smoothing * logp.mean(dim=-1)
    return -losses[counted].mean()


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


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimiser: matrices shrink by `weight_decay`; vectors (biases, gains) say where, not how much."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(
            f"model {type(model).__name__} has nothing to train; expected parameters that require gradients"
        )
    fused = parameters[0].device.type in ("cpu", "cuda")
    groups = decay_groups(model, recipe.weight_decay)
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=fused)


def _step(model: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer, recipe: Recipe, history: History) -> None:
    """One update, written down in `history`; the weights stay as they are when loss or gradient is not finite."""
    if not isinstance(loss, Tensor) or loss.shape or not loss.requires_grad:
        form = f" of shape {tuple(loss.shape)}, requires_grad {loss.requires_grad}" if isinstance(loss, Tensor) else ""
        expected = "a Tensor of shape () that depends on the model's weights"
        raise ValueError(f"loss returned a {type(loss).__name__}{form}; expected {expected}")
    for group in optimizer.param_groups:
        group["lr"] = recipe.lr * recipe.schedule(history.steps, recipe.steps)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    value, norm = loss.item(), nn.utils.clip_grad_norm_(model.parameters(), recipe.clip).item()
    if not math.isfinite(value) or not math.isfinite(norm):
        raise NonFiniteLoss(value, norm, history)
    optimizer.step()
    history.loss.append(value)
    history.grad_norm.append(norm)
    history.lr.append(optimizer.param_groups[0]["lr"])


def _evaluate(model: nn.Module, evaluate: Evaluate | None, history: History) -> dict[str, float]:
    """What `evaluate` says of the model in eval mode; whatever it draws at random, training goes on as without it."""
    if evaluate is None:
        return {}
    model.eval()
    with torch.no_grad(), runtime.untouched_randomness():
        metrics = evaluate(model)
    model.train()
    history.evaluations.append({"step": history.steps, "seconds": history.elapsed, **metrics})
    return metrics


def fit(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    batches: Callable[[int], Any],
    recipe: Recipe,
    *,
    evaluate: Evaluate | None = None,
    checkpoint: str | Path | None = None,
) -> History:
    """Minimises `loss(model, batches(step))` with AdamW for `recipe.steps` steps and returns the history.

    `batches` maps a step number to that step's batch (a tensor, or what has `.to(device)`), so that a run resumed from
    `checkpoint` sees what it would have seen. The stop button ends training after the current step. The model comes
    back in eval mode. Raises NonFiniteLoss, CheckpointError, and ValueError when there is nothing to train.
    """
    optimizer = _optimizer(model, recipe)
    device = next(model.parameters()).device
    resume = checkpoint is not None and Path(checkpoint).exists()
    history = load_checkpoint(checkpoint, model, optimizer) if resume else History()
    model.train()
    with _interrupt_as_flag() as stop, _progress(history.steps, recipe.steps) as bar:
        last = history.steps >= recipe.steps
        while not last:
            start, before = time.perf_counter(), history.elapsed
            with runtime.autocast(recipe.mixed_precision):
                value = loss(model, batches(history.steps).to(device))
            _step(model, value, optimizer, recipe, history)
            history.seconds.append(before + time.perf_counter() - start)
            last = history.steps == recipe.steps or stop.is_set()
            if history.steps % recipe.evaluate_every == 0 or last:
                bar.set_postfix(_evaluate(model, evaluate, history), refresh=False)
            if checkpoint is not None and (history.steps % recipe.checkpoint_every == 0 or last):
                save_checkpoint(checkpoint, model, optimizer, history)
            bar.set_description(f"loss {history.loss[-1]:.3f}", refresh=False)
            bar.update()
    history.interrupted = history.steps < recipe.steps
    model.eval()
    return history


def _progress(done: int, steps: int) -> Any:
    from tqdm.auto import tqdm  # here, because it looks for a notebook when imported

    return tqdm(total=steps, initial=done, leave=False, unit="step", mininterval=0.5)
