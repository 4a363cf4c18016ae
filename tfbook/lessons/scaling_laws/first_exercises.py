"""The first exercises of lesson 10; the others are in exercises.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
        (
            "two slips: the output's matrix is missing; and attention goes back as well, 12 operations with the "
            "way back"
        ): (lambda vocab, *rest: _used(0, *rest, attention=4)),
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
        "attention's way back takes 8 · layers · context · d_model; the way forward, 4 more, comes on top": (
            partial(_used, attention=8)
        ),
        "attention has four matrices: queries, keys, values, and W_O, which mixes what the heads found": (
            lambda vocab, d_model, d_ff, layers, context, speed, peak: (
                utilization.reference(vocab, d_model, d_ff, layers, context, speed, peak)
                - 6 * layers * d_model**2 * speed / peak
            )
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------

Batches = list[tuple[Tensor, Tensor]]


def _weight_and_batches() -> list[tuple[Tensor, Batches]]:
    targets = [torch.tensor([1, 4, 0, 2, 3, 1]), torch.tensor([3, -100, -100, -100, -100, -100]), torch.tensor([2, 0])]
    batches = [(randn(len(each), 4, seed=number), each) for number, each in enumerate(targets)]
    nothing, large = (randn(3, 4, seed=3), torch.full((3,), -100)), (200 * randn(2, 4, seed=4), torch.tensor([1, 4]))
    return [
        (randn(4, 5, seed=7), batches),
        (randn(4, 5, seed=8), batches[:2]),
        (randn(4, 5, seed=9), [batches[0], nothing, batches[2]]),
        (randn(4, 5, seed=10), [batches[0], large]),  # probabilities of 0 in float32
    ]


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


def _of_mean(weight: Tensor, x: Tensor, targets: Tensor) -> Tensor:
    """The gradient of a batch's mean loss; 0 where nothing counts, though that mean is NaN."""
    weight = weight.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(x @ weight, targets), weight)[0]


def _added(weigh: Callable[[Batches, Batches], float]) -> Callable[[Tensor, Batches], Tensor]:
    """Adds up the gradients of the batches' mean losses, each times `weigh([batch], all batches)`."""
    return lambda weight, batches: sum(weigh([batch], batches) * _of_mean(weight, *batch) for batch in batches)


def _by_probabilities(weight: Tensor, batches: Batches) -> Tensor:
    weight = weight.clone().requires_grad_()
    for x, targets in batches:
        logp = (x @ weight).softmax(dim=-1).log()
        (F.nll_loss(logp, targets, reduction="sum") / _tokens(batches)).backward()
    return weight.grad


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
        "a probability can be 0 in float32, and its logarithm is −∞: use log_softmax or cross_entropy": (
            _by_probabilities
        ),
        "only the gradient of the last batch: the ones before it were set to zero": lambda weight, batches: (
            accumulated_gradient.reference(weight, batches[-1:]) * _tokens(batches[-1:]) / _tokens(batches)
        ),
        "only the last batch's mean: gradients add up until something sets them to zero": (
            lambda weight, batches: accumulated_gradient.reference(weight, batches[-1:])
        ),
    }
)
