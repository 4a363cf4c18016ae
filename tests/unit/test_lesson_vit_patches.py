"""What is measured of ViTs: runs that can be repeated, orders of patches, similarities of positions, hidden patches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tfbook import data
from tfbook.attention import POSITIONS
from tfbook.course.experiments import stored
from tfbook.data.images import Images, LabeledImages
from tfbook.interop import torch_vision
from tfbook.lessons.vit_patches import contest, figures, schematics, study
from tfbook.models.cnn import Cnn
from tfbook.models.vit import Vit, VitConfig, cost, patchify

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
    monkeypatch.setattr(data, "load", lambda name: corners)
    few = Images.few_shot
    monkeypatch.setattr(Images, "few_shot", lambda self, count, *, seed: few(self, min(count, 30), seed=seed))
    return corners


def few(images: Images, name: str, steps: int, *, seed: int = 1) -> nn.Module:
    """One of the models after a few steps on all images, at a rate that suits it."""
    return study.trained(
        partial(study.build, name, images), images.train, study.recipe(name, steps, 0.003), seed=seed, batch=32
    )


# ---- training ----------------------------------------------------------------------------------------------------


def test_the_cnn_has_as_many_parameters_as_the_vit_at_most(corners: Images) -> None:
    vit, cnn = (study.parameters(study.build(name, corners)) for name in ("ViT", "CNN"))
    assert 0.85 * vit <= cnn <= vit
    assert isinstance(study.build("ViT", corners), Vit)
    assert isinstance(study.build("CNN", corners), Cnn)


def test_the_linear_classifier_reads_images_of_any_size() -> None:
    part = LabeledImages(torch.rand(4, 1, 8, 8), torch.arange(4))
    digits = Images(name="small", labels=tuple("abcd"), train=part, test=part)
    assert study.build("linear classifier", digits)(part.images).shape == (4, 4)


def test_the_linear_classifier_has_a_weight_for_each_pixel_and_label(corners: Images) -> None:
    assert study.parameters(study.build("linear classifier", corners)) == LABELS * (SIDE**2 + 1)


@pytest.mark.parametrize(("count", "pixels", "labels"), [(105_098, 784, 10), (9610, 64, 10), (500, 7, 3)])
def test_an_mlp_is_the_widest_that_has_no_more_parameters(count: int, pixels: int, labels: int) -> None:
    """By counting those of the chosen width and of the next one."""
    mlp = study.Mlp.of_size(count, pixels, labels)
    wider = study.Mlp(pixels, mlp.head.in_features + 1, labels)
    assert study.parameters(mlp) <= count < study.parameters(wider)


def test_an_mlp_reads_all_pixels_through_two_hidden_layers(corners: Images) -> None:
    mlp, images = study.build("MLP", corners), corners.test.images[:3]
    hidden, head = mlp.layers[0], mlp.head
    plain = nn.Sequential(nn.Flatten(), mlp.embed, nn.GELU(), hidden, nn.GELU(), head)
    torch.testing.assert_close(mlp(images), plain(images))
    assert study.parameters(mlp) <= study.parameters(study.build("ViT", corners))


def test_without_a_class_token_the_head_reads_the_mean_of_the_patches(corners: Images) -> None:
    """The untrained model has one position per patch and no other, with and without positions."""
    vit, bag = (study.build(name, corners, tokens=0) for name in ("ViT", study.BAG))
    assert isinstance(vit, Vit)
    assert isinstance(bag, Vit)
    assert vit.config.tokens == bag.config.tokens == 0
    assert vit.get_parameter("stack.position.embedding").shape[1] == (SIDE // 7) ** 2


def test_positions_begin_as_large_as_it_is_said(corners: Images) -> None:
    model = study.build("ViT", corners)
    assert float(model.stack.position.embedding.detach().std()) == pytest.approx(study.POSITIONS_STD, rel=0.1)


def test_a_run_can_be_repeated_and_depends_on_its_seed(corners: Images) -> None:
    one, again, other = (
        nn.utils.parameters_to_vector(few(corners, "ViT", 3, seed=seed).parameters()) for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.isclose(one, other).all()


@pytest.mark.parametrize("name", [*study.MODELS, "MLP"])
def test_every_model_learns(name: str, corners: Images) -> None:
    assert study.accuracy(few(corners, name, 40), corners.test) > 0.9


def test_to_a_vit_without_positions_an_image_is_a_bag_of_patches(corners: Images) -> None:
    """In another order its answers are the same, so that of four corners it learns none; a ViT's answers change."""
    bag, vit = (few(corners, name, 40) for name in (study.BAG, "ViT"))
    images = corners.test.images
    moved = study.reordered(images, 7, study.random_orders(len(images), 16, seed=1))
    torch.testing.assert_close(study.predictions(bag, moved), study.predictions(bag, images), atol=1e-5, rtol=0)
    assert not torch.allclose(study.predictions(vit, moved), study.predictions(vit, images), atol=0.1)
    assert study.accuracy(bag, corners.test) < 0.5


