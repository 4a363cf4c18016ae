"""Lesson 12's exercises: wrong answers that once passed and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.preferences import exercises as ex
from tfbook.lessons.preferences.exercises import (
    advantages,
    best_rows,
    clipped,
    dpo_loss,
    estimated_kl,
    pair_loss,
)

# ---- wrong -------------------------------------------------------------------------------------------------------


def first_place_of_that_score(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    best = torch.stack([group.max() for group in scores.split(n)])
    return best, torch.tensor([scores.tolist().index(score) for score in best.tolist()])


def clipped_ratio_of_probabilities(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    ratio = torch.exp(new) / torch.exp(old)
    return torch.min(ratio * advantages, ratio.clip(1 - clip, 1 + clip) * advantages)


def kl_of_probabilities(policy: Tensor, reference: Tensor, answered: Tensor) -> Tensor:
    ratio = torch.exp(policy) / torch.exp(reference)
    return torch.where(answered, ratio.log(), 0).sum() / len(policy)


def best_of_columns(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    best, places = scores.reshape(-1, n).max(dim=0)
    return best, places * n + torch.arange(n)


def surprise_at_the_mean(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -(1 / (1 + (rejected - chosen).exp())).mean().log()


def normalized_advantages(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    after, found = F.pad(values[:, 1:], (0, 1)), torch.zeros_like(values)
    for t in reversed(range(values.shape[1])):
        later = found[:, t + 1] if t + 1 < values.shape[1] else 0
        found[:, t] = rewards[:, t] + gamma * after[:, t] - values[:, t] + gamma * lam * later
    return (found - found.mean()) / found.std()


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.pair_loss, lambda chosen, rejected: F.softplus((rejected - chosen).mean()), "the margins are averaged first"),
    (
        ex.estimated_kl,
        lambda policy, reference, answered: (policy - reference)[~answered].sum() / len(policy),
        "`answered` is the wrong way around",
    ),
    (
        ex.dpo_loss,
        lambda c, r, C, R, beta: F.softplus(beta * (r.exp() / R.exp() - c.exp() / C.exp())).mean(),
        "ratios of probabilities",
    ),
    (best_rows, first_place_of_that_score, "two prompts may have the same best score"),
    (clipped, clipped_ratio_of_probabilities, "underflow to 0 where a token is unlikely"),
    (estimated_kl, kl_of_probabilities, "underflows to 0 where a token is unlikely"),
    (best_rows, best_of_columns, "look along dim 1"),
    (pair_loss, surprise_at_the_mean, "the mean comes last"),
    (advantages, normalized_advantages, "normalized"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def best_rows_in_double(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    best, places = scores.double().reshape(-1, n).max(dim=1)
    return best, (places + n * torch.arange(len(places))).int()


def best_rows_by_sorting(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    rows = scores.unflatten(0, (-1, n)).argsort(dim=1, descending=True)[:, 0] + torch.arange(0, len(scores), n)
    return scores[rows], rows


def pair_loss_by_cross_entropy(chosen: Tensor, rejected: Tensor) -> Tensor:
    return F.cross_entropy(torch.stack([chosen, rejected], dim=1), torch.zeros(len(chosen), dtype=torch.long))


def pair_loss_by_logaddexp(chosen: Tensor, rejected: Tensor) -> Tensor:
    return (torch.logaddexp(chosen, rejected) - chosen).mean()


class PairLoss:
    def __call__(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(chosen.double() - rejected, torch.ones_like(chosen).double())


def kl_by_einsum(policy: Tensor, reference: Tensor, answered: Tensor) -> Tensor:
    return torch.einsum("bt,bt->", policy.double() - reference.double(), answered.double()) / len(answered)


def kl_of_two_sums(policy: Tensor, reference: Tensor, answered: Tensor) -> Tensor:
    return (policy[answered].sum() - reference[answered].sum()) / policy.shape[0]


def clipped_logarithm(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    low, high = torch.tensor([1 - clip, 1 + clip]).log()
    return torch.min((new - old).exp() * advantages, (new - old).clamp(low, high).exp() * advantages)


def dpo_by_softplus(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    return F.softplus(beta * ((rejected - ref_rejected) - (chosen - ref_chosen))).sum() / chosen.numel()


def advantages_by_matrix(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    surprises = rewards + gamma * F.pad(values, (0, 1))[:, 1:] - values
    time = torch.arange(rewards.shape[1])
    later = time[:, None] - time
    return surprises @ torch.where(later >= 0, torch.tensor(gamma * lam) ** later.clamp(min=0), 0.0)


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (best_rows, best_rows_in_double),
    (best_rows, best_rows_by_sorting),
    (pair_loss, pair_loss_by_cross_entropy),
    (pair_loss, pair_loss_by_logaddexp),
    (pair_loss, PairLoss()),
    (estimated_kl, kl_by_einsum),
    (estimated_kl, kl_of_two_sums),
    (clipped, clipped_logarithm),
    (dpo_loss, dpo_by_softplus),
    (advantages, advantages_by_matrix),
]
