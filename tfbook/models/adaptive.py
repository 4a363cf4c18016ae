"""Adaptive computation time (Graves, 2016): a network repeats its step until it decides to halt.

Shapes: batch, step (of thinking), d_hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.checks import check_positive

ENOUGH = 0.01  # ε: halting probabilities that sum to 1 − ε end the thinking, so that one step can be enough


class Halting(NamedTuple):
    """How much each step counts, the number of steps N, and the remainder R that the last of them gets."""

    weights: Float[Tensor, "batch step"]
    steps: Int[Tensor, " batch"]
    remainder: Float[Tensor, " batch"]

    @property
    def ponder(self) -> Float[Tensor, " batch"]:
        """N + R, the ponder cost: its gradient is that of R, since N is a count (Graves, 2016, eq. 9)."""
        return self.steps + self.remainder


def halting(probabilities: Float[Tensor, "batch step"], enough: float = ENOUGH) -> Halting:
    """N: the first step where Σ h reaches 1 − ε, or the last; p = h before it, 1 − Σ h at it.

    (Graves, 2016, eq. 5 to 7.)
    """
    total = probabilities.cumsum(dim=-1)
    goes_on = (total < 1 - enough) & (torch.arange(total.shape[-1], device=total.device) < total.shape[-1] - 1)
    steps = 1 + goes_on.sum(dim=-1)
    before = probabilities * goes_on
    remainder = 1 - before.sum(dim=-1)
    last = nn.functional.one_hot(steps - 1, total.shape[-1])
    return Halting(before + last * remainder[:, None], steps, remainder)


class Thought(NamedTuple):
    """The result of all steps: the mean of their states by weight, and how the steps were weighed."""

    state: Float[Tensor, "batch d_hidden"]
    halting: Halting


class AdaptiveSteps(nn.Module):
    """state ← step(state, …) until halting; the result is Σ p_n state_n, in which a step after the last counts nothing.

    `step` is any module that maps (batch, d_hidden) to the same, and it is the same in every step, as in a universal
    Transformer. No row takes more than `most` steps, and computing ends when all rows have halted.
    """

    def __init__(self, step: Callable[..., Tensor], d_hidden: int, *, most: int = 12, enough: float = ENOUGH):
        super().__init__()
        check_positive(d_hidden=d_hidden, most=most)
        if not 0 < enough < 1:
            raise ValueError(f"enough is {enough}; expected 0 < enough < 1")
        self.step, self.most, self.enough = step, most, enough
        self.halt = nn.Linear(d_hidden, 1)
        nn.init.constant_(self.halt.bias, -4.0)  # so that it begins by taking all its steps, and learns to take fewer

    def forward(self, state: Float[Tensor, "batch d_hidden"], *context: Any) -> Thought:
        """Thinks about each row for as long as it decides to; `context` goes to every step."""
        states: list[Tensor] = []
        probabilities: list[Tensor] = []
        total = state.new_zeros(len(state))
        while not states or (len(states) < self.most and bool((total < 1 - self.enough).any())):
            state = self.step(state, *context)
            states.append(state)
            probabilities.append(self.halt(state).sigmoid().squeeze(-1))
            total = total + probabilities[-1]
        halted = halting(torch.stack(probabilities, dim=1), self.enough)
        return Thought((halted.weights[..., None] * torch.stack(states, dim=1)).sum(dim=1), halted)
