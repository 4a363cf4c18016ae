"""The record of a run: its history, and checkpoints from which it goes on bit for bit."""

from __future__ import annotations

import json
import math
import os
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import torch
from torch import nn

from tfbook import files, runtime
from tfbook.attention.positions import Position
from tfbook.training import distributed
from tfbook.training.optimizers import Muon, Optimizer, members


@dataclass
class History:
    """The numbers of each step; `seconds` counts training alone, without evaluation and checkpoints."""

    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # since the start of training, at the end of each step
    evaluations: list[dict[str, float]] = field(default_factory=list)  # step, seconds and the metrics of `evaluate`
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


About = Mapping[str, Any]  # what a checkpoint is and belongs to, such as options or a model's config, as JSON holds it


def save_checkpoint(
    path: str | Path, model: nn.Module, optimizer: Optimizer, history: History, *, about: About | None = None
) -> None:
    """Writes weights, optimizer, history and random state to `path` atomically: a crash leaves the old file.

    The checkpoint before it stays beside it, as `path`.previous. Of several processes each writes its own part into a
    folder beside `path`, and the first writes the rest; any number of processes can read it, see `shards`. `about` says
    what the checkpoint is, such as the model's config; `read_about` reads it. Raises TypeError or ValueError for one
    that JSON cannot hold, and OSError where `path` is no regular file.
    """
    content: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": asdict(history),
        "unshaped": _unshaped(model),
        "optimizers": _kinds(optimizer),
        "about": None if about is None else _as_json(about),
    }
    content["random"] = distributed.all_gathered(runtime.random_state())
    if distributed.world_size() > 1:
        content = _shards().write_parts(path, content)
    if distributed.rank() == 0:
        with files.atomic_write(path, keep=True) as file:
            _save(content, file)
        _remove_old_parts(Path(path))


def _shards() -> ModuleType:
    """The module, whose import takes longer than reading a small checkpoint."""
    from tfbook.training import shards

    return shards


def _remove_old_parts(path: Path) -> None:
    """Removes the folders of parts that neither the newest checkpoint nor the one before needs."""
    if not any(path.parent.glob(f"{path.name}.parts-*")):
        return
    kept = []
    for record in (path, files.previous(path)):
        with suppress(FileNotFoundError, CheckpointError):
            parts = _read_record(record)["parts"]
            kept += [parts["folder"]] if parts else []
    _shards().remove_parts(path, kept)


def load_checkpoint(path: str | Path, model: nn.Module, optimizer: Optimizer) -> History:
    """Restores what `save_checkpoint` wrote, random state included, and returns the history so far.

    Raises FileNotFoundError; DamagedCheckpoint; and CheckpointError when it belongs to another optimizer or another
    model, by its weights' names and shapes, its numbers of heads or its encoding of positions. Then model, optimizer
    and random state stay as they were.
    """
    return _restore(path, _read_checkpoint(path), model, optimizer)


def read_about(path: str | Path) -> dict[str, Any] | None:
    """The `about` that a checkpoint was saved with; None for one without. Raises what `load_checkpoint` raises."""
    return _read_checkpoint(path)["about"]


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
    try:
        model.load_state_dict(_placed(found, content, model)["model"])
    except Exception as error:
        raise CheckpointError(f"checkpoint {path} does not fit this model ({error!r})") from error


def _restore(path: str | Path, content: dict[str, Any], model: nn.Module, optimizer: Optimizer) -> History:
    _check_model(path, content, model)
    _check_optimizer(path, content, optimizer)
    before, states = runtime.random_state(), content["random"]
    saved = states[distributed.rank() % len(states)]
    moments, groups = optimizer.state_dict(), [*map(dict, optimizer.param_groups)]
    try:
        content = _placed(path, content, model, optimizer)
        runtime.set_random_state(saved)
        optimizer.load_state_dict(content["optimizer"])
        _check_loaded(optimizer, groups)
        model.load_state_dict(content["model"])  # last, since after `_check_model` it fits
        runtime.set_random_state(saved)  # whatever may have drawn from it meanwhile
    except Exception as error:  # a crafted state can raise anything
        runtime.set_random_state(before)
        optimizer.load_state_dict(moments)
        raise CheckpointError(f"checkpoint {path} does not fit this optimizer or machine ({error!r})") from error
    return content["history"]


