"""Lesson 14's exercises: wrong answers that once passed and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.vision_beyond import exercises as ex
from tfbook.lessons.vision_beyond.exercises import (
    match_cost,
    mix_places,
    near_attention,
    pairs,
    partition,
    shift_mask,
)

# ---- wrong -------------------------------------------------------------------------------------------------------


def windows_unrolled(x: Tensor, window: int, shift: int) -> Tensor:
    return rearrange(x, "b (r p) (c q) d -> b (r c) (p q) d", p=window, q=window)


def windows_forward(x: Tensor, window: int, shift: int) -> Tensor:
    x = torch.roll(x, shifts=(shift, shift), dims=(1, 2))
    return rearrange(x, "b (r p) (c q) d -> b (r c) (p q) d", p=window, q=window)


def windows_by_view(x: Tensor, window: int, shift: int) -> Tensor:
    x = torch.roll(x, shifts=(-shift, -shift), dims=(1, 2))
    return x.reshape(x.shape[0], -1, window**2, x.shape[3])


def mask_of_all(rows: int, columns: int, window: int, shift: int) -> Tensor:
    count = rows * columns // window**2
    return torch.ones(count, window**2, window**2, dtype=torch.bool)


def mask_of_two_bands(rows: int, columns: int, window: int, shift: int) -> Tensor:
    """Only the rows' border is looked at."""
    row = torch.arange(rows)[:, None].expand(rows, columns)
    number = ((row + window - shift) // window).roll((-shift, -shift), (0, 1))
    cut = rearrange(number, "(r p) (c q) -> (r c) (p q)", p=window, q=window)
    return cut[:, :, None] == cut[:, None]


def mask_inverted(rows: int, columns: int, window: int, shift: int) -> Tensor:
    return ~mask_by_loops(rows, columns, window, shift)


def mixed_with_residual(x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    return x + F.linear(F.gelu(F.linear(x.mT, W1, b1)), W2, b2).mT


def mixed_by_relu(x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    return F.linear(F.linear(x.mT, W1, b1).clamp(min=0), W2, b2).mT


def cost_with_logs(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, giou: Tensor) -> Tensor:
    return 5 * torch.cdist(boxes, targets, p=1) - 2 * giou - logits.log_softmax(-1)[:, labels]


def cost_without_nothing(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, giou: Tensor) -> Tensor:
    return 5 * torch.cdist(boxes, targets, p=1) - 2 * giou - logits[:, :-1].softmax(-1)[:, labels]


def cost_of_euclid(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, giou: Tensor) -> Tensor:
    return 5 * torch.cdist(boxes, targets) - 2 * giou - logits.softmax(-1)[:, labels]


def near_with_edges_repeated(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    rows, columns = (torch.arange(-reach, side + reach).clamp(0, side - 1) for side in q.shape[:2])
    k, v = (x[rows][:, columns].unfold(0, 2 * reach + 1, 1).unfold(1, 2 * reach + 1, 1).flatten(3) for x in (k, v))
    weights = ((q[..., None] * k).sum(dim=2) / q.shape[2] ** 0.5).softmax(dim=-1)
    return (weights[:, :, None] * v).sum(dim=-1)


def near_without_scores_of_zero(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    width = 2 * reach + 1
    k, v = (F.pad(x, (0, 0, *(reach,) * 4)).unfold(0, width, 1).unfold(1, width, 1).flatten(3) for x in (k, v))
    scores = (q[..., None] * k).sum(dim=2) / q.shape[2] ** 0.5
    weights = scores.masked_fill(scores == 0, -math.inf).softmax(dim=-1).nan_to_num()
    return (weights[:, :, None] * v).sum(dim=-1)


def near_with_low_keys(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    width, around = 2 * reach + 1, (0, 0, *(reach,) * 4)
    k, v = (
        F.pad(x, around, value=fill).unfold(0, width, 1).unfold(1, width, 1).flatten(3)
        for x, fill in ((k, -1e9), (v, 0.0))
    )
    weights = ((q[..., None] * k).sum(dim=2) / q.shape[2] ** 0.5).softmax(dim=-1)
    return (weights[:, :, None] * v).sum(dim=-1)


def pairs_of_whole_windows(rows: int, columns: int, window: int) -> int:
    return (rows // window) * (columns // window) * window**4


def pairs_of_everything(rows: int, columns: int, window: int) -> int:
    return rows * columns * rows * columns


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.shift_mask, lambda *sizes: -100.0 * ~ex.shift_mask.reference(*sizes), "return the Boolean mask itself"),
    (
        ex.mix_places,
        lambda x, W1, b1, W2, b2: F.gelu(F.linear(F.linear(x.mT, W1, b1), W2, b2)).mT,
        "it belongs between them",
    ),
    (partition, windows_unrolled, "nothing is shifted"),
    (partition, windows_forward, "rolled forward"),
    (partition, windows_by_view, "without the permutation"),
    (shift_mask, mask_of_all, "everything is allowed"),
    (shift_mask, mask_of_two_bands, "only the rows are compared"),
    (shift_mask, mask_inverted, "these are the pairs that may not"),
    (mix_places, mixed_with_residual, "the block adds x itself"),
    (mix_places, mixed_by_relu, "this is ReLU"),
    (match_cost, cost_with_logs, "log probabilities"),
    (match_cost, cost_without_nothing, "leaves out"),
    (match_cost, cost_of_euclid, "Euclidean"),
    (near_attention, near_with_edges_repeated, "the edge is repeated"),
    (near_attention, near_without_scores_of_zero, "mark who is there"),
    (near_attention, near_with_low_keys, "not its keys"),
    (pairs, pairs_of_whole_windows, "are lost"),
    (pairs, pairs_of_everything, "dense attention"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def windows_by_loops(x: Tensor, window: int, shift: int) -> Tensor:
    rows, columns = x.shape[1:3]
    cut = []
    for top in range(0, rows, window):
        for left in range(0, columns, window):
            row = (torch.arange(top, top + window) + shift) % rows
            column = (torch.arange(left, left + window) + shift) % columns
            cut.append(x[:, row][:, :, column].flatten(1, 2))
    return torch.stack(cut, dim=1)


def mask_by_loops(rows: int, columns: int, window: int, shift: int) -> Tensor:
    """Two places may meet when no border of a shifted window is between them."""
    masks = []
    for top in range(0, rows, window):
        for left in range(0, columns, window):
            places = [
                ((top + i + shift) % rows, (left + j + shift) % columns) for i in range(window) for j in range(window)
            ]
            keys = [((row - shift) // window, (column - shift) // window) for row, column in places]
            masks.append([[one == other for other in keys] for one in keys])
    return torch.tensor(masks)


def mixed_by_einsum(x: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    hidden = F.gelu(torch.einsum("bpd,hp->bhd", x, W1) + b1[:, None])
    return torch.einsum("bhd,ph->bpd", hidden, W2) + b2[:, None]


def cost_pair_by_pair(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, giou: Tensor) -> Tensor:
    cost = torch.zeros(len(boxes), len(targets))
    for query, scores in enumerate(logits):
        for number, label in enumerate(labels.tolist()):
            distance = (boxes[query] - targets[number]).abs().sum()
            cost[query, number] = 5 * distance - 2 * giou[query, number] - torch.softmax(scores, dim=0)[label]
    return cost


def near_scores(q: Tensor, k: Tensor, v: Tensor, reach: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Scores (row, column, near), whether a neighbor is there, and the neighbors' values."""
    rows, columns, d = q.shape
    scores, there, values = [], [], []
    for down in range(-reach, reach + 1):
        for across in range(-reach, reach + 1):
            row, column = torch.arange(rows) + down, torch.arange(columns) + across
            inside = ((row >= 0) & (row < rows))[:, None] & ((column >= 0) & (column < columns))
            row, column = row.clamp(0, rows - 1), column.clamp(0, columns - 1)
            key, value = (x[row][:, column] * inside[..., None] for x in (k, v))
            scores.append((q * key).sum(dim=-1) / d**0.5)
            there.append(inside)
            values.append(value)
    return (torch.stack(scores, dim=-1), torch.stack(there, dim=-1)), torch.stack(values, dim=2)


def near_by_offsets(q: Tensor, k: Tensor, v: Tensor, reach: int) -> Tensor:
    (scores, there), values = near_scores(q, k, v, reach)
    weights = scores.masked_fill(there.logical_not(), -math.inf).softmax(dim=-1)
    return (weights[..., None] * values).sum(dim=2)


def pairs_by_counting(rows: int, columns: int, window: int) -> int:
    total = 0
    for _ in range(0, rows, window):
        for _ in range(0, columns, window):
            total += (window * window) ** 2
    return total


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (partition, windows_by_loops),
    (shift_mask, mask_by_loops),
    (mix_places, mixed_by_einsum),
    (match_cost, cost_pair_by_pair),
    (near_attention, near_by_offsets),
    (pairs, pairs_by_counting),
]
