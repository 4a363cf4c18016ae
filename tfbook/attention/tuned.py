"""Joined projections: queries, keys and values in one product, chosen from outside so that layers stay plain.

`training.fit` turns it on; an edited or subclassed layer is left alone. Measured in benchmarks/README.md.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.multi_head import MultiHeadAttention, split_heads
from tfbook.parts import exactly, method_in_place


def project_together(
    layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`MultiHeadAttention.project` under autocast: an input that several layers read is cast and multiplied once."""
    kind = query.device.type
    if not torch.is_autocast_enabled(kind):
        return MultiHeadAttention.project(layer, query, key, value)
    layers, dtype = (layer.W_Q, layer.W_K, layer.W_V), torch.get_autocast_dtype(kind)
    if not query is key is value:
        inputs = {id(x): x.to(dtype) for x in (query, key, value)}
        q, k, v = (linear(inputs[id(x)]) for linear, x in zip(layers, (query, key, value), strict=True))
        return split_heads(q, layer.heads), split_heads(k, layer.heads), split_heads(v, layer.heads)
    weight = torch.cat([linear.weight for linear in layers])
    bias = None if layer.W_Q.bias is None else torch.cat([linear.bias for linear in layers])
    side_by_side = F.linear(query.to(dtype), weight, bias).unflatten(-1, (3, layer.heads, -1))
    q, k, v = side_by_side.permute(2, 0, 3, 1, 4).unbind()
    return q, k, v


def joined_projections(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, the multi-head attention layers of `model` project by `project_together`.

    Only layers of the package's own class with ordinary linear layers: a subclass or an edited one keeps its `project`.
    """
    known = [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention) and _plain(layer)]
    return method_in_place(known, "project", project_together)


def _plain(layer: MultiHeadAttention) -> bool:
    own = exactly(layer, MultiHeadAttention) and "project" not in vars(layer)  # which `tensor_parallel` puts there
    return own and all(type(linear) is nn.Linear for linear in (layer.W_Q, layer.W_K, layer.W_V))
