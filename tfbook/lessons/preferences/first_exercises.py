"""The first exercises of lesson 12: the best of n, and the loss of a pair."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn

# ---- the best of n -----------------------------------------------------------------------------------------------


def _scores() -> list[tuple[Tensor, int]]:
    return [
        (torch.tensor([0.1, 0.9, 0.3, 2.0, -1.0, 0.5]), 3),
        (torch.tensor([-5.0, -2.0, -3.0, -4.0, -9.0, -1.0]), 2),
        (randn(20, seed=3), 4),
        (torch.tensor([0.0, 1.0, 1.0, 0.5, 0.5, 0.0]), 2),  # the best of one prompt is another's, too
    ]


@exercise(
    cases=_scores,
    hints=[
        "Give the scores two axes: `scores.view(-1, n)` has a row for each prompt.",
        "`max(dim=1)` gives the largest number of each row and its place there. Where does row i begin in the list?",
    ],
    differentiable=False,
)
def best_rows(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    best, places = scores.view(-1, n).max(dim=1)
    return best, torch.arange(len(places)) * n + places


best_rows.mistakes(
    {
        "these are places within each prompt's n answers: add where those answers begin in the list": (
            lambda scores, n: tuple(scores.view(-1, n).max(dim=1))
        ),
        "answers to one prompt stand next to each other, so a row of `view(-1, n)` is a prompt, not a column": (
            lambda scores, n: (
                scores.view(n, -1).amax(dim=0),
                scores.view(n, -1).argmax(dim=0) * (len(scores) // n) + torch.arange(len(scores) // n),
            )
        ),
        "backward: first the best scores, then where they stand": lambda scores, n: best_rows.reference(scores, n)[
            ::-1
        ],
        "these answers have the smallest scores: best means largest": lambda scores, n: (
            scores.view(-1, n).amin(dim=1),
            torch.arange(len(scores) // n) * n + scores.view(-1, n).argmin(dim=1),
        ),
        "these are the best of all answers together: each prompt needs one of its own": (
            lambda scores, n: tuple(scores.topk(len(scores) // n))
        ),
        "two prompts may have the same best score: look for it among a prompt's own answers, not in the whole list": (
            lambda scores, n: (
                best := scores.view(-1, n).amax(dim=1),
                torch.stack([(scores == each).nonzero()[0, 0] for each in best]),
            )
        ),
        "the maximum is taken over the prompts: a row of `view(-1, n)` is a prompt, so look along dim 1": (
            lambda scores, n: (
                scores.view(-1, n).amax(dim=0),
                scores.view(-1, n).argmax(dim=0) * n + torch.arange(n),
            )
        ),
        "row i begins at i · n in the list, not at i times the number of prompts": (
            lambda scores, n: (
                best_rows.reference(scores, n)[0],
                scores.view(-1, n).argmax(dim=1) + torch.arange(len(scores) // n) * (len(scores) // n),
            )
        ),
    }
)

# ---- the loss of a pair ------------------------------------------------------------------------------------------


def _rewards() -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.tensor([2.0, 0.5]), torch.tensor([1.0, 1.5])),
        (randn(5, seed=1), randn(5, seed=2)),
        (torch.tensor([-300.0]), torch.tensor([300.0])),
    ]


@exercise(
    cases=_rewards,
    hints=[
        "The model's probability that the chosen text wins is σ(r_chosen − r_rejected). What is the surprise at that?",
        "For a difference of −600, σ is 0 in float32 and its logarithm −∞. `F.logsigmoid` computes log σ in one step.",
    ],
)
def pair_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -F.logsigmoid(chosen - rejected).mean()


pair_loss.mistakes(
    {
        "the margins are averaged first: take the loss of each pair, and then the mean": (
            lambda chosen, rejected: -F.logsigmoid((chosen - rejected).mean())
        ),
        "the sign: a loss is the surprise −log p, which is never negative": (
            lambda chosen, rejected: F.logsigmoid(chosen - rejected).mean()
        ),
        "backward: this trains the model to prefer the rejected text": (
            lambda chosen, rejected: -F.logsigmoid(rejected - chosen).mean()
        ),
        "where a pair is far off, σ underflows to 0 and exp overflows, so this loss is infinite: use `F.logsigmoid`": (
            lambda chosen, rejected: -torch.sigmoid(chosen - rejected).log().mean()
        ),
        "this is the probability of the wrong order, not its surprise: its gradient vanishes where it is most needed": (
            lambda chosen, rejected: torch.sigmoid(rejected - chosen).mean()
        ),
        "the logarithm is missing: −σ is no surprise, and at best −1": (
            lambda chosen, rejected: -torch.sigmoid(chosen - rejected).mean()
        ),
        "this is the margin itself, which falls forever: without σ, the rewards run away to infinity": (
            lambda chosen, rejected: (rejected - chosen).mean()
        ),
        "each text is judged on its own here; Bradley and Terry compare the two: σ of the difference": (
            lambda chosen, rejected: -(F.logsigmoid(chosen) + F.logsigmoid(-rejected)).mean()
        ),
        "return the mean over the pairs, one number": lambda chosen, rejected: -F.logsigmoid(chosen - rejected),
        "this is the sum over the pairs; we want their mean": (
            lambda chosen, rejected: -F.logsigmoid(chosen - rejected).sum()
        ),
        "the mean comes last: average the losses of the pairs, not their probabilities": (
            lambda chosen, rejected: -torch.sigmoid(chosen - rejected).mean().log()
        ),
        "this is a hinge loss, which is 0 from a margin of 1 on: Bradley and Terry's is −log σ of the margin": (
            lambda chosen, rejected: F.relu(1 - (chosen - rejected)).mean()
        ),
    }
)
