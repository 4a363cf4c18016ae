"""The cells written out, against PyTorch's own layers with the same weights: values and gradients."""

from collections.abc import Callable
from inspect import unwrap

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tfbook.models.recurrent import CellWeights, HiddenState, gru_step, lstm_step, rnn_step, unroll

CELLS = [(nn.RNN, rnn_step), (nn.GRU, gru_step), (nn.LSTM, lstm_step)]
SIZE = st.integers(1, 5)

Step = Callable[[Tensor, HiddenState, CellWeights], HiddenState]


def _state(layer: nn.RNNBase, batch: int) -> HiddenState:
    """A random first state in the form that the step takes: h, or (h, c)."""
    h, c = torch.randn(2, batch, layer.hidden_size, dtype=torch.float64)
    return (h, c) if isinstance(layer, nn.LSTM) else h


def _of_pytorch(layer: nn.RNNBase, x: Tensor, state: HiddenState) -> Tensor:
    first = (state[0][None], state[1][None]) if isinstance(state, tuple) else state[None]
    return layer(x, first)[0]


@pytest.mark.parametrize(("kind", "step"), CELLS, ids=["rnn", "gru", "lstm"])
@given(batch=SIZE, time=SIZE, d_input=SIZE, d_hidden=SIZE)
def test_unrolled_cells_are_the_layers_of_pytorch(
    kind: type[nn.RNNBase], step: Step, batch: int, time: int, d_input: int, d_hidden: int
) -> None:
    """States and every gradient agree to 1e-10 in double precision."""
    layer = kind(d_input, d_hidden, batch_first=True).double()
    x, state = torch.randn(batch, time, d_input, dtype=torch.float64, requires_grad=True), _state(layer, batch)
    ours, theirs = unroll(step, x, state, CellWeights.of(layer)), _of_pytorch(layer, x, state)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    inputs = [x, *layer.parameters()]
    weighting = torch.randn_like(ours)
    for found, expected in zip(
        torch.autograd.grad((ours * weighting).sum(), inputs),
        torch.autograd.grad((theirs * weighting).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("kind", "step"), CELLS, ids=["rnn", "gru", "lstm"])
def test_one_step_continues_from_the_state_before(kind: type[nn.RNNBase], step: Step) -> None:
    """Two halves, the second begun where the first ended, are the whole; the LSTM's cell is carried, too."""
    layer = kind(3, 4, batch_first=True).double()
    weights, x, state = CellWeights.of(layer), torch.randn(2, 5, 3, dtype=torch.float64), _state(layer, 2)
    whole = unroll(step, x, state, weights)
    for x_t in x[:, :2].unbind(dim=1):
        state = step(x_t, state, weights)
    torch.testing.assert_close(unroll(step, x[:, 2:], state, weights), whole[:, 2:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3), (2, 5, 4)], ids=["no time", "no batch", "other width"])
def test_unroll_names_the_input_that_does_not_fit(shape: tuple[int, ...]) -> None:
    layer, expected = nn.GRU(3, 4), r"expected \(batch, time of 1 or more, d_input = 3\)"
    with pytest.raises(ValueError, match=f"x has shape .*; {expected}"):
        unwrap(unroll)(gru_step, torch.zeros(shape), torch.zeros(2, 4), CellWeights.of(layer))
