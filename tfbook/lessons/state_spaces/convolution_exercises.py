"""The exercises of lesson 17 on convolutions: how far a stack sees, and a filter that must not hear the future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn

# ---- how far a stack sees ----------------------------------------------------------------------------------------


def _stacks() -> list[tuple[list[int], list[int], list[int]]]:
    """Nothing; one layer; equal layers; dilations that double; strides in every place; all of it together."""
    return [
        ([], [], []),
        ([5], [1], [1]),
        ([3, 3], [1, 1], [1, 1]),
        ([2] * 10, [2**layer for layer in range(10)], [1] * 10),
        ([3], [4], [7]),
        ([3, 3, 2], [1, 1, 1], [2, 2, 2]),
        ([4, 2, 1, 3], [2, 5, 9, 3], [3, 1, 2, 4]),
    ]


@exercise(
    cases=_stacks,
    hints=[
        "Begin with one position, the output itself. A filter of k inputs adds k − 1 steps, not k.",
        "How long is a step? With dilation d it is d positions of the layer's own input.",
        "A position of a later layer's input lies as far from the next one as all strides *before* it say: keep their "
        "product in a variable, use it, and multiply it by the layer's own stride afterwards.",
    ],
    differentiable=False,
)
def receptive_field(kernels: Sequence[int], dilations: Sequence[int], strides: Sequence[int]) -> int:
    seen = step = 1
    for k, d, s in zip(kernels, dilations, strides, strict=True):
        seen += (k - 1) * d * step
        step *= s
    return seen


def _counted(
    kernels: Sequence[int],
    dilations: Sequence[int],
    strides: Sequence[int],
    *,
    start: int = 1,
    less: int = 1,
    dilated: bool = True,
    strided: str = "before",
) -> int:
    """The formula with a mistake of some kind."""
    seen, step = start, 1
    for k, d, s in zip(kernels, dilations, strides, strict=True):
        step *= s if strided == "with its own" else 1
        seen += (k - less) * (d if dilated else 1) * (step if strided != "never" else 1)
        step *= s if strided == "before" else 1
    return seen


def _product(kernels: Sequence[int], dilations: Sequence[int], strides: Sequence[int]) -> int:
    """Filters that are multiplied."""
    seen = 1
    for k, d in zip(kernels, dilations, strict=True):
        seen *= (k - 1) * d + 1
    return seen


receptive_field.mistakes(
    {
        "one too few: the output's own position counts, too, so a stack without layers sees 1": partial(
            _counted, start=0
        ),
        "a filter of k inputs spans k − 1 steps between them; yours adds k": partial(_counted, less=0),
        "dilations are not used: the inputs of a filter lie d positions apart": partial(_counted, dilated=False),
        "strides are not used: after a stride of s, one step of the next layer is s steps of the input": partial(
            _counted, strided="never"
        ),
        "a stride moves the *next* layer's inputs apart; a layer's own stride does not widen what it sees": partial(
            _counted, strided="with its own"
        ),
        "reaches add up, they do not multiply: 3 and 3 see 5, not 9": _product,
        "this is the reach of the last layer alone: what its inputs have seen comes on top": (
            lambda kernels, dilations, strides: (kernels[-1] - 1) * dilations[-1] + 1 if kernels else 1
        ),
    }
)

# ---- a filter that must not hear the future ----------------------------------------------------------------------


def _sounds() -> list[tuple[Tensor, Tensor, int]]:
    """Filters of one and more inputs, near and far ones, sounds longer and shorter than the reach."""
    sizes = [(9, 2, 3, 2, 1), (12, 1, 1, 2, 4), (11, 3, 2, 3, 2), (4, 2, 2, 3, 5), (7, 2, 3, 1, 3), (1, 2, 2, 2, 1)]
    return [
        (randn(time, d_in, seed=i), randn(kernel, d_in, d_out, seed=i + 20), dilation)
        for i, (time, d_in, d_out, kernel, dilation) in enumerate(sizes)
    ]


@exercise(
    cases=_sounds,
    hints=[
        "What does output 0 depend on? Only on x[0], so everything in front of it must be zeros, and nothing is added "
        "behind. How many zeros? As many as the earliest input lies back.",
        "Dilation moves the *inputs* of one output apart. Which part of the slice moves the *outputs* apart?",
        "With `reach = (kernel − 1) · dilation` zeros in front, input i of output t is `padded[t + i · dilation]`: a "
        "slice of `time` rows that begins at i · dilation, with steps of 1.",
    ],
)
def dilated_convolution(
    x: Float[Tensor, "time d_in"], w: Float[Tensor, "kernel d_in d_out"], dilation: int
) -> Float[Tensor, "time d_out"]:
    kernel, time = len(w), len(x)
    padded = F.pad(x, (0, 0, (kernel - 1) * dilation, 0))
    inputs = [padded[i * dilation : i * dilation + time] for i in range(kernel)]
    return torch.stack([rows @ weight for rows, weight in zip(inputs, w, strict=True)]).sum(dim=0)


@dilated_convolution.given
def _(x: Tensor, w: Tensor, dilation: int) -> Tensor:
    kernel, time = len(w), len(x)
    reach = (kernel - 1) * dilation
    padded = F.pad(x, (0, 0, reach // 2, reach - reach // 2))
    inputs = [padded[i * dilation : i * dilation + time] for i in range(kernel)]
    return torch.stack([rows @ weight for rows, weight in zip(inputs, w, strict=True)]).sum(dim=0)


def _convolved(
    x: Tensor,
    w: Tensor,
    dilation: int,
    *,
    front: Callable[[int], int] = lambda reach: reach,
    order: int = 1,
    apart: int | None = None,
) -> Tensor:
    """The same with other zeros in front, the filter reversed, or another distance between inputs."""
    apart = dilation if apart is None else apart
    reach, time = (len(w) - 1) * apart, len(x)
    zeros = front(reach)
    padded = F.pad(x, (0, 0, zeros, reach + 1 - zeros))
    weights = w.flip(0) if order < 0 else w
    return sum((padded[i * apart : i * apart + time] @ weight for i, weight in enumerate(weights)), torch.zeros(()))


def _strided(x: Tensor, w: Tensor, dilation: int) -> Tensor:
    """A stride in place of the dilation: every d-th output, of neighboring inputs."""
    padded = F.pad(x, (0, 0, len(w) - 1, 0))
    whole = torch.stack([padded[i : i + len(x)] @ weight for i, weight in enumerate(w)]).sum(dim=0)
    return whole[::dilation]


dilated_convolution.mistakes(
    {
        "it hears the future: zeros on both sides put half of the filter behind its output. All zeros go in front": (
            partial(_convolved, front=lambda reach: (reach + 1) // 2)
        ),
        "it reads only the present and the future: the zeros belong in front of the sound": (
            partial(_convolved, front=lambda reach: 0)
        ),
        "one sample late: output t may read x[t] itself": partial(_convolved, front=lambda reach: reach + 1),
        "the filter is reversed: its last weight belongs to x[t], its first to the earliest input": (
            partial(_convolved, order=-1)
        ),
        "dilation is not used: the inputs of one output lie `dilation` apart": partial(_convolved, apart=1),
        "this is a stride, not a dilation: outputs are missing. Inputs move apart, outputs stay at every position": (
            _strided
        ),
        "one zero too many between inputs: with dilation 1 they are neighbors, so they lie `dilation` apart": (
            lambda x, w, dilation: _convolved(x, w, dilation + 1)
        ),
    }
)
