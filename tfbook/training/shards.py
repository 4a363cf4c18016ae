"""Checkpoints of several processes: a record, like the file of one process, and beside it a folder of everyone's parts.

`torch.distributed.checkpoint` writes and reads the parts, so what four processes wrote, one or two can read, and the
other way round. The record stands for a tensor in parts by its shape and names the folder with a checksum of each file.
It is written last: a folder that was left half written has no record that names it. The processes share one disk.
"""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
import warnings
from collections.abc import Callable, Collection
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, load, save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.serialization import _get_layout

from tfbook import files
from tfbook.training import distributed
from tfbook.training.optimizers import Optimizer, members
from tfbook.training.placement import is_placed, part_of

Place = tuple[Any, ...]  # the keys that lead to a tensor, as ("optimizer", "state", 0, "exp_avg")


def write_parts(path: str | Path, content: dict[str, Any]) -> dict[str, Any]:
    """Writes this process's part of each DTensor in `content`; returns the record, where shapes stand for DTensors.

    All processes call it together. Raises OSError where a part cannot be written.
    """
    own: dict[str, Any] = {}

    def shape_alone(place: Place, tensor: Tensor) -> Tensor:
        if not is_placed(tensor):
            return tensor
        own[_key(place)] = tensor.detach()
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    record = _mapped(content, shape_alone)
    folder = _beside(path, f"{Path(path).name}.parts-{distributed.all_gathered(secrets.token_hex(8))[0]}")
    try:
        save(own, storage_writer=FileSystemWriter(folder))
    except CheckpointException as error:
        raise OSError(f"checkpoint {path} could not be written ({error})") from error
    if distributed.rank() == 0:
        record["parts"] = {"folder": folder.name, "files": {file.name: _checksum(file) for file in folder.iterdir()}}
    return record


def check_parts(path: str | Path, parts: dict[str, Any]) -> None:
    """Raises ValueError unless the folder that a record names holds what was written, and OSError for what is gone."""
    for name, checksum in parts["files"].items():
        if _checksum(_beside(path, parts["folder"]) / name) != checksum:
            raise ValueError(f"the checksum of {name} is wrong")


def read_parts(
    path: str | Path, content: dict[str, Any], model: nn.Module, optimizer: Optimizer | None = None
) -> dict[str, Any]:
    """`content` with tensors that are placed as those of the model and the optimizer are: in parts or whole.

    Each process reads what it keeps. Raises ValueError where the folder holds something else.
    """
    alike, wanted = _by_place(model, optimizer), dict[str, Any]()

    def placed(place: Place, tensor: Tensor) -> Tensor:
        like = alike.get(place, alike.get(place[:-1]))
        if like is None or not is_placed(like) or like.shape != tensor.shape:
            like = tensor if not tensor.is_meta else torch.empty(tensor.shape)  # whole
        if not tensor.is_meta:
            return part_of(tensor.to(like.device), like)
        return wanted.setdefault(_key(place), torch.empty_like(like, dtype=tensor.dtype))

    names = ("model",) if optimizer is None else ("model", "optimizer")
    restored = content | {name: _mapped(content[name], placed, (name,)) for name in names}
    if wanted:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.distributed is disabled")  # each reads for itself
                load(wanted, storage_reader=_Reader(_beside(path, content["parts"]["folder"])), no_dist=True)
        except CheckpointException as error:
            raise ValueError(f"the parts of {path} do not fit ({error})") from error
    return restored


def remove_parts(path: str | Path, kept: Collection[str]) -> None:
    """Removes the folders that belonged to records at `path`, but for those of these names."""
    for folder in _beside(path, "").glob(f"{Path(path).name}.parts-*"):
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


# ---- a tree of tensors -------------------------------------------------------------------------------------------


def _mapped(tree: Any, change: Callable[[Place, Tensor], Tensor], place: Place = ()) -> Any:
    """The tree with each tensor changed; dictionaries and lists are new, whatever else is the same."""
    if isinstance(tree, Tensor):
        return change(place, tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change, (*place, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_mapped(value, change, (*place, number)) for number, value in enumerate(tree)]
    return tree


def _by_place(model: nn.Module, optimizer: Optimizer | None) -> dict[Place, Tensor]:
    """The model's tensors by their places in a checkpoint, and the weights by the places of their moments."""
    found: dict[Place, Tensor] = {("model", name): weight for name, weight in model.state_dict().items()}
    parts = () if optimizer is None else members(optimizer)
    for number, part in enumerate(parts):
        above: Place = ("optimizer",) if part is optimizer else ("optimizer", "parts", number)
        weights = [weight for group in part.param_groups for weight in group["params"]]
        found |= {(*above, "state", place): weight for place, weight in enumerate(weights)}
    return found


def _key(place: Place) -> str:
    return "/".join(map(str, place))


# ---- files -------------------------------------------------------------------------------------------------------


def _beside(path: str | Path, name: str) -> Path:
    """A path in the folder of the record, or of the file that a link leads to."""
    return Path(os.path.realpath(path)).parent / name


def _checksum(path: Path) -> int:
    with path.open("rb") as file:
        return files.checksum(file)


class _Reader(FileSystemReader):
    """PyTorch's, for which the pickled table of contents is first read without running any code of the file."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """The table of contents. Raises pickle.UnpicklingError for one that holds anything but tensors."""
        with Path(self.path, ".metadata").open("rb") as file:
            table = _Unpickler(file).load()
        if not all(isinstance(entry, TensorStorageMetadata) for entry in table.state_dict_metadata.values()):
            raise pickle.UnpicklingError("the parts hold something else than tensors")
        return super().read_metadata(*args, **kwargs)


class _Unpickler(pickle.Unpickler):
    """Makes what a table of contents consists of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The type, or the type of elements, of that name."""
        table = module in ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
        found = super().find_class(module, name)
        if (
            (table and isinstance(found, type))
            or isinstance(found, torch.dtype)
            or found in (torch.Size, _get_layout)
            or (isinstance(found, type) and issubclass(found, PurePath))
        ):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a table of contents")
