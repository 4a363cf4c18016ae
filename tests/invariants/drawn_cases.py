"""Strategies of hypothesis: attention with every implementation, and models of every kind with every part.

Shapes: batch, head, query and key (positions), time, source, d_model.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from drawn_configs import configs_of_every_part
from hypothesis import strategies as st
from torch import Tensor, nn

from tfbook.attention import (
    POSITIONS,
    SCORES,
    Band,
    Causal,
    Dense,
    Implementation,
    Lengths,
    Mask,
    fastest,
    fused,
    softmax,
)
from tfbook.attention.efficient import Banded, BigBird, BlockAttention, BlockSparse, Linear, Lsh, Performer, Tiled
from tfbook.models.bert import Bert, MaskedLanguageModel, Tagger
from tfbook.models.bert_variants import Albert
from tfbook.models.blocks import Config, Stack
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import LanguageModel
from tfbook.models.seq2seq import (
    BahdanauDecoder,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Deit, Vit, VitConfig, unpatchify

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SCALES = [0.1, 1.0, 8.0, 30.0]
SEEDS = st.integers(0, 2**32)
SMALL = st.integers(1, 4)

# ---- implementations ---------------------------------------------------------------------------------------------


def strided(blocks: int) -> Tensor:
    """Each block sees itself and every second one."""
    number = torch.arange(blocks)
    return (number[:, None] - number) % 2 == 0


def sees_all(blocks: int) -> Tensor:
    """Each block sees every other."""
    return torch.ones(blocks, blocks, dtype=torch.bool)


def sees_nothing(blocks: int) -> Tensor:
    """No block sees any."""
    return ~sees_all(blocks)


DENSE = st.sampled_from([softmax, fused, fastest])
LINEAR = st.one_of(
    st.builds(Linear, chunk=SMALL),
    st.builds(Performer, st.integers(1, 9), chunk=SMALL, orthogonal=st.booleans(), seed=SEEDS),
)
UP_TO_2 = st.integers(0, 2)
BIG_BIRD = st.builds(BigBird, st.sampled_from([1, 3]), UP_TO_2, UP_TO_2, SMALL, SEEDS)
IMPLEMENTATIONS: st.SearchStrategy[Any] = st.one_of(
    DENSE,
    LINEAR,
    BIG_BIRD,
    st.builds(Tiled, SMALL),
    st.builds(Banded, SMALL, SMALL),
    st.builds(BlockSparse, st.sampled_from([strided, sees_all, sees_nothing]), SMALL),
    st.builds(Lsh, st.sampled_from([2, 4]), SMALL, SMALL, st.booleans(), SEEDS),
)
WITHOUT_CACHE = BlockAttention | Lsh  # these need as many queries as keys


class AttentionCase(NamedTuple):
    """What an implementation is given."""

    implementation: Implementation
    q: Tensor  # (batch, head, query, d_head)
    k: Tensor  # (batch, head, key, d_head)
    v: Tensor  # (batch, head, key, d_value)
    mask: Mask | None
    bias: Tensor | None
    dropout: float


@st.composite
def masks(draw: st.DrawFn, known: tuple[type[Mask], ...] | None, shape: tuple[int, ...]) -> Mask | None:
    """None, or one or two of the known kinds, for (batch, query, key)."""
    batch, queries, keys = shape
    positional = [Causal(), Band(draw(UP_TO_2), draw(UP_TO_2))] if queries <= keys else []
    pairs = torch.rand(batch, 1, queries, keys) < draw(st.sampled_from([0.1, 0.6]))
    every = [*positional, Lengths(torch.randint(keys + 1, (batch,))), Dense(pairs)]
    kinds = every if known is None else [mask for mask in every if isinstance(mask, known)]
    count = draw(st.sampled_from([0, 1, 2]))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count)) if kinds else []
    return None if not chosen else chosen[0] if len(chosen) == 1 else chosen[0] & chosen[1]


@st.composite
def attention_cases(draw: st.DrawFn) -> AttentionCase:
    """Lengths from 0 on; scores up to thousands; biases some or all of which are −∞."""
    implementation, scale, dtype = draw(IMPLEMENTATIONS), draw(st.sampled_from(SCALES)), draw(st.sampled_from(DTYPES))
    torch.manual_seed(draw(SEEDS))
    batch, heads, d_head, d_value, keys = (draw(st.integers(least, 6)) for least in (1, 1, 1, 1, 0))
    queries = draw(st.integers(0, keys if isinstance(implementation, Banded) else 6))
    queries = keys if isinstance(implementation, WITHOUT_CACHE) else queries
    q, k = (scale * torch.randn(batch, heads, time, d_head) for time in (queries, keys))
    v = (1.0 if dtype == torch.float16 else scale) * torch.randn(batch, heads, keys, d_value)  # gradients end at 65,504
    if type(implementation) is Linear:  # in float32, sums of weights below e⁻⁷¹ count as 0
        q, k = q.clamp(min=-30), k.clamp(min=-30)
    bias = None
    if implementation.supports.bias and draw(st.booleans()):
        blocked = torch.rand(queries, keys) < draw(st.sampled_from([0.0, 0.3, 1.0]))
        bias = (scale * torch.randn(queries, keys)).masked_fill(blocked, -torch.inf).to(dtype)
    mask = draw(masks(implementation.supports.masks, (batch, queries, keys)))
    dropout = draw(st.sampled_from([0.0, 0.5])) if implementation.supports.dropout else 0.0
    return AttentionCase(implementation, q.to(dtype), k.to(dtype), v.to(dtype), mask, bias, dropout)


# ---- models ------------------------------------------------------------------------------------------------------

VOCAB = 7


class Choices(NamedTuple):
    """What is drawn for a model."""

    config: Config
    own: Implementation  # of self-attention
    other: Implementation  # of cross-attention
    batch: int
    time: int
    source: int
    option: int  # a number from which each kind of model chooses what it alone has
    dropout: float


def use(model: nn.Module, choices: Choices) -> None:
    """Gives the attention layers of each stack their implementation."""
    for stack in model.modules():
        for block in stack.blocks if isinstance(stack, Stack) else ():
            block.mixer.branch.implementation = choices.own
            if block.cross is not None:
                block.cross.branch.implementation = choices.other


class Subject:
    """A model with what it reads, and how it reads it: at once, or piece by piece."""

    causal = True
    lengths: Tensor | None = None  # of x, where its padding is masked
    sources: Tensor | None = None  # lengths of what else is read
    model: Any
    x: Tensor  # (batch, time, …): tokens, or vectors in float32

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        """Its output for x, which are the beginnings of `rows`; of what else is read, `source` positions."""
        raise NotImplementedError

    def start(self, rows: Tensor) -> Any:
        """What has been read before the first piece; None for a model that reads all at once."""
        return None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Its output for the next piece of `rows`, and the next state."""
        raise NotImplementedError


