"""Exercises of lesson 18's machines: move a head, focus it, and a write that wipes the tape."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn


def _weights(rows: int, slots: int, seed: int) -> Tensor:
    return randn(rows, slots, seed=seed).softmax(dim=-1)


# ---- moving a head ---------------------------------------------------------------------------------------------------


def _moves() -> list[tuple[Tensor, Tensor]]:
    sizes = [(1, 5, 3), (3, 6, 3), (2, 7, 5), (2, 4, 1)]
    return [
        (_weights(rows, slots, 10 + i), _weights(rows, shifts, 20 + i)) for i, (rows, slots, shifts) in enumerate(sizes)
    ]


@exercise(
    cases=_moves,
    hints=[
        "`weights.roll(1, dims=-1)` moves every weight one slot further; the last one comes around to slot 0.",
        "Add up `shift[:, k, None] * weights.roll(k - reach, dims=-1)` for each column k, with "
        "reach = shift.shape[1] // 2, so that the middle column stays in place.",
    ],
)
def move_head(weights: Tensor, shift: Tensor) -> Tensor:
    reach = shift.shape[1] // 2
    columns = range(shift.shape[1])
    moved = [shift[:, k, None] * weights.roll(k - reach, dims=-1) for k in columns]
    return torch.stack(moved).sum(dim=0)


def _moved(weights: Tensor, shift: Tensor, *, sign: int = 1, start: int = 0, circle: bool = True) -> Tensor:
    """The sum with rolls from `start` instead of −reach, in the other direction, or without going around."""
    reach, total = shift.shape[1] // 2, torch.zeros_like(weights)
    for k in range(shift.shape[1]):
        offset = sign * (k - reach) + start * reach
        rolled = weights.roll(offset, dims=-1)
        if not circle:
            number = torch.arange(weights.shape[1]) - offset
            rolled = rolled * ((number >= 0) & (number < weights.shape[1]))
        total = total + shift[:, k, None] * rolled
    return total


move_head.mistakes(
    {
        "the head moves the wrong way: the last column of `shift` means one slot further, not one back": partial(
            _moved, sign=-1
        ),
        "the middle column of `shift` means stay; yours begins with 0, so everything moves `reach` too far": partial(
            _moved, start=1
        ),
        "the tape is a circle: what leaves at one end comes in at the other. Yours falls off": partial(
            _moved, circle=False
        ),
        "this takes only the likeliest shift; the result is the mean over all shifts, by their weights": (
            lambda weights, shift: move_head.reference(
                weights, torch.nn.functional.one_hot(shift.argmax(dim=1), shift.shape[1]).to(shift.dtype)
            )
        ),
        "rows were added up as well: every row of the batch has a shift of its own": (
            lambda weights, shift: move_head.reference(weights, shift).mean(dim=0, keepdim=True).expand_as(weights)
        ),
    }
)

# ---- focusing --------------------------------------------------------------------------------------------------------


def _orders() -> list[tuple[Tensor, ...]]:
    """Content, previous, gate, three shifts and sharpness; gates that are nearly shut and nearly open, too."""
    cases: list[tuple[Tensor, ...]] = []
    for i, (rows, slots) in enumerate([(1, 5), (3, 6), (2, 7)]):
        gate, sharpness = randn(rows, 1, seed=50 + i).mul(3).sigmoid(), 1 + randn(rows, 1, seed=60 + i).exp()
        cases.append(
            (
                _weights(rows, slots, 30 + i),
                _weights(rows, slots, 40 + i),
                gate,
                _weights(rows, 3, 70 + i),
                sharpness,
            )
        )
    return cases


@exercise(
    cases=_orders,
    hints=[
        "Three lines: mix `content` and `previous` by the gate, move the mixture, then raise it to the power γ and "
        "divide by the sum over slots.",
        "An open gate (g = 1) takes the content, a shut one the previous place; between them, mix both.",
        "`move_head(gated, shift)` of the exercise before may be called here; "
        "`powered / powered.sum(dim=-1, keepdim=True)` makes weights again.",
    ],
)
def focus(content: Tensor, previous: Tensor, gate: Tensor, shift: Tensor, sharpness: Tensor) -> Tensor:
    gated = gate * content + (1 - gate) * previous
    reach = shift.shape[1] // 2
    moved = sum(shift[:, k, None] * gated.roll(k - reach, dims=-1) for k in range(shift.shape[1]))
    powered = moved**sharpness
    return powered / powered.sum(dim=-1, keepdim=True)


def _focused(
    content: Tensor, previous: Tensor, gate: Tensor, shift: Tensor, sharpness: Tensor, *, mistake: str
) -> Tensor:
    gate = 1 - gate if mistake == "gate" else gate
    gated = content + previous if mistake == "no gate" else gate * content + (1 - gate) * previous
    if mistake == "sharp first":
        gated = gated**sharpness / (gated**sharpness).sum(dim=-1, keepdim=True)
    moved = gated if mistake == "stays" else move_head.reference(gated, shift)
    if mistake in ("sharp first", "blurred"):
        return moved
    powered = torch.exp(sharpness * moved) if mistake == "softmax" else moved**sharpness
    return powered if mistake == "sum" else powered / powered.sum(dim=-1, keepdim=True)


focus.mistakes(
    {
        "the gate is upside down: g = 1 takes the content, g = 0 stays at the previous place": partial(
            _focused, mistake="gate"
        ),
        "the gate is missing: content and previous are mixed by g and 1 − g": partial(_focused, mistake="no gate"),
        "the head never moves: between gate and sharpening, the weights are shifted": partial(
            _focused, mistake="stays"
        ),
        "sharpened before the shift, which blurs it again: sharpen last": partial(_focused, mistake="sharp first"),
        "nothing is sharpened: raise the shifted weights to the power γ and divide by their sum": partial(
            _focused, mistake="blurred"
        ),
        "the powers are not divided by their sum, so the weights no longer sum to 1": partial(_focused, mistake="sum"),
        "this is a softmax of γ · w; sharpening takes powers, w^γ": partial(_focused, mistake="softmax"),
    }
)

# ---- find the bug: a write that wipes the tape -----------------------------------------------------------------------


def _writes() -> list[tuple[Tensor, ...]]:
    cases: list[tuple[Tensor, ...]] = []
    for i, (rows, slots, width) in enumerate([(1, 4, 3), (2, 5, 2), (3, 3, 4)]):
        erase, add = randn(rows, width, seed=i).sigmoid(), randn(rows, width, seed=5 + i)
        cases.append((randn(rows, slots, width, seed=80 + i), _weights(rows, slots, 90 + i), erase, add))
    return cases


@exercise(
    cases=_writes,
    hints=[
        "Write once with all the weight on slot 0 and print the other slots before and after.",
        "A slot that has weight 0 must stay as it is. In which of the two terms does the weight of the slot occur?",
    ],
)
def write_slots(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    where = weights[:, :, None]
    kept = memory * (1 - where * erase[:, None])
    return kept + where * add[:, None]


@write_slots.given
def _wiping(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """As the notebook gives it: every slot is erased, whatever its weight."""
    where = weights[:, :, None]
    kept = memory * (1 - erase[:, None])
    return kept + where * add[:, None]


write_slots.mistakes(
    {
        "now nothing is erased: a slot is multiplied by 1 − w · e before the new is added": (
            lambda memory, weights, erase, add: memory + weights[:, :, None] * add[:, None]
        ),
        "the weight stands outside: (1 − w) · (1 − e) erases a slot of weight 0 as well. It is 1 − w · e": (
            lambda memory, weights, erase, add: (
                memory * (1 - weights[:, :, None]) * (1 - erase[:, None]) + weights[:, :, None] * add[:, None]
            )
        ),
        "what is added needs the weight, too: otherwise every slot receives it": (
            lambda memory, weights, erase, add: memory * (1 - weights[:, :, None] * erase[:, None]) + add[:, None]
        ),
        "1 − w alone ignores the erase vector: it says which numbers of a slot go": (
            lambda memory, weights, erase, add: memory * (1 - weights[:, :, None]) + weights[:, :, None] * add[:, None]
        ),
    }
)
