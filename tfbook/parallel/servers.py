"""An all-reduce in two levels: inside each server, then between GPUs of the same number, over each one's own card."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tfbook.parallel.wire import Exchange, Wire, ring_all_gather, ring_all_reduce, ring_reduce_scatter


def among(wire: Wire, group: Sequence[int]) -> Exchange:
    """A ring of these machines alone: each sends to the next one in the group."""

    def exchange(pieces: list[Tensor]) -> list[Tensor]:
        return [wire.send(pieces[i - 1], group[i - 1], group[i], "all-reduce") for i in range(len(group))]

    return exchange


def all_reduce_in_servers(xs: Sequence[Tensor], wire: Wire, server: int) -> list[Tensor]:
    """The sum of all (flat) xs on each machine; machines of a server have consecutive numbers.

    A card between servers carries 2 (s − 1) / s · size / `server` for s servers, 1/`server` of a flat ring's.
    Raises ValueError unless the servers are full and the vector can be cut into `server` and then s equal pieces.
    """
    if len(xs) % server or len(xs[0]) % len(xs):
        raise ValueError(f"{len(xs)} vectors of {len(xs[0])} numbers can't be cut for servers of {server}")
    held = [list(x.detach().chunk(server)) for x in xs]
    inside = [range(first, first + server) for first in range(0, len(xs), server)]
    for group in inside:
        ring_reduce_scatter([held[m] for m in group], among(wire, group))
    for number in range(server):
        twins = range(number, len(xs), server)
        rows = [list(held[m][number].chunk(len(twins))) for m in twins]
        for m, row in zip(twins, ring_all_reduce(rows, among(wire, twins)), strict=True):
            held[m][number] = torch.cat(row)
    for group in inside:
        ring_all_gather([held[m] for m in group], among(wire, group))
    return [torch.cat(row) for row in held]


def over_cards(wire: Wire, server: int) -> int:
    """Bytes that the busiest machine has sent to another server."""
    sent = [0] * wire.machines
    for message in wire.log:
        sent[message.source] += message.size * (message.source // server != message.target // server)
    return max(sent)
