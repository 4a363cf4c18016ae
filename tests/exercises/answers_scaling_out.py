"""Lesson 20's exercises: wrong answers and what they are told, and right ones in other styles."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.scaling_out import exercises as ex

Held = list[list[Tensor]]
Exchange = Callable[[list[Tensor]], list[Tensor]]

# ---- wrong -----------------------------------------------------------------------------------------------------------


def gradient_of_sums(gradients: list[Tensor], counts: list[int]) -> Tensor:
    total = torch.zeros_like(gradients[0])
    for gradient, count in zip(gradients, counts, strict=True):
        total += gradient * count
    return total


def gradient_with_swapped_counts(gradients: list[Tensor], counts: list[int]) -> Tensor:
    total = sum(counts)
    return torch.stack([g * (c / total) for g, c in zip(gradients, reversed(counts), strict=True)]).sum(dim=0)


def gradient_over_the_largest(gradients: list[Tensor], counts: list[int]) -> Tensor:
    return sum((g * c for g, c in zip(gradients, counts, strict=True)), torch.tensor(0.0)) / max(counts)


def ring_in_memory(held: Held, exchange: Exchange) -> Held:
    totals = [sum(row[p] for row in held) for p in range(len(held))]
    return [list(totals) for _ in held]


def ring_half(held: Held, exchange: Exchange) -> Held:
    n, mine = len(held), [list(row) for row in held]
    for s in range(n - 1):
        arrived = exchange([mine[m][(m - s - 1) % n] for m in range(n)])
        for m, piece in enumerate(arrived):
            mine[m][(m - s - 2) % n] = mine[m][(m - s - 2) % n] + piece
    return mine


def ring_in_place(held: Held, exchange: Exchange) -> Held:
    n, mine = len(held), [list(row) for row in held]
    for s in range(n - 1):
        for m, piece in enumerate(exchange([mine[m][(m - s - 1) % n] for m in range(n)])):
            mine[m][(m - s - 2) % n] += piece
    return mine


def bytes_in_the_other_order(parameters: float, machines: int, stage: int) -> float:
    parts = [2.0, 2.0, 12.0]
    for number in range(stage):
        parts[number] /= machines
    return parameters * sum(parts)


def parts_with_many_biases(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, machines: int
) -> Tensor:
    hidden = torch.relu(x @ up.T + up_bias).chunk(machines, dim=1)
    return torch.stack([h @ w.T + down_bias for h, w in zip(hidden, down.chunk(machines, dim=1), strict=True)])


def schedule_forward_first(stages: int, microbatches: int) -> list[list[tuple[str, int]]]:
    return [[(kind, k) for kind in "FB" for k in range(microbatches)] for _ in range(stages)]


def schedule_of_gpipe(stages: int, microbatches: int) -> list[list[tuple[str, int]]]:
    whole = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)[::-1]]
    return [list(whole) for _ in range(stages)]


def order_receiving(machine: int, machines: int) -> list[tuple[str, int]]:
    return [("receive", (machine + machines - 1) % machines), ("send", (machine + 1) % machines)]


def time_with_the_bubble_as_a_share(
    tokens: float, needed: float, microbatches: int, stages: int, tensor: float, zero: int
) -> float:
    exposed = max(needed - tokens, 0) / tokens
    two = 2 / 3 * max(needed / tokens / 2 - 1, 0) + exposed / (3 * microbatches)
    waits = exposed if zero == 3 else two if zero == 2 else exposed * 2 / (3 * microbatches)
    return 1 + waits + tensor + (stages - 1) / (stages - 1 + microbatches)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.batch_gradient, gradient_of_sums, "division by the number of all tokens"),
    (ex.batch_gradient, gradient_with_swapped_counts, "another machine's count"),
    (ex.batch_gradient, gradient_over_the_largest, "divided by the largest count"),
    (ex.ring_all_reduce, ring_in_memory, "nothing went over the wire"),
    (ex.ring_all_reduce, ring_half, "this is the first half"),
    (ex.ring_all_reduce, ring_in_place, "`a = a + b`, which makes a new one"),
    (ex.bytes_per_machine, bytes_in_the_other_order, "stage 1 shards the optimizer"),
    (ex.parts_of_feed_forward, parts_with_many_biases, "added on every machine"),
    (ex.one_forward_one_backward, schedule_of_gpipe, "this is GPipe"),
    (ex.one_forward_one_backward, schedule_forward_first, "as in GPipe"),
    (ex.ring_order, order_receiving, "everyone receives first"),
    (ex.step_time, time_with_the_bubble_as_a_share, "share of the *whole* time"),
]

# ---- right -----------------------------------------------------------------------------------------------------------


def gradient_by_stacking(gradients: list[Tensor], counts: list[int]) -> Tensor:
    weights = torch.tensor(counts, dtype=torch.float32) / sum(counts)
    return torch.einsum("m,m...->...", weights, torch.stack(gradients))


def ring_by_roles(held: Held, exchange: Exchange) -> Held:
    n, mine = len(held), [list(row) for row in held]
    for step in range(2 * (n - 1)):
        adds = step < n - 1
        arrived = exchange([mine[m][(m - 1 - step if adds else m - step + n - 1) % n] for m in range(n)])
        for m in range(n):
            piece = (m - 2 - step if adds else m - step + n - 2) % n
            mine[m][piece] = mine[m][piece] + arrived[m] if adds else arrived[m]
    return mine


def bytes_by_table(parameters: float, machines: int, stage: int) -> float:
    divided = (0, 12, 14, 16)[stage]
    return parameters * (16 - divided + divided / machines)


def parts_by_slices(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, machines: int) -> Tensor:
    hidden, size = torch.relu(x @ up.T + up_bias), len(up) // machines
    parts = [hidden[:, m * size : (m + 1) * size] @ down[:, m * size : (m + 1) * size].T for m in range(machines)]
    return torch.stack([parts[0] + down_bias, *parts[1:]])


def schedule_in_phases(stages: int, microbatches: int) -> list[list[tuple[str, int]]]:
    found = []
    for s in range(stages):
        warm = min(stages - 1 - s, microbatches)
        steady = [each for k in range(microbatches - warm) for each in (("F", warm + k), ("B", k))]
        cool = [("B", k) for k in range(microbatches - warm, microbatches)]
        found.append([("F", k) for k in range(warm)] + steady + cool)
    return found


def order_by_swapping(machine: int, machines: int) -> list[tuple[str, int]]:
    both = [("send", (machine + 1) % machines), ("receive", (machine - 1) % machines)]
    return both[::-1] if machine & 1 else both


def time_by_parts(tokens: float, needed: float, microbatches: int, stages: int, tensor: float, zero: int) -> float:
    part = 1 / microbatches
    forward, backward = tokens / 3 * part, 2 * tokens / 3 * part
    rest = max(needed - tokens, 0) / tokens
    scatters = max(needed - 2 * tokens, 0) / (2 * tokens) * microbatches * backward
    late = [rest * backward, rest * backward, scatters + rest * forward, rest * microbatches * (forward + backward)][
        zero
    ]
    return 1 + late / tokens + part * (stages - 1) + tensor


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.batch_gradient, gradient_by_stacking),
    (ex.ring_all_reduce, ring_by_roles),
    (ex.bytes_per_machine, bytes_by_table),
    (ex.parts_of_feed_forward, parts_by_slices),
    (ex.one_forward_one_backward, schedule_in_phases),
    (ex.ring_order, order_by_swapping),
    (ex.step_time, time_by_parts),
]
