"""Random features whose products are, on average, the softmax's exponentials (FAVOR+).

Shapes: batch, head, query and key (positions), feature, d_head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.attention.efficient.base import Seeded
from tfbook.attention.efficient.linear import Linear
from tfbook.checks import check_positive


def projection(
    features: int, d_head: int, generator: torch.Generator, *, orthogonal: bool = True
) -> Float[Tensor, "feature d_head"]:
    """Directions whose entries are standard normal; `orthogonal`: those of each d_head in turn are perpendicular.

    (Choromanski et al., 2021, section 2.4.) Each has the length of a normal vector of its own, so that it alone is
    distributed as before.
    """
    normal = torch.randn(features, d_head, generator=generator)
    if not orthogonal:
        return normal
    squares = torch.randn(-(-features // d_head), d_head, d_head, generator=generator)
    Q, R = torch.linalg.qr(squares)
    rows = (Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None]).mT  # without the signs, not all directions are as likely
    return rows.flatten(0, 1)[:features] * normal.norm(dim=-1, keepdim=True)


def log_features(
    x: Float[Tensor, "*rows d_head"], directions: Float[Tensor, "feature d_head"]
) -> Float[Tensor, "*rows feature"]:
    """w · x − ‖x‖² / 2 − ½ log m for each of m directions w, where x is divided by d_head^¼.

    The exponentials φ are positive, and E[φ(q) · φ(k)] = exp(q · k / √d_head) (Choromanski et al., 2021, lemma 1).
    """
    x = x / x.shape[-1] ** 0.25
    return x @ directions.mT - x.square().sum(dim=-1, keepdim=True) / 2 - math.log(len(directions)) / 2


@dataclass(frozen=True)
class Performer(Seeded, Linear):
    """Linear attention that approximates softmax attention by random features (Choromanski et al., 2021).

    The more `features`, the closer: the error falls as their number to the −½. They are drawn from `seed`, the same for
    all heads. Weights before normalisation have no bias; their quotient has. Raises ValueError when `features` < 1.
    """

    features: int = 256
    orthogonal: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(features=self.features, chunk=self.chunk)

    def mapped(
        self, q: Float[Tensor, "batch head query d_head"], k: Float[Tensor, "batch head key d_head"]
    ) -> tuple[Float[Tensor, "batch head query feature"], Float[Tensor, "batch head key feature"]]:
        """φ, where each query's largest feature and the largest of all keys is 1: a factor that cancels."""
        dice = torch.Generator().manual_seed(self.seed)
        directions = projection(self.features, q.shape[-1], dice, orthogonal=self.orthogonal).to(q)
        q, k = log_features(q, directions), log_features(k, directions)
        highest = q.detach().amax(dim=-1, keepdim=True), k.detach().amax(dim=(-2, -1), keepdim=True)
        return torch.exp(q - highest[0]), torch.exp(k - highest[1])
