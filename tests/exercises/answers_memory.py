"""Answers to the exercises of lesson 18: wrong ones and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.memory import exercises as ex


def hop_by_matmul(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    scores = (addresses @ query[:, :, None]).squeeze(-1)
    weights = torch.where(filled, scores, torch.tensor(-math.inf)).softmax(dim=1)
    return (weights[:, None] @ contents).squeeze(1), weights


def hop_row_by_row(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    mixtures, rows = [], []
    for u, m, c, real in zip(query, addresses, contents, filled, strict=True):
        weights = torch.zeros(len(m)).masked_scatter(real, torch.softmax(m[real] @ u, dim=0))
        mixtures.append(weights @ c)
        rows.append(weights)
    return torch.stack(mixtures), torch.stack(rows)


def hop_with_a_sigmoid(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.sigmoid((addresses * query[:, None]).sum(dim=-1)) * filled
    return (weights[:, :, None] * contents).sum(dim=1), weights


def hop_of_weights_alone(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    mixture, weights = ex.hop.reference(query, addresses, contents, filled)
    return weights, mixture


def hop_that_blocks_what_is_filled(
    query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor
) -> tuple[Tensor, Tensor]:
    scores = (addresses @ query[:, :, None])[..., 0].masked_fill(filled, -math.inf)
    weights = scores.softmax(dim=-1)
    return (weights[:, None] @ contents)[:, 0], weights


def bag_by_loops(vectors: Tensor) -> Tensor:
    words, width = vectors.shape[-2:]
    total = torch.zeros(*vectors.shape[:-2], width)
    for j in range(1, words + 1):
        factors = torch.tensor([(1 - j / words) - (k / width) * (1 - 2 * j / words) for k in range(1, width + 1)])
        total = total + factors * vectors[..., j - 1, :]
    return total


def bag_from_zero(vectors: Tensor) -> Tensor:
    words, width = vectors.shape[-2:]
    j, k = torch.arange(words)[:, None] / words, torch.arange(1, width + 1) / width
    return torch.einsum("...jk,jk->...k", vectors, (1 - j) - k * (1 - 2 * j))


def plain_sum(vectors: Tensor) -> Tensor:
    return torch.einsum("...jk->...k", vectors)


def reread_by_index(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for number in range(len(memory) - 1):
        query = query + hop_by_matmul(query, memory[number], memory[number + 1], filled)[0]
    return query


def reread_without_memory_of_the_question(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for number in range(len(memory) - 1):
        query = hop_by_matmul(query, memory[number], memory[number + 1], filled)[0]
    return query


def ages_by_a_sum_from_the_back(filled: Tensor) -> Tensor:
    return (filled.long().flip(1).cumsum(1).flip(1) - 1).clamp(min=0)


def ages_of_the_longest(filled: Tensor) -> Tensor:
    longest = int(filled.sum(dim=1).max())
    return torch.arange(longest - 1, longest - 1 - filled.shape[1], -1).clamp(min=0).repeat(len(filled), 1)


def stand_ins_from_sets(story: list[list[str]], kinds: dict[str, str]) -> list[list[str]]:
    order = [*dict.fromkeys(word for sentence in story for word in sentence if word in kinds)]
    ranks = {word: sum(kinds[other] == kinds[word] for other in order[: order.index(word)]) for word in order}
    return [[f"{kinds[word]}{ranks[word]}" if word in kinds else word for word in line] for line in story]


def stand_ins_of_each_sentence(story: list[list[str]], kinds: dict[str, str]) -> list[list[str]]:
    return [stand_ins_from_sets([sentence], kinds)[0] for sentence in story]


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.hop, hop_with_a_sigmoid, "case 1 of 3"),
    (ex.hop, hop_of_weights_alone, "case 1 of 3"),
    (ex.hop, hop_that_blocks_what_is_filled, "the wrong way round"),
    (ex.bag, bag_from_zero, "j counts from 1 to J"),
    (ex.bag, plain_sum, "this is the plain sum"),
    (ex.reread, reread_without_memory_of_the_question, "the question is lost"),
    (ex.stand_ins, stand_ins_of_each_sentence, "the numbers start anew"),
    (ex.ages, ages_of_the_longest, "the length of the longest"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.hop, hop_by_matmul),
    (ex.hop, hop_row_by_row),
    (ex.bag, bag_by_loops),
    (ex.reread, reread_by_index),
    (ex.stand_ins, stand_ins_from_sets),
    (ex.ages, ages_by_a_sum_from_the_back),
]
