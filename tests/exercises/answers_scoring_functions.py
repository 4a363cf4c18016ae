"""Answers to the exercises of lesson 02: wrong ones and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.scoring_functions import exercises as ex


def lookup_up_to_temperature_1(scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return values[scores.argmax(dim=-1)]
    return torch.softmax(scores / min(temperature, 1.0), dim=-1) @ values


def lookup_that_is_hard_when_cold(scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    if temperature < 0.005:
        return values[scores.argmax(dim=-1)]
    return torch.softmax(scores / temperature, dim=-1) @ values


def temperature_by_bisection(highest: float) -> Callable[[Tensor, float], Tensor]:
    def temperature_for(gap: Tensor, share: float) -> Tensor:
        low, high = torch.full_like(gap, 1e-6), torch.full_like(gap, highest)
        for _ in range(60):
            middle = (low + high) / 2
            too_cold = torch.sigmoid(gap / middle) > share
            low, high = torch.where(too_cold, middle, low), torch.where(too_cold, high, middle)
        return middle

    return temperature_for


def general_with_a_transposed_matrix(query: Tensor, keys: Tensor, W: Tensor) -> Tensor:
    return torch.einsum("bqd,ed,bke->bqk", query, W, keys)


def general_by_key(query: Tensor, keys: Tensor, W: Tensor) -> Tensor:
    return torch.einsum("bqd,de,bke->bkq", query, W, keys)


def scaled_by_key(query: Tensor, keys: Tensor) -> Tensor:
    return keys @ query.mT / query.shape[-1] ** 0.5


def scaled_weights(query: Tensor, keys: Tensor) -> Tensor:
    return F.softmax(query @ keys.mT / query.shape[-1] ** 0.5, dim=-1)


def cosine_weights(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    return F.softmax(sharpness * F.cosine_similarity(query[:, None], keys, dim=-1), dim=-1)


def lookup_row_by_row(scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return torch.stack([values[int(row.argmax())] for row in scores])
    return torch.stack([((row - row.max()) / temperature).softmax(dim=0) @ values for row in scores])


def temperature_by_logit(gap: Tensor, share: float) -> Tensor:
    return gap / torch.logit(torch.tensor(share, dtype=torch.float64)).to(gap.dtype)


def scaled_by_fourth_roots(query: Tensor, keys: Tensor) -> Tensor:
    root = query.shape[-1] ** -0.25
    return torch.matmul(query * root, (keys * root).transpose(-2, -1))


def lookup_by_the_library(query: Tensor, keys: Tensor, values: Tensor, W: Tensor) -> Tensor:
    return F.scaled_dot_product_attention((query @ W)[:, None], keys, values).squeeze(1)


def lookup_at_temperature_1(scores: Tensor, values: Tensor, temperature: float) -> Tensor:
    weights = torch.softmax(scores, dim=1) if temperature else F.one_hot(scores.argmax(dim=1), scores.shape[1]).float()
    return weights @ values


def cosine_of_short_keys(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    return sharpness * (keys @ F.normalize(query, dim=-1).unsqueeze(-1)).squeeze(-1)


def cosine_by_squares(query: Tensor, keys: Tensor, sharpness: float) -> Tensor:
    lengths = query.square().sum(dim=-1, keepdim=True) * keys.square().sum(dim=-1)
    return sharpness * torch.einsum("bd,bkd->bk", query, keys) / lengths


def general_score_with_a_scale(query: Tensor, keys: Tensor, W: Tensor) -> Tensor:
    return torch.einsum("bqd,de,bke->bqk", query, W, keys) / W.shape[1] ** 0.5


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.soft_lookup, lookup_up_to_temperature_1, "case 5 of 7"),
    (ex.soft_lookup, lookup_that_is_hard_when_cold, "a small temperature is not 0"),
    (ex.temperature_for, temperature_by_bisection(100.0), "the result is 100; expected 1233"),
    (ex.general_score, general_with_a_transposed_matrix, "W is transposed"),
    (ex.general_score, general_by_key, "rows and columns are exchanged"),
    (ex.scaled_dot_score, scaled_by_key, "rows and columns are exchanged"),
    (ex.scaled_dot_score, scaled_weights, "one softmax too far"),
    (ex.cosine_score, cosine_weights, "one softmax too far"),
    (ex.soft_lookup, lookup_at_temperature_1, "the temperature is not used"),
    (ex.cosine_score, cosine_of_short_keys, "the keys' lengths are still in the score"),
    (ex.cosine_score, cosine_by_squares, "a length is the root"),
    (ex.general_score, general_score_with_a_scale, "the general score has no scale"),
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.soft_lookup, lookup_row_by_row),
    (ex.temperature_for, temperature_by_logit),
    (ex.temperature_for, temperature_by_bisection(1e4)),
    (ex.scaled_dot_score, scaled_by_fourth_roots),
    (ex.general_lookup, lookup_by_the_library),
]
