"""The exercises inside lesson 17: how two steps combine, the selective scan, a state read by its question, minGRU."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.course.exercises import exercise, randn

Pair = tuple[Tensor, Tensor]


def shares(*shape: int, seed: int) -> Tensor:
    """Numbers between 0 and 1 for a case, the same at every check."""
    return torch.sigmoid(randn(*shape, seed=seed))


# ---- two steps as one ----------------------------------------------------------------------------------------------


def _pairs() -> list[tuple[Pair, Pair]]:
    """Numbers, vectors, decays of either sign, a decay of 0, which forgets everything before."""
    zero = torch.tensor([0.5, 0.0]), torch.tensor([1.0, 2.0])
    return [
        ((torch.tensor(0.5), torch.tensor(4.0)), (torch.tensor(0.25), torch.tensor(8.0))),
        ((randn(3, seed=1), randn(3, seed=2)), (randn(3, seed=3), randn(3, seed=4))),
        ((randn(2, seed=5), randn(2, seed=6)), zero),
    ]


@exercise(
    cases=_pairs,
    hints=[
        "Put h₁ = a₁ h₀ + b₁ into h₂ = a₂ h₁ + b₂, and collect what multiplies h₀.",
        "h₂ = a₂ a₁ h₀ + (a₂ b₁ + b₂). The result is the pair of what multiplies h₀ and what is added.",
    ],
)
def combine(earlier: Pair, later: Pair) -> Pair:
    a_1, b_1 = earlier
    a_2, b_2 = later
    return a_2 * a_1, a_2 * b_1 + b_2


combine.mistakes(
    {
        "the later step decays what the earlier one wrote: b₁ is multiplied by a₂, not b₂ by a₁": (
            lambda earlier, later: (later[0] * earlier[0], earlier[0] * later[1] + earlier[1])
        ),
        "b₁ is left as it was: the later step multiplies it by a₂": (
            lambda earlier, later: (later[0] * earlier[0], earlier[1] + later[1])
        ),
        "decays of two steps are multiplied, not added": (
            lambda earlier, later: (later[0] + earlier[0], later[0] * earlier[1] + later[1])
        ),
        "b₁ passes one step, the later one: it is multiplied by a₂ alone, not by a₁ as well": (
            lambda earlier, later: (later[0] * earlier[0], later[0] * earlier[0] * earlier[1] + later[1])
        ),
        "what the later step writes is missing: + b₂": (
            lambda earlier, later: (later[0] * earlier[0], later[0] * earlier[1])
        ),
    }
)

# ---- the selective scan ----------------------------------------------------------------------------------------------


def _selective() -> list[tuple[Tensor, ...]]:
    """Several texts from a state; one position; steps of 0, which keep all, and a large one, which forgets all."""
    cases = []
    for number, (batch, time, width, state) in enumerate([(2, 5, 3, 2), (1, 1, 2, 3), (2, 4, 2, 2), (1, 6, 1, 4)]):
        at = 10 * number
        step = shares(batch, time, width, seed=at + 1) + 0.1
        if number == 2:
            step = torch.where(shares(batch, time, width, seed=at + 7) < 0.4, 0.0, step)
        cases.append(
            (
                randn(batch, time, width, seed=at),
                step,
                -shares(width, state, seed=at + 2) - 0.2,
                randn(batch, time, state, seed=at + 3),
                randn(batch, time, state, seed=at + 4),
                randn(batch, width, state, seed=at + 5),
            )
        )
    return cases


@exercise(
    cases=_selective,
    hints=[
        "Loop over the positions. At each of them the state h, (batch, width, state), becomes exp(Δ A) ⊙ h + Δ x B; "
        "Δ and x have one number for each channel, B one for each number of the state.",
        "`step[:, t, :, None] * A` is (batch, width, state). `(step * x)[:, t, :, None] * B[:, t, None]` is what is "
        "written: an outer product for each text.",
        "C reads: `(h * C[:, t, None]).sum(dim=-1)` is y at position t, (batch, width). Stack them along dim=1, and "
        "return the last h as well.",
    ],
)
def selective_scan(
    x: Float[Tensor, "batch time width"],
    step: Float[Tensor, "batch time width"],
    A: Float[Tensor, "width state"],
    B: Float[Tensor, "batch time state"],
    C: Float[Tensor, "batch time state"],
    h: Float[Tensor, "batch width state"],
) -> tuple[Float[Tensor, "batch time width"], Float[Tensor, "batch width state"]]:
    outputs = []
    for t in range(x.shape[1]):
        decay = torch.exp(step[:, t, :, None] * A)
        written = (step[:, t] * x[:, t])[:, :, None] * B[:, t, None]
        h = decay * h + written
        outputs.append((h * C[:, t, None]).sum(dim=-1))
    return torch.stack(outputs, dim=1), h


def _scanned(x: Tensor, step: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The scan with a mistake of some kind."""
    outputs, first = [], h
    h = torch.zeros_like(h) if kind == "zeros" else h
    for t in range(x.shape[1]):
        z = step[:, t, :, None] * A
        decay = {"euler": 1 + z, "A": torch.exp(A).expand_as(z), "grows": torch.exp(-z)}.get(kind, torch.exp(z))
        scale = x[:, t] if kind == "no step" else step[:, t] * x[:, t]
        new = scale[:, :, None] * (C if kind == "C writes" else B)[:, t, None]
        before = h
        h = {"sum": h + new, "new alone": new, "both": decay * (h + new)}.get(kind, decay * h + new)
        read = before if kind == "late" else h
        outputs.append((read * (B if kind == "B reads" else C)[:, t, None]).sum(dim=-1))
    return torch.stack(outputs, dim=1), first if kind == "first" else h


