"""The first exercises of lesson 20: gradients of uneven shares, the ring, memory per machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn

Held = list[list[Tensor]]
Exchange = Callable[[list[Tensor]], list[Tensor]]

# ---- find the bug: uneven shares -------------------------------------------------------------------------------------


def _shares() -> list[tuple[list[Tensor], list[int]]]:
    """Two machines with three tokens and one; equal shares; a machine that had nothing to read."""
    return [
        ([torch.tensor([2.0]), torch.tensor([6.0])], [3, 1]),
        ([randn(4, seed=1), randn(4, seed=2)], [5, 5]),
        ([randn(2, 3, seed=3), randn(2, 3, seed=4), randn(2, 3, seed=5)], [7, 2, 1]),
        ([randn(2, seed=6), torch.zeros(2), randn(2, seed=7)], [2, 0, 4]),
    ]


@exercise(
    cases=_shares,
    hints=[
        "A machine's gradient is that of the mean over *its* tokens. Which factor makes it the gradient of the sum?",
        "The sum over the whole batch is Σ count · gradient. Divide it by the number of all tokens.",
    ],
    differentiable=False,
)
def batch_gradient(gradients: list[Tensor], counts: list[int]) -> Tensor:
    total = sum(count * gradient for gradient, count in zip(gradients, counts, strict=True))
    return total / sum(counts)


@batch_gradient.given
def _(gradients: list[Tensor], counts: list[int]) -> Tensor:
    return sum(gradients) / len(gradients)


batch_gradient.mistakes(
    {
        "these are sums over the batch; its mean needs a division by the number of all tokens": (
            lambda gradients, counts: sum(c * g for g, c in zip(gradients, counts, strict=True))
        ),
        "the weights are right, but the sum is divided by the number of machines, not by that of the tokens": (
            lambda gradients, counts: sum(c * g for g, c in zip(gradients, counts, strict=True)) / len(counts)
        ),
        "the gradients are added, but a machine with three tokens has to count three times as much as one with one": (
            lambda gradients, counts: sum(gradients)
        ),
        "a machine's gradient is a mean already: multiply it by its count, don't divide by it": (
            lambda gradients, counts: sum(g / max(c, 1) for g, c in zip(gradients, counts, strict=True)) / sum(counts)
        ),
        "each gradient is multiplied by another machine's count: `zip` pairs a gradient with its own": (
            lambda gradients, counts: sum(c * g for g, c in zip(gradients, counts[::-1], strict=True)) / sum(counts)
        ),
        "all gradients get the count of machine 0: each has its own": (
            lambda gradients, counts: counts[0] * sum(gradients) / sum(counts)
        ),
        "the weights are right, but the sum is divided by the largest count, not by the number of all tokens": (
            lambda gradients, counts: sum(c * g for g, c in zip(gradients, counts, strict=True)) / max(counts)
        ),
        "machines without tokens are left out now, but the others still count alike: weigh them by their tokens": (
            lambda gradients, counts: sum(gradients) / sum(count > 0 for count in counts)
        ),
        "the gradients are divided by the number of all tokens, but each has to be multiplied by its count first": (
            lambda gradients, counts: sum(gradients) / sum(counts)
        ),
    }
)

# ---- the ring --------------------------------------------------------------------------------------------------------

MARK = 0.01  # what the wire of the check adds to every number that it carries


class MarkingRing:
    """An `exchange` that adds 1/100 to what it carries, so that the check sees which way a number has come."""

    advice = "call it, and leave it as it is"

    def __init__(self, machines: int, size: int):
        self.machines, self.size = machines, size

    def __call__(self, pieces: list[Tensor]) -> list[Tensor]:
        if len(pieces) != self.machines:
            raise ValueError(f"exchange got {len(pieces)} tensors; expected {self.machines}, one from each machine")
        for m, piece in enumerate(pieces):
            if piece.numel() != self.size:
                raise ValueError(f"machine {m} sends {piece.numel()} numbers; expected one piece of {self.size}")
        return [pieces[m - 1] + MARK for m in range(self.machines)]


class PiecesOfMachines(list[list[Tensor]]):
    """The pieces of each machine, with what to tell one who changes them."""

    advice = (
        "copying the lists isn't enough, since `a += b` changes the tensor in both: write `a = a + b`, which makes a "
        "new one"
    )


def _rings() -> list[tuple[Held, MarkingRing]]:
    """Two, three and five machines; one machine, which has nothing to send."""
    cases = []
    for n, size in ((2, 1), (3, 2), (5, 3), (1, 2)):
        held = PiecesOfMachines([randn(size, seed=100 * n + 10 * m + p) for p in range(n)] for m in range(n))
        cases.append((held, MarkingRing(n, size)))
    return cases


@exercise(
    cases=_rings,
    hints=[
        "First n − 1 steps that add. In step s (from 0) machine m sends piece (m − 1 − s) % n: in step 0 the piece of "
        "its left neighbor's number, then whatever it has just received and added to its own.",
        "What arrives at m in step s was sent by m − 1, so it is piece (m − 2 − s) % n: "
        "`held[m][(m - 2 - s) % n] = held[m][(m - 2 - s) % n] + arrived[m]`.",
        "After them machine m has the finished piece m. Then n − 1 steps that pass on: m sends piece (m − s) % n, and "
        "what arrives is the finished piece (m − 1 − s) % n, which takes the place of its own.",
    ],
    differentiable=False,
)
def ring_all_reduce(held: Held, exchange: Exchange) -> Held:
    n = len(held)
    held = [list(pieces) for pieces in held]
    for s in range(n - 1):
        arrived = exchange([held[m][(m - 1 - s) % n] for m in range(n)])
        for m in range(n):
            held[m][(m - 2 - s) % n] = held[m][(m - 2 - s) % n] + arrived[m]
    for s in range(n - 1):
        arrived = exchange([held[m][(m - s) % n] for m in range(n)])
        for m in range(n):
            held[m][(m - 1 - s) % n] = arrived[m]
    return held


def _ring(held: Held, exchange: Exchange, kind: str) -> Held:
    """The ring with a mistake of some kind."""
    n = len(held)
    held = [list(pieces) for pieces in held]
    late = 1 if kind == "late" else 0
    for s in range(n - 1 - (kind == "short")):
        arrived = exchange([held[m][(m - 1 - s + late) % n] for m in range(n)])
        for m in range(n):
            piece = (m - 2 - s + late) % n
            held[m][piece] = arrived[m] if kind == "replaces" else held[m][piece] + arrived[m]
    if kind == "half":
        return held
    for s in range(n - 1):
        arrived = exchange([held[m][(m - s + late) % n] for m in range(n)])
        for m in range(n):
            piece = (m - 1 - s + late) % n
            held[m][piece] = held[m][piece] + arrived[m] if kind == "adds" else arrived[m]
    return held


def _everything(held: Held, exchange: Exchange) -> Held:
    """Each machine's own pieces go all the way around."""
    n = len(held)
    total, travelling = [list(pieces) for pieces in held], [list(pieces) for pieces in held]
    for _ in range(n - 1):
        for p in range(n):
            arrived = exchange([travelling[m][p] for m in range(n)])
            for m in range(n):
                travelling[m][p] = arrived[m]
                total[m][p] = total[m][p] + arrived[m]
    return total


