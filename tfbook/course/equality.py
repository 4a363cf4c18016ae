"""One line that proves what the page built equal to the package's version: same weights, same outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.modes import evaluating

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-5}  # else exact


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
    that differ, as in {"query.": "project.q."}. Both run without dropout and without TF32. `outputs` names the fields
    of the package's result to compare, where it returns more than `plain`. Rounding counts as equal: a difference up to
    `TOLERANCE` of 1 + the largest entry. Never raises for a difference.
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
    with evaluating(function) if isinstance(function, nn.Module) else nullcontext(), torch.no_grad(), _without_tf32():
        return function(*arguments, **keywords)


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Products and convolutions of float32 keep its 24 bits inside; TF32 keeps 11, which looks like a difference."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


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
        tolerance = max(TOLERANCE.get(one.dtype, 0.0), TOLERANCE.get(other.dtype, 0.0))
        one, other = one.cpu().double(), other.cpu().double()
        largest = other[other.isfinite()].abs().max() if other.isfinite().any() else torch.tensor(0.0)
        if not torch.allclose(one, other, rtol=0.0, atol=tolerance * (1 + float(largest)), equal_nan=True):
            return f"the largest difference is {(one - other).abs().max():.2g}"
    return ""


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _owner(function: Callable[..., Any]) -> str:
    home = type(function).__module__ if isinstance(function, nn.Module) else getattr(function, "__module__", None) or ""
    return "PyTorch's" if home.partition(".")[0] == "torch" else "tfbook's"
