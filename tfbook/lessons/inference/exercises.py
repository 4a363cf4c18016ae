"""Exercises of lesson 16: the bytes of a token, a scheduler, heads in groups, integers, and prompts that share blocks.

Those on speculative decoding are in rule_exercises.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.inference.rule_exercises import accept as accept, best_k as best_k, residual as residual

# ---- the bytes of a token ----------------------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int, int, int, int]]:
    """parameters, layers, kv_heads, d_head, context, batch, width: GPT-2 small, Llama 2 7B, 70B, and a tiny model."""
    return [
        (124_000_000, 12, 12, 64, 1000, 1, 4),
        (6_700_000_000, 32, 32, 128, 2000, 1, 2),
        (69_000_000_000, 80, 8, 128, 4000, 64, 2),
        (1_000, 2, 1, 8, 0, 10, 2),
        (1_000, 3, 2, 8, 50, 10, 1),
    ]


@exercise(
    cases=_sizes,
    hints=[
        "What is read once for the whole batch, and what is read for each text?",
        "A position in the cache holds a key and a value, each of kv_heads · d_head numbers, in each of the layers.",
        "parameters · width / batch, plus context · layers · 2 · kv_heads · d_head · width.",
    ],
)
def token_bytes(
    parameters: int, layers: int, kv_heads: int, d_head: int, context: int, batch: int, width: int
) -> float:
    return parameters * width / batch + context * layers * 2 * kv_heads * d_head * width


def _bytes(*sizes: int, kind: str) -> float:
    parameters, layers, kv_heads, d_head, context, batch, width = sizes
    numbers: float = context * layers * kv_heads * d_head * (1 if kind == "keys" else 2)
    weights = parameters / (1 if kind == "weights alone" else batch)
    if kind == "cache shared":
        numbers /= batch
    if kind == "one layer":
        numbers /= layers
    if kind == "step":
        weights, numbers = parameters, batch * numbers
    return float(weights * width + numbers * (1 if kind == "numbers" else width))


token_bytes.mistakes(
    {
        "a position has a key and a value: the cache is twice as large": partial(_bytes, kind="keys"),
        "the cache is not shared: every text reads its own for its own token": partial(_bytes, kind="cache shared"),
        "the weights are read once for all texts of a batch, so a token pays for its share of them": partial(
            _bytes, kind="weights alone"
        ),
        "every layer has a cache of its own": partial(_bytes, kind="one layer"),
        "numbers of the cache have `width` bytes each, too": partial(_bytes, kind="numbers"),
        "these are the bytes of a step, which writes `batch` tokens; divide them by the batch": partial(
            _bytes, kind="step"
        ),
    }
)

# ---- the scheduler's step ----------------------------------------------------------------------------------------

Waiting = list[tuple[int, int]]  # a request's number, and the blocks that it needs
Chosen = tuple[list[int], list[int]]


def _queues() -> list[tuple[Waiting, list[int], int, int]]:
    """Waiting, running, free seats, free blocks: room for all, for some, and for nobody; a large one in front."""
    return [
        ([(4, 2), (5, 1)], [1, 2, 3], 3, 10),
        ([(4, 2), (5, 1), (6, 1)], [1, 2, 3], 2, 10),
        ([(4, 3), (5, 2), (6, 1)], [1], 8, 5),
        ([(4, 9), (5, 1)], [3, 2], 8, 5),
        ([(4, 2), (5, 9), (6, 1)], [3], 8, 5),
        ([(4, 1)], [1, 2], 0, 5),
        ([(4, 1)], [1, 2], 2, 0),
        ([], [1, 2], 6, 5),
        ([(7, 2), (8, 2), (9, 2)], [], 4, 6),
    ]


@exercise(
    cases=_queues,
    hints=[
        "Everybody who runs generates. Go through those who wait, in order, and count the blocks that are left.",
        "Stop at the first one that finds no seat, or fewer blocks than it needs. `len(prefill) == seats` says "
        "that the seats are taken.",
        "for number, needs in waiting: if len(prefill) == seats or needs > blocks: break; then admit it and subtract.",
    ],
    differentiable=False,
)
def schedule(waiting: Waiting, running: list[int], seats: int, blocks: int) -> Chosen:
    prefill: list[int] = []
    for number, needs in waiting:
        if len(prefill) == seats or needs > blocks:
            break
        prefill.append(number)
        blocks -= needs
    return prefill, list(running)


def _scheduled(waiting: Waiting, running: list[int], seats: int, blocks: int, *, kind: str) -> Chosen:
    prefill: list[int] = []
    for number, needs in waiting:
        full = len(prefill) == seats and kind != "no seats"
        small = needs > blocks and kind != "no blocks"
        if (full or small) and kind == "overtaking":
            continue
        if full or small or (kind == "one" and prefill) or (kind == "static" and running):
            break
        prefill.append(number)
        blocks -= 0 if kind == "not counted" else needs
        if kind == "never full" and blocks <= 0:
            prefill.pop()
            break
    decode = [] if kind == "pause" and prefill else list(running)
    return prefill, decode + prefill if kind == "twice" else decode


schedule.mistakes(
    {
        "`seats` are free already: those who run do not take them": (
            lambda waiting, running, seats, blocks: schedule.reference(
                waiting, running, max(0, seats - len(running)), blocks
            )
        ),
        "more are admitted than there are free seats": partial(_scheduled, kind="no seats"),
        "more are admitted than there are blocks for": partial(_scheduled, kind="no blocks"),
        "each fits alone, but not together: whoever is admitted takes blocks, and fewer are left": partial(
            _scheduled, kind="not counted"
        ),
        "a small request overtakes a large one in front of it, which may then wait forever: stop at the first that "
        "does not fit": partial(_scheduled, kind="overtaking"),
        "nobody is admitted while others run: that is static batching. A free seat can be taken at any step": partial(
            _scheduled, kind="static"
        ),
        "one is admitted at a time; several may join in one step": partial(_scheduled, kind="one"),
        "whoever runs goes on generating while others read their prompts": partial(_scheduled, kind="pause"),
        "a request that reads its prompt gets its token from that; it is not among those who generate": partial(
            _scheduled, kind="twice"
        ),
        "the last blocks may be given away, too: a request fits when it needs no more than are free": partial(
            _scheduled, kind="never full"
        ),
    }
)

# ---- heads to groups ---------------------------------------------------------------------------------------------


def _matrices() -> list[tuple[Tensor, int, int]]:
    return [
        (randn(12, 5, seed=1), 6, 3),
        (randn(12, 5, seed=2), 6, 2),
        (randn(8, 3, seed=3), 4, 1),
        (randn(8, 3, seed=4), 4, 4),
        (randn(6, 2, seed=5), 6, 3),
    ]


@exercise(
    cases=_matrices,
    hints=[
        "Rows of W come head by head: the first d_head rows are head 0's. View them as (groups, heads of a group, "
        "d_head, d_model).",
        "Average over the heads of a group, `mean(dim=1)`, and put groups and d_head together again.",
    ],
    differentiable=False,
)
def pool_heads(W: Float[Tensor, "out d_model"], heads: int, groups: int) -> Float[Tensor, "fewer d_model"]:
    return W.unflatten(0, (groups, heads // groups, -1)).mean(dim=1).flatten(0, 1)


pool_heads.mistakes(
    {
        "the first heads are kept and the others are gone: each new head is a mean of neighbors": (
            lambda W, heads, groups: W[: len(W) // heads * groups].clone()
        ),
        "this is the first head of each group; average all of them": (
            lambda W, heads, groups: W.unflatten(0, (groups, heads // groups, -1))[:, 0].flatten(0, 1)
        ),
        "this is the sum of the heads; their mean keeps the size of keys and values": (
            lambda W, heads, groups: W.unflatten(0, (groups, heads // groups, -1)).sum(dim=1).flatten(0, 1)
        ),
        "the heads of a group are neighbors, as queries 0 and 1 share group 0; yours come from all over": (
            lambda W, heads, groups: W.unflatten(0, (heads // groups, groups, -1)).mean(dim=0).flatten(0, 1)
        ),
        "rows of one head were averaged: average the same row of several heads": (
            lambda W, heads, groups: W.unflatten(0, (-1, heads // groups)).mean(dim=1)
        ),
    }
)

# ---- find the bug: integers of a row -----------------------------------------------------------------------------


def _rows() -> list[tuple[Tensor, int]]:
    """Rows whose largest weight is positive, and others; small and large ones; 8 and 4 bits."""
    one = randn(3, 6, seed=1)
    other = randn(4, 5, seed=2) * torch.tensor([[0.01], [1.0], [30.0], [2.0]])
    return [(one, 8), (-one, 8), (other, 8), (other, 4), (one.abs(), 4), (-one.abs() - 0.1, 8)]


@exercise(
    cases=_rows,
    hints=[
        "Look at the symptom: where does a large positive weight end up? An `int8` goes from −128 to 127.",
        "With 8 bits the largest code is 127 = 2⁷ − 1, so the largest weight, divided by its scale, must be that.",
    ],
    differentiable=False,
)
def integers(W: Float[Tensor, "out in"], bits: int) -> tuple[Int8[Tensor, "out in"], Float[Tensor, "out 1"]]:
    scale = W.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (W / scale).round().to(torch.int8), scale


@integers.given
def _(W: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    scale = W.abs().amax(dim=1, keepdim=True) / 2 ** (bits - 1)
    return (W / scale).round().to(torch.int8), scale


def _integers(W: Tensor, bits: int, *, kind: str) -> tuple[Tensor, Tensor]:
    largest = {"signed": W.amax(dim=1, keepdim=True), "columns": W.abs().amax(dim=0, keepdim=True)}.get(kind, W.abs())
    if kind == "matrix":
        largest = W.abs().max().expand(len(W), 1)
    elif kind not in ("signed", "columns"):
        largest = W.abs().amax(dim=1, keepdim=True)
    scale = largest / (2 ** (bits - (0 if kind == "unsigned" else 1)) - 1)
    codes = W / scale
    codes = codes.trunc() if kind == "cut" else codes.round()
    if kind == "clamped":
        scale = W.abs().amax(dim=1, keepdim=True) / 2 ** (bits - 1)
        codes = (W / scale).round().clamp(max=2 ** (bits - 1) - 1)
    return codes.to(torch.int8), scale


integers.mistakes(
    {
        "one scale for the whole matrix: a row of small weights then has few codes left. One for each row": partial(
            _integers, kind="matrix"
        ),
        "the fraction is cut off; round to the nearest integer": partial(_integers, kind="cut"),
        "the largest weight of a row may be negative: its size counts": partial(_integers, kind="signed"),
        "a scale for each column cannot be taken out of the product x Wᵀ; each row has one": partial(
            _integers, kind="columns"
        ),
        "one of the bits is the sign, so 8 of them end at 127": partial(_integers, kind="unsigned"),
        "clamping hides the overflow, but the largest weight is still off by a whole step: choose the scale so that it "
        "fits": partial(_integers, kind="clamped"),
    }
)

# ---- prompts that share blocks -----------------------------------------------------------------------------------


def _prompts() -> list[tuple[list[list[int]], int]]:
    """The same beginnings, the same blocks after other beginnings, full and partly filled last blocks, none at all."""
    return [
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 2),
        ([[1, 2, 3, 4], [1, 2, 3, 4]], 2),
        ([[1, 2, 3], [1, 2, 3]], 2),
        ([[1, 2, 7, 8], [3, 4, 7, 8]], 2),
        ([[1, 2, 1, 2, 1, 2]], 2),
        ([[1, 2, 3, 4, 5, 6, 7], [1, 2, 3], [9]], 3),
        ([[5, 6], [5, 6], [5, 6]], 4),
        ([[1, 2, 3], [4]], 1),
        ([], 4),
    ]


@exercise(
    cases=_prompts,
    hints=[
        "The keys and values of a block depend on its own tokens and on all tokens before it. When are those of two "
        "prompts the same?",
        "Name a full block by all tokens up to its end, `tuple(prompt[:end])`, and collect the names in a set.",
        "A block that isn't full belongs to its prompt alone, since the text will be continued in it: add one for each "
        "prompt whose length `size` does not divide.",
    ],
    differentiable=False,
)
def blocks_needed(prompts: Sequence[Sequence[int]], size: int) -> int:
    full = {tuple(prompt[:end]) for prompt in prompts for end in range(size, len(prompt) + 1, size)}
    return len(full) + sum(len(prompt) % size > 0 for prompt in prompts)


def _blocks(prompts: Sequence[Sequence[int]], size: int, *, kind: str) -> int:
    names: list[Any] = []
    for number, prompt in enumerate(prompts):
        for start in range(0, len(prompt), size):
            block, whole = tuple(prompt[start : start + size]), tuple(prompt[: start + size])
            if len(block) < size and kind == "full":
                continue
            partly = len(block) < size and kind != "partly shared"
            place = (number, start) if partly or kind == "alone" else None
            names.append((place, block if kind == "block" else whole))
    return len(names) if kind == "alone" else len(set(names))


blocks_needed.mistakes(
    {
        "nothing is shared: prompts that begin alike use the same blocks": partial(_blocks, kind="alone"),
        "equal blocks after different beginnings have different keys and values: layers above the first have read what "
        "came before": partial(_blocks, kind="block"),
        "a block that isn't full is not shared, because each text goes on in its own way there": partial(
            _blocks, kind="partly shared"
        ),
        "tokens after the last full block need one as well": partial(_blocks, kind="full"),
    }
)
