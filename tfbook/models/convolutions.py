"""Causal dilated convolutions as mixers of a block, and how far a stack of them sees.

Shapes: batch, time, d_model; kernel, the number of positions that one output reads; a dilation of d reads every d-th.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.checks import check_dropout, check_positive
from tfbook.parts import Part

# ---- how far a stack sees ----------------------------------------------------------------------------------------


def receptive_field(
    kernels: Sequence[int], dilations: Sequence[int] | None = None, strides: Sequence[int] | None = None
) -> int:
    """1 + Σ (k − 1) · d · (product of the strides of all layers before): the inputs that one output depends on.

    One number per layer, from the first to the last; dilations and strides are 1 unless they are given. Raises
    ValueError for lists of different lengths and for numbers below 1.
    """
    lists = [[1] * len(kernels) if numbers is None else list(numbers) for numbers in (kernels, dilations, strides)]
    if len({len(numbers) for numbers in lists}) > 1:
        found = ", ".join(str(len(numbers)) for numbers in lists)
        raise ValueError(f"kernels, dilations and strides hold {found} numbers; expected one per layer in each")
    seen = step = 1
    for k, d, s in zip(*lists, strict=True):
        check_positive(kernel=k, dilation=d, stride=s)
        seen += (k - 1) * d * step
        step *= s
    return seen


# ---- the operation -----------------------------------------------------------------------------------------------


class RecentInputs:
    """The last (kernel − 1) · dilation inputs of a causal convolution, which is all that its next outputs need.

    Its size does not grow with the text. For decoding; zeros stand in front of the first position.
    """

    def __init__(self) -> None:
        self.inputs: Tensor | None = None

    def extend(
        self, x: Float[Tensor, "batch time d_model"], reach: int
    ) -> Float[Tensor, "batch reach_and_time d_model"]:
        """The kept inputs followed by x, whose last `reach` are kept. Raises ValueError for another batch size."""
        if self.inputs is None:
            self.inputs = x.new_zeros(len(x), reach, x.shape[2])
        if len(self.inputs) != len(x):
            raise ValueError(f"x holds {len(x)} sequences; the cache holds {len(self.inputs)}")
        seen = torch.cat([self.inputs, x], dim=1)
        self.inputs = seen[:, seen.shape[1] - reach :]
        return seen

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keeps the sequences `rows`, in that order."""
        self.inputs = None if self.inputs is None else self.inputs[rows]


def convolution_inputs(
    seen: Float[Tensor, "batch reach_and_time d_model"], kernel: int, dilation: int
) -> Float[Tensor, "batch time kernel_d_model"]:
    """[x_{t−(k−1)d}; …; x_{t−d}; x_t] side by side for each t, from inputs that begin (k − 1) · d positions earlier.

    A convolution is a linear layer of these.
    """
    time = seen.shape[1] - (kernel - 1) * dilation
    return torch.cat([seen[:, i * dilation : i * dilation + time] for i in range(kernel)], dim=-1)


class CausalConvolution(Part):
    """The common part of causal convolutions: how far they reach, their cache, and their inputs side by side."""

    def __init__(self, d_model: int, heads: int, *, kernel: int = 2, dilation: int = 1, dropout: float = 0.0):
        super().__init__()
        check_positive(kernel=kernel, dilation=dilation)
        check_dropout(dropout)
        self.kernel, self.dilation = kernel, dilation

    @property
    def reach(self) -> int:
        """(kernel − 1) · dilation: how many positions back the earliest input is."""
        return (self.kernel - 1) * self.dilation

    def new_cache(self) -> RecentInputs:
        """No inputs yet."""
        return RecentInputs()

    def read(
        self, x: Float[Tensor, "batch time d_model"], cache: RecentInputs | None
    ) -> Float[Tensor, "batch time kernel_d_model"]:
        """The inputs of each output side by side: `convolution_inputs` after what the cache holds, or zeros."""
        seen = (RecentInputs() if cache is None else cache).extend(x, self.reach)
        return convolution_inputs(seen, self.kernel, self.dilation)


# ---- mixers ------------------------------------------------------------------------------------------------------


class DilatedConvolution(CausalConvolution):
    """y_t = Σ_i W_i x_{t − i·d} + b for i = 0 … kernel − 1: weights by distance alone, whatever the contents.

    (Van den Oord et al., 2016, section 2.1.) Heads and dropout mean nothing to it, and as cross-attention it would read
    no memory. Raises ValueError for a kernel or dilation below 1.
    """

    def __init__(self, d_model: int, heads: int, *, kernel: int = 2, dilation: int = 1, dropout: float = 0.0):
        super().__init__(d_model, heads, kernel=kernel, dilation=dilation, dropout=dropout)
        self.W = nn.Linear(kernel * d_model, d_model)  # W_{kernel − 1}, …, W_0: the earliest input first

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecentInputs | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """Before the first position stand zeros; with a cache, x continues what earlier calls have read."""
        return self.W(self.read(x, cache))

    @property
    def output(self) -> nn.Linear:
        """W."""
        return self.W

    def parameter_count(self) -> int:
        """kernel · d_model² + d_model."""
        return self.W.weight.numel() + self.W.out_features

    def flops(self, time: int, **context: Any) -> int:
        """2 kernel · d_model² for each position, however many came before."""
        return 2 * time * self.W.weight.numel()


class GatedConvolution(CausalConvolution):
    """W_O (tanh(F ∗ x) ⊙ σ(G ∗ x)): one dilated convolution decides how much of another passes.

    (Van den Oord et al., 2016, eq. 2.) Arguments and errors are those of `DilatedConvolution`.
    """

    def __init__(self, d_model: int, heads: int, *, kernel: int = 2, dilation: int = 1, dropout: float = 0.0):
        super().__init__(d_model, heads, kernel=kernel, dilation=dilation, dropout=dropout)
        self.filter = nn.Linear(kernel * d_model, d_model)
        self.gate = nn.Linear(kernel * d_model, d_model)
        self.W_O = nn.Linear(d_model, d_model)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecentInputs | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """Before the first position stand zeros; with a cache, x continues what earlier calls have read."""
        return self.W_O(self.gated(x, cache))

    def gated(
        self, x: Float[Tensor, "batch time d_model"], cache: RecentInputs | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """tanh(F ∗ x) ⊙ σ(G ∗ x), before W_O."""
        inputs = self.read(x, cache)
        return torch.tanh(self.filter(inputs)) * torch.sigmoid(self.gate(inputs))

    @property
    def output(self) -> nn.Linear:
        """W_O."""
        return self.W_O

    def parameter_count(self) -> int:
        """(2 kernel + 1) d_model² + 3 d_model."""
        return sum(layer.weight.numel() + layer.out_features for layer in (self.filter, self.gate, self.W_O))

    def flops(self, time: int, **context: Any) -> int:
        """2 (2 kernel + 1) d_model² for each position."""
        return 2 * time * sum(layer.weight.numel() for layer in (self.filter, self.gate, self.W_O))
