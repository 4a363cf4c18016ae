"""How a wrong result is related to the expected one, in words: turned, shifted, scaled, not normalized, …"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

Pairs = Sequence[tuple[Tensor, Tensor]]  # expected and found, of all cases
Sizes = Sequence[Mapping[str, float]]  # of each pair's case: what a size is called → the size

MANY = 5  # different numbers: that so many are the same in another order is no accident


def relation(pairs: Pairs, sizes: Sizes) -> str:
    """The words for the first relation that holds in all cases; empty where none does.

    `pairs` are real tensors, in double precision, at least one of which differs.
    """
    if any(expected.shape != found.shape for expected, found in pairs):
        return next((text for holds, text in SHAPES if _in_all(pairs, holds)), "")
    if _in_all(pairs, lambda _, found: not found.any()):
        return "it is 0 everywhere"
    return exact_relation(pairs, sizes) or _normalized(pairs)


def exact_relation(pairs: Pairs, sizes: Sizes) -> str:
    """The words for a relation by which one result follows from the other, number by number; empty without one."""
    if any(expected.shape != found.shape for expected, found in pairs):
        return ""
    named = next((text for change, text in CHANGES if _in_all(pairs, _changed(change))), "")
    return named or _turned(pairs) or _scaled(pairs, sizes) or _in_other_places(pairs)


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and the same numbers, up to rounding."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def _in_all(pairs: Pairs, holds: Callable[[Tensor, Tensor], bool]) -> bool:
    return all(holds(expected, found) for expected, found in pairs)


# ---- another shape -----------------------------------------------------------------------------------------------


def _axes_of_one(expected: Tensor, found: Tensor) -> bool:
    return equal(expected.squeeze(), found.squeeze())


def _flattened(expected: Tensor, found: Tensor) -> bool:
    return equal(expected.flatten(), found.flatten())


def _reordered(expected: Tensor, found: Tensor) -> bool:
    return expected.ndim == found.ndim and any(
        equal(expected.permute(order), found) for order in permutations(range(expected.ndim))
    )


def _broadcast(expected: Tensor, found: Tensor) -> bool:
    """A larger result of which every axis has a size of the expected one: two tensors met along different axes."""
    return found.numel() > expected.numel() > 1 and set(found.shape) <= {1, *expected.shape}


def _added_up(expected: Tensor, found: Tensor) -> bool:
    return expected.ndim > found.ndim and any(
        equal(expected.sum(dim=axes), found) for axes in _axes_without(expected.ndim, found.ndim)
    )


def _averaged(expected: Tensor, found: Tensor) -> bool:
    return expected.ndim > found.ndim and any(
        equal(expected.mean(dim=axes), found) for axes in _axes_without(expected.ndim, found.ndim)
    )


def _axes_without(expected: int, found: int) -> Iterator[tuple[int, ...]]:
    """Each choice of axes that have to go until only as many as found are left."""
    return combinations(range(expected), expected - found)


SHAPES = [
    (_axes_of_one, "the numbers are right, but an axis of length 1 is missing or too many"),
    (_reordered, "the numbers are right, but the axes are in another order"),
    (_flattened, "the numbers are right and in order, but they are cut into other axes"),
    (_added_up, "the numbers that are expected have been added up"),
    (_averaged, "this is the mean of the numbers that are expected: return each of them"),
    (
        _broadcast,
        "did two tensors meet along different axes and broadcast? Look for a missing [:, None] or keepdim=True",
    ),
]

# ---- the same shape ----------------------------------------------------------------------------------------------


def _changed(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], bool]:
    return lambda expected, found: equal(change(expected), found)


CHANGES: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (lambda x: -x, "the sign is the other way round"),
    (lambda x: 1 - x, "this is 1 minus the expected result (in a mask: True where False belongs, and False for True)"),
    (lambda x: 1 / x, "this is 1 divided by the expected result"),
    (lambda x: x + 1, "it is 1 too large everywhere"),
    (lambda x: x - 1, "it is 1 too small everywhere"),
    (lambda x: x.square(), "this is the square of the expected result"),
    (lambda x: x.abs().sqrt(), "this is the square root of the expected result"),
    (lambda x: x.exp(), "this is exp of the expected result: is a logarithm missing?"),
    (lambda x: x.log(), "this is the logarithm of the expected result"),
    (lambda x: x / math.log(2), "it is 1 / ln 2 times the expected result: are bits and nats mixed up?"),
    (lambda x: x * math.log(2), "it is ln 2 times the expected result: are bits and nats mixed up?"),
    (lambda x: x.softmax(dim=-1) if x.ndim else x, "this is one softmax too many"),
    (lambda x: x.log_softmax(dim=-1) if x.ndim else x, "this is one log_softmax too many"),
    (lambda x: x.sigmoid(), "this is one sigmoid too many"),
    (lambda x: x.clamp(min=0), "negative numbers have become 0"),
    (lambda x: x.abs(), "the signs are lost"),
]


def _turned(pairs: Pairs) -> str:
    """Axes exchanged, reversed or shifted, where the shape does not show it."""
    for axis in range(max(expected.ndim for expected, _ in pairs)):
        if _in_all(pairs, partial(_reversed, axis=axis)):
            return f"the numbers are right, but in reverse order along axis {axis}"
        for step, words in ((1, "later"), (-1, "earlier")):
            if _in_all(pairs, partial(_shifted, axis=axis, step=step)):
                return f"the numbers are right, but stand one place {words} along axis {axis}"
    square = [(e, f) for e, f in pairs if e.ndim > 1]
    if len(square) == len(pairs) and _in_all(pairs, lambda e, f: equal(e.mT, f)):
        return "the numbers are right, but the last two axes are exchanged"
    return ""


def _reversed(expected: Tensor, found: Tensor, *, axis: int) -> bool:
    return axis < expected.ndim and equal(expected.flip(axis), found)


def _shifted(expected: Tensor, found: Tensor, *, axis: int, step: int) -> bool:
    if axis >= expected.ndim or expected.shape[axis] < 3:
        return False
    count = expected.shape[axis] - 1
    early, late = (expected, found) if step == 1 else (found, expected)
    overlap = early.narrow(axis, 0, count), late.narrow(axis, 1, count)
    return equal(*overlap) and overlap[0].std().item() > 0


def _in_other_places(pairs: Pairs) -> str:
    """Where the same numbers stand elsewhere; there have to be enough different ones for this to be no accident."""
    if not any(expected.unique().numel() > MANY for expected, _ in pairs):
        return ""
    if _in_all(pairs, lambda e, f: equal(e.flatten().sort().values, f.flatten().sort().values)):
        return "the numbers are right, but in other places: is an axis cut, moved or merged in another order?"
    return ""


def _normalized(pairs: Pairs) -> str:
    """Where the expected rows are probabilities: along which axis, if any, the found ones sum to 1."""
    pairs = [(expected, found) for expected, found in pairs if expected.ndim]
    if pairs and _in_all(pairs, lambda e, f: _sums_to_1(e, -1)):
        if _in_all(pairs, lambda e, f: equal(_over_sum(f), e)):
            return "these are right but for their sums, which are not 1: block before the softmax, not after it"
        if _in_all(pairs, lambda e, f: equal(f.softmax(dim=-1), e)):
            return "these are the scores: the softmax is missing"
        for axis in range(-2, -max(e.ndim for e, _ in pairs) - 1, -1):
            if _in_all(pairs, partial(_sums_along, axis=axis)):
                return f"your numbers sum to 1 along axis {axis}; expected along the last one, −1"
        if not _in_all(pairs, lambda e, f: _sums_to_1(f, -1)):
            return "expected numbers that sum to 1 along the last axis; yours do not"
    elif pairs and _in_all(pairs, _rows_in_proportion):
        return "each row is a multiple of the expected one: are there weights that do not sum to 1?"
    return ""


def _sums_to_1(x: Tensor, axis: int) -> bool:
    return bool((x >= 0).all()) and equal(x.sum(dim=axis), torch.ones_like(x.sum(dim=axis)))


def _sums_along(expected: Tensor, found: Tensor, *, axis: int) -> bool:
    return expected.ndim >= -axis and _sums_to_1(found, axis)


def _over_sum(x: Tensor) -> Tensor:
    return x / x.sum(dim=-1, keepdim=True)


def _rows_in_proportion(expected: Tensor, found: Tensor) -> bool:
    """Whether rows of two or more numbers point in the same direction."""
    if expected.shape[-1] < 2 or not found.isfinite().all() or not expected.isfinite().all():
        return False
    return equal(expected * (found * expected).sum(-1, keepdim=True), found * expected.square().sum(-1, keepdim=True))


def _scaled(pairs: Pairs, sizes: Sizes) -> str:
    """A factor that is the same everywhere in a case, and called by a size of its arguments or by a plain number."""
    factors = [_factor(*pair) for pair in pairs]
    if any(factor is None for factor in factors):
        return ""
    for name, values in _named(sizes):
        if all(math.isclose(f, v, rel_tol=1e-3) for f, v in zip(factors, values, strict=True) if f is not None):
            return f"it is {name} times the expected result"
    return ""


def _factor(expected: Tensor, found: Tensor) -> float | None:
    """The number by which the expected result would have to be multiplied; None where there isn't any."""
    largest = expected.abs().argmax() if expected.numel() else None
    if largest is None or not found.isfinite().all() or not expected.isfinite().all():
        return None
    factor = (found.flatten()[largest] / expected.flatten()[largest]).item()
    return factor if math.isfinite(factor) and equal(expected * factor, found) else None


