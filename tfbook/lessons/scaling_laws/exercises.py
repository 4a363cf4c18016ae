"""Exercises of lesson 10: how busy a machine is, accumulation, Muon, a law's fit, the best size, heads that copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.scaling_laws.first_exercises import (
    Batches as Batches,
    accumulated_gradient as accumulated_gradient,
    utilization as utilization,
)

# ---- one round of Muon -------------------------------------------------------------------------------------------


def _matrices() -> list[tuple[Tensor]]:
    """Small ones, and some of a norm above 1. A batch is a cube, so that `X.T`, which reverses its axes, works."""
    small = [(0.2 * randn(*shape, seed=number),) for number, shape in enumerate(((3, 5), (4, 4, 4), (6, 3)))]
    return [*small, (0.45 * randn(1, 2, 3, 4, seed=3),)]


@exercise(
    cases=_matrices,
    hints=[
        "`X.mT` swaps the last two dimensions, so `square = X @ X.mT` is X Xᵀ, for a batch as well. How do you get "
        "(X Xᵀ)² from it?",
        "(X Xᵀ)² is `square @ square`. Multiply q · square + r · (X Xᵀ)² by X from the right, and add p · X.",
    ],
    differentiable=False,
)
def one_round(X: Tensor) -> Tensor:
    square = X @ X.mT
    return 3.4445 * X + (-4.775 * square + 2.0315 * square @ square) @ X


def _round(
    p: float, q: float, r: float, transposed: Callable[[Tensor], Tensor] = lambda X: X.mT
) -> Callable[[Tensor], Tensor]:
    def run(X: Tensor) -> Tensor:
        square = X @ transposed(X)
        return p * X + (q * square + r * square @ square) @ X

    return run


one_round.mistakes(
    {
        "this takes powers of the entries: X³ would change U and V as well; use the matrix product, X @ X.mT @ X": (
            lambda X: 3.4445 * X - 4.775 * X**3 + 2.0315 * X**5
        ),
        "a square of entries, not of a matrix: (X Xᵀ)² is the matrix product of X Xᵀ with itself": (
            lambda X: 3.4445 * X + (-4.775 * X @ X.mT + 2.0315 * (X @ X.mT) ** 2) @ X
        ),
        (
            "`X.T` reverses all dimensions of a batch, so its matrices get mixed up: `X.mT` transposes each of them"
        ): _round(3.4445, -4.775, 2.0315, lambda X: X.permute(*reversed(range(X.ndim)))),
        "divided by its norm: that comes once, before all rounds; return one round of X as it is": (
            lambda X: one_round.reference(X / X.norm(dim=(-2, -1), keepdim=True))
        ),
        "divided by its norm where that is above 1: return one round of X as it is": (
            lambda X: one_round.reference(X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=1))
        ),
        "q has lost its sign: it is −4.775": _round(3.4445, 4.775, 2.0315),
        "q and r have changed places: q belongs to the third power and r to the fifth": _round(3.4445, 2.0315, -4.775),
        "the first term, p X, is missing": _round(0, -4.775, 2.0315),
        "the third power, q (X Xᵀ) X, is missing": _round(3.4445, 0, 2.0315),
        "the fifth power, r (X Xᵀ)² X, is missing": _round(3.4445, -4.775, 0),
        "these are five rounds: return a single one": lambda X: reduce(
            lambda Y, _: one_round.reference(Y), range(5), X
        ),
        "divided by the norm of the whole batch: return one round of X as it is": (
            lambda X: one_round.reference(X / X.norm())
        ),
    }
)

# ---- the linear part of the law ----------------------------------------------------------------------------------

Runs = tuple[Tensor, Tensor, Tensor, float, float]


def _runs() -> list[Runs]:
    """Every size with every length: losses without noise, with noise, and with so much that E counts for little; and
    a text that larger models read worse."""
    laws = (
        (1.0, 0.8, 0.5, 0.3, 0.6, 0.0),
        (0.9, 0.6, 0.7, 0.36, 0.7, 0.05),
        (0.3, 1.5, 1.1, 0.2, 0.45, 0.2),
        (2.0, -0.5, 0.6, 0.4, 0.5, 0.02),
    )
    runs = []
    for number, (E, A, B, alpha, beta, noise) in enumerate(laws):
        sizes, lengths = (torch.tensor(each, dtype=torch.float64) for each in ((0.8, 2.0, 5.0), (0.5, 1.5, 3.0, 9.0)))
        N, D = torch.cartesian_prod(sizes, lengths).T
        loss = E + A * N**-alpha + B * D**-beta + noise * randn(len(N), seed=number).double()
        runs.append((N, D, loss, alpha, beta))
    return runs


@exercise(
    cases=_runs,
    hints=[
        "Each run is one equation, E · 1 + A · N^(−α) + B · D^(−β) = loss, with the unknowns E, A, and B. What are the "
        "three columns of its matrix?",
        "Stack `torch.ones_like(N)`, `N**-alpha` and `D**-beta` along dim=1. `torch.linalg.lstsq(columns, "
        "loss[:, None]).solution` is (3, 1).",
    ],
    differentiable=False,
)
def fit_terms(N: Tensor, D: Tensor, loss: Tensor, alpha: float, beta: float) -> Tensor:
    columns = torch.stack([torch.ones_like(N), N**-alpha, D**-beta], dim=1)
    return torch.linalg.lstsq(columns, loss[:, None]).solution[:, 0]


def _solved(loss: Tensor, *columns: Tensor) -> Tensor:
    return torch.linalg.lstsq(torch.stack(columns, dim=1), loss[:, None]).solution[:, 0]


def _one_after_the_other(N: Tensor, D: Tensor, loss: Tensor, alpha: float, beta: float) -> Tensor:
    ones = torch.ones_like(N)
    E, A = _solved(loss, ones, N**-alpha)
    E_of_text, B = _solved(loss, ones, D**-beta)
    return torch.stack([(E + E_of_text) / 2, A, B])


fit_terms.mistakes(
    {
        "α and β are not used: the columns are N^(−α) and D^(−β), not 1 / N and 1 / D": (
            lambda N, D, loss, alpha, beta: fit_terms.reference(N, D, loss, 1.0, 1.0)
        ),
        "the powers grow here: N^α and D^β stand below the fraction bar, so the columns are N^(−α) and D^(−β)": (
            lambda N, D, loss, alpha, beta: fit_terms.reference(N, D, loss, -alpha, -beta)
        ),
        "α and β have changed places: α belongs to N, β to D": (
            lambda N, D, loss, alpha, beta: fit_terms.reference(N, D, loss, beta, alpha)
        ),
        "E is missing: it needs a column as well, of ones": (
            lambda N, D, loss, alpha, beta: _solved(loss, N**-alpha, D**-beta)
        ),
        "E is missing: it needs a column as well, of ones; here it is 0": lambda N, D, loss, alpha, beta: torch.cat(
            [torch.zeros_like(N[:1]), _solved(loss, N**-alpha, D**-beta)]
        ),
        "the numbers are right, but not their order: return E, then A, then B": (
            lambda *runs: fit_terms.reference(*runs).roll(-1)
        ),
        "A and B have changed places: return E, then A, then B": lambda *runs: fit_terms.reference(*runs)[[0, 2, 1]],
        "this fits the logarithm of the loss: the law is a sum, which a logarithm does not take apart": (
            lambda N, D, loss, alpha, beta: fit_terms.reference(N, D, loss.log(), alpha, beta)
        ),
        "the columns are logarithms here: the law is linear in N^(−α) and D^(−β)": (
            lambda N, D, loss, alpha, beta: _solved(loss, torch.ones_like(N), -alpha * N.log(), -beta * D.log())
        ),
        "α and β are exponents, not factors": (
            lambda N, D, loss, alpha, beta: _solved(loss, torch.ones_like(N), 1 / (alpha * N), 1 / (beta * D))
        ),
        "A and B are fitted one after the other: both terms change the loss of every run, so solve for all at once": (
            _one_after_the_other
        ),
        "E, A, and B may be negative, where that makes the errors smallest: cut nothing off at 0": (
            lambda *runs: fit_terms.reference(*runs).clamp(min=0)
        ),
        "these are the fitted losses: return E, A, and B themselves": lambda N, D, loss, alpha, beta: (
            torch.stack([torch.ones_like(N), N**-alpha, D**-beta], dim=1) @ fit_terms.reference(N, D, loss, alpha, beta)
        ),
        "the solution is a column, (3, 1): return its three numbers, `solution[:, 0]`": (
            lambda *runs: fit_terms.reference(*runs)[:, None]
        ),
    }
)

# ---- the best size -----------------------------------------------------------------------------------------------


def _budgets() -> list[tuple[float, float, float, float, float]]:
    return [
        (6e20, 406.4, 0.34, 410.7, 0.28),  # Hoffmann et al. (2022), Appendix D.3
        (6e10, 20.0, 0.36, 2000.0, 0.7),
        (6e12, 30.0, 0.5, 30.0, 0.5),  # both count alike
    ]


@exercise(
    cases=_budgets,
    hints=[
        "D is not free: with C = 6 N D it is C / (6 N). Put that into the law, and one unknown is left.",
        "At the minimum the derivative is 0, so α A / N^α = β B / D^β. Solve it with D = C / (6 N) for N: "
        "N^(α + β) = (α A) / (β B) · (C / 6)^β.",
    ],
)
def best_size(compute: float, A: float, alpha: float, B: float, beta: float) -> tuple[float, float]:
    size = (alpha * A / (beta * B) * (compute / 6) ** beta) ** (1 / (alpha + beta))
    return size, compute / 6 / size


def _balanced(compute: float, A: float, alpha: float, B: float, beta: float) -> float:
    """The N at which both terms are equal."""
    return (A / B * (compute / 6) ** beta) ** (1 / (alpha + beta))


def _with_tokens(size: Callable[..., float], cost: float = 6) -> Callable[..., tuple[float, float]]:
    return lambda compute, *law: (size(compute, *law), compute / cost / size(compute, *law))


best_size.mistakes(
    {
        (
            "here both terms are equal, which is not the minimum: at the minimum their slopes are equal, so each term "
            "counts times its exponent"
        ): _with_tokens(_balanced),
        "the 6 is missing: a token costs 6 operations per parameter, so N D = C / 6": (
            lambda compute, *law: best_size.reference(6 * compute, *law)
        ),
        "2 N D is the cost of reading forward: training costs 6 N D": (
            lambda compute, *law: best_size.reference(3 * compute, *law)
        ),
        "N and D have changed places: return N first, and let A and α go with N, B and β with D": (
            lambda *given: best_size.reference(*given)[::-1]
        ),
        "A and B have changed places: A and α belong to N, B and β to D": (
            lambda compute, A, alpha, B, beta: best_size.reference(compute, B, alpha, A, beta)
        ),
        "α stands where β belongs: putting D = C / (6 N) into B / D^β makes the power of C / 6 a β": (
            _with_tokens(
                lambda compute, A, alpha, B, beta: (
                    (alpha * A / (beta * B) * (compute / 6) ** alpha) ** (1 / (alpha + beta))
                )
            )
        ),
        (
            "α A / (β B) is upside down: a larger A or α makes it worth more to be large, so they stand above the "
            "fraction bar"
        ): _with_tokens(
            lambda compute, A, alpha, B, beta: (beta * B / (alpha * A) * (compute / 6) ** beta) ** (1 / (alpha + beta))
        ),
        "N = D = √(C / 6) spends the budget evenly, whatever the law says": lambda compute, *law: (
            math.sqrt(compute / 6),
            math.sqrt(compute / 6),
        ),
        "D is right but N is not: N · D should be C / 6": lambda compute, *law: (
            6 * best_size.reference(compute, *law)[0],
            best_size.reference(compute, *law)[1],
        ),
        "N is right but D is not: from 6 N D = C follows D = C / (6 N)": lambda compute, *law: (
            best_size.reference(compute, *law)[0],
            compute / best_size.reference(compute, *law)[0],
        ),
        "20 tokens per parameter is what came out for other runs: here the law that is given decides": (
            lambda compute, *law: (math.sqrt(compute / 120), 20 * math.sqrt(compute / 120))
        ),
    }
)

# ---- find the head that copies -----------------------------------------------------------------------------------


def _looks(heads: int, period: int, *favorites: tuple[int, int, float], seed: int) -> Tensor:
    """Causal weights of heads over a text read twice; each favorite is a head, how far back it looks, and how much."""
    time = 2 * period
    scores = randn(heads, time, time, seed=seed)
    for head, back, strength in favorites:
        for place in range(back, time):
            scores[head, place, place - back] += strength
    visible = torch.ones(time, time, dtype=torch.bool).tril()
    return scores.masked_fill(~visible, -math.inf).softmax(dim=-1)


def _copiers() -> list[tuple[Tensor, int]]:
    return [
        (_looks(4, 6, (0, 1, 6.0), (1, 6, 6.0), (2, 5, 5.0), (3, 7, 6.0), seed=1), 6),
        (_looks(3, 10, (0, 9, 3.0), (1, 10, 5.0), seed=2), 10),
        (_looks(2, 2, (1, 1, 4.0), seed=3), 2),
        (_looks(1, 5, (0, 4, 4.0), seed=4), 5),  # a block with one head
    ]


@exercise(
    cases=_copiers,
    hints=[
        "Write a text of period 4 down: a b c d a b c d. You are at the second a, place 4. Where does the token stand "
        "that comes next, and how far back is that?",
        "That place is `period − 1` back. For each place t of the second reading take "
        "`weights[:, t, t − (period − 1)]`, and take the mean over t.",
    ],
    differentiable=False,
)
def prefix_scores(weights: Tensor, period: int) -> Tensor:
    second = torch.arange(period, 2 * period)
    return weights[:, second, second - (period - 1)].mean(dim=1)


def _scores(back: Callable[[int], int], start: Callable[[int], int] = lambda period: period) -> Callable[..., Tensor]:
    """Mean weight of what is `back(period)` places back, from the place `start(period)` on."""

    def scores(weights: Tensor, period: int) -> Tensor:
        places = torch.arange(max(start(period), back(period)), 2 * period)
        return weights[:, places, places - back(period)].mean(dim=1)

    return scores


prefix_scores.mistakes(
    {
        "the first place of the second reading is left out: it counts, too": (
            _scores(lambda period: period - 1, lambda period: period + 1)
        ),
        (
            "`period` places back stands the same token, not the one after it: copying needs what came next, which is "
            "one place closer"
        ): _scores(lambda period: period),
        "this is the token before the same one: the one that came next stands at `period − 1` back": (
            _scores(lambda period: period + 1)
        ),
        "one place back is what the head of the first block looks at": _scores(lambda period: 1),
        "the first reading counts too: there, nothing has been read before, so only the second one tells": (
            _scores(lambda period: period - 1, start=lambda period: 0)
        ),
        "queries and keys have changed places: weights[head, query, key]": lambda weights, period: (
            prefix_scores.reference(weights.mT, period)
        ),
        "this is the sum over the second reading: take the mean": lambda weights, period: (
            period * prefix_scores.reference(weights, period)
        ),
        "this is the mean over all heads: return one score for each": lambda weights, period: prefix_scores.reference(
            weights, period
        ).mean(),
    }
)
