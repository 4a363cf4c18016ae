"""Lesson 16's exercises: wrong answers and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.inference import exercises as ex
from tfbook.lessons.inference.exercises import (
    accept,
    best_k,
    blocks_needed,
    integers,
    pool_heads,
    residual,
    schedule,
    token_bytes,
)

Waiting = list[tuple[int, int]]
Chosen = tuple[list[int], list[int]]

# ---- wrong -------------------------------------------------------------------------------------------------------


def bytes_of_a_step(
    parameters: int, layers: int, kv_heads: int, d_head: int, context: int, batch: int, width: int
) -> int:
    return width * (parameters + batch * context * layers * 2 * kv_heads * d_head)


def bytes_without_values(
    parameters: int, layers: int, kv_heads: int, d_head: int, context: int, batch: int, width: int
) -> float:
    return width * (parameters / batch + context * layers * kv_heads * d_head)


def schedule_whoever_fits(waiting: Waiting, running: list[int], seats: int, blocks: int) -> Chosen:
    prefill = []
    for number, needs in waiting:
        if needs <= blocks and len(prefill) < seats:
            prefill.append(number)
            blocks -= needs
    return prefill, [*running]


def schedule_without_blocks(waiting: Waiting, running: list[int], seats: int, blocks: int) -> Chosen:
    return [number for number, _ in waiting[:seats]], running[:]


def schedule_when_empty(waiting: Waiting, running: list[int], seats: int, blocks: int) -> Chosen:
    return ([], running) if running else schedule.reference(waiting, running, seats, blocks)


def schedule_one_too_many(waiting: Waiting, running: list[int], seats: int, blocks: int) -> Chosen:
    prefill = []
    for number, needs in waiting:
        if len(prefill) > seats or needs > blocks:
            break
        prefill.append(number)
        blocks -= needs
    return prefill, running[:]


def pool_far_heads(W: Tensor, heads: int, groups: int) -> Tensor:
    parts = W.chunk(heads)
    return torch.cat([torch.stack(parts[group::groups]).mean(dim=0) for group in range(groups)])


def integers_that_fill_8_bits(W: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    scale = W.abs().amax(dim=1, keepdim=True) / 127
    return (W / scale).round().to(torch.int8), scale


def integers_by_truncation(W: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    scale = W.abs().max(dim=1, keepdim=True).values / (2 ** (bits - 1) - 1)
    return (W / scale).to(torch.int8), scale


def accept_the_likelier(p: Tensor, q: Tensor, token: int, u: float) -> bool:
    return bool(p[token] >= q[token])


def accept_by_p(p: Tensor, q: Tensor, token: int, u: float) -> bool:
    return float(p[token]) > u


def residual_of_p(p: Tensor, q: Tensor) -> Tensor:
    return p / p.sum()


def residual_by_distance(p: Tensor, q: Tensor) -> Tensor:
    distance = torch.abs(p - q)
    return distance / distance.sum()


def best_of_accepted(alpha: float, cost: float, extra: float) -> int:
    return max(range(17), key=lambda k: sum(alpha**i for i in range(1, k + 1)) / (1 + k * (cost + extra)))


def best_from_one(alpha: float, cost: float, extra: float) -> int:
    return max(range(1, 17), key=lambda k: sum(alpha**i for i in range(k + 1)) / (1 + k * (cost + extra)))


def blocks_by_content(prompts: list[list[int]], size: int) -> int:
    full = {tuple(prompt[at : at + size]) for prompt in prompts for at in range(0, len(prompt) - size + 1, size)}
    return len(full) + sum(bool(len(prompt) % size) for prompt in prompts)


def blocks_of_each(prompts: list[list[int]], size: int) -> int:
    return sum(-(-len(prompt) // size) for prompt in prompts)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        ex.best_k,
        lambda alpha, cost, extra: max(range(17), key=lambda k: (1 + k * alpha**k) / (1 + k * cost + k * extra)),
        "those before the first rejection count, too",
    ),
    (ex.accept, lambda p, q, token, u: (p[token] - q[token]).item() > u, "compared with a difference"),
    (token_bytes, bytes_of_a_step, "these are the bytes of a step"),
    (token_bytes, bytes_without_values, "a key and a value"),
    (schedule, schedule_whoever_fits, "overtakes"),
    (schedule, schedule_without_blocks, "blocks for"),
    (schedule, schedule_when_empty, "static batching"),
    (schedule, schedule_one_too_many, "free seats"),
    (pool_heads, pool_far_heads, "neighbors"),
    (integers, integers_that_fill_8_bits, "case 4 of 6"),
    (integers, integers_by_truncation, "fraction is cut off"),
    (accept, accept_the_likelier, "no chance is left"),
    (accept, accept_by_p, "divide by it"),
    (residual, residual_of_p, "this is p again"),
    (residual, residual_by_distance, "counts what the draft proposes too often"),
    (best_k, best_of_accepted, "one token more than it accepts"),
    (best_k, best_from_one, "propose nothing"),
    (blocks_needed, blocks_by_content, "different beginnings"),
    (blocks_needed, blocks_of_each, "nothing is shared"),
]

# ---- right -------------------------------------------------------------------------------------------------------


def bytes_in_two_parts(
    parameters: int, layers: int, kv_heads: int, d_head: int, context: int, batch: int, width: int
) -> float:
    cache = 2 * kv_heads * d_head * layers * width * context
    return (parameters * width + batch * cache) / batch


def schedule_by_counting(waiting: Waiting, running: list[int], seats: int, blocks: int) -> Chosen:
    count, used = 0, 0
    while count < min(seats, len(waiting)) and used + waiting[count][1] <= blocks:
        used += waiting[count][1]
        count += 1
    return [number for number, _ in waiting[:count]], running


def pool_head_by_head(W: Tensor, heads: int, groups: int) -> Tensor:
    parts, each = W.chunk(heads), heads // groups
    return torch.cat([sum(parts[at : at + each], torch.zeros(())) / each for at in range(0, heads, each)])


def integers_row_by_row(W: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    scale = torch.stack([row.abs().max() for row in W])[:, None] / {8: 127, 4: 7}[bits]
    return torch.round(W / scale).char(), scale


def accept_as_a_tensor(p: Tensor, q: Tensor, token: int, u: float) -> Tensor:
    return u < p[token] / q[token]


def accept_in_two_cases(p: Tensor, q: Tensor, token: int, u: float) -> bool:
    return bool(p[token] >= q[token] or u * q[token] < p[token])


def residual_by_minimum(p: Tensor, q: Tensor) -> Tensor:
    shared = torch.minimum(p, q)
    return (p - shared) / (1 - shared.sum())


def best_by_formula(alpha: float, cost: float, extra: float) -> int:
    speeds = [(1 - alpha ** (k + 1)) / (1 - alpha) / (k * cost + 1 + k * extra) for k in range(17)]
    return speeds.index(max(speeds))


def blocks_by_a_tree(prompts: list[list[int]], size: int) -> int:
    tree: dict[tuple[int, ...], Any] = {}
    count = 0
    for prompt in prompts:
        place = tree
        for at in range(0, len(prompt), size):
            block = tuple(prompt[at : at + size])
            if len(block) < size:
                count += 1
            elif block in place:
                place = place[block]
            else:
                count, place[block] = count + 1, {}
                place = place[block]
    return count


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (token_bytes, bytes_in_two_parts),
    (schedule, schedule_by_counting),
    (pool_heads, pool_head_by_head),
    (integers, integers_row_by_row),
    (accept, accept_as_a_tensor),
    (accept, accept_in_two_cases),
    (residual, residual_by_minimum),
    (best_k, best_by_formula),
    (blocks_needed, blocks_by_a_tree),
]
