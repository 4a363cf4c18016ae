"""The block of a Transformer, made of the parts that it is given, and stacks of blocks.

A part is a class or a function that makes one: a mixer moves information between positions, a feed-forward network
works on each alone, a norm keeps the residual stream in bounds, and a residual branch says where the norm stands.

Shapes: batch, time (source, target), d_model, d_ff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.attention.implementations import Implementation
from tfbook.attention.masks import Mask
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.positions import NOWHERE, POSITIONS, MakePosition, Position
from tfbook.attention.tuned import placed, placed_ahead
from tfbook.checks import check_dropout, check_heads, check_positive
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm
from tfbook.parts import Identity, Part

# ---- residual branches: where the norm stands --------------------------------------------------------------------


class PreNorm(nn.Module):
    """x + branch(norm(x)): nothing stands in the way of the residual stream (Xiong et al., 2020, figure 1b).

    Its sum grows from block to block, so a stack of them ends with a norm.
    """

    ends_with_norm = True

    def __init__(self, branch: Part, norm: Part, dropout: float = 0.0):
        super().__init__()
        self.branch = branch
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """What the branch finds is added to what was there; `context` goes to the branch."""
        return x + self.dropout(self.branch(self.norm(x), **context))


class PostNorm(PreNorm):
    """norm(x + branch(x)), as in the first Transformer (Vaswani et al., 2017, section 3.1)."""

    ends_with_norm = False

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """The sum itself is normalized."""
        return self.norm(x + self.dropout(self.branch(x, **context)))


# ---- sizes and parts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of a stack of blocks, and the parts that all of them are made of.

    `Config(norm=RMSNorm, feed_forward=SwiGLU, mixer=partial(GroupedQueryAttention, groups=2))`. The defaults look their
    class up when a block is made, so that one edited in a notebook takes its place.
    """

    d_model: int = 128
    heads: int = 4
    d_ff: int = 512
    layers: int = 2
    dropout: float = 0.0
    max_length: int = 256  # positions that a learned encoding has
    position: MakePosition = POSITIONS["sinusoidal"]  # (d_model, heads, max_length)
    mixer: Callable[..., Part] = lambda d_model, heads, dropout: MultiHeadAttention(d_model, heads, dropout=dropout)
    feed_forward: Callable[..., Part] = lambda d_model, d_ff, dropout: FeedForward(d_model, d_ff, dropout=dropout)
    norm: Callable[[int], Part] = lambda d_model: LayerNorm(d_model)
    residual: Callable[..., PreNorm] = lambda branch, norm, dropout: PreNorm(branch, norm, dropout)  # or PostNorm

    def __post_init__(self) -> None:
        names = ("d_model", "heads", "d_ff", "layers", "max_length")
        check_positive(**{name: getattr(self, name) for name in names})
        check_heads(self.d_model, self.heads)
        check_dropout(self.dropout)
        for name in ("position", "mixer", "feed_forward", "norm", "residual"):
            if not callable(part := getattr(self, name)):
                raise TypeError(f"{name} is {part!r}; expected a class or function that makes the part")

    def encoding(self) -> Position:
        """A new encoding of positions for one stack."""
        return self.position(self.d_model, self.heads, self.max_length)

    def branch(self, part: Part) -> PreNorm:
        """A residual branch around a part, with a norm of its own."""
        return self.residual(part, self.norm(self.d_model), self.dropout)


# ---- blocks ------------------------------------------------------------------------------------------------------


