"""Tuned paths compute what the plain ones do, and leave alone what they do not know."""

import pytest
import torch
from torch import Tensor, nn

from tfbook.attention import Causal, GroupedQueryAttention, InterpolatedRotary, MultiHeadAttention, Rotary
from tfbook.attention.tuned import AHEAD, PLAIN_ROTATION, Rotation, joined_projections, placed, placed_ahead
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


@pytest.mark.parametrize("position", [Rotary(8), InterpolatedRotary(8, stretch=2.0)], ids=["rotary", "interpolated"])
@pytest.mark.parametrize("start", [0, 7])
def test_a_placed_rotation_turns_as_the_encoding_does(position: Rotary, start: int) -> None:
    x = torch.randn(2, 3, 5, 8)
    rotation = placed(position, start, 5, x.device)
    assert isinstance(rotation, Rotation)
    torch.testing.assert_close(rotation.rotate(x, start), position.rotate(x, start))
    torch.testing.assert_close(rotation.rotate(x[:, :, 2:], start + 2), position.rotate(x[:, :, 2:], start + 2))
    assert rotation.rotate(x.bfloat16(), start).dtype == torch.bfloat16


@pytest.mark.parametrize("position", [Rotary(8), InterpolatedRotary(8, stretch=2.0)], ids=["rotary", "interpolated"])
def test_rotations_computed_ahead_turn_as_the_encoding_does_and_are_renewed(position: Rotary) -> None:
    x, kept = torch.randn(2, 3, 1, 8), None
    for start in (5, 6, 4 + AHEAD, 5 + AHEAD, 2):  # the last two are out of reach
        earlier, kept = kept, placed_ahead(position, start, x.device, kept)
        torch.testing.assert_close(kept.rotate(x, start), position.rotate(x, start))
        assert (kept is earlier) == (start in (6, 4 + AHEAD))
    assert kept is not None
    assert kept.rotate(x.bfloat16(), 2).dtype == torch.bfloat16
    assert placed_ahead(Rotary(8), 2, x.device, kept) is not kept


def test_an_edited_rotation_is_not_passed_over() -> None:
    class Backwards(Rotary):
        def rotate(self, x: Tensor, start: int = 0) -> Tensor:
            return super().rotate(x.flip(-1), start)

    edited = Backwards(8)
    assert placed(edited, 0, 4, torch.device("cpu")) is edited
    assert PLAIN_ROTATION is Rotary.rotate


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
