"""Study of lesson 03: shapes that must find their color, words that mean another one, and a layer's cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.attention.implementations import Implementation, softmax
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.course.cost import attend, convolve, count_flops, exponent, in_turns, recur
from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.answers import answer as answer
from tfbook.lessons.self_attention.claims import CLAIMS as CLAIMS
from tfbook.lessons.self_attention.depth import (
    at_best_rates as at_best_rates,
    depth as depth,
    normalized_depth as normalized_depth,
)
from tfbook.lessons.self_attention.layer import MultiHead as MultiHead, attention_weights as attention_weights
from tfbook.lessons.self_attention.pointing import many_readers as many_readers
from tfbook.lessons.self_attention.rivals import by_shapes as by_shapes, by_steps as by_steps
from tfbook.lessons.self_attention.scenes import (
    GRAY as GRAY,
    NEAR as NEAR,
    SHAPES as SHAPES,
    TEST as TEST,
    Scenes as Scenes,
    exchange as exchange,
    is_right as is_right,
    judge as judge,
    many_twins as many_twins,
    middle as middle,
    painted_right as painted_right,
    rims as rims,
    ring as ring,
    twins as twins,
)
from tfbook.lessons.self_attention.stall import (
    better_half as better_half,
    by_division as by_division,
    changes_table as changes_table,
    halves as halves,
    rates_table as rates_table,
)
from tfbook.lessons.self_attention.words import (
    FIRST as FIRST,
    IT as IT,
    LEXICON as LEXICON,
    REASON as REASON,
    SECOND as SECOND,
    encode as encode,
    named_right as named_right,
    points_right as points_right,
    pronouns as pronouns,
    rules_of_thumb as rules_of_thumb,
)

# ---- what it costs ---------------------------------------------------------------------------------------------------


COUNTED = {"self-attention": attend, "recurrent": recur, "convolution": convolve}


def attention_layer(n: int, d: int, implementation: Implementation | None = None) -> Callable[[], Tensor]:
    """A whole self-attention layer with one head, projections included; old PyTorch does not count fused operations."""
    layer, x = MultiHeadAttention(d, 1, implementation=implementation), torch.randn(1, n, d)
    return lambda: layer(x)


def recurrent_layer(n: int, d: int) -> Callable[[], Tensor]:
    """PyTorch's recurrent layer, whose loop over time is compiled."""
    layer, x = nn.RNN(d, d, batch_first=True), torch.randn(1, n, d)
    return lambda: layer(x)[0]


TIMED = {"self-attention": attention_layer, "recurrent": recurrent_layer, "convolution": convolve}


@torch.no_grad()
def operations(lengths: Sequence[int], d: int = 64) -> dict[str, list[int]]:
    """Floating-point operations of each of `COUNTED` and of the whole attention layer by length, at width `d`."""
    layers = COUNTED | {"with its linear maps": partial(attention_layer, implementation=softmax)}
    return {name: [count_flops(layer(n, d)) for n in lengths] for name, layer in layers.items()}


@torch.no_grad()
def cost_exponents(sizes: Sequence[int] = (64, 128, 256, 512), fixed: int = 64) -> dict[str, tuple[float, float]]:
    """Exponents of the operations in n (at width `fixed`) and in d (at length `fixed`): name → (in n, in d)."""
    return {
        name: (
            exponent(sizes, [count_flops(layer(n, fixed)) for n in sizes]),
            exponent(sizes, [count_flops(layer(fixed, d)) for d in sizes]),
        )
        for name, layer in COUNTED.items()
    }


@torch.no_grad()
def seconds(lengths: Sequence[int], d: int = 64, rounds: int = 5) -> dict[str, list[float]]:
    """Seconds of each of `TIMED` by length: the median over `rounds`, in which the layers take turns."""
    runs = {(name, n): layer(n, d) for n in lengths for name, layer in TIMED.items()}
    times = in_turns(runs, rounds)
    return {name: [median(times[name, n]) for n in lengths] for name in TIMED}


@experiment
def times(lengths: Sequence[int] = (64, 128, 256, 512, 1024), d: int = 64, rounds: int = 100) -> list[dict[str, Any]]:
    """The measurement of `seconds`. Run it with OMP_NUM_THREADS=1: other processes disturb a single thread least."""
    measured = seconds(lengths, d, rounds)
    return [
        {"layer": name, "tokens": n, "seconds": taken}
        for name in measured
        for n, taken in zip(lengths, measured[name], strict=True)
    ]


def by_length(rows: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> dict[str, list[float]]:
    """Rows of `times` in the format of `seconds`."""
    found = {(row["layer"], row["tokens"]): row["seconds"] for row in rows}
    return {name: [found[name, n] for n in lengths] for name in TIMED}
