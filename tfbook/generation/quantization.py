"""Weights and caches in 8 or 4 bits: integers and a scale for each group of numbers, multiplied back in the product.

A token's time goes into reading weights, so a quarter or an eighth of the bytes is up to four or eight times the speed.
Shapes: batch, time, head, d_head; out and in (of a matrix), group.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.cache import Cache
from tfbook.models.blocks import BlockCache, Stack, StackCache
from tfbook.models.language_model import LanguageModel
from tfbook.parts import method_in_place

Model = TypeVar("Model", bound=nn.Module)

# ---- numbers -----------------------------------------------------------------------------------------------------


def integers_and_scale(
    x: Float[Tensor, "*rows width"], bits: int = 8
) -> tuple[Int8[Tensor, "*rows width"], Float[Tensor, "*rows 1"]]:
    """round(x / s) and s = max |x| / (2^(bits − 1) − 1), for each row: symmetric quantization, in which 0 stays 0.

    |x − s · round(x / s)| ≤ s / 2. A row of zeros has scale 1.
    """
    largest = x.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    return (x / scale).round().to(torch.int8), scale


def packed(x: Int8[Tensor, "*rows width"]) -> UInt8[Tensor, "*rows half"]:
    """Two numbers from −8 to 7 per byte: the first half of a row in the low bits, the second half in the high bits.

    Raises ValueError for an odd width.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"x has rows of {x.shape[-1]} numbers; expected an even width, two per byte")
    low, high = (x + 8).to(torch.uint8).chunk(2, dim=-1)
    return low | (high << 4)


def unpacked(x: UInt8[Tensor, "*rows half"]) -> Int8[Tensor, "*rows width"]:
    """The numbers that `packed` put there."""
    return torch.cat([x & 15, x >> 4], dim=-1).to(torch.int8) - 8


# ---- weights -----------------------------------------------------------------------------------------------------


class QuantizedLinear(nn.Linear):
    """x Ŵᵀ + b, where Ŵ is W in integers of `bits` bits with a scale for each `group` of a row, or for all of it.

    One scale per row (per output channel) is usual for 8 bits, groups of 32 to 128 for 4. The bias stays as it is.
    Raises ValueError for other bits and for groups that do not divide a row.
    """

    codes: Tensor
    scale: Tensor
    bias: Tensor | None  # type: ignore[assignment] # a buffer here

    def __init__(self, linear: nn.Linear, bits: int = 8, group: int | None = None):
        nn.Module.__init__(self)  # a linear layer's would make float weights
        if bits not in (4, 8):
            raise ValueError(f"bits is {bits}; expected 8 or 4")
        group = group or linear.in_features
        if group < 1 or linear.in_features % group:
            raise ValueError(f"group is {group}; expected one that divides a row of {linear.in_features} weights")
        self.bits, self.group = bits, group
        self.in_features, self.out_features = linear.in_features, linear.out_features
        codes, scale = integers_and_scale(linear.weight.detach().float().unflatten(1, (-1, group)), bits)
        codes = codes.flatten(1)
        self.register_buffer("codes", packed(codes) if bits == 4 else codes)
        self.register_buffer("scale", scale.squeeze(-1))  # (out, groups)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    @property
    def weight(self) -> Float[Tensor, "out in"]:  # type: ignore[override] # computed, not kept
        """Ŵ, the integers times their scales."""
        codes = unpacked(self.codes) if self.bits == 4 else self.codes
        return (codes.to(self.scale.dtype).unflatten(1, (-1, self.group)) * self.scale[..., None]).flatten(1)

    def forward(self, x: Float[Tensor, "batch time d_in"]) -> Float[Tensor, "batch time d_out"]:
        """The product. With one scale per row, that multiplies the output instead of the weights."""
        if self.bits == 4 or self.scale.shape[1] > 1:
            return F.linear(x, self.weight, self.bias)
        product = F.linear(x, self.codes.to(x.dtype)) * self.scale[:, 0]
        return product if self.bias is None else product + self.bias

    @classmethod
    def joined(cls, *layers: QuantizedLinear) -> QuantizedLinear:
        """Layers that read the same x in one product: their rows below each other.

        Raises ValueError unless all have the same bits and groups.
        """
        first = layers[0]
        if any((layer.bits, layer.group) != (first.bits, first.group) for layer in layers):
            raise ValueError(f"layers have {[(layer.bits, layer.group) for layer in layers]} bits and groups")
        whole = copy.copy(first)
        whole._buffers = {
            name: None if buffer is None else torch.cat([getattr(layer, name) for layer in layers])
            for name, buffer in first._buffers.items()
        }
        whole.out_features = sum(layer.out_features for layer in layers)
        return whole


def quantize(model: Model, bits: int = 8, group: int | None = None) -> Model:
    """A copy of the model whose linear layers are `QuantizedLinear`; embeddings, norms and biases stay as they are.

    The output's matrix is quantized as well, and no longer the embedding. For a group that does not divide a layer's
    width, and for other bits, it raises ValueError.
    """
    twin = copy.deepcopy(model)
    for parent in [*twin.modules()]:
        for name, child in [*parent.named_children()]:
            if type(child) is nn.Linear:
                setattr(parent, name, QuantizedLinear(child, bits, group))
    return twin.requires_grad_(requires_grad=False)


def size_in_bytes(model: nn.Module) -> int:
    """The bytes of all weights and buffers; what is tied counts once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()])


# ---- the cache ---------------------------------------------------------------------------------------------------


class QuantizedCache(Cache):
    """A cache in 8 bits: each key and each value, of one head at one position, is integers and a scale."""

    def extend(
        self, k: Float[Tensor, "batch head new d_head"], v: Float[Tensor, "batch head new d_head"]
    ) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_head"]]:
        """Quantizes and appends the new positions, and returns all. Raises ValueError when their batch size differs."""
        if self._kept and self._kept[0].shape[0] != k.shape[0]:
            raise ValueError(f"k holds {k.shape[0]} sequences; the cache holds {self._kept[0].shape[0]}")
        new, end = (*integers_and_scale(k), *integers_and_scale(v)), self.length + k.shape[2]
        if not self._kept or end > self._kept[0].shape[2]:
            self._kept = tuple(self._enlarged(which, tensor) for which, tensor in enumerate(new))
        for kept, tensor in zip(self._kept, new, strict=True):
            kept[:, :, self.length : end] = tensor
        self.length = end
        return self.seen()

    def seen(self) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_head"]]:
        """Keys and values of all positions so far, as floating-point numbers."""
        keys, key_scales, values, value_scales = (kept[:, :, : self.length] for kept in self._kept)
        return keys.to(key_scales.dtype) * key_scales, values.to(value_scales.dtype) * value_scales

    def bytes_per_position(self) -> float:
        """Of one sequence, with its scales."""
        return sum(kept[0].numel() * kept.element_size() / kept.shape[2] for kept in self._kept)


def quantized_cache(model: LanguageModel) -> AbstractContextManager[None]:
    """Inside, the model's new caches are in 8 bits: `with quantized_cache(model): generate(model, …)`."""
    return method_in_place([model.stack], "new_cache", _quantized_caches)


def _quantized_caches(stack: Stack) -> StackCache:
    return StackCache([BlockCache(QuantizedCache(), None) for _ in stack.blocks])
