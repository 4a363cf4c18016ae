"""h_t = a_t ⊙ h_{t−1} + b_t: one linear recurrence as a loop, as a tree of pairs, and in chunks.

All three take the decays `a` and the inputs `b`, and the state before the first position, 0 unless given.

Shapes: batch, time, state (any further axes, of which none interact).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Inexact
from torch import Tensor

from tfbook.checks import check_positive

Scan = Callable[..., Tensor]  # (a, b, start=None) → h
Pair = tuple[Tensor, Tensor]


def combine(earlier: Pair, later: Pair) -> Pair:
    """(a₂ a₁, a₂ b₁ + b₂): two steps of the recurrence as one. Associative, so the steps may be joined in any grouping.

    Decays below 1 in size only get smaller, and nothing is divided, so no number can overflow.
    """
    (a_1, b_1), (a_2, b_2) = earlier, later
    return a_2 * a_1, a_2 * b_1 + b_2


def begun(a: Tensor, b: Tensor, start: Tensor | None) -> Pair:
    """a and b such that the state before the first position is 0: what `start` adds to the first state goes into b."""
    if a.shape != b.shape or (start is not None and start.shape != (len(b), *b.shape[2:])):
        shapes = f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}"
        begins = "" if start is None else f", start {tuple(start.shape)}"
        raise ValueError(f"{shapes}{begins}; expected the same for a and b, and it without time for start")
    if start is None or not b.shape[1]:
        return a, b
    first = b[:, :1] + a[:, :1] * start[:, None]
    return a, torch.cat([first, b[:, 1:]], dim=1)


def sequential_scan(
    a: Inexact[Tensor, "batch time *state"],
    b: Inexact[Tensor, "batch time *state"],
    start: Inexact[Tensor, "batch *state"] | None = None,
) -> Inexact[Tensor, "batch time *state"]:
    """One position after the other: `time` steps, each of which waits for the one before.

    Raises ValueError when the shapes of a, b and start do not fit.
    """
    a, b = begun(a, b, start)
    states: list[Tensor] = []
    for decay, new in zip(a.unbind(1), b.unbind(1), strict=True):
        states.append(decay * states[-1] + new if states else new)
    return torch.stack(states, dim=1) if states else b


def parallel_scan(
    a: Inexact[Tensor, "batch time *state"],
    b: Inexact[Tensor, "batch time *state"],
    start: Inexact[Tensor, "batch *state"] | None = None,
) -> Inexact[Tensor, "batch time *state"]:
    """A tree of pairs: log₂(time) levels, and about twice the loop's operations (Blelloch, 1990).

    Neighbors are combined, the half as many pairs are scanned in the same way, and the states between them take one
    more step. Raises ValueError when the shapes of a, b and start do not fit.
    """
    a, b = begun(a, b, start)
    time = b.shape[1]
    if time < 2:
        return b
    even = time - time % 2
    pairs = combine((a[:, 0:even:2], b[:, 0:even:2]), (a[:, 1:even:2], b[:, 1:even:2]))
    odd = parallel_scan(*pairs)  # the states at positions 1, 3, 5, …
    between = a[:, 2::2] * odd[:, : (time - 1) // 2] + b[:, 2::2]  # at 2, 4, 6, …
    first = torch.cat([b[:, :1], between], dim=1)
    rest = odd.new_zeros(len(b), first.shape[1] - odd.shape[1], *b.shape[2:])
    both = torch.stack([first, torch.cat([odd, rest], dim=1)], dim=2)
    return both.flatten(1, 2)[:, :time]


# ---- for training on a CPU ------------------------------------------------------------------------------------------

WIDE = 4096  # numbers a step from which a CPU is busy with one step, so that the loop costs nothing


def _in_place(a: Tensor, h: Tensor) -> None:
    """The loop over the axis 1, in the memory of h, which holds the inputs at first."""
    for step in range(1, h.shape[1]):
        h[:, step].addcmul_(a[:, step], h[:, step - 1])


def _scanned(a: Tensor, b: Tensor, chunk: int) -> Tensor:
    """All chunks side by side, then their last states one after the other, then what these add inside each chunk."""
    time = b.shape[1]
    if time <= chunk:
        h = b.clone()
        _in_place(a, h)
        return h
    missing = -time % chunk
    shape = (len(b), missing, *b.shape[2:])
    a, h = (torch.cat([x, x.new_zeros(shape)], dim=1).unflatten(1, (-1, chunk)).flatten(0, 1) for x in (a, b))
    decays = a.clone()
    for step in range(1, chunk):
        decays[:, step] *= decays[:, step - 1]
    _in_place(a, h)
    h, decays = (x.unflatten(0, (len(b), -1)) for x in (h, decays))
    carry = h[:, :, -1].clone()
    _in_place(decays[:, :, -1], carry)
    h[:, 1:] += decays[:, 1:] * carry[:, :-1, None]
    return h.flatten(1, 2)[:, :time]


class _LinearScan(torch.autograd.Function):
    """The recurrence whose gradient is the same recurrence from the end: ∂b_t = ∂h_t + a_{t+1} ∂b_{t+1}."""

    @staticmethod
    def forward(context: Any, a: Tensor, b: Tensor, chunk: int) -> Tensor:
        """Keeps a and the states alone, not what the tree computes on its way."""
        h = _scanned(a, b, chunk)
        context.save_for_backward(a, h)
        context.chunk = chunk
        return h

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """∂a_t = ∂b_t h_{t−1}."""
        a, h = context.saved_tensors
        later = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], dim=1)
        for_b = _scanned(later.flip(1).conj(), gradients[0].flip(1), context.chunk).flip(1)
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1)
        return for_b * before.conj(), for_b, None


def chunked_scan(
    a: Inexact[Tensor, "batch time *state"],
    b: Inexact[Tensor, "batch time *state"],
    start: Inexact[Tensor, "batch *state"] | None = None,
    *,
    chunk: int | None = None,
) -> Inexact[Tensor, "batch time *state"]:
    """`chunk` + time / `chunk` steps, on as many rows as there are chunks; the fastest of the three on a few cores.

    Unless given, chunks have 16 positions, or all where one step is `WIDE`. Raises ValueError when `chunk` < 1 or the
    shapes of a, b and start do not fit.
    """
    check_positive(chunk=chunk)
    a, b = begun(a, b, start)
    if chunk is None:
        chunk = 16 if b[:, :1].numel() < WIDE else max(1, b.shape[1])
    return _LinearScan.apply(a, b, chunk)
