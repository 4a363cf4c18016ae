"""Costs of attention's implementations: exponents of operations, and stored seconds, shares of time, and memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from tfbook import runtime
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.block_sparse import BlockSparse
from tfbook.attention.efficient.linear import Linear
from tfbook.attention.efficient.lsh import Lsh
from tfbook.attention.efficient.performer import Performer
from tfbook.attention.efficient.tiled import Tiled
from tfbook.attention.implementations import softmax
from tfbook.attention.masks import Causal
from tfbook.course.cost import attend, convolve, count_flops, exponent, in_turns, peak_memory, recur
from tfbook.course.experiments import experiment

Key = TypeVar("Key", bound=Hashable)

# ---- operations: the table of Vaswani et al. (2017) ------------------------------------------------------------------


def restrict(n: int, d: int, r: int = 32) -> Callable[[], Tensor]:
    """Scores and weighted sum of one head: each of n vectors of width d attends to the last r, itself included."""
    x = torch.randn(n, d)

    def run() -> Tensor:
        window = F.pad(x, (0, 0, r - 1, 0)).unfold(0, r, 1)  # (n, d, r)
        weights = (x[:, None] @ window / math.sqrt(d)).softmax(dim=-1)
        return weights @ window.mT

    return run


LAYERS: dict[str, Callable[..., Callable[[], Tensor]]] = {
    "self-attention": attend,
    "recurrent": recur,
    "convolution": partial(convolve, k=4),
    "restricted": restrict,
}
REACH = {"convolution": "k", "restricted": "r"}  # a layer's argument for its third size


@torch.no_grad()
def cost_exponents(config: Sequence[int] = (64, 128, 256, 512), fixed: int = 64) -> dict[str, dict[str, float]]:
    """Exponents of the operations of each of `LAYERS` in n, in d and, where it has one, in its reach k or r."""
    found = {}
    for name, layer in LAYERS.items():
        runs = {"n": [layer(n, fixed) for n in config], "d": [layer(fixed, d) for d in config]}
        if name in REACH:
            runs[REACH[name]] = [layer(fixed, fixed, **{REACH[name]: reach}) for reach in config]
        found[name] = {size: exponent(config, [count_flops(run) for run in each]) for size, each in runs.items()}
    return found


# ---- stored: seconds and bytes of implementations --------------------------------------------------------------------


def strided(blocks: int) -> Bool[Tensor, "block block"]:
    """Layout of √blocks neighbors and every √blocks-th of the other blocks (Child et al., 2019, section 4.2)."""
    stride, number = math.isqrt(blocks), torch.arange(blocks)
    away = number[:, None] - number
    return (away.abs() < stride) | (away % stride == 0)


WINDOW = 256
WRITTEN_OUT, FUSED = "dense, written out", "dense, PyTorch's"
IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {  # of queries, keys and values, all causal
    WRITTEN_OUT: partial(softmax, mask=Causal()),
    FUSED: partial(F.scaled_dot_product_attention, is_causal=True),
    "tiled": partial(Tiled(), mask=Causal()),
    "banded": partial(Banded(WINDOW), mask=Causal()),
    "block-sparse": partial(BlockSparse(strided), mask=Causal()),
    "BigBird": partial(BigBird(), mask=Causal()),
    "LSH": partial(Lsh(), mask=Causal()),
    "linear": partial(Linear(), mask=Causal()),
    "Performer": partial(Performer(64), mask=Causal()),
}
HEADS, D_HEAD = 4, 32


def forward_backward(name: str, n: int) -> Callable[[], None]:
    """One of `IMPLEMENTATIONS` on one sequence of n positions, and the gradient of the sum of its output."""
    return with_gradient(IMPLEMENTATIONS[name], n)


def with_gradient(attend: Callable[..., Tensor], n: int) -> Callable[[], None]:
    """A run of `attend` on random queries, keys and values of n positions, and the gradient of its output's sum."""
    generator, shape = torch.Generator().manual_seed(0), (1, HEADS, n, D_HEAD)
    qkv = [torch.randn(shape, generator=generator).to(runtime.device()).requires_grad_() for _ in range(3)]

    def run() -> None:
        torch.autograd.grad(attend(*qkv).sum(), qkv, allow_unused=True)  # shared-key LSH reads no keys

    return run


