"""The translator that the lesson builds from plain layers, with one part taken out of it before it is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class Chained(nn.Module):
    """A block of the page whose layers replace the stream: each reads what the one before has made of it."""

    def __init__(self, block: Any):
        super().__init__()
        self.block = block

    def forward(
        self,
        x: Float[Tensor, "batch n d"],
        mask: Tensor,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Float[Tensor, "batch n d"]:
        """An encoder's block, or with a memory a decoder's."""
        block = self.block
        if memory is None:
            y = block.attend(block.norms[0](x), mask=mask)
        else:
            y = block.attend(block.first_norm(x), mask=mask)
            y = block.look_back(block.norms[0](y), context=memory, mask=memory_mask)
        return block.feed_forward(block.norms[1](y))


class AddsNothing(nn.Module):
    """A layer of the page whose place in the stream is empty."""

    def forward(self, x: Float[Tensor, "batch n d"], **context: Any) -> Float[Tensor, "batch n d"]:
        """Zeros."""
        return torch.zeros_like(x)


class SeesAll(nn.Module):
    """Self-attention whose mask lets every word be seen that anyone may see, so that only padding stays hidden."""

    def __init__(self, attention: Any):
        super().__init__()
        self.attention = attention

    def forward(
        self, x: Float[Tensor, "batch n d"], *, mask: Bool[Tensor, "batch 1 n n"]
    ) -> Float[Tensor, "batch n d"]:
        """Attends to later words as well."""
        return self.attention(x, mask=mask.any(dim=-2, keepdim=True))


class Unplaced(nn.Module):
    """An embedding of the page without its sinusoids."""

    def __init__(self, embedding: Any):
        super().__init__()
        self.weight = embedding.weight

    def forward(self, ids: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n d"]:
        """The words' vectors times √d."""
        return math.sqrt(self.weight.shape[-1]) * self.weight[ids]


# ---- one part less ---------------------------------------------------------------------------------------------------


def take_out(model: Any, part: str) -> Any:
    """The page's untrained translator after the removal of a part, which is one of `REMOVALS`.

    Raises ValueError for any other part.
    """
    if part not in REMOVALS:
        raise ValueError(f"part is {part!r}; expected one of {', '.join(map(repr, REMOVALS))}")
    REMOVALS[part](model)
    return model


def _blocks(model: Any) -> Iterator[Any]:
    yield from model.encoder.blocks
    yield from model.decoder.blocks


def _no_residuals(model: Any) -> None:
    for half in (model.encoder, model.decoder):
        half.blocks = nn.ModuleList(map(Chained, half.blocks))


def _no_norms(model: Any) -> None:
    for block in _blocks(model):
        block.norms = nn.ModuleList([nn.Identity(), nn.Identity()])
    for block in model.decoder.blocks:
        block.first_norm = nn.Identity()


def _no_norms_at_all(model: Any) -> None:
    _no_norms(model)
    for half in (model.encoder, model.decoder):
        half.norm = nn.Identity()


def _no_feed_forward(model: Any) -> None:
    for block in _blocks(model):
        block.feed_forward = AddsNothing()


def _no_self_attention(model: Any) -> None:
    for block in _blocks(model):
        block.attend = AddsNothing()


def _no_cross_attention(model: Any) -> None:
    for block in model.decoder.blocks:
        block.look_back = AddsNothing()


def _no_causal_mask(model: Any) -> None:
    for block in model.decoder.blocks:
        block.attend = SeesAll(block.attend)


def _no_positions(model: Any) -> None:
    for half in (model.encoder, model.decoder):
        half.embed = Unplaced(half.embed)


REMOVALS: dict[str, Callable[[Any], None]] = {
    "residuals": _no_residuals,
    "norms": _no_norms,
    "all norms": _no_norms_at_all,
    "feed-forward": _no_feed_forward,
    "causal mask": _no_causal_mask,
    "self-attention": _no_self_attention,
    "cross-attention": _no_cross_attention,
    "positions": _no_positions,
}
