"""One step of the gated recurrent unit, in the layout of PyTorch's weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn


class CellWeights(NamedTuple):
    """W (input to hidden), U (hidden to hidden) and their biases; each gate is a block of d_hidden rows."""

    W: Float[Tensor, "gates d_input"]
    U: Float[Tensor, "gates d_hidden"]
    b_W: Float[Tensor, " gates"]
    b_U: Float[Tensor, " gates"]

    @classmethod
    def of(cls, layer: nn.RNNBase) -> CellWeights:
        """The weights of the first layer, forward direction, of an nn.RNN, nn.LSTM or nn.GRU."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        return cls(*(getattr(layer, name) for name in names))


def gru_step(
    x: Float[Tensor, "batch d_input"], h: Float[Tensor, "batch d_hidden"], w: CellWeights
) -> Float[Tensor, "batch d_hidden"]:
    """h' = (1 − z) ⊙ n + z ⊙ h: the gate z says how much of h is kept (Cho et al., 2014)."""
    r_x, z_x, n_x = (x @ w.W.T + w.b_W).chunk(3, dim=-1)
    r_h, z_h, n_h = (h @ w.U.T + w.b_U).chunk(3, dim=-1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    return (1 - z) * n + z * h


class LstmState(NamedTuple):
    """The state of an LSTM: its output h, and the cell c, which a gate keeps."""

    h: Float[Tensor, "batch d_hidden"]
    c: Float[Tensor, "batch d_hidden"]


def lstm_step(from_x: Float[Tensor, "batch gates"], state: LstmState, U: Float[Tensor, "gates d_hidden"]) -> LstmState:
    """c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g), h' = σ(o) ⊙ tanh(c') (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    `from_x` is W x with all biases; the gates i, f, g, o in PyTorch's order. They depend on h, so no scan can skip
    ahead.
    """
    i, f, g, o = (from_x + state.h @ U.T).chunk(4, dim=-1)
    c = torch.sigmoid(f) * state.c + torch.sigmoid(i) * torch.tanh(g)
    return LstmState(torch.sigmoid(o) * torch.tanh(c), c)
