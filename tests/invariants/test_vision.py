"""Every model of lesson 14 has every property of a ViT, whatever mixes its patches; each property was seen to fail.

What fails for a model that lacks it is in `test_vit.py`, with the same functions.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import MultiHeadAttention, record
from tfbook.attention.efficient import Axial, Neighborhood, Windowed
from tfbook.course.invariants import TOLERANCE, convexity, idle_key_biases, missing_gradients, round_trip_gap
from tfbook.models.attentive_cnn import AttentiveCnn
from tfbook.models.captioner import Captioner, CaptionerConfig
from tfbook.models.config import Savable
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.detr import Detr, DetrConfig
from tfbook.models.patch_mixers import convolutional, mlp_mixer, res_mlp
from tfbook.models.swin import Swin, SwinConfig
from tfbook.models.vit import Vit, VitConfig
from tfbook.training.losses import caption_loss
from tfbook.training.set_prediction import Objects, detection_loss

LABELS = 3
SIZES = VitConfig(
    d_model=16, heads=2, d_ff=24, layers=2, height=8, width=12, channels=2, patch=2, dropout=0.1, tokens=0
)
SWIN = SwinConfig(d_model=8, depths=(2, 2), heads=(2, 2), window=2, patch=2, channels=2, dropout=0.1)
CONV_MIXER = ConvMixerConfig(d_model=8, layers=2, kernel=3, patch=2, channels=2)
DETR = DetrConfig(
    d_model=16, heads=2, d_ff=24, layers=2, height=8, width=12, channels=2, backbone=(6, 6), queries=4, dropout=0.1
)
CAPTIONER = CaptionerConfig(
    vocab=9, height=8, width=12, channels=2, backbone=(4,), d_features=6, d_embed=4, d_hidden=5, dropout=0.1
)
IMAGES = torch.rand(6, 2, 8, 12, generator=torch.Generator().manual_seed(0))
RIGHT = torch.arange(6) % LABELS
WORDS = torch.tensor([[1, 4, 5, 2, 0], [1, 6, 7, 8, 2], [1, 5, 2, 0, 0]] * 2)
BOX = torch.tensor([[0.1, 0.2, 0.5, 0.6], [0.4, 0.3, 0.9, 0.8]])
OBJECTS = [Objects(torch.tensor([number % LABELS, 1]), BOX) for number in range(6)]


class Case(NamedTuple):
    """A model, its loss on the images, and what it says of them."""

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module], Tensor]
    said: Callable[[nn.Module, Tensor], Tensor]


def labelled(build: Callable[[], nn.Module]) -> Case:
    return Case(build, lambda m: F.cross_entropy(m(IMAGES).float(), RIGHT), lambda m, images: m(images))


def vit(config: VitConfig) -> Case:
    return labelled(lambda: Vit(LABELS, config))


def on_a_grid(attention: object) -> Case:
    return vit(replace(SIZES, mixer=partial(MultiHeadAttention, implementation=attention)))


def words_of(model: nn.Module, images: Tensor) -> Tensor:
    return model(images, WORDS[: len(images), :-1]).logits


ATTENTIVE = {
    "windows": on_a_grid(Windowed(6, 2)),
    "shifted windows": on_a_grid(Windowed(6, 4, 1)),
    "neighborhood": on_a_grid(Neighborhood(6)),
    "axes": on_a_grid(Axial(6)),
    "Swin": labelled(lambda: Swin(LABELS, SWIN)),
    "CNN with attention": labelled(lambda: AttentiveCnn(LABELS, channels=2, width=8)),
    "DETR": Case(
        lambda: Detr(LABELS, DETR),
        lambda m: detection_loss(m, IMAGES, OBJECTS).mean,
        lambda m, images: torch.cat(m(images), dim=-1),
    ),
}
CASES = ATTENTIVE | {
    "Mixer": vit(mlp_mixer(SIZES, d_tokens=10)),
    "ResMLP": vit(res_mlp(SIZES)),
    "depthwise convolution": vit(convolutional(SIZES)),
    "ConvMixer": labelled(lambda: ConvMixer(LABELS, CONV_MIXER)),
    "captioner": Case(lambda: Captioner(CAPTIONER), lambda m: caption_loss(m, IMAGES, WORDS).mean, words_of),
}
every_model = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def drawn(model: nn.Module) -> nn.Module:
    """With weights large enough that what a model says depends on what it sees."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


@every_model
@torch.no_grad()
def test_an_image_is_judged_alone_and_looked_at(case: Case) -> None:
    model = drawn(case.build()).eval()
    together = case.said(model, IMAGES)[:2]
    assert float((together - case.said(model, IMAGES[:2])).abs().max()) < TOLERANCE
    assert float((together - case.said(model, IMAGES[2:4])).abs().max()) > 100 * TOLERANCE


@every_model
def test_a_saved_model_computes_the_same(case: Case) -> None:
    assert round_trip_gap(drawn(case.build()).eval(), lambda m: case.said(m, IMAGES)) == 0


@every_model
def test_every_weight_gets_a_finite_gradient(case: Case, precision: str) -> None:
    """In training, with dropout, in each precision; the bias of the keys alone may have none."""
    model = drawn(case.build())
    assert missing_gradients(model, case.loss, idle_key_biases(model)) == 0


@every_model
def test_in_autocast_the_loss_is_float32_and_near(case: Case) -> None:
    model = drawn(case.build()).eval()
    exact = case.loss(model)
    with torch.autocast("cpu", torch.bfloat16):
        rough = case.loss(model)
    assert rough.dtype == torch.float32
    assert float(rough.detach()) == pytest.approx(float(exact.detach()), rel=0.05)


@every_model
@torch.no_grad()
def test_training_differs_from_evaluation_by_dropout_and_batch_norm_alone(case: Case) -> None:
    model = drawn(case.build())
    said = [case.said(model.train(training), IMAGES) for training in (True, False, False)]
    assert not torch.isclose(said[0], said[1]).all()
    assert torch.equal(said[1], said[2])
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):  # attention's is a number
            module.dropout = 0.0
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    torch.testing.assert_close(case.said(model, IMAGES), said[1])


@pytest.mark.parametrize("case", ATTENTIVE.values(), ids=ATTENTIVE)
@torch.no_grad()
def test_recorded_weights_are_convex_and_recording_changes_nothing(case: Case) -> None:
    model = drawn(case.build()).eval()
    expected = case.said(model, IMAGES)
    with record(model) as maps:
        recorded = case.said(model, IMAGES)
    torch.testing.assert_close(recorded, expected, atol=1e-5, rtol=1e-4)
    assert maps
    for weights in maps.values():
        assert convexity(weights, weights > 0) < TOLERANCE


@pytest.mark.parametrize("name", ["Swin", "ConvMixer"])
@torch.no_grad()
def test_without_positions_in_the_weights_other_sizes_are_read(name: str) -> None:
    model = drawn(CASES[name].build()).eval()
    assert model(torch.rand(2, 2, 14, 6)).shape == (2, LABELS)


@pytest.mark.parametrize("config", [SWIN, CONV_MIXER, DETR, CAPTIONER], ids=lambda config: type(config).__name__)
def test_sizes_survive_json(config: Savable) -> None:
    """Those that are tuples, too."""
    assert type(config).from_dict(json.loads(json.dumps(config.to_dict()))) == config
