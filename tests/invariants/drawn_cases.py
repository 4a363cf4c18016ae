"""Strategies of hypothesis: attention with every implementation, and models of every kind with every part.

Shapes: batch, head, query and key (positions), time, source, d_model.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from drawn_configs import configs_of_every_part
from drawn_subjects import (
    WITHOUT_CACHE,
    BertSubject,
    Choices,
    FrozenSubject,
    LanguageSubject,
    StackSubject,
    Subject,
    TransformerSubject,
    TranslatorSubject,
    ValueSubject,
    VitSubject,
)
from hypothesis import strategies as st
from torch import Tensor, nn

from tfbook.attention import (
    POSITIONS,
    Band,
    Causal,
    Dense,
    Implementation,
    InterpolatedRotary,
    Lengths,
    Mask,
    Position,
    Relative,
    Rotary,
    fastest,
    fused,
    softmax,
)
from tfbook.attention.efficient import Banded, BigBird, BlockSparse, Linear, Lsh, Performer, Tiled
from tfbook.models.blocks import Config
from tfbook.models.experts import MixtureOfExperts, dense_dispatch

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

KINDS = [
    StackSubject,
    StackSubject,
    LanguageSubject,
    FrozenSubject,
    BertSubject,
    ValueSubject,
    VitSubject,
    TransformerSubject,
    TranslatorSubject,
]
ADAPTED = [(), (), ("W_Q", "W_V"), ("W_O",), ("W_K", "up", "down")]


def short_reach(d_model: int, heads: int, max_length: int) -> Position:
    return Relative(d_model // heads, reach=2)


def fast_rotary(d_model: int, heads: int, max_length: int) -> Position:
    return Rotary(d_model // heads, base=50.0)


def stretched_rotary(d_model: int, heads: int, max_length: int) -> Position:
    return InterpolatedRotary(d_model // heads, stretch=2.5)


class ModelCase(NamedTuple):
    """A model in its dtype and mode, and what is asked of it."""

    subject: Subject
    dtype: torch.dtype
    scale: float
    pieces: list[int]  # in which it reads; their sum is the length
    rows: Tensor  # selected after the first piece
    cut: int  # what comes after this many positions may change


def has_experts(config: Config) -> bool:
    return isinstance(config.feed_forward, partial) and config.feed_forward.func is MixtureOfExperts


@st.composite
def choices_of_parts(draw: st.DrawFn) -> Choices:
    """Parts that fit: biases of positions and dropout only where the implementation supports them, so half of all
    layers have one that supports everything. Experts draw their dropout in an order of their own."""
    own = draw(DENSE if draw(st.booleans()) else IMPLEMENTATIONS)
    config = draw(configs_of_every_part(dropout=st.sampled_from([0.0, 0.3]), max_length=st.just(8)))
    with_options = draw(st.sampled_from([None, None, short_reach, fast_rotary, stretched_rotary]))
    config = replace(config, position=with_options or config.position)
    if not own.supports.bias and config.position in (POSITIONS["relative"], POSITIONS["ALiBi"], short_reach):
        config = replace(config, position=POSITIONS["rotary"])
    if not own.supports.dropout or has_experts(config):
        config = replace(config, dropout=0.0)
    if has_experts(config) and draw(st.booleans()):
        config = replace(config, feed_forward=partial(config.feed_forward, dispatch=dense_dispatch))
    other = draw(DENSE if config.dropout else DENSE | LINEAR | st.builds(Tiled, SMALL))
    return Choices(
        config=config,
        own=own,
        between=draw(st.none() | DENSE),
        other=other,
        batch=draw(st.integers(1, 3)),
        time=draw(st.integers(0, 7)),
        source=draw(st.integers(0, 5)),
        option=draw(st.integers(0, 63)),
        dropout=draw(st.sampled_from([0.0, 0.3])),
        adapted=draw(st.sampled_from(ADAPTED)),
    )


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
    multiplies by 1/√ε; the recurrent layers of the CPU have float32 and float64. Rounding makes a router choose another
    expert, so models with experts have float64."""
    kind = draw(st.sampled_from(KINDS))
    choices = draw(choices_of_parts())
    dtype = draw(st.sampled_from(DTYPES[: 2 if kind is TranslatorSubject else 4]))
    if has_experts(choices.config):
        dtype = torch.float64
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
