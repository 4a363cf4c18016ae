"""Small demonstrations of lesson 20: machines that don't talk, a ring step by step, messages that wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor

from tfbook.models.gpt import Gpt
from tfbook.parallel.data import data_parallel
from tfbook.parallel.whole import Batches, alone, largest_difference, predicted, total_loss
from tfbook.parallel.wire import Exchange, Held, Wire

Orders = Sequence[Sequence[tuple[str, int]]]  # for each machine, its sends and receives in turn


def alone_or_together(
    model: Gpt, batches: Batches, fresh: Batches, machines: int = 2
) -> tuple[dict[str, float], dict[str, float]]:
    """Machines that read their shares alone, or add gradients: largest differences of weights, and losses on `fresh`.

    The differences are to one machine's weights, or between two machines that don't talk.
    """
    one = deepcopy(model)
    alone(one, batches)
    lonely = []
    for m in range(machines):
        lonely.append(deepcopy(model))
        alone(lonely[m], [ids.tensor_split(machines)[m] for ids in batches])
    together, _ = data_parallel(model, batches, Wire(machines))
    apart = {
        "machine 0 without a wire, from one machine": largest_difference(one, lonely[0]),
        "machine 0 from machine 1, without a wire": largest_difference(lonely[0], lonely[1]),
        "machine 0 with a wire, from one machine": largest_difference(one, together[0]),
    }
    named = {"one machine": one} | {f"machine {m} without a wire": each for m, each in enumerate(lonely)}
    return apart, {name: _mean_loss(each, fresh) for name, each in named.items()}


@torch.no_grad()
def _mean_loss(model: Gpt, batches: Batches) -> float:
    """Nats per token."""
    total = sum(total_loss(model(ids[:, :-1]), ids).item() for ids in batches)
    return total / sum(predicted(ids) for ids in batches)


def counted_ring(ring: Callable[[Held, Exchange], Held], machines: int = 4) -> list[list[list[int]]]:
    """At the start and after each step of a ring: how many machines' numbers are in piece p of machine m, [m][p].

    Each number that travels is marked with its machine and its piece, so what arrives tells whose sum it is.
    """
    counts = [[1] * machines for _ in range(machines)]
    seen = [deepcopy(counts)]
    marks = torch.eye(2 * machines)

    def exchange(pieces: list[Tensor]) -> list[Tensor]:
        arrived = [pieces[m - 1].clone() for m in range(machines)]
        for m, marked in enumerate(arrived):
            sources, piece = marked[:machines] > 0, int(marked[machines:].argmax())
            sources[m] = True
            counts[m][piece] = int(sources.sum())
        seen.append(deepcopy(counts))
        return arrived

    ring([[marks[m] + marks[machines + p] for p in range(machines)] for m in range(machines)], exchange)
    return seen


def meet(orders: Orders) -> list[tuple[int, int]]:
    """The messages (from, to) in the order of their delivery, where a send ends only when it is received.

    Raises ValueError, and says who waits for whom, when nobody can go on.
    """
    place, delivered = [0] * len(orders), []
    while any(at < len(order) for at, order in zip(place, orders, strict=True)):
        ready = [order[at] if at < len(order) else ("done", -1) for at, order in zip(place, orders, strict=True)]
        pair = next(
            ((m, to) for m, (what, to) in enumerate(ready) if what == "send" and ready[to] == ("receive", m)), None
        )
        if pair is None:
            waiting = [
                f"machine {m} waits to {what} ({other})" for m, (what, other) in enumerate(ready) if what != "done"
            ]
            raise ValueError(f"deadlock: {', '.join(waiting)}")
        delivered.append(pair)
        for m in pair:
            place[m] += 1
    return delivered
