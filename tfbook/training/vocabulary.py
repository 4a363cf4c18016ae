"""A vocabulary whose logits are computed in multiples of 64: a GPU multiplies such matrices faster.

Rows of logits then begin where a GPU reads without detours, in the product and in both of its gradients: GPT-2's 50,257
tokens become 50,304. `training.fit` turns it on; weights, checkpoints and the logits that a model returns have the size
that they have without it. Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.parts import exactly, method_in_place

MULTIPLE = 64
PADDED_ON = ("cuda",)  # on a CPU a step of 50,257 logits takes 1.14 times as long (benchmarks/README.md)
SMALLEST = 4096  # tokens, by estimate: below, the calls that pad take longer than the product


def padded_vocabulary(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, the output matrices of `model`, by the name of `unembed`, multiply by `padded_product` where it pays.

    Only ordinary linear layers: a subclass or an edited one keeps its `forward`.
    """
    layers = [layer for layer in dict.fromkeys(_output_layers(model)) if _pays(layer)]
    return method_in_place(layers, "forward", padded_product)


def _output_layers(model: nn.Module) -> Iterator[nn.Linear]:
    for part in model.modules():
        layer: Any = getattr(part, "unembed", None)
        if exactly(layer, nn.Linear) and "forward" not in vars(layer):
            yield layer


def _pays(layer: nn.Linear) -> bool:
    vocab = layer.out_features
    return layer.weight.device.type in PADDED_ON and vocab >= SMALLEST and vocab % MULTIPLE > 0


def padded_product(layer: nn.Linear, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows vocab"]:
    """x Wᵀ + b with zeros in place of further tokens, whose logits are left out of what is returned."""
    kind, weight, bias = x.device.type, layer.weight, layer.bias
    if torch.is_autocast_enabled(kind):
        weight = weight.to(torch.get_autocast_dtype(kind))  # before it is copied
    more = -layer.out_features % MULTIPLE
    logits = F.linear(x, F.pad(weight, (0, 0, 0, more)), None if bias is None else F.pad(bias, (0, more)))
    return logits[..., : layer.out_features]
