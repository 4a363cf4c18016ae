"""Which layer of a model has which kernel."""

from __future__ import annotations

from itertools import cycle

from torch import nn

from tfbook.attention import Kernel
from tfbook.efficient.kernel import Drawn
from tfbook.transformer import Stack


def alternate(stack: Stack, *kernels: Kernel) -> Stack:
    """Gives the self-attention of each block the next of these kernels, over and over, and returns the stack.

    `alternate(model.stack, fastest, Banded(256))`: dense and banded layers in turn, as in GPT-3 (Brown et al., 2020,
    section 2.1). Raises ValueError when there is no kernel.
    """
    if not kernels:
        raise ValueError("kernels is empty; expected one or more")
    for block, kernel in zip(stack.blocks, cycle(kernels), strict=False):
        block.attention.branch.kernel = kernel
    return stack


def redraw(model: nn.Module) -> None:
    """The next draw for every kernel in the model that draws something: directions, rotations or lots."""
    for layer in model.modules():
        used = getattr(layer, "kernel", None)
        if isinstance(used, Drawn):
            layer.kernel = used.redrawn()
