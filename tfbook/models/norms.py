"""Norms. Shapes: d_model."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def layer_norm(
    x: Float[Tensor, "*rows d_model"],
    gain: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    epsilon: float = 1e-5,
) -> Float[Tensor, "*rows d_model"]:
    """gain · (x − mean) / √(variance + ε) + shift; mean and variance are each vector's own (Ba et al., 2016, eq. 4)."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return gain * centred / (variance + epsilon).sqrt() + shift


class LayerNorm(nn.Module):
    """`layer_norm` with a trained gain and shift, computed by PyTorch's fused version of the same formula."""

    def __init__(self, d_model: int, *, epsilon: float = 1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Each vector gets mean 0 and variance 1, then a gain and a shift for each coordinate."""
        return F.layer_norm(x, self.gain.shape, self.gain, self.shift, self.epsilon)
