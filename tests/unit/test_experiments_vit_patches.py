"""What is measured of ViTs: runs that can be repeated, orders of patches, similarities of positions, students."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

from tfbook.attention import POSITIONS
from tfbook.course.experiments import vit_patches as study
from tfbook.data.images import Images, LabeledImages
from tfbook.models.cnn import Cnn
from tfbook.models.vit import Deit, Vit, patchify

pytestmark = pytest.mark.usefixtures("float32")

LABELS = 4
SIDE = 28


def bars(count: int, *, seed: int) -> LabeledImages:
    """A bright square in one of four corners: the corner is the label.

    The noise is faint. Where it is strong, 120 images are memorized by it, and no place has to be learned.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % LABELS
    images = 0.1 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 2)
        image[0, 14 * row : 14 * row + 14, 14 * column : 14 * column + 14] += 1
    return LabeledImages(images, labels)


@pytest.fixture
def corners() -> Images:
    return Images(name="corners", labels=tuple("abcd"), train=bars(160, seed=1), test=bars(80, seed=2))


@pytest.fixture
def loaded(corners: Images, monkeypatch: pytest.MonkeyPatch) -> Images:
    """What every experiment loads, with as few images as the tests can do with."""
    monkeypatch.setattr(study.data, "load", lambda name: corners)
    few = Images.few_shot
    monkeypatch.setattr(Images, "few_shot", lambda self, count, *, seed: few(self, min(count, 30), seed=seed))
    return corners


def start(images: Images, steps: int) -> study.Start:
    return study.kinds(images, steps)["ViT"]


# ---- training ----------------------------------------------------------------------------------------------------


def test_the_cnn_has_as_many_parameters_as_the_vit_at_most(corners: Images) -> None:
    models = {name: kind.build() for name, kind in study.kinds(corners, 10).items()}
    vit, cnn = (study.parameters(models[name]) for name in ("ViT", "CNN"))
    assert 0.9 * vit <= cnn <= vit
    assert isinstance(models["ViT"], Vit)
    assert isinstance(models["CNN"], Cnn)


def test_a_run_can_be_repeated_and_depends_on_its_seed(corners: Images) -> None:
    runs = [study.trained(start(corners, 3), corners.train, seed=seed) for seed in (1, 1, 2)]
    one, again, other = (nn.utils.parameters_to_vector(model.parameters()) for model in runs)
    assert torch.equal(one, again)
    assert not torch.isclose(one, other).all()


def test_both_models_learn(corners: Images) -> None:
    for kind in study.kinds(corners, 30).values():
        model = study.trained(kind, corners.train, seed=1, batch=32)
        assert study.accuracy(model, corners.test) > 0.9


