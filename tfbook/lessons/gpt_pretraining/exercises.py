"""Exercises of lesson 09: the loss, sampling, attention, a residual branch, implanting, perplexity, counting, bits."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise
from tfbook.lessons.gpt_pretraining.attention_exercise import attend as attend
from tfbook.lessons.gpt_pretraining.first_exercises import (
    next_word as next_word,
    residual as residual,
    story_loss as story_loss,
)
from tfbook.lessons.gpt_pretraining.memory_exercise import implant as implant

# ---- find the bug: perplexity of several texts ---------------------------------------------------------------------


def _texts() -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.tensor([0.7, 2.3, 1.1]), torch.tensor([10.0, 400.0, 90.0])),
        (torch.tensor([3.0, 1.0]), torch.tensor([1.0, 3.0])),
        (torch.tensor([1.4]), torch.tensor([7.0])),
    ]


@exercise(
    cases=_texts,
    hints=[
        "Perplexity is the exponential of one number, the mean loss over all words of all texts. How many nats do all "
        "texts take together?",
        "A text with mean loss l and c words takes l · c nats. Add these up, divide by all words, and only then take "
        "the exponential.",
    ],
    differentiable=False,
)
def perplexity(losses: Tensor, counts: Tensor) -> Tensor:
    return ((losses * counts).sum() / counts.sum()).exp()


@perplexity.given
def _(losses: Tensor, counts: Tensor) -> Tensor:
    return losses.exp().mean()


perplexity.mistakes(
    {
        "every text counts the same: one of 400 words should count 40 times as much as one of 10": (
            lambda losses, counts: losses.mean().exp()
        ),
        "the mean of perplexities, weighted by words: first average the losses, then take the exponential once": (
            lambda losses, counts: (losses.exp() * counts).sum() / counts.sum()
        ),
        "all nats of the texts, not their mean: divide by the number of words before the exponential": (
            lambda losses, counts: (losses * counts).sum().exp()
        ),
        "the losses are in nats, so the base is e, not 2": (
            lambda losses, counts: 2 ** ((losses * counts).sum() / counts.sum())
        ),
        "this is the mean loss in nats: perplexity is its exponential": (
            lambda losses, counts: (losses * counts).sum() / counts.sum()
        ),
        "divided by the number of texts instead of the number of words": (
            lambda losses, counts: ((losses * counts).sum() / len(counts)).exp()
        ),
    }
)


# ---- how many numbers does GPT-2 have? ---------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int, int, int]]:
    return [(50_257, 1024, 768, 12, 3072, 12), (50_257, 1024, 1600, 25, 6400, 48), (11, 7, 6, 3, 5, 2)]


@exercise(
    cases=_sizes,
    hints=[
        "A linear layer from n to m has n · m + m numbers, a layer norm 2 · d_model. Each block begins both branches "
        "with a norm; what comes after the last block?",
        "Two tables, `layers` blocks of four matrices of attention, two of the feed-forward net, and two norms, and "
        "one norm at the end. The output's matrix is the table of words again.",
    ],
)
def count_parameters(vocab: int, context: int, d_model: int, heads: int, d_ff: int, layers: int) -> int:
    norm = 2 * d_model
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = (d_model * d_ff + d_ff) + (d_ff * d_model + d_model)
    return (vocab + context) * d_model + layers * (norm + attention + norm + feed_forward) + norm


def _count(*sizes: int, but: Callable[[int, int, int, int, int, int], int]) -> int:
    """The right count less what `but` says."""
    return count_parameters.reference(*sizes) - but(*sizes)


NOT_COUNTED: dict[str, Callable[[int, int, int, int, int, int], int]] = {
    "the output has no bias: its matrix is the embedding, and nothing else is learned there": (
        lambda vocab, context, d, heads, d_ff, layers: -vocab
    ),
    "the output's matrix is counted as well: it is the table of words once more, and learned once": (
        lambda vocab, context, d, heads, d_ff, layers: -vocab * d
    ),
    "positions have a table, too, a vector for each that the model can read": (
        lambda vocab, context, d, heads, d_ff, layers: context * d
    ),
    "the table of words is missing, which in the smallest GPT-2 is a third of the whole": (
        lambda vocab, context, d, heads, d_ff, layers: vocab * d
    ),
    "the norm after the last block is missing: the residual stream that reaches the output has to be normalized once": (
        lambda vocab, context, d, heads, d_ff, layers: 2 * d
    ),
    "the layer norms are missing: two per block and one at the end, a weight and a bias each": (
        lambda vocab, context, d, heads, d_ff, layers: (2 * layers + 1) * 2 * d
    ),
    "a block has two layer norms, one before attention and one before the feed-forward net": (
        lambda vocab, context, d, heads, d_ff, layers: layers * 2 * d
    ),
    "the biases are missing: every linear layer of GPT-2 has one, as wide as its output": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (5 * d + d_ff)
    ),
    "biases and layer norms are missing: 12 · layers · d² and the tables are near, but asked for is all of it": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (5 * d + d_ff) + (2 * layers + 1) * 2 * d
    ),
    "this is `matrix_count`, what a token is multiplied by: positions, biases, and norms are learned as well": (
        lambda vocab, context, d, heads, d_ff, layers: context * d + layers * (5 * d + d_ff) + (2 * layers + 1) * 2 * d
    ),
    "attention has four matrices: queries, keys, values, and W_O, which mixes what the heads found": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (d * d + d)
    ),
    "the feed-forward net has two matrices: one widens to d_ff, one narrows to d_model again": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (d_ff * d + d)
    ),
    "each head is d_model / heads wide: all heads together are d_model wide, however many there are": (
        lambda vocab, context, d, heads, d_ff, layers: -layers * 3 * (heads - 1) * (d * d + d)
    ),
    "a layer norm has a bias as well as a weight: 2 · d_model numbers": (
        lambda vocab, context, d, heads, d_ff, layers: (2 * layers + 1) * d
    ),
    "d_ff is given and need not be 4 · d_model": (
        lambda vocab, context, d, heads, d_ff, layers: layers * (2 * d + 1) * (d_ff - 4 * d)
    ),
}
count_parameters.mistakes({message: partial(_count, but=but) for message, but in NOT_COUNTED.items()})


# ---- the first loss ----------------------------------------------------------------------------------------------


def _beginnings() -> list[tuple[int, int, float]]:
    return [(50_257, 768, 0.02), (65, 128, 0.02), (103, 64, 0.1), (1000, 64, 0.0)]


@exercise(
    cases=_beginnings,
    hints=[
        "The loss is log Σ e^z minus the target's logit z. What is the mean of that logit, if the model knows nothing? "
        "And what would the sum be, were all logits 0?",
        "A logit is the dot product of a vector of length √d_model with a row of d_model numbers of standard deviation "
        "std. What is its variance s²? A normal z with mean 0 has the mean of e^z at e^{s²/2}.",
    ],
)
def first_loss(vocab: int, d_model: int, std: float) -> float:
    variance = d_model * std**2
    return math.log(vocab) + variance / 2


first_loss.mistakes(
    {
        "ln(vocab) is what equal logits give; these differ by chance, and their spread costs a little more": (
            lambda vocab, d_model, std: math.log(vocab)
        ),
        "this is in bits: a loss is in nats, so take the natural logarithm": (
            lambda vocab, d_model, std: math.log2(vocab) + d_model * std**2 / 2
        ),
        "the mean of e^z is e to half the variance: divide by 2": (
            lambda vocab, d_model, std: math.log(vocab) + d_model * std**2
        ),
        "std is a standard deviation: the variance is its square": (
            lambda vocab, d_model, std: math.log(vocab) + d_model * std / 2
        ),
        "one product has this variance; a logit is the sum of d_model of them": (
            lambda vocab, d_model, std: math.log(vocab) + std**2 / 2
        ),
        "a variance does not grow with d_model²: d_model products that do not depend on each other add up": (
            lambda vocab, d_model, std: math.log(vocab) + (d_model * std) ** 2 / 2
        ),
        "the sign: guesses that differ by chance are worse than equal ones, not better": (
            lambda vocab, d_model, std: math.log(vocab) - d_model * std**2 / 2
        ),
        "√d_model · std is the standard deviation of a logit: the mean of e^z takes half of its square, the variance": (
            lambda vocab, d_model, std: math.log(vocab) + math.sqrt(d_model) * std / 2
        ),
    }
)


# ---- bits per byte -------------------------------------------------------------------------------------------------


def _losses() -> list[tuple[float, int, str]]:
    return [
        (3.1, 9, "To be, or not to be: that is the question."),
        (2.2, 40, "Où est-il allé ? À l'école, naturellement."),
        (1.4, 30, "5 € ≈ 6 $, 今日は"),
        (2.0, 11, "\tUn cafe\u0301, İstanbul 🙂 \n"),  # an accent of its own, spaces at both ends
    ]


@exercise(
    cases=_losses,
    hints=[
        "How many nats does the whole text take? Then change the unit: one bit is ln 2 nats.",
        "`text.encode()` gives the bytes of UTF-8, of which é has two and 今 three.",
    ],
)
def bits_per_byte(loss: float, tokens: int, text: str) -> float:
    bits = loss * tokens / math.log(2)
    return bits / len(text.encode())


bits_per_byte.mistakes(
    {
        "these are characters: é has two bytes, € three": lambda loss, tokens, text: (
            loss * tokens / math.log(2) / len(text)
        ),
        "these are nats per byte: divide by ln 2": lambda loss, tokens, text: loss * tokens / len(text.encode()),
        "a nat is more than a bit, 1 / ln 2 = 1.44 of them: divide by ln 2 instead of multiplying": (
            lambda loss, tokens, text: loss * tokens * math.log(2) / len(text.encode())
        ),
        "bits per token, which depend on how the text is cut: times tokens, divided by bytes": (
            lambda loss, tokens, text: loss / math.log(2)
        ),
        "bytes and tokens are exchanged: the whole text takes loss · tokens": (
            lambda loss, tokens, text: loss * len(text.encode()) / tokens / math.log(2)
        ),
        "this is log₂ of the loss, which is a logarithm already: change its unit, dividing by ln 2": (
            lambda loss, tokens, text: math.log2(loss) * tokens / len(text.encode())
        ),
        "bits of the whole text: divide by its bytes": lambda loss, tokens, text: loss * tokens / math.log(2),
        "spaces and line ends at the edges are bytes, too: strip nothing": lambda loss, tokens, text: (
            bits_per_byte.reference(loss, tokens, text.strip())
        ),
        "normalizing the text changes its bytes: e and ´ have three together, é has two": lambda loss, tokens, text: (
            bits_per_byte.reference(loss, tokens, unicodedata.normalize("NFC", text))
        ),
    }
)
