"""Feed-forward networks. Shapes: batch, time, d_model, d_ff."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

# ---- the parts of a block ----------------------------------------------------------------------------------------


class FeedForward(nn.Module):
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
        """No position sees another: what moves information between positions is attention alone."""
        return self.down(self.dropout(self.activation(self.up(x))))