selective_scan.mistakes(
    {
        "the state before the first position is given as h; yours begins with zeros, so a text cannot go on": partial(
            _scanned, kind="zeros"
        ),
        "the decay is exp(Δ A); 1 + Δ A is Euler's step, which is close only where Δ is small": partial(
            _scanned, kind="euler"
        ),
        "the decay does not depend on the input here: it is exp(Δ A), with Δ of this position": partial(
            _scanned, kind="A"
        ),
        "this state grows: A is negative already, so the decay is exp(Δ A)": partial(_scanned, kind="grows"),
        "what is written is Δ x B: with a step of 0 the input has to be ignored": partial(_scanned, kind="no step"),
        "nothing is forgotten: the state is multiplied by exp(Δ A) before x is added": partial(_scanned, kind="sum"),
        "nothing is kept: the new state is exp(Δ A) ⊙ h plus what is written": partial(_scanned, kind="new alone"),
        "what is written now does not decay yet: only the old state is multiplied": partial(_scanned, kind="both"),
        "y is read before the position has been written: update h first, then read": partial(_scanned, kind="late"),
        "B writes and C reads; here B reads as well": partial(_scanned, kind="B reads"),
        "B writes and C reads; here C writes as well": partial(_scanned, kind="C writes"),
        "the second result is the last state, not the first": partial(_scanned, kind="first"),
    }
)

# ---- a state read by its question -----------------------------------------------------------------------------------


def _questions() -> list[tuple[Tensor, ...]]:
    """States wider than the model and as wide; one position."""
    sizes = [(2, 5, 3, 7), (1, 1, 2, 4), (2, 3, 4, 4)]
    return [
        (
            randn(batch, time, width, seed=20 * i),
            randn(batch, time, d, seed=20 * i + 1),
            randn(d, width, seed=20 * i + 2),
            randn(width, d, seed=20 * i + 3),
        )
        for i, (batch, time, d, width) in enumerate(sizes)
    ]


@exercise(
    cases=_questions,
    hints=[
        "The question is `x @ W_Q`, (batch, time, width): one number for each number of the state.",
        "Join the two with `*`, number by number, and only then apply W_O, which makes d numbers of width.",
    ],
)
def read_by_question(
    h: Float[Tensor, "batch time width"],
    x: Float[Tensor, "batch time d"],
    W_Q: Float[Tensor, "d width"],
    W_O: Float[Tensor, "width d"],
) -> Float[Tensor, "batch time d"]:
    return (h * (x @ W_Q)) @ W_O


