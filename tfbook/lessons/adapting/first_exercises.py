"""The first exercises of lesson 11; the others are in exercises.py."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from tfbook.course.exercises import exercise, randn

# ---- LoRA's forward pass -----------------------------------------------------------------------------------------

Layer = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]


def _layers() -> list[Layer]:
    """x, W, b, A, B and α, with shapes that all differ, and a square case in which a wrong order still fits."""
    shapes = ((2, 3, 5, 4, 2, 6.0), (1, 2, 4, 4, 1, 0.5), (3, 1, 3, 6, 4, 4.0))
    return [
        (
            randn(batch, time, d_in, seed=i),
            randn(d_out, d_in, seed=i + 10),
            randn(d_out, seed=i + 20),
            randn(rank, d_in, seed=i + 30),
            randn(d_out, rank, seed=i + 40),
            alpha,
        )
        for i, (batch, time, d_in, d_out, rank, alpha) in enumerate(shapes)
    ]


@exercise(
    cases=_layers,
    hints=[
        "A weight is (d_out, d_in), so the frozen layer is `x @ W.T + b`. What is the shape of `x @ A.T`?",
        "The detour is `x @ A.T @ B.T`, times α divided by the rank, which is `len(A)`.",
    ],
    differentiable=("x", "A", "B"),
)
def lora_forward(x: Tensor, W: Tensor, b: Tensor, A: Tensor, B: Tensor, alpha: float) -> Tensor:
    return x @ W.T + b + alpha / len(A) * (x @ A.T @ B.T)


def _detour(scale: Callable[[Tensor, Tensor, float], float], *, layer: float = 1, bias: float = 1) -> Callable:
    def forward(x: Tensor, W: Tensor, b: Tensor, A: Tensor, B: Tensor, alpha: float) -> Tensor:
        return layer * (x @ W.T) + bias * b + scale(A, B, alpha) * (x @ A.T @ B.T)

    return forward


lora_forward.mistakes(
    {
        "the detour is added without its factor: multiply it by α / r": _detour(lambda A, B, alpha: 1),
        "α is there, but it is not divided by the rank": _detour(lambda A, B, alpha: alpha),
        "divided by the rank, but not multiplied by α": _detour(lambda A, B, alpha: 1 / len(A)),
        "α is divided by d_out; the rank is the number of A's rows": _detour(lambda A, B, alpha: alpha / len(B)),
        "α is divided by d_in; the rank is the number of A's rows": _detour(lambda A, B, alpha: alpha / A.shape[1]),
        "the factor is applied twice: α / r once is enough": _detour(lambda A, B, alpha: (alpha / len(A)) ** 2),
        "this is the detour alone: the frozen layer, W x + b, is missing": _detour(
            lambda A, B, alpha: alpha / len(A), layer=0, bias=0
        ),
        "the bias b of the frozen layer is missing": _detour(lambda A, B, alpha: alpha / len(A), bias=0),
        "this is the frozen layer alone: the detour is missing": _detour(lambda A, B, alpha: 0),
        "the detour is subtracted: add it": _detour(lambda A, B, alpha: -alpha / len(A)),
        "divided by √r, as a variant does (rsLoRA): LoRA's factor is α / r": _detour(
            lambda A, B, alpha: alpha / len(A) ** 0.5
        ),
        "b is multiplied by α / r: it belongs to the frozen layer, which stays as it is": (
            lambda x, W, b, A, B, alpha: x @ W.T + alpha / len(A) * (x @ A.T @ B.T + b)
        ),
        "the frozen layer is multiplied by α / r, too: only the detour has a factor": (
            lambda x, W, b, A, B, alpha: alpha / len(A) * (x @ W.T + b + x @ A.T @ B.T)
        ),
    }
)

# ---- how many numbers --------------------------------------------------------------------------------------------


def _sizes() -> list[tuple[int, int, int, int, list[str]]]:
    every = ["W_Q", "W_K", "W_V", "W_O", "up", "down"]
    return [
        (192, 768, 4, 2, every),
        (12_288, 49_152, 96, 4, ["W_Q", "W_V"]),  # GPT-3, as Hu et al. (2021) adapt it
        (64, 100, 2, 3, ["up"]),
        (64, 100, 3, 1, ["W_O", "down"]),
        (8, 20, 2, 3, []),
    ]


@exercise(
    cases=_sizes,
    hints=[
        "An adapter beside a matrix of d_out × d_in has r · d_in numbers in A and d_out · r in B. "
        "What are d_in and d_out of `up`?",
        "W_Q, W_K, W_V, and W_O are square: 2 · d_model · r each. `up` and `down` have (d_model + d_ff) · r "
        "each. Add up over `names`, times the layers.",
    ],
)
def count_adapters(d_model: int, d_ff: int, layers: int, rank: int, names: list[str]) -> int:
    sides = [d_model + (d_ff if name in ("up", "down") else d_model) for name in names]
    return layers * rank * sum(sides)


def _counted(square: Callable[[int], int], other: Callable[[int, int], int], *, per_layer: bool = False) -> Callable:
    def count(d_model: int, d_ff: int, layers: int, rank: int, names: list[str]) -> int:
        each = [other(d_model, d_ff) if name in ("up", "down") else square(d_model) for name in names]
        return (1 if per_layer else layers) * rank * sum(each)

    return count


count_adapters.mistakes(
    {
        "nothing of size rank × rank is trained: an adapter is A, with rank rows, and B, with rank columns": (
            lambda d_model, d_ff, layers, rank, names: (
                count_adapters.reference(d_model, d_ff, layers, rank, names) + layers * rank**2 * len(names)
            )
        ),
        "the frozen matrices are counted, too: LoRA trains the adapters alone": (
            lambda d_model, d_ff, layers, rank, names: (
                count_adapters.reference(d_model, d_ff, layers, rank, names)
                + layers * sum(d_model * (d_ff if name in ("up", "down") else d_model) for name in names)
            )
        ),
        "this is one block: multiply by the number of layers": _counted(
            lambda d: 2 * d, lambda d, d_ff: d + d_ff, per_layer=True
        ),
        "each adapter has two matrices, A and B; here is one of them": _counted(lambda d: d, lambda d, d_ff: d),
        "each adapter has two factors, beside a square matrix as well: 2 · d_model · r": _counted(
            lambda d: d, lambda d, d_ff: d + d_ff
        ),
        "all are counted as square; up and down have d_ff on one side": _counted(
            lambda d: 2 * d, lambda d, d_ff: 2 * d
        ),
        "up and down have d_ff on one side only: d_model + d_ff, not 2 · d_ff": _counted(
            lambda d: 2 * d, lambda d, d_ff: 2 * d_ff
        ),
        "the rank is missing: A has r rows and B r columns": lambda d_model, d_ff, layers, rank, names: (
            count_adapters.reference(d_model, d_ff, layers, 1, names)
        ),
        "these are the frozen matrices themselves": lambda d_model, d_ff, layers, rank, names: (
            layers * sum(d_model * (d_ff if name in ("up", "down") else d_model) for name in names)
        ),
        "biases are counted: an adapter is two matrices, A and B, and has none": (
            lambda d_model, d_ff, layers, rank, names: (
                count_adapters.reference(d_model, d_ff, layers, rank, names)
                + layers * sum(d_ff if name == "up" else d_model for name in names)
            )
        ),
    }
)
