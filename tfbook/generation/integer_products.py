"""Products with integers on a CPU that turn them into floating-point numbers inside of the product.

`QuantizedLinear` first writes a matrix of floating-point numbers and then multiplies it, so it moves more bytes than
that matrix has. Here each integer is converted in the processor's registers, and a step reads what is stored: a
quarter or an eighth of float32. Shapes: batch, time; out and in (of a matrix), group.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.generation.quantization import QuantizedLinear, unpacked

GROUPS_OF_FOUR_BITS = (32, 64, 128, 256)  # weights per scale that PyTorch's product knows
ROWS = 16  # the number of rows has to be a multiple of it with 4 bits, and their width with 8


def converts_inside(layer: QuantizedLinear) -> bool:
    """Whether PyTorch has such a product for the layer: on a CPU, 8 bits with a scale per row, or 4 bits in groups.

    Rows of 8 bits have to be multiples of 16 wide: of others, that product reads beyond the end.
    """
    if layer.codes.device.type != "cpu":
        return False
    if layer.bits == 8:
        return layer.scale.shape[1] == 1 and layer.in_features % ROWS == 0
    return layer.group in GROUPS_OF_FOUR_BITS


class IntegerProduct(nn.Module):
    """x Ŵᵀ + b for a quantized layer, with x and the scales in bfloat16, and sums in float32.

    Raises ValueError for a layer that `converts_inside` refuses.
    """

    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, layer: QuantizedLinear):
        super().__init__()
        if not converts_inside(layer):
            found = f"{layer.bits} bits in groups of {layer.group} on {layer.codes.device}, {layer.in_features} wide"
            raise ValueError(
                f"layer has {found}; expected 8 with a scale per row of 16 n, or 4 in groups of 32 to 256, on a CPU"
            )
        self.bits, self.group, self.out_features = layer.bits, layer.group, layer.out_features
        if self.bits == 8:
            self.register_buffer("codes", layer.codes)
            self.register_buffer("scale", layer.scale[:, 0].bfloat16())
        else:
            codes, scale = _for_four_bits(unpacked(layer.codes), layer.scale)
            self.register_buffer("codes", codes)
            self.register_buffer("scale", scale)
        self.register_buffer("bias", layer.bias)

    def forward(self, x: Float[Tensor, "batch time d_in"]) -> Float[Tensor, "batch time d_out"]:
        """The product, in x's dtype."""
        rows = x.flatten(0, 1).bfloat16()
        if self.bits == 8:
            product = torch._weight_int8pack_mm(rows, self.codes, self.scale)
        else:
            product = torch._weight_int4pack_mm_for_cpu(rows, self.codes, self.group, self.scale)[
                :, : self.out_features
            ]
        product = product.to(x.dtype).unflatten(0, x.shape[:2])
        return product if self.bias is None else product + self.bias


def _for_four_bits(codes: Int8[Tensor, "out in"], scale: Float[Tensor, "out group"]) -> tuple[Tensor, Tensor]:
    """Codes from 0 to 15, packed for the processor, and (group, out, 2): scales, and what a code of 8 stands for, 0."""
    more = -len(codes) % ROWS
    codes, scale = F.pad(codes, (0, 0, 0, more)), F.pad(scale, (0, 0, 0, more))
    scales = scale.t().bfloat16()
    packed = torch._convert_weight_to_int4pack_for_cpu((codes + 8).int(), 1)
    return packed, torch.stack([scales, torch.zeros_like(scales)], dim=-1)
