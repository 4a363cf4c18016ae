"""What a model attends to: the weights of every attention layer, recorded as they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from tfbook.attention.implementations import Implementation, Supports, implementation, softmax
from tfbook.attention.masks import Mask


def supports_of(layer: nn.Module) -> Supports | None:
    """What the layer's implementation supports, also through a `partial` with options; None where there is none."""
    used = getattr(layer, "implementation", None)
    return getattr(getattr(used, "func", used), "supports", None)


def written_out(used: Implementation, seen: Callable[[Tensor], None]) -> Implementation:
    """`softmax` that shows its weights, under the mask that `used` narrows its mask to, where it has such a method."""
    narrowed = getattr(used, "mask", lambda q, k, mask: mask)

    @implementation(Supports())
    def shown(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        return softmax(q, k, v, narrowed(q, k, mask), bias, dropout, seen=seen)

    shown.mask = narrowed  # type: ignore[attr-defined] # functions have attributes
    return shown


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, Float[Tensor, "batch head query key"]]]:
    """Inside the context, each layer of `model` that has an `implementation` puts its weights under its name.

    What is recorded is what multiplied the values: the same mask, bias and dropout, through `softmax`, and no key that
    a sparse implementation leaves out. A layer that is called twice keeps its last weights. Raises ValueError when
    `model` has no such layer, or one whose implementation is not exact.
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