def _placed(
    path: str | Path, content: dict[str, Any], model: nn.Module, optimizer: Optimizer | None = None
) -> dict[str, Any]:
    """The content with tensors in parts, or whole, as those of the model are."""
    if content["parts"] is None and distributed.world_size() == 1:
        return content
    return _shards().read_parts(path, content, model, optimizer)


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
    """The checkpoint, its parts checked and left where they are."""
    content = _read_record(path)
    if content["parts"] is not None:
        try:
            _shards().check_parts(path, content["parts"])
        except (OSError, ValueError) as error:
            raise DamagedCheckpoint(f"checkpoint {path} is damaged ({error}); delete it to start over") from error
    return content


def _read_record(path: str | Path) -> dict[str, Any]:
    if Path(path).exists() and not Path(path).is_file():  # opening a named pipe would wait for ever
        raise CheckpointError(f"checkpoint {path} is not a regular file")
    with Path(path).open("rb") as file:
        try:
            _check_archive(file)
            content = torch.load(file, map_location="cpu", weights_only=True)  # which runs no code of the file
            return _parts(content)
        except Exception as error:  # a cut or foreign file makes the reader raise nearly anything
            message = f"checkpoint {path} is damaged ({type(error).__name__}); delete it to start over"
            raise DamagedCheckpoint(message) from error


def _check_archive(file: BinaryIO) -> None:
    """Raises ValueError for a wrong checksum, at which torch.load does not look, and for more content than file."""
    archive = zipfile.ZipFile(file)
    if sum(part.file_size for part in archive.infolist()) > file.seek(0, os.SEEK_END):  # torch.save compresses nothing
        raise ValueError("its parts are larger than the file")
    if archive.testzip():
        raise ValueError("a checksum is wrong")
    file.seek(0)


def _parts(content: Any) -> dict[str, Any]:
    """The parts of a checkpoint. Raises TypeError where one has another form than `save_checkpoint` gives it."""
    parts = {name: content[name] for name in ("model", "optimizer", "random")}
    parts |= {name: content.get(name) for name in ("unshaped", "optimizers", "about", "parts")}  # which old files lack
    history, about = History(**content["history"]), parts["about"]
    sound = {
        "model": isinstance(parts["model"], dict) and all(isinstance(name, str) for name in parts["model"]),
        "optimizer": isinstance(parts["optimizer"], dict),
        "random": _is_list(parts["random"], dict) and parts["random"] != [],
        "unshaped": parts["unshaped"] is None or _is_names(parts["unshaped"]),
        "optimizers": parts["optimizers"] is None or _is_list(parts["optimizers"], str),
        "about": about is None or isinstance(about, str),
        "history": _is_history(history),
        "parts": parts["parts"] is None or _is_folder(parts["parts"]),
    }
    if not all(sound.values()):
        raise TypeError(", ".join(name for name, is_sound in sound.items() if not is_sound))
    parts["about"] = about and json.loads(about)
    if not isinstance(parts["about"], dict | None):
        raise TypeError("about")
    return parts | {"history": history}


def _is_list(found: Any, kind: type) -> bool:
    return isinstance(found, list) and all(isinstance(each, kind) for each in found)


def _is_names(found: Any) -> bool:
    names = isinstance(found, dict) and all(isinstance(name, str) for name in found)
    return names and all(isinstance(value, int | str) for value in found.values())


def _is_folder(found: Any) -> bool:
    """Whether it is a name and the checksum of each file."""
    return (
        isinstance(found, dict)
        and isinstance(name := found.get("folder"), str)
        and Path(name).name == name
        and _is_names(found.get("files"))
    )


def _is_history(found: History) -> bool:
    steps = (found.loss, found.lr, found.grad_norm, found.seconds)
    numbers = all(isinstance(each, list) and all(isinstance(x, int | float) for x in each) for each in steps)
    rows = _is_list(found.evaluations, dict) and all(row.keys() >= {"step", "seconds"} for row in found.evaluations)
    return numbers and rows and isinstance(found.interrupted, bool)


