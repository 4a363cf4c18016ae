"""Grouped-query attention: fewer heads for keys and values than for queries, and a smaller cache.

Shapes: batch, head, group (a head of keys and values), query and key (positions), d_head.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook.attention.multi_head import MultiHeadAttention, split_heads

Model = TypeVar("Model", bound=nn.Module)


class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention in which heads / groups heads share their keys and values (Ainslie et al., 2023, figure 2).

    With as many groups as heads it is multi-head attention; with one group it is multi-query attention (Shazeer, 2019).
    The cache holds groups / heads as many numbers. `options` are those of `MultiHeadAttention`. Raises ValueError when
    `groups` does not divide `heads`.
    """

    def __init__(self, d_model: int, heads: int, *, groups: int = 1, **options: Any):
        super().__init__(d_model, heads, **options)
        if groups < 1 or heads % groups:
            raise ValueError(f"groups is {groups} and heads is {heads}; expected groups to divide heads")
        self.groups = groups
        if groups < heads:
            width = groups * (d_model // heads)
            self.W_K, self.W_V = (
                nn.Linear(layer.in_features, width, bias=layer.bias is not None) for layer in (self.W_K, self.W_V)
            )

    def project(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[
        Float[Tensor, "batch head query d_head"],
        Float[Tensor, "batch group key d_head"],
        Float[Tensor, "batch group key d_head"],
    ]:
        """Queries for every head, keys and values for every group."""
        q, k, v = self.W_Q(query), self.W_K(key), self.W_V(value)
        return split_heads(q, self.heads), split_heads(k, self.groups), split_heads(v, self.groups)

    def for_every_head(self, x: Float[Tensor, "batch group key d_head"]) -> Float[Tensor, "batch head key d_head"]:
        """Each group's keys or values, repeated for the heads that share them."""
        return x.repeat_interleave(self.heads // self.groups, dim=1)


# ---- heads to groups -----------------------------------------------------------------------------------------------


@torch.no_grad()
def grouped(attention: MultiHeadAttention, groups: int) -> GroupedQueryAttention:
    """The layer with the mean of the heads' W_K and W_V in each of `groups` groups of neighboring heads.

    (Ainslie et al., 2023, section 2.1.) With as many groups as heads it computes what the layer computes; with fewer,
    a model has to be trained a little further. Queries and output keep their weights. Raises ValueError when `groups`
    does not divide the heads.
    """
    d_model, d_key, d_value = (layer.in_features for layer in (attention.W_Q, attention.W_K, attention.W_V))
    converted = GroupedQueryAttention(
        d_model,
        attention.heads,
        groups=groups,
        d_key=d_key,
        d_value=d_value,
        dropout=attention.dropout,
        bias=attention.W_Q.bias is not None,
        implementation=attention.implementation,
    )
    state = attention.state_dict()
    for name in ("W_K.weight", "W_K.bias", "W_V.weight", "W_V.bias"):
        if name in state:
            state[name] = state[name].unflatten(0, (groups, -1, d_model // attention.heads)).mean(dim=1).flatten(0, 1)
    converted.load_state_dict(state)
    return converted.to(attention.W_Q.weight).train(attention.training)


def with_groups(model: Model, groups: int) -> Model:
    """A copy of a trained model in which each layer of multi-head attention is `grouped`. Raises what that raises."""
    twin = copy.deepcopy(model)
    for parent in [*twin.modules()]:
        for name, child in [*parent.named_children()]:
            if type(child) is MultiHeadAttention:
                setattr(parent, name, grouped(child, groups))
    return twin