class BlockCache:
    """The caches of a block: of its mixer, and of the memory that its cross-attention reads, projected once."""

    def __init__(self, past: Any, memory: Any):
        self.past, self.memory = past, memory

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keeps the sequences `rows`, in that order."""
        for cache in (self.past, self.memory):
            if cache is not None:
                cache.select(rows)


class Block(nn.Module):
    """A mixer, cross-attention where there is a memory to read, and a feed-forward network: each a residual branch."""

    def __init__(self, config: Config, *, cross: bool = False):
        super().__init__()
        self.mixer = config.branch(config.mixer(config.d_model, config.heads, dropout=config.dropout))
        self.cross = None
        if cross:
            self.cross = config.branch(config.mixer(config.d_model, config.heads, dropout=config.dropout))
        self.feed_forward = config.branch(config.feed_forward(config.d_model, config.d_ff, dropout=config.dropout))

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

    def new_cache(self) -> BlockCache:
        """An empty cache of each part that keeps something."""
        return BlockCache(self.mixer.branch.new_cache(), None if self.cross is None else self.cross.branch.new_cache())

    def parameter_count(self) -> int:
        """That of the branches with their norms."""
        branches = [branch for branch in (self.mixer, self.cross, self.feed_forward) if branch is not None]
        return sum(part.parameter_count() for branch in branches for part in (branch.branch, branch.norm))

    def flops(self, time: int, *, past: int = 0, source: int | None = None, position: Position = NOWHERE) -> int:
        """For `time` positions behind `past` that are cached, reading a memory of `source` positions."""
        work = self.mixer.branch.flops(time, past=past, position=position) + self.feed_forward.branch.flops(time)
        return work if self.cross is None else work + self.cross.branch.flops(time, source=source)


class StackCache:
    """The caches of a stack of blocks; `length` positions have been read so far.

    The blocks change one after the other, so a call that stops halfway (an error, Ctrl-C) leaves caches that no longer
    fit together. From then on the cache is refused instead of giving wrong results.
    """

    def __init__(self, blocks: list[BlockCache]):
        self.blocks, self.length, self._changing = blocks, 0, False
        self._position: Position | None = None

    def placed(self, position: Position, time: int, device: torch.device) -> Position:
        """The stack's encoding for the next `time` positions; what was computed ahead for one serves the next."""
        if time > 1:
            return placed(position, self.length, time, device)
        self._position = placed_ahead(position, self.length, device, self._position)
        return self._position

    def begin(self) -> None:
        """Before the first block changes. Raises ValueError when an earlier change did not reach the last block."""
        if self._changing:
            after = f"after {self.length} positions"
            raise ValueError(f"cache was left half updated {after} by a call that did not finish; use a new cache")
        self._changing = True

    def finish(self, new: int = 0) -> None:
        """After the last block has changed: `new` more positions have been read."""
        self.length += new
        self._changing = False

    def select(self, rows: Int[Tensor, " kept"]) -> StackCache:
        """Keeps the sequences `rows`, in that order, and returns itself."""
        self.begin()
        for block in self.blocks:
            block.select(rows)
        self.finish()
        return self


class Stack(nn.Module):
    """Blocks one after the other under one encoding of positions; a last norm where each block begins with one.

    `embed_norm` is applied to the embeddings with their positions; BERT has a norm there.
    """

    def __init__(self, config: Config, *, cross: bool = False, embed_norm: Part | None = None):
        super().__init__()
        self.position = config.encoding()
        self.embed_norm = embed_norm or Identity()
        self.dropout = nn.Dropout(config.dropout)
        blocks = [Block(config, cross=cross) for _ in range(config.layers)]
        self.blocks: Any = nn.ModuleList(blocks)
        self.norm = config.norm(config.d_model) if blocks[0].mixer.ends_with_norm else Identity()

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
        start, time = 0 if cache is None else cache.length, x.shape[1]
        caches = [None] * len(self.blocks) if cache is None else cache.blocks
        position = (
            placed(self.position, 0, time, x.device) if cache is None else cache.placed(self.position, time, x.device)
        )
        x = self.dropout(self.embed_norm(self.position.add(x, start)))
        if cache is not None:
            cache.begin()
        for block, kept in zip(self.blocks, caches, strict=True):
            x = block(x, mask, memory=memory, memory_mask=memory_mask, position=position, cache=kept)
        x = self.norm(x)
        if cache is not None:
            cache.finish(x.shape[1])
        return x

    def new_cache(self) -> StackCache:
        """An empty cache for `forward`."""
        return StackCache([block.new_cache() for block in self.blocks])

    def parameter_count(self) -> int:
        """That of the positions, the norms and the blocks; one that stands there several times counts once."""
        positions = sum(weight.numel() for weight in self.position.parameters())
        blocks = sum(block.parameter_count() for block in dict.fromkeys(self.blocks))
        return positions + self.embed_norm.parameter_count() + blocks + self.norm.parameter_count()

    def flops(self, time: int, *, past: int = 0, source: int | None = None) -> int:
        """For one sequence of `time` positions behind `past` that are cached, reading a memory of `source`."""
        return sum(block.flops(time, past=past, source=source, position=self.position) for block in self.blocks)


def alternate(stack: Stack, *implementations: Implementation) -> Stack:
    """Gives the self-attention of each block the next of these implementations, over and over; returns the stack.

    `alternate(model.stack, fastest, Banded(256))`: dense and banded layers in turn, as in GPT-3 (Brown et al., 2020,
    section 2.1). Raises ValueError when there is none.
    """
    if not implementations:
        raise ValueError("implementations is empty; expected one or more")
    for block, implementation in zip(stack.blocks, cycle(implementations), strict=False):
        block.mixer.branch.implementation = implementation
    return stack


def init_weights(module: nn.Module) -> None:
    """BERT's and GPT-2's initialization: matrices from a normal distribution of width 0.02, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def on_paper(make: Callable[[], Any]) -> Any:
    """A model with shapes and no numbers, to count what it would hold and do; nothing is drawn at random."""
    with torch.device("meta"):
        return make()
