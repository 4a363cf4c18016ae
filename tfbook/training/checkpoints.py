"""What a run leaves behind: its history, and checkpoints from which it goes on bit for bit."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from tfbook import files, runtime
from tfbook.attention.positions import Position
from tfbook.training import distributed
from tfbook.training.optimizers import ChainedOptimizer, Optimizer


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


# ---- checkpoints: everything that the next step depends on -------------------------------------------------------


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read or does not belong to this model."""


class DamagedCheckpoint(CheckpointError):
    """A file that is cut, changed or no checkpoint at all."""


About = Mapping[str, Any]  # names and values of what a checkpoint belongs to: strings, numbers or None


def save_checkpoint(
    path: str | Path, model: nn.Module, optimizer: Optimizer, history: History, *, about: About | None = None
) -> None:
    """Writes weights, optimizer, history and random state to `path` atomically: a crash leaves the old file.

    The checkpoint before it stays beside it, as `path`.previous. Of several processes the first writes.
    """
    content: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": asdict(history),
        "unshaped": _unshaped(model),
        "optimizers": _kinds(optimizer),
        "about": None if about is None else dict(about),
    }
    content["random"] = distributed.all_gathered(runtime.random_state())
    if distributed.rank() == 0:
        with files.atomic_write(path, keep=True) as file:
            _save(content, file)


def load_checkpoint(path: str | Path, model: nn.Module, optimizer: Optimizer) -> History:
    """Restores what `save_checkpoint` wrote, random state included, and returns the history so far.

    Raises FileNotFoundError; DamagedCheckpoint; and CheckpointError when it belongs to another optimizer or another
    model, by its weights' names and shapes, its numbers of heads or its encoding of positions. Then model, optimizer
    and random state stay as they were.
    """
    return _restore(path, _read_checkpoint(path), model, optimizer)


def resume(path: str | Path, model: nn.Module, optimizer: Optimizer, *, about: About | None = None) -> History:
    """Restores the checkpoint at `path`, or the one before it where that is damaged; without any, an empty history.

    A warning names the damaged file, which is kept as `path`.damaged. Raises CheckpointError as `load_checkpoint` does,
    and for a checkpoint that was saved with another `about`.
    """
    try:
        found, content = _read_newest(path)
    except FileNotFoundError:
        return History()
    _check_about(found, content, about)
    history = _restore(found, content, model, optimizer)
    if found != Path(path) and distributed.rank() == 0:  # the next save must not put it in the place of a sound one
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}.damaged")
    return history


def load_weights(path: str | Path, model: nn.Module, *, about: About | None = None) -> None:
    """Gives the model the weights of the checkpoint that `resume` would take. Raises what `resume` raises."""
    found, content = _read_newest(path)
    _check_about(found, content, about)
    _check_model(found, content, model)
    model.load_state_dict(content["model"])


def _restore(path: str | Path, content: dict[str, Any], model: nn.Module, optimizer: Optimizer) -> History:
    _check_model(path, content, model)
    _check_optimizer(path, content, optimizer)
    before, states = runtime.random_state(), content["random"]
    try:
        runtime.set_random_state(states[distributed.rank() % len(states)])
        optimizer.load_state_dict(content["optimizer"])  # changes nothing when it raises
    except Exception as error:
        runtime.set_random_state(before)
        raise CheckpointError(f"checkpoint {path} does not fit this optimizer or machine ({error!r})") from error
    model.load_state_dict(content["model"])
    return content["history"]


def _read_newest(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint at `path`, or the one before it where it is damaged, or missing as after a kill between moves."""
    path, before = Path(path), files.previous(path)
    try:
        return path, _read_checkpoint(path)
    except (FileNotFoundError, DamagedCheckpoint) as error:
        if not before.exists():
            raise
        content = _read_checkpoint(before)
        if isinstance(error, DamagedCheckpoint):
            warnings.warn(f"checkpoint {path} is damaged; going on from the one before it, {before}", stacklevel=4)
        return before, content


def _read_checkpoint(path: str | Path) -> dict[str, Any]:
    with Path(path).open("rb") as file:
        try:
            if zipfile.ZipFile(file).testzip():  # torch.load does not look at the checksums
                raise ValueError("a checksum is wrong")
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
            parts = {name: content[name] for name in ("model", "optimizer", "random")}
            parts |= {name: content.get(name) for name in ("unshaped", "optimizers", "about")}  # which old files lack
            return parts | {"history": History(**content["history"])}
        except Exception as error:  # a cut or foreign file makes the reader raise nearly anything
            message = f"checkpoint {path} is damaged ({type(error).__name__}); delete it to start over"
            raise DamagedCheckpoint(message) from error


def _save(content: dict[str, Any], file: BinaryIO) -> None:
    """`torch.save`, which calls a full disk "unexpected pos 768 vs 662" when it closes the file."""
    try:
        torch.save(content, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _check_about(path: str | Path, content: dict[str, Any], about: About | None) -> None:
    there = content["about"]
    if about is None or there in (None, about):
        return
    name = next(name for name in {**about, **there} if about.get(name) != there.get(name))
    message = f"checkpoint {path} belongs to another run; its {name} is {there.get(name)!r}"
    raise CheckpointError(f"{message}; expected {about.get(name)!r}")


def _check_model(path: str | Path, content: dict[str, Any], model: nn.Module) -> None:
    expected, found = _shapes(model.state_dict()), _shapes(content["model"])
    if expected != found:
        differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise CheckpointError(f"checkpoint {path} is another model's; these weights differ: {', '.join(differing)}")
    there, here = content["unshaped"], _unshaped(model)
    if there not in (None, here):
        name = min(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
        message = f"checkpoint {path} is another model's; its {name} is {there.get(name)}"
        raise CheckpointError(f"{message}; expected {here.get(name)}")


def _check_optimizer(path: str | Path, content: dict[str, Any], optimizer: Optimizer) -> None:
    there, here = content["optimizers"], _kinds(optimizer)
    if there not in (None, here):
        message = f"checkpoint {path} is another optimizer's, {' with '.join(there)}"
        raise CheckpointError(f"{message}; expected {' with '.join(here)}")


def _shapes(weights: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(getattr(weight, "shape", ())) for name, weight in weights.items()}


def _unshaped(model: nn.Module) -> dict[str, int | str]:
    """What no shape of a weight shows, by the names of the parts: numbers of heads and encodings of positions."""
    found: dict[str, int | str] = {}
    for name, part in model.named_modules():
        if isinstance(part, Position):
            found[name] = type(part).__name__
        elif isinstance(heads := getattr(part, "heads", None), int):
            found[f"{name}.heads"] = heads
    return found


def _kinds(optimizer: Optimizer) -> list[str]:
    parts = optimizer.parts if isinstance(optimizer, ChainedOptimizer) else (optimizer,)
    return [type(part).__name__ for part in parts]
