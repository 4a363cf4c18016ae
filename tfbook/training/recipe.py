"""How to train: the recipe that `fit` follows."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from torch import nn
from torch.utils._triton import has_triton

from tfbook.training.schedules import Schedule, constant

# Compiling takes 30 s to 60 s and saves 8 ms a step of GPT with 11 million weights and 22 ms with 124 million (H100).
COMPILED_WEIGHTS = 10_000_000
COMPILED_STEPS = 3_000


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long and how to train. `lr` is AdamW's learning rate; `clip` bounds the norm of the gradient.

    `weight_decay` shrinks matrices, embeddings among them, and leaves vectors alone: biases, the weights of norms,
    class tokens and the positions of a grid. The optimizer "muon" takes the matrices of the blocks, with `momentum` and
    steps of size lr · `rms`, and leaves the rest to AdamW. A step reads `accumulate` batches, as if they were one: for
    batches that do not fit into memory at once.

    With `mixed_precision` matrix products run at `runtime.precision()`; steps of many small products, such as those of
    recurrent networks, gain nothing from it. `compile` runs the loss function through `torch.compile`: the first steps
    take from seconds to a minute longer, later ones less. With None that is done where it pays, see `compiles`.
    Several processes compile each block for itself. With `checkpoint_activations` the backward pass computes each block
    once more, and memory holds only the blocks' inputs.
    """

    steps: int
    lr: float = 1e-3
    embedding_lr_factor: float = 1.0  # on the learning rate of an embedding that is tied to the output's matrix
    embedding_decay_factor: float = 1.0  # on its weight decay
    schedule: Schedule = constant
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = 1.0
    optimizer: str = "adamw"  # or "muon"
    momentum: float = 0.95  # Muon's
    rms: float = 0.2  # Muon's, 0.2 being what AdamW's steps have
    accumulate: int = 1
    evaluate_every: int = 100
    checkpoint_every: int = 100
    mixed_precision: bool = True
    compile: bool | None = None
    checkpoint_activations: bool = False

    def __post_init__(self) -> None:
        positive = ("steps", "lr", "embedding_lr_factor", "clip", "rms", "accumulate")
        for name in (*positive, "evaluate_every", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {self.betas}; expected 0 ≤ beta < 1 for both")
        for name in ("weight_decay", "embedding_decay_factor"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}; expected 0 ≤ momentum < 1")
        if self.optimizer not in ("adamw", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}; expected 'adamw' or 'muon'")

    def compiles(self, model: nn.Module, steps: int) -> bool:
        """Whether to compile the loss for so many steps of this model: what `compile` says.

        If it is None, on CUDA where Triton works, from `COMPILED_WEIGHTS` weights and `COMPILED_STEPS` steps on; with
        less, compiling takes longer than it saves.
        """
        if self.compile is not None:
            return self.compile
        weights = list(model.parameters())
        large = sum(weight.numel() for weight in weights) >= COMPILED_WEIGHTS
        return weights[0].device.type == "cuda" and large and steps >= COMPILED_STEPS and _has_compilers()


def _has_compilers() -> bool:
    """Whether Triton is there and knows the GPU, and the compiler of C that it calls."""
    return has_triton() and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
