"""Patches without attention: mixers of positions that take attention's place in the ViT's blocks.

`Vit(labels, mlp_mixer(config, d_tokens=64))` is an MLP-Mixer, `Vit(labels, res_mlp(config))` a ResMLP. Each knows the
number of positions, so it reads images of one size.

Shapes: batch, time (patches, row by row), d_model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.checks import check_dropout, check_positive
from tfbook.models.blocks import MakePart
from tfbook.models.config import as_part
from tfbook.models.feed_forward import FeedForward
from tfbook.models.vit import VitConfig
from tfbook.parts import Part

# ---- mixers ------------------------------------------------------------------------------------------------------


class TokenMlp(Part):
    """The feed-forward network of a block turned by 90°: W₂ GELU(W₁ xᵀ) for each channel (Tolstikhin et al., 2021).

    `time` is the number of positions, `d_tokens` the hidden width. Heads mean nothing to it.
    """

    def __init__(self, d_model: int, heads: int, *, time: int, d_tokens: int, dropout: float = 0.0):
        super().__init__()
        self.mlp = FeedForward(time, d_tokens, activation=F.gelu, dropout=dropout)
        self.d_model = d_model

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """Channels do not interact: all of them share the weights."""
        return self.mlp(x.mT).mT

    def parameter_count(self) -> int:
        """2 time · d_tokens + d_tokens + time."""
        return self.mlp.parameter_count()

    def flops(self, time: int, **context: Any) -> int:
        """4 time · d_tokens for each channel."""
        return self.mlp.flops(self.d_model)


class TokenLinear(Part):
    """W xᵀ + b for each channel: one matrix from all positions to all positions (Touvron et al., 2021, eq. 2)."""

    def __init__(self, d_model: int, heads: int, *, time: int, dropout: float = 0.0):
        super().__init__()
        check_dropout(dropout)
        self.W = nn.Linear(time, time)
        self.d_model = d_model

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """Attention's weights without queries and keys: the same for every image."""
        return self.W(x.mT).mT

    def parameter_count(self) -> int:
        """time² + time."""
        return self.W.weight.numel() + len(self.W.weight)

    def flops(self, time: int, **context: Any) -> int:
        """2 time² for each channel."""
        return 2 * self.W.weight.numel() * self.d_model


class DepthwiseConvolution(Part):
    """y_p = Σ_δ w_δ ⊙ x_{p+δ} + b over a `kernel` × `kernel` neighborhood: weights by channel and relative place alone.

    Positions are those of a grid with so many `columns`. Raises ValueError for an even kernel, which has no middle.
    """

    def __init__(self, d_model: int, heads: int, *, columns: int, kernel: int = 3, dropout: float = 0.0):
        super().__init__()
        check_dropout(dropout)
        check_positive(columns=columns, kernel=kernel)
        if kernel % 2 == 0:
            raise ValueError(f"kernel is {kernel}; expected an odd number")
        self.columns = columns
        self.convolution = nn.Conv2d(d_model, d_model, kernel, padding=kernel // 2, groups=d_model)

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """Channels do not interact. Raises ValueError when the positions do not fill whole rows."""
        if x.shape[1] % self.columns:
            raise ValueError(f"x holds {x.shape[1]} positions; expected whole rows of {self.columns}, no class token")
        grid = x.mT.unflatten(2, (-1, self.columns))
        return self.convolution(grid).flatten(2).mT

    def parameter_count(self) -> int:
        """kernel² + 1 for each channel."""
        return self.convolution.weight.numel() + len(self.convolution.weight)

    def flops(self, time: int, **context: Any) -> int:
        """2 kernel² d_model for each position."""
        return 2 * time * self.convolution.weight.numel()


class NoMixer(Part):
    """0: every position stays alone, so that the model is a bag of patches."""

    def __init__(self, d_model: int, heads: int, *, dropout: float = 0.0):
        super().__init__()
        check_dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """Nothing to add to the residual stream."""
        return torch.zeros_like(x)

    def parameter_count(self) -> int:
        """0."""
        return 0

    def flops(self, time: int, **context: Any) -> int:
        """0."""
        return 0


# ---- what ResMLP has instead of norms ----------------------------------------------------------------------------


class Affine(Part):
    """weight ⊙ x + bias: a layer norm without the normalization (Touvron et al., 2021, eq. 1)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Nothing depends on the other coordinates."""
        return torch.addcmul(self.bias, self.weight, x)

    def parameter_count(self) -> int:
        """2 d_model."""
        return 2 * len(self.weight)

    def flops(self, time: int) -> int:
        """0: no matrix products."""
        return 0


class LayerScaled(Part):
    """scale ⊙ part(x): a trained scale per channel, small at first, so that a block begins near the identity.

    (Touvron et al., 2021, "Going deeper with image transformers".) `part` is made as the block would make it.
    """

    def __init__(self, d_model: int, second: int, *, part: MakePart, dropout: float = 0.0, scale: float = 0.1):
        super().__init__()
        self.part = part(d_model, second, dropout=dropout)
        self.scale = nn.Parameter(torch.full((d_model,), scale))

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """The part's output, scaled."""
        return self.scale * self.part(x, **context)

    def parameter_count(self) -> int:
        """The part's, and d_model."""
        return self.part.parameter_count() + len(self.scale)

    def flops(self, time: int, **context: Any) -> int:
        """The part's."""
        return self.part.flops(time, **context)


# ---- models as a diff of the ViT ---------------------------------------------------------------------------------


def without_attention(config: VitConfig, mixer: MakePart) -> VitConfig:
    """The config with another mixer, which tells patches apart by their order: no class tokens, no positions."""
    return replace(config, tokens=0, position="none", mixer=mixer)


def mlp_mixer(config: VitConfig, *, d_tokens: int) -> VitConfig:
    """MLP-Mixer: attention becomes a `TokenMlp` (Tolstikhin et al., 2021)."""
    return without_attention(config, partial(TokenMlp, time=config.grid[0] * config.grid[1], d_tokens=d_tokens))


def res_mlp(config: VitConfig, *, scale: float = 0.1) -> VitConfig:
    """ResMLP: attention becomes a `TokenLinear`, norms become `Affine`, branches are scaled (Touvron et al., 2021)."""
    scaled = partial(LayerScaled, scale=scale)
    mixer = partial(scaled, part=partial(TokenLinear, time=config.grid[0] * config.grid[1]))
    feed_forward = partial(scaled, part=as_part("feed_forward", config.feed_forward))
    return replace(without_attention(config, mixer), norm=Affine, feed_forward=feed_forward)


def patch_bag(config: VitConfig) -> VitConfig:
    """A bag of patches: attention becomes a `NoMixer`, and no position is known."""
    return without_attention(config, NoMixer)


def convolutional(config: VitConfig, *, kernel: int = 3) -> VitConfig:
    """Attention becomes a `DepthwiseConvolution`; everything else of the ViT stays."""
    return without_attention(config, partial(DepthwiseConvolution, columns=config.grid[1], kernel=kernel))
