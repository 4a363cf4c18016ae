"""Lesson 15's exercises: wrong answers that once passed and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.efficient_attention import exercises as ex
from tfbook.lessons.efficient_attention.exercises import (
    band_scores,
    block_mask,
    causal_linear,
    merge,
    operations,
    positive_features,
    tile_step,
)

State = tuple[Tensor, Tensor, Tensor]

# ---- wrong -------------------------------------------------------------------------------------------------------


def band_without_zeros(q: Tensor, k: Tensor, reach: int) -> Tensor:
    near = F.pad(k, (0, 0, reach, reach)).unfold(0, 2 * reach + 1, 1)
    scores = torch.einsum("nd,ndw->nw", q, near) / math.sqrt(q.shape[1])
    return torch.where(scores == 0, -torch.inf, scores)


def mask_of_equal_blocks(layout: Tensor, size: int, n: int) -> Tensor:
    block = torch.arange(n) * layout.shape[0] // n
    return torch.tril(layout[block][:, block])


def mask_of_both_ways(layout: Tensor, size: int, n: int) -> Tensor:
    both = torch.logical_or(layout, layout.T)
    return both.repeat_interleave(size, dim=0).repeat_interleave(size, dim=1)[:n, :n].tril()


def operations_in_32_bits(layout: Tensor, size: int, d: int) -> int:
    pairs = layout.to(torch.int32).sum(dtype=torch.int32) * size**2
    return int(pairs * 4 * d)


def operations_in_floats(layout: Tensor, size: int, d: int) -> int:
    return int((layout.float() * (4 * d * size**2)).sum())


def features_of_two_exponentials(x: Tensor, directions: Tensor) -> Tensor:
    x = x / x.shape[1] ** 0.25
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True) ** 2
    return (x @ directions.T).exp() / (lengths / 2).exp() / math.sqrt(len(directions))


def mask_of_all_times(layout: Tensor, size: int, n: int) -> Tensor:
    place = torch.arange(n) // size
    return layout[place][:, place]


def operations_of_lower_blocks(layout: Tensor, size: int, d: int) -> int:
    return sum(4 * d * size**2 for i, row in enumerate(layout.tolist()) for allowed in row[: i + 1] if allowed)


def band_of_later_keys(q: Tensor, k: Tensor, reach: int) -> Tensor:
    columns = []
    for offset in range(1 - reach, reach + 2):
        key = torch.arange(len(q)) + offset
        scores = (q * k[key.clamp(0, len(k) - 1)]).sum(dim=1) / math.sqrt(q.shape[1])
        columns.append(scores.masked_fill((key < 0) | (key >= len(k)), -math.inf))
    return torch.stack(columns, dim=1)


def features_below_a_maximum(x: Tensor, directions: Tensor) -> Tensor:
    x = x / x.shape[1] ** 0.25
    exponents = x @ directions.T - (x**2).sum(1, keepdim=True) / 2
    return (exponents - exponents.max(1, keepdim=True).values).exp() / len(directions) ** 0.5


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.merge, lambda one, other: (one[0] + other[0], one[1], one[2]), "maxima are not sums"),
    (
        ex.causal_linear,
        lambda q, k, v: (q @ k.T).triu() @ v / (q @ k.T).triu().sum(1, keepdim=True),
        "this sums over j ≥ i",
    ),
    (band_scores, band_without_zeros, "a key that exists may have the score 0"),
    (block_mask, mask_of_equal_blocks, "however long the text is"),
    (block_mask, mask_of_both_ways, "may read it back"),
    (operations, operations_in_32_bits, "do not fit into 32 bits"),
    (operations, operations_in_floats, "case 5 of 5"),
    (positive_features, features_of_two_exponentials, "overflows where x is long"),
    (block_mask, mask_of_all_times, "nothing is causal"),
    (operations, operations_of_lower_blocks, "blocks above the diagonal count as well"),
    (band_scores, band_of_later_keys, "one key too late"),
    (positive_features, features_below_a_maximum, "a row's maximum was subtracted"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def step_query_by_query(state: State, Q: Tensor, K: Tensor, V: Tensor, seen: Tensor) -> State:
    rows = []
    for m, total, mixture, query, keys in zip(*state, Q, seen, strict=True):
        if keys.any():
            scores = K[keys] @ query / len(query) ** 0.5
            m, old = torch.maximum(m, scores.max()), m
            weights = (scores - m).exp()
            total, mixture = (old - m).exp() * total + weights.sum(), (old - m).exp() * mixture + weights @ V[keys]
        rows.append((m, total, mixture))
    m, total, mixture = (torch.stack(column) for column in zip(*rows, strict=True))
    return m, total, mixture


def merge_by_stacks(one: State, other: State) -> State:
    highest, total, mixture = (torch.stack(pair) for pair in zip(one, other, strict=True))
    higher = highest.amax(dim=0)
    factors = (highest - higher.clamp(min=-1e30)).exp()
    return higher, (factors * total).sum(dim=0), (factors * mixture).sum(dim=0)


def band_by_gathering(q: Tensor, k: Tensor, reach: int) -> Tensor:
    keys = torch.arange(len(q))[:, None] + torch.arange(-reach, reach + 1)
    scores = (q[:, None] * k[keys.clamp(0, len(k) - 1)]).sum(dim=-1) / math.sqrt(q.shape[1])
    return torch.where((keys >= 0) & (keys < len(k)), scores, -torch.inf)


def mask_by_kron(layout: Tensor, size: int, n: int) -> Tensor:
    return torch.kron(layout.int(), torch.ones(size, size, dtype=torch.int)).tril()[:n, :n].bool()


def mask_by_places(layout: Tensor, size: int, n: int) -> Tensor:
    i = torch.arange(n)
    return layout[i[:, None] // size, i // size] & (i <= i[:, None])


def linear_by_recurrence(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    S, z, outputs = torch.zeros(k.shape[1], v.shape[1]), torch.zeros(k.shape[1]), []
    for query, key, value in zip(q, k, v, strict=True):
        S, z = S + torch.outer(key, value), z + key
        outputs.append(query @ S / (query @ z))
    return torch.stack(outputs)


def operations_of_a_mask(layout: Tensor, size: int, d: int) -> int:
    computed = layout.repeat_interleave(size, dim=0).repeat_interleave(size, dim=1)
    return computed.count_nonzero().item() * (2 * d + 2 * d)


def features_in_one_exponent(x: Tensor, directions: Tensor) -> Tensor:
    root, (m, d) = math.sqrt(math.sqrt(x.shape[1])), directions.shape
    exponents = torch.einsum("nd,md->nm", x, directions) / root - (x * x).sum(dim=-1, keepdim=True) / (2 * d**0.5)
    return (exponents - math.log(m) / 2).exp()


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (tile_step, step_query_by_query),
    (merge, merge_by_stacks),
    (band_scores, band_by_gathering),
    (block_mask, mask_by_kron),
    (block_mask, mask_by_places),
    (causal_linear, linear_by_recurrence),
    (operations, operations_of_a_mask),
    (positive_features, features_in_one_exponent),
]
