"""Six alignment scores: how well a query q matches a key k. `SCORES` lists them; weights are their masked softmax.

All have one interface: a constructor (d_query, d_key, d_score), `project(keys)` for the part without the query,
and `score(query, projected)` for every query against every key of the same sentence.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class AdditiveScore(nn.Module):
    """score(q, k) = vᵀ tanh(W q + U k): one hidden layer (Bahdanau et al., 2015, A.1.2)."""

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__()
        if min(d_query, d_key, d_score) < 1:
            sizes = f"{d_query}, {d_key}, {d_score}"
            raise ValueError(f"d_query, d_key, d_score are {sizes}; expected 1 or more each")
        self.W = nn.Linear(d_query, d_score, bias=False)
        self.U = nn.Linear(d_key, d_score)
        self.v = nn.Linear(d_score, 1, bias=False)
        nn.init.normal_(self.v.weight, std=2 / math.sqrt(d_score))  # scores that differ: an even softmax learns slowly

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_score"]:
        """U k for every key, which a decoder computes once per sentence: no query is in it."""
        return self.U(keys)

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_score"]
    ) -> Float[Tensor, "batch query key"]:
        """Scores of every query against every key, the keys given as `project(keys)`."""
        hidden = torch.tanh(self.W(query)[:, :, None] + projected[:, None])  # (batch, query, key, d_score)
        return self.v(hidden).squeeze(-1)


class Score(nn.Module):
    """The base of the other scores: after `project`, the score is the dot product q · projected.

    Raises ValueError when a width is below 1.
    """

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__()
        if min(d_query, d_key, d_score) < 1:
            raise ValueError(f"d_query, d_key, d_score are {d_query}, {d_key}, {d_score}; expected 1 or more each")

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_projected"]:
        """The part of the score that depends on keys only, computed once per sentence: here the keys themselves."""
        return keys

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_projected"]
    ) -> Float[Tensor, "batch query key"]:
        """Scores of every query against every key, the keys given as `project(keys)`."""
        return query @ projected.mT


class GeneralScore(Score):
    """score(q, k) = qᵀ W k: a learned matrix says which entries belong together (Luong et al., 2015, section 3.1)."""

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__(d_query, d_key, d_score)
        self.W = nn.Linear(d_key, d_query, bias=False)

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_query"]:
        """W k for every key."""
        return self.W(keys)


class DotScore(Score):
    """score(q, k) = qᵀ k: W is the identity, so q and k must be equally wide (Luong et al., 2015, section 3.1).

    It has no parameters, so the layers that produce q and k learn to match. Raises ValueError when the widths differ.
    """

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__(d_query, d_key, d_score)
        if d_query != d_key:
            name = type(self).__name__
            raise ValueError(f"d_query is {d_query} and d_key is {d_key}; {name} expects them to be equal")


class ScaledDotScore(DotScore):
    """score(q, k) = qᵀ k / √d: its variance does not grow with the width d (Vaswani et al., 2017, section 3.2.1)."""

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_query"]
    ) -> Float[Tensor, "batch query key"]:
        """The dot product of every query and every key over √d_query."""
        return super().forward(query / math.sqrt(query.shape[-1]), projected)


class CosineScore(DotScore):
    """score(q, k) = β cos(q, k): only directions matter, not lengths (Graves et al., 2014, section 3.3.1).

    The sharpness β > 0 is learned as its logarithm and starts at √d, where vectors of independent entries get scores
    of variance 1. A zero vector has cosine 0 with every other.
    """

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__(d_query, d_key, d_score)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(d_query) / 2))

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_key"]:
        """Every key with length 1."""
        return F.normalize(keys, dim=-1, eps=1e-6)

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_query"]
    ) -> Float[Tensor, "batch query key"]:
        """β times the cosine of every query and every key."""
        return self.log_sharpness.exp() * super().forward(F.normalize(query, dim=-1, eps=1e-6), projected)


class LocationScore(Score):
    """score(q, j) = (W q)_j: one score per position, independent of the keys (Luong et al., 2015, section 3.1).

    W has one row for each of `longest` positions; a subclass may set more. Longer sentences raise ValueError.
    """

    longest = 64

    def __init__(self, d_query: int, d_key: int, d_score: int):
        super().__init__(d_query, d_key, d_score)
        self.W = nn.Linear(d_query, self.longest, bias=False)

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key 0"]:
        """Only the number of keys: their width becomes 0."""
        if keys.shape[1] > self.longest:
            raise ValueError(f"keys has {keys.shape[1]} positions; this LocationScore has {self.longest} at most")
        return keys[..., :0]

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key 0"]
    ) -> Float[Tensor, "batch query key"]:
        """W q, cut to the length of the sentence."""
        return self.W(query)[..., : projected.shape[1]]


SCORES: dict[str, type[nn.Module]] = {
    "additive": AdditiveScore,
    "general": GeneralScore,
    "dot": DotScore,
    "scaled dot": ScaledDotScore,
    "cosine": CosineScore,
    "location": LocationScore,
}
