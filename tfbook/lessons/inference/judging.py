"""How long a pass over a few tokens takes: with weights in the processor's cache, and fetched from memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from tfbook.course.experiments import experiment
from tfbook.generation.frozen import Frozen
from tfbook.generation.speculative import expected_speedup
from tfbook.lessons.inference.timing import reading
from tfbook.pretrain.storyteller import load_storyteller

WHERE = ("processor's cache", "memory")


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
                for place, before in zip(WHERE, (run, others.sum), strict=True):
                    before()
                    start = time.perf_counter()
                    run()
                    best[case, place] = min(best[case, place], time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return [
        {"model": name, "tokens": new, "weights in": place, "seconds": took}
        for ((name, new), place), took in best.items()
    ]


def judging_table(rows: Sequence[dict[str, Any]], alpha: float, k: int = 4) -> Any:
    """Milliseconds of a step and of judging k + 1 tokens in both places, and the speed that follows, as a table.

    The draft's weights are small and used k times in a row, so they stay in the cache.
    """
    import pandas as pd

    took = {(row["model"], row["tokens"], row["weights in"]): row["seconds"] for row in rows}
    table = {}
    for place in WHERE:
        step, judge = took["storyteller", 1, place], took["storyteller", k + 1, place]
        cost = took["draft", 1, WHERE[0]] / step
        table[place] = {
            "a step, ms": f"{1e3 * step:.2f}",
            f"judging {k + 1}, ms": f"{1e3 * judge:.2f}",
            "judging / step": f"{judge / step:.1f}",
            "draft's step / step": f"{cost:.2f}",
            "speed that follows": f"{expected_speedup(alpha, k, cost, judge / step):.2f} ×",
        }
    return pd.DataFrame(table).T
