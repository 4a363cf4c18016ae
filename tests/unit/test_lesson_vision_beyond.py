"""Lesson 14's study: what it asks, rivals of one size, the page's pieces against the package's, and scores."""

import math
from collections import Counter
from dataclasses import replace
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
from tfbook.data.scenes.corpus import drawn_scenes
from tfbook.lessons.vision_beyond import contest, exercises as ex, figures, finding, rows, study
from tfbook.models.detr import Detections
from tfbook.models.patch_mixers import TokenMlp
from tfbook.models.vit import Vit, patchify
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
    bags = stored("vision_beyond.bag_rates").frame
    assert set(bags["model"]) == set(contest.BAGS)
    best = bags.loc[bags["accuracy"].idxmax()]
    assert {best["model"]: best["lr"]} == contest.BEST_BAG


# ---- the page's pieces -------------------------------------------------------------------------------------------


def test_the_page_goes_on_with_what_the_exercises_ask_for() -> None:
    for name in ("partition", "shift_mask", "mix_places", "match_cost"):
        assert getattr(ex, name).judge(getattr(study, name)).status == "correct", name


def test_a_function_of_grids_attends_as_the_package_does() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen = study.shift_mask(6, 6, 3, 1)
        q, k, v = (study.partition(x, 3, 1) for x in (q, k, v))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen, -torch.inf).softmax(dim=-1)
        return study.join(weights @ v, 3, 1)

    q, k, v = torch.randn(3, 2, 3, 36, 5)
    torch.testing.assert_close(study.OnGrid(attend)(q, k, v), Windowed(6, 3, 1)(q, k, v))
    torch.testing.assert_close(study.join(study.partition(q[:, 0].view(2, 6, 6, 5), 3, 2), 3, 2).flatten(1, 2), q[:, 0])


def test_mixing_with_the_page_s_formula_is_the_package_s_mixer() -> None:
    mine, package = study.Mixing(6, 2, mix=study.mix_places, hidden=5), TokenMlp(6, 2, time=36, d_tokens=5)
    package.load_state_dict({f"mlp.{name}": weight for name, weight in mine.state_dict().items()})
    x = torch.randn(2, 36, 6)
    torch.testing.assert_close(mine(x), package(x))
    assert mine.parameter_count() == package.parameter_count() == parameters(mine)
    assert mine.flops(36) == package.flops(36)


def test_what_arrives_is_what_the_layers_pass_on() -> None:
    """By hand on a grid of 6 × 6: windows never grow, shifted ones meet neighbors, neighborhoods grow by one."""
    counts = {name: [int(grid.sum()) for grid in study.reaches(name, (2, 3))] for name in study.CONNECTS}
    assert counts["windows"] == [9, 9]
    assert counts["neighborhood"] == counts["convolution"] == [9, 25]
    assert counts["ViT"] == counts["MLP-Mixer"] == [36, 36]
    assert counts["shifted windows"] == [9, 36]
    assert [int(grid.sum()) for grid in study.reaches("axial", (2, 3))] == [11, 36]
    assert [int(grid.sum()) for grid in study.reaches("bag", (2, 3))] == [1, 1]


def test_ceilings_say_where_both_places_are_heard() -> None:
    assert list(study.ceilings("ConvMixer", 300).values()) == pytest.approx([100, 100, 100, 100, 100 / 3])
    assert list(study.ceilings("bag + positions", 300).values()) == pytest.approx([100 / 3] * 5)
    assert list(study.ceilings("axial", 300).values()) == [100] * 5
    windows = study.ceilings("windows", 300)
    assert 80 < windows[1] < 95
    assert windows[3] == pytest.approx(100 / 3)


@pytest.mark.parametrize("name", ["convolution", "ConvMixer", "neighborhood", "windows", "shifted windows", "axial"])
def test_a_model_hears_no_farther_than_the_ceilings_say(name: str) -> None:
    """Gradients of each place's vector with respect to the others' patches; norms in eval mode connect nothing."""
    torch.manual_seed(0)
    model = rows.of_this_size(name).eval()
    image = torch.randn(1, 3, 48, 48, requires_grad=True)
    if name == "ConvMixer":
        vectors = model.blocks(model.patches(image))[0].flatten(1).T
    else:
        vectors = model.representations(image)[0]
    for place in (0, 15, 33):
        (slope,) = torch.autograd.grad(vectors[place].square().sum(), image, retain_graph=True)
        touched = patchify(slope, 8)[0].abs().sum(dim=1) > 0
        assert torch.equal(touched, study.heard(name, 2)[place])


