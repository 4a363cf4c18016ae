"""Requests for the engine in lesson 16, the page's scheduler in it, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tfbook.generation.engine import Engine, Request, Room, Scheduler, Served, StepClock, Turn, WallClock
from tfbook.lessons.inference import exercises
from tfbook.models.language_model import LanguageModel
from tfbook.text.vocabulary import BOS

OPENING = "Tim was a brave frog who lived at the market . his best friend was a kind bear called Sam ."


def queue_of(
    count: int, *, prompt: Sequence[int] = (BOS,), shortest: int = 10, longest: int = 80, every: float = 0.0
) -> list[Request]:
    """Requests for stories of different lengths, one arriving `every` so many units of the clock."""
    generator = torch.Generator().manual_seed(0)
    limits = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    return [
        Request(prompt=prompt, max_new_tokens=limit, seed=number, arrives=every * number)
        for number, limit in enumerate(limits)
    ]


PageSchedule = Callable[[list[tuple[int, int]], list[int], int, int], tuple[list[int], list[int]]]


def for_engine(schedule: PageSchedule) -> Scheduler:
    """The engine's scheduler from the page's, which knows requests by their numbers and the blocks that they need."""

    def turn(waiting: list[Request], running: list[Request], room: Room) -> Turn:
        everybody = [*waiting, *running]
        needs = [(number, room.blocks_for(request)) for number, request in enumerate(waiting)]
        prefill, decode = schedule(needs, [*range(len(waiting), len(everybody))], room.seats, room.blocks)
        return Turn([everybody[number] for number in prefill], [everybody[number] for number in decode])

    return turn


schedule = exercises.schedule.reference  # continuous batching


def served(
    model: LanguageModel, schedule: Scheduler, requests: Sequence[Request], *, steps: bool = False, **sizes: Any
) -> Served:
    """The requests, served with seconds for a clock, or with steps."""
    clock = StepClock() if steps else WallClock()
    return Engine(model, schedule=schedule, clock=clock, **sizes).run(requests)


def middle_runs(
    model: LanguageModel,
    schedules: Mapping[str, Scheduler],
    queue: Callable[[], Sequence[Request]],
    rounds: int = 3,
    **sizes: Any,
) -> dict[str, Served]:
    """For each scheduler the run of middle throughput, of so many in turns; each run serves a new `queue`."""
    runs = [{name: served(model, each, queue(), **sizes) for name, each in schedules.items()} for _ in range(rounds)]

    def speed(run: Served) -> float:
        return run.summary()["throughput"]

    return {name: sorted((run[name] for run in runs), key=speed)[rounds // 2] for name in schedules}


def summaries(found: Mapping[str, Served], names: Mapping[str, str]) -> Any:
    """The summaries of several runs as a table; `names` says which rows, and how they are headed."""
    import pandas as pd

    rows = {title: [f"{run.summary()[name]:.3g}" for run in found.values()] for name, title in names.items()}
    return pd.DataFrame(rows, index=[*found]).T


def tables_after(
    model: LanguageModel, schedule: Scheduler, opening: Sequence[int], *, steps: int, blocks: int = 64
) -> tuple[dict[str, list[int]], int]:
    """The tables of sixteen requests with the same opening after so many steps, by a letter each, and all blocks."""
    engine = Engine(model, schedule=schedule, seats=16, blocks=blocks, block_size=8, clock=StepClock())
    requests = [Request(prompt=opening, max_new_tokens=40, seed=number, arrives=number) for number in range(16)]
    for request in requests:
        engine.submit(request)
    for _ in range(steps):
        engine.step()
    return {chr(ord("a") + number): [*request.table] for number, request in enumerate(requests)}, blocks
