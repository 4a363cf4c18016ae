"""Steps of recurrent layers on a device that is no CPU: PyTorch calls these fused operations, which no CPU has.

Gates are the two products, of the input and of the state; cells add them and their biases. Sources: PyTorch's
`aten/src/ATen/native/cuda/RNN.cu`; Cho et al. (2014) for the GRU, Gers et al. (2000) for the LSTM.
"""

from __future__ import annotations

import torch
from torch import Tensor

Grads = tuple[Tensor | None, ...]


def gru(
    input_gates: Tensor, state_gates: Tensor, state: Tensor, input_bias: Tensor | None, state_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The next state, n + z (h − n) with n = tanh(W x + r U h), and what `gru_backward` needs."""
    ir, iz, i_new = _biased(input_gates, input_bias).chunk(3, -1)
    sr, sz, s_new = _biased(state_gates, state_bias).chunk(3, -1)
    reset, update = torch.sigmoid(ir + sr), torch.sigmoid(iz + sz)
    new = torch.tanh(i_new + reset * s_new)
    return new + update * (state - new), torch.cat([reset, update, new, state, s_new], -1)


def gru_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> Grads:
    """The gradients of both gates, the state and both biases."""
    reset, update, new, state, s_new = workspace.chunk(5, -1)
    d_new = grad * (1 - update) * (1 - new * new)
    d_update = grad * (state - new) * update * (1 - update)
    d_reset = d_new * s_new * reset * (1 - reset)
    of_input, of_state = torch.cat([d_reset, d_update, d_new], -1), torch.cat([d_reset, d_update, d_new * reset], -1)
    return of_input, of_state, grad * update, *((of_input.sum(0), of_state.sum(0)) if has_bias else (None, None))


def lstm(
    input_gates: Tensor, state_gates: Tensor, cell: Tensor, input_bias: Tensor | None, state_bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The next state, o tanh(c), the next cell, c = f c + i g, and what `lstm_backward` needs."""
    i, f, g, o = (_biased(input_gates, input_bias) + _biased(state_gates, state_bias)).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], -1)


def lstm_backward(
    grad: Tensor | None, grad_cell: Tensor | None, before: Tensor, after: Tensor, workspace: Tensor, has_bias: bool
) -> Grads:
    """The gradients of the gates, the cell before and the biases."""
    i, f, g, o = workspace.chunk(4, -1)
    grad = torch.zeros_like(before) if grad is None else grad
    through = grad * o * (1 - after.tanh() ** 2) + (0 if grad_cell is None else grad_cell)
    d_i, d_f, d_g = through * g * i * (1 - i), through * before * f * (1 - f), through * i * (1 - g * g)
    gates = torch.cat([d_i, d_f, d_g, grad * after.tanh() * o * (1 - o)], -1)
    return gates, through * f, gates.sum(0) if has_bias else None


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias
