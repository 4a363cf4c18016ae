"""Conformer: attention for what is far, convolution for what is near. Shapes: batch, time, d_model, d_ff.

It reads features of sound, several times a second, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.masks import Lengths, Mask
from tfbook.attention.positions import NOWHERE, MakePosition, Position
from tfbook.checks import check_dropout, check_lengths, check_positive
from tfbook.models.blocks import Config, MakePart
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import BatchNorm
from tfbook.parts import Part

_FEED_FORWARD = partial(FeedForward, activation=F.silu)


@dataclass(frozen=True, kw_only=True)
class ConformerConfig(Config):
    """Sizes and parts of a stack of Conformer blocks, all of them with a norm in front.

    Positions are rotated; the paper's are relative. Raises ValueError for impossible sizes and for an even kernel,
    which has no middle.
    """

    kernel: int = 31  # of the depthwise convolution
    position: MakePosition | str = "rotary"
    feed_forward: MakePart | str = _FEED_FORWARD

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(kernel=self.kernel)
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; expected an odd number")


class ConvolutionModule(Part):
    """W₂ SiLU(BatchNorm(depthwise(GLU(W₁ x)))): near positions mixed channel by channel, between two linear layers.

    (Gulati et al., 2020, figure 2.) GLU(a, b) = a ⊙ σ(b). Raises ValueError for an even kernel.
    """

    def __init__(self, d_model: int, *, kernel: int = 31, dropout: float = 0.0):
        super().__init__()
        check_positive(kernel=kernel)
        check_dropout(dropout)
        if kernel % 2 == 0:
            raise ValueError(f"kernel is {kernel}; expected an odd number")
        self.W_1 = nn.Linear(d_model, 2 * d_model, bias=False)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel, padding=kernel // 2, groups=d_model, bias=False)
        self.norm = BatchNorm(d_model)
        self.W_2 = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """True in `real` marks positions that are no padding, which counts as zeros for its neighbors."""
        x = F.glu(self.W_1(x), dim=-1)
        if real is not None:
            x = x * real[..., None]
        return self.W_2(F.silu(self.norm(self.depthwise(x.mT).mT)))

    def parameter_count(self) -> int:
        """3 d_model² + (kernel + 2) d_model."""
        weights = (self.W_1.weight, self.depthwise.weight, self.W_2.weight)
        return sum(weight.numel() for weight in weights) + self.norm.parameter_count()

    def flops(self, time: int, **context: Any) -> int:
        """2 (3 d_model² + kernel · d_model) for each position."""
        weights = (self.W_1.weight, self.depthwise.weight, self.W_2.weight)
        return 2 * time * sum(weight.numel() for weight in weights)


class ConformerBlock(nn.Module):
    """x + ½ FFN, + attention, + convolution, + ½ FFN, then a norm (Gulati et al., 2020, eq. 1).

    Each branch begins with a norm of its own. The two halves around the middle are called a macaron.
    """

    def __init__(self, config: ConformerConfig):
        super().__init__()
        d_model, dropout = config.d_model, config.dropout
        self.norms = nn.ModuleList(config.make("norm", d_model) for _ in range(5))
        self.first = config.make("feed_forward", d_model, config.d_ff, dropout=dropout)
        self.mixer = config.make("mixer", d_model, config.heads, dropout=dropout)
        self.convolution = ConvolutionModule(d_model, kernel=config.kernel, dropout=dropout)
        self.second = config.make("feed_forward", d_model, config.d_ff, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        mask: Mask | None = None,
        *,
        position: Position = NOWHERE,
        real: Bool[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """`mask` is for attention, `real` marks for the convolution what is no padding."""
        before_first, before_mixer, before_convolution, before_second, last = self.norms
        x = x + 0.5 * self.dropout(self.first(before_first(x)))
        x = x + self.dropout(self.mixer(before_mixer(x), mask=mask, position=position))
        x = x + self.dropout(self.convolution(before_convolution(x), real=real))
        x = x + 0.5 * self.dropout(self.second(before_second(x)))
        return last(x)

    def parameter_count(self) -> int:
        """Two feed-forward networks, the mixer, the convolution module and five norms."""
        parts = (self.first, self.mixer, self.convolution, self.second, *self.norms)
        return sum(part.parameter_count() for part in parts)


class Conformer(nn.Module):
    """A stack of Conformer blocks over vectors that come 25 or so times a second (Gulati et al., 2020)."""

    def __init__(self, config: ConformerConfig):
        super().__init__()
        self.config = config
        self.position = config.encoding()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(ConformerBlock(config) for _ in range(config.layers))

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Contextual vectors; what lies beyond a row's length changes no other position, once the model is evaluated.

        In training, batch norm takes its means over padding, too. Raises ValueError unless there is a length per row.
        """
        mask = real = None
        if lengths is not None:
            check_lengths(lengths, len(x), "sequences of x")
            mask, real = Lengths(lengths), torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        position = self.position.prepared(0, x.shape[1], x.device)
        x = self.dropout(self.position.add(x))
        for block in self.blocks:
            x = block(x, mask, position=position, real=real)
        return x
