"""A plain convolutional network, to compare with models that attend.

Shapes: batch, channel, height, width, label.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

WIDEST = 1024  # channels of the first stage that `Cnn.of_size` looks at


def convolution(before: int, after: int, stride: int = 1) -> nn.Sequential:
    """ReLU(batch norm(3 × 3 convolution)): `before` channels become `after` (Ioffe & Szegedy, 2015)."""
    layer = nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1, bias=False)  # the norm has a bias
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU())


class Cnn(nn.Module):
    """Stages of two convolutions, each with twice the channels and half the resolution; then global average pooling.

    The first convolution has stride `stem`: 2 halves the resolution everywhere, which quarters the work.
    """

    def __init__(self, labels: int, *, channels: int = 3, width: int = 32, stages: int = 3, stem: int = 1):
        super().__init__()
        widths = [width * 2**stage for stage in range(stages)]
        self.stem = convolution(channels, width, stride=stem)
        self.layers = nn.ModuleList([convolution(width, width)])
        for before, after in pairwise(widths):
            self.layers += [convolution(before, after, stride=2), convolution(after, after)]
        self.head = nn.Linear(widths[-1], labels)

    @classmethod
    def of_size(cls, parameters: int, labels: int, *, channels: int = 3, stages: int = 3, stem: int = 1) -> Cnn:
        """The widest network with at most `parameters`. Raises ValueError when even the narrowest has more."""

        def count(width: int) -> int:
            with torch.device("meta"):  # shapes only, no memory
                model = cls(labels, channels=channels, width=width, stages=stages)
            return sum(weight.numel() for weight in model.parameters())

        width = bisect_right(range(1, WIDEST + 1), parameters, key=count)
        if not width:
            raise ValueError(f"parameters is {parameters:,}; expected {count(1):,} or more, those of width 1")
        return cls(labels, channels=channels, width=width, stages=stages, stem=stem)

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """One row of logits per image."""
        x = self.stem(images)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(dim=(2, 3)))
