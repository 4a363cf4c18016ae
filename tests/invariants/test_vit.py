"""Every model that reads images has every property, and each property fails for one that lacks it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import POSITIONS, record
from tfbook.course.invariants import TOLERANCE, convexity, idle_key_biases, missing_gradients, round_trip_gap
from tfbook.models.blocks import PostNorm
from tfbook.models.cnn import Cnn
from tfbook.models.vit import Deit, LearnedGrid, Vit, VitConfig
from tfbook.training import hard_distillation, soft_distillation

LABELS = 3
SIZES = VitConfig(d_model=16, heads=2, d_ff=24, layers=3, height=8, width=12, channels=2, patch=4, dropout=0.1)
IMAGES = torch.rand(6, 2, 8, 12, generator=torch.Generator().manual_seed(0))
RIGHT = torch.arange(6) % LABELS
TEACHER = F.one_hot((RIGHT + 1) % LABELS).float()


def labelled(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(IMAGES).float(), RIGHT)


def hard(model: Deit) -> Tensor:
    return hard_distillation(model.heads(IMAGES), RIGHT, TEACHER).mean


def soft(model: Deit) -> Tensor:
    return soft_distillation(model.heads(IMAGES), RIGHT, TEACHER).mean


Build, Loss = Callable[[], nn.Module], Callable[[nn.Module], Tensor]
VITS: dict[str, tuple[Build, Loss]] = {
    "class token": (lambda: Vit(LABELS, SIZES), labelled),
    "mean": (lambda: Vit(LABELS, replace(SIZES, tokens=0)), labelled),
    "no positions": (lambda: Vit(LABELS, replace(SIZES, position=POSITIONS["none"])), labelled),
    "rotary": (lambda: Vit(LABELS, replace(SIZES, position=POSITIONS["rotary"])), labelled),
    "norm after": (lambda: Vit(LABELS, replace(SIZES, residual=PostNorm)), labelled),
    "DeiT, hard": (lambda: Deit(LABELS, SIZES), hard),
    "DeiT, soft": (lambda: Deit(LABELS, SIZES), soft),
}
MODELS = VITS | {"CNN": (lambda: Cnn(LABELS, channels=2, width=4), labelled)}
every_model = pytest.mark.parametrize(("build", "loss"), MODELS.values(), ids=MODELS)
every_vit = pytest.mark.parametrize(("build", "loss"), VITS.values(), ids=VITS)


def drawn(model: nn.Module) -> nn.Module:
    """With weights large enough that what a model says depends on what it sees."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


def neighbour_gap(model: nn.Module) -> float:
    """How much what is said of an image depends on the others in its batch."""
    with torch.no_grad():
        return float((model(IMAGES)[:2] - model(IMAGES[:2])).abs().max())


# ---- every model -------------------------------------------------------------------------------------------------


@every_model
def test_an_image_is_judged_alone(build: Build, loss: Loss) -> None:
    assert neighbour_gap(drawn(build()).eval()) < TOLERANCE


@every_model
def test_a_saved_model_computes_the_same(build: Build, loss: Loss) -> None:
    model = drawn(build()).eval()
    assert round_trip_gap(model, lambda m: m(IMAGES)) == 0


@every_model
def test_every_weight_gets_a_finite_gradient(build: Build, loss: Loss, precision: str) -> None:
    """In training, with dropout, in each precision; the bias of the keys alone may have none."""
    model = drawn(build())
    assert missing_gradients(model, loss, idle_key_biases(model)) == 0


@every_model
def test_in_autocast_the_loss_is_float32_and_near(build: Build, loss: Loss) -> None:
    """Whatever the matrices are multiplied in; bfloat16 keeps two to three digits."""
    model = drawn(build()).eval()
    exact = loss(model)
    with torch.autocast("cpu", torch.bfloat16):
        rough = loss(model)
    assert rough.dtype == torch.float32
    assert float(rough.detach()) == pytest.approx(float(exact.detach()), rel=0.05)


@every_vit
@torch.no_grad()
def test_training_differs_from_evaluation_by_dropout_alone(build: Build, loss: Loss) -> None:
    model = drawn(build())
    said = [model.train(training)(IMAGES) for training in (True, True, False, False)]
    assert not torch.isclose(said[0], said[1]).all()
    assert torch.equal(said[2], said[3])
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):  # attention's is a number
            module.dropout = 0.0
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    torch.testing.assert_close(model.train()(IMAGES), said[2])


@every_vit
@torch.no_grad()
def test_weights_are_a_convex_combination_of_all_positions(build: Build, loss: Loss) -> None:
    model = drawn(build()).eval()
    with record(model) as maps:
        model(IMAGES)
    assert len(maps) == SIZES.layers
    for weights in maps.values():
        assert convexity(weights, torch.ones(weights.shape[2:], dtype=torch.bool)) < TOLERANCE
        assert float(weights.min()) > 0


@every_vit
@torch.no_grad()
def test_at_another_size_it_is_a_model_like_any_other(build: Build, loss: Loss) -> None:
    """Its copy shares nothing with it, reads the other size and saves what it learned."""
    model = drawn(build()).eval()
    other = model.at(16, 4)
    assert not {id(weight) for weight in model.parameters()} & {id(weight) for weight in other.parameters()}
    assert round_trip_gap(other, lambda m: m(torch.ones(2, 2, 16, 4))) == 0


# ---- models that run, train and are wrong ------------------------------------------------------------------------


class Crowd(Vit):
    """Standardises over the batch, in evaluation as well."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward((images - images.mean(dim=0)) / images.std(dim=0))


class Untold(LearnedGrid):
    """A scale that is trained and not registered."""

    def __init__(self) -> None:
        super().__init__(SIZES.grid, SIZES.d_model, tokens=1)
        self.scale = [torch.ones(SIZES.d_model)]

    def add(self, x: Tensor, start: int = 0) -> Tensor:
        return super().add(x, start) * self.scale[0]


def test_a_model_that_looks_at_its_neighbours_is_found() -> None:
    assert neighbour_gap(drawn(Crowd(LABELS, SIZES)).eval()) > 0.1
    assert neighbour_gap(drawn(Cnn(LABELS, channels=2, width=4)).train()) > 0.1


def test_a_number_outside_the_state_dict_is_found() -> None:
    model = drawn(Vit(LABELS, SIZES)).eval()
    model.stack.position = Untold()
    assert round_trip_gap(model, lambda m: m(IMAGES)) > 0.1


def test_a_head_that_nothing_trains_is_found() -> None:
    """A DeiT trained on labels through its first head alone: weight and bias of the other."""
    model = drawn(Deit(LABELS, SIZES))
    found = missing_gradients(
        model, lambda m: F.cross_entropy(m.heads(IMAGES).label.float(), RIGHT), idle_key_biases(model)
    )
    assert found == pytest.approx(2 / len(list(model.parameters())))
