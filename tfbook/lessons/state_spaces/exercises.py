"""Exercises of lesson 17: two steps as one, gates, the selective scan; kernels, discretization, memory, two bugs."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.state_spaces.convolution_exercises import (
    dilated_convolution as dilated_convolution,
    receptive_field as receptive_field,
)
from tfbook.lessons.state_spaces.first_exercises import (
    combine as combine,
    min_gru as min_gru,
    read_by_question as read_by_question,
    selective_scan as selective_scan,
    shares,
)

# ---- the kernel of a recurrence --------------------------------------------------------------------------------------


def _systems() -> list[tuple[Tensor, Tensor, Tensor, int]]:
    return [
        (torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor([1.0]), 4),
        (shares(3, seed=1), randn(3, seed=2), randn(3, seed=3), 6),
        (torch.tensor([0.0, 0.9, -0.5]), randn(3, seed=5), randn(3, seed=6), 5),
        (shares(2, seed=7), randn(2, seed=8), randn(2, seed=9), 1),
    ]


@exercise(
    cases=_systems,
    hints=[
        "Write h₂ out for inputs x₀, x₁, x₂: what multiplies x₀, what x₁, what x₂?",
        "An input that lies l positions back has decayed l times: K_l = Σ_n C_n a_nˡ B_n, so K₀ = Σ_n C_n B_n.",
        "`a ** torch.arange(time)[:, None]` is (time, state): each row one power.",
    ],
)
def kernel(
    a: Float[Tensor, " state"], B: Float[Tensor, " state"], C: Float[Tensor, " state"], time: int
) -> Float[Tensor, " time"]:
    powers = a ** torch.arange(time)[:, None]
    return (powers * B * C).sum(dim=1)


def _kernel_from(first: int, a: Tensor, B: Tensor, C: Tensor, time: int) -> Tensor:
    return (a ** torch.arange(first, first + time)[:, None] * B * C).sum(dim=1)


kernel.mistakes(
    {
        "what was just read has not decayed yet: K₀ uses the power 0": lambda a, B, C, time: _kernel_from(
            1, a, B, C, time
        ),
        "the kernel begins with the newest input, K₀; yours is the other way around": (
            lambda a, B, C, time: kernel.reference(a, B, C, time).flip(0)
        ),
        "the numbers of the state are added up: the result has one number for each position": (
            lambda a, B, C, time: a ** torch.arange(time)[:, None] * B * C
        ),
        "C is missing, which reads the state": lambda a, B, C, time: kernel.reference(a, B, torch.ones_like(C), time),
        "B is missing, which writes into the state": (
            lambda a, B, C, time: kernel.reference(a, torch.ones_like(B), C, time)
        ),
        "an input decays once for each position: a to the power l, not l times a": (
            lambda a, B, C, time: (a * torch.arange(time)[:, None] * B * C).sum(dim=1)
        ),
    }
)

# ---- from continuous time to steps -----------------------------------------------------------------------------------


def _continuous() -> list[tuple[Tensor, Tensor]]:
    """Fast and slow decays, long and short steps, and A = 0, an integrator."""
    return [
        (torch.tensor([-1.0, -2.0]), torch.tensor([0.5, 0.1])),
        (-shares(4, seed=1) - 0.1, shares(4, seed=2) + 0.5),
        (torch.tensor([-0.5, 0.0, -3.0]), torch.tensor([1.0, 0.25, 2.0])),
    ]


@exercise(
    cases=_continuous,
    hints=[
        "While the input stays the same, h' = A h + u is solved by exponentials: ā = e^{ΔA}.",
        "b̄ is the integral of e^{As} from 0 to Δ, which is (e^{ΔA} − 1) / A.",
        "For A = 0 the integral of 1 is Δ. `torch.where(A == 0, …)` chooses; dividing by `torch.where(A == 0, 1, A)` "
        "avoids 0 / 0.",
    ],
    differentiable=False,
)
def discretize(A: Float[Tensor, " state"], step: Float[Tensor, " state"]) -> tuple[Tensor, Tensor]:
    divisor = torch.where(A == 0, 1.0, A)
    return torch.exp(step * A), torch.where(A == 0, step, torch.expm1(step * A) / divisor)


discretize.mistakes(
    {
        "this is Euler's step, 1 + ΔA and Δ: the exact solution has exponentials": lambda A, step: (1 + step * A, step),
        "ā is right; b̄ = Δ is what Mamba uses, but not the integral of e^{As}: (e^{ΔA} − 1) / A": lambda A, step: (
            torch.exp(step * A),
            step,
        ),
        "for A = 0 this is 0 / 0: the integral of 1 over Δ is Δ": lambda A, step: (
            torch.exp(step * A),
            torch.expm1(step * A) / A,
        ),
        "the sign of b̄ is wrong: (e^{ΔA} − 1) / A is positive where A is negative": lambda A, step: (
            torch.exp(step * A),
            -discretize.reference(A, step)[1],
        ),
        "b̄ is divided by A, not by ΔA": lambda A, step: (
            torch.exp(step * A),
            discretize.reference(A, step)[1] / step,
        ),
        "the decay is e^{ΔA}: Δ says how long the step is": lambda A, step: (
            torch.exp(A),
            discretize.reference(A, step)[1],
        ),
    }
)

# ---- when a cache outgrows a state -----------------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int]]:
    """d_model, width, state, reach: a cache smaller than the state after one position, an exact multiple, real ones."""
    return [(96, 112, 8, 4), (2560, 5120, 16, 4), (64, 64, 2, 1), (64, 8, 2, 2), (4, 8, 3, 4)]


@exercise(
    cases=_sizes,
    hints=[
        "For each position, attention keeps a key and a value of `d_model` numbers each.",
        "Mamba keeps `state` numbers for each of `width` channels, and the last reach − 1 inputs of its convolution.",
        "The first position with more than n numbers of 2 · d_model each is n // (2 · d_model) + 1.",
    ],
    differentiable=False,
)
def outgrown(d_model: int, width: int, state: int, reach: int) -> int:
    numbers = width * (state + reach - 1)
    return numbers // (2 * d_model) + 1


def _outgrown_after(numbers: int, each: int) -> int:
    return numbers // each + 1


outgrown.mistakes(
    {
        "a key and a value: 2 · d_model numbers for each position": lambda d_model, width, state, reach: (
            _outgrown_after(width * (state + reach - 1), d_model)
        ),
        "the convolution's last reach − 1 inputs belong to the state, too": lambda d_model, width, state, reach: (
            _outgrown_after(width * state, 2 * d_model)
        ),
        "of the convolution, the inputs before the current one are kept: reach − 1, not reach": (
            lambda d_model, width, state, reach: _outgrown_after(width * (state + reach), 2 * d_model)
        ),
        "where the cache is exactly as large it is not larger yet; or your quotient is rounded up": (
            lambda d_model, width, state, reach: -(-width * (state + reach - 1) // (2 * d_model))
        ),
        "this is the last position at which the cache is no larger; one more": (
            lambda d_model, width, state, reach: width * (state + reach - 1) // (2 * d_model)
        ),
    }
)

# ---- find the bug: a scan in pieces ----------------------------------------------------------------------------------


def _long() -> list[tuple[Tensor, Tensor, int]]:
    """Pieces that fit, a last one that is shorter, one piece longer than the text, pieces of one position."""
    return [(shares(time, 2, seed=time), randn(time, 2, seed=time + 50), size) for time, size in _PIECES]


_PIECES = [(6, 3), (7, 3), (4, 9), (5, 1)]


@exercise(
    cases=_long,
    hints=[
        "Compare with one long loop: which is the first position that differs?",
        "The first position of the second piece. What did the state hold there, and what does the code start with?",
    ],
)
def in_pieces(a: Float[Tensor, "time state"], b: Float[Tensor, "time state"], size: int) -> Float[Tensor, "time state"]:
    states, h = [], torch.zeros_like(b[0])
    for decays, inputs in zip(a.split(size), b.split(size), strict=True):
        for decay, new in zip(decays, inputs, strict=True):
            h = decay * h + new
            states.append(h)
    return torch.stack(states)


@in_pieces.given
def _(a: Float[Tensor, "time state"], b: Float[Tensor, "time state"], size: int) -> Float[Tensor, "time state"]:
    states = []
    for decays, inputs in zip(a.split(size), b.split(size), strict=True):
        h = torch.zeros_like(b[0])
        for decay, new in zip(decays, inputs, strict=True):
            h = decay * h + new
            states.append(h)
    return torch.stack(states)


def _carried(a: Tensor, b: Tensor, size: int, kind: str) -> Tensor:
    states, h = [], torch.zeros_like(b[0])
    for decays, inputs in zip(a.split(size), b.split(size), strict=True):
        for i, (decay, new) in enumerate(zip(decays, inputs, strict=True)):
            if kind == "undecayed" and i == 0:
                decay = torch.ones_like(decay)
            h = decay * h + new
            states.append(h)
    return torch.stack(states)


def _added(a: Tensor, b: Tensor, size: int) -> Tensor:
    pieces, carry = [], torch.zeros_like(b[0])
    for decays, inputs in zip(a.split(size), b.split(size), strict=True):
        pieces.append(in_pieces.reference(decays, inputs, len(inputs)) + carry)
        carry = pieces[-1][-1]
    return torch.cat(pieces)


in_pieces.mistakes(
    {
        "the state is carried over, but its first step in a new piece leaves out the decay": lambda a, b, size: (
            _carried(a, b, size, "undecayed")
        ),
        "the state that is carried over is added to each position of the piece; it has to decay at each": (
            lambda a, b, size: _added(a, b, size)
        ),
        "the last, shorter piece is missing": lambda a, b, size: in_pieces.reference(a, b, size)[
            : max(len(a) // size * size, 1)
        ],
    }
)
