"""The block of a Transformer, made of the parts that it is given, and stacks of blocks.

A mixer moves information between positions, a feed-forward network works on each position alone, a norm keeps the
residual stream in bounds, and a residual branch decides whether the norm comes before or after.

Shapes: batch, time (source, target), d_model, d_ff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.attention.implementations import Implementation
from tfbook.attention.masks import Dense, Mask
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.positions import NOWHERE, MakePosition, Position, Starts
from tfbook.checks import check_dropout, check_heads, check_positive
from tfbook.models.config import Savable, as_part
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm
from tfbook.parts import Identity, Part, in_use

# ---- residual branches: norm before or after ---------------------------------------------------------------------


class PreNorm(nn.Module):
    """x + branch(norm(x)): the residual stream passes unchanged (Xiong et al., 2020, figure 1b).

    It grows from block to block, so a stack of such blocks ends with a norm.
    """

    ends_with_norm = True

    def __init__(self, branch: Part, norm: Part, dropout: float = 0.0):
        super().__init__()
        self.branch = branch
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """Adds the branch's output to x; `context` goes to the branch."""
        return x + self.dropout(self.branch(self.norm(x), **context))


class PostNorm(PreNorm):
    """norm(x + branch(x)), as in the first Transformer (Vaswani et al., 2017, section 3.1)."""

    ends_with_norm = False

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """Normalizes the sum; `context` goes to the branch."""
        return self.norm(x + self.dropout(self.branch(x, **context)))


# ---- sizes and parts ---------------------------------------------------------------------------------------------


MakePart = Callable[..., Any]  # a class, or a function, that makes a part
PARTS = ("position", "mixer", "feed_forward", "norm", "residual")


@dataclass(frozen=True, kw_only=True)
class Config(Savable):
    """Sizes of a stack of blocks, and the parts that all of them are made of.

    A part is given by its class, its name or a `partial` with options: `Config(norm=RMSNorm, feed_forward="SwiGLU",
    mixer=partial(GroupedQueryAttention, groups=2))`. Of several mixers in a tuple the layers take one each in turn:
    `Config(mixer=(Mamba, Mamba, MultiHeadAttention))` is a hybrid. Raises ValueError for impossible sizes and unknown
    names, and TypeError for a part that cannot be called.
    """

    d_model: int = 128
    heads: int = 4
    d_ff: int = 512
    layers: int = 2
    dropout: float = 0.0
    max_length: int = 256  # positions that a learned encoding has
    position: MakePosition | str = "sinusoidal"  # (d_model, heads, max_length); one of POSITIONS
    mixer: MakePart | str | tuple[MakePart | str, ...] = MultiHeadAttention  # (d_model, heads, dropout=…); or Mamba
    feed_forward: MakePart | str = FeedForward  # (d_model, d_ff, dropout=…); or SwiGLU, MixtureOfExperts
    norm: MakePart | str = LayerNorm  # (d_model); or RMSNorm
    residual: MakePart | str = PreNorm  # (branch, norm, dropout); or PostNorm

    def __post_init__(self) -> None:
        names = ("d_model", "heads", "d_ff", "layers", "max_length")
        check_positive(**{name: getattr(self, name) for name in names})
        check_heads(self.d_model, self.heads)
        check_dropout(self.dropout)
        for name in PARTS:
            object.__setattr__(self, name, as_part(name, getattr(self, name)))  # frozen for everyone else

    def make(self, part: str, *sizes: Any, **options: Any) -> Any:
        """A new part, `make("norm", 128)`: of the class that `runtime.use` has put in the place of the given one."""
        return in_use(getattr(self, part))(*sizes, **options)

    def of_layer(self, number: int) -> Config:
        """The config of one layer: of several mixers, the one whose turn it is."""
        if not isinstance(self.mixer, tuple):
            return self
        return replace(self, mixer=self.mixer[number % len(self.mixer)])

    def encoding(self) -> Position:
        """A new positional encoding for one stack."""
        return self.make("position", self.d_model, self.heads, self.max_length)

    def branch(self, part: Part) -> PreNorm:
        """A residual branch around a part, with a norm of its own."""
        return self.make("residual", part, self.make("norm", self.d_model), self.dropout)


# ---- blocks ------------------------------------------------------------------------------------------------------


class BlockCache:
    """The caches of a block: of its mixer, and of its cross-attention, which projects the memory once."""

    def __init__(self, past: Any, memory: Any):
        self.past, self.memory = past, memory

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keeps the sequences `rows`, in that order."""
        for cache in (self.past, self.memory):
            if cache is not None:
                cache.select(rows)


class Block(nn.Module):
    """A mixer, cross-attention if `cross`, and a feed-forward network, each in a residual branch."""

    def __init__(self, config: Config, *, cross: bool = False):
        super().__init__()
        sizes = config.d_model, config.heads
        self.mixer = config.branch(config.make("mixer", *sizes, dropout=config.dropout))
        self.cross = None
        if cross:
            self.cross = config.branch(config.make("mixer", *sizes, dropout=config.dropout))
        feed_forward = config.make("feed_forward", config.d_model, config.d_ff, dropout=config.dropout)
        self.feed_forward = config.branch(feed_forward)

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
        """`mask` is for self-attention, `memory_mask` for cross-attention to the memory.

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
        """An empty cache for each part that has one."""
        return BlockCache(self.mixer.branch.new_cache(), None if self.cross is None else self.cross.branch.new_cache())

    def parameter_count(self) -> int:
        """The parameters of the branches with their norms."""
        branches = [branch for branch in (self.mixer, self.cross, self.feed_forward) if branch is not None]
        return sum(part.parameter_count() for branch in branches for part in (branch.branch, branch.norm))

    def flops(self, time: int, *, past: int = 0, source: int | None = None, position: Position = NOWHERE) -> int:
        """For `time` positions after `past` cached ones, with a memory of `source` positions."""
        work = self.mixer.branch.flops(time, past=past, position=position) + self.feed_forward.branch.flops(time)
        return work if self.cross is None else work + self.cross.branch.flops(time, source=source)


