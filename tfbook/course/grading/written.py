"""An attempt as two files, JSON and safetensors: nothing in them is executed when they are read, or grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tfbook.course.attempts import MARKS, Attempt, CheckResult
from tfbook.course.gradients import Gradients

ATTEMPT = "attempt"  # .json and .safetensors
WORDS = 1_000  # characters of a message that are kept


class UnreadableError(ValueError):
    """A room has left something behind that is no attempt."""


def write_attempt(path: Path, attempt: Attempt | None = None, fault: str = "") -> None:
    """Writes an attempt, or the reason why there is none, to `path` with the suffixes .json and .safetensors."""
    tensors: dict[str, torch.Tensor] = {}
    whole: dict[str, Any] = {"fault": fault}
    if attempt is not None:
        whole |= {
            "results": [_tree(result, tensors) for result in attempt.results],
            "ending": _verdict_tree(attempt.ending),
            "late": attempt.late,
            "slopes": [_slope_tree(found, tensors) for found in attempt.slopes()],
        }
    save_file(tensors, path.with_suffix(".safetensors"))
    path.with_suffix(".json").write_text(json.dumps(whole), encoding="utf-8")


def _tree(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """A result as JSON, its tensors put aside; of anything else only the name of its kind is kept."""
    if type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor) and not value.is_sparse:
        name = str(len(tensors))
        tensors[name] = value.detach().to("cpu").clone().contiguous()
        return {"tensor": name}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_tree(part, tensors) for part in value]}
    if type(value) is dict:
        return {"dict": [[_tree(key, tensors), _tree(part, tensors)] for key, part in value.items()]}
    return {"other": type(value).__name__}


def _verdict_tree(verdict: CheckResult | None) -> list[str] | None:
    return None if verdict is None else [verdict.status, verdict.message[:WORDS]]


def _slope_tree(found: Gradients | CheckResult, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(found, CheckResult):
        return {"ending": _verdict_tree(found)}
    if isinstance(found, str):
        return found[:WORDS]
    return {"of": {name: None if slope is None else _tree(slope, tensors) for name, slope in found.items()}}


# ---- reading -----------------------------------------------------------------------------------------------------


def read_attempt(path: Path) -> Attempt | CheckResult:
    """The attempt, or the verdict where there is none. Raises UnreadableError for anything else."""
    try:
        whole = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        tensors = load_file(path.with_suffix(".safetensors"))
        return _attempt(whole, tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from None


def _attempt(whole: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Attempt | CheckResult:
    if fault := str(whole["fault"])[:WORDS]:
        return CheckResult("not attempted") if fault == "not attempted" else CheckResult("raised an error", fault)
    results = [_value(tree, tensors) for tree in whole["results"]]
    slopes = [_slope(tree, tensors) for tree in whole["slopes"]]
    return Attempt(results, _verdict(whole["ending"]), whole["late"] is True, lambda: iter(slopes))


def _verdict(tree: Any) -> CheckResult | None:
    """An ending that an answer came to; whatever it claims, it isn't that of a right one."""
    if tree is None:
        return None
    status, message = tree
    return CheckResult(status if status in MARKS and status != "correct" else "not quite", str(message)[:WORDS])


def _value(tree: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    [(kind, content)] = tree.items()
    return READ[kind](content, tensors)


READ: dict[str, Callable[[Any, dict[str, torch.Tensor]], Any]] = {
    "tensor": lambda name, tensors: tensors[name],
    "list": lambda parts, tensors: [_value(part, tensors) for part in parts],
    "tuple": lambda parts, tensors: tuple(_value(part, tensors) for part in parts),
    "dict": lambda parts, tensors: {_value(key, tensors): _value(part, tensors) for key, part in parts},
    "other": lambda name, tensors: type(name if str(name).isidentifier() else "object", (), {})(),
}


def _slope(tree: Any, tensors: dict[str, torch.Tensor]) -> Gradients | CheckResult:
    if isinstance(tree, str):
        return tree[:WORDS]
    if "ending" in tree:
        return _verdict(tree["ending"]) or CheckResult("not quite")
    return {name: None if part is None else _value(part, tensors) for name, part in tree["of"].items()}
