"""Answers to the exercises of lesson 18: wrong ones and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

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


def move_by_padding(weights: Tensor, shift: Tensor) -> Tensor:
    reach = shift.shape[1] // 2
    padded = F.pad(weights, (reach, reach))
    windows = padded.unfold(1, 2 * reach + 1, 1)  # (batch, slot, shift)
    return (windows.flip(-1) * shift[:, None]).sum(-1)


def move_back(weights: Tensor, shift: Tensor) -> Tensor:
    reach = shift.shape[1] // 2
    return sum(shift[:, k, None] * weights.roll(reach - k, dims=1) for k in range(shift.shape[1]))


def move_to_the_likeliest(weights: Tensor, shift: Tensor) -> Tensor:
    reach = shift.shape[1] // 2
    rows = [row.roll(int(s.argmax()) - reach) for row, s in zip(weights, shift, strict=True)]
    return torch.stack(rows)


def focus_with_the_gate_upside_down(
    content: Tensor, previous: Tensor, gate: Tensor, shift: Tensor, sharpness: Tensor
) -> Tensor:
    return ex.focus.reference(content, previous, 1 - gate, shift, sharpness)


def focus_without_a_sum(content: Tensor, previous: Tensor, gate: Tensor, shift: Tensor, sharpness: Tensor) -> Tensor:
    gated = gate * content + (1 - gate) * previous
    return ex.move_head.reference(gated, shift) ** sharpness


def focus_by_softmax(content: Tensor, previous: Tensor, gate: Tensor, shift: Tensor, sharpness: Tensor) -> Tensor:
    gated = gate * content + (1 - gate) * previous
    return torch.softmax(sharpness * ex.move_head.reference(gated, shift), dim=-1)


def write_without_erasing(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    return memory + torch.einsum("bs,bw->bsw", weights, add)


def write_to_all(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    return memory * (1 - torch.einsum("bs,bw->bsw", weights, erase)) + add[:, None]


def move_by_windows(weights: Tensor, shift: Tensor) -> Tensor:
    reach = shift.shape[1] // 2
    around = torch.cat([weights[:, weights.shape[1] - reach :], weights, weights[:, :reach]], dim=1)
    return torch.einsum("bsk,bk->bs", around.unfold(1, 2 * reach + 1, 1).flip(-1), shift)


def move_by_a_matrix(weights: Tensor, shift: Tensor) -> Tensor:
    n, reach = weights.shape[1], shift.shape[1] // 2
    eye = torch.eye(n)
    matrices = torch.stack([eye.roll(k - reach, dims=0) for k in range(shift.shape[1])])  # (shift, to, from)
    return torch.einsum("bk,ktf,bf->bt", shift, matrices, weights)


def focus_by_logarithms(content: Tensor, previous: Tensor, gate: Tensor, shift: Tensor, sharpness: Tensor) -> Tensor:
    gated = torch.lerp(previous, content, gate)
    return torch.softmax(sharpness * move_by_windows(gated, shift).log(), dim=-1)


def write_by_outer_products(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    outer = weights[..., None] @ erase[:, None]
    return memory - memory * outer + weights[..., None] @ add[:, None]


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.hop, hop_with_a_sigmoid, "case 1 of 3"),
    (ex.hop, hop_of_weights_alone, "case 1 of 3"),
    (ex.hop, hop_that_blocks_what_is_filled, "the wrong way round"),
    (ex.bag, bag_from_zero, "j counts from 1 to J"),
    (ex.bag, plain_sum, "this is the plain sum"),
    (ex.reread, reread_without_memory_of_the_question, "the question is lost"),
    (ex.stand_ins, stand_ins_of_each_sentence, "the numbers start anew"),
    (ex.ages, ages_of_the_longest, "the length of the longest"),
    (ex.move_head, move_by_padding, "the tape is a circle"),
    (ex.move_head, move_back, "the head moves the wrong way"),
    (ex.move_head, move_to_the_likeliest, "this takes only the likeliest shift"),
    (ex.focus, focus_with_the_gate_upside_down, "the gate is upside down"),
    (ex.focus, focus_without_a_sum, "the powers are not divided by their sum"),
    (ex.focus, focus_by_softmax, "this is a softmax of γ · w"),
    (ex.write_slots, write_without_erasing, "now nothing is erased"),
    (ex.write_slots, write_to_all, "what is added needs the weight, too"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.hop, hop_by_matmul),
    (ex.hop, hop_row_by_row),
    (ex.bag, bag_by_loops),
    (ex.reread, reread_by_index),
    (ex.stand_ins, stand_ins_from_sets),
    (ex.ages, ages_by_a_sum_from_the_back),
    (ex.move_head, move_by_windows),
    (ex.move_head, move_by_a_matrix),
    (ex.focus, focus_by_logarithms),
    (ex.write_slots, write_by_outer_products),
]
