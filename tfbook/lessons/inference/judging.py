"""How long a pass over a few tokens takes: with weights in the processor's cache, and fetched from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tfbook.course.cost import busy_clock
from tfbook.course.experiments import experiment
from tfbook.generation.frozen import Frozen
from tfbook.generation.speculative import expected_speedup
from tfbook.lessons.inference.timing import reading
from tfbook.pretrain.storyteller import load_storyteller

WHERE = ("the processor's cache", "memory")


@experiment
def judging(
    tokens: tuple[int, ...] = (1, 2, 3, 4, 5, 7), rounds: int = 60, megabytes: int = 128
) -> list[dict[str, Any]]:
    """A row for each model, number of tokens, and place of the weights: the shortest of the rounds' times, on one core.

    Before a pass that is timed, another one brings the weights into the processor's cache, or a sum over other numbers
    pushes them out. The shortest time counts, since other programs can only lengthen it.
    """
    threads, others = torch.get_num_threads(), torch.ones(megabytes * 250_000)
    torch.set_num_threads(1)
    try:
        models = {name: Frozen(load_storyteller(name).model.cpu()) for name in ("storyteller", "draft")}
        runs = {(name, new): reading(model, new=new) for name, model in models.items() for new in tokens}
        best = {(case, place): float("inf") for case in runs for place in WHERE}
        for _ in range(rounds):
            for case, run in runs.items():
                preparations: tuple[Callable[[], object], ...] = (run, others.sum)
                for place, before in zip(WHERE, preparations, strict=True):
                    before()
                    start = busy_clock()
                    run()
                    best[case, place] = min(best[case, place], busy_clock() - start)
    finally:
        torch.set_num_threads(threads)
    return [
        {"model": name, "tokens": new, "weights in": place, "seconds": took}
        for ((name, new), place), took in best.items()
    ]


class Judged(NamedTuple):
    """Seconds of the large model's step and of its pass over k + 1 tokens, and of the draft's step."""

    step: float
    judging: float
    draft: float

    def speed(self, alpha: float, k: int) -> float:
        """The speedup that follows when a guess is accepted with probability `alpha`."""
        return expected_speedup(alpha, k, self.draft / self.step, self.judging / self.step)


def judged(rows: Sequence[dict[str, Any]], where: str, k: int) -> Judged:
    """With the large model's weights in one of `WHERE`; those of the draft, used k times in a row, are in the cache."""
    took = {(row["model"], row["tokens"], row["weights in"]): row["seconds"] for row in rows}
    return Judged(took["storyteller", 1, where], took["storyteller", k + 1, where], took["draft", 1, WHERE[0]])


def predicted_speeds(
    rows: Sequence[dict[str, Any]], times: Sequence[dict[str, Any]]
) -> dict[str, dict[int, tuple[float, float, float]]]:
    """For each draft and k: by the formula in which judging costs one step, with weights in the cache and in memory."""
    found: dict[str, dict[int, tuple[float, float, float]]] = {}
    for row in rows:
        k, alpha = row["k"], row["acceptance"]
        near, far = (judged(times, where, k) for where in WHERE)
        if row["draft"] != "draft model":
            near, far = (each._replace(draft=row["draft step"]) for each in (near, far))
        simple = near._replace(judging=near.step).speed(alpha, k)
        found.setdefault(row["draft"], {})[k] = simple, near.speed(alpha, k), far.speed(alpha, k)
    return found


def judging_table(times: Sequence[dict[str, Any]], alpha: float, k: int = 4) -> Any:
    """Milliseconds of a step and of judging k + 1 tokens in both places, and the speed that follows, as a table."""
    import pandas as pd

    table = {}
    for where in WHERE:
        each = judged(times, where, k)
        table[f"weights in {where}"] = {
            "a step, ms": f"{1e3 * each.step:.2f}",
            f"judging {k + 1}, ms": f"{1e3 * each.judging:.2f}",
            "judging ÷ step": f"{each.judging / each.step:.1f}",
            "draft's step ÷ step": f"{each.draft / each.step:.2f}",
            "speed that follows": f"{each.speed(alpha, k):.1f} ×",
        }
    return pd.DataFrame(table).T
