"""The arithmetic of inference: operations and bytes per token, and the time that a machine needs for them.

A step takes as long as the slower of two: its operations at the machine's peak, or its bytes at the memory's bandwidth
(Williams et al., 2009; for Transformers kipply, 2022, "Transformer Inference Arithmetic").
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tfbook.attention.grouped_query import GroupedQueryAttention
from tfbook.checks import check_positive
from tfbook.generation.quantization import size_in_bytes
from tfbook.models.language_model import LanguageModel

# ---- machines ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """A machine's limits: floating-point operations and bytes per second."""

    name: str
    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """peak / bandwidth, operations per byte: with fewer, memory is the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """min(peak, bandwidth · intensity), the operations per second of work with that many operations per byte."""
        return min(self.peak, self.bandwidth * intensity)

    def seconds(self, work: Work) -> float:
        """max(operations / peak, bytes / bandwidth)."""
        return max(work.flops / self.peak, work.bytes / self.bandwidth)


H100 = Roofline(name="H100 SXM, bfloat16", peak=989.4e12, bandwidth=3.35e12)  # NVIDIA's data sheet, without sparsity


def probe_machine(
    *, seconds: float = 0.5, megabytes: int = 256, clock: Callable[[], float] = time.perf_counter
) -> Roofline:
    """This machine's CPU in float32: its fastest product of two matrices, and its fastest sum over many numbers.

    Each is repeated for `seconds` and the best time counts, since other work on the machine can only slow it down.
    """
    check_positive(megabytes=megabytes)
    a, b, numbers = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.ones(megabytes * 250_000)
    threads = torch.get_num_threads()
    return Roofline(
        name=f"this machine, {threads} thread{'s' * (threads > 1)}, float32",
        peak=2 * 1024**3 / _best_time(lambda: a @ b, seconds, clock),
        bandwidth=4 * numbers.numel() / _best_time(numbers.sum, seconds, clock),
    )


def _best_time(run: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    """The shortest of at least three runs."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


# ---- work --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Operations of matrix products, and bytes that have to come from memory; they add up."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)


def cache_bytes(model: LanguageModel, positions: int, *, bytes_per_number: float = 4, scale_bytes: float = 0) -> float:
    """layers · positions · 2 · kv_heads · (d_head · bytes + scale): keys and values of one text.

    A cache in 8 bits has 1 byte per number and a scale of 4 for each key and value.
    """
    total = 0.0
    for block in model.stack.blocks:
        attention = block.mixer.branch
        heads = attention.groups if isinstance(attention, GroupedQueryAttention) else attention.heads
        d_head = attention.W_Q.out_features // attention.heads
        total += positions * 2 * heads * (d_head * bytes_per_number + scale_bytes)
    return total


def weight_bytes(model: LanguageModel) -> int:
    """The bytes that a step reads: all weights, but of an embedding of its own only the rows of its tokens.

    A tied embedding is the output's matrix and read whole.
    """
    tied = model.embed.weight is model.unembed.weight
    return size_in_bytes(model) - (0 if tied else size_in_bytes(model.embed))


def decode_work(
    model: LanguageModel, positions: int, *, batch: int = 1, bytes_per_number: float = 4, scale_bytes: float = 0
) -> Work:
    """A step that reads one token of each of `batch` texts, after `positions` cached ones each.

    The weights are read once for all texts, the cache of each for itself.
    """
    check_positive(batch=batch)
    cache = cache_bytes(model, positions + 1, bytes_per_number=bytes_per_number, scale_bytes=scale_bytes)
    return Work(batch * model.flops(1, past=positions), weight_bytes(model) + batch * cache)


def prefill_work(model: LanguageModel, positions: int, *, batch: int = 1, bytes_per_number: float = 4) -> Work:
    """A pass over prompts of `positions` tokens, which writes their cache."""
    check_positive(positions=positions, batch=batch)
    cache = cache_bytes(model, positions, bytes_per_number=bytes_per_number)
    return Work(batch * model.flops(positions), weight_bytes(model) + batch * cache)
