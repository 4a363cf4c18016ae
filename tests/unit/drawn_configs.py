"""Strategies of hypothesis: small configs of a stack, in every choice of its parts."""

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch.nn import functional as F

from tfbook.attention import POSITIONS, GroupedQueryAttention, MultiHeadAttention
from tfbook.models.blocks import Config, PostNorm, PreNorm
from tfbook.models.convolutions import DilatedConvolution, GatedConvolution
from tfbook.models.experts import MixtureOfExperts
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.models.gated import GatedLinearAttention, Lstm, MinGru
from tfbook.models.gpt import GPT2
from tfbook.models.norms import LayerNorm, RMSNorm
from tfbook.models.scans import parallel_scan
from tfbook.models.state_spaces import S4D, Mamba

ACTIVATIONS = [partial(FeedForward, activation=activation) for activation in (F.relu, F.gelu)]
FEED_FORWARDS: list[Any] = [*ACTIVATIONS, partial(FeedForward, activation=F.silu), GPT2.feed_forward, SwiGLU]
NORMS = [LayerNorm, partial(LayerNorm, eps=1e-2), RMSNorm]
RESIDUALS = [PreNorm, PostNorm]
STATES: list[Any] = [  # mixers that keep a state of fixed size
    partial(MinGru, width=5),
    partial(MinGru, scan=parallel_scan),
    partial(GatedLinearAttention, chunk=2),
    partial(GatedLinearAttention, gated=False),
    Lstm,
    partial(S4D, state=8),
    partial(Mamba, state=8, width=6),
]


@st.composite
def configs(draw: st.DrawFn, **choices: SearchStrategy) -> Config:
    """Up to three heads and blocks, an even width for each head; `choices` draw the other fields of `Config`."""
    heads = draw(st.integers(1, 3))
    return Config(
        d_model=heads * 2 * draw(st.integers(1, 4)),
        heads=heads,
        d_ff=draw(st.integers(1, 20)),
        layers=draw(st.integers(1, 3)),
        position=POSITIONS[draw(st.sampled_from([*POSITIONS]))],
        **{name: draw(choice) for name, choice in choices.items()},
    )


@st.composite
def feed_forwards(draw: st.DrawFn) -> Any:
    """One network, or several of them as experts, whose capacity, where there is one, is enough for all tokens."""
    one = draw(st.sampled_from(FEED_FORWARDS))
    experts = draw(st.sampled_from([0, 0, 0, 1, 3]))
    if not experts:
        return one
    k, factor = draw(st.integers(1, experts)), draw(st.sampled_from([None, float(experts)]))
    return partial(MixtureOfExperts, experts=experts, k=k, capacity_factor=factor, expert=one)


@st.composite
def configs_of_every_part(draw: st.DrawFn, **choices: SearchStrategy) -> Config:
    """The same with every mixer, feed-forward network, norm and place of it."""
    config = draw(configs(feed_forward=feed_forwards(), norm=st.sampled_from(NORMS), **choices))
    mixers: list[Any] = [partial(MultiHeadAttention, bias=bias) for bias in (True, False)]
    groups = [group for group in range(1, config.heads + 1) if config.heads % group == 0]
    mixers += [partial(GroupedQueryAttention, groups=group, bias=bias) for group in groups for bias in (True, False)]
    mixers += [partial(kind, kernel=3, dilation=2) for kind in (DilatedConvolution, GatedConvolution)]
    mixer = draw(st.sampled_from(mixers))
    if draw(st.sampled_from([False, False, True])):
        state = draw(st.sampled_from(STATES))
        mixer = draw(st.sampled_from([state, (state, mixer), (mixer, state, state)]))
    return Config(**{**vars(config), "mixer": mixer, "residual": draw(st.sampled_from(RESIDUALS))})


def attending(config: Config) -> Config:
    """The config with attention alone: for what reads a second sequence, or knows no other mixer."""
    mixers = config.mixer if isinstance(config.mixer, tuple) else (config.mixer,)
    kinds = (getattr(mixer, "func", mixer) for mixer in mixers)
    return (
        config if {*kinds} <= {MultiHeadAttention, GroupedQueryAttention} else replace(config, mixer=MultiHeadAttention)
    )