def _without_wire(held: Held, exchange: Exchange) -> Held:
    n = len(held)
    return [[torch.stack([row[p] for row in held]).sum(dim=0) for p in range(n)] for _ in range(n)]


ring_all_reduce.mistakes(
    {
        "the sums are right, but nothing went over the wire: one machine can't read another's list": _without_wire,
        "this is the first half: each machine has one finished piece; n − 1 more steps pass it on": partial(
            _ring, kind="half"
        ),
        "in the first half what arrives is added to the machine's own piece, not put in its place": partial(
            _ring, kind="replaces"
        ),
        "in the second half what arrives is finished: it takes the place of the machine's own, nothing is added": (
            partial(_ring, kind="adds")
        ),
        "the first half takes n − 1 steps; one is missing, so the last machine's share isn't in the sum": partial(
            _ring, kind="short"
        ),
        "the sums are right, but begin with the other piece: in step 0 machine m sends piece m − 1, so that it ends "
        "with piece m finished": partial(_ring, kind="late"),
        "every machine's numbers travel all around: that is n (n − 1) pieces per machine, where 2 (n − 1) do": (
            _everything
        ),
    }
)

# ---- memory per machine ----------------------------------------------------------------------------------------------


def _sizes() -> list[tuple[float, int, int]]:
    return [(124.0, 8, 0), (124.0, 8, 1), (124.0, 8, 2), (124.0, 8, 3), (7.5, 64, 2), (3.0, 1, 3)]


@exercise(
    cases=_sizes,
    hints=[
        "Per parameter: 2 bytes of weights, 2 of gradients, 12 of the optimizer, all on every machine at stage 0.",
        "Stage 1 divides the 12 by the number of machines, stage 2 also the gradient's 2, stage 3 all 16.",
    ],
)
def bytes_per_machine(parameters: float, machines: int, stage: int) -> float:
    weights, gradients, optimizer = 2.0, 2.0, 12.0
    if stage >= 1:
        optimizer /= machines
    if stage >= 2:
        gradients /= machines
    if stage >= 3:
        weights /= machines
    return parameters * (weights + gradients + optimizer)


def _held(parameters: float, machines: int, stage: int, order: tuple[float, ...], rest: float = 0) -> float:
    """The first `stage` of three parts are divided."""
    return parameters * (sum(order[:stage]) / machines + sum(order[stage:]) + rest)


bytes_per_machine.mistakes(
    {
        "stage 1 shards the optimizer, the largest part, first; the weights come last": lambda *sizes: _held(
            *sizes, order=(2, 2, 12)
        ),
        "stage 2 shards the gradients, stage 3 the weights; the optimizer's 12 bytes are missing": lambda *sizes: _held(
            *sizes, order=(0, 2, 2)
        ),
        "each stage keeps what the one before has sharded: at stage 3 all 16 bytes are divided": (
            lambda parameters, machines, stage: (
                parameters * (16 - (0, 12, 2, 2)[stage] + (0, 12, 2, 2)[stage] / machines)
            )
        ),
        "this is what all machines hold together; one of them holds a machine's share": (
            lambda parameters, machines, stage: machines * _held(parameters, machines, stage, (12, 2, 2))
        ),
        "at stage 0 nothing is divided: every machine holds everything": (
            lambda parameters, machines, stage: _held(parameters, machines, min(stage + 1, 3), (12, 2, 2))
        ),
    }
)
