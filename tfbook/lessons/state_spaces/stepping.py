"""One step of Mamba in numbers small enough for a napkin: a channel with two numbers, a small step and a large one."""

from __future__ import annotations

import math
from typing import NamedTuple

A, B, C, D = (-1.0, -2.0), (1.0, 0.5), (1.0, 2.0), 1.0
INPUT, BEFORE = 2.0, (3.0, 1.0)  # u, and the state before the word
WORDS = {"short": -4.5, "long": 3.5}  # two words, by the raw number that softplus makes a step of

Pair = tuple[float, ...]


class Step(NamedTuple):
    """One step of a channel at one word; pairs have one number for each of the state's."""

    raw: float
    step: float
    decay: Pair
    kept: Pair
    written: Pair
    state: Pair
    output: float


def one_step(raw: float, *, u: float = INPUT, before: Pair = BEFORE) -> Step:
    """Δ = softplus(raw), h = e^{ΔA} ⊙ h + Δ u B, y = h · C + D u, with all that lies between."""
    step = math.log1p(math.exp(raw))
    decay = tuple(math.exp(step * a) for a in A)
    kept = tuple(d * h for d, h in zip(decay, before, strict=True))
    written = tuple(step * u * b for b in B)
    state = tuple(k + w for k, w in zip(kept, written, strict=True))
    return Step(raw, step, decay, kept, written, state, sum(h * c for h, c in zip(state, C, strict=True)) + D * u)


def half_life(step: float, speed: float) -> float:
    """Words after which e^{−Δ · speed} per word has halved a number of the state."""
    return math.log(2) / (step * speed)
