"""Alignment scores: how well a query matches each key. Every score has the interface of `AdditiveScore`."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class AdditiveScore(nn.Module):
    """score(q, k) = vᵀ tanh(W q + U k), a one-hidden-layer network on query and key (Bahdanau et al., 2015, A.1.2)."""

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__()
        if min(d_query, d_key, d_score) < 1:
            raise ValueError(f"d_query, d_key, d_score are {d_query}, {d_key}, {d_score}; expected 1 or more each")
        self.W = nn.Linear(d_query, d_score, bias=False)
        self.U = nn.Linear(d_key, d_score)
        self.v = nn.Linear(d_score, 1, bias=False)
        nn.init.normal_(self.v.weight, std=2 / math.sqrt(d_score))  # scores that differ: an even softmax learns slowly

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_score"]:
        """U k for every key: it does not depend on the query, so a decoder computes it once a sentence."""
        return self.U(keys)

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_score"]
    ) -> Float[Tensor, "batch query key"]:
        """Scores of every query against every key, the keys given as `project(keys)`."""
        hidden = torch.tanh(self.W(query)[:, :, None] + projected[:, None])  # (batch, query, key, d_score)
        return self.v(hidden).squeeze(-1)