class StackSubject(Subject):
    """Vectors, of which there may be none, and in half of the cases a memory, which may be empty."""

    def __init__(self, choices: Choices):
        config, own, batch = choices.config, choices.own, choices.batch
        cross, padded, self.causal, banded = (bool(choices.option >> bit & 1) for bit in range(4))
        if not self.causal and isinstance(own, BigBird):  # its random blocks depend on how many there are
            choices = choices._replace(own=replace(own, random_blocks=0))
        self.model = Stack(config, cross=cross)
        use(self.model, choices)
        self.x = torch.randn(batch, choices.time, config.d_model)
        self.mask: Mask | None = Causal() if self.causal else None
        if self.causal and banded and own.supports.masks in (None, Banded.supports.masks):
            self.mask = Band(2, 0)
        if padded:
            self.lengths = torch.randint(choices.time + 1, (batch,))
        if cross:
            self.memory = torch.randn(batch, choices.source, config.d_model)
            self.sources = torch.randint(choices.source + 1, (batch,))
        self.cached = self.causal and not isinstance(own, WITHOUT_CACHE)

    def _read(self, x: Tensor, rows: Tensor, mask: Mask | None, source: int | None, **options: Any) -> Tensor:
        dtype = next(self.model.parameters()).dtype
        if self.sources is not None:
            options["memory"] = self.memory[rows, :source].to(dtype)
            options["memory_mask"] = Lengths(self.sources[rows])
        return self.model(x.to(dtype), mask, **options)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        if self.lengths is None:
            return self._read(x, rows, self.mask, source)
        padding = Lengths(self.lengths[rows])
        return self._read(x, rows, padding if self.mask is None else self.mask & padding, source)

    def start(self, rows: Tensor) -> Any:
        return self.model.new_cache() if self.cached and self.lengths is None else None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self._read(piece, rows, self.mask, None, cache=state), state