def _named(sizes: Sizes) -> Iterator[tuple[str, list[float]]]:
    for number, name in ((2.0, "2"), (0.5, "½"), (100.0, "100"), (0.01, "1/100")):
        yield name, [number] * len(sizes)
    for name in sizes[0]:
        values = [known.get(name, math.nan) for known in sizes]
        if all(value > 0 for value in values):
            yield f"({name})", values
            yield f"1/({name})", [1 / value for value in values]
            yield f"√({name})", [math.sqrt(value) for value in values]
            yield f"1/√({name})", [1 / math.sqrt(value) for value in values]


# ---- what is compared --------------------------------------------------------------------------------------------


def tensors_of(value: Any) -> list[Tensor] | None:
    """The real tensors and numbers in a result, in double precision; None where there is anything else in it."""
    if isinstance(value, Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
        return None if value.is_complex() or value.is_nested else [value.detach().double()]
    if isinstance(value, bool | int | float):
        return [torch.tensor(float(value), dtype=torch.float64)]
    if isinstance(value, tuple | list):
        parts = [tensors_of(part) for part in value]
        return None if any(part is None for part in parts) else [tensor for part in parts for tensor in part or ()]
    return None


def sizes_of(names: Sequence[str], case: Sequence[Any]) -> dict[str, float]:
    """The names of the sizes of a case: of arguments that are numbers, and of the axes of tensors."""
    found: dict[str, float] = {}
    for name, value in zip(names, case, strict=True):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
        elif isinstance(value, Tensor):
            found |= {f"{name}.shape[{axis}]": float(size) for axis, size in enumerate(value.shape)}
            found |= {f"{name}.shape[{axis - value.ndim}]": float(size) for axis, size in enumerate(value.shape)}
            if value.dtype == torch.bool:
                found[f"{name}.sum()"] = float(value.sum())
        elif isinstance(value, list | tuple):
            found[f"len({name})"] = float(len(value))
    return found
