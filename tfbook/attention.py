"""Masks and the masked softmax. True in a mask means "may attend"."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def padding_mask(lengths: Int[Tensor, " batch"], size: int) -> Bool[Tensor, "batch key"]:
    """True at position j of row i when j < lengths[i]: real words may be attended to, padding may not.

    Raises ValueError when `lengths` is not one integer a row, or a length is negative or larger than `size`.
    """
    if lengths.ndim != 1 or lengths.is_floating_point():
        raise ValueError(
            f"lengths has shape {tuple(lengths.shape)}, {lengths.dtype}; expected one integer for each row"
        )
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= size:
        raise ValueError(f"lengths run from {int(lengths.min())} to {int(lengths.max())}; expected 0 to size = {size}")
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def masked_softmax(scores: Float[Tensor, "*rows key"], mask: Bool[Tensor, "..."] | None) -> Float[Tensor, "*rows key"]:
    """exp(s_j) / Σ_k exp(s_k) over the keys k that the mask allows; 0 for the others.

    A row whose keys are all blocked gets weights 0, never NaN, and gradient 0. `mask` broadcasts to the shape of
    `scores`; None allows every key. Raises TypeError when the scores are no floating-point numbers or the mask is not
    Boolean, ValueError when the mask does not fit.
    """
    if not scores.is_floating_point():
        raise TypeError(f"scores has dtype {scores.dtype}; expected floating-point numbers")
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask has dtype {mask.dtype}; expected torch.bool, where True means 'may attend'")
    try:
        mask = mask.expand(scores.shape)
    except RuntimeError:
        message = f"mask has shape {tuple(mask.shape)}; expected one that broadcasts to scores, {tuple(scores.shape)}"
        raise ValueError(message) from None
    lowest = torch.finfo(scores.dtype).min  # finite, so that a row of blocked keys stays free of NaN
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)