# ---- the question about rows -------------------------------------------------------------------------------------


def test_a_ring_stands_in_the_row_of_the_answer() -> None:
    for scene in rows.row_scenes("train", 300):
        *objects, ring = scene.objects
        level = [one for one in objects if one.y == ring.y]
        assert [rows.PALETTE.index(one.color) for one in level] == [scene.answer]
        assert len({one.color for one in objects}) == len({one.y for one in objects}) == 3
        assert {one.x for one in objects} == {level[0].x}
        assert round(6 * abs(ring.x - level[0].x)) == scene.away
        assert scene.places == tuple(int(6 * at) for at in (ring.y, ring.x, level[0].x))
    counts = Counter(scene.away for scene in rows.row_scenes("train", 300))
    assert min(counts[away] for away in range(1, 6)) > 35


def test_no_object_shows_outside_its_place() -> None:
    """Otherwise a neighbor could tell of it, and reach would be farther than the ceilings say."""
    scene = rows.row_scene("test", 0)
    kinds = [replace(one, kind=kind) for one, kind in zip(scene.objects[:3] * 3, KINDS, strict=False)]
    for one in (*kinds, scene.objects[-1]):
        far = replace(one, x=1.5 - one.x if one.x > 0.5 else 0.5 + one.x)
        both, alone = (drawn_scenes([each], ["grass"], [7], 48, shadow=0)[0].image for each in ([one, far], [far]))
        changed = patchify((both - alone)[None], 8)[0].abs().sum(dim=1) > 0
        assert int(changed.sum()) == 1


def test_a_bag_cannot_tell_one_order_of_patches_from_another() -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 3, 48, 48)
    jigsaw = contest.shuffled(images, 8)
    alone, placed = (rows.of_this_size(name).eval() for name in ("bag", "bag + positions"))
    torch.testing.assert_close(alone(images), alone(jigsaw))
    assert not torch.allclose(placed(images), placed(jigsaw))


def test_a_bag_with_positions_and_a_linear_head_is_a_sum_over_places() -> None:
    """Changing two places changes it by the sum of what each changes alone: no answer can depend on both."""
    torch.manual_seed(0)
    model = Vit(5, rows.bag_with_positions(rows.FORM)).double().eval()
    neither, one, other = (torch.randn(1, 3, 48, 48, dtype=torch.float64) for _ in range(3))
    first, second = neither.clone(), neither.clone()
    first[..., :8, :8], second[..., 40:, 40:] = one[..., :8, :8], other[..., 40:, 40:]
    both = first.clone()
    both[..., 40:, 40:] = other[..., 40:, 40:]
    torch.testing.assert_close(model(both) - model(first), model(second) - model(neither))


def test_images_move_down_and_to_the_right() -> None:
    images = torch.rand(2, 3, 48, 48)
    moved = rows.moved(images, 3)
    torch.testing.assert_close(moved[..., 3:, 3:], images[..., :-3, :-3])
    torch.testing.assert_close(moved[..., 0, 3:], images[..., 0, :-3])
    assert torch.equal(rows.moved(images, 0), images)


def test_models_of_the_rows_have_about_as_many_parameters_and_learn() -> None:
    part = rows.row_images("train", 4)
    most = parameters(rows.of_this_size("ViT"))
    for name in rows.WORDS:
        model = rows.of_this_size(name)
        assert 0.75 * most < parameters(model) <= most, name
        contest.loss(model, part).backward()
        idle = [key for key, weight in model.named_parameters() if weight.grad is None]
        assert all(name.startswith("bag") and "mixer.norm" in key for key in idle), (name, idle)


def test_stored_runs_follow_the_plan() -> None:
    """Two rates for all, one more seed at the best rate for those that beat guessing."""
    runs = study.row_runs()
    assert set(runs["model"]) == set(rows.WORDS)
    for name, some in runs.groupby("model"):
        tried = some[some["seed"] == 1]
        assert sorted(tried["lr"]) == [rows.LOW, rows.HIGH]
        again = some[some["seed"] == 2]
        assert len(again) == (tried["valid"].max() > rows.BETTER and name not in rows.CNNS)
        assert set(again["lr"]) <= {tried.loc[tried["valid"].idxmax(), "lr"]}


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

    images = torch.zeros(40, 3, 48, 48)
    images[:, :, :8, :8] = 1
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
    board = study.scoreboard(study.row_runs(), study.colors())
    assert list(board.index) == list(rows.WORDS)
    assert board.loc["bag + positions", "same color"] == ""
    assert float(board.loc["ViT", "MFLOPs"]) > float(board.loc["windows", "MFLOPs"])


