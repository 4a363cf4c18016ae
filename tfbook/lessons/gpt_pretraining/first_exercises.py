"""The first exercises of lesson 09: the loss, the next word, the residual branch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.course.exercises import exercise, randn

# ---- the loss of a batch of stories ------------------------------------------------------------------------------

PAD = 0


def _padded() -> list[tuple[Tensor, Tensor, int]]:
    ids = torch.tensor([[1, 4, 2, 5, 3], [1, 5, 3, 0, 0], [1, 2, 3, 0, 0]])
    large = torch.tensor([[2, 0, 4, 1], [2, 3, 1, 1]])
    apart = torch.tensor([0.0, -900.0])[:, None, None]
    return [
        (randn(3, 5, 6, seed=1), ids, PAD),
        (200 * randn(2, 4, 5, seed=2) + apart, large, 1),  # exp overflows in one text and is 0 in the other
        (randn(1, 3, 4, seed=3), torch.tensor([[3, 1, 2]]), PAD),
    ]


@exercise(
    cases=_padded,
    hints=[
        "Which logits predict which ids? Cut both so that position t of the logits stands beside word t + 1.",
        "`logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]` is the log-probability of each target. Sum it "
        "where the target is not `pad`, and divide by how many those are.",
    ],
)
def story_loss(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    targets = ids[:, 1:]
    logp = logits[:, :-1].log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]
    counts = targets != pad
    return -logp[counts].sum() / counts.sum()


def _surprises(logits: Tensor, targets: Tensor) -> Tensor:
    return -logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]


def _mean_of_rows(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    counts = ids[:, 1:] != pad
    return ((_surprises(logits[:, :-1], ids[:, 1:]) * counts).sum(dim=1) / counts.sum(dim=1)).mean()


def _after_exp(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    """The loss with log Σ exp taken as it stands."""
    logp = logits - logits.exp().sum(dim=-1, keepdim=True).log()
    return -logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0][ids[:, 1:] != pad].mean()


story_loss.mistakes(
    {
        "nothing is shifted: position t has read word t, so its logits belong to word t + 1": (
            lambda logits, ids, pad: _surprises(logits, ids)[ids != pad].mean()
        ),
        "nothing is shifted: the last position is gone, but each of the others is asked for the word it has read": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, :-1])[ids[:, :-1] != pad].mean()
        ),
        "shifted the wrong way: this asks each position for the word before it, which it has already read": (
            lambda logits, ids, pad: _surprises(logits[:, 1:], ids[:, :-1])[ids[:, :-1] != pad].mean()
        ),
        "padding counts: leave out the targets that are `pad`, or the model is trained to predict them": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:]).mean()
        ),
        "divided by all positions: padding adds nothing to the sum, and should not count in the mean either": (
            lambda logits, ids, pad: (_surprises(logits[:, :-1], ids[:, 1:]) * (ids[:, 1:] != pad)).mean()
        ),
        "left out by what is read, not by the target: the last word of a story still has `pad` as its target": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:])[ids[:, :-1] != pad].mean()
        ),
        "a mean for each story, and then their mean: words of short stories count more. Divide once, by all words": (
            _mean_of_rows
        ),
        "the sum over all words: divide by how many count, or long batches take larger steps": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:])[ids[:, 1:] != pad].sum()
        ),
        "the sign: log-probabilities are negative, and the loss should fall as they rise": (
            lambda logits, ids, pad: -story_loss.reference(logits, ids, pad)
        ),
        "`pad` is given and need not be 0, which is a word here like any other": (
            lambda logits, ids, pad: story_loss.reference(logits, ids, 0)
        ),
        "ids below `pad` are left out, too: a target is padding only if it equals `pad`": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:])[ids[:, 1:] > pad].mean()
        ),
        "one maximum for all positions: where all logits are far below it, each exp is 0; subtract each row's own": (
            lambda logits, ids, pad: _after_exp(logits - logits.max(), ids, pad)
        ),
        "these are bits: use the natural logarithm": (
            lambda logits, ids, pad: story_loss.reference(logits, ids, pad) / math.log(2)
        ),
    }
)


# ---- how probable each next word is ----------------------------------------------------------------------------------


def _written() -> list[tuple[Tensor, float, list[int]]]:
    return [
        (randn(2, 4, 6, seed=1), 0.7, [0, 1]),
        (3 * randn(6, 6, 6, seed=2), 2.0, [5]),  # as many texts as words: wrong axes still fit
        (100 * randn(1, 1, 5, seed=3), 0.5, []),  # scores that no exp bears
        (randn(2, 3, 5, seed=4) - 300, 1.0, [2]),
    ]


@exercise(
    cases=_written,
    hints=[
        "Only one row of logits in each text is about the word that comes next. Which one?",
        "In this order: the last position, divided by the temperature, −∞ for the words in `never` (a list of ids is "
        "an index), softmax over the vocabulary. Change a copy, not the logits that you were given.",
    ],
    differentiable=False,
)
def next_word(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    scores = logits[:, -1] / temperature
    scores[:, never] = -math.inf
    return scores.softmax(dim=-1)


def _chosen(
    logits: Tensor, temperature: float, never: list[int], *, blocked: float = -math.inf, at: int = -1, dim: int = -1
) -> Tensor:
    """The right answer with another position, axis, or score for the words that must not come."""
    scores = logits[:, at] / temperature
    scores[:, never] = blocked
    return scores.softmax(dim=dim)


def _blocked_after(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    shares = (logits[:, -1] / temperature).softmax(dim=-1)
    shares[:, never] = 0
    return shares


def _without(change: Callable[[Tensor, float], Tensor], logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    return _chosen(change(logits, temperature), 1.0, never)


def _at_all_positions(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    scores = logits / temperature
    scores[:, :, never] = -math.inf
    return scores.softmax(dim=-1)


def _powers(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    shares = logits[:, -1].softmax(dim=-1) ** (1 / temperature)
    shares[:, never] = 0
    return shares


next_word.mistakes(
    {
        "position 0 has read one word only: the last position has read the whole text": partial(_chosen, at=0),
        "these are the words after every position: only the last row of each text is about what comes next": (
            _at_all_positions
        ),
        "multiplied by the temperature: a low one should make the likeliest word likelier, so divide": partial(
            _without, lambda logits, temperature: logits * temperature
        ),
        "the temperature is missing: divide the logits by it before the softmax": partial(
            _without, lambda logits, temperature: logits
        ),
        "the words in `never` can still come: give them a score of −∞ before the softmax": (
            lambda logits, temperature, never: _chosen(logits, temperature, [])
        ),
        "the words in `never` get a score of 0, which is a score like any other: block with −∞": partial(
            _chosen, blocked=0.0
        ),
        "blocked after the softmax: the shares that are left don't sum to 1. Block the scores with −∞ before it": (
            _blocked_after
        ),
        "softmax over the texts of the batch: the shares of one text's next words sum to 1, over the last axis": (
            partial(_chosen, dim=0)
        ),
        "the shares are divided by the temperature, not the logits, so they don't sum to 1": (
            lambda logits, temperature, never: _chosen(logits, 1.0, never) / temperature
        ),
        "powers of the shares have to be divided by their sum again; dividing logits before the softmax does both": (
            _powers
        ),
        "these are scores, not probabilities: the softmax is missing": (
            lambda logits, temperature, never: _chosen(logits, temperature, never).log()
        ),
    }
)


# ---- a branch beside the residual stream ---------------------------------------------------------------------------


def _branches() -> list[tuple[Tensor, nn.Module, nn.Module]]:
    def linear(d: int, seed: int) -> nn.Linear:
        layer = nn.Linear(d, d)
        for number, weight in enumerate(layer.parameters()):
            weight.data = randn(*weight.shape, seed=seed + number)
        return layer

    def norm(d: int, seed: int) -> nn.LayerNorm:
        layer = nn.LayerNorm(d)
        layer.weight.data, layer.bias.data = 1 + 0.3 * randn(d, seed=seed), 0.3 * randn(d, seed=seed + 1)
        return layer

    return [
        (5 * randn(2, 3, 6, seed=1), linear(6, 11), norm(6, 21)),
        (randn(1, 1, 4, seed=2) + 3, linear(4, 12), norm(4, 22)),
    ]


@exercise(
    cases=_branches,
    hints=[
        "Two paths lead from x to the sum: one through nothing at all, the other through `norm` and then `branch`.",
        "`branch(norm(x))` is what the branch finds; add it to x itself, not to `norm(x)`.",
    ],
)
def residual(x: Tensor, branch: Any, norm: Any) -> Tensor:
    return x + branch(norm(x))


residual.mistakes(
    {
        "the stream is missing: the branch replaces x in place of adding to it": lambda x, branch, norm: branch(
            norm(x)
        ),
        "the branch reads x as it is: let it read `norm(x)`, or its input grows with every block before it": (
            lambda x, branch, norm: x + branch(x)
        ),
        "the norm comes after the sum, as in the first Transformer: here it comes first, inside the branch": (
            lambda x, branch, norm: norm(x + branch(x))
        ),
        "what the branch finds is normalized, not what it reads: norm first, then the branch": (
            lambda x, branch, norm: x + norm(branch(x))
        ),
        "the normalized stream is added: then nothing passes unchanged. Add x itself": (
            lambda x, branch, norm: norm(x) + branch(norm(x))
        ),
        "normalized twice, before the branch and after the sum: the stream itself is never normalized": (
            lambda x, branch, norm: norm(x + branch(norm(x)))
        ),
        "neither x nor the norm: this is the branch alone": lambda x, branch, norm: branch(x),
        "multiplied: the branch's result is added to x": lambda x, branch, norm: x * branch(norm(x)),
        "the sign: the branch's result is added to x, not subtracted": lambda x, branch, norm: x - branch(norm(x)),
    }
)
