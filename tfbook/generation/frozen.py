"""A language model for generating alone: the same function without what only training needs.

A token of a small model costs calls more than arithmetic, and one of a large model costs the reading of its weights
from memory more than either. So a frozen model makes fewer calls and larger products, and may keep its matrices in
fewer bits. Shapes: batch, time, d_model.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.cache import Cache
from tfbook.attention.implementations import PLAIN_CAUSAL, fastest, fused, softmax
from tfbook.attention.masks import Causal
from tfbook.attention.multi_head import MultiHeadAttention, merge_heads
from tfbook.attention.positions import Position
from tfbook.models.blocks import Block, BlockCache, PreNorm, Stack, StackCache
from tfbook.models.feed_forward import FeedForward
from tfbook.models.language_model import LanguageModel
from tfbook.models.norms import LayerNorm, RMSNorm
from tfbook.parts import Identity


class Frozen(LanguageModel):
    """A copy of `model` that generates faster: for the device it is on, without gradients, deaf to later training.

    Its matrices are kept and multiplied in `dtype`, all else in float32. Half the bits are half of what a token reads
    from memory: float16 keeps 11 bits of a number and ends at 65,504, bfloat16 keeps 8 and float32's range. Raises
    ValueError for a model that sees both ways, and for a part of another type than those that are rewritten here.
    """

    def __init__(self, model: LanguageModel, dtype: torch.dtype = torch.float32):
        nn.Module.__init__(self)
        if type(model.mask) is not PLAIN_CAUSAL:  # one query alone sees all
            raise ValueError(f"model, a {type(model).__name__}, has the mask {model.mask}; expected Causal()")
        self.embed = copy.deepcopy(model.embed).requires_grad_(requires_grad=False)
        stack = copy.deepcopy(model.stack).requires_grad_(requires_grad=False)
        self.stack = cast(Stack, FrozenStack(stack, dtype))  # in its place
        self.unembed = cast(nn.Linear, Product(model.unembed, dtype=dtype))
        self.eval()


def expect(what: str, part: Any, *kinds: type) -> None:
    """Raises ValueError unless the part is of one of these types itself; a subclass may compute anything."""
    if type(part) not in kinds:
        known = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{what} is a {type(part).__name__}; a frozen model knows {known} alone")


class Product(nn.Module):
    """x Wᵀ + b with W and b kept in `dtype`, whatever x comes in; layers that read the same x are one product."""

    def __init__(self, *layers: nn.Linear, dtype: torch.dtype):
        super().__init__()
        for layer in layers:
            expect("a linear layer", layer, nn.Linear)
        self.out_features = sum(layer.out_features for layer in layers)
        self.weight = torch.cat([layer.weight for layer in layers]).detach().to(dtype)
        self.bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers]).detach().to(dtype)

    def forward(self, x: Float[Tensor, "batch time d_in"]) -> Float[Tensor, "batch time d_out"]:
        """Multiplied in `dtype`, handed back in x's."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).to(x.dtype)


class FrozenBlock:
    """What a `Block` computes in eval mode: one product for queries, keys and values, no dropout, no checks.

    Raises ValueError when the block reads a memory, and for a part or an implementation of attention that it does not
    know.
    """

    def __init__(self, block: Block, dtype: torch.dtype):
        expect("a block", block, Block)
        if block.cross is not None:
            raise ValueError("block reads a memory; expected one without cross-attention")
        for branch in (block.mixer, block.feed_forward):
            expect("a residual branch", branch, PreNorm)
            expect("a norm", branch.norm, LayerNorm, RMSNorm)
        expect("a mixer", block.mixer.branch, MultiHeadAttention)
        expect("a feed-forward network", block.feed_forward.branch, FeedForward)
        attention = cast(MultiHeadAttention, block.mixer.branch)
        feed_forward = cast(FeedForward, block.feed_forward.branch)
        if attention.implementation not in (fastest, fused, softmax):
            found = f"block has the implementation {attention.implementation}"
            raise ValueError(f"{found}; expected fastest, fused or softmax")
        self.heads, self.activation = attention.heads, feed_forward.activation
        self.norms = block.mixer.norm, block.feed_forward.norm
        # `forward` itself, since to call a module takes as long as a small product
        self.read = Product(attention.W_Q, attention.W_K, attention.W_V, dtype=dtype).forward
        self.write = Product(attention.W_O, dtype=dtype).forward
        self.up = Product(feed_forward.up, dtype=dtype).forward
        self.down = Product(feed_forward.down, dtype=dtype).forward

    def forward(
        self, x: Float[Tensor, "batch time d_model"], mask: Causal, position: Position, cache: Cache
    ) -> Float[Tensor, "batch time d_model"]:
        """x continues what the cache has read."""
        (batch, time, _), start = x.shape, cache.length
        heads = self.read(self.norms[0].forward(x)).view(batch, time, 3 * self.heads, -1).transpose(1, 2)
        qk, v = heads.split((2 * self.heads, self.heads), dim=1)
        q, k = position.rotate(qk, start).chunk(2, dim=1)
        k, v = cache.extend(k, v)
        bias = position.bias(q, k.shape[2])
        alone = time == 1  # the newest position sees all
        mixed = F.scaled_dot_product_attention(q, k, v, bias) if alone else fastest(q, k, v, mask, bias)
        x = x + self.write(merge_heads(mixed))
        return x + self.down(self.activation(self.up(self.norms[1].forward(x))))


class FrozenStack(nn.Module):
    """`Stack` with its blocks frozen; raises ValueError for what `FrozenBlock` refuses and for a norm it lacks."""

    def __init__(self, stack: Stack, dtype: torch.dtype):
        super().__init__()
        expect("the stack", stack, Stack)
        expect("the norm of the embeddings", stack.embed_norm, Identity)
        expect("the last norm", stack.norm, LayerNorm, RMSNorm)
        self.position, self.norm = stack.position, stack.norm
        self.blocks = [FrozenBlock(block, dtype) for block in stack.blocks]

    def forward(
        self, x: Float[Tensor, "batch time d_model"], mask: Causal, *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """As `Stack.forward`."""
        cache = self.new_cache() if cache is None else cache
        position = cache.placed(self.position, x.shape[1], x.device)
        x = self.position.add(x, cache.length)
        cache.begin()
        for block, kept in zip(self.blocks, cache.blocks, strict=True):
            x = block.forward(x, mask, position, kept.past)
        x = self.norm(x)
        cache.finish(x.shape[1])
        return x

    def new_cache(self) -> StackCache:
        """An empty cache, as that of `Stack`."""
        return StackCache([BlockCache(Cache(), None) for _ in self.blocks])
