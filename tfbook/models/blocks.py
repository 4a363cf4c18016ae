"""The block of a Transformer, made of the parts it is given, and stacks of blocks.

Shapes: batch, time (source, target), d_model, d_ff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.cache import BlockCache, StackCache
from tfbook.attention.implementations import Implementation
from tfbook.attention.masks import Mask
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.positions import NOWHERE, POSITIONS, Position
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of a stack of blocks and the choices that all of them share."""

    d_model: int = 128
    heads: int = 4
    d_ff: int = 512
    layers: int = 2
    dropout: float = 0.0
    position: str = "sinusoidal"  # a key of `tfbook.attention.positions.POSITIONS`
    longest: int = 256  # positions that a learned encoding has
    pre_norm: bool = True  # False: the norm follows the sum, as in Vaswani et al. (2017)
    activation: Callable[[Tensor], Tensor] = F.relu
    epsilon: float = 1e-5  # beside the variance in every layer norm
    attention_bias: bool = True  # False: W_Q, W_K, W_V and W_O are matrices alone, as in Llama

    def __post_init__(self) -> None:
        for name in ("d_model", "heads", "d_ff", "layers", "longest"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.d_model % self.heads:
            raise ValueError(f"heads is {self.heads} and d_model is {self.d_model}; expected heads to divide d_model")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; expected 0 ≤ dropout < 1")
        if self.position not in POSITIONS:
            raise ValueError(f"position is {self.position!r}; expected one of {', '.join(map(repr, POSITIONS))}")

    def encoding(self) -> Position:
        """A new encoding of positions for one stack."""
        return POSITIONS[self.position](self.d_model, self.heads, self.longest)


class Residual(nn.Module):
    """x + branch(norm(x)), or norm(x + branch(x)) where the norm comes after (Vaswani et al., 2017, section 3.1)."""

    def __init__(self, branch: nn.Module, sizes: Config):
        super().__init__()
        self.branch = branch
        self.norm = LayerNorm(sizes.d_model, epsilon=sizes.epsilon)
        self.dropout = nn.Dropout(sizes.dropout)
        self.pre_norm = sizes.pre_norm

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: object) -> Float[Tensor, "batch time d_model"]:
        """What the branch finds is added to what was there; `context` goes to the branch."""
        if self.pre_norm:
            return x + self.dropout(self.branch(self.norm(x), **context))
        return self.norm(x + self.dropout(self.branch(x, **context)))


class Block(nn.Module):
    """Self-attention, cross-attention where there is a memory to read, feed-forward: each a residual branch."""

    def __init__(self, sizes: Config, *, cross: bool = False):
        super().__init__()

        def attention() -> Residual:
            layer = MultiHeadAttention(sizes.d_model, sizes.heads, dropout=sizes.dropout, bias=sizes.attention_bias)
            return Residual(layer, sizes)

        self.mixer = attention()
        self.cross = attention() if cross else None
        feed_forward = FeedForward(sizes.d_model, sizes.d_ff, activation=sizes.activation, dropout=sizes.dropout)
        self.feed_forward = Residual(feed_forward, sizes)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        mask: Mask | None = None,
        *,
        memory: Float[Tensor, "batch source d_model"] | None = None,
        memory_mask: Mask | None = None,
        position: Position = NOWHERE,
        cache: BlockCache | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """`mask` says what x may see of itself and `memory_mask` what it may see of the memory.

        Raises ValueError when a memory is missing where the block reads one, or given where it reads none.
        """
        if (memory is None) != (self.cross is None):
            found, reads = ("missing", "one") if memory is None else ("given", "none")
            raise ValueError(f"memory is {found}; this block reads {reads}")
        past, read = (None, None) if cache is None else (cache.past, cache.memory)
        x = self.mixer(x, mask=mask, position=position, cache=past)
        if self.cross is not None:
            x = self.cross(x, key=memory, mask=memory_mask, cache=read)
        return self.feed_forward(x)


class Stack(nn.Module):
    """Blocks one after the other under one encoding of positions; a last norm where each block begins with one.

    `enter` is applied to the embeddings with their positions; BERT has a norm there.
    """

    def __init__(self, sizes: Config, *, cross: bool = False, enter: nn.Module | None = None):
        super().__init__()
        self.position = sizes.encoding()
        self.enter = enter or nn.Identity()
        self.dropout = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(Block(sizes, cross=cross) for _ in range(sizes.layers))
        self.norm = LayerNorm(sizes.d_model, epsilon=sizes.epsilon) if sizes.pre_norm else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        mask: Mask | None = None,
        *,
        memory: Float[Tensor, "batch source d_model"] | None = None,
        memory_mask: Mask | None = None,
        cache: StackCache | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """From embeddings to vectors that have read one another; with a cache, x holds the newest positions alone."""
        caches = [None] * len(self.blocks) if cache is None else cache.blocks
        x = self.dropout(self.enter(self.position.add(x, 0 if cache is None else cache.length)))
        for block, kept in zip(self.blocks, caches, strict=True):
            x = block(x, mask, memory=memory, memory_mask=memory_mask, position=self.position, cache=kept)
        return self.norm(x)


def alternate(stack: Stack, *implementations: Implementation) -> Stack:
    """Gives the self-attention of each block the next of these implementations, over and over, and returns the stack.

    `alternate(model.stack, fastest, Banded(256))`: dense and banded layers in turn, as in GPT-3 (Brown et al., 2020,
    section 2.1). Raises ValueError when there is no implementation.
    """
    if not implementations:
        raise ValueError("implementations is empty; expected one or more")
    for block, implementation in zip(stack.blocks, cycle(implementations), strict=False):
        block.mixer.branch.implementation = implementation
    return stack
