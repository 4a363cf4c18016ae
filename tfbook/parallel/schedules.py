"""Who works when in a pipeline: each stage's list of forward and backward passes, and the time that they take.

A pass is ("F", k) or ("B", k), forward or backward of microbatch k. Stage s holds the s-th part of the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfbook.checks import check_positive

Pass = tuple[str, int]
Schedule = list[list[Pass]]  # one list for each stage


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forward passes, then all backward passes, the last microbatch first (Huang et al., 2019, section 2.3)."""
    check_positive(stages=stages, microbatches=microbatches)
    forward = [("F", k) for k in range(microbatches)]
    return [forward + [("B", k) for k in reversed(range(microbatches))] for _ in range(stages)]


def one_forward_one_backward(stages: int, microbatches: int) -> Schedule:
    """Stage s runs stages − s − 1 forward passes ahead, then one forward, one backward (Narayanan et al., 2021)."""
    check_positive(stages=stages, microbatches=microbatches)
    schedule = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, microbatches)
        passes = [("F", k) for k in range(ahead)]
        for k in range(microbatches):
            if ahead + k < microbatches:
                passes.append(("F", ahead + k))
            passes.append(("B", k))
        schedule.append(passes)
    return schedule


def check_stages(schedule: Schedule, stages: int) -> None:
    """Checks that a schedule has one line for each stage."""
    if len(schedule) != stages:
        raise ValueError(f"schedule has {len(schedule)} stages; expected {stages}, one for each machine")


class Timed(NamedTuple):
    """A pass with its stage and its time."""

    stage: int
    kind: str
    microbatch: int
    start: float
    end: float


def timetable(schedule: Schedule, *, forward: float = 1, backward: float = 2) -> list[Timed]:
    """Each pass as early as its stage's list and its input allow, in the order of their starts.

    F needs the F of the stage before; B needs the B of the stage behind and its own F. Raises ValueError, and says what
    each stage waits for, when no stage can go on.
    """
    took = {"F": forward, "B": backward}
    place, free = [0] * len(schedule), [0.0] * len(schedule)
    done: dict[tuple[str, int, int], float] = {}
    timed: list[Timed] = []
    while any(place[s] < len(passes) for s, passes in enumerate(schedule)):
        moved = False
        for stage, passes in enumerate(schedule):
            while place[stage] < len(passes):
                kind, k = passes[place[stage]]
                needed = _needed(kind, k, stage, len(schedule))
                if any(each not in done for each in needed):
                    break
                start = max([free[stage], *(done[each] for each in needed)])
                free[stage] = done[kind, k, stage] = start + took[kind]
                timed.append(Timed(stage, kind, k, start, free[stage]))
                place[stage], moved = place[stage] + 1, True
        if not moved:
            raise ValueError(_stuck(schedule, place))
    return sorted(timed, key=lambda each: (each.start, each.end, each.stage))


def _needed(kind: str, k: int, stage: int, stages: int) -> list[tuple[str, int, int]]:
    if kind == "F":
        return [("F", k, stage - 1)] if stage else []
    return [("F", k, stage), *([("B", k, stage + 1)] if stage < stages - 1 else [])]


def _stuck(schedule: Schedule, place: Sequence[int]) -> str:
    waiting = [
        f"stage {stage} waits to do {kind}{k}"
        for stage, (passes, at) in enumerate(zip(schedule, place, strict=True))
        if at < len(passes)
        for kind, k in passes[at : at + 1]
    ]
    return f"schedule never ends: {', '.join(waiting)}"


def bubble(timed: Sequence[Timed]) -> float:
    """The share of all stages' time in which they wait: (p − 1) / (m + p − 1) for p stages and m microbatches."""
    stages, end = 1 + max(each.stage for each in timed), max(each.end for each in timed)
    return 1 - sum(each.end - each.start for each in timed) / (stages * end)


def held_at_once(schedule: Schedule) -> list[int]:
    """For each stage, the most microbatches whose activations it keeps at a time."""
    most = []
    for passes in schedule:
        now = peak = 0
        for kind, _ in passes:
            now += 1 if kind == "F" else -1
            peak = max(peak, now)
        most.append(peak)
    return most
