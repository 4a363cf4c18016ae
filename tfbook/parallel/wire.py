"""The wire between pretended machines: it delivers tensors, and counts every message and byte.

A machine is a place in a list: `xs[m]` is what machine m holds. Shapes: numbers (a flat tensor), piece = numbers / n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tfbook.checks import check_positive

Held = list[list[Tensor]]  # held[m][p]: piece p as machine m has it
Exchange = Callable[[list[Tensor]], list[Tensor]]  # all send to the right; what arrives from the left


class Message(NamedTuple):
    """One tensor on its way. `step` counts what happens at the same time as one."""

    step: int
    source: int
    target: int
    size: int  # bytes
    what: str


# ---- rings ---------------------------------------------------------------------------------------------------------


def ring_reduce_scatter(held: Held, exchange: Exchange) -> Held:
    """After n − 1 steps machine m has the sum of all machines' pieces m; its other pieces are partial sums."""
    n = len(held)
    for step in range(n - 1):
        arrived = exchange([held[m][(m - 1 - step) % n] for m in range(n)])
        for m in range(n):
            piece = (m - 2 - step) % n
            held[m][piece] = held[m][piece] + arrived[m]
    return held


def ring_all_gather(held: Held, exchange: Exchange) -> Held:
    """After n − 1 steps all have everyone's piece: machine m begins with piece m and passes on what arrives."""
    n = len(held)
    for step in range(n - 1):
        arrived = exchange([held[m][(m - step) % n] for m in range(n)])
        for m in range(n):
            held[m][(m - 1 - step) % n] = arrived[m]
    return held


def ring_all_reduce(held: Held, exchange: Exchange) -> Held:
    """Both, one after the other: each machine sends 2 (n − 1) pieces, whatever n (Patarasuk & Yuan, 2009)."""
    return ring_all_gather(ring_reduce_scatter(held, exchange), exchange)


# ---- the wire ------------------------------------------------------------------------------------------------------


class Wire:
    """Delivers copies of tensors among `machines` in one process, and logs each message.

    `ring` is the all-reduce that it uses, such as a learner's own. Raises ValueError when there is no machine.
    """

    def __init__(self, machines: int, *, ring: Callable[[Held, Exchange], Held] = ring_all_reduce):
        check_positive(machines=machines)
        self.machines, self.ring = machines, ring
        self.log: list[Message] = []
        self._step = 0
        self._what = ""

    @property
    def sent(self) -> list[int]:
        """Bytes that each machine has sent."""
        return [sum(message.size for message in self.log if message.source == m) for m in range(self.machines)]

    def by_kind(self) -> dict[str, int]:
        """Bytes that the busiest machine has sent, for each kind of message."""
        kinds = dict.fromkeys(message.what for message in self.log)
        return {kind: max(self._sent_of(kind, m) for m in range(self.machines)) for kind in kinds}

    def _sent_of(self, kind: str, machine: int) -> int:
        return sum(message.size for message in self.log if (message.what, message.source) == (kind, machine))

    def send(self, x: Tensor, source: int, target: int, what: str = "send") -> Tensor:
        """Delivers a copy. Raises ValueError for a machine that isn't there or that sends to itself."""
        if not (0 <= source < self.machines and 0 <= target < self.machines and source != target):
            raise ValueError(f"a message goes from {source} to {target}; expected two of {self.machines} machines")
        self.log.append(Message(self._step, source, target, x.numel() * x.element_size(), what))
        return x.detach().clone()

    def exchange(self, pieces: list[Tensor]) -> list[Tensor]:
        """All at once: machine m sends pieces[m] to its right neighbor, and gets what its left neighbor sent."""
        n = self.machines
        if len(pieces) != n:
            raise ValueError(f"pieces holds {len(pieces)} tensors; expected {n}, one that each machine sends")
        self._step += 1
        arrived = [self.send(pieces[m], m, (m + 1) % n, self._what) for m in range(n)]
        return [arrived[m - 1] for m in range(n)]

    # ---- collectives -----------------------------------------------------------------------------------------------

    def broadcast(self, x: Tensor, root: int = 0) -> list[Tensor]:
        """x on each machine: it is passed on around the ring, so each but the last sends it once."""
        held = {root: x}
        for number in range(self.machines - 1):
            source = (root + number) % self.machines
            self._step += 1
            target = (source + 1) % self.machines
            held[target] = self.send(held[source], source, target, "broadcast")
        return [held[m] for m in range(self.machines)]

    def all_reduce(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """The sum of all xs on each machine; each sends 2 (n − 1) / n of its bytes."""
        held = [self.pieces(x.detach().flatten()) for x in xs]
        if self.machines > 1:
            self._what = "all-reduce"
            held = self.ring(held, self.exchange)
        return [torch.cat(row)[: x.numel()].view_as(x) for row, x in zip(held, xs, strict=True)]

    def reduce_scatter(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Machine m gets piece m of the sum of all (flat) xs; each sends (n − 1) / n of its bytes."""
        self._what = "reduce-scatter"
        held = ring_reduce_scatter([self.pieces(x.detach()) for x in xs], self.exchange)
        return [held[m][m] for m in range(self.machines)]

    def all_gather(self, shards: Sequence[Tensor]) -> list[Tensor]:
        """All shards, one after the other, on each machine; each sends (n − 1) / n of the whole's bytes."""
        self._what = "all-gather"
        held = [
            [shard.detach()] * self.machines for shard in shards
        ]  # only place m of row m is ever read before it is set
        return [torch.cat(row) for row in ring_all_gather(held, self.exchange)]

    def pieces(self, x: Tensor) -> list[Tensor]:
        """n pieces of equal length; zeros fill up the last."""
        missing = -x.numel() % self.machines
        return list(torch.cat([x, x.new_zeros(missing)]).chunk(self.machines))
