"""Lesson 17's exercises: wrong answers and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.state_spaces import exercises as ex

Pair = tuple[Tensor, Tensor]

# ---- wrong -------------------------------------------------------------------------------------------------------


def combine_backwards(earlier: Pair, later: Pair) -> Pair:
    return earlier[0] * later[0], earlier[0] * later[1] + earlier[1]


def scan_without_state(x: Tensor, step: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    return ex.selective_scan.reference(x, step, A, B, C, 0 * h)


def scan_by_euler(x: Tensor, step: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(x.shape[1]):
        z = torch.einsum("bw,ws->bws", step[:, t], A)
        h = h + z * h + torch.einsum("bw,bs->bws", step[:, t] * x[:, t], B[:, t])
        outputs.append(torch.einsum("bws,bs->bw", h, C[:, t]))
    return torch.stack(outputs, 1), h


def question_after_reading(h: Tensor, x: Tensor, W_Q: Tensor, W_O: Tensor) -> Tensor:
    return torch.einsum("btw,wd,btd->btd", h, W_O, x)


def question_added(h: Tensor, x: Tensor, W_Q: Tensor, W_O: Tensor) -> Tensor:
    return h @ W_O + x @ W_Q @ W_O


def gru_swapped(gate: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
    states = []
    for g, c in zip(gate.unbind(1), candidate.unbind(1), strict=True):
        h = torch.lerp(c, h, torch.sigmoid(g))
        states.append(h)
    return torch.stack(states, 1)


def kernel_from_one(a: Tensor, B: Tensor, C: Tensor, time: int) -> Tensor:
    return torch.stack([(a ** (lag + 1) * B * C).sum() for lag in range(time)])


def discretize_nan(A: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    return (A * step).exp(), ((A * step).exp() - 1) / A


def outgrown_rounded(d_model: int, width: int, state: int, reach: int) -> int:
    numbers = width * state + width * (reach - 1)
    return numbers // (2 * d_model)


def pieces_detached(a: Tensor, b: Tensor, size: int) -> Tensor:
    states, h = [], torch.zeros(b.shape[1])
    for t in range(len(b)):
        if t % size == 0:
            h = h.detach()
        h = a[t] * h + b[t]
        states.append(h)
    return torch.stack(states)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.combine, combine_backwards, "b₁ is multiplied by a₂, not b₂ by a₁"),
    (ex.selective_scan, scan_without_state, "so a text cannot go on"),
    (ex.selective_scan, scan_by_euler, "1 + Δ A is Euler's step"),
    (ex.read_by_question, question_after_reading, "the question comes too late"),
    (ex.read_by_question, question_added, "the question is added"),
    (ex.min_gru, gru_swapped, "the other way around"),
    (ex.kernel, kernel_from_one, "K₀ uses the power 0"),
    (ex.discretize, discretize_nan, "this is 0 / 0"),
    (ex.outgrown, outgrown_rounded, "one more"),
    (ex.in_pieces, pieces_detached, "its gradient with respect to"),
]

# ---- right -------------------------------------------------------------------------------------------------------


def combine_stacked(earlier: Pair, later: Pair) -> Pair:
    return earlier[0] * later[0], torch.addcmul(later[1], later[0], earlier[1])


def scan_at_once(x: Tensor, step: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    decays = torch.exp(torch.einsum("btw,ws->btws", step, A))
    new = torch.einsum("btw,bts->btws", step * x, B)
    states = []
    for t in range(x.shape[1]):
        h = decays[:, t] * h + new[:, t]
        states.append(h)
    return torch.einsum("btws,bts->btw", torch.stack(states, 1), C), h


def question_at_once(h: Tensor, x: Tensor, W_Q: Tensor, W_O: Tensor) -> Tensor:
    return torch.einsum("btw,btd,dw,we->bte", h, x, W_Q, W_O)


def gru_by_lerp(gate: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
    states = []
    for g, c in zip(gate.unbind(1), candidate.unbind(1), strict=True):
        h = h + torch.sigmoid(g) * (c - h)
        states.append(h)
    return torch.stack(states, 1)


def kernel_by_loop(a: Tensor, B: Tensor, C: Tensor, time: int) -> Tensor:
    found, h = [], B
    for _ in range(time):
        found.append(C @ h)
        h = a * h
    return torch.stack(found)


def discretize_by_series(A: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    z = A * step
    safe = torch.where(z == 0, torch.ones_like(z), z)
    return z.exp(), step * torch.where(z == 0, torch.ones_like(z), (safe.exp() - 1) / safe)


def outgrown_by_counting(d_model: int, width: int, state: int, reach: int) -> int:
    position = 1
    while 2 * d_model * position <= width * state + width * (reach - 1):
        position += 1
    return position


def pieces_in_one_loop(a: Tensor, b: Tensor, size: int) -> Tensor:
    states = [b[0]]
    for decay, new in zip(a[1:], b[1:], strict=True):
        states.append(decay * states[-1] + new)
    return torch.stack(states)


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.combine, combine_stacked),
    (ex.selective_scan, scan_at_once),
    (ex.read_by_question, question_at_once),
    (ex.min_gru, gru_by_lerp),
    (ex.kernel, kernel_by_loop),
    (ex.discretize, discretize_by_series),
    (ex.outgrown, outgrown_by_counting),
    (ex.in_pieces, pieces_in_one_loop),
]
