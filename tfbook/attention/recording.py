"""Attention weights of every layer of a model, recorded as they multiply the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from tfbook.attention.implementations import EVERYTHING, Implementation, Supports, declares, softmax
from tfbook.attention.masks import Mask


def supports_of(layer: nn.Module) -> Supports | None:
    """The `Supports` of the layer's implementation, also inside a `partial`; None for a layer without one."""
    used = getattr(layer, "implementation", None)
    return getattr(getattr(used, "func", used), "supports", None)


def written_out(used: Implementation, seen: Callable[[Tensor], None]) -> Implementation:
    """`softmax`, which calls `seen` with its weights, under the narrower mask of a sparse implementation `used`."""
    narrowed = getattr(used, "mask", lambda q, k, mask: mask)

    @declares(EVERYTHING)
    def shown(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        return softmax(q, k, v, narrowed(q, k, mask), bias, dropout, seen=seen)

    shown.mask = narrowed  # type: ignore[attr-defined] # functions have attributes
    return shown


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, Float[Tensor, "batch head query key"]]]:
    """Records, inside the context, the attention weights of each layer under the layer's name in the model.

    They are the weights that multiply the values: with the same mask, bias and dropout, computed by `softmax`, and
    without the keys that a sparse implementation leaves out. A layer that is called twice keeps its last weights.
    Raises ValueError when `model` has no attention, or a layer whose implementation is not exact.
    """
    layers: dict[str, Any] = {name: layer for name, layer in model.named_modules() if supports_of(layer)}
    if not layers:
        raise ValueError(f"model, a {type(model).__name__}, holds no attention whose weights could be recorded")
    for name, layer in layers.items():
        if (supports := supports_of(layer)) and not supports.exact:
            raise ValueError(
                f"the layer {name!r} of model approximates its weights; only an exact implementation has a record"
            )
    implementations = {name: layer.implementation for name, layer in layers.items()}
    weights: dict[str, Tensor] = {}
    try:
        for name, layer in layers.items():
            layer.implementation = written_out(layer.implementation, partial(weights.__setitem__, name))
        yield weights
    finally:
        for name, layer in layers.items():
            layer.implementation = implementations[name]
