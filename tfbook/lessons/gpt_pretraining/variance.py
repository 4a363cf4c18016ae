"""The variance of the residual stream before training, with and without the scaled initialization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook import runtime
from tfbook.course.probing import activations
from tfbook.models import gpt
from tfbook.training.losses import next_token_loss


def residual(
    depths: Sequence[int] = (2, 4, 8, 16, 32, 48), *, d_model: int = 128, vocab: int = 100, seed: int = 1
) -> list[dict[str, Any]]:
    """Variance of the residual stream before the first block and after each, and the initial loss, without training.

    The matrices that write into the stream are initialized as in `Gpt`, and then √(2 · layers) times larger, like all
    other matrices.
    """
    ids = torch.randint(vocab, (8, 65), generator=torch.Generator().manual_seed(seed)).to(runtime.device())
    rows = []
    for layers, scaled in product(depths, (True, False)):
        runtime.seed(seed)
        config = replace(gpt.GPT2, d_model=d_model, d_ff=4 * d_model, layers=layers, max_length=64, dropout=0.0)
        model = gpt.Gpt(vocab, replace(config, heads=d_model // 16)).to(runtime.device())
        if not scaled:
            unscale(model)
        found = {"variance": residual_variance(model, ids[:, :-1]), "loss": _loss(model, ids)}
        rows.append({"layers": layers, "scaled": scaled, **found})
    return rows


@torch.no_grad()
def unscale(model: gpt.Gpt) -> None:
    """Rescales the matrices that write into the residual stream to standard deviation 0.02, like all others."""
    for block in model.stack.blocks:
        for writes in (block.mixer.branch.W_O, block.feed_forward.branch.down):
            writes.weight.mul_(math.sqrt(2 * len(model.stack.blocks)))


def residual_variance(model: gpt.Gpt, ids: Int64[Tensor, "batch time"]) -> list[float]:
    """Mean square of the residual stream's entries, before the first block and after each."""
    layers = ["stack.dropout", *(f"stack.blocks.{i}" for i in range(len(model.stack.blocks)))]
    return [float(x.square().mean()) for x in activations(model, ids, layers=layers).values()]


@torch.no_grad()
def _loss(model: gpt.Gpt, ids: Int64[Tensor, "batch time"]) -> float:
    return float(next_token_loss(model.eval(), ids).mean)
