"""Times of a model's passes on one core, beside what the roofline predicts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.checks import trusted
from tfbook.course.cost import busy_clock, in_turns
from tfbook.course.roofline import Roofline, Work
from tfbook.generation.packed_products import PackedProduct, can_pack
from tfbook.generation.speculative import roll_back
from tfbook.models.language_model import LanguageModel

PAST = 60  # positions that are cached while a step is timed: half a story
MEGA = 1e6


def reading(model: LanguageModel, *, batch: int = 1, new: int = 1, past: int = PAST) -> Callable[[], None]:
    """A pass over `new` tokens of each of `batch` texts, `past` positions of which are cached; it can be repeated.

    All texts have the same past, which each keeps in a cache of its own.
    """
    vocab, cache, generator = model.unembed.out_features, model.new_cache(), torch.Generator().manual_seed(0)
    ids = torch.randint(vocab, (batch, new), generator=generator)
    with torch.inference_mode():
        if past:
            model(torch.randint(vocab, (1, past), generator=generator), cache=cache)
            cache.select(torch.zeros(batch, dtype=torch.long))

    def run() -> None:
        nonlocal cache
        with torch.inference_mode(), trusted():
            cache = cache if past else model.new_cache()
            roll_back(cache, past) if past else None
            model(ids, cache=cache)

    return run


def seconds(runs: Mapping[Any, Callable[[], None]], rounds: int, repeats: int = 10) -> dict[Any, float]:
    """The middle of the times of one run, in turns, for which this thread kept a processor busy."""
    repeated = {name: _repeated(run, repeats) for name, run in runs.items()}
    return {name: median(times) / repeats for name, times in in_turns(repeated, rounds, clock=busy_clock).items()}


def pushed_out(run: Callable[[], None], rounds: int, megabytes: int = 256) -> float:
    """The middle of the seconds of a run before which other numbers were read, so many that they fill any cache."""
    others, times = torch.ones(megabytes * 250_000), []
    for _ in range(rounds + 1):
        others.sum()
        start = busy_clock()
        run()
        times.append(busy_clock() - start)
    return median(times[1:])


def rows_in_cache(rows: Iterable[int], rounds: int, shape: tuple[int, int] = (512, 384)) -> dict[int, float]:
    """Seconds of a product of so many rows with a matrix so small that it stays in the processor's cache, packed."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator)
    matrix = PackedProduct(weight, None) if can_pack(weight) else partial(F.linear, weight=weight)

    def product(x: Tensor) -> None:
        with torch.inference_mode():
            matrix(x)

    inputs = {count: torch.randn(count, 1, shape[1], generator=generator) for count in rows}
    return seconds({count: partial(product, x) for count, x in inputs.items()}, rounds, repeats=300)


def _repeated(run: Callable[[], None], repeats: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(repeats):
            run()

    return several


class Predicted(NamedTuple):
    """A run with its work and tokens: the tokens per second that were predicted, and those that were measured."""

    name: str
    work: Work
    tokens: float
    predicted: float
    measured: float


def compared(works: Mapping[str, tuple[Work, int]], took: Mapping[str, float], machine: Roofline) -> list[Predicted]:
    """Tokens per second of each run, by the roofline and as measured. `works` has each run's work and tokens."""
    return [
        Predicted(name, work, tokens, tokens / machine.seconds(work), tokens / took[name])
        for name, (work, tokens) in works.items()
    ]


def table_of(rows: Iterable[Predicted]) -> Any:
    """The rows as a table of pandas."""
    import pandas as pd

    columns = {
        "MFLOP per token": [f"{row.work.flops / row.tokens / MEGA:.1f}" for row in rows],
        "MB per token": [f"{row.work.bytes / row.tokens / MEGA:.2f}" for row in rows],
        "predicted, tokens/s": [f"{row.predicted:,.0f}" for row in rows],
        "measured, tokens/s": [f"{row.measured:,.0f}" for row in rows],
        "reached": [f"{row.measured / row.predicted:.0%}" for row in rows],
    }
    return pd.DataFrame(columns, index=[row.name for row in rows])