class LanguageSubject(Subject):
    """`LanguageModel` or `Gpt`."""

    def __init__(self, choices: Choices):
        self.model = (LanguageModel, Gpt)[choices.option % 2](VOCAB, choices.config)
        use(self.model, choices)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        self.cached = not isinstance(choices.own, WITHOUT_CACHE)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        return self.model(x)

    def start(self, rows: Tensor) -> Any:
        return self.model.new_cache() if self.cached else None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model(piece, cache=state), state


class BertSubject(Subject):
    """BERT or ALBERT with one of the heads that have an output for each token; texts of length 0 among them."""

    causal = False

    def __init__(self, choices: Choices):
        if isinstance(choices.own, BigBird):
            choices = choices._replace(own=replace(choices.own, random_blocks=0))
        bert = (Bert, partial(Albert, d_embed=3))[choices.option % 2](VOCAB, choices.config)
        heads: list[Callable[[Bert], nn.Module]] = [
            lambda bert: bert,
            MaskedLanguageModel,
            lambda bert: Tagger(bert, 3),
        ]
        self.model = heads[choices.option // 2 % 3](bert)
        use(self.model, choices)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        self.segments = torch.randint(2, self.x.shape)
        self.lengths = torch.randint(self.x.shape[1] + 1, (choices.batch,))

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        return self.model(x, self.lengths[rows], self.segments[rows, : x.shape[1]])


class VitSubject(Subject):
    """ViT or DeiT, without the head, as a reader of patches: of four numbers each, in a row of squares."""

    causal = False

    def __init__(self, choices: Choices):
        patches = max(1, choices.time)
        tokens = choices.option // 2 % 3
        size = {"height": 2, "width": 2 * patches, "channels": 1, "patch": 2, "tokens": tokens}
        self.model = (Vit, Deit)[choices.option % 2](3, VitConfig(**vars(choices.config), **size))
        use(self.model, choices)
        self.x = torch.randn(choices.batch, patches, 4)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        images = unpatchify(x, 2, (1, x.shape[1])).to(next(self.model.parameters()).dtype)
        return self.model.representations(images)[:, self.model.config.tokens :]


class TransformerSubject(Subject):
    """A Transformer, its output tied or not; sources of length 0 among them."""

    shortest = 0

    def __init__(self, choices: Choices):
        if isinstance(choices.own, BigBird):
            choices = choices._replace(own=replace(choices.own, random_blocks=0))
        self.model = self.build(choices)
        use(self.model, choices)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        self.source = torch.randint(VOCAB, (choices.batch, max(1, choices.source)))
        self.sources = torch.randint(self.shortest, self.source.shape[1] + 1, (choices.batch,))
        self.cached = not isinstance(choices.own, WITHOUT_CACHE)

    def build(self, choices: Choices) -> nn.Module:
        decoder = Decoder(VOCAB, choices.config, tied=bool(choices.option % 2))
        return Transformer(Encoder(VOCAB, choices.config), decoder)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        width = None if source is None else max(1, source)
        return self.model(self.source[rows, :width], self.sources[rows], x).logits

    def start(self, rows: Tensor) -> Any:
        self.memory = self.model.encoder(self.source[rows], self.sources[rows])
        return self.model.decoder.start(self.memory) if self.cached else None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        decoded = self.model.decoder(piece, self.memory.select(rows), state)
        return decoded.logits, decoded.state


class TranslatorSubject(TransformerSubject):
    """A recurrent translator with each decoder and score; every source has a word."""

    shortest = 1

    def build(self, choices: Choices) -> nn.Module:
        sizes = Seq2SeqConfig(
            source_vocab=VOCAB, target_vocab=VOCAB, d_embed=3, d_hidden=4, d_encoder=2, dropout=choices.dropout
        )
        scores: list[Any] = [*SCORES.values()]
        decoder = (FixedContextDecoder, BahdanauDecoder, LuongDecoder)[choices.option % 3]
        options = {} if decoder is FixedContextDecoder else {"score": scores[choices.option // 3 % len(scores)]}
        return Translator(RecurrentEncoder(sizes), decoder(sizes, **options))


class ModelCase(NamedTuple):
    """A model in its dtype and mode, and what is asked of it."""

    subject: Subject
    dtype: torch.dtype
    scale: float
    pieces: list[int]  # in which it reads; their sum is the length
    rows: Tensor  # selected after the first piece
    cut: int  # what comes after this many positions may change


@st.composite
def choices_of_parts(draw: st.DrawFn) -> Choices:
    """Parts that fit: biases of positions and dropout only where the implementation supports them, so half of all
    layers have one that supports everything."""
    own = draw(DENSE if draw(st.booleans()) else IMPLEMENTATIONS)
    config = draw(configs_of_every_part(dropout=st.sampled_from([0.0, 0.3]), max_length=st.just(8)))
    if not own.supports.bias and config.position in (POSITIONS["relative"], POSITIONS["ALiBi"]):
        config = replace(config, position=POSITIONS["rotary"])
    if not own.supports.dropout:
        config = replace(config, dropout=0.0)
    other = draw(DENSE if config.dropout else DENSE | LINEAR | st.builds(Tiled, SMALL))
    batch, time, source = draw(st.integers(1, 3)), draw(st.integers(0, 7)), draw(st.integers(0, 5))
    return Choices(config, own, other, batch, time, source, draw(st.integers(0, 63)), draw(st.sampled_from([0.0, 0.3])))


@torch.no_grad()
def scale_weights(model: nn.Module, scale: float) -> None:
    """Matrices `scale` times as large as those that keep variances, and vectors other than 0 and 1."""
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(std=scale * weight.shape[-1] ** -0.5)
        else:
            weight.add_(0.3 * torch.randn_like(weight))


@st.composite
def model_cases(draw: st.DrawFn) -> ModelCase:
    """Float16 ends at 65,504, so its weights stay small and dropout blanks no vector of it, whose gradient each norm
    multiplies by 1/√ε; the recurrent layers of the CPU have float32 and float64."""
    kind = draw(
        st.sampled_from(
            [
                StackSubject,
                LanguageSubject,
                StackSubject,
                BertSubject,
                VitSubject,
                TransformerSubject,
                TranslatorSubject,
            ]
        )
    )
    choices, dtype = draw(choices_of_parts()), draw(st.sampled_from(DTYPES[: 2 if kind is TranslatorSubject else 4]))
    scale = draw(st.sampled_from(SCALES[: 2 if dtype == torch.float16 else 4]))
    if dtype == torch.float16:
        choices = choices._replace(config=replace(choices.config, dropout=0.0))
    torch.manual_seed(draw(SEEDS))
    subject = kind(choices)
    scale_weights(subject.model, scale)
    subject.model.to(dtype).train(draw(st.booleans()))
    time, least = subject.x.shape[1], int(kind is not StackSubject)
    cuts = sorted(draw(st.sets(st.integers(1, time - 1), max_size=3))) if time > 1 else []
    pieces = [end - begin for begin, end in pairwise([0, *cuts, time])]
    if not least:
        pieces.insert(draw(st.integers(0, len(pieces))), 0)
    rows = torch.randint(choices.batch, (draw(SMALL),))
    return ModelCase(subject, dtype, scale, pieces, rows, draw(st.integers(1, max(1, time - 1))))
