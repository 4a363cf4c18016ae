"""Which layer of a model has which implementation."""

from __future__ import annotations

from torch import nn

from tfbook.attention.efficient.base import Seeded


def resample(model: nn.Module) -> None:
    """The next draw for every implementation in the model that draws something: directions, rotations or lots."""
    for layer in model.modules():
        used = getattr(layer, "implementation", None)
        if isinstance(used, Seeded):
            layer.implementation = used.redrawn()
