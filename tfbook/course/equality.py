"""One line that proves what the page built equal to the package's version: same weights, same outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.modes import evaluating

TOLERANCE = 1e-5


def prove_equal(
    plain: Callable[..., Any],
    package: Callable[..., Any],
    *cases: tuple[Any, ...],
    rename: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
) -> None:
    """Prints whether `plain` and `package` return the same for every case, a tuple of arguments.

    A case may end with a dictionary of keyword arguments, such as (x, {"mask": mask}).
    Modules first share weights: `package` gets those of `plain`, matched by name; `rename` maps the beginnings of names
    that differ, as in {"query.": "project.q."}. Both run without dropout. `outputs` names the fields of the package's
    result to compare, where it returns more than `plain`. Never raises for a difference.
    """
    shared = _share_weights(plain, package, rename or {}) if isinstance(plain, nn.Module) else ""
    for number, case in enumerate(cases, start=1):
        result = _run(package, case)
        counted = tuple(getattr(result, name) for name in outputs) if outputs else result
        found, expected = list(_tensors(_run(plain, case))), list(_tensors(counted))
        difference = _difference(found, expected)
        if difference:
            print(f"✗ {_name(plain)} differs from {_owner(package)} {_name(package)} in case {number}: {difference}")
            return
    inputs = "1 input" if len(cases) == 1 else f"{len(cases)} inputs"
    print(f"✓ {_name(plain)} equals {_owner(package)} {_name(package)}: {shared}same outputs on {inputs}")


def _share_weights(plain: nn.Module, package: Any, rename: Mapping[str, str]) -> str:
    weights = {renamed(name, rename): weight for name, weight in plain.state_dict().items()}
    package.load_state_dict(weights)
    tensors = {weight.data_ptr() for weight in weights.values()}  # tied ones count once
    return f"same {len(tensors)} weight tensors, "


def renamed(name: str, rename: Mapping[str, str]) -> str:
    """The name of a weight, with its beginning changed as `rename` says."""
    for before, after in rename.items():
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def _run(function: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    """The result without gradients; a module runs in eval mode."""
    has_keywords = bool(case) and isinstance(case[-1], dict)
    arguments, keywords = (case[:-1], case[-1]) if has_keywords else (case, {})
    with evaluating(function) if isinstance(function, nn.Module) else nullcontext(), torch.no_grad():
        return function(*arguments, **keywords)


def _tensors(result: Any) -> Iterator[Tensor]:
    """The tensors of a result, of one or of a tuple of several."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for each in result:
            yield from _tensors(each)


def _difference(found: list[Tensor], expected: list[Tensor]) -> str:
    """The difference between the results, in words; empty when there is none."""
    if not found or len(found) != len(expected):
        return f"it returns {len(found)} tensors; expected {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            return f"the shape is {tuple(one.shape)}; expected {tuple(other.shape)}"
        one, other = one.cpu().double(), other.cpu().double()
        if not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            return f"the largest difference is {(one - other).abs().max():.2g}"
    return ""


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _owner(function: Callable[..., Any]) -> str:
    home = type(function).__module__ if isinstance(function, nn.Module) else getattr(function, "__module__", None) or ""
    return "PyTorch's" if home.partition(".")[0] == "torch" else "tfbook's"