def test_without_positions_all_other_weights_are_those_of_the_vit(corners: Images) -> None:
    starts = []
    for name in ("ViT", study.BAG):
        torch.manual_seed(1)
        starts.append(study.build(name, corners).state_dict())
    vit, bag = starts
    assert set(vit) - set(bag) == {"stack.position.embedding"}
    assert all(torch.equal(weight, vit[name]) for name, weight in bag.items())


def test_accuracy_counts_what_is_right(corners: Images) -> None:
    class Says(nn.Module):
        """Always the first label."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return 9 * torch.eye(LABELS)[torch.zeros(len(images), dtype=torch.int64)]

    assert study.accuracy(Says(), corners.test) == 0.25
    assert study.accuracy(Says(), corners.test[:3]) == 0.3333
    assert float(study.predictions(Says(), corners.test.images).sum(dim=1).mean()) == pytest.approx(1)


def test_what_is_held_out_is_of_the_training_part(corners: Images) -> None:
    held = study.rest_of(corners, held=40)
    assert torch.equal(torch.cat([held.train.images, held.test.images]), corners.train.images)
    assert len(held.test) == 40


def test_operations_are_those_of_the_formula(corners: Images) -> None:
    """The blocks by the package's formula, then patches and head by hand; a CNN's convolutions by their sizes."""
    model = study.build("ViT", corners)
    blocks = cost(model.config)
    expected = blocks.attention + blocks.matrices + 2 * 16 * 49 * 64 + 2 * 64 * LABELS
    assert study.flops(model, corners) == expected
    assert study.flops(study.build("linear classifier", corners), corners) == 2 * SIDE**2 * LABELS
    cnn = study.build("CNN", corners)
    sides, work = (14, 14, 7, 7, 4, 4, 2, 2), 2 * cnn.head.in_features * LABELS
    for (layer, _, _), side in zip((cnn.stem, *cnn.layers), sides, strict=True):
        work += 2 * side * side * layer.weight.numel()
    assert study.flops(cnn, corners) == work


# ---- rows --------------------------------------------------------------------------------------------------------


def test_every_model_tries_every_rate_and_held_out_training_images_judge(
    loaded: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = partial(study.rest_of, held=40)
    monkeypatch.setattr(contest, "rest_of", held_out)
    judged = []
    accuracy = study.accuracy
    monkeypatch.setattr(contest, "accuracy", lambda model, part: judged.append(part) or accuracy(model, part))
    rows = contest.rates(steps=2)
    assert [(row["model"], row["lr"]) for row in rows] == list(product(study.MODELS, study.RATES))
    held = loaded.standardized().train.images[-40:]
    assert all(torch.equal(part.images, held) for part in judged)


def test_the_contest_takes_each_models_best_rate() -> None:
    """As stored by `vit_patches.rates`, `mlp_rates` and `bag_rates`; of those that tie, the lowest."""
    frames = [stored(f"vit_patches.{name}").frame for name in ("rates", "mlp_rates", "bag_rates")]
    table = pd.concat(frames).pivot(index="model", columns="lr", values="accuracy")
    good = table.ge(table.max(axis=1) - study.TIE, axis=0)
    assert good.idxmax(axis=1).to_dict() == study.BEST


def test_the_contest_pairs_models_by_seed_and_keeps_what_the_first_vit_learned(loaded: Images) -> None:
    rows = contest.contest((1, 4), steps=2)
    assert [(row["seed"], row["model"]) for row in rows] == list(product((1, 4), study.MODELS))
    assert [len(row["filters"]) for row in rows if "filters" in row] == [64]
    assert all(row["parameters"] < row["flops"] for row in rows)


@pytest.mark.parametrize(("prefix", "model", "seeds"), [("mlp", "MLP", 5), ("bag", study.BAG, 3)])
def test_later_models_try_the_same_rates_and_seeds(prefix: str, model: str, seeds: int) -> None:
    """The rows that are stored of them have the other models' rates, and all seeds or the first of them."""
    for name, by, count in (("rates", "lr", len(study.RATES)), ("contest", "seed", seeds)):
        theirs, own = stored(f"vit_patches.{name}").frame, stored(f"vit_patches.{prefix}_{name}").frame
        assert set(own["model"]) == {model}
        assert set(own[by]) == set(sorted(set(theirs[by]))[:count])


