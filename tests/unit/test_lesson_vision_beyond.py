"""Lesson 14's study: what it asks, rivals of one size, the page's pieces against the package's, and scores."""

import math
from collections import Counter
from functools import partial

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from torch import nn

from tfbook.attention.efficient import Windowed
from tfbook.course.cost import parameters
from tfbook.course.experiments import stored
from tfbook.data.images import LabeledImages
from tfbook.data.scenes import KINDS, SceneObject, compose
from tfbook.lessons.vision_beyond import contest, exercises as ex, figures, finding, study, tables
from tfbook.models.detr import Detections
from tfbook.models.patch_mixers import TokenMlp
from tfbook.models.vit import patchify
from tfbook.training.set_prediction import Objects, centers

# ---- the question ------------------------------------------------------------------------------------------------


def test_half_of_the_scenes_have_two_objects_of_one_color() -> None:
    """Kinds differ, objects stand apart, and the answer is true."""
    scenes = [contest.drawn("train", number) for number in range(400)]
    for objects, same, _ in scenes:
        one, other = objects
        assert one.kind != other.kind
        assert same == (one.color == other.color)
        assert max(abs(one.x - other.x), abs(one.y - other.y)) >= 0.3
    assert 160 < sum(same for _, same, _ in scenes) < 240


def test_an_image_follows_from_its_split_and_number_alone() -> None:
    some, alone = contest.asked("test", range(5)), contest.asked("test", [3])
    torch.testing.assert_close(some.images[3:4], alone.images)
    assert some.labels[3] == alone.labels[0]
    assert not torch.equal(contest.asked("valid", [3]).images, alone.images)
    assert some.images.shape == (5, 3, 32, 32)
    assert float(some.images.abs().max()) <= 2


def test_distances_are_those_of_the_objects() -> None:
    one, other = contest.drawn("test", 4)[0]
    expected = max(abs(one.x - other.x), abs(one.y - other.y))
    assert float(contest.distances("test", range(5))[4]) == pytest.approx(expected)


# ---- models ------------------------------------------------------------------------------------------------------


def test_rivals_have_as_many_parameters_as_the_vit_or_a_little_fewer() -> None:
    count = parameters(contest.build("ViT"))
    for name in contest.MODELS:
        assert 0.95 * count < parameters(contest.build(name)) <= count, name


def test_every_model_answers_and_all_its_weights_learn() -> None:
    part = contest.asked("train", range(4))
    for name in (*contest.MODELS, contest.LINEAR):
        torch.manual_seed(0)
        model = contest.build(name)
        contest.loss(model, part).backward()
        assert all(weight.grad is not None for weight in model.parameters()), name


def test_a_run_follows_from_its_seed() -> None:
    part, make = contest.asked("train", range(8)), partial(contest.build, contest.LINEAR)
    runs = [contest.trained_with(make, part, lr=0.01, seed=seed, steps=3) for seed in (1, 1, 2)]
    first, again, other = (model.cpu()(part.images) for model in runs)
    torch.testing.assert_close(first, again)
    assert not torch.allclose(first, other)


def test_the_learners_take_their_best_rates() -> None:
    """As stored; every other model is further from the best than these."""
    best = stored("vision_beyond.rates").frame.pivot(index="model", columns="lr", values="accuracy")
    assert {name: best.loc[name].idxmax() for name in contest.BEST} == contest.BEST
    others = best.drop(index=list(contest.BEST)).max(axis=1)
    assert others.max() < best.loc[list(contest.BEST)].max(axis=1).min()
    assert set(best.index) == {*contest.MODELS, contest.LINEAR}
    assert set(stored("vision_beyond.learners").frame["model"]) == set(contest.BEST)


# ---- the page's pieces -------------------------------------------------------------------------------------------


def test_the_page_goes_on_with_what_the_exercises_ask_for() -> None:
    for name in ("partition", "shift_mask", "mix_places", "match_cost"):
        assert getattr(ex, name).judge(getattr(study, name)).status == "correct", name


def test_a_function_of_grids_attends_as_the_package_does() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen = study.shift_mask(8, 8, 4, 2)
        q, k, v = (study.partition(x, 4, 2) for x in (q, k, v))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen, -torch.inf).softmax(dim=-1)
        return study.join(weights @ v, 4, 2)

    q, k, v = torch.randn(3, 2, 3, 64, 5)
    torch.testing.assert_close(study.OnGrid(attend)(q, k, v), Windowed(8, 4, 2)(q, k, v))
    torch.testing.assert_close(study.join(study.partition(q[:, 0].view(2, 8, 8, 5), 4, 3), 4, 3).flatten(1, 2), q[:, 0])


