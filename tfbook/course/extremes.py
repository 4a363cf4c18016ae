"""Scores at which a careless softmax fails, and careless softmaxes by the message that each deserves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Softmax = Callable[[Tensor, Tensor], Tensor]  # (scores, mask) → weights; True in the mask: may be attended to


def extreme_scores() -> tuple[Tensor, Tensor]:
    """Scores, (query, key), and a mask, (key), that blocks the last key."""
    scores = [
        [-2000.0, -2001.0, 5.0],  # below any fill that is not the lowest number; exp of what is allowed is 0
        [-40.0, -41.0, -90.0],  # below a fill of −20
        [-40.0, -41.0, 80.0],  # so far below the blocked score that exp of the difference is 0
        [200.0, 199.0, 5.0],  # exp overflows
        [-3.0, -4.0, 15.0],  # adding −20 to the blocked score is not enough
    ]
    return torch.tensor(scores), torch.tensor([True, True, False])


def with_scores(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of width 4 whose products, divided by √4, are these scores, (…, query, key) of up to 4 keys."""
    count = scores.shape[-1]
    return F.pad(scores, (0, 4 - count)), 2 * torch.eye(count, 4).expand(*scores.shape[:-2], -1, -1)


def filled(fill: float) -> Softmax:
    """Blocks with a finite score."""
    return lambda scores, mask: torch.softmax(scores.masked_fill(~mask, fill), dim=-1)


def unshifted(scores: Tensor, mask: Tensor) -> Tensor:
    """Exponentials of the scores as they are."""
    weights = scores.exp() * mask
    return weights / weights.sum(dim=-1, keepdim=True)


def shifted_by_any(scores: Tensor, mask: Tensor) -> Tensor:
    """Exponentials relative to the largest score of the row, which may be a blocked one."""
    return unshifted(scores - scores.amax(dim=-1, keepdim=True), mask)


FILLED: dict[str, Softmax] = {
    "a blocked score of −20 is not low enough: where the allowed scores are −40, padding gets all the weight": (
        filled(-20.0)
    ),
    "a blocked score of −1000 is not low enough: where the allowed scores are −2000, padding gets all the weight": (
        filled(-1000.0)
    ),
}
BY_HAND: dict[str, Softmax] = {
    "exp overflows at large scores and is 0 at low ones: subtract the row's largest allowed score first": unshifted,
    "the largest score of a row can be a blocked one, and next to it every other exp is 0: "
    "subtract the largest allowed score": shifted_by_any,
}


ZERO_IS_BLOCKED = "an allowed score can be 0, too, and then you block it: ask the mask, not the score"


def zero_is_blocked(scores: Tensor, mask: Tensor) -> Tensor:
    """A softmax over the scores that are not 0 after a product with the mask."""
    return torch.softmax(scores.masked_fill(scores * mask == 0, -torch.inf), dim=-1)