def test_growth_trains_on_more_and_more_of_the_same_images(loaded: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    trained = study.trained
    monkeypatch.setattr(
        contest, "trained", lambda make, part, how, **rest: parts.append(part) or trained(make, part, how, **rest)
    )
    rows = contest.growth((1,), ("MLP",), counts=(8, 80), steps=2)
    assert [(row["images"], len(part)) for row, part in zip(rows, parts, strict=True)] == [(8, 8), (80, 80)]
    few, many = ({tuple(image.flatten().tolist()) for image in part.images} for part in parts)
    assert few < many
    assert all(0 <= row["fitted"] <= 1 for row in rows)


def test_smaller_patches_are_more_work(loaded: Images) -> None:
    large, small = contest.patch_sizes((1,), (14, 7), steps=2)
    assert (large["patch"], small["patch"]) == (14, 7)
    assert large["flops"] < small["flops"]
    assert large["seconds"] > 0


def test_grids_begin_with_faint_positions(loaded: Images) -> None:
    rows = contest.grids((1,), steps=2)
    (row,) = rows
    assert [len(row["similarities"]), len(row["similarities"][0])] == [49, 49]
    torch.testing.assert_close(torch.tensor(row["similarities"]).diagonal(), torch.ones(49), atol=2e-3, rtol=0)
    faint = study.build("ViT", loaded, patch=4, positions=0.02)
    assert float(faint.stack.position.embedding.detach().std()) == pytest.approx(0.02, rel=0.1)


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


def test_shuffles_compare_three_orders_of_the_same_runs(loaded: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "BEST", {**study.BEST, "ViT": 0.003})
    rows = contest.shuffles((1,), steps=60)
    assert [(row["model"], row["order"]) for row in rows] == list(product(study.MODELS, study.ORDERS))
    right = {(row["model"], row["order"]): row["accuracy"] for row in rows}
    assert right["ViT", "one order"] > 0.7  # each patch has another place, and one alone
    assert right["ViT", "an order each"] < 0.5  # the corner is gone
    model = few(loaded.standardized(), "linear classifier", 60)
    assert isinstance(model, nn.Sequential)


def test_bags_differ_in_positions_alone(loaded: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    hows = []
    trained = study.trained
    monkeypatch.setattr(
        contest,
        "trained",
        lambda make, part, how, *, seed: hows.append((how.steps, how.lr, seed)) or trained(make, part, how, seed=seed),
    )
    rows = contest.bags((1, 3), steps=2)
    assert [(row["seed"], row["model"]) for row in rows] == list(product((1, 3), ("ViT", study.BAG)))
    assert [seed for _, _, seed in hows] == [1, 1, 3, 3]
    assert len({how[:2] for how in hows}) == 1


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


def test_by_offset_averages_all_pairs_so_far_apart() -> None:
    """By hand for a grid of 2 × 2: patches 0, 1 above 2, 3."""
    similar = torch.arange(16.0).view(4, 4)
    expected = torch.tensor([[12.0, (8 + 13) / 2, 9], [(4 + 14) / 2, (0 + 5 + 10 + 15) / 4, (1 + 11) / 2], [6, 4.5, 3]])
    torch.testing.assert_close(study.by_offset(similar), expected)


# ---- looking -----------------------------------------------------------------------------------------------------


def test_memory_of_attention_is_that_of_its_weights() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.T).softmax(dim=-1) @ x

    few, many = (study.megabytes(attend, tokens) for tokens in (64, 256))
    assert many == pytest.approx(2 * 256 * 256 * 4 / 1e6, rel=0.2)  # scores and weights at once
    assert 8 < many / few < 17


def test_hidden_patches_are_those_of_the_mean_image() -> None:
    images, mean = torch.rand(2, 3, 4, 6), torch.rand(3, 4, 6)
    gone = torch.tensor([[True, False, False, False, False, False], [False, False, False, False, False, True]])
    found = study.hidden(images, gone, 2, mean)
    expected = images.clone()
    expected[0, :, :2, :2], expected[1, :, 2:, 4:] = mean[:, :2, :2], mean[:, 2:, 4:]
    assert torch.equal(found, expected)


def test_accuracy_without_hides_the_highest(corners: Images) -> None:
    """A model that reads the first pixel alone: it is wrong as soon as its patch is among those hidden."""

    class Reads(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return 9 * F.one_hot(images[:, 0, 0, 0].long(), LABELS).float()

    images = torch.zeros(4, 1, 4, 4)
    images[:, 0, 0, 0] = torch.arange(4)
    part, score = LabeledImages(images, torch.arange(4)), torch.tensor([[0.2, 0.9, 0.1, 0.0]]).expand(4, -1)
    mean = torch.zeros(1, 4, 4)
    found = [study.accuracy_without(Reads(), part, score, count, 2, mean) for count in (0, 1, 2)]
    assert found == [1.0, 1.0, 0.25]


def test_at_its_own_size_a_table_changes_nothing(corners: Images) -> None:
    model = few(corners, "ViT", 5)
    table = model.stack.position.embedding.detach()
    assert study.accuracy_at(model, corners.test, 4, table) == study.accuracy(model, corners.test)


def test_a_pretrained_vit_says_what_its_weights_say() -> None:
    """Ablation, patch by patch, by another way; and the maps have the shape of the grid."""
    torch.manual_seed(0)
    model = Vit(5, VitConfig(d_model=24, heads=3, d_ff=48, layers=2, height=16, width=16, patch=4)).eval()
    photograph = torch.rand(3, 16, 16)
    found = study.look_at(photograph, torch_vision.save_torchvision(model), heads=3)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    image = ((photograph.permute(1, 2, 0) - mean) / deviation).permute(2, 0, 1)
    with torch.no_grad():
        sure, label = model(image[None]).softmax(dim=1)[0].max(dim=0)
        image[:, 4:8, 12:] = 0
        left = model(image[None]).softmax(dim=1)[0, label]
    assert found.label == label
    assert found.sure == pytest.approx(float(sure), abs=1e-5)
    assert float(found.ablation[1, 3]) == pytest.approx(float(sure - left), abs=1e-5)
    assert found.rollout.shape == found.ablation.shape == (4, 4)


def test_the_reference_forward_pass_is_the_packages(corners: Images) -> None:
    model = Vit(LABELS, study.config(corners, patch=7, tokens=0)).eval()
    stack = model.stack
    parts = model.patches, stack.position.embedding[0], stack.blocks, stack.norm, model.head
    torch.testing.assert_close(study.mean_vit(corners.test.images, *parts), model(corners.test.images))


# ---- drawn -------------------------------------------------------------------------------------------------------


def test_every_picture_says_what_it_shows() -> None:
    photo = torch.rand(3, 28, 28)
    one, names = torch.rand(6, 1, 8, 8), study.MODELS
    dots = {name: [0.1, -0.2] for name in names}
    pictures = [
        schematics.draw_memory({16: 1.0, 32: 16.0}, {32: 0.1, 64: 0.2}, 224),
        schematics.draw_napkin(torch.arange(16.0).view(4, 4), torch.arange(16.0).view(4, 4)),
        schematics.draw_vit(photo, {1: photo[:, :4, :4], 7: photo[:, 4:8, :4]}),
        figures.draw_samples(torch.rand(10, 1, 8, 8), list("abcdefghij"), 2),
        schematics.draw_filter(photo[0], photo[0, :7, :7], torch.ones(7, 7), torch.randn(4, 4), (1, 2)),
        figures.draw_training([1, 2], [0.5, 0.6], {"linear classifier": 0.7, "MLP": 0.75}),
        figures.draw_positions(torch.rand(7, 7), {"down a column": torch.rand(2, 3), "along a row": torch.rand(2, 3)}),
        figures.draw_patterns(torch.randn(2, 49), [0.3, 0.2]),
        figures.draw_rollout(one[0], [torch.rand(17, 17), torch.rand(17, 17)], torch.rand(17, 17)),
        figures.draw_judged(
            *(one[:2], ["a", "b"], {"rollout": torch.rand(2, 16), "ablation": torch.rand(2, 16)}),
            *({"at random": [0.9, 0.5], "rollout": [0.9, 0.4]}, [0, 2]),
        ),
        figures.draw_contest(
            {name: {1000: [0.8, 0.7], 60_000: [0.9, 0.9]} for name in names},
            {name: (0.1 * 9**i, [0.8]) for i, name in enumerate(names)},
        ),
        figures.draw_sizes({14: (5.0, [0.8, 0.81]), 7: (10.0, [0.85])}),
        figures.draw_shuffles({"one order": dots, "no positions": {"ViT": [-1.0]}}, [one[:2], one[2:4]], 2),
        figures.draw_resized({"interpolated": [0.9, 0.5]}, [4, 5], 4),
        figures.draw_photograph(photo, {"rollout": torch.rand(4, 4)}),
    ]
    for figure in pictures:
        figure.canvas.draw()
        texts = [text.get_text() for axes in figure.axes for text in (axes.title, axes.xaxis.label, *axes.texts)]
        assert any([*texts, *(text.get_text() for text in figure.texts)]), figure
    plt.close("all")