def test_mixing_with_the_page_s_formula_is_the_package_s_mixer() -> None:
    mine, package = study.Mixing(6, 2, mix=study.mix_places, hidden=5), TokenMlp(6, 2, time=64, d_tokens=5)
    package.load_state_dict({f"mlp.{name}": weight for name, weight in mine.state_dict().items()})
    x = torch.randn(2, 64, 6)
    torch.testing.assert_close(mine(x), package(x))
    assert mine.parameter_count() == package.parameter_count() == parameters(mine)
    assert mine.flops(64) == package.flops(64)


def test_what_arrives_is_what_the_layers_pass_on() -> None:
    """By hand on a grid of 8 × 8: windows never grow, shifted ones meet neighbors, neighborhoods grow by one."""
    counts = {name: [int(grid.sum()) for grid in study.reaches(name, (2, 5))] for name in study.CONNECTS}
    assert counts["windows"] == [16, 16]
    assert counts["3 × 3 neighborhood"] == counts["3 × 3 convolution"] == [9, 25]
    assert counts["ViT"] == counts["MLP-Mixer"] == [64, 64]
    assert counts["shifted windows"][0] == 16
    assert counts["shifted windows"][1] > 16
    assert int(study.reached(1, study.EYES["axial"], (2, 5)).sum()) == 15
    assert int(study.reached(2, study.EYES["axial"], (2, 5)).sum()) == 64


# ---- judging -----------------------------------------------------------------------------------------------------


def test_a_jigsaw_keeps_all_patches() -> None:
    images = torch.rand(3, 3, 32, 32)
    before, after = (patchify(x, 4).sum(dim=2) for x in (images, contest.shuffled(images)))
    torch.testing.assert_close(before.sort(dim=1).values, after.sort(dim=1).values)
    assert not torch.allclose(before, after)


def test_answers_are_counted_by_distance() -> None:
    answers, far = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0.31, 0.35, 0.45, 0.69])
    found = contest.by_distance(answers, far)
    assert {bound: share for bound, share in found.items() if not math.isnan(share)} == {
        "0.3": 0.5,
        "0.4": 1.0,
        "0.6": 1.0,
    }


