"""The weights of a GPT as model.js reads them, and a refusal of every model that it does not compute."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.attention.implementations import fastest, fused, softmax
from tfbook.attention.masks import Causal
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.positions import Learned, Rotary
from tfbook.models.blocks import PreNorm
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GELU, Gpt
from tfbook.models.norms import LayerNorm
from tfbook.parts import Identity, expect

LEVELS = 63  # 127 would be 60 kB more on the wire; the storyteller is less than 0.001 nats off as it is
_expect = partial(expect, "a page computes")


def check_computable(model: nn.Module) -> None:
    """Raises ValueError for the first part of a model that model.js does not compute as PyTorch does."""
    _expect("the model", model, Gpt)
    assert isinstance(model, Gpt)
    _expect("its mask", model.mask, Causal)
    _expect("its positional encoding", model.stack.position, Learned, Rotary)
    _expect("its last norm", model.stack.norm, LayerNorm)
    _expect("the norm of its embeddings", model.stack.embed_norm, Identity)
    if model.unembed.weight is not model.embed.weight:
        raise ValueError("the output matrix is not the embedding; a page has one matrix for both")
    for block in model.stack.blocks:
        _check_block(block)


def _check_block(block: Any) -> None:
    for branch in (block.mixer, block.feed_forward):
        _expect("a residual branch", branch, PreNorm)
        _expect("a norm", branch.norm, LayerNorm)
    if block.cross is not None:
        _expect("cross-attention", block.cross, type(None))
    mixer, feed_forward = block.mixer.branch, block.feed_forward.branch
    _expect("a mixer", mixer, MultiHeadAttention)
    _expect("a feed-forward network", feed_forward, FeedForward)
    for linear in (mixer.W_Q, mixer.W_K, mixer.W_V, mixer.W_O, feed_forward.up, feed_forward.down):
        _expect("a linear layer", linear, nn.Linear)
    if mixer.implementation not in (fastest, fused, softmax):
        raise ValueError(f"attention is computed by {mixer.implementation}; a page computes it exactly, by a softmax")
    if feed_forward.activation != GELU:
        raise ValueError(
            f"the activation is {feed_forward.activation}; a page knows GPT-2's GELU, tanh's approximation"
        )


def sizes(model: Gpt, longest: int) -> dict[str, int | float | None]:
    """The numbers that a `Gpt` of model.js is made with; `longest` is how many tokens it may see at once."""
    position = model.stack.position
    return {
        "layers": len(model.stack.blocks),
        "heads": model.stack.blocks[0].mixer.branch.heads,
        "width": model.embed.embedding_dim,
        "longest": longest,
        "epsilon": model.stack.norm.eps,
        "rotaryBase": position.base if isinstance(position, Rotary) else None,
    }


def stored_bytes(weight: Tensor, bits: int) -> bytes:
    """A weight in half precision as model.js unpacks it: in 16 bits as it is, in 8 bits a matrix row by row.

    A row is then its scale, max |w| / `LEVELS`, in half precision, and behind all scales the whole numbers w / scale.
    """
    if bits == 16 or weight.dim() == 1:
        return weight.numpy().astype("<f2").tobytes()
    scales = (weight.float().abs().amax(dim=1) / LEVELS).half().clamp(min=torch.finfo(torch.half).tiny)
    whole = (weight.float() / scales.float()[:, None]).round().clamp(-LEVELS, LEVELS)
    return scales.numpy().astype("<f2").tobytes() + whole.to(torch.int8).numpy().tobytes()


def halves(model: Gpt) -> dict[str, Tensor]:
    """Each weight by its name, in half precision, the tied embedding once.

    Raises ValueError for NaN, infinity and numbers beyond half precision's 65,504.
    """
    weights = {name: weight.detach().cpu().half() for name, weight in model.state_dict().items()}
    del weights["unembed.weight"]
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise ValueError(f"{name} holds NaN or a number beyond 65,504, where half precision ends")
    return weights
