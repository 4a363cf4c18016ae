"""The same functions with less work, chosen from outside, so that layers stay as lessons show them.

`training.fit` joins projections, a stack turns positions once for all of its layers. What is edited or subclassed
computes as it says. Measured in benchmarks/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.multi_head import MultiHeadAttention, split_heads
from tfbook.attention.positions import Position, Rotary, places

# ---- projections ------------------------------------------------------------------------------------------------


def project_together(
    layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`MultiHeadAttention.project` under autocast: what several layers read is cast once, and multiplied once."""
    kind = query.device.type
    if not torch.is_autocast_enabled(kind):
        return MultiHeadAttention.project(layer, query, key, value)
    layers, dtype = (layer.W_Q, layer.W_K, layer.W_V), torch.get_autocast_dtype(kind)
    if not query is key is value:
        inputs = {id(x): x.to(dtype) for x in (query, key, value)}
        q, k, v = (linear(inputs[id(x)]) for linear, x in zip(layers, (query, key, value), strict=True))
        return split_heads(q, layer.heads), split_heads(k, layer.heads), split_heads(v, layer.heads)
    weight = torch.cat([linear.weight for linear in layers])
    bias = None if layer.W_Q.bias is None else torch.cat([linear.bias for linear in layers])
    side_by_side = F.linear(query.to(dtype), weight, bias).unflatten(-1, (3, layer.heads, -1))
    q, k, v = side_by_side.permute(2, 0, 3, 1, 4).unbind()
    return q, k, v


@contextmanager
def joined_projections(model: nn.Module) -> Iterator[None]:
    """Inside, the multi-head attention layers of `model` project by `project_together`.

    Only those whose type and linear layers are the known ones: a subclass or an edited layer computes as it says.
    """
    known = [layer for layer in model.modules() if type(layer) is MultiHeadAttention and _plain(layer)]
    for layer in known:
        layer.project = partial(project_together, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in known:
            del layer.project


def _plain(layer: MultiHeadAttention) -> bool:
    return all(type(linear) is nn.Linear for linear in (layer.W_Q, layer.W_K, layer.W_V))


# ---- rotary positions --------------------------------------------------------------------------------------------

PLAIN_ROTATION = Rotary.rotate  # by this name, so that an edited `Rotary` or a subclass with its own is left alone


class Rotation(Position):
    """Rotary positions from `start` on with their cosines and sines at hand."""

    def __init__(self, angles: Float[Tensor, "time half"], start: int):
        super().__init__()
        self.start = start
        cos, sin = angles.cos(), angles.sin()
        self.cos, self.sin = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: int = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """`positions.turned`, as x · cos + (x with its halves exchanged) · sin."""
        cos, sin, time = self.cos.to(x.dtype), self.sin.to(x.dtype), x.shape[2]
        if start != self.start or time != len(cos):  # a slice costs as much as a product
            rows = slice(start - self.start, start - self.start + time)
            cos, sin = cos[rows], sin[rows]
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


AHEAD = 64  # positions that a decoder's rotations are computed for at once


class RotationAhead(Position):
    """The rotations of the next positions as matrices: in decoding, one product per layer in place of four calls."""

    def __init__(self, rotary: Rotary, start: int, device: torch.device):
        super().__init__()
        self.rotary, self.start = rotary, start
        angles = rotary.angles(places(start, AHEAD, device)).repeat(1, 2)[:, None]
        keep = torch.eye(angles.shape[-1], device=device)
        first, second = keep.chunk(2)
        self.matrices = keep * angles.cos() + torch.cat([second, -first]) * angles.sin()

    def rotate(self, x: Float[Tensor, "batch head 1 d_head"], start: int = 0) -> Float[Tensor, "batch head 1 d_head"]:
        """`positions.turned` for the single position `start`, as a product from the right."""
        return x @ self.matrices[start - self.start].to(x.dtype)

    def serves(self, position: Position, start: int) -> bool:
        """Whether it holds that encoding's rotation for position `start`."""
        return self.rotary is position and self.start <= start < self.start + AHEAD


def placed(position: Position, start: int, time: int, device: torch.device) -> Position:
    """The same encoding for `time` positions from `start` on; of a rotary one the angles are computed here, once."""
    if not _plain_rotary(position):
        return position
    return Rotation(position.angles(places(start, time, device)), start)


def placed_ahead(position: Position, start: int, device: torch.device, earlier: Position | None) -> Position:
    """`placed` for one position of a decoder; what the call before returned (`earlier`) serves while it reaches."""
    if not _plain_rotary(position):
        return position
    if isinstance(earlier, RotationAhead) and earlier.serves(position, start):
        return earlier
    return RotationAhead(position, start, device)


def _plain_rotary(position: Position) -> TypeGuard[Rotary]:
    return isinstance(position, Rotary) and type(position).rotate is PLAIN_ROTATION
