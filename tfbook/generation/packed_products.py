"""Products of a few rows with a matrix that was laid out for them once.

PyTorch's product of several rows copies the matrix into the order in which the processor takes it, every time; with a
few rows, that takes longer than the arithmetic. What generates multiplies the same matrices again and again, so they
can be copied once. Shapes: batch, time; out and in (of a matrix).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 2  # from so many on, the packed matrix is faster in float32
EXPECTED = 5  # rows, for which it is laid out


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN packs this matrix: on a CPU, in float32, or in bfloat16 where the processor multiplies that."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


class PackedProduct(nn.Module):
    """x Wᵀ + b in W's dtype with a second, packed copy of W, which products of at least `ROWS` rows read.

    In bfloat16 a single row reads the packed one, too. Raises ValueError for a matrix that `can_pack` refuses.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None):
        super().__init__()
        if not can_pack(weight):
            found = f"{weight.dtype} on {weight.device}"
            raise ValueError(f"weight is {found}; expected float32 on a CPU with oneDNN, or bfloat16 where it has that")
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.out_features = len(weight)
        self.fewest = ROWS if weight.dtype == torch.float32 else 1
        self._pack()

    def _pack(self) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), EXPECTED)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}  # it cannot be written

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pack()

    def forward(self, x: Float[Tensor, "batch time d_in"]) -> Float[Tensor, "batch time d_out"]:
        """The product, in x's dtype."""
        buffers: dict[str, Any] = self._buffers
        weight, bias = buffers["weight"], buffers["bias"]
        rows = x.to(weight.dtype)
        if x.shape[0] * x.shape[1] < self.fewest:
            return F.linear(rows, weight, bias).to(x.dtype)
        return torch.ops.mkldnn._linear_pointwise(rows, self.packed, bias, "none", [], "").to(x.dtype)
