"""Answers to lesson 10: wrong ones that once passed and what they are told, right ones that look different."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.scaling_laws import exercises as scaling_laws
from tfbook.lessons.scaling_laws.exercises import Batches

# ---- wrong ones --------------------------------------------------------------------------------------------------


def columns(N: Tensor, D: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.stack([torch.ones_like(N), N**-alpha, D**-beta], dim=1)


def terms_cut_at_0(N: Tensor, D: Tensor, loss: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.linalg.lstsq(columns(N, D, alpha, beta), loss[:, None]).solution.squeeze(1).relu()


def gradient_from_probabilities(weight: Tensor, batches: Batches) -> Tensor:
    weight, surprises = weight.clone().requires_grad_(), []
    for x, targets in batches:
        counted = targets != -100
        p = (x[counted] @ weight).softmax(1).gather(1, targets[counted].unsqueeze(1))
        surprises.append(-p.log())
    torch.cat(surprises).mean().backward()
    return weight.grad


def round_matrix_by_matrix(X: Tensor) -> Tensor:
    if X.ndim > 2:
        return torch.stack([round_matrix_by_matrix(matrix) for matrix in X.reshape(-1, *X.shape[-2:])])
    return X @ (3.4445 * torch.eye(X.size(1)) - 4.775 * X.T @ X + 2.0315 * X.T @ X @ X.T @ X)


def round_of_normalized(least: float, X: Tensor) -> Tensor:
    X = X / X.square().sum((-2, -1), keepdim=True).sqrt().clamp(min=least)
    S = X @ X.transpose(-2, -1)
    return 3.4445 * X - 4.775 * S @ X + 2.0315 * S @ S @ X


def scores_of_several(weights: Tensor, period: int) -> Tensor:
    return weights[:, period:, 1:].diagonal(dim1=1, dim2=2)[:, :period].mean(1).squeeze()


def tokens_of_whole_budget(compute: float, A: float, alpha: float, B: float, beta: float) -> tuple[float, float]:
    N = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (compute / 6) ** (beta / (alpha + beta))
    return N, compute / N


def twenty_tokens_each(compute: float, A: float, alpha: float, B: float, beta: float) -> tuple[float, float]:
    N = (compute / 6 / 20) ** 0.5
    return N, 20 * N


def share_with_three_matrices(
    vocab: int, d_model: int, d_ff: int, layers: int, context: int, tokens_per_second: float, peak: float
) -> float:
    numbers = layers * d_model * (3 * d_model + 2 * d_ff) + vocab * d_model
    return (6 * numbers + 12 * layers * context * d_model) * tokens_per_second / peak


def gradient_of_means_added(weight: Tensor, batches: Batches) -> Tensor:
    """Where a batch has nothing that counts, PyTorch's gradient is 0, and the mistake is told by name there, too."""
    weight = weight.clone().requires_grad_()
    for x, targets in batches:
        F.cross_entropy(x @ weight, targets).backward()
    return weight.grad


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        scaling_laws.fit_terms,
        lambda N, D, loss, alpha, beta: torch.linalg.pinv(torch.stack([N**0, 1 / N, 1 / D], 1)) @ loss,
        "α and β are not used",
    ),
    (
        scaling_laws.prefix_scores,
        lambda weights, period: weights.diagonal(1 - period, 1, 2)[:, 2:].mean(1),
        "the first place of the second reading is left out",
    ),
    (scaling_laws.fit_terms, terms_cut_at_0, "cut nothing off at 0"),
    (scaling_laws.accumulated_gradient, gradient_from_probabilities, "its logarithm is −∞"),
    (scaling_laws.accumulated_gradient, gradient_of_means_added, "means are added without a division"),
    (scaling_laws.one_round, round_matrix_by_matrix, "has shape (2, 3, 4); expected (1, 2, 3, 4)"),
    (scaling_laws.one_round, partial(round_of_normalized, 1.0), "divided by its norm where that is above 1"),
    (scaling_laws.one_round, partial(round_of_normalized, 0.0), "divided by its norm: that comes once"),
    (scaling_laws.prefix_scores, scores_of_several, "has shape (); expected (1,)"),
    (scaling_laws.best_size, tokens_of_whole_budget, "N is right but D is not"),
    (scaling_laws.best_size, twenty_tokens_each, "20 tokens per parameter"),
    (scaling_laws.utilization, share_with_three_matrices, "attention has four matrices"),
]


# ---- right ones --------------------------------------------------------------------------------------------------


def terms_by_pseudoinverse(N: Tensor, D: Tensor, loss: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.linalg.pinv(columns(N, D, alpha, beta)) @ loss


def terms_by_qr(N: Tensor, D: Tensor, loss: Tensor, alpha: float, beta: float) -> Tensor:
    Q, R = torch.linalg.qr(columns(N, D, alpha, beta))
    return torch.linalg.solve_triangular(R, Q.T @ loss[:, None], upper=True).squeeze(1)


def gradient_in_closed_form(weight: Tensor, batches: Batches) -> Tensor:
    total, count = torch.zeros_like(weight), 0
    for x, targets in batches:
        counted = targets != -100
        x, targets = x[counted], targets[counted]
        total += x.T @ ((x @ weight).softmax(1) - F.one_hot(targets, weight.size(1)))
        count += len(targets)
    return total / count


def gradient_of_weighted_means(weight: Tensor, batches: Batches) -> Tensor:
    weight = weight.clone().requires_grad_()
    counts = [(targets != -100).sum() for _, targets in batches]
    for (x, targets), count in zip(batches, counts, strict=True):
        (F.cross_entropy(x @ weight, targets) * count / sum(counts)).backward()
    return weight.grad


def round_by_einsum(X: Tensor) -> Tensor:
    cube = torch.einsum("...ij,...kj,...kl->...il", X, X, X)
    return 3.4445 * X - 4.775 * cube + 2.0315 * torch.einsum("...ij,...kj,...kl->...il", X, X, cube)


def scores_head_by_head(weights: Tensor, period: int) -> Tensor:
    return torch.stack([sum(head[t, t - period + 1] for t in range(period, 2 * period)) / period for head in weights])


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (scaling_laws.fit_terms, terms_by_pseudoinverse),
    (scaling_laws.fit_terms, terms_by_qr),
    (scaling_laws.accumulated_gradient, gradient_in_closed_form),
    (scaling_laws.one_round, round_by_einsum),
    (scaling_laws.prefix_scores, scores_head_by_head),
    (scaling_laws.accumulated_gradient, gradient_of_weighted_means),
]
