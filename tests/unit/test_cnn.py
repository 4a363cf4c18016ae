"""The plain convolutional network: its shape, its size, and that its norms do what norms do."""

import pytest
import torch
from torch import nn

from tfbook.models import cnn
from tfbook.models.cnn import Cnn, convolution


def count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def by_formula(labels: int, channels: int, width: int, stages: int) -> int:
    """Nine weights a pair of channels, a gain and a shift for each channel, and the head."""
    widths = [width * 2**stage for stage in range(stages)]
    pairs = list(zip([channels, *widths[:-1]], widths, strict=True))
    return sum(9 * (a * b + b * b) + 4 * b for a, b in pairs) + widths[-1] * labels + labels


@pytest.mark.parametrize(("labels", "channels", "width", "stages"), [(10, 3, 32, 3), (2, 1, 5, 1), (4, 2, 3, 4)])
def test_the_size_is_that_of_the_formula(labels: int, channels: int, width: int, stages: int) -> None:
    model = Cnn(labels, channels=channels, width=width, stages=stages)
    assert count(model) == by_formula(labels, channels, width, stages)


def test_each_stage_is_twice_as_wide_and_half_as_high() -> None:
    model, shapes = Cnn(10, channels=1, width=4), []
    for layer in (model.stem, *model.layers):
        layer.register_forward_hook(lambda layer, inputs, output: shapes.append(tuple(output.shape[1:])))
    assert model(torch.rand(2, 1, 28, 20)).shape == (2, 10)
    assert shapes == [(4, 28, 20)] * 2 + [(8, 14, 10)] * 2 + [(16, 7, 5)] * 2


def test_with_a_stem_of_two_every_stage_is_half_as_high_and_the_size_stays() -> None:
    model, shapes = Cnn.of_size(9000, 10, channels=1, stem=2), []
    for layer in (model.stem, *model.layers):
        layer.register_forward_hook(lambda layer, inputs, output: shapes.append(tuple(output.shape[2:])))
    model(torch.rand(1, 1, 28, 20))
    assert shapes == [(14, 10)] * 2 + [(7, 5)] * 2 + [(4, 3)] * 2
    assert count(model) == count(Cnn.of_size(9000, 10, channels=1))


def test_the_label_is_told_from_the_mean_over_places() -> None:
    model = Cnn(3, channels=2, width=4).eval()
    images = torch.rand(2, 2, 8, 8)
    features = nn.Sequential(model.stem, *model.layers)
    assert torch.equal(model(images), model.head(features(images).flatten(2).mean(dim=2)))


@torch.no_grad()
def test_channels_are_normalised_in_training_by_the_batch_and_afterwards_by_what_it_saw() -> None:
    layer, images = convolution(3, 64), 5 + 2 * torch.rand(16, 3, 8, 8)
    before = layer[0](images)
    normed = layer[1](before)
    assert float(normed.mean(dim=(0, 2, 3)).abs().max()) < 1e-4
    assert float((normed.std(dim=(0, 2, 3)) - 1).abs().max()) < 1e-2
    assert torch.equal(layer(images), normed.relu())
    layer.eval()
    torch.testing.assert_close(layer(images[:1]), layer(images)[:1])  # nothing depends on the others in the batch


@pytest.mark.parametrize("parameters", [10_000, 809_354])
def test_the_widest_is_built_that_is_not_larger(parameters: int) -> None:
    model = Cnn.of_size(parameters, 10, channels=1)
    width = model.stem[0].out_channels
    assert count(model) <= parameters < by_formula(10, 1, width + 1, 3)


def test_fewer_parameters_than_there_can_be_are_refused() -> None:
    smallest = by_formula(10, 3, 1, 3)
    assert count(Cnn.of_size(smallest, 10)) == smallest
    with pytest.raises(ValueError, match=f"parameters is {smallest - 1}; expected {smallest} or more"):
        Cnn.of_size(smallest - 1, 10)


def test_the_widest_of_all_is_still_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parameters are allowed."""
    monkeypatch.setattr(cnn, "WIDEST", 4)
    for width in (3, 4):
        assert Cnn.of_size(by_formula(10, 3, width, 3), 10).stem[0].out_channels == width
    assert Cnn.of_size(10**9, 10).stem[0].out_channels == 4
