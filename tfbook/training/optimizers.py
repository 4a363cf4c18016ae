"""Optimizers, from gradients to steps: AdamW for every weight, or Muon for the matrices inside the blocks.

Shapes: batch, rows, columns of a matrix of weights.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import AdamW

from tfbook.training.placement import part_of, whole

# ---- AdamW -------------------------------------------------------------------------------------------------------


def tied_embeddings(model: nn.Module) -> set[nn.Parameter]:
    """The embedding matrices that are output matrices, too."""
    outputs = {module.weight for module in model.modules() if isinstance(module, nn.Linear)}
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    return outputs & embeddings  # type: ignore[return-value] # PyTorch declares them as tensors


def added_vectors(model: nn.Module) -> set[nn.Parameter]:
    """Vectors in the shape of a batch of one: class tokens (1, 1, d_model), positions on a grid (1, time, d_model).

    They are added to the vectors of each sequence or placed beside them, and no product uses them as a matrix, as a
    convolution with one output channel uses its kernel. So are those that a module names in its `UNDECAYED`, such as
    the biases of relative places that Swin adds to its scores.
    """
    others = [module for module in model.modules() if not isinstance(module, _ConvNd | nn.Bilinear)]
    own = [parameter for module in others for parameter in module.parameters(recurse=False)]
    named = {getattr(module, name) for module in others for name in getattr(module, "UNDECAYED", ())}
    return named | {parameter for parameter in own if parameter.ndim == 3 and parameter.shape[0] == 1}


def decay_groups(
    parameters: Iterable[nn.Parameter],
    weight_decay: float,
    *,
    embeddings: Collection[nn.Parameter] = (),
    vectors: Collection[nn.Parameter] = (),
    embedding_lr_factor: float = 1,
    embedding_decay_factor: float = 1,
) -> list[dict[str, Any]]:
    """Groups for an optimizer: matrices shrink by `weight_decay`; vectors (biases, weights of norms) do not.

    Embeddings are matrices, those of learned positions among them. `vectors` are parameters with more axes that do not
    shrink either, such as `added_vectors` of a model (so in DeiT's code, Touvron et al., 2021).

    `embeddings` learn at the learning rate times `embedding_lr_factor` and shrink by `weight_decay` times
    `embedding_decay_factor`: a row of them has a gradient only where its token occurs, but shrinks at every step.
    """
    parameters, tied = list(parameters), set(embeddings)
    staying = {p for p in parameters if p.ndim < 2} | set(vectors)
    shrinking = [p for p in parameters if p not in tied and p not in staying]
    groups = [
        {"params": shrinking, "weight_decay": weight_decay},
        {
            "params": [p for p in parameters if p in tied],
            "weight_decay": weight_decay * embedding_decay_factor,
            "lr_factor": embedding_lr_factor,
        },
        {"params": [p for p in parameters if p in staying], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def adamw(
    parameters: Iterable[nn.Parameter],
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    embeddings: Collection[nn.Parameter] = (),
    vectors: Collection[nn.Parameter] = (),
    embedding_lr_factor: float = 1,
    embedding_decay_factor: float = 1,
) -> torch.optim.Optimizer:
    """PyTorch's AdamW (Loshchilov & Hutter, 2019), fused into one CUDA kernel or CPU loop where there is one."""
    groups = decay_groups(
        parameters,
        weight_decay,
        embeddings=embeddings,
        vectors=vectors,
        embedding_lr_factor=embedding_lr_factor,
        embedding_decay_factor=embedding_decay_factor,
    )
    fused = groups[0]["params"][0].device.type in ("cpu", "cuda")
    return AdamW(groups, lr=lr, betas=betas, fused=fused)


# ---- Muon --------------------------------------------------------------------------------------------------------

QUINTIC = (3.4445, -4.7750, 2.0315)  # a, b, c: small singular values grow 3.4-fold per step, none ends above 1.2
STEPS = 5


def orthogonal(x: Float[Tensor, "batch rows columns"], steps: int = STEPS) -> Float[Tensor, "batch rows columns"]:
    """Approximately U Vᵀ for each matrix U S Vᵀ: all directions equally long (Jordan et al., 2024).

    The Newton–Schulz iteration x ← a x + b (x xᵀ) x + c (x xᵀ)² x maps each singular value s
    to the polynomial a s + b s³ + c s⁵. Five steps bring those above a hundredth of the norm
    to between 0.68 and 1.13.
    """
    if x.shape[1] > x.shape[2]:
        return orthogonal(x.mT, steps).mT  # the products below are those of the short side
    a, b, c = QUINTIC
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-12)  # no singular value above 1
    for _ in range(steps):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    """m ← μ m + g, then W ← (1 − lr · decay) W − lr · rms · √max(rows, columns) · orthogonal(g + μ m).

    Nesterov momentum, with all its directions made equally long (Jordan et al., 2024). An orthogonal matrix has entries
    of size 1 / √max(rows, columns), so those of a step have the size lr · `rms`; with 0.2 it is that of AdamW's steps,
    so AdamW's learning rate fits (Liu et al., 2025, section 2.2). The kernel of a convolution is a matrix with a row
    for each output channel. Of a matrix in parts, each process gathers the whole step and keeps its part. Raises
    ValueError for vectors.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        rms: float = 0.2,
    ):
        matrices = sorted(matrices, key=lambda matrix: tuple(matrix.shape))
        if other := [tuple(matrix.shape) for matrix in matrices if matrix.ndim < 2]:
            raise ValueError(f"matrices holds a parameter of shape {other[0]}; expected rows and columns")
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "rms": rms})
        self.found_inf: Tensor | None = None  # as PyTorch's fused optimizers have it, see `skippable`

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Takes one step; while `found_inf` is 1, it changes nothing.

        Matrices of one shape take it together: three times as fast for small ones.
        """
        for group in self.param_groups:
            trained = [matrix for matrix in group["params"] if matrix.grad is not None]
            for shape, alike in groupby(trained, key=lambda matrix: tuple(matrix.flatten(1).shape)):
                self._step(list(alike), group["rms"] * math.sqrt(max(shape)), group)

    def _step(self, matrices: list[nn.Parameter], scale: float, group: dict[str, Any]) -> None:
        skip = None if self.found_inf is None else self.found_inf == 1
        fading = _unless(skip, group["momentum"], 1.0)
        steps = [whole(self._nesterov(matrix, fading, group["momentum"], skip)).flatten(1) for matrix in matrices]
        directions = _unless(skip, orthogonal(torch.stack(steps)), 0.0)
        kept = _unless(skip, 1 - group["lr"] * group["weight_decay"], 1.0)
        for matrix, direction in zip(matrices, directions, strict=True):
            own = part_of(direction.reshape(matrix.shape), like=matrix)
            matrix.mul_(kept).sub_(own, alpha=group["lr"] * scale)

    def _nesterov(
        self, matrix: nn.Parameter, fading: float | Tensor, momentum: float, skip: Bool[Tensor, ""] | None
    ) -> Tensor:
        state = self.state[matrix]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(matrix)
        gradient = _unless(skip, matrix.grad, 0.0)
        return gradient.add(state["momentum"].mul_(fading).add_(gradient), alpha=momentum)


