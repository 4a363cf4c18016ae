"""Answers to lesson 08: wrong ones that once passed and what they are told, right ones that look different."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.bert_masking import exercises as bert_masking
from tfbook.lessons.bert_masking.first_exercises import Documents, Pair
from tfbook.text import CLS, IGNORE_INDEX, SEP

# ---- wrong ones --------------------------------------------------------------------------------------------------


def hidden_loss_relative_to_all(dims: tuple[int, ...], logits: Tensor, targets: Tensor) -> Tensor:
    shifted = logits - logits.amax(dims, keepdim=True)
    logp = shifted - shifted.exp().sum(-1, keepdim=True).log()
    asked = targets != IGNORE_INDEX
    if not asked.any():
        return logits.sum() * 0
    return -logp[asked].gather(1, targets[asked].unsqueeze(1)).mean()


def loss_with_transposed_weights(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    losses = F.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="none")
    return (losses * weights.T.flatten()).sum() / weights.sum()


def loss_from_probabilities(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    p = logits.softmax(2).gather(2, words.unsqueeze(2)).squeeze(2)
    return -p[weights == 1].log().sum() / weights.sum()


def pair_with(others: list[list[int]], first: list[int], following: list[int] | None, pick: float) -> Pair:
    second = others[int(pick * len(others))] if following is None else following
    ids = [CLS, *first, SEP, *second, SEP]
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    return ids, segments, int(following is None)


def pair_of_texts_that_differ(documents: Documents, document: int, sentence: int, follows: bool, pick: float) -> Pair:
    own = documents[document]
    others = [each for text in documents if text != own for each in text]
    return pair_with(others, own[sentence], own[sentence + 1] if follows else None, pick)


def pair_of_new_sentences(documents: Documents, document: int, sentence: int, follows: bool, pick: float) -> Pair:
    own = documents[document]
    others = [each for text in documents for each in text if each not in own]
    return pair_with(others, own[sentence], own[sentence + 1] if follows else None, pick)


def span_above(least: float, start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    best, span = least, (0, 0)
    for i in range(len(start)):
        for j in range(i, min(len(end), i + longest)):
            if start[i] + end[j] > best:
                best, span = float(start[i] + end[j]), (i, j)
    return span


def hide_in_another_word(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    hidden, targets = hide_with_multiplications(ids, vocab, draw, kind, other)
    same = (hidden == ids) & (targets != IGNORE_INDEX) & (kind < 0.9)
    hidden[same] = torch.where(ids[same] + 1 == vocab, 5, ids[same] + 1)
    return hidden, targets


def pair_labeled_by_words(documents: Documents, document: int, sentence: int, follows: bool, pick: float) -> Pair:
    ids, segments, _ = pair_from_slices(documents, document, sentence, follows, pick)
    own, second = documents[document], ids[segments.count(0) : -1]
    return ids, segments, int(sentence + 1 == len(own) or second != own[sentence + 1])


def hide_rounding_up(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    return hide_with_multiplications(ids, vocab, draw, kind, ((other * (vocab - 5)).ceil() - 1).clamp(0) / (vocab - 5))


def span_of_the_best(count: int, start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    starts, ends = (scores.argsort(descending=True)[:count].tolist() for scores in (start, end))
    spans = [(i, j) for i in starts for j in ends if i <= j < i + longest] or [(0, 0)]
    return max(spans, key=lambda span: start[span[0]].item() + end[span[1]].item())


def step_for_several(
    bert: nn.Module, head: nn.Module, ids: Tensor, lengths: Tensor, labels: Tensor, rate: float
) -> Tensor:
    optimizer = torch.optim.SGD([*bert.parameters(), *head.parameters()], lr=rate)
    F.cross_entropy(head(bert(ids, lengths)[:, 0]), labels).backward()
    optimizer.step()
    return head(bert(ids, lengths)[:, 0]).squeeze()


def loss_from_raised_probabilities(least: float, logits: Tensor, targets: Tensor) -> Tensor:
    asked = targets != IGNORE_INDEX
    if not asked.any():
        return logits.sum() * 0
    return -logits.softmax(-1)[asked].gather(1, targets[asked][:, None]).clamp(min=least).log().mean()


def step_on_probabilities(
    bert: nn.Module, head: nn.Module, ids: Tensor, lengths: Tensor, labels: Tensor, rate: float
) -> Tensor:
    both = nn.ModuleList([bert, head])
    optimizer = torch.optim.SGD(both.parameters(), lr=rate)
    F.cross_entropy(F.softmax(head(bert(ids, lengths)[:, 0]), dim=1), labels).backward()
    optimizer.step()
    return head(bert(ids, lengths)[:, 0])


def loss_of_weighted_logits(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    logp = (logits * weights.unsqueeze(2)).log_softmax(2)
    return -logp.gather(2, words.unsqueeze(2)).sum() / weights.sum()


def parameters_with_pooler(
    vocab: int, longest: int, segments: int, d_model: int, heads: int, d_ff: int, layers: int
) -> int:
    block = 4 * (d_model + 1) * d_model + (d_model + 1) * d_ff + (d_ff + 1) * d_model + 4 * d_model
    return (vocab + longest + segments + 2) * d_model + layers * block + (d_model + 1) * d_model


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        bert_masking.weighted_loss,
        lambda logits, words, weights: F.cross_entropy((weights[..., None] * logits).mT, words),
        "the logits are multiplied",
    ),
    (
        bert_masking.weighted_loss,
        lambda logits, words, weights: F.cross_entropy(logits[weights == 0], words[weights == 0]),
        "wrong way around",
    ),
    (bert_masking.hide, hide_in_another_word, "a swapped word may come out as itself"),
    (bert_masking.hide, hide_rounding_up, "the result is 9; expected 10"),
    (bert_masking.best_span, partial(span_of_the_best, 2), "only the two best starts and ends"),
    (bert_masking.fine_tune, step_for_several, "has shape (3,); expected (1, 3)"),
    (bert_masking.sentence_pair, pair_labeled_by_words, "the label is what `follows` says"),
    (bert_masking.hidden_loss, partial(hidden_loss_relative_to_all, (0, 1, 2)), "one maximum for all positions"),
    (bert_masking.hidden_loss, partial(hidden_loss_relative_to_all, (1, 2)), "one maximum for all positions"),
    (bert_masking.weighted_loss, loss_with_transposed_weights, "the weights are transposed"),
    (bert_masking.weighted_loss, loss_from_probabilities, "its logarithm is −∞"),
    (bert_masking.sentence_pair, pair_of_texts_that_differ, "leave out the one of this number"),
    (bert_masking.sentence_pair, pair_of_new_sentences, "leave out a document, not its words"),
    *(
        (bert_masking.best_span, partial(span_above, least), "begin with −∞, or with the first span")
        for least in (-10.0, -100.0, -1000.0)
    ),
    (bert_masking.hidden_loss, partial(loss_from_raised_probabilities, 1e-9), "1e-09 beside a probability of 0"),
    (bert_masking.fine_tune, step_on_probabilities, "applies it itself"),
    (bert_masking.weighted_loss, loss_of_weighted_logits, "multiply the losses"),
    (bert_masking.count_parameters, parameters_with_pooler, "the pooler is counted"),
]


# ---- right ones --------------------------------------------------------------------------------------------------


def hide_with_multiplications(
    ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor
) -> tuple[Tensor, Tensor]:
    chosen = ((draw < 0.15) & ~torch.isin(ids, torch.arange(5))).long()
    to_mask, to_word = chosen * (kind < 0.8), chosen * ((kind >= 0.8) & (kind < 0.9))
    word = 5 + torch.floor(other * (vocab - 5)).long()
    return ids + to_mask * (4 - ids) + to_word * (word - ids), chosen * ids - 100 * (1 - chosen)


def hidden_loss_row_by_row(logits: Tensor, targets: Tensor) -> Tensor:
    total, count = logits.sum() * 0, 0
    for row, target in zip(logits.flatten(0, 1), targets.flatten().tolist(), strict=True):
        if target != IGNORE_INDEX:
            shifted = row - row.max()
            total, count = total + shifted.exp().sum().log() - shifted[target], count + 1
    return total / max(count, 1)


def loss_that_ignores(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), words.masked_fill(weights == 0, IGNORE_INDEX))


def loss_by_einsum(logits: Tensor, words: Tensor, weights: Tensor) -> Tensor:
    one_hot = F.one_hot(words, logits.size(2)).to(logits.dtype)
    return -torch.einsum("btv,btv,bt->", one_hot, logits.log_softmax(2), weights) / weights.sum()


def pair_from_slices(documents: Documents, document: int, sentence: int, follows: bool, pick: float) -> Pair:
    others = list(chain.from_iterable(documents[:document] + documents[document + 1 :]))
    own = documents[document]
    return pair_with(others, own[sentence], own[sentence + 1] if follows else None, pick)


def span_with_a_low_fill(start: Tensor, end: Tensor, longest: int) -> tuple[int, int]:
    allowed = torch.ones(len(start), len(end), dtype=torch.bool).triu().tril(longest - 1)
    sums = (start.unsqueeze(1) + end).masked_fill(~allowed, -1e4)
    i, j = divmod(int(sums.argmax()), len(end))
    return i, j


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (bert_masking.hide, hide_with_multiplications),
    (bert_masking.hidden_loss, hidden_loss_row_by_row),
    (bert_masking.weighted_loss, loss_that_ignores),
    (bert_masking.weighted_loss, loss_by_einsum),
    (bert_masking.sentence_pair, pair_from_slices),
    (bert_masking.best_span, span_with_a_low_fill),
]