_LIKE_WEIGHTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "momentum")  # of each weight
_REQUIRED = {"exp_avg", "exp_avg_sq"}  # while a momentum may be None, before its first step
_ALIKE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, Muon)  # keep the same for every weight
_INFINITE = (math.inf, -math.inf)
_BY_MACHINE = ("fused", "foreach")  # settings that change with the device


def _check_loaded(optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
    """Raises ValueError for a state that an optimizer takes over without a word and with which its next step fails."""
    for part in members(optimizer):
        if isinstance(part, _ALIKE) and len({frozenset(state) for state in part.state.values() if state}) > 1:
            raise ValueError("some weights have moments that others lack")
        for weight, state in part.state.items():
            kept = [name for name in _LIKE_WEIGHTS if state.get(name) is not None or name in _REQUIRED & state.keys()]
            moments = [_shape(state[name]) for name in kept]
            if any(moment != tuple(weight.shape) for moment in moments):
                raise ValueError("a moment has another shape than its weight")
            if isinstance(part, _ALIKE) and _shape(state.get("step", 0)) not in ((), "int", "float"):
                raise ValueError("a number of steps is none")
    for before, after in zip(groups, optimizer.param_groups, strict=True):
        for name, value in before.items():
            if name not in ("params", *_BY_MACHINE) and not _is_alike(value, after.get(name)):
                raise ValueError(f"{name} is {after.get(name)!r}; expected one like {value!r}")


def _is_alike(value: Any, other: Any) -> bool:
    """Whether a setting of an optimizer is the same switch, or a number, or as many numbers."""
    if isinstance(value, tuple):
        return isinstance(other, tuple | list) and len(value) == len(other) and all(map(_is_alike, value, other))
    if isinstance(value, float | int) and not isinstance(value, bool):
        return (
            isinstance(other, float | int)
            and not isinstance(other, bool)
            and (other in _INFINITE or abs(other) < 1e300)
        )
    return type(value) is type(other) and (not isinstance(value, bool) or value == other)


def _save(content: dict[str, Any], file: BinaryIO) -> None:
    """`torch.save`, which calls a full disk "unexpected pos 768 vs 662" when it closes the file."""
    try:
        torch.save(content, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _as_json(about: About) -> str:
    text = json.dumps(dict(about))
    json.loads(text, parse_constant=_infinity)
    return text


def _infinity(name: str) -> float:
    """A limit of ∞ is one; NaN, which equals nothing, would make every checkpoint another run's."""
    if name == "NaN":
        raise ValueError("about holds NaN; expected what JSON can hold and compare")
    return float(name)


def _check_about(path: str | Path, content: dict[str, Any], about: About | None) -> None:
    there = content["about"]
    here = None if about is None else json.loads(_as_json(about))  # in which a tuple is a list
    if here is None or there in (None, here):
        return
    name = next(name for name in {**here, **there} if here.get(name) != there.get(name))
    message = f"checkpoint {path} belongs to another run; its {name} is {there.get(name)!r}"
    raise CheckpointError(f"{message}; expected {here.get(name)!r}")


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


def _shapes(weights: dict[str, Any]) -> dict[str, tuple[int, ...] | str]:
    """By name the shape of a plain tensor, and the kind of anything else, which fits nothing but its like."""
    return {name: _shape(weight) for name, weight in weights.items()}


def _shape(weight: Any) -> tuple[int, ...] | str:
    if not isinstance(weight, torch.Tensor):
        return type(weight).__name__
    plain = weight.layout == torch.strided and not weight.is_quantized
    return tuple(weight.shape) if plain else f"{weight.layout} {weight.dtype}"


def _unshaped(model: nn.Module) -> dict[str, int | str]:
    """Numbers of heads and encodings of positions, which no shape of a weight shows, by the names of the parts."""
    found: dict[str, int | str] = {}
    for name, part in model.named_modules():
        if isinstance(part, Position):
            found[name] = type(part).__name__
        elif isinstance(heads := getattr(part, "heads", None), int):
            found[f"{name}.heads"] = heads
    return found


def _kinds(optimizer: Optimizer) -> list[str]:
    return [type(part).__name__ for part in members(optimizer)]
