"""Feed-forward networks, applied to each position independently. Shapes: batch, time, d_model, d_ff."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.parts import Part


class FeedForward(Part):
    """FFN(x) = activation(x W₁ + b₁) W₂ + b₂, the same for each position (Vaswani et al., 2017, section 3.3)."""

    def __init__(
        self, d_model: int, d_ff: int, *, activation: Callable[[Tensor], Tensor] = F.relu, dropout: float = 0.0
    ):
        super().__init__()
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
        """Positions do not interact: only attention moves information between them."""
        return self.down(self.dropout(self.activation(self.up(x))))

    @property
    def output(self) -> nn.Linear:
        """The down-projection."""
        return self.down

    def parameter_count(self) -> int:
        """2 d_model · d_ff + d_ff + d_model."""
        d_ff, d_model = self.up.weight.shape
        return 2 * d_model * d_ff + d_ff + d_model

    def flops(self, time: int) -> int:
        """4 d_model · d_ff for each position."""
        d_ff, d_model = self.up.weight.shape
        return 4 * time * d_model * d_ff


class SwiGLU(Part):
    """(swish(x W_gate) ⊙ x W_up) W_down: one projection gates the other (Shazeer, 2020, eq. 6).

    Three matrices instead of two, without biases; reducing d_ff by a third keeps the number of parameters.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0):
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
        """Positions do not interact."""
        return self.down(self.dropout(F.silu(self.gate(x)) * self.up(x)))

    @property
    def output(self) -> nn.Linear:
        """The down-projection."""
        return self.down

    def parameter_count(self) -> int:
        """3 d_model · d_ff."""
        return 3 * self.up.weight.numel()

    def flops(self, time: int) -> int:
        """6 d_model · d_ff for each position."""
        return 6 * time * self.up.weight.numel()
