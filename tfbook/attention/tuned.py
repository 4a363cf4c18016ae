"""Attention layers tuned for training in bfloat16: one product for queries, keys and values instead of three.

`training.fit` chooses it; a layer itself stays as lessons show it. Measured in benchmarks/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.multi_head import MultiHeadAttention, split_heads


def project_together(
    layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`MultiHeadAttention.project` under autocast: what several layers read is cast once, and multiplied once."""
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


@contextmanager
def joined_projections(model: nn.Module) -> Iterator[None]:
    """Inside, the multi-head attention layers of `model` project by `project_together`.

    Only those whose type and linear layers are the known ones: a subclass or an edited layer computes as it says.
    """
    known = [layer for layer in model.modules() if type(layer) is MultiHeadAttention and _plain(layer)]
    for layer in known:
        layer.project = partial(project_together, layer)
    try:
        yield
    finally:
        for layer in known:
            del layer.project


def _plain(layer: MultiHeadAttention) -> bool:
    return all(type(linear) is nn.Linear for linear in (layer.W_Q, layer.W_K, layer.W_V))
