"""On which inputs an output of lesson 17's convolutions depends, measured by derivatives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.models.pixel_cnn import PixelCnn, PixelCnnConfig

Convolve = Callable[[Tensor, Tensor, int], Tensor]  # x (time, d_in), w (kernel, d_in, d_out), dilation


def stack_sight(convolve: Convolve, dilations: tuple[int, ...], time: int = 48, kernel: int = 2) -> list[int]:
    """How long ago, in samples, the inputs lie on which an output in the middle of a stack depends; negative: ahead.

    Each layer convolves with random weights, between which stands tanh.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(time, 4, generator=generator).requires_grad_()
    y: Tensor = x
    for dilation in dilations:
        y = torch.tanh(convolve(y, torch.randn(kernel, 4, 4, generator=generator) / 2, dilation))
    (gradient,) = torch.autograd.grad(y[time // 2].sum(), x)
    return sorted(time // 2 - place for place in gradient.abs().sum(dim=-1).nonzero().flatten().tolist())


def filter_paths(layers: int, kernel: int = 3, size: int = 5) -> Float[Tensor, "row column"]:
    """How many paths lead from each pixel to the middle one through so many layers: a derivative, with weights 1."""
    x = torch.ones(1, 1, size, size, requires_grad=True)
    y: Tensor = x
    for _ in range(layers):
        y = F.conv2d(y, torch.ones(1, 1, kernel, kernel), padding=kernel // 2)
    (paths,) = torch.autograd.grad(y[0, 0, size // 2, size // 2], x)
    return paths[0, 0]


def pixel_sight(layers: int, size: int, place: tuple[int, int], *, kernel: int = 3) -> Bool[Tensor, "row column"]:
    """The pixels on which the logits at `place` depend in a `PixelCnn` with random weights."""
    torch.manual_seed(0)
    model = PixelCnn(PixelCnnConfig(layers=layers, first_kernel=kernel, kernel=kernel)).double()
    x = torch.randn(1, size, size, model.config.d_model, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.from_vectors(x)[(0, *place)].square().sum(), x)
    return gradient[0].abs().sum(dim=-1) > 0