class StackCache:
    """The caches of a stack of blocks; `length` positions have been read so far.

    The blocks change one after the other, so a call that stops halfway (an error, Ctrl-C) leaves caches of different
    lengths. Later calls then refuse the cache instead of computing wrong results.

    Texts of different lengths end together: `padding` positions in front of each belong to none and are seen by none.
    """

    def __init__(self, blocks: list[BlockCache]):
        self.blocks, self._changing = blocks, False
        self.length: Any = 0
        self.position: Position | None = None  # of the last call, with what was computed ahead
        self.padding: Int[Tensor, " batch"] | None = None

    def start(self) -> Starts:
        """The position of the next token in its text, which does not count the padding."""
        return self.length if self.padding is None else self.length - self.padding[:, None]

    def mask(self, mask: Mask | None, time: int) -> Mask | None:
        """The mask of `time` new positions: the one that is given, and no padding."""
        if mask is None or self.padding is None:
            return mask
        keys = self.length + time
        return self.without_padding(mask.dense(time, keys, self.padding.device))

    def without_padding(self, allowed: Bool[Tensor, "*#batch query key"]) -> Dense:
        """The allowed keys of each sequence, without its padding."""
        if self.padding is None:
            return Dense(allowed)
        places = torch.arange(allowed.shape[-1], device=allowed.device)
        return Dense(allowed & (places >= self.padding[:, None])[:, None, None])

    def begin(self) -> None:
        """Called before the first block changes. Raises ValueError when an earlier change did not reach the last."""
        if self._changing:
            after = f"after {self.length} positions"
            raise ValueError(f"cache was left half updated {after} by a call that did not finish; use a new cache")
        self._changing = True

    def finish(self, new: int = 0) -> None:
        """Called after the last block has changed, with `new` more positions read."""
        self.length += new  # in place where it is a tensor that the layers share
        self._changing = False

    def select(self, rows: Int[Tensor, " kept"]) -> StackCache:
        """Keeps the sequences `rows`, in that order, and returns itself."""
        self.begin()
        for block in self.blocks:
            block.select(rows)
        self.padding = None if self.padding is None else self.padding[rows]
        self.finish()
        return self


class Stack(nn.Module):
    """Blocks one after the other that share a positional encoding; with pre-norm blocks, a norm at the end.

    `embed_norm` is applied to the sum of embeddings and positions, as in BERT.
    """

    def __init__(self, config: Config, *, cross: bool = False, embed_norm: Part | None = None):
        super().__init__()
        self.position = config.encoding()
        self.embed_norm = embed_norm or Identity()
        self.dropout = nn.Dropout(config.dropout)
        blocks = [Block(config.of_layer(number), cross=cross) for number in range(config.layers)]
        self.blocks: Any = nn.ModuleList(blocks)
        self.norm = config.make("norm", config.d_model) if blocks[0].mixer.ends_with_norm else Identity()

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        mask: Mask | None = None,
        *,
        memory: Float[Tensor, "batch source d_model"] | None = None,
        memory_mask: Mask | None = None,
        cache: StackCache | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """From embeddings to contextual vectors; with a cache, x holds the newest positions alone."""
        start, earlier = (0, None) if cache is None else (cache.length, cache.position)
        caches = [None] * len(self.blocks) if cache is None else cache.blocks
        position = self.position.prepared(start, x.shape[1], x.device, earlier)
        x = self.dropout(self.embed_norm(self.position.add(x, start if cache is None else cache.start())))
        if cache is not None:
            mask = cache.mask(mask, x.shape[1])
            cache.begin()
        for block, kept in zip(self.blocks, caches, strict=True):
            x = block(x, mask, memory=memory, memory_mask=memory_mask, position=position, cache=kept)
        x = self.norm(x)
        if cache is not None:
            cache.position = position
            cache.finish(x.shape[1])
        return x

    def new_cache(self) -> StackCache:
        """An empty cache for `forward`."""
        return StackCache([block.new_cache() for block in self.blocks])

    def parameter_count(self) -> int:
        """The parameters of positions, norms and blocks; a block that is used several times counts once."""
        positions = sum(weight.numel() for weight in self.position.parameters())
        blocks = sum(block.parameter_count() for block in dict.fromkeys(self.blocks))
        return positions + self.embed_norm.parameter_count() + blocks + self.norm.parameter_count()

    def flops(self, time: int, *, past: int = 0, source: int | None = None) -> int:
        """For one sequence of `time` positions after `past` cached ones, with a memory of `source` positions."""
        return sum(block.flops(time, past=past, source=source, position=self.position) for block in self.blocks)


def alternate(stack: Stack, *implementations: Implementation) -> Stack:
    """Gives the blocks' self-attention these implementations in turn, repeating them; returns the stack.

    `alternate(model.stack, fastest, Banded(256))`: dense and banded layers in turn, as in GPT-3 (Brown et al., 2020,
    section 2.1). Raises ValueError when there is none.
    """
    if not implementations:
        raise ValueError("implementations is empty; expected one or more")
    for block, implementation in zip(stack.blocks, cycle(implementations), strict=False):
        block.mixer.branch.implementation = implementation
    return stack


def init_weights(module: nn.Module) -> None:
    """BERT's and GPT-2's initialization: normal weights with standard deviation 0.02, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def on_paper(make: Callable[[], Any]) -> Any:
    """A model on the meta device, to count parameters and operations without memory or random numbers."""
    with torch.device("meta"):
        return make()