def seconds(names: Sequence[str], lengths: Sequence[int], rounds: int = 3) -> dict[str, list[float]]:
    """Least seconds of `forward_backward` over `rounds`, as one number per name and length."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for n in lengths:
        times = in_turns({name: forward_backward(name, n) for name in names}, rounds)
        for name in names:
            found[name].append(min(times[name]))
    return found


def peaks(names: Sequence[str], lengths: Sequence[int]) -> dict[str, list[int]]:
    """Peak memory of `forward_backward` in bytes, inputs excluded, as one number per name and length."""
    return {name: [peak_memory(forward_backward(name, n)) for n in lengths] for name in names}


LONGEST_WRITTEN_OUT = 4096  # beyond this, the matrices of weights take gigabytes


def _up_to(n: int) -> list[str]:
    return [name for name in IMPLEMENTATIONS if name != WRITTEN_OUT or n <= LONGEST_WRITTEN_OUT]


@experiment
def times(lengths: Sequence[int] = (128, 256, 512, 1024, 2048, 4096, 8192), rounds: int = 3) -> list[dict[str, Any]]:
    """Least seconds of each implementation at each length."""
    found = {n: seconds(_up_to(n), [n], rounds) for n in lengths}
    return [{"implementation": name, "n": n, "seconds": found[n][name][0]} for n in lengths for name in found[n]]


def processor_seconds(runs: Mapping[Key, Callable[[], object]], turns: int) -> dict[Key, float]:
    """Least processor seconds of each of `runs`, which take turns; time spent waiting does not count."""
    found: dict[Key, list[float]] = {key: [] for key in runs}
    for _ in range(turns + 1):  # the first warms up
        for key, run in runs.items():
            start = time.process_time()
            run()
            found[key].append(time.process_time() - start)
    return {key: min(seconds[1:]) for key, seconds in found.items()}


ROUNDS = (1, 2, 4, 8)  # of hashing


@experiment
def rounds_of_hashing(n: int = 2048, turns: int = 5) -> list[dict[str, Any]]:
    """Processor seconds of LSH attention, forward and backward, for each number of hashing rounds."""
    runs = {r: with_gradient(partial(Lsh(rounds=r), mask=Causal()), n) for r in ROUNDS}
    return [{"rounds": r, "n": n, "seconds": spent} for r, spent in processor_seconds(runs, turns).items()]


@experiment
def hashing_against_dense(
    lengths: Sequence[int] = (512, 1024, 2048, 4096, 8192), turns: int = 3
) -> list[dict[str, Any]]:
    """Processor seconds of LSH attention with four rounds and of PyTorch's dense attention, at each length."""
    rows = []
    for n in lengths:
        spent = processor_seconds({name: forward_backward(name, n) for name in ("LSH", FUSED)}, turns)
        rows += [{"implementation": name, "n": n, "seconds": seconds} for name, seconds in spent.items()]
    return rows


KINDS = {  # operations by what their names contain; the first match counts
    "matrix products": ("mm", "scaled_dot_product", "flash_attention"),
    "sort, gather, copy": (
        "sort",
        "gather",
        "scatter",
        "index",
        "take",
        "cat",
        "copy",
        "pad",
        "zero",
        "fill_",
        "slice",
    ),
    "softmax and masks": ("exp", "softmax", "masked", "where", "mul", "div", "sub", "sum", "add", "max", "lt", "ge"),
    "everything else": ("",),
}
PROFILED = ("tiled", "banded", "LSH", "linear")


@experiment
def profiles(n: int = 4096) -> list[dict[str, Any]]:
    """Share of time, forward and backward, of each kind of operation in each of `PROFILED`."""
    rows = []
    for name in PROFILED:
        run = forward_backward(name, n)
        run()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            run()
        spent = dict.fromkeys(KINDS, 0.0)
        for event in profiler.key_averages():
            kind = next(kind for kind, parts in KINDS.items() if any(part in event.key for part in parts))
            spent[kind] += event.self_cpu_time_total
        total = sum(spent.values())
        rows += [{"implementation": name, "kind": kind, "share": part / total} for kind, part in spent.items()]
    return rows


@experiment
def memory(lengths: Sequence[int] = (1024, 2048, 4096, 8192, 16384)) -> list[dict[str, Any]]:
    """Peak memory in bytes of each implementation at each length."""
    runs = [(name, n) for n in lengths for name in _up_to(n)]
    return [{"implementation": name, "n": n, "bytes": peaks([name], [n])[name][0]} for name, n in runs]


# ---- tables of the stored rows ---------------------------------------------------------------------------------------

STORED = {"window": "banded", "dense, window": "dense, banded"}  # the lesson's name: the name in the rows


def shown(name: str) -> str:
    """The lesson's name of an implementation."""
    return {stored: name for name, stored in STORED.items()}.get(name, name)


def time_ratios(times: Any, names: Sequence[str]) -> dict[str, tuple[list[int], list[float]]]:
    """For each name its lengths and its seconds ÷ those of PyTorch's dense attention, from the rows of `times`."""
    table = times.pivot(index="n", columns="implementation", values="seconds")
    columns = {name: table[STORED.get(name, name)] for name in names}
    return {name: (table.index.tolist(), (column / table[FUSED]).tolist()) for name, column in columns.items()}


def time_shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Implementation → kind of operation → share, from the rows of `profiles`."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(shown(row["implementation"]), {})[row["kind"]] = row["share"]
    return found
