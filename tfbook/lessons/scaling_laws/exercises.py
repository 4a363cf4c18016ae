"""Exercises of lesson 10: how busy a machine is, accumulation, Muon, a law's fit, the best size, heads that copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn

# ---- utilization -------------------------------------------------------------------------------------------------


def _trainings() -> list[tuple[int, int, int, int, int, float, float]]:
    return [
        (50_257, 768, 3072, 12, 1024, 150_000.0, 312e12),  # GPT-2 on an A100
        (65, 128, 512, 4, 64, 30_000.0, 250e9),  # a GPT of this lesson on a processor
        (32_000, 256, 512, 2, 8192, 40_000.0, 20e12),  # so long a context that attention is most of the work
    ]


@exercise(
    cases=_trainings,
    hints=[
        "A matrix of n · m numbers takes 2 · n · m operations per token forward: a product and a sum each. "
        "Looking up a row of the embedding takes none.",
        "In each layer a query meets `context` keys of width d_model, and as many values are added up: 2 · 2 · context "
        "· d_model. The way back takes twice as much as the way forward.",
    ],
)
def utilization(
    vocab: int, d_model: int, d_ff: int, layers: int, context: int, tokens_per_second: float, peak: float
) -> float:
    matrices = layers * (4 * d_model * d_model + 2 * d_model * d_ff) + vocab * d_model
    forward = 2 * matrices + 4 * layers * context * d_model
    return 3 * forward * tokens_per_second / peak


def _used(*training: float, each: float = 6, attention: float = 12) -> float:
    """With so many operations for each number of a matrix, and for attention."""
    vocab, d_model, d_ff, layers, context, tokens_per_second, peak = training
    matrices = layers * (4 * d_model * d_model + 2 * d_model * d_ff) + vocab * d_model
    return (each * matrices + attention * layers * context * d_model) * tokens_per_second / peak


utilization.mistakes(
    {
        "this is the way forward alone: training goes back as well, which takes twice as much": (
            partial(_used, each=2, attention=4)
        ),
        (
            "the way back takes twice the way forward: a gradient for the weights and one for what came in; "
            "times 3, not 2"
        ): partial(_used, each=4, attention=8),
        "a product and a sum are two operations: 2 for each number of a matrix, 6 with the way back": (
            partial(_used, each=3, attention=6)
        ),
        (
            "attention is missing: queries times keys and weights times values, 12 · layers · context · d_model in all"
        ): partial(_used, attention=0),
        "attention goes back as well: 4 · layers · context · d_model forward, 12 with the way back": (
            partial(_used, attention=4)
        ),
        "attention has two products, queries times keys and weights times values; here is one of them": (
            partial(_used, attention=6)
        ),
        "the output's matrix is missing: each token is multiplied by all of it, whether tied or not": (
            lambda vocab, *rest: utilization.reference(0, *rest)
        ),
        "the embedding counts once, as the output's matrix: looking up a row of it takes no product": (
            lambda vocab, *rest: utilization.reference(2 * vocab, *rest)
        ),
        (
            "d_ff is given and need not be 4 · d_model: the two matrices of a feed-forward network have d_model · d_ff "
            "numbers each"
        ): lambda vocab, d_model, d_ff, *rest: utilization.reference(vocab, d_model, 4 * d_model, *rest),
        "upside down: utilization is what is used divided by what is available, a number below 1": (
            lambda *training: 1 / utilization.reference(*training)
        ),
        "this is in percent: return the share, such as 0.4": lambda *training: 100 * utilization.reference(*training),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------

Batches = list[tuple[Tensor, Tensor]]


def _weight_and_batches() -> list[tuple[Tensor, Batches]]:
    targets = [torch.tensor([1, 4, 0, 2, 3, 1]), torch.tensor([3, -100, -100, -100, -100, -100]), torch.tensor([2, 0])]
    batches = [(randn(len(each), 4, seed=number), each) for number, each in enumerate(targets)]
    return [(randn(4, 5, seed=7), batches), (randn(4, 5, seed=8), batches[:2])]


@exercise(
    cases=_weight_and_batches,
    hints=[
        "The second batch has one token that counts. What share of the gradient does it get, and what should it get?",
        "Count the targets that are not −100 in all batches first; then let each batch add its sum of losses, "
        "`reduction='sum'`, divided by that number.",
    ],
    differentiable=False,
)
def accumulated_gradient(weight: Tensor, batches: Batches) -> Tensor:
    weight = weight.clone().requires_grad_()
    total = sum(int((targets != -100).sum()) for _, targets in batches)
    for x, targets in batches:
        loss = F.cross_entropy(x @ weight, targets, reduction="sum")
        (loss / total).backward()
    return weight.grad


@accumulated_gradient.given
def _(weight: Tensor, batches: Batches) -> Tensor:
    weight = weight.clone().requires_grad_()
    for x, targets in batches:
        loss = F.cross_entropy(x @ weight, targets)
        (loss / len(batches)).backward()
    return weight.grad


def _tokens(batches: Batches) -> int:
    return sum(int((targets != -100).sum()) for _, targets in batches)


def _places(batches: Batches) -> int:
    return sum(len(targets) for _, targets in batches)


def _added(weigh: Callable[[Batches, Batches], float]) -> Callable[[Tensor, Batches], Tensor]:
    """Adds up the gradients of the batches' mean losses, each times `weigh([batch], all batches)`."""
    return lambda weight, batches: sum(
        weigh([batch], batches) * accumulated_gradient.reference(weight, [batch]) for batch in batches
    )


