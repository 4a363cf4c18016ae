"""Contrastive losses: rows and columns of a matrix of scores, as in CLIP.

Shapes: image, text (rows of either kind).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tfbook.training.losses import Loss


def contrastive_loss(scores: Float[Tensor, "image text"], same: Bool[Tensor, "image text"] | None = None) -> Loss:
    """½ (mean over images of −log p(text | image) + mean over texts of −log p(image | text)); counts 1.

    p is the softmax of a row, or of a column (Radford et al., 2021, figure 3). `same` says which texts are true of
    which images: several true ones share the target equally, so that none of them is pushed away; without it, an
    image's text is the one at its own place. A row or column without a true one is left out. Raises ValueError for
    scores that are not square when `same` is missing.
    """
    if same is None:
        if scores.shape[0] != scores.shape[1]:
            raise ValueError(f"scores has shape {tuple(scores.shape)}; expected as many texts as images, or `same`")
        same = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    return Loss((_one_way(scores.float(), same) + _one_way(scores.float().T, same.T)) / 2, 1)


def _one_way(scores: Float[Tensor, "row column"], same: Bool[Tensor, "row column"]) -> Float[Tensor, ""]:
    """The mean over rows of −Σ target · log softmax(row), targets being equal among the true ones."""
    counts = same.sum(dim=1)
    found = -(scores.log_softmax(dim=1).masked_fill(~same, 0.0)).sum(dim=1) / counts.clamp(min=1)
    return found.sum() / (counts > 0).sum().clamp(min=1)
