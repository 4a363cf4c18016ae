"""Whether training can learn through an answer: its gradients compared with those of the solution."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.course.comparing import told_apart
from tfbook.course.trial import default_settings, functions_as_they_are

Case = Sequence[Any]
Gradients = dict[str, Tensor | None] | str
JITTER = 1e-4  # by which arguments are moved to see whether a gradient jumps there
NONE = (
    "the result is right but carries no gradient: training could not learn through it "
    "(is there a .detach(), .item(), no_grad or torch.tensor(…)?)"
)
FAILS = "the result is right, but training could not learn through it, since a gradient asked for raises {}"
LOST = "the result is right, but no gradient reaches {}: training could not learn through it (is there a .detach()?)"
WRONG = "the result is right, but its gradient with respect to {} is not: at index {} it is {}; expected {}"


@dataclass(frozen=True)
class Slope:
    """The gradient with respect to one tensor, and how much of it an answer has to agree with."""

    value: Tensor
    fair: Tensor  # where it is finite and does not jump
    noise: float  # differences below this one come from rounding
    needed: bool  # whether it is anything but 0

    def agrees(self, other: Tensor, tolerance: float) -> Tensor:
        """Where another gradient is the same, sums in another order included."""
        return torch.isclose(other.to(self.value.dtype), self.value, rtol=tolerance, atol=tolerance * self.noise)


def slopes(function: Callable[..., Any], case: Case, names: Sequence[str]) -> dict[str, Slope]:
    """The gradients of a solution's first real-valued result; empty where it has none.

    `names` has an entry for each argument, which is empty where its gradient does not matter.
    The result is summed with random weights. At a tie or a kink, two right answers may have different gradients, so
    what counts are entries that hardly change when the arguments move a little to either side.
    """
    found = _gradients(function, case, names)
    if isinstance(found, str):
        return {}
    moved = [_nearby(function, case, names, step) for step in (JITTER, -JITTER)]
    sizes = [_size(value) for value in found.values() if value is not None]
    result = {}
    for name, value in found.items():
        if value is not None:
            noise = 0.1 * _size(value) + 1e-3 * max(sizes) + 1e-7
            slope = Slope(value, value.isfinite(), noise, needed=_size(value) > 1e-5 * max(sizes))
            for other in moved:
                near = other.get(name)
                slope.fair.logical_and_(torch.tensor(False) if near is None else slope.agrees(near, 5e-2))
            result[name] = slope
    return result


def _size(gradient: Tensor) -> float:
    """The largest number in it that is finite."""
    finite = gradient[gradient.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _nearby(function: Callable[..., Any], case: Case, names: Sequence[str], step: float) -> dict[str, Tensor | None]:
    """The gradients where the arguments are moved a little; none where the solution does not allow that."""
    try:
        found = _gradients(function, _moved(case, step), names)
    except Exception:  # such as a probability above 1
        return {}
    return {} if isinstance(found, str) else found


def is_real(result: Any) -> bool:
    """Whether there is a real-valued tensor in a result, through which one could train."""
    return any(True for _ in _tensors(result, ""))


def answer_slopes(function: Callable[..., Any], case: Case, names: Sequence[str]) -> Gradients:
    """An answer's gradients by name, or the sentence that says why there are none. Never raises an `Exception`."""
    try:
        return _gradients(function, case, names)
    except Exception as error:  # such as numpy() of a tensor that requires a gradient
        return FAILS.format(f"{type(error).__name__}: {error}".partition("\n")[0])


def gradient_difference(found: Gradients, expected: Mapping[str, Slope]) -> str:
    """Says how an answer's gradients differ from the solution's; empty when they don't."""
    if isinstance(found, str):
        tolerated = found == NONE and not any(slope.needed for slope in expected.values())
        return "" if tolerated else found
    for name, slope in expected.items():
        value = found.get(name)
        if value is None and slope.needed:
            return LOST.format(name)
        if value is not None and (wrong := _wrong(slope, value)).any():
            where = tuple(torch.nonzero(wrong)[0].tolist())
            return WRONG.format(name, where, *told_apart(value[where].item(), slope.value[where].item()))
    return ""


def _wrong(slope: Slope, value: Tensor) -> Tensor:
    blocked = value.isnan() & (slope.value == 0)  # such as a row of scores that is blocked as a whole
    return ~slope.agrees(value, 1e-2) & slope.fair & ~blocked


def _gradients(function: Callable[..., Any], case: Case, names: Sequence[str]) -> Gradients:
    arguments = copy.deepcopy(case)
    tensors = {
        part: tensor.requires_grad_()
        for name, argument in zip(names, arguments, strict=True)
        if name
        for part, tensor in _tensors(argument, name)
    }
    with default_settings(), functions_as_they_are():
        result = next((tensor for _, tensor in _tensors(function(*arguments), "")), None)
    if result is None or not result.requires_grad:
        return NONE
    finite = result.detach().isfinite()
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(0)).to(result)  # the same in each
    gradients = torch.autograd.grad(result, [*tensors.values()], weights * finite, allow_unused=True)
    return {
        name: gradient if gradient is None else _within(tensor.detach(), gradient)
        for (name, tensor), gradient in zip(tensors.items(), gradients, strict=True)
    }


def _within(point: Tensor, gradient: Tensor) -> Tensor:
    """The part of a gradient that counts: where rows are probabilities, they can only move so that they sum to 1."""
    if point.ndim == 0 or point.numel() == 0:
        return gradient
    probabilities = (point > -0.01).all() and (point.sum(dim=-1) - 1).abs().max() < 0.01
    return gradient - gradient.mean(dim=-1, keepdim=True) if probabilities else gradient


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every real-valued tensor in an argument or result: in tuples, in modules, and in what a `partial` holds."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield repr(name), value
    elif isinstance(value, nn.Module):
        yield from ((repr(f"{name}.{part}"), tensor) for part, tensor in value.named_parameters())
    elif isinstance(value, partial):
        yield from _tensors((*value.args, *value.keywords.values()), name)
    elif isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from _tensors(part, f"{name}[{i}]")


def _moved(case: Case, step: float) -> Case:
    """The case with each real number moved by a random multiple of `step`, relative to its size where it is large."""
    moved, generator = copy.deepcopy(case), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, tensor in _tensors(moved, ""):
            noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            change = step * noise * tensor.abs().clamp(min=1)
            tensor.data = torch.where(tensor.isfinite(), tensor + change, tensor)
    return moved