accumulated_gradient.mistakes(
    {
        "means are added without a division: twice as many batches, twice the gradient": (
            _added(lambda batch, batches: 1)
        ),
        "sums are added without a division: the gradient grows with the number of tokens": (
            _added(lambda batch, batches: _tokens(batch))
        ),
        "divided by all places: those that hold −100 have no loss and do not count": (
            _added(lambda batch, batches: _tokens(batch) / _places(batches))
        ),
        "each mean counts by the length of its batch: the places that hold −100 should give it no weight": (
            _added(lambda batch, batches: _places(batch) / _places(batches))
        ),
        "sums divided by the number of batches: divide by the tokens that count in all of them": (
            _added(lambda batch, batches: _tokens(batch) / len(batches))
        ),
        "only the gradient of the last batch: the ones before it were set to zero": lambda weight, batches: (
            accumulated_gradient.reference(weight, batches[-1:]) * _tokens(batches[-1:]) / _tokens(batches)
        ),
        "only the last batch's mean: gradients add up until something sets them to zero": (
            lambda weight, batches: accumulated_gradient.reference(weight, batches[-1:])
        ),
    }
)

# ---- one round of Muon -------------------------------------------------------------------------------------------


def _matrices() -> list[tuple[Tensor]]:
    """None with a singular value above 1. The batch is a cube, so that `X.T`, which reverses its axes, goes through."""
    return [(0.2 * randn(*shape, seed=number),) for number, shape in enumerate(((3, 5), (4, 4, 4), (6, 3)))]


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
        "q has lost its sign: it is −4.775": _round(3.4445, 4.775, 2.0315),
        "q and r have changed places: q belongs to the third power and r to the fifth": _round(3.4445, 2.0315, -4.775),
        "the first term, p X, is missing": _round(0, -4.775, 2.0315),
        "the third power, q (X Xᵀ) X, is missing": _round(3.4445, 0, 2.0315),
        "the fifth power, r (X Xᵀ)² X, is missing": _round(3.4445, -4.775, 0),
        "these are five rounds: return a single one": lambda X: reduce(
            lambda Y, _: one_round.reference(Y), range(5), X
        ),
    }
)

# ---- the linear part of the law ----------------------------------------------------------------------------------

Runs = tuple[Tensor, Tensor, Tensor, float, float]


def _runs() -> list[Runs]:
    """Every size with every length: losses without noise, with noise, and with so much that E counts for little."""
    laws = ((1.0, 0.8, 0.5, 0.3, 0.6, 0.0), (0.9, 0.6, 0.7, 0.36, 0.7, 0.05), (0.3, 1.5, 1.1, 0.2, 0.45, 0.2))
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
        "Each run is one equation, E · 1 + A · N^(−α) + B · D^(−β) = loss, with the unknowns E, A and B. What are the "
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
        "these are the fitted losses: return E, A and B themselves": lambda N, D, loss, alpha, beta: (
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
