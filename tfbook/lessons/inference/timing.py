"""Times of a model's passes on one core, beside what the roofline predicts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

import torch

from tfbook.checks import trusted
from tfbook.course.cost import busy_clock, in_turns
from tfbook.course.roofline import Roofline, Work
from tfbook.generation.speculative import roll_back
from tfbook.models.language_model import LanguageModel

PAST = 60  # positions that are cached while a step is timed: half a story
MEGA = 1e6


def reading(model: LanguageModel, *, batch: int = 1, new: int = 1, past: int = PAST) -> Callable[[], None]:
    """A pass over `new` tokens of each of `batch` texts, `past` positions of which are cached; it can be repeated."""
    vocab, cache = model.unembed.out_features, model.new_cache()
    ids = torch.randint(vocab, (batch, past + new), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        if past:
            model(ids[:, :past], cache=cache)

    def run() -> None:
        nonlocal cache
        with torch.inference_mode(), trusted():
            cache = cache if past else model.new_cache()
            roll_back(cache, past) if past else None
            model(ids[:, past:], cache=cache)

    return run


def seconds(runs: Mapping[Any, Callable[[], None]], rounds: int, repeats: int = 10) -> dict[Any, float]:
    """The middle of the times of one run, in turns, for which this thread kept a processor busy."""
    repeated = {name: _repeated(run, repeats) for name, run in runs.items()}
    return {name: median(times) / repeats for name, times in in_turns(repeated, rounds, clock=busy_clock).items()}


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