def _unless(skip: Bool[Tensor, ""] | None, value: Any, otherwise: float) -> Any:
    """`value`, or `otherwise` if `skip`; the device chooses alone, while `torch.where` would wait to send a number."""
    if skip is None:
        return value
    value = value if isinstance(value, Tensor) else torch.full((), value, device=skip.device)
    return value.masked_fill(skip, otherwise)


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices and kernels inside the model's blocks (the modules of an `nn.ModuleList`), without embeddings.

    Raises ValueError when there are none.
    """
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    inside = dict.fromkeys(parameter for stack in stacks for parameter in stack.parameters())
    matrices = [parameter for parameter in inside if parameter.ndim in (2, 4) and parameter not in embeddings]
    if not matrices:
        raise ValueError(f"model {type(model).__name__} has no matrices in an nn.ModuleList; expected blocks with some")
    return matrices


class ChainedOptimizer:
    """Optimizers of different weights that take their steps together, behind the interface of one."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all of them."""
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears every gradient."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self) -> None:
        """Each optimizer takes its step."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Their states in order."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the states that `state_dict` returned; changes nothing when it raises."""
        before = self.state_dict()
        try:
            for part, own in zip(self.parts, state["parts"], strict=True):
                part.load_state_dict(own)
        except Exception:
            for part, own in zip(self.parts, before["parts"], strict=True):
                part.load_state_dict(own)
            raise


Optimizer = torch.optim.Optimizer | ChainedOptimizer  # what `fit` and checkpoints work with


def members(optimizer: Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    """The optimizers in a chain, or the one."""
    return optimizer.parts if isinstance(optimizer, ChainedOptimizer) else (optimizer,)


def skippable(optimizer: Optimizer, device: torch.device) -> Float[Tensor, ""]:
    """A number on the device, 0 at first: while it is 1, steps change neither weights nor the optimizer's state.

    Nothing waits for it. It is `found_inf`, by which PyTorch's GradScaler has a fused AdamW skip a step; Muon does the
    same.
    """
    skips = torch.zeros((), device=device)
    for part in members(optimizer):
        part.found_inf = skips  # type: ignore[attr-defined] # which PyTorch reads where it is
    return skips


def muon(
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    momentum: float,
    rms: float,
    embedding_lr_factor: float = 1,
    embedding_decay_factor: float = 1,
) -> ChainedOptimizer:
    """Muon for the hidden matrices; AdamW for embeddings and vectors, at the same learning rate."""
    matrices = hidden_matrices(model)
    hidden = set(matrices)
    rest = [parameter for parameter in model.parameters() if parameter not in hidden]
    return ChainedOptimizer(
        Muon(matrices, lr=lr, momentum=momentum, weight_decay=weight_decay, rms=rms),
        adamw(
            rest,
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            embeddings=tied_embeddings(model),
            vectors=added_vectors(model),
            embedding_lr_factor=embedding_lr_factor,
            embedding_decay_factor=embedding_decay_factor,
        ),
    )