def test_accuracies_are_those_of_images_and_jigsaw() -> None:
    class Reads(nn.Module):
        """Says 1 when the first pixel is bright."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            bright = (images[:, 0, 0, 0] > 0.5).long()
            return self.weight * torch.eye(2)[bright]

    images = torch.zeros(40, 3, 32, 32)
    images[:, :, :4, :4] = 1
    found = study.accuracies(Reads(), LabeledImages(images, torch.ones(40, dtype=torch.int64)))
    assert found["in order"] == 100
    assert found["jigsaw"] < 30


# ---- captions and objects ----------------------------------------------------------------------------------------


SCENE = compose([SceneObject("fish", "red", x=0.25, y=0.3), SceneObject("house", "blue", x=0.7, y=0.65)], ground="sand")


def test_the_shipped_models_tell_and_find_a_composed_scene() -> None:
    told = study.tell(study.captioner(), SCENE)
    assert told.looks.shape == (len(told.words), 8, 8)
    torch.testing.assert_close(told.looks.sum(dim=(1, 2)), torch.ones(len(told.words)))
    found = study.find(study.detr(), SCENE, study.LEAST)
    assert sorted(one.kind for one in found) == ["fish", "house"]
    for one in found:
        box = SCENE.boxes[[each.kind for each in SCENE.objects].index(one.kind)]
        assert float((one.box - box).abs().max()) < 0.1


def test_the_threshold_of_the_page_is_the_stored_one() -> None:
    assert stored("vision_beyond.detections").rows[0]["least"] == study.LEAST


def test_words_that_name_are_kinds_and_colors() -> None:
    assert study.naming(("a", "red", "fish", "left", "of", "a", "blue", "house")) == [1, 2, 6, 7]


def test_the_threshold_keeps_right_claims_and_drops_the_others() -> None:
    """Two queries: one right and sure, one wrong and half sure."""
    logits = torch.full((1, 2, len(KINDS) + 1), -20.0)
    logits[0, 0, int(SCENE.kinds[0])], logits[0, 0, -1] = 3.0, 0.0
    logits[0, 1, 7], logits[0, 1, -1] = 0.0, 0.0
    boxes = centers(SCENE.boxes[:1]).repeat(2, 1)[None]
    least = finding.best_threshold(Detections(logits, boxes), [SCENE])
    assert 0.5 <= least < 0.95
    assert finding.detection_scores([Objects(SCENE.kinds[:1], SCENE.boxes[:1])], [SCENE]) == {
        "recall": 0.5,
        "precision": 1.0,
    }


def test_examples_go_together() -> None:
    scenes = finding.SCENES.take("train", 6)
    examples = finding.Examples.of(scenes)
    some = examples[torch.tensor([4, 1])].to(torch.device("cpu"))
    torch.testing.assert_close(some.images[1], scenes[1].image)
    assert torch.equal(some.objects[0].labels, scenes[4].kinds)
    assert " ".join(finding.SCENES.vocabulary.decode(some.ids[1, 1:])) == " ".join(scenes[1].captions[0].words)
    batches = finding.Batches(examples, seed=1)
    assert torch.equal(batches(0).images, batches(0).images)
    assert len(batches(0)) == 6


@pytest.mark.parametrize("make", ["captioned", "detected", "slid"])
def test_a_run_is_scored(make: str) -> None:
    scenes = finding.SCENES.take("train", 8)
    examples = finding.Examples.of(scenes)
    if make == "captioned":
        row, _ = finding.captioned(examples, scenes, 1, steps=2)
        assert 0 <= row["words"] <= 1
        assert row["uniform"] == pytest.approx(row["on_object"], abs=0.1)
    elif make == "detected":
        row, _ = finding.detected(examples, scenes, scenes, 1, steps=2)
        assert row["least"] in finding.LEAST
    else:
        row = finding.slid(scenes, scenes[:1], 1, steps=2)
    assert row["seed"] == 1
    assert row["parameters"] > 200_000


# ---- tables and pictures -----------------------------------------------------------------------------------------


def test_the_scoreboard_has_a_row_for_each_model() -> None:
    board = study.scoreboard(stored("vision_beyond.rates").frame, stored("vision_beyond.learners").frame)
    assert list(board.index) == [*contest.MODELS, contest.LINEAR]
    assert board.loc["windows", "test"] == ""
    assert float(board.loc["ViT", "MFLOPs"]) > 10


def test_spreads_are_in_percent() -> None:
    frame = pd.DataFrame(
        [{"model": "a", "accuracy": 0.5, "by_distance": dict.fromkeys(("0.3", "0.4", "0.5", "0.6"), 0.25)}] * 2
    )
    assert study.spread(frame) == {"a": [50.0, 50.0]}
    assert tables.by_distance(frame)["a"][0.3] == [25.0, 25.0]


def test_the_parts_of_detr_are_less_than_all_of_it() -> None:
    costs = study.detr_costs()
    assert costs.loc["backbone", "MFLOPs"] + costs.loc["encoder", "MFLOPs"] < costs.loc["all", "MFLOPs"]
    assert Counter(costs.index) == Counter(["backbone", "encoder", "all"])


def test_every_picture_says_what_it_shows() -> None:
    told, found = study.tell(study.captioner(), SCENE), study.find(study.detr(), SCENE, study.LEAST)
    numbers = study.window_numbers((8, 8), (4, 4), (2, 2))
    runs, pictures = {"ViT": [80.0, 85.0], "CNN": [70.0]}, torch.rand(2, 2, 3, 32, 32)
    cost, boxes = torch.rand(3, 2), torch.rand(3, 4).sort(dim=1).values
    drawn = [
        figures.draw_told(SCENE.image, told.words, told.looks, found, study.naming(told.words)),
        figures.draw_question(pictures[0], ["yes", "no"]),
        figures.draw_reach({name: study.reaches(name, (2, 5)) for name in study.CONNECTS}, study.CONNECTS, (2, 5)),
        figures.draw_shift(numbers, 4, 2, study.allowed_in_windows(numbers, (4, 4), (2, 2))[-1]),
        figures.draw_contest(runs),
        figures.draw_distances({"ViT": {0.3: [80.0], 0.4: [90.0]}}),
        figures.draw_jigsaw(runs, runs, pictures),
        figures.draw_matching(SCENE.image, boxes, ["fish", "house"], cost, [(0, 1), (2, 0)]),
        figures.draw_published(study.PUBLISHED),
    ]
    for figure in drawn:
        figure.canvas.draw()
        texts = [text.get_text() for axes in figure.axes for text in (axes.title, *axes.texts)]
        assert any(texts), figure
    plt.close("all")
