"""Exercises of lesson 08: words to hide and the loss on them, pairs of sentences, fine-tuning, spans, and counting."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.bert_masking.first_exercises import (
    hidden_loss as hidden_loss,
    hide as hide,
    losses,
    sentence_pair as sentence_pair,
)
from tfbook.models.bert import BERT, Bert
from tfbook.text.masking import CLS, SEP
from tfbook.text.vocabulary import PAD

# ---- fine-tuning -------------------------------------------------------------------------------------------------


def _model_and_batch() -> list[tuple[Bert, nn.Linear, Tensor, Tensor, Tensor, float]]:
    sizes = replace(BERT, d_model=8, heads=2, d_ff=12, layers=1, max_length=6, dropout=0.0)
    bert, head = Bert(12, sizes), nn.Linear(8, 3)
    for seed, weights in enumerate([*bert.parameters(), *head.parameters()]):
        weights.data = 0.5 * randn(*weights.shape, seed=seed)
    ids = torch.tensor([[CLS, 5, 6, SEP, PAD, PAD], [CLS, 7, 8, 9, 10, SEP], [CLS, 11, 5, 5, SEP, PAD]])
    lengths, labels = torch.tensor([4, 6, 5]), torch.tensor([2, 0, 1])
    other = copy.deepcopy((bert, head))
    return [(bert, head, ids, lengths, labels, 0.1), (*other, ids[1:2], lengths[1:2], labels[:1], 0.5)]


@exercise(
    cases=_model_and_batch,
    hints=[
        "`[CLS]` is the first token of every text, so its vector is `bert(ids, lengths)[:, 0]`.",
        "`torch.optim.SGD` takes a list of parameters: `[*bert.parameters(), *head.parameters()]`. After `backward` "
        "and `step`, ask the model again.",
    ],
    differentiable=False,
)
def fine_tune(bert: nn.Module, head: nn.Module, ids: Tensor, lengths: Tensor, labels: Tensor, rate: float) -> Tensor:
    optimizer = torch.optim.SGD([*bert.parameters(), *head.parameters()], lr=rate)
    F.cross_entropy(head(bert(ids, lengths)[:, 0]), labels).backward()
    optimizer.step()
    return head(bert(ids, lengths)[:, 0])


def _mean_of_words(states: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(states.shape[1]) < lengths[:, None]
    return (states * there[..., None]).sum(dim=1) / lengths[:, None]


def _tuned(
    bert: nn.Module,
    head: nn.Module,
    ids: Tensor,
    lengths: Tensor,
    labels: Tensor,
    rate: float,
    *,
    summary: Callable[[Tensor, Tensor], Tensor] = lambda states, lengths: states[:, 0],
    trained: Iterable[nn.Module] = (),
    read: Callable[[Tensor], Tensor] = lambda scores: scores,
    optimizer: Callable = torch.optim.SGD,
    reduction: str = "mean",
    uphill: bool = False,
) -> Tensor:
    """One step on the modules `trained`, both when left out, with another `summary` of a text, `read`ing of its scores,
    `optimizer` or mean."""
    parameters = [p for module in (trained or (bert, head)) for p in module.parameters()]
    scores = read(head(summary(bert(ids, lengths), lengths)))
    F.cross_entropy(scores, labels, reduction=reduction).backward()
    optimizer(parameters, lr=rate, maximize=uphill).step()
    return head(summary(bert(ids, lengths), lengths))


fine_tune.mistakes(
    {
        "the body is frozen and the head alone has learned: that is probing; fine-tuning trains all of it": (
            lambda bert, head, *rest: _tuned(bert, head, *rest, trained=[head])
        ),
        "the body has learned and the head has not: it is new, so it needs the step most": (
            lambda bert, head, *rest: _tuned(bert, head, *rest, trained=[bert])
        ),
        "a mean over all positions takes in the padding, so that a text changes with its batch: take `[CLS]`": (
            partial(_tuned, summary=lambda states, lengths: states.mean(dim=1))
        ),
        "a mean over the tokens is a fair summary, but here the text's vector is that of `[CLS]`, the first": (
            partial(_tuned, summary=_mean_of_words)
        ),
        "this is the last position, padding in most texts: `[CLS]` is the first token": (
            partial(_tuned, summary=lambda states, lengths: states[:, -1])
        ),
        "this is each text's last token, `[SEP]`, as for a model that reads to the right; `[CLS]` is the first": (
            partial(_tuned, summary=lambda states, lengths: states[torch.arange(len(lengths)), lengths - 1])
        ),
        "these are the logits from before the step: ask the model again after it": (
            lambda bert, head, ids, lengths, labels, rate: head(bert(ids, lengths)[:, 0])
        ),
        "the step goes uphill: the gradient is subtracted": partial(_tuned, uphill=True),
        "the loss is a sum over the texts, so the step grows with the batch: take the mean": (
            partial(_tuned, reduction="sum")
        ),
        "a softmax comes before `cross_entropy`, which takes scores and applies it itself": (
            partial(_tuned, read=lambda scores: scores.softmax(dim=-1))
        ),
        "this is AdamW's step: plain gradient descent is `torch.optim.SGD`": (
            partial(_tuned, optimizer=torch.optim.AdamW)
        ),
        "this is Adam's step: plain gradient descent is `torch.optim.SGD`": partial(_tuned, optimizer=torch.optim.Adam),
        "every text is said to be as long as the batch, so padding is read like words: pass on `lengths`": (
            lambda bert, head, ids, lengths, *rest: _tuned(
                bert, head, ids, torch.full_like(lengths, ids.shape[1]), *rest
            )
        ),
    }
)

# ---- the best span -----------------------------------------------------------------------------------------------


def _start_and_end() -> list[tuple[Tensor, Tensor, int]]:
    return [
        (torch.tensor([0.0, 2.0, 5.0, 1.0]), torch.tensor([1.0, 4.5, 0.5, 2.0]), 4),  # the best end is before the start
        (torch.tensor([1.0, 0.5, 0.0, 3.0]), torch.tensor([0.0, 0.5, 0.0, 4.0]), 4),  # one token
        (torch.tensor([4.0, 0.0, 3.5, 0.0, 0.0]), torch.tensor([0.0, 0.0, 0.0, 0.0, 4.0]), 3),  # not from 0 to 4
        (torch.tensor([-2.0, -1.5, -4.0]), torch.tensor([-4.0, -2.0, -3.0]), 2),  # logits may be negative
        (torch.tensor([6.0, 3.0, 0.0, 0.0]), torch.tensor([-9.0, -9.0, -9.0, 5.0]), 3),  # a good start without an end
        (torch.tensor([-1.0, -3.0, -2.0]), torch.tensor([-5.0, -1.0, -4.0]), 2),
        (torch.tensor([1.0, 3.0, 0.0]), torch.tensor([5.0, 0.5, 4.0]), 9),  # longer than the text
        (torch.tensor([-3000.0, -2000.0, -4000.0]), torch.tensor([-5000.0, -2500.0, -2400.0]), 2),  # all far below 0
        (
            torch.tensor([-9.0, -9.0, 3.0, 9.0, 8.0]),
            torch.tensor([9.0, 8.0, 3.0, -9.0, -9.0]),
            2,
        ),  # neither is the best
    ]


@exercise(
    cases=_start_and_end,
    hints=[
        "There are few pairs: two loops, i over all positions, and j from i to the last that `longest` allows.",
        "A span from i to j has j − i + 1 tokens. `max(pairs, key=...)` keeps the pair of the largest sum.",
    ],
)
def best_span(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    spans = [(i, j) for i in range(len(start)) for j in range(i, min(i + longest, len(end)))]
    return max(spans, key=lambda span: float(start[span[0]] + end[span[1]]))


def _best(
    start: Tensor, end: Tensor, longest: int, *, shortest: float = 1, operation: Callable = torch.add
) -> tuple[int, int]:
    """The best pair with `shortest` ≤ j − i + 1 ≤ `longest`."""
    spans = [(i, j) for i in range(len(start)) for j in range(len(end)) if shortest <= j - i + 1 <= longest]
    return max(spans, key=lambda span: float(operation(start[span[0]], end[span[1]])))


def _above(least: float, start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    """Where no sum is above `least`, what the search began with."""
    i, j = best_span.reference(start, end, longest)
    return (i, j) if start[i] + end[j] > least else (0, 0)


def _start_first(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    i = int(start.argmax())
    return i, i + int(end[i : i + longest].argmax())


def _end_first(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    j = int(end.argmax())
    begin = max(0, j - longest + 1)
    return begin + int(start[begin : j + 1].argmax()), j


def _of_the_two_best(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    starts, ends = (scores.topk(min(2, len(scores))).indices.tolist() for scores in (start, end))
    spans = [(i, j) for i in starts for j in ends if 0 <= j - i < longest]
    return max(spans, key=lambda span: float(start[span[0]] + end[span[1]]), default=(0, 0))


best_span.mistakes(
    {
        "only the two best starts and ends are paired: the best span may have neither": _of_the_two_best,
        "each is the best by itself, and together they may end before they start: choose the pair": (
            lambda start, end, longest: (int(start.argmax()), int(end.argmax()))
        ),
        "start and end are exchanged where the end came first: that span has another, lower sum": (
            lambda start, end, longest: tuple(sorted((int(start.argmax()), int(end.argmax()))))
        ),
        "here the end may come before the start: only pairs with i ≤ j are spans": partial(_best, shortest=-math.inf),
        "a span may be one token: i = j is allowed": partial(_best, shortest=2),
        "spans longer than `longest` take part": lambda start, end, longest: _best(start, end, len(start)),
        "one token too many: a span from i to j has j − i + 1 tokens, both ends counted": (
            lambda start, end, longest: _best(start, end, longest + 1)
        ),
        "one token too few: a span from i to j has j − i + 1 tokens, so j may be i + longest − 1": (
            lambda start, end, longest: _best(start, end, max(1, longest - 1))
        ),
        "the best start first, then the best end for it: another start may have a far better end": _start_first,
        "the best end first, then the best start for it: another end may have a far better start": _end_first,
        "a search that begins with a best sum of 0 never finds a negative one: begin with −∞, or with the first span": (
            partial(_above, 0.0)
        ),
        "the search begins with a sum that all spans may be below: begin with −∞, or with the first span": (
            partial(_above, -1000.0)
        ),
        "logits are added: they are log-probabilities up to a constant, and two negative ones have a product > 0": (
            partial(_best, operation=torch.mul)
        ),
        "the end is one further, as in a slice: here j is the last token of the span itself": (
            lambda *inputs: (best_span.reference(*inputs)[0], best_span.reference(*inputs)[1] + 1)
        ),
    }
)

# ---- how many numbers does BERT have? ----------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int, int, int, int]]:
    base, large = (30_522, 512, 2, 768, 12, 3072, 12), (30_522, 512, 2, 1024, 16, 4096, 24)
    return [base, large, (11, 7, 3, 4, 2, 5, 2)]


@exercise(
    cases=_sizes,
    hints=[
        "A linear layer from n to m has n · m + m numbers, a layer norm 2 · d_model. Which are in a block, how often?",
        "Three tables and a norm; then in each block four matrices of attention, two of the feed-forward net, all with "
        "biases, and two norms. Heads share the width, so their number changes nothing.",
    ],
)
def count_parameters(vocab: int, longest: int, segments: int, d_model: int, heads: int, d_ff: int, layers: int) -> int:
    norm = 2 * d_model
    tables = (vocab + longest + segments) * d_model
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = (d_model * d_ff + d_ff) + (d_ff * d_model + d_model)
    return tables + norm + layers * (attention + norm + feed_forward + norm)


def _counted(
    *sizes: int, bias: int = 1, first_norm: int = 1, norms: int = 2, matrices: int = 4, narrowing: int = 1
) -> int:
    """With this many biases an output, norms before the blocks and in each, matrices of attention and from d_ff."""
    vocab, longest, segments, d_model, _, d_ff, layers = sizes
    attention = matrices * d_model * (d_model + bias)
    feed_forward = d_ff * (d_model + bias) + narrowing * d_model * (d_ff + bias)
    tables = (vocab + longest + segments + 2 * first_norm) * d_model
    return tables + layers * (attention + feed_forward + norms * 2 * d_model)


count_parameters.mistakes(
    {
        "the heads share the four matrices of a layer: their number does not matter": (
            lambda vocab, longest, segments, d_model, heads, d_ff, layers: (
                count_parameters.reference(vocab, longest, segments, d_model, heads, d_ff, layers)
                + layers * (heads - 1) * 4 * d_model**2
            )
        ),
        "the biases are missing: every linear layer has one, as wide as its output": partial(_counted, bias=0),
        "the layer norms are missing: one after the tables and two a block, a gain and a shift each": (
            partial(_counted, first_norm=0, norms=0)
        ),
        "biases and layer norms are missing: small beside the matrices, but they are there": (
            partial(_counted, bias=0, first_norm=0, norms=0)
        ),
        "one layer norm is missing: the sum of the three tables is normalized before the first block": (
            partial(_counted, first_norm=0)
        ),
        "a block has two layer norms, one after attention and one after the feed-forward net": (
            partial(_counted, norms=1)
        ),
        "positions and segments have tables, too, and they are trained": (
            lambda vocab, longest, segments, *rest: count_parameters.reference(vocab, 0, 0, *rest)
        ),
        "the table of positions is missing: BERT's are learned, one vector each": (
            lambda vocab, longest, *rest: count_parameters.reference(vocab, 0, *rest)
        ),
        "the table of segments is missing: a vector for each of them": (
            lambda vocab, longest, segments, *rest: count_parameters.reference(vocab, longest, 0, *rest)
        ),
        "attention has four matrices: queries, keys, values, and W_O, which mixes what the heads found": (
            partial(_counted, matrices=3)
        ),
        "each head is d_model / heads wide: all heads together are d_model wide, however many there are": (
            lambda *sizes: _counted(*sizes, matrices=3 * sizes[4] + 1)
        ),
        "the feed-forward net has two matrices: one widens to d_ff, one narrows to d_model again": (
            partial(_counted, narrowing=0)
        ),
        "all blocks are counted as one: that is ALBERT, which shares them; BERT's are all different": (
            lambda *sizes: count_parameters.reference(*sizes[:-1], 1)
        ),
        "a matrix for the output is counted: it belongs to a head, and is the table of words again": (
            lambda vocab, *rest: count_parameters.reference(2 * vocab, *rest)
        ),
        "one norm too many: BERT's stand after the layers, so the last block ends with one, and none comes behind it": (
            lambda *sizes: count_parameters.reference(*sizes) + 2 * sizes[3]
        ),
        "the pooler is counted, a layer of d_model × d_model behind `[CLS]`: the body ends with the last block": (
            lambda *sizes: count_parameters.reference(*sizes) + sizes[3] * (sizes[3] + 1)
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _logits_words_and_weights() -> list[tuple[Tensor, Tensor, Tensor]]:
    weights = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    words = torch.tensor([[3, 1, 4, 0], [5, 0, 0, 0]])
    scattered = torch.tensor([[0, 2, 3, 1]]), torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    uneven = torch.tensor([[2, 0, 5], [1, 4, 3]]), torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    return [
        (2 * randn(2, 4, 6, seed=6), words, weights),
        (2 * randn(1, 4, 6, seed=7), words[:1], weights[:1]),
        (2 * randn(1, 4, 6, seed=8), *scattered),
        (100 * randn(2, 3, 6, seed=9), *uneven),  # probabilities of 0 in float32
    ]


@exercise(
    cases=_logits_words_and_weights,
    hints=[
        "Change the logits where the weight is 0: does the loss change, and should it?",
        "Print the shapes: what comes out when (n,) is multiplied by (n, 1)?",
    ],
    differentiable=("logits",),
)
def weighted_loss(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="none")
    losses = losses * weights.flatten()
    return losses.sum() / weights.sum()


@weighted_loss.given
def _(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="none")
    losses = losses * weights.reshape(-1, 1)
    return losses.sum() / weights.sum()


weighted_loss.mistakes(
    {
        "the weights are the wrong way around: 1 means that a position counts": (
            lambda logits, words, weights: weighted_loss.reference(logits, words, 1 - weights)
        ),
        (
            "the logits are multiplied by the weights: then a position that should not count has logits of 0, "
            "and counts"
        ): (lambda logits, words, weights: losses(logits * weights[..., None], words).mean()),
        "the mask works now, but fillers are in the mean: divide by the sum of the weights": (
            lambda logits, words, weights: (losses(logits, words) * weights).mean()
        ),
        "the mask works now; without the division a batch with more hidden words has a larger loss": (
            lambda logits, words, weights: (losses(logits, words) * weights).sum()
        ),
        "a mean over all places: fillers count like hidden words, and the weights are not used": (
            lambda logits, words, weights: losses(logits, words).mean()
        ),
        "the product is still (n, n), and its mean hides it: every loss meets every weight": (
            lambda logits, words, weights: (losses(logits, words).flatten() * weights.reshape(-1, 1)).mean()
        ),
        "the product is still (n, n): a sum over one of its axes only makes all losses count the same": (
            lambda logits, words, weights: (losses(logits, words).flatten() * weights.reshape(-1, 1)).sum(dim=0).mean()
        ),
        "word 0 is left out here, but it is a word like any other: the weights say what counts": (
            lambda logits, words, weights: F.cross_entropy(logits.mT, words, ignore_index=0)
        ),
        "the weights are transposed: `words.flatten()` goes text by text, and so must the weights": (
            lambda logits, words, weights: (losses(logits, words).flatten() * weights.T.flatten()).sum() / weights.sum()
        ),
        "a probability can be 0 in float32, and its logarithm is −∞: use log_softmax or cross_entropy": (
            lambda logits, words, weights: F.nll_loss(logits.softmax(dim=-1).log().mT, words, reduction="none")[
                weights > 0
            ].mean()
        ),
        "the weights are the wrong way round: 1 stands where a word was hidden": (
            lambda logits, words, weights: (losses(logits, words) * (1 - weights)).sum() / weights.sum()
        ),
        "the mask works, but each text has its own mean: all hidden words of the batch count the same": (
            lambda logits, words, weights: ((losses(logits, words) * weights).sum(dim=1) / weights.sum(dim=1)).mean()
        ),
        "divided by the number of texts: divide by the number of positions that count, the sum of the weights": (
            lambda logits, words, weights: (losses(logits, words) * weights).sum() / len(weights)
        ),
        "the weights multiply the logits: where all are 0, a loss is still ln(vocab); multiply the losses": (
            lambda logits, words, weights: losses(logits * weights[..., None], words).sum() / weights.sum()
        ),
    }
)
