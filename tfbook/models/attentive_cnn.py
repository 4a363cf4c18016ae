"""Self-attention on the features of a CNN (SAGAN), inside a classifier.

The paper puts the layer into the two networks of a GAN; a classifier shows the same layer with an accuracy that can be
measured in seconds.

Shapes: batch, channel, row and column (of a feature map); place = row · column; label.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook.attention.implementations import Implementation, softmax
from tfbook.checks import check_positive
from tfbook.models.cnn import Cnn


class FeatureAttention(nn.Module):
    """x + γ W_O Attention(W_Q x, W_K x, W_V x) over all places of a feature map (Zhang et al., 2019, section 3).

    γ starts at 0, so the network begins as the CNN that it was and learns how far to look beyond its neighborhood.
    Queries and keys have channels / `narrower` channels, values half of them. Their scores are not divided by √d.
    Raises ValueError when a width would be 0.
    """

    def __init__(self, channels: int, *, narrower: int = 8, implementation: Implementation = softmax):
        super().__init__()
        check_positive(narrower=narrower)
        if channels < max(narrower, 2):
            raise ValueError(f"channels is {channels}; expected {max(narrower, 2)} or more")
        self.implementation = implementation
        self.W_Q = nn.Conv2d(channels, channels // narrower, 1)
        self.W_K = nn.Conv2d(channels, channels // narrower, 1)
        self.W_V = nn.Conv2d(channels, channels // 2, 1)
        self.W_O = nn.Conv2d(channels // 2, channels, 1)
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch channel row column"]:
        """Each place adds a mean of all places' values, weighted by how well their keys match its query."""
        q, k, v = (project(x).flatten(2).mT[:, None] for project in (self.W_Q, self.W_K, self.W_V))
        mixed = self.implementation(q * q.shape[-1] ** 0.5, k, v)  # an implementation divides by √d
        return x + self.gamma * self.W_O(mixed[:, 0].mT.unflatten(2, x.shape[2:]))


class AttentiveCnn(Cnn):
    """A `Cnn` with `FeatureAttention` before its last stage, where places are few and see little of one another."""

    def __init__(self, labels: int, *, channels: int = 3, width: int = 32, stages: int = 3, stem: int = 1):
        super().__init__(labels, channels=channels, width=width, stages=stages, stem=stem)
        last = len(self.layers) - (2 if stages > 1 else 0)  # a stage after the first has two layers
        self.layers.insert(last, FeatureAttention(width * 2 ** max(stages - 2, 0)))
