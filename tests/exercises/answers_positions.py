"""A stranger's answers to lesson 04: the wrong ones are refused, the right ones in other styles accepted."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.positions import exercises as positions

# ---- wrong -------------------------------------------------------------------------------------------------------


def angles(count: int, width: int) -> Tensor:
    return torch.outer(torch.arange(float(count)), 10_000 ** (-torch.arange(0, width, 2) / width))


def waves_from_a_table(places: Tensor, d_model: int) -> Tensor:
    a = angles(5000, d_model)
    return torch.stack([a.sin(), a.cos()], dim=-1).flatten(1)[places.long()]


def rotary_from_a_table(x: Tensor, places: Tensor) -> Tensor:
    a = angles(5000, x.shape[-1])[places.long()].repeat_interleave(2, dim=-1)
    partners = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * a.cos() + partners * a.sin()


def predictions(states: Tensor, places: Tensor, new_states: Tensor) -> Tensor:
    weights = torch.linalg.pinv(F.pad(states, (0, 1), value=1.0)) @ places
    return F.pad(new_states, (0, 1), value=1.0) @ weights


def probe_clamped(states: Tensor, places: Tensor, new_states: Tensor, new_places: Tensor) -> float:
    errors = (new_places - predictions(states, places, new_states)).square().mean()
    return float((1 - errors / new_places.var(correction=0)).clamp(min=0))


def cache_without_a_mask(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Callable[..., Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    start = past_k.shape[2]
    k, v = torch.cat([past_k, turn(k, start)], dim=2), torch.cat([past_v, v], dim=2)
    return F.scaled_dot_product_attention(turn(q, start), k, v), k, v


def waves_by_whole_division(positions: Tensor, d_model: int) -> Tensor:
    angles = positions[:, None] / 10_000 ** (torch.arange(0, d_model, 2) // d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def waves_from_the_first_position(positions: Tensor, d_model: int) -> Tensor:
    angles = torch.outer(positions - positions[0], 10_000 ** (-torch.arange(0, d_model, 2) / d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        positions.relative_bias,
        lambda q, table: positions.relative_bias.reference(q, table.flip(0)) * q.shape[-1] ** 0.5,
        "two slips: the table is read backwards",
    ),
    (positions.waves, waves_from_a_table, "index 40000 is out of bounds"),
    (positions.rotary, rotary_from_a_table, "index 40000 is out of bounds"),
    (positions.linear_probe, probe_clamped, "leave it negative"),
    (positions.attend_with_past, cache_without_a_mask, "the mask is gone"),
    (positions.waves, waves_by_whole_division, "`//` rounds"),
    (positions.waves, waves_from_the_first_position, "you subtracted the first position"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def waves_in_double_precision(places: Tensor, d_model: int) -> Tensor:
    speeds = torch.pow(10_000.0, -torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    a = torch.einsum("n,i->ni", places.double(), speeds)
    return torch.stack((a.sin(), a.cos()), dim=2).reshape(len(places), d_model)


def waves_as_complex_numbers(places: Tensor, d_model: int) -> Tensor:
    a = places[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.view_as_real(torch.polar(torch.ones_like(a), a)).flip(-1).flatten(1)


def rotary_as_complex_numbers(x: Tensor, places: Tensor) -> Tensor:
    a = torch.outer(places, 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1]))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(a), a)).flatten(-2)


def bias_gathered_from_all_products(q: Tensor, table: Tensor) -> Tensor:
    reach, places = len(table) // 2, torch.arange(q.shape[2])
    rows = (places - places[:, None]).clamp(-reach, reach) + reach
    return (q @ table.T / q.shape[-1] ** 0.5).gather(-1, rows.expand(*q.shape[:2], -1, -1))


def alibi_number_by_number(scores: Tensor) -> Tensor:
    _, heads, queries, keys = scores.shape
    return torch.tensor(
        [
            [[-(2 ** (-8 * h / heads)) * abs(keys - queries + i - j) for j in range(keys)] for i in range(queries)]
            for h in range(1, heads + 1)
        ]
    )


def rows_by_a_permutation_matrix(W: Tensor, heads: int) -> Tensor:
    width = len(W) // heads
    order = [*range(0, width, 2), *range(1, width, 2)]
    return torch.block_diag(*[torch.eye(width)[order]] * heads) @ W


def probe_centered_in_double_precision(
    states: Tensor, places: Tensor, new_states: Tensor, new_places: Tensor
) -> Tensor:
    x, y, new_x, new_y = (each.double() for each in (states, places, new_states, new_places))
    weights = torch.linalg.lstsq(x - x.mean(dim=0), (y - y.mean())[:, None]).solution[:, 0]
    errors = new_y - (new_x - x.mean(dim=0)) @ weights - y.mean()
    return 1 - errors.square().sum() / (new_y - new_y.mean()).square().sum()


def probe_by_pseudoinverse(states: Tensor, places: Tensor, new_states: Tensor, new_places: Tensor) -> Tensor:
    errors = (new_places - predictions(states, places, new_states)).square().mean()
    return 1 - errors / new_places.var(correction=0)


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (positions.waves, waves_in_double_precision),
    (positions.waves, waves_as_complex_numbers),
    (positions.rotary, rotary_as_complex_numbers),
    (positions.relative_bias, bias_gathered_from_all_products),
    (positions.alibi_bias, alibi_number_by_number),
    (positions.pair_up, rows_by_a_permutation_matrix),
    (positions.linear_probe, probe_centered_in_double_precision),
    (positions.linear_probe, probe_by_pseudoinverse),
]
