"""A language model that looks up what came next in similar places (kNN-LM, Khandelwal et al., 2020): no weight changes.

Shapes: batch, time, entry (of the store), query, vocab.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from tfbook.models.language_model import LanguageModel
from tfbook.modes import evaluating

QUERIES = 256  # whose distances to all entries are in memory at once


@torch.no_grad()
def last_states(model: LanguageModel, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
    """The vector after each token, from which the model predicts the next one."""
    with evaluating(model):
        return model.stack(model.embed(ids), model.mask)


def neighbor_distribution(
    distances: Float[Tensor, "query neighbor"],
    followed: Int64[Tensor, "query neighbor"],
    vocab: int,
    temperature: float,
) -> Float[Tensor, "query vocab"]:
    """p(w) = Σ of softmax(−distance / temperature) over the neighbors that w followed (eq. 2)."""
    weights = torch.softmax(-distances / temperature, dim=-1)
    return weights.new_zeros(len(weights), vocab).scatter_add(1, followed, weights)


def interpolate(model: Float[Tensor, "*"], store: Float[Tensor, "*"], share: float) -> Float[Tensor, "*"]:
    """λ p_store + (1 − λ) p_model with λ = `share` (eq. 3). Raises ValueError for a share below 0 or above 1."""
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; expected 0 to 1")
    return share * store + (1 - share) * model


class Datastore(NamedTuple):
    """The model's state at every place of some texts, and the token that followed there."""

    keys: Float[Tensor, "entry d_model"]
    followed: Int64[Tensor, " entry"]

    @classmethod
    def of(cls, model: LanguageModel, ids: Int64[Tensor, "batch time"], pad: int) -> Datastore:
        """Reads the texts once; places that a padding follows are left out. Raises ValueError when none is left."""
        following = ids[:, 1:]
        real = following != pad
        if not real.any():
            raise ValueError(f"ids has shape {tuple(ids.shape)} and no token that follows another one; expected some")
        return cls(last_states(model, ids[:, :-1])[real], following[real])

    def nearest(
        self, queries: Float[Tensor, "query d_model"], count: int
    ) -> tuple[Float[Tensor, "query neighbor"], Int64[Tensor, "query neighbor"]]:
        """Squared distances to the `count` nearest entries, and their numbers, the nearest first.

        Raises ValueError when the store has fewer entries.
        """
        if not 0 < count <= len(self.keys):
            raise ValueError(f"count is {count}; expected 1 to {len(self.keys)}, the entries of the store")
        lengths = self.keys.square().sum(dim=-1)
        found = []
        for part in queries.split(QUERIES):
            squares = part.square().sum(dim=-1, keepdim=True) + lengths - 2 * part @ self.keys.T
            found.append(squares.topk(count, dim=-1, largest=False))
        distances, entries = (torch.cat(parts) for parts in zip(*found, strict=True))
        return distances.clamp(min=0), entries

    def distribution(
        self, queries: Float[Tensor, "query d_model"], vocab: int, *, neighbors: int = 16, temperature: float = 10.0
    ) -> Float[Tensor, "query vocab"]:
        """The probability of each next token by the store alone."""
        distances, entries = self.nearest(queries, neighbors)
        return neighbor_distribution(distances, self.followed[entries], vocab, temperature)
