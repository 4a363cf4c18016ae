"""Compares a result with the expected one, in words, and shows a value in one line."""

from __future__ import annotations

import inspect
import math
import reprlib
import textwrap
from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import torch

from tfbook import runtime


def same(expected: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether there are as many results as expected, and each is as expected."""
    return len(expected) == len(results) and not any(map(difference, expected, results))


def difference(expected: Any, result: Any) -> str:
    """Says what distinguishes `result` from `expected`; empty when nothing does. A list may stand for a tuple."""
    if isinstance(expected, tuple) and type(result) is list:  # here, not inside: a tuple there may be a key
        result = tuple(result)
    try:
        return _described(expected, result)
    except Exception as error:  # such as the comparison with an object that refuses to be compared
        return f"the result, a {type(result).__name__}, can't be compared: it raises {type(error).__name__}"


def _described(expected: Any, result: Any) -> str:
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(expected, result)
    if isinstance(expected, float):
        return _number_difference(expected, result)
    if not _counts_as(result, type(expected)):
        return f"the result is {type(result).__name__}; expected {type(expected).__name__}"
    if isinstance(expected, tuple | list):
        return _items_difference(expected, result)
    return "" if result == expected else f"the result is {result!r}; expected {expected!r}"


def _counts_as(result: Any, kind: type) -> bool:
    """Whether a result may stand for one of this type.

    A `Counter` for a dict, an integer of NumPy for an int, a tensor that is True or False for a bool.
    """
    if kind is bool and isinstance(result, torch.Tensor):
        return result.dtype == torch.bool and result.numel() == 1
    if kind is int:
        return isinstance(result, Integral) and not isinstance(result, bool)
    return isinstance(result, kind)


def _number_difference(expected: float, result: Any) -> str:
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        result = result.item()
    if isinstance(result, bool) or not isinstance(result, Real):
        return f"the result is {type(result).__name__}; expected a number"
    if math.isclose(result, expected, rel_tol=1e-5, abs_tol=1e-5):
        return ""
    return "the result is {}; expected {}".format(*told_apart(float(result), expected))


def _items_difference(expected: Sequence[Any], result: Sequence[Any]) -> str:
    if len(result) != len(expected):
        return f"the result has {len(result)} items; expected {len(expected)}"
    if any(isinstance(e, float) and _on_record(r) for e, r in zip(expected, result, strict=True)):
        return "the result holds tensors that keep the record of their computation; expected plain numbers"
    differences = [_described(e, r) for e, r in zip(expected, result, strict=True)]
    if not any(differences):
        return ""
    first, found = next((i, found) for i, found in enumerate(differences) if found)
    if _reordered(expected, result):
        return f"the items of the result are right, but in another order, from item {first} on"
    return f"item {first}: {found}"


def _on_record(item: Any) -> bool:
    """Whether it is a tensor that, kept in a list, keeps all that it was computed from."""
    return isinstance(item, torch.Tensor) and item.requires_grad


def _reordered(expected: Sequence[Any], result: Sequence[Any]) -> bool:
    """Whether the result holds the expected items in another order; they have to be of one kind."""
    if any(type(item) is not type(expected[0]) for item in expected):
        return False
    left = list(result)
    for item in expected:
        place = next((i for i, other in enumerate(left) if not _described(item, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _tensor_difference(expected: torch.Tensor, result: Any) -> str:
    if not isinstance(result, torch.Tensor):
        return f"the result is {type(result).__name__}; expected a torch.Tensor"
    if result.is_nested:
        return "the result is a nested tensor; expected one of a single shape"
    if result.shape != expected.shape:
        return f"the result has shape {tuple(result.shape)}; expected {tuple(expected.shape)}"
    if result.device.type not in (expected.device.type, runtime.device().type):
        return f"the result has device {result.device}; expected {expected.device}"
    if result.layout != expected.layout:
        return f"the result has layout {result.layout}; expected {expected.layout}"
    if _kind(result) != _kind(expected):
        return f"the result has dtype {result.dtype}; expected {expected.dtype}"
    result = result.to(expected)
    close = torch.isclose(result, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    if close.all():
        return ""
    if not result.isfinite().all() and expected.isfinite().all():
        return "the result holds NaN or infinity"
    where = tuple(torch.nonzero(~close)[0].tolist())
    shown = told_apart(result[where].item(), expected[where].item())
    return "at index {} the result is {}; expected {}".format(where, *shown)


def _kind(tensor: torch.Tensor) -> str:
    """Whether it holds real numbers, integers or truth values; their precision is nobody's business."""
    if tensor.is_floating_point():
        return "real"
    integers = not tensor.is_complex() and not tensor.is_quantized and tensor.dtype != torch.bool
    return "integer" if integers else str(tensor.dtype)


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Both numbers, with four digits or as many as it takes to see that they differ."""
    for digits in range(4, 18):
        shown = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if shown[0] != shown[1]:
            break
    return shown


def shown_apart(result: Any, expected: Any) -> tuple[str, str]:
    """Both values, a line each, with the digits and from the entry on that it takes to see how they differ."""
    try:
        return _apart(result, expected)
    except Exception:  # such as a comparison that raises
        return shortened(result), shortened(expected)


def _apart(result: Any, expected: Any) -> tuple[str, str]:
    start = 0
    if isinstance(expected, torch.Tensor) and isinstance(result, torch.Tensor) and result.shape == expected.shape:
        off = ~torch.isclose(result.to(expected), expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        start = max(0, int(off.flatten().int().argmax()) - 7) if off.any() else 0
    elif isinstance(expected, list | tuple | str) and isinstance(result, type(expected)):
        start = next((i for i, pair in enumerate(zip(result, expected, strict=False)) if _described(*pair[::-1])), 0)
    for digits in range(4, 18):
        shown = _in_short(result, digits, start), _in_short(expected, digits, start)
        if shown[0] != shown[1]:
            break
    return shown


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def shortened(value: Any) -> str:
    """A value in one line of at most about 100 characters; its type where it cannot be shown."""
    try:
        return _in_short(value)
    except Exception:  # such as a number of more digits than Python prints
        return f"a value of type {type(value).__name__}"


def _in_short(value: Any, digits: int = 4, start: int = 0) -> str:
    """A value from entry `start` on, real numbers with so many digits."""
    if isinstance(value, torch.Tensor) and not value.is_nested and value.device.type != "meta":
        entries = value.detach().to_dense().flatten()[start : start + 8].tolist()
        numbers = ", ".join(f"{entry:.{digits}g}" if isinstance(entry, float) else str(entry) for entry in entries)
        before, more = "…, " if start else "", ", …" if value.numel() > start + len(entries) else ""
        return f"tensor of shape {tuple(value.shape)}: {before}{numbers}{more}"
    if isinstance(value, list | tuple) and any(isinstance(each, torch.Tensor) for each in value):
        return "; ".join(map(_in_short, value))
    if isinstance(value, partial):
        return _in_short(value.func)
    if inspect.isroutine(value):
        name = value.__name__.strip("_")
        return "a function" if name == "<lambda>" else f"a function, {name}"
    if isinstance(value, list | tuple) and any(inspect.isroutine(each) for each in value):
        return "; ".join(map(_in_short, value))
    from_there = value[start:] if start > 3 and isinstance(value, list | tuple | str) else value
    return ("" if from_there is value else "… ") + textwrap.shorten(_SHORT.repr(from_there), 100, placeholder=" …")
