"""Local attention: each position sees a window around it."""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.attention.efficient.base import EfficientAttention, Visibility
from tfbook.attention.efficient.blocks import attend_rows, in_blocks
from tfbook.attention.implementations import Supports
from tfbook.attention.masks import Band, Causal, Lengths, Mask
from tfbook.checks import check_positive


@dataclass(frozen=True)
class Banded(EfficientAttention):
    """Softmax attention to the keys less than `window` positions away: O(n · window) instead of O(n²).

    Under a causal mask these are a token and the `window` − 1 before it, otherwise `window` − 1 on each side, too
    (Vaswani et al., 2017, Table 1, "restricted"). A `block` of queries reads whole blocks of keys: small blocks compute
    fewer masked pairs, large ones need fewer products. Raises ValueError when `window` or `block` < 1.
    """

    window: int
    block: int = 64
    supports: ClassVar[Supports] = Supports(masks=(Causal, Band, Lengths), bias=False)

    def __post_init__(self) -> None:
        check_positive(window=self.window, block=self.block)

    def mask(self, q: Tensor, k: Tensor, mask: Mask | None = None) -> Mask:
        """The mask under which dense attention computes the same."""
        band = Band(self.window - 1, self.window - 1)
        return band if mask is None else mask & band

    def attend(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
        v: Float[Tensor, "batch head key d_value"],
        visibility: Visibility,
        dropout: float,
    ) -> Float[Tensor, "batch head query d_value"]:
        """Each block of queries reads the blocks of keys that overlap its band."""
        visibility = visibility.narrowed(self.window - 1, self.window - 1)
        q, k, v = (in_blocks(x, self.block) for x in (q, k, v))
        begins = [visibility.start + row * self.block for row in range(q.shape[2])]
        first = [max((begin - visibility.before) // self.block, 0) for begin in begins]
        last = [min((begin + self.block - 1 + visibility.after) // self.block, k.shape[2] - 1) for begin in begins]
        slots = torch.arange(max(map(sub, last, first)) + 1, device=q.device)
        lists = torch.tensor(first, device=q.device)[:, None] + slots
        mixed = attend_rows(q, k, v, torch.arange(q.shape[2], device=q.device), lists, visibility, dropout)
        return mixed.flatten(2, 3)[:, :, : visibility.queries]
