"""The cell written out, against PyTorch's own layer with the same weights: values and gradients."""

import torch
from hypothesis import given, strategies as st
from torch import nn

from tfbook.models.recurrent import CellWeights, gru_step

SIZE = st.integers(1, 5)


@given(batch=SIZE, time=SIZE, d_input=SIZE, d_hidden=SIZE)
def test_unrolled_cells_are_the_layer_of_pytorch(batch: int, time: int, d_input: int, d_hidden: int) -> None:
    """States and every gradient agree to 1e-10 in double precision."""
    layer = nn.GRU(d_input, d_hidden, batch_first=True).double()
    x = torch.randn(batch, time, d_input, dtype=torch.float64, requires_grad=True)
    first = torch.randn(batch, d_hidden, dtype=torch.float64)
    states = [first]
    for x_t in x.unbind(dim=1):
        states.append(gru_step(x_t, states[-1], CellWeights.of(layer)))
    ours, theirs = torch.stack(states[1:], dim=1), layer(x, first[None])[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    inputs = [x, *layer.parameters()]
    weighting = torch.randn_like(ours)
    for found, expected in zip(
        torch.autograd.grad((ours * weighting).sum(), inputs),
        torch.autograd.grad((theirs * weighting).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
