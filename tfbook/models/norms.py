"""Norms: the residual stream is rescaled to a fixed size, each vector or each coordinate. Shapes: d_model."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.parts import Part


def layer_norm(
    x: Float[Tensor, "*rows d_model"],
    weight: Float[Tensor, " d_model"],
    bias: Float[Tensor, " d_model"],
    eps: float = 1e-5,
) -> Float[Tensor, "*rows d_model"]:
    """weight · (x − mean) / √(variance + ε) + bias; mean and variance of each vector (Ba et al., 2016, eq. 4)."""
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    return weight * centered / (variance + eps).sqrt() + bias


class LayerNorm(Part):
    """`layer_norm` with a trained scale and bias, computed by PyTorch's fused version of the same formula."""

    def __init__(self, d_model: int, *, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Normalizes each vector to mean 0 and variance 1, then applies a scale and a bias per coordinate."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def parameter_count(self) -> int:
        """2 d_model."""
        return 2 * len(self.weight)

    def flops(self, time: int) -> int:
        """0: no matrix products."""
        return 0


class RMSNorm(Part):
    """weight · x / √(mean(x²) + ε): a layer norm without the mean and the bias (Zhang & Sennrich, 2019, eq. 4)."""

    def __init__(self, d_model: int, *, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Normalizes each vector to mean square 1, then applies a scale per coordinate."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def parameter_count(self) -> int:
        """d_model."""
        return len(self.weight)

    def flops(self, time: int) -> int:
        """0: no matrix products."""
        return 0


class BatchNorm(Part):
    """weight · (x − mean) / √(variance + ε) + bias, each coordinate's mean and variance over all vectors of a batch.

    In eval mode they are running means of training (Ioffe & Szegedy, 2015, algorithm 2).
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5):
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model, eps=eps)

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Vectors of a batch depend on one another while the model trains, and no longer in eval mode."""
        return self.norm(x.flatten(0, -2)).view_as(x)

    def parameter_count(self) -> int:
        """2 d_model; the running means are not trained."""
        return 2 * self.norm.num_features

    def flops(self, time: int) -> int:
        """0: no matrix products."""
        return 0