def test_pairs_of_a_vit_grow_with_the_fourth_power_of_the_side() -> None:
    billions = study.cost_by_side((224, 448))
    assert billions.loc[448, "global attention"] == pytest.approx(16 * billions.loc[224, "global attention"])
    for name in ("inside places", "windows of 7 × 7"):
        assert billions.loc[448, name] == pytest.approx(4 * billions.loc[224, name])
    layers, places, d = 12, 14**2, 384
    assert billions.loc[224, "global attention"] == pytest.approx(4 * layers * places**2 * d / 1e9)


def test_runs_are_read_in_percent_at_the_best_rate() -> None:
    away = dict.fromkeys("12345", 0.25)
    shifted = dict.fromkeys("01234", 0.5)
    runs = pd.DataFrame(
        [
            {"model": "a", "lr": lr, "seed": 1, "images": 8000, "valid": valid, "test": valid} | {"by_away": away}
            for lr, valid in ((rows.LOW, 0.5), (rows.HIGH, 0.75))
        ]
    )
    runs["shifted"] = [shifted, shifted | {"1": 0.25}]
    assert study.spread(runs, "test") == {"a": [50.0, 75.0]}
    assert list(study.best_runs(runs)["lr"]) == [rows.HIGH]
    assert study.by_away(runs)["a"][3] == [25.0]
    assert study.by_shift(runs, ["a"])["a"] == {0: 50.0, 1: 25.0, 2: 50.0, 3: 50.0, 4: 50.0}
    fewer = runs[runs["lr"] == rows.LOW].assign(images=500, test=0.125)
    assert study.by_images(runs, fewer)["a"] == {500: 12.5, 8000: 50.0}


def test_the_parts_of_detr_are_less_than_all_of_it() -> None:
    costs = study.detr_costs()
    assert costs.loc["backbone", "MFLOPs"] + costs.loc["encoder", "MFLOPs"] < costs.loc["all", "MFLOPs"]
    assert Counter(costs.index) == Counter(["backbone", "encoder", "all"])


def test_every_picture_says_what_it_shows() -> None:
    told, found = study.tell(study.captioner(), SCENE), study.find(study.detr(), SCENE, study.LEAST)
    numbers = study.window_numbers((6, 6), (3, 3), (1, 1))
    runs, pictures = {"ViT": [80.0, 85.0], "CNN": [70.0]}, torch.rand(2, 2, 3, 32, 32)
    cost, boxes = torch.rand(3, 2), torch.rand(3, 4).sort(dim=1).values
    drawn = [
        figures.draw_told(SCENE.image, told.words, told.looks, found, study.naming(told.words)),
        figures.draw_question(pictures[0], ["yes", "no"], "The same color?"),
        figures.draw_reach({name: study.reaches(name, (2, 3)) for name in study.CONNECTS}, study.CONNECTS, (2, 3)),
        figures.draw_shift(numbers, 3, 1, study.allowed_in_windows(numbers, (3, 3), (1, 1))[-1]),
        figures.draw_contest(runs),
        figures.draw_reach_curves({"ViT": {1: [80.0], 2: [90.0]}}, {"ViT": {1: 100.0, 2: 100.0}}),
        figures.draw_limits({"ViT": {500: 80.0, 8000: 90.0}}, {"ViT": {0: 80.0, 1: 30.0}}),
        figures.draw_cost({"inside places": {224: 8.0, 448: 32.0}, "global attention": {224: 1.0, 448: 16.0}}),
        figures.draw_jigsaw(runs, runs, pictures),
        figures.draw_matching(SCENE.image, boxes, ["fish", "house"], cost, [(0, 1), (2, 0)], torch.rand(3)),
    ]
    for figure in drawn:
        figure.canvas.draw()
        texts = [text.get_text() for axes in figure.axes for text in (axes.title, *axes.texts)]
        assert any(texts), figure
    plt.close("all")
