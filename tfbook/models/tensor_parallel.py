"""Tensor parallelism: the matrices of attention and feed-forward networks split among processes (Shoeybi et al., 2019).

A first matrix is split by columns, so that each process computes some heads, or some hidden units, whole; the second by
rows, so that what each makes of them is a share of a sum. One all-reduce in the forward pass adds these shares, another
in the backward pass the gradients of the input: two of each per block, of a residual stream's size.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from tfbook.attention.multi_head import MultiHeadAttention, split_heads
from tfbook.attention.positions import ALiBi, Relative
from tfbook.models.blocks import Block
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.parts import expect

COLUMNS, ROWS = "columns", "rows"
PLANS: dict[type, dict[str, str]] = {
    MultiHeadAttention: {"W_Q": COLUMNS, "W_K": COLUMNS, "W_V": COLUMNS, "W_O": ROWS},
    FeedForward: {"up": COLUMNS, "down": ROWS},
    SwiGLU: {"gate": COLUMNS, "up": COLUMNS, "down": ROWS},
}
SUPPORT = "tensor parallelism supports"


def check_tensor_parallel(model: nn.Module, processes: int) -> None:
    """Raises ValueError for a model that so many processes cannot split.

    Its heads and hidden widths have to be divisible; dropout would drop the same places in the heads of all processes,
    and positions that bias scores head by head would need to know which heads are here.
    """
    for block in _blocks(model):
        if block.cross is not None:
            raise ValueError(f"a block has cross-attention; {SUPPORT} blocks without")
        mixer: Any = block.mixer.branch
        feed_forward: Any = block.feed_forward.branch
        expect(SUPPORT, "mixer", mixer, MultiHeadAttention)
        expect(SUPPORT, "feed_forward", feed_forward, FeedForward, SwiGLU)
        for name, size in {"heads": mixer.heads, "d_ff": feed_forward.up.out_features}.items():
            if size % processes:
                raise ValueError(f"{name} is {size}; expected a multiple of tensor_parallel = {processes}")
    for part in model.modules():
        if isinstance(part, ALiBi | Relative):
            raise ValueError(f"position is {type(part).__name__}; {SUPPORT} those that bias no head's scores")
        if isinstance(part, nn.Dropout) and part.p > 0:
            raise ValueError(f"dropout is {part.p}; {SUPPORT} 0 only")


def split_model(model: nn.Module, mesh: Any) -> None:
    """Splits the model among the processes of a `DeviceMesh` with one axis; the weights are those of its first.

    Norms, embeddings and the output matrix stay whole. Raises ValueError as `check_tensor_parallel` does.
    """
    from torch.distributed.tensor.parallel import (  # here, because one process does without
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

    check_tensor_parallel(model, mesh.size())
    styles: dict[str, type[ParallelStyle]] = {COLUMNS: ColwiseParallel, ROWS: RowwiseParallel}
    for block in _blocks(model):
        for branch in (block.mixer, block.feed_forward):
            part = branch.branch
            parallelize_module(part, mesh, {name: styles[how]() for name, how in PLANS[type(part)].items()})
            if isinstance(part, MultiHeadAttention):
                part.project = partial(_project_share, part, mesh)  # type: ignore[method-assign]


def _project_share(
    layer: MultiHeadAttention, mesh: Any, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`MultiHeadAttention.project` for the heads of this process.

    One input that several layers read is one DTensor, so that the sum of its gradients is sent, not each.
    """
    from torch.distributed.tensor import DTensor, Replicate

    inputs = {id(x): x for x in (query, key, value)}
    shared = {name: DTensor.from_local(x, mesh, [Replicate()], run_check=False) for name, x in inputs.items()}
    layers, heads = (layer.W_Q, layer.W_K, layer.W_V), layer.heads // mesh.size()
    q, k, v = (linear(shared[id(x)]) for linear, x in zip(layers, (query, key, value), strict=True))
    return split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)


def _blocks(model: nn.Module) -> list[Block]:
    return [part for part in model.modules() if isinstance(part, Block)]
