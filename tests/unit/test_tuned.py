"""Tuned paths compute what the plain ones do, and leave alone what they do not know."""

import pytest
import torch
from torch import Tensor, nn

from tfbook import attention, runtime
from tfbook.attention import Causal, GroupedQueryAttention, MultiHeadAttention, tuned
from tfbook.attention.tuned import joined_projections
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_joined_projections_are_the_three_in_their_precision(bias: bool, cross: bool) -> None:
    """Outputs and every gradient, to the precision of bfloat16."""
    layer, x = MultiHeadAttention(16, 4, bias=bias), torch.randn(2, 5, 16)
    memory = torch.randn(2, 3, 16) if cross else None
    found = []
    for wanted in (False, True):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if wanted:
                with joined_projections(layer):
                    assert "project" in vars(layer)
                    output = layer(x, memory)
            else:
                output = layer(x, memory)
        output.float().square().sum().backward()
        found.append([output.float(), *(weight.grad for weight in layer.parameters())])
    assert "project" not in vars(layer)
    for plain, joined in zip(*found, strict=True):
        assert (plain - joined).norm() <= 0.02 * plain.norm() + 1e-3


def test_in_float32_nothing_is_joined() -> None:
    layer, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
    with joined_projections(layer):
        found = layer(x, mask=Causal())
    assert torch.equal(found, layer(x, mask=Causal()))


class _Edited(MultiHeadAttention):
    """Stands for a layer that a reader has edited."""


class _Doubled(nn.Linear):
    """What a reader may put in a projection's place."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_what_is_not_known_is_left_alone() -> None:
    """Subclasses, and layers with projections of another kind."""
    doubled = MultiHeadAttention(16, 4)
    doubled.W_K = _Doubled(16, 16)
    model = nn.ModuleList([_Edited(16, 4), GroupedQueryAttention(16, 4), doubled])
    with joined_projections(model):
        assert all("project" not in vars(layer) for layer in model)


def test_joined_projections_end_with_an_error() -> None:
    model = Gpt(9, Config(d_model=16))
    with pytest.raises(KeyError), joined_projections(model):
        raise KeyError
    assert all("project" not in vars(layer) for layer in model.modules())


def test_an_edited_layer_that_takes_the_packages_place_is_left_alone() -> None:
    """Then it is the one that the module calls `MultiHeadAttention`, and projects as it says."""

    class MultiHeadAttention(attention.MultiHeadAttention):
        def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(query, key, value)
            return q, k, 0 * v

    runtime.use(MultiHeadAttention)
    try:
        layer, x = tuned.MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
        with joined_projections(layer), torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(layer(x), layer.W_O(torch.zeros(2, 5, 16)))
    finally:
        runtime.restore()


def test_joined_projections_split_heads_as_the_layer_does() -> None:
    """Three heads of width 4, where exchanging heads and widths would show."""
    layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = layer.project(x, x, x)
        with joined_projections(layer):
            joined = layer.project(x, x, x)
    for one, other in zip(plain, joined, strict=True):
        assert one.shape == (2, 3, 5, 4)
        torch.testing.assert_close(other, one, rtol=0.02, atol=0.02)
