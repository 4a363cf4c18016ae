"""One step of each recurrent cell, in the layout of PyTorch's weights, and the loop that unrolls it over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

HiddenState = Tensor | tuple[Tensor, Tensor]  # a hidden state h, or (h, c) for the LSTM


class CellWeights(NamedTuple):
    """W (input to hidden), U (hidden to hidden) and their biases; g gates are g blocks of d_hidden rows."""

    W: Float[Tensor, "gates d_input"]
    U: Float[Tensor, "gates d_hidden"]
    b_W: Float[Tensor, " gates"]
    b_U: Float[Tensor, " gates"]

    @classmethod
    def of(cls, layer: nn.RNNBase) -> CellWeights:
        """The weights of the first layer, forward direction, of nn.RNN, nn.LSTM or nn.GRU."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        return cls(*(getattr(layer, name) for name in names))


def rnn_step(
    x: Float[Tensor, "batch d_input"], h: Float[Tensor, "batch d_hidden"], w: CellWeights
) -> Float[Tensor, "batch d_hidden"]:
    """h' = tanh(W x + U h + b): everything old is rewritten at every step (Elman, 1990)."""
    return torch.tanh(x @ w.W.T + w.b_W + h @ w.U.T + w.b_U)


def gru_step(
    x: Float[Tensor, "batch d_input"], h: Float[Tensor, "batch d_hidden"], w: CellWeights
) -> Float[Tensor, "batch d_hidden"]:
    """h' = (1 − z) ⊙ n + z ⊙ h: the gate z says how much of h is kept (Cho et al., 2014)."""
    r_x, z_x, n_x = (x @ w.W.T + w.b_W).chunk(3, dim=-1)
    r_h, z_h, n_h = (h @ w.U.T + w.b_U).chunk(3, dim=-1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    return (1 - z) * n + z * h


def lstm_step(
    x: Float[Tensor, "batch d_input"], state: tuple[Tensor, Tensor], w: CellWeights
) -> tuple[Float[Tensor, "batch d_hidden"], Float[Tensor, "batch d_hidden"]]:
    """c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh(c'): the cell is a sum, so gradients pass (Gers et al., 2000)."""
    h, c = state
    i, f, g, o = (x @ w.W.T + w.b_W + h @ w.U.T + w.b_U).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def unroll(
    step: Callable[[Tensor, HiddenState, CellWeights], HiddenState],
    x: Float[Tensor, "batch time d_input"],
    state: HiddenState,
    weights: CellWeights,
) -> Float[Tensor, "batch time d_hidden"]:
    """The hidden states h_1 … h_T: a loop, because each step needs the one before.

    Raises ValueError when `x` has no time steps or does not fit the weights.
    """
    if x.ndim != 3 or x.shape[1] == 0 or x.shape[2] != weights.W.shape[1]:
        expected = f"(batch, time of 1 or more, d_input = {weights.W.shape[1]})"
        raise ValueError(f"x has shape {tuple(x.shape)}; expected {expected}")
    states = []
    for x_t in x.unbind(dim=1):
        state = step(x_t, state, weights)
        states.append(state[0] if isinstance(state, tuple) else state)
    return torch.stack(states, dim=1)
