"""The parts around attention against PyTorch's, with the same weights."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tfbook import invariants
from tfbook.transformer import FeedForward


@pytest.mark.parametrize("activation", [F.relu, F.gelu], ids=["relu", "gelu"])
def test_feed_forward_is_that_of_pytorchs_encoder_layer(activation: object) -> None:
    """Without its residual branch and norm, the second half of `nn.TransformerEncoderLayer`."""
    ours = FeedForward(6, 10, activation=activation, dropout=0.5).double().eval()
    theirs = nn.TransformerEncoderLayer(6, 2, 10, activation=activation, dtype=torch.float64).eval()
    theirs.linear1.load_state_dict(ours.widen.state_dict())
    theirs.linear2.load_state_dict(ours.narrow.state_dict())
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs._ff_block(x))


def test_feed_forward_is_position_wise_in_train_mode_as_well() -> None:
    layer = FeedForward(4, 8, dropout=0.3).double()
    sizes = invariants.dependence(layer, torch.randn(1, 5, 4, dtype=torch.float64))
    assert torch.equal(sizes, torch.diag(sizes.diag()))
    assert sizes.diag().any()


def test_dropout_stands_between_the_two_maps() -> None:
    """With every hidden unit dropped only the last bias is left."""
    layer = FeedForward(4, 8, dropout=1.0)
    torch.testing.assert_close(layer(torch.randn(1, 2, 4)), layer.narrow.bias.expand(1, 2, 4))
