"""The first exercise of lesson 05: layer normalization."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn

# ---- layer normalization -----------------------------------------------------------------------------------------


def _vectors_weight_and_bias() -> list[tuple[Tensor, Tensor, Tensor, float]]:
    # as many sentences as positions and features, so that a wrong axis gives a wrong number and no error about shapes
    def inputs(size: int, epsilon: float, seed: int) -> tuple[Tensor, Tensor, Tensor, float]:
        x = 1 + randn(size, size, size, seed=seed)
        x[0, 0] = 0.5  # a vector of equal entries has variance 0
        return x, randn(size, seed=seed + 1), randn(size, seed=seed + 2), epsilon

    far = 5000 + torch.tensor([[[-3.0, -1.0, 1.0, 3.0]]])  # float32 holds these and their mean, but not their squares
    return [inputs(3, 0.1, 1), inputs(4, 1e-3, 4), (far, *inputs(4, 1e-5, 16)[1:])]


@exercise(
    cases=_vectors_weight_and_bias,
    hints=[
        "Each vector is normalized on its own: means over the last axis, which `keepdim=True` keeps for broadcasting.",
        "The variance is the mean of the squared deviations: `x.var(dim=-1, keepdim=True, correction=0)`. ε is "
        "added to it under the root.",
    ],
)
def normalize(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    return weight * centered / (variance + epsilon).sqrt() + bias


def _over(*dims: int) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    """Mean and variance over these axes."""

    def wrong(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
        return weight * (x - mean) / (variance + epsilon).sqrt() + bias

    return wrong


def _divided(by: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    """What is centered is divided `by` something made of x and ε."""
    return lambda x, weight, bias, epsilon: weight * (x - x.mean(dim=-1, keepdim=True)) / by(x, epsilon) + bias


normalize.mistakes(
    {
        "this is batch normalization: each feature over all sentences and positions; here each vector is alone": (
            _over(0, 1)
        ),
        "mean and variance run over the batch: a sentence would change with its neighbors; take the last axis": (
            _over(0)
        ),
        "mean and variance run over the positions, so that a word would see later ones; take the last axis": _over(1),
        "mean and variance are a whole sentence's: each position has its own, over its features alone": _over(1, 2),
        "one mean and one variance serve the whole batch: each vector has its own, over its features alone": (
            _over(0, 1, 2)
        ),
        "the means lost their axis and line up with (time, d_model): `keepdim=True`": (
            lambda x, weight, bias, epsilon: (
                weight * (x - x.mean(dim=-1)) / (x.var(dim=-1, correction=0) + epsilon).sqrt() + bias
            )
        ),
        "the variance divides by d_model − 1, as `var` and `std` do unless told `correction=0`": (
            _divided(lambda x, epsilon: (x.var(dim=-1, keepdim=True) + epsilon).sqrt())
        ),
        "E[x²] − E[x]² loses the variance to rounding where the mean is large: subtract the mean before you square": (
            _divided(lambda x, epsilon: (x.square().mean(-1, True) - x.mean(-1, True).square() + epsilon).sqrt())
        ),
        "ε stands outside the root: it is added to the variance, not to the standard deviation": (
            _divided(lambda x, epsilon: x.std(dim=-1, keepdim=True, correction=0) + epsilon)
        ),
        "two things about the root: `std` divides by d_model − 1 unless told `correction=0`, and ε belongs under it": (
            _divided(lambda x, epsilon: x.std(dim=-1, keepdim=True) + epsilon)
        ),
        "ε is missing: a vector of equal entries becomes 0/0": (
            lambda x, weight, bias, epsilon: normalize.reference(x, weight, bias, 0.0)
        ),
        "the root is missing: divided by its variance, a vector gets variance 1/σ²": (
            _divided(lambda x, epsilon: x.var(dim=-1, keepdim=True, correction=0) + epsilon)
        ),
        "the weight comes first, and normalizing undoes most of it: multiply what is normalized": (
            lambda x, weight, bias, epsilon: normalize.reference(weight * x, torch.ones_like(weight), bias, epsilon)
        ),
        "the bias is multiplied by the weight: add it last": (
            lambda x, weight, bias, epsilon: normalize.reference(x, weight, weight * bias, epsilon)
        ),
        "right so far: each vector is normalized; its weight and its bias are missing": (
            lambda x, weight, bias, epsilon: normalize.reference(x, torch.ones_like(weight), 0 * bias, epsilon)
        ),
        "the mean is still there: this is RMS normalization, which divides and does not center": (
            lambda x, weight, bias, epsilon: (
                weight * x / (x.square().mean(dim=-1, keepdim=True) + epsilon).sqrt() + bias
            )
        ),
    }
)
