"""Learning-rate schedules: (step, steps) → factor on the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int, int], float]  # (step, steps) → factor on the learning rate


def constant(step: int, steps: int) -> float:
    """Factor 1 at every step."""
    return 1.0


def warmup_cosine(warmup: int, final: float = 0.1) -> Schedule:
    """Rises linearly over `warmup` steps, then falls along half a cosine to `final` (Loshchilov & Hutter, 2017).

    Beyond the last step it stays there.

    Raises ValueError when `warmup` is negative or `final` lies outside 0 to 1.
    """
    if warmup < 0 or not 0 <= final <= 1:
        raise ValueError(f"warmup is {warmup} and final is {final}; expected warmup ≥ 0 and 0 ≤ final ≤ 1")

    def factor(step: int, steps: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2

    return factor


def inverse_sqrt(warmup: int) -> Schedule:
    """min(t / warmup, √(warmup / t)) for t = 1, 2, …: rises to 1, then falls (Vaswani et al., 2017, eq. 3).

    Their learning rate is this times (d_model · warmup)^(−1/2). Raises ValueError when `warmup` < 1.
    """
    if warmup < 1:
        raise ValueError(f"warmup is {warmup}; expected 1 or more steps")
    return lambda step, steps: min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