read_by_question.mistakes(
    {
        "the question is added to the state: W_O reads a sum as two sums, so the two never meet nonlinearly": (
            lambda h, x, W_Q, W_O: (h + x @ W_Q) @ W_O
        ),
        "the question comes too late: W_O has already squeezed width numbers into d": (
            lambda h, x, W_Q, W_O: (h @ W_O) * x
        ),
        "W_O is missing: what is read has d numbers, as the residual stream": lambda h, x, W_Q, W_O: h * (x @ W_Q),
        "this reads the state as it is, whatever is asked: where is x?": lambda h, x, W_Q, W_O: h @ W_O,
        "this reads the question alone: where is the state?": lambda h, x, W_Q, W_O: (x @ W_Q) @ W_O,
        "a sigmoid can turn numbers off, but not change their sign; here the map is not squashed": (
            lambda h, x, W_Q, W_O: (h * torch.sigmoid(x @ W_Q)) @ W_O
        ),
        "a softmax makes all numbers of the state compete; here each is multiplied by its own": (
            lambda h, x, W_Q, W_O: (h * torch.softmax(x @ W_Q, dim=-1)) @ W_O
        ),
        "state and question go through W_O apart, and are multiplied after the squeeze: multiply first": (
            lambda h, x, W_Q, W_O: (h @ W_O) * (x @ W_Q @ W_O)
        ),
    }
)

# ---- one step of a text ----------------------------------------------------------------------------------------------


def _gates() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Gates so large that 1 − σ(z) has no digits left in float32 among them."""
    return [
        (randn(2, 5, 3, seed=1), randn(2, 5, 3, seed=2), randn(2, 3, seed=3)),
        (randn(1, 1, 2, seed=4), randn(1, 1, 2, seed=5), randn(1, 2, seed=6)),
        (torch.full((1, 3, 1), -30.0), torch.full((1, 3, 1), 2.0), torch.ones(1, 1)),
    ]


@exercise(
    cases=_gates,
    hints=[
        "z = σ(gate) says how much of the old number is replaced. A loop over dim=1 does it.",
        "h = (1 − z) ⊙ h + z ⊙ candidate, at each position; collect the states and stack them along dim=1.",
    ],
)
def min_gru(
    gate: Float[Tensor, "batch time width"],
    candidate: Float[Tensor, "batch time width"],
    h: Float[Tensor, "batch width"],
) -> Float[Tensor, "batch time width"]:
    states = []
    for t in range(gate.shape[1]):
        z = torch.sigmoid(gate[:, t])
        h = (1 - z) * h + z * candidate[:, t]
        states.append(h)
    return torch.stack(states, dim=1)


def _kept(gate: Tensor, candidate: Tensor, h: Tensor, kind: str) -> Tensor:
    states = []
    for t in range(gate.shape[1]):
        z = torch.sigmoid(gate[:, t])
        z = {"swapped": 1 - z, "raw": gate[:, t]}.get(kind, z)
        new = torch.tanh(candidate[:, t]) if kind == "tanh" else candidate[:, t]
        h = {"open": h + z * new, "unscaled": (1 - z) * h + new}.get(kind, (1 - z) * h + z * new)
        states.append(h)
    return states[-1][:, None] if kind == "last" else torch.stack(states, dim=1)


min_gru.mistakes(
    {
        "z replaces and 1 − z keeps; here it is the other way around": partial(_kept, kind="swapped"),
        "gate is a real number; σ makes a share between 0 and 1 of it": partial(_kept, kind="raw"),
        "minGRU has no tanh on its candidate": partial(_kept, kind="tanh"),
        "nothing is forgotten: the old state is multiplied by 1 − z": partial(_kept, kind="open"),
        "the candidate is multiplied by z, so that old and new shares add up to 1": partial(_kept, kind="unscaled"),
        "the states before h_0 are given: the first step starts from h": (
            lambda gate, candidate, h: min_gru.reference(gate, candidate, torch.zeros_like(h))
        ),
    }
)
