"""The Transformer: blocks, stacks of them, and the models that need nothing else.

Shapes: batch, time (source, target), d_model, d_ff, vocab.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import MultiHeadAttention
from tfbook.cache import BlockCache, StackCache
from tfbook.masks import Causal, Lengths, Mask
from tfbook.positions import NOWHERE, POSITIONS, Position
from tfbook.seq2seq import Decoded, check_ids


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a stack of blocks and the choices that all of them share."""

    d_model: int = 128
    heads: int = 4
    d_ff: int = 512
    layers: int = 2
    dropout: float = 0.0
    position: str = "sinusoidal"  # a key of `tfbook.positions.POSITIONS`
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


# ---- the parts of a block ----------------------------------------------------------------------------------------


class FeedForward(nn.Module):
    """FFN(x) = activation(x W₁ + b₁) W₂ + b₂, the same for each position (Vaswani et al., 2017, section 3.3)."""

    def __init__(
        self, d_model: int, d_ff: int, *, activation: Callable[[Tensor], Tensor] = F.relu, dropout: float = 0.0
    ):
        super().__init__()
        self.widen = nn.Linear(d_model, d_ff)
        self.narrow = nn.Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
        """No position sees another: what moves information between positions is attention alone."""
        return self.narrow(self.dropout(self.activation(self.widen(x))))


def layer_norm(
    x: Float[Tensor, "*rows d_model"],
    gain: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    epsilon: float = 1e-5,
) -> Float[Tensor, "*rows d_model"]:
    """gain · (x − mean) / √(variance + ε) + shift; mean and variance are each vector's own (Ba et al., 2016, eq. 4)."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return gain * centred / (variance + epsilon).sqrt() + shift


class LayerNorm(nn.Module):
    """`layer_norm` with a trained gain and shift, computed by PyTorch's fused version of the same formula."""

    def __init__(self, d_model: int, *, epsilon: float = 1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Each vector gets mean 0 and variance 1, then a gain and a shift for each coordinate."""
        return F.layer_norm(x, self.gain.shape, self.gain, self.shift, self.epsilon)


class Residual(nn.Module):
    """x + branch(norm(x)), or norm(x + branch(x)) where the norm comes after (Vaswani et al., 2017, section 3.1)."""

    def __init__(self, branch: nn.Module, sizes: Sizes):
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

    def __init__(self, sizes: Sizes, *, cross: bool = False):
        super().__init__()

        def attention() -> Residual:
            layer = MultiHeadAttention(sizes.d_model, sizes.heads, dropout=sizes.dropout, bias=sizes.attention_bias)
            return Residual(layer, sizes)

        self.attention = attention()
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
        x = self.attention(x, mask=mask, position=position, cache=past)
        if self.cross is not None:
            x = self.cross(x, key=memory, mask=memory_mask, cache=read)
        return self.feed_forward(x)


class Stack(nn.Module):
    """Blocks one after the other under one encoding of positions; a last norm where each block begins with one.

    `enter` is applied to the embeddings with their positions; BERT has a norm there.
    """

    def __init__(self, sizes: Sizes, *, cross: bool = False, enter: nn.Module | None = None):
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


class Words(nn.Embedding):
    """√d_model times a table whose entries begin with variance 1 / d_model, so that it may be the output's matrix, too.

    (Vaswani et al., 2017, section 3.4.)
    """

    def __init__(self, vocab: int, d_model: int):
        super().__init__(vocab, d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """The vector of each word. Raises ValueError for ids outside the vocabulary."""
        check_ids("ids", ids, self.num_embeddings)
        return math.sqrt(self.embedding_dim) * super().forward(ids)


# ---- language models ---------------------------------------------------------------------------------------------


class LanguageModel(nn.Module):
    """p(next | ids so far): words, a causal stack, and the table of words again as the output's matrix."""

    mask: Mask | None = Causal()

    def __init__(self, vocab: int, sizes: Sizes):
        super().__init__()
        self.embed = Words(vocab, sizes.d_model)
        self.stack = Stack(sizes)
        self.vocabulary = nn.Linear(sizes.d_model, vocab, bias=False)
        self.vocabulary.weight = self.embed.weight

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits for the word after each; with a cache, `ids` continue what it has read."""
        return self.vocabulary(self.stack(self.embed(ids), self.mask, cache=cache))

    def cache(self) -> StackCache:
        """An empty cache for `forward`."""
        return StackCache(len(self.stack.blocks))


class BidirectionalModel(LanguageModel):
    """The same with every position in sight: for words that are hidden, not for words that come next."""

    mask = None


# ---- encoder and decoder -----------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """What the encoder leaves for the decoder: a vector for each source word, and how many there are."""

    states: Float[Tensor, "batch source d_model"]
    lengths: Int[Tensor, " batch"]

    def select(self, rows: Int[Tensor, " kept"]) -> Memory:
        """The memory of the sentences `rows`, in that order."""
        return Memory(self.states[rows], self.lengths[rows])


class Encoder(nn.Module):
    """Every source word reads every other (Vaswani et al., 2017, section 3.1)."""

    def __init__(self, vocab: int, sizes: Sizes):
        super().__init__()
        self.embed = Words(vocab, sizes.d_model)
        self.stack = Stack(sizes)

    def forward(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Memory:
        """Reads each sentence up to its length.

        Raises ValueError unless there is one length for each, from 0 to the width of `source`.
        """
        if len(lengths) != len(source):
            raise ValueError(f"lengths holds {len(lengths)} numbers; expected one for each of {len(source)} sentences")
        return Memory(self.stack(self.embed(source), Lengths(lengths)), lengths)


class Decoder(nn.Module):
    """Every target word reads those before it and all of the source (Vaswani et al., 2017, section 3.1).

    `tied`: the table of words is the output's matrix as well (Press & Wolf, 2017).
    """

    def __init__(self, vocab: int, sizes: Sizes, *, tied: bool = True):
        super().__init__()
        self.embed = Words(vocab, sizes.d_model)
        self.stack = Stack(sizes, cross=True)
        self.vocabulary = nn.Linear(sizes.d_model, vocab, bias=False)
        if tied:
            self.vocabulary.weight = self.embed.weight

    def start(self, memory: Memory) -> StackCache:
        """An empty cache, for decoding word by word."""
        return StackCache(len(self.stack.blocks))

    def forward(self, target: Int[Tensor, "batch target"], memory: Memory, state: StackCache | None = None) -> Decoded:
        """Logits for the word after each of `target`; with a state, `target` continues what that has read.

        Raises ValueError when there is not one row for each source sentence.
        """
        if len(target) != len(memory.lengths):
            raise ValueError(
                f"target has {len(target)} rows; expected {len(memory.lengths)}, one for each source sentence"
            )
        seen = Lengths(memory.lengths)
        x = self.stack(self.embed(target), Causal(), memory=memory.states, memory_mask=seen, cache=state)
        return Decoded(self.vocabulary(x), None, state)


class Transformer(nn.Module):
    """An encoder and a decoder: p(target | source), all words of a target at once when training."""

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], target: Int[Tensor, "batch target"]
    ) -> Decoded:
        """Teacher forcing: each position is given the true words before it."""
        return self.decoder(target, self.encoder(source, lengths))
