"""One line more: a minGRU whose state is multiplied by its question before it is read; longer training; two blocks.

Shapes: batch, time, d_model, width (of the state).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import MultiHeadAttention
from tfbook.course.experiments import experiment
from tfbook.lessons.state_spaces.recall import D_MODEL, recall_run, tuned_runs
from tfbook.models.gated import GatedLinearAttention, Lstm, MinGru, min_gru
from tfbook.models.state_spaces import Mamba

WIDTH = 256
JOINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # state and mapped question → what W_O reads
    "read as it is": lambda h, q: h,
    "question added": torch.add,
    "question multiplied": torch.mul,
    "ReLU of the state": lambda h, q: F.relu(h),
    "ReLU of the sum": lambda h, q: F.relu(h + q),
    "SiLU of the sum": lambda h, q: F.silu(h + q),
}
WAYS = tuple(JOINED)


class AskedGru(MinGru):
    """W_O (h_t ⊙ W_Q x_t): a minGRU read by its question, or joined with it in another of the `JOINED` ways.

    "read as it is" is minGRU. No padding and no cache: texts of one length. Raises KeyError for another `way`.
    """

    def __init__(
        self, d_model: int, heads: int, *, way: str = "question multiplied", width: int = WIDTH, **options: Any
    ):
        super().__init__(d_model, heads, width=width, **options)
        self.join = JOINED[way]
        self.W_Q = nn.Linear(d_model, width)

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """The state after each position, joined with the question or not, through W_O."""
        h = self.scan(*min_gru(self.W_Z(x), self.W_H(x)))
        return self.W_O(self.join(h, self.W_Q(x)))

    def parameter_count(self) -> int:
        """minGRU's, and width · (d_model + 1); all ways have them."""
        return super().parameter_count() + self.W_Q.weight.numel() + self.W_Q.out_features

    def flops(self, time: int, **context: Any) -> int:
        """minGRU's, and 2 d_model · width for each position, whose question is mapped."""
        return super().flops(time) + 2 * time * self.W_Q.weight.numel()


@experiment
def asked(ways: Sequence[str] = WAYS, *, steps: int = 500, seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """Facts recalled by one minGRU, read in six ways: the better of two learning rates on seed 0, then seeds."""
    found = []
    for way in ways:
        mixer = partial(AskedGru, way=way)
        for run in tuned_runs(mixer, 1, steps, seeds):
            found.append({"way": way, **run})
            print(found[-1], flush=True)
    return found


LONGER: dict[str, tuple[Any, int, int, float]] = {  # method → mixer, heads, numbers, the rate that was better before
    "Mamba": (partial(Mamba, width=64, state=8), 1, 64 * 11, 1e-2),
    "minGRU": (partial(MinGru, width=WIDTH), 1, WIDTH, 1e-2),
    "LSTM": (partial(Lstm, width=128), 1, 256, 1e-2),
    "gated linear attention": (GatedLinearAttention, 16, D_MODEL**2 // 16, 1e-2),
}


@experiment
def longer(*, steps: Sequence[int] = (500, 1500), seeds: Sequence[int] = (0, 1)) -> list[dict[str, Any]]:
    """Facts recalled after more batches, at the learning rate that was better after 500."""
    found = []
    for method, (mixer, heads, numbers, lr) in LONGER.items():
        for count in steps:
            for seed in seeds:
                shares = recall_run(mixer, heads, lr, count, seed)
                found.append({"method": method, "numbers": numbers, "steps": count, "seed": seed, **shares})
                print(found[-1], flush=True)
    return found


BLOCKS: dict[str, Any] = {  # readers of two blocks: both a Mamba, or the second one attention
    "Mamba": LONGER["Mamba"][0],
    "hybrid": (LONGER["Mamba"][0], MultiHeadAttention),
}


@experiment
def two_blocks(*, steps: int = 500, seeds: Sequence[int] = (0, 1)) -> list[dict[str, Any]]:
    """Facts recalled by readers of two blocks, so that one can be a hybrid; rates as in `recall`."""
    found = []
    for method, mixer in BLOCKS.items():
        for run in tuned_runs(mixer, 1, steps, seeds, layers=2):
            found.append({"method": method, **run})
            print(found[-1], flush=True)
    return found