def test_accuracy_counts_what_is_right(corners: Images) -> None:
    class Says(nn.Module):
        """Always the first label."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.eye(LABELS)[torch.zeros(len(images), dtype=torch.int64)]

    assert study.accuracy(Says(), corners.test) == 0.25
    assert study.accuracy(Says(), corners.test[:3]) == 0.3333


def test_what_is_held_out_is_of_the_training_part(corners: Images) -> None:
    held = study.rest_of(corners, held=40)
    assert torch.equal(torch.cat([held.train.images, held.test.images]), corners.train.images)
    assert len(held.test) == 40


# ---- rows --------------------------------------------------------------------------------------------------------


def test_searches_try_every_rate_and_judge_on_held_out_training_images(
    loaded: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        study, "rest_of", lambda images: replace(images, train=images.train[:-40], test=images.train[-40:])
    )
    monkeypatch.setattr(study, "RATES", {"ViT": (0.001, 0.01), "CNN": (0.01,)})
    judged = []
    accuracy = study.accuracy
    monkeypatch.setattr(study, "accuracy", lambda model, part: judged.append(part) or accuracy(model, part))
    rows = study.searches(steps=3)
    assert [(row["model"], row["lr"]) for row in rows] == [("ViT", 0.001), ("ViT", 0.01), ("CNN", 0.01)]
    held = loaded.standardized().train.images[-40:]
    assert all(torch.equal(part.images, held) for part in judged)


def test_growth_pairs_both_models_on_the_same_images(loaded: Images) -> None:
    rows = study.growth((1, 2), counts=(2, 30), steps=40)
    found = [(row["seed"], row["images"], row["model"]) for row in rows]
    assert found == list(product((1, 2), (8, 120), ("ViT", "CNN")))
    assert all(row["accuracy"] > 0.5 and row["train"] > 0.5 for row in rows if row["images"] == 120)
    config = {name: {row["parameters"] for row in rows if row["model"] == name} for name in ("ViT", "CNN")}
    assert max(config["CNN"]) <= min(config["ViT"])


def test_smaller_patches_are_more_words_and_more_work(loaded: Images) -> None:
    rows = study.patch_sizes((1,), patches=(14, 4), steps=10)
    assert [(row["patch"], row["patches"]) for row in rows] == [(14, 4), (4, 49)]
    assert rows[0]["seconds"] < rows[1]["seconds"]
    with_mean = Vit(LABELS, study.config(loaded, patch=14))
    assert rows[0]["parameters"] == study.parameters(with_mean)


def test_pooling_differs_by_the_token_alone(loaded: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Any]] = []
    trained = study.trained

    def spy(start: study.Start, *arguments: Any, **options: Any) -> nn.Module:
        model = trained(start, *arguments, **options)
        seen.append((model.config.tokens, replace(model.config, tokens=0)))
        return model

    monkeypatch.setattr(study, "trained", spy)
    rows = study.pooling((1,), steps=3)
    assert [row["read"] for row in rows] == ["mean", "token"]
    assert [tokens for tokens, _ in seen] == [0, 1]
    assert seen[0][1] == seen[1][1]


# ---- orders ------------------------------------------------------------------------------------------------------


def test_patches_go_where_the_order_says() -> None:
    images = torch.rand(3, 2, 4, 6)
    orders = study.random_orders(3, 6, seed=1)
    pieces, moved = patchify(images, 2), patchify(study.reordered(images, 2, orders), 2)
    for image, order in enumerate(orders.tolist()):
        for place, patch in enumerate(order):
            assert torch.equal(moved[image, place], pieces[image, patch])


def test_one_order_holds_for_all_and_the_natural_one_changes_nothing() -> None:
    images = torch.rand(3, 1, 4, 4)
    order = study.random_orders(1, 4, seed=3)
    alone = torch.cat([study.reordered(image[None], 2, order) for image in images])
    assert torch.equal(study.reordered(images, 2, order), alone)
    assert torch.equal(study.reordered(images, 2, torch.arange(4)[None]), images)


def test_orders_are_permutations_and_all_come() -> None:
    orders = study.random_orders(600, 3, seed=0)
    kinds, counts = orders.unique(dim=0, return_counts=True)
    assert len(kinds) == 6
    assert torch.equal(orders.sort(dim=1).values, torch.arange(3).expand(600, -1))
    assert counts.min() > 60


def test_shuffles_compare_three_orders_and_keep_the_places(loaded: Images) -> None:
    rows = study.shuffles((1,), patch=7, steps=40)
    found = [(row["order"], row["model"]) for row in rows]
    assert found == list(product(("in order", "one order", "an order each"), ("ViT", "CNN")))
    right = {(row["order"], row["model"]): row["accuracy"] for row in rows}
    assert right["one order", "ViT"] > 0.7  # each patch has another place, and one alone
    assert right["an order each", "ViT"] < 0.5  # the corner is gone
    assert [len(row["similarity"]) for row in rows if "similarity" in row] == [16, 16]
    mixed = {(row["order"], row["model"]): row["mixed"] for row in rows}
    assert mixed["in order", "ViT"] < right["in order", "ViT"]
    assert mixed["one order", "ViT"] == right["one order", "ViT"]


def test_squares_of_the_whole_image_change_nothing_and_pixels_are_squares_too(loaded: Images) -> None:
    rows = study.squares((1,), sides=(28, 1), steps=3)
    assert [(row["side"], row["model"]) for row in rows] == list(product((28, 1), ("ViT", "CNN")))
    part = loaded.standardized().few_shot(30, seed=1)
    plain = study.trained(study.kinds(loaded, 3, patch=4)["ViT"], part, seed=1)
    assert rows[0]["accuracy"] == study.accuracy(plain, loaded.standardized().test)


def test_pixels_are_squares_of_the_smallest_side(loaded: Images) -> None:
    assert study.pixels((1,), steps=3) == study.squares((1,), sides=(28, 1), steps=3)


def test_longer_is_the_same_with_more_updates(loaded: Images) -> None:
    rows, again = study.longer((1,), patches=(14,), steps=4), study.patch_sizes((1,), patches=(14,), steps=4)
    assert [row["accuracy"] for row in rows] == [row["accuracy"] for row in again]


def test_few_shuffled_leaves_similarities_out(loaded: Images) -> None:
    rows = study.few_shuffled((1,), steps=3)
    assert len(rows) == 6
    assert all(row.keys() == {"model", "order", "seed", "accuracy", "mixed"} for row in rows)


def test_similarities_come_back_to_where_patches_were_taken(corners: Images) -> None:
    """Vectors that know their true place say so, whatever place they were read at."""
    model = Vit(LABELS, study.config(corners, patch=7))
    truth = torch.randn(16, 64)
    order = study.random_orders(1, 16, seed=5)[0]
    model.stack.position.embedding = nn.Parameter(truth[order][None])
    shown = torch.tensor(study._position_row(model, order)["similarity"])
    model.stack.position.embedding = nn.Parameter(truth[None])
    torch.testing.assert_close(shown, study.similarities(model), atol=6e-4, rtol=0)


def test_similarity_is_a_cosine_without_the_mean_and_without_tokens(corners: Images) -> None:
    model = Vit(LABELS, study.config(corners, patch=14, tokens=1))
    places = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]) + 7
    model.stack.position.embedding = nn.Parameter(torch.cat([torch.full((1, 2), 99.0), places])[None])
    expected = torch.tensor([[1.0, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, -1], [0, 0, -1, 1]])
    torch.testing.assert_close(study.similarities(model), expected, atol=1e-5, rtol=0)


def test_positions_that_are_not_learned_have_no_similarities(corners: Images) -> None:
    model = Vit(LABELS, replace(study.config(corners, patch=14), position=POSITIONS["none"]))
    with pytest.raises(ValueError, match="expected LearnedGrid"):
        study.similarities(model)


def test_distances_are_those_of_a_grid() -> None:
    found = study.grid_distances(2, 3)
    assert found[0].tolist() == pytest.approx([0, 1, 2, 1, 2**0.5, 5**0.5])


# ---- students ----------------------------------------------------------------------------------------------------


def test_images_move_by_a_few_pixels_and_their_edge_goes_on() -> None:
    part = LabeledImages(torch.rand(50, 2, 6, 5), torch.zeros(50, dtype=torch.int64))
    moved, again, other = (study.moved(part, step, most=1).images for step in (3, 3, 4))
    assert torch.equal(moved, again)
    assert not torch.equal(moved, other)
    padded = nn.functional.pad(part.images, (1, 1, 1, 1), mode="replicate")
    windows = [padded[:, :, y : y + 6, x : x + 5] for y in range(3) for x in range(3)]
    for image in range(50):
        assert any(torch.equal(moved[image], window[image]) for window in windows)
    assert torch.equal(study.moved(part, 3, most=0).images, part.images)


class Stubborn(nn.Module):
    """Always the last label."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return 20 * torch.eye(LABELS)[torch.full((len(images),), LABELS - 1)]


@pytest.mark.parametrize("lesson", [study.told, study.hard, study.soft])
def test_a_second_head_predicts_what_it_is_taught(lesson: Callable[..., torch.Tensor], corners: Images) -> None:
    """What the teacher always predicts or, without a teacher, the label; the first head always learns the label."""
    taught = partial(lesson, Stubborn())
    model = study._student(corners, corners.train, taught, study.vit_recipe(80), seed=1)
    assert isinstance(model, Deit)
    with torch.no_grad():
        label, predicted = (logits.argmax(dim=1) for logits in model.heads(corners.test.images))
    expected = corners.test.labels if lesson is study.told else torch.full_like(predicted, LABELS - 1)
    assert float((predicted == expected).float().mean()) > 0.8
    assert float((label == corners.test.labels).float().mean()) > 0.8


def test_teachers_compare_four_models_for_each_seed(loaded: Images) -> None:
    rows = study.teachers((1, 2), count=20, steps=5)
    names = ["CNN, the teacher", "ViT", "DeiT, told the labels", "DeiT, taught, hard", "DeiT, taught, soft"]
    assert [(row["seed"], row["model"]) for row in rows] == list(product((1, 2), names))
