"""Exercises of lesson 20: uneven shares, the ring, memory, a split layer, a schedule, a deadlock, a step's time."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.scaling_out.first_exercises import (
    batch_gradient as batch_gradient,
    bytes_per_machine as bytes_per_machine,
    ring_all_reduce as ring_all_reduce,
)

# ---- a feed-forward network in parts ---------------------------------------------------------------------------------


def _layers() -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int]]:
    """x (time, d_model), up (d_ff, d_model), down (d_model, d_ff) as `nn.Linear` has them; one to four machines."""
    return [
        (
            randn(time, d, seed=n),
            randn(hidden, d, seed=n + 1),
            randn(hidden, seed=n + 2),
            randn(d, hidden, seed=n + 3),
            randn(d, seed=n + 4),
            n,
        )
        for time, d, hidden, n in ((2, 3, 4, 2), (1, 4, 8, 4), (3, 2, 6, 3), (2, 3, 4, 1))
    ]


@exercise(
    cases=_layers,
    hints=[
        "Each machine has some of the hidden units: rows of `up` and of its bias, and the *columns* of `down` that "
        "these units meet. `chunk(machines)` cuts along dim 0, `chunk(machines, dim=1)` along dim 1.",
        "Machine m: `torch.relu(x @ up_m.T + up_bias_m) @ down_m.T`. The sum of all of these is the whole product.",
        "down's bias must be in the sum once. Let machine 0 add it. Return all parts with `torch.stack`.",
    ],
)
def parts_of_feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, machines: int
) -> Tensor:
    outputs = []
    pieces = zip(up.chunk(machines), up_bias.chunk(machines), down.chunk(machines, dim=1), strict=True)
    for up_m, bias_m, down_m in pieces:
        outputs.append(torch.relu(x @ up_m.T + bias_m) @ down_m.T)
    outputs[0] = outputs[0] + down_bias
    return torch.stack(outputs)


def _parts(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, machines: int, kind: str) -> Tensor:
    """The parts with a mistake of some kind."""
    outputs = []
    for m in range(machines):
        hidden = x @ up.chunk(machines)[m].T
        hidden = hidden if kind == "no bias" else hidden + up_bias.chunk(machines)[m]
        hidden = hidden if kind == "linear" else torch.relu(hidden)
        outputs.append(hidden @ down.chunk(machines, dim=1)[m].T)
    shares = {"every": 1.0, "shared": 1 / machines}.get(kind, 0.0)
    parts = torch.stack(outputs) + shares * down_bias
    if kind == "summed":
        return (parts.sum(dim=0) + down_bias).expand_as(parts)
    first = torch.zeros(machines, 1, 1)
    first[0] = 0.0 if kind in ("every", "shared", "never") else 1.0
    return parts + first * down_bias


parts_of_feed_forward.mistakes(
    {
        "down's bias is added on every machine, so the sum has it once per machine: machine 0 alone adds it": partial(
            _parts, kind="every"
        ),
        "the sum is right; but cutting down's bias needs a division on each machine: let machine 0 add all of it": (
            partial(_parts, kind="shared")
        ),
        "down's bias is missing: machine 0 adds it": partial(_parts, kind="never"),
        "these are sums already: return each machine's own part, which the all-reduce will add": partial(
            _parts, kind="summed"
        ),
        "the nonlinearity between both matrices is missing": partial(_parts, kind="linear"),
        "up's bias is missing: each machine has the entries of its own hidden units": partial(_parts, kind="no bias"),
    }
)

# ---- a pipeline's schedule -------------------------------------------------------------------------------------------

Pass = tuple[str, int]


def _pipelines() -> list[tuple[int, int]]:
    return [(2, 2), (4, 8), (3, 3), (4, 2), (1, 3)]


@exercise(
    cases=_pipelines,
    hints=[
        "Stage s lies stages − s − 1 before the last. So many forward passes it does first (but not more than there "
        "are microbatches): `ahead = min(stages - s - 1, microbatches)`.",
        'Then for each microbatch k: the next forward pass ("F", ahead + k), if there is one left, and ("B", k).',
    ],
)
def one_forward_one_backward(stages: int, microbatches: int) -> list[list[Pass]]:
    schedule = []
    for s in range(stages):
        ahead = min(stages - s - 1, microbatches)
        passes = [("F", k) for k in range(ahead)]
        for k in range(microbatches):
            if ahead + k < microbatches:
                passes.append(("F", ahead + k))
            passes.append(("B", k))
        schedule.append(passes)
    return schedule


def _scheduled(stages: int, microbatches: int, kind: str) -> list[list[Pass]]:
    schedule = []
    for s in range(stages):
        ahead = {"none": 0, "same": stages - 1, "mirrored": s, "more": stages - s}.get(kind, stages - s - 1)
        ahead = min(ahead, microbatches)
        passes = [("F", k) for k in range(ahead)]
        for k in range(microbatches):
            forward = [("F", ahead + k)] if ahead + k < microbatches else []
            backward = [("B", microbatches - 1 - k if kind == "reversed" else k)]
            passes += backward + forward if kind == "backward first" else forward + backward
        schedule.append(passes)
    return schedule


def _gpipe(stages: int, microbatches: int, step: int = -1) -> list[list[Pass]]:
    both = [("F", k) for k in range(microbatches)], [("B", k) for k in range(microbatches)][::step]
    return [[*both[0], *both[1]] for _ in range(stages)]


one_forward_one_backward.mistakes(
    {
        "this is GPipe: every microbatch's activations are kept until the way back begins": _gpipe,
        "all forward passes before the first backward pass, as in GPipe: stage s runs only stages − s − 1 ahead, "
        "and then alternates": partial(_gpipe, step=1),
        "no stage runs ahead, so stage 0 waits for the gradient of microbatch 0 before it sends microbatch 1": partial(
            _scheduled, kind="none"
        ),
        "every stage runs equally far ahead; the last one can turn around at once": partial(_scheduled, kind="same"),
        "the first stage runs ahead most and the last not at all; here it is the other way around": partial(
            _scheduled, kind="mirrored"
        ),
        "one forward pass too many before the first backward pass: stage s runs stages − s − 1 ahead": partial(
            _scheduled, kind="more"
        ),
        "backward passes go in the order of the forward ones: the last stage turns around with microbatch 0": partial(
            _scheduled, kind="reversed"
        ),
    }
)

# ---- find the bug: everyone sends ------------------------------------------------------------------------------------


@exercise(
    cases=lambda: [(0, 4), (1, 4), (2, 4), (3, 4), (0, 2), (1, 2), (4, 5), (0, 5), (0, 3)],
    hints=[
        "Draw two machines. Both are in their send, which ends when the other one receives. Who ever receives?",
        "Machines with an even number send first; those with an odd number receive first.",
    ],
)
def ring_order(machine: int, machines: int) -> list[tuple[str, int]]:
    to_the_right = ("send", (machine + 1) % machines)
    from_the_left = ("receive", (machine - 1) % machines)
    return [to_the_right, from_the_left] if machine % 2 == 0 else [from_the_left, to_the_right]


@ring_order.given
def _(machine: int, machines: int) -> list[tuple[str, int]]:
    to_the_right = ("send", (machine + 1) % machines)
    from_the_left = ("receive", (machine - 1) % machines)
    return [to_the_right, from_the_left]


def _ordered(machine: int, machines: int, kind: str) -> list[tuple[str, int]]:
    right, left = (machine + 1) % machines, (machine - 1) % machines
    if kind == "to the left":
        right, left = left, right
    both = [("send", right), ("receive", left)]
    if kind in ("receive", "odd"):
        return both if kind == "odd" and machine % 2 else both[::-1]
    return both if machine % 2 == 0 else both[::-1]


ring_order.mistakes(
    {
        "now everyone receives first and waits for a message that nobody sends": partial(_ordered, kind="receive"),
        "this works for an even number of machines, and begins with the odd ones; let the even ones send first": (
            partial(_ordered, kind="odd")
        ),
        "the order is right, but messages go to the right neighbor, machine + 1": partial(_ordered, kind="to the left"),
    }
)

# ---- a plan ----------------------------------------------------------------------------------------------------------


@exercise(
    cases=lambda: [
        (8_000, 2_000, 1, 1, 0.0, 3),
        (2_000, 8_000, 1, 1, 0.0, 3),
        (2_000, 8_000, 4, 1, 0.0, 1),
        (2_000, 8_000, 4, 1, 0.0, 2),
        (8_192, 9_890, 16, 16, 0.1, 2),
        (4_096, 1_000, 8, 4, 0.25, 3),
        (1_000, 4_000, 2, 3, 0.5, 3),
        (1_000, 4_000, 2, 3, 0.5, 0),
    ],
    hints=[
        "Let computing a step take 1. What doesn't hide of the sending lasts `needed / tokens − 1` times a "
        "microbatch's computing; nothing, if there are enough tokens: `max(0, ...)`.",
        "Stage 3 sends in every pass of every microbatch. At 0 and 1 the gradients are sent once per step and hide "
        "behind the backward pass of the last microbatch: 2/3 of the time of one of `microbatches`.",
        "At stage 2 a backward pass hides half the bytes, so it needs half the tokens: "
        "`2 / 3 * max(0, needed / 2 / tokens - 1)`. The other half waits once, behind 1/3 of one microbatch.",
        "The bubble is stages − 1 microbatches long, and computing is `microbatches` long: add their quotient. Add "
        "`tensor`, too.",
    ],
)
def step_time(tokens: float, needed: float, microbatches: int, stages: float, tensor: float, zero: int) -> float:
    short = max(0.0, needed / tokens - 1)
    sending = 2 / 3 * short / microbatches
    if zero == 2:
        sending = 2 / 3 * max(0.0, needed / 2 / tokens - 1) + short / 3 / microbatches
    if zero == 3:
        sending = short
    return 1 + sending + (stages - 1) / microbatches + tensor


def _timed(
    tokens: float, needed: float, microbatches: int, stages: float, tensor: float, zero: int, kind: str
) -> float:
    short = needed / tokens - 1
    short = short if kind == "negative" else max(0.0, short)
    short = needed / tokens if kind == "never hides" else short
    once = short if kind == "all passes" else 2 / 3 * short / (1 if kind == "every" else microbatches)
    half = 2 / 3 * max(0.0, needed / 2 / tokens - 1)
    two = once if kind == "two as one" else half + (0.0 if kind == "no weights" else short / 3 / microbatches)
    whole = microbatches + stages - 1 if kind == "share" else microbatches
    bubble = 0.0 if kind == "no bubble" else (stages - 1) / whole
    return 1 + (short if zero == 3 else two if zero == 2 else once) + bubble + (0.0 if kind == "no tensor" else tensor)


step_time.mistakes(
    {
        "with more tokens than needed, sending costs nothing; it doesn't give time back: `max(0, ...)`": partial(
            _timed, kind="negative"
        ),
        "this adds all of the sending; what happens while the GPU computes is free: subtract 1": partial(
            _timed, kind="never hides"
        ),
        "at stage 2 every microbatch sends half an all-reduce: gradients that stay sharded can't wait": partial(
            _timed, kind="two as one"
        ),
        "at stage 2 the new weights are gathered, too, once per step behind 1/3 of a microbatch": partial(
            _timed, kind="no weights"
        ),
        "at stages 0 and 1 gradients are sent once and hide behind one backward pass: 2/3 of a microbatch": partial(
            _timed, kind="all passes"
        ),
        "at stages 0 and 1 gradients are sent once per step, not for each microbatch: divide by microbatches": partial(
            _timed, kind="every"
        ),
        "(p − 1) / (m + p − 1) is the share of the *whole* time; per second of computing it is (p − 1) / m": partial(
            _timed, kind="share"
        ),
        "the pipeline's bubble is missing": partial(_timed, kind="no bubble"),
        "tensor parallelism's waiting is missing": partial(_timed, kind="no tensor"),
    }
)
