"""Lesson 14's study: pictures and rules, rivals of one size, the page's pieces against the package's, and scores."""

from collections import Counter
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from torch import nn

from tfbook.attention.efficient import Windowed
from tfbook.course.captioning import Middles
from tfbook.course.cost import parameters
from tfbook.course.experiments import stored
from tfbook.data.scenes import COLORS, KINDS, SceneObject, compose
from tfbook.data.scenes.drawing import draw
from tfbook.lessons.vision_beyond import contest, exercises as ex, figures, finding, pictures as book, study
from tfbook.models.detr import Detections
from tfbook.models.vit import patchify
from tfbook.training.set_prediction import Objects, centers

WHITE = len(book.PALETTE)

# ---- the coloring book -------------------------------------------------------------------------------------------


def test_each_row_has_a_white_and_a_colored_object_and_each_kind_is_there_twice() -> None:
    layout, _ = book.layouts("train", 200)
    assert (layout.columns[..., 0] != layout.columns[..., 1]).all()
    for part in (0, 1):
        assert (layout.kinds[..., part].sort(dim=1).values == torch.arange(8)).all()
    counts = torch.bincount(layout.colors.flatten(), minlength=5)
    assert counts.min() > 250  # of 1,600, in five colors
    assert torch.equal(book.layouts("train", 200)[0].colors, layout.colors)
    assert not torch.equal(book.layouts("test", 200)[0].colors, layout.colors)


@pytest.mark.parametrize("rule", book.RULES)
def test_answers_are_the_colors_of_the_partners(rule: str) -> None:
    """Row by row, with loops."""
    layout, part = book.layouts("test", 20)[0], book.pictures("test", 20, rule)
    assert (part.labels != book.BLANK).sum(dim=1).tolist() == [8] * 20
    for number in range(20):
        for row in range(8):
            place, kind = 8 * row + int(layout.columns[number, row, 0]), int(layout.kinds[number, row, 0])
            colored = layout.kinds[number, :, 1].tolist()
            partner = row if rule == "row" else colored.index(kind)
            assert part.labels[number, place] == layout.colors[number, partner]
            assert part.sources[number, place] == 8 * partner + layout.columns[number, partner, 1]
            assert part.kinds[number, place] == kind


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="rule is 'shape'; expected one of row, twin"):
        book.partners(book.layouts("test", 2)[0], "shape")


def test_sprites_are_what_the_scenes_draw() -> None:
    """An object alone on its place, over any ground."""
    one = SceneObject("fish", "green", 4.5 / 8, 4.5 / 8, 0.95 / 8)
    far = replace(one, x=0.0625, y=0.0625)
    full, bare = (draw([each], ["sand"], [3], 64, shadow=0).images for each in ([one, far], [far]))
    added, kept = (part[KINDS.index("fish"), book.PALETTE.index("green")] for part in book.sprites())
    middle = (slice(None), slice(32, 40), slice(32, 40))
    torch.testing.assert_close(bare[0][middle] * kept + added, full[0][middle], atol=1e-5, rtol=0)
    assert ((full - bare).abs().amax(dim=(0, 1)) > 1e-6).nonzero().min() >= 32  # it shows on no other place
    assert ((full - bare).abs().amax(dim=(0, 1)) > 1e-6).nonzero().max() < 40


def test_both_rules_have_the_same_pictures_and_other_answers() -> None:
    row, twin = (book.pictures("valid", 30, rule) for rule in book.RULES)
    assert torch.equal(row.images, twin.images)
    white = row.labels != book.BLANK
    assert torch.equal(white, twin.labels != book.BLANK)
    assert 0.1 < float((row.labels == twin.labels)[white].float().mean()) < 0.5
    assert float(row.images.abs().max()) <= 2


def test_painting_changes_the_white_objects_alone() -> None:
    part = book.pictures("test", 6)
    painted = book.colored_in(part, part.labels)
    changed = (patchify(painted - part.images, 8).abs() > 1e-6).any(dim=-1)
    assert torch.equal(changed, part.labels != book.BLANK)
    white = torch.full_like(part.labels, WHITE)
    torch.testing.assert_close(book.colored_in(part, white), part.images)
    red = book.colored_in(part, torch.full_like(part.labels, book.PALETTE.index("red")))
    added = patchify(red - part.images, 8).unflatten(-1, (3, 64))[changed].mean(dim=(0, 2))
    assert added[0] > added[1]
    assert COLORS["red"][0] > COLORS["red"][1]


def test_a_jigsaw_keeps_all_places_and_what_is_known_of_them() -> None:
    part = book.pictures("test", 5, "twin")
    mixed = book.jigsaw(part)
    tiles, others = patchify(part.images, 8), patchify(mixed.images, 8)
    assert not torch.equal(part.labels, mixed.labels)
    for number in range(5):
        for place in (mixed.labels[number] != book.BLANK).nonzero().flatten().tolist():
            before = (tiles[number] == others[number, place]).all(dim=-1).nonzero().item()
            assert mixed.labels[number, place] == part.labels[number, before]
            assert mixed.kinds[number, place] == part.kinds[number, before]
            source = mixed.sources[number, place]
            assert torch.equal(others[number, source], tiles[number, part.sources[number, before]])


def test_images_move_down_and_to_the_right() -> None:
    part = book.pictures("test", 2)
    moved = book.moved(part, 3)
    torch.testing.assert_close(moved.images[..., 3:, 3:], part.images[..., :-3, :-3])
    torch.testing.assert_close(moved.images[..., 0, 3:], part.images[..., 0, :-3])
    assert torch.equal(moved.labels, part.labels)
    assert book.moved(part, 0) is part


def test_pictures_are_sliced_and_go_together() -> None:
    part = book.pictures("test", 6)
    some = part[torch.tensor([4, 1])].to(torch.device("cpu"))
    assert len(some) == 2
    assert torch.equal(some.images[0], part.images[4])
    assert torch.equal(some.sources[1], part.sources[1])


# ---- models ------------------------------------------------------------------------------------------------------


def test_rivals_have_as_many_parameters_or_a_little_fewer_and_learn() -> None:
    most, part = parameters(contest.build("global attention")), book.pictures("train", 3)
    for name in (*contest.NAMES, *contest.WIDER):
        torch.manual_seed(0)
        model = contest.build(name)
        assert 0.98 * most < parameters(model) <= most, name
        contest.loss(model, part).backward()
        assert all(weight.grad is not None for weight in model.parameters()), name


def test_attention_on_the_grid_is_swin_s() -> None:
    """Without its bias: the package's windowed attention; with it, each score grows by the table's entry."""
    torch.manual_seed(0)
    layer, x = contest.GridAttention(8, 4, 2, heads=2), torch.randn(3, 64, 8)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in layer.qkv(x).chunk(3, dim=-1))
    expected = layer.out(Windowed(8, 4, 2)(q, k, v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), expected)
    whole = contest.GridAttention(8, 8, heads=2)
    nn.init.normal_(whole.table)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in whole.qkv(x).chunk(3, dim=-1))
    at = torch.arange(64)
    rows, columns = (line[:, None] - line + 7 for line in (at // 8, at % 8))
    bias = whole.table.view(15, 15, 2)[rows, columns].permute(2, 0, 1)
    weights = (q @ k.mT / 2 + bias).softmax(dim=-1)
    torch.testing.assert_close(whole(x), whole.out((weights @ v).transpose(1, 2).flatten(2)))


def test_a_bag_tells_all_places_the_same_in_any_order_of_what_they_add() -> None:
    torch.manual_seed(0)
    bag, x = contest.Bag(6), torch.randn(2, 64, 6)
    out = bag(x)
    torch.testing.assert_close(out, out[:, :1].expand_as(out))
    order = torch.randperm(64)
    bag.position.data.zero_()
    torch.testing.assert_close(bag(x)[:, 0], bag(x[:, order])[:, 0])


def test_a_run_follows_from_its_seed() -> None:
    part, make = book.pictures("train", 40), partial(contest.build, "bag")
    runs = [contest.trained(make, part, lr=0.01, seed=seed, steps=3) for seed in (1, 1, 2)]
    first, again, other = (model.cpu()(part.images) for model in runs)
    torch.testing.assert_close(first, again)
    assert not torch.allclose(first, other)


def test_places_that_are_blank_count_in_no_loss() -> None:
    part = book.pictures("train", 4)
    model = contest.build("bag")
    logits = model(part.images)
    white = part.labels != book.BLANK
    expected = -logits.log_softmax(dim=-1)[white].gather(1, part.labels[white][:, None]).mean()
    torch.testing.assert_close(contest.loss(model, part), expected)


def test_stored_runs_follow_the_plan() -> None:
    """Two rates for all models, and more seeds at the rate that "valid" chooses: as many for all, whatever came out."""
    runs = study.contest_runs()
    assert set(runs["model"]) == {*contest.NAMES, *contest.WIDER}
    for (name, rule), some in runs.groupby(["model", "rule"]):
        tried, again = some[some["seed"] == 1], some[some["seed"] != 1]
        assert sorted(tried["lr"]) == list(contest.RATES), (name, rule)
        assert sorted(again["seed"]) == list(contest.SEEDS[1 : 3 if rule == "row" else 2]), (name, rule)
        assert set(again["lr"]) == {tried.loc[tried["valid"] == tried["valid"].max(), "lr"].min()}, (name, rule)
        assert set(some["steps"]) == {contest.STEPS}


def test_longer_runs_have_a_row_for_each_model_and_as_many_seeds() -> None:
    table = study.longer_runs()
    assert set(table.index) == {*contest.LONGER.items(), ("shifted windows", contest.LONGER["pool"])}
    assert table.notna().all(axis=None)
    assert len(table["all"].columns) > 1


def test_a_pool_answers_the_same_in_any_order_and_reads_the_sum_of_all_places() -> None:
    torch.manual_seed(0)
    model, part = contest.build("pool").double(), book.pictures("test", 2)
    tiles = patchify(part.images.double(), 8)
    told = model.tell(tiles)
    expected = model.hear(torch.cat([told, sum(told.unbind(dim=1))[:, None].repeat(1, 64, 1)], dim=-1))
    torch.testing.assert_close(model(part.images.double()), expected)
    order = torch.randperm(64)
    mixed = model(book.unpatchify(tiles[:, order], 8, (8, 8)))
    torch.testing.assert_close(mixed, expected[:, order])


# ---- judging -----------------------------------------------------------------------------------------------------


class Knows(nn.Module):
    """Says the true colors of pictures that it has seen, where partners are at most `reach` places away."""

    def __init__(self, part: book.Pictures, reach: int):
        super().__init__()
        known = torch.where(contest.distances(part) <= reach, part.labels.clamp(min=0), 0)
        self.answers = nn.Parameter(torch.eye(5)[known])
        self.images = part.images

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        at = [(self.images == image).flatten(1).all(dim=1).nonzero()[:1].sum() for image in images]
        return self.answers[torch.stack(at)]


def test_scores_are_by_window_and_by_distance() -> None:
    part = book.pictures("test", 60)
    scores = contest.scored(Knows(part, 2), part)
    assert scores["by_distance"]["1"] == scores["by_distance"]["2"] == 100
    assert scores["by_distance"]["3"] < 50
    assert scores["same window"] > scores["across"]
    assert scores["moved"]["0"] == scores["test"]
    assert scores["jigsaw"] < 60
    marks = study.marks(Knows(part, 7), part)
    assert marks["all"] == marks["in one window"] == marks["across a border"] == 100


def test_windows_and_distances_are_those_of_the_sources() -> None:
    part = book.pictures("test", 30, "twin")
    same, far = contest.in_one_window(part), contest.distances(part)
    for number in range(30):
        for place in (part.labels[number] != book.BLANK).nonzero().flatten().tolist():
            source = int(part.sources[number, place])
            (row, column), (other, at) = divmod(place, 8), divmod(source, 8)
            assert far[number, place] == max(abs(row - other), abs(column - at))
            assert bool(same[number, place]) == ((row // 4, column // 4) == (other // 4, at // 4))


def test_painted_pictures_have_their_wrong_answers_marked() -> None:
    part = book.pictures("test", 8)
    images, wrong = study.painted(Knows(part, 7), part)
    assert not wrong.any()
    torch.testing.assert_close(images, book.colored_in(part, part.labels))
    _, wrong = study.painted(Knows(part, 1), part)
    assert set(contest.distances(part)[wrong].tolist()) <= {2, 3, 4, 5, 6, 7}
    assert wrong.any()


def test_the_most_frequent_color_is_counted() -> None:
    labels = torch.full((2, 64), book.BLANK)
    labels[:, ::8] = torch.tensor([[0, 0, 0, 1, 1, 2, 3, 4], [1, 1, 1, 1, 1, 1, 1, 1]])
    empty = torch.zeros_like(labels)
    part = book.Pictures(torch.zeros(2, 3, 64, 64), labels, empty, empty)
    assert study.frequent(part) == round(100 * (3 + 8) / 16, 1)


# ---- the page's pieces -------------------------------------------------------------------------------------------


def test_the_page_goes_on_with_what_the_exercises_ask_for() -> None:
    for name in ("partition", "shift_mask", "mix_places", "match_cost"):
        assert getattr(ex, name).judge(getattr(study, name)).status == "correct", name


def test_joining_is_the_inverse_of_cutting() -> None:
    x = torch.randn(2, 8, 8, 3)
    torch.testing.assert_close(study.join(study.partition(x, 4, 2), 4, 2), x)


def test_what_arrives_is_what_the_layers_pass_on() -> None:
    """By hand on a grid of 8 × 8: windows never grow, shifted ones meet all, filters grow by one place a block."""
    counts = {name: [int(grid.sum()) for grid in study.reaches(name, (3, 5))] for name in study.CONNECTS}
    assert counts["windows"] == [16, 16]
    assert counts["shifted windows"] == [16, 64]
    assert counts["convolution"] == [9, 25]
    assert counts["global attention"] == counts["MLP-Mixer"] == [64, 64]


def test_ceilings_say_where_the_partner_is_heard() -> None:
    part = book.pictures("test", 300)
    assert list(study.ceilings("convolution", part).values()) == [100] * 4 + [20] * 3
    for name in ("shifted windows", "global attention", "MLP-Mixer", "convolution, 5 × 5", "hybrid"):
        assert list(study.ceilings(name, part).values()) == [100] * 7, name
    windows = study.ceilings("windows", part)
    assert windows[1] == pytest.approx(20 + 80 * 6 / 7, abs=4)
    assert windows[4] == 20


@pytest.mark.parametrize("name", ["convolution", "ConvMixer", "windows", "shifted windows", "hybrid", "pool"])
def test_a_model_hears_no_farther_than_the_ceilings_say(name: str) -> None:
    """Gradients of each place's answer with respect to the others' patches; norms in eval mode connect nothing."""
    torch.manual_seed(0)
    model = contest.build(name).double().eval()
    image = torch.randn(1, 3, 64, 64, dtype=torch.float64, requires_grad=True)
    logits = model(image)[0]
    for place in (0, 27, 60):
        (slope,) = torch.autograd.grad(logits[place].square().sum(), image, retain_graph=True)
        touched = patchify(slope, 8)[0].abs().sum(dim=1) > 0
        assert torch.equal(touched, study.heard(name)[place])


# ---- captions and objects ----------------------------------------------------------------------------------------


SCENE = compose([SceneObject("fish", "red", x=0.25, y=0.3), SceneObject("house", "blue", x=0.7, y=0.65)], ground="sand")


def test_the_shipped_models_tell_and_find_a_composed_scene() -> None:
    told = study.tell(study.captioner(), SCENE)
    assert told.looks.shape == (len(told.words), 8, 8)
    torch.testing.assert_close(told.looks.sum(dim=(1, 2)), torch.ones(len(told.words)))
    torch.testing.assert_close(told.light[:, ::8, ::8], told.looks)
    assert told.light.shape[1:] == SCENE.image.shape[1:]
    found = study.find(study.detr(), SCENE, study.LEAST)
    assert sorted(one.kind for one in found) == ["fish", "house"]
    for one in found:
        box = SCENE.boxes[[each.kind for each in SCENE.objects].index(one.kind)]
        assert float((one.box - box).abs().max()) < 0.1


def test_light_is_full_at_the_middles_of_places_and_falls_off_between_them() -> None:
    looks = torch.tensor([[[1.0, 3.0], [0.0, 0.0]]])
    light = study.on_pixels(looks, Middles(1.0, 4), 8)[0]
    assert light[1].tolist() == [1, 1, 1.5, 2, 2.5, 3, 3, 3]
    assert light[:, 1].tolist() == [1, 1, 0.75, 0.5, 0.25, 0, 0, 0]


def test_eyes_measure_with_both_rulers() -> None:
    scenes = finding.SCENES.take("test", 6)
    table = study.eyes(study.captioner(), scenes)
    tiles, places, beside, middles = table["named object"]
    assert tiles == pytest.approx(100 * finding.looks_at(study.captioner(), scenes, tiles=True).model)
    assert tiles < places < beside
    assert middles < places
    assert (table["another object"] < table["named object"]).all()


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
    batches = contest.Batches(examples, size=32, seed=1)
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


def test_the_scoreboard_has_a_row_for_each_model_and_the_baselines() -> None:
    board = study.scoreboard(study.contest_runs())
    assert list(board.index) == [*contest.NAMES, *contest.WIDER, "most frequent color", "any color"]
    assert board.loc["any color", "row"] == 20
    assert board.loc["any color", "MFLOPs"] == ""
    assert not board.loc[[*contest.NAMES, *contest.WIDER]].eq("").any(axis=None)
    assert float(board.loc["global attention", "MFLOPs"]) > float(board.loc["windows", "MFLOPs"])


def test_pairs_of_a_vit_grow_with_the_fourth_power_of_the_side() -> None:
    billions = study.cost_by_side((224, 448))
    assert billions.loc[448, "global attention"] == pytest.approx(16 * billions.loc[224, "global attention"])
    for name in ("inside places", "windows of 7 × 7"):
        assert billions.loc[448, name] == pytest.approx(4 * billions.loc[224, name])
    layers, places, d = 12, 14**2, 384
    assert billions.loc[224, "global attention"] == pytest.approx(4 * layers * places**2 * d / 1e9)


def test_runs_are_read_at_the_best_rate() -> None:
    low, high = contest.RATES
    runs = pd.DataFrame(
        [
            {
                "model": "a",
                "rule": rule,
                "lr": lr,
                "seed": seed,
                "valid": valid,
                "test": valid,
                "by_distance": distances,
            }
            for rule in ("row", "twin")
            for lr, seed, valid in ((low, 1, 50.0), (high, 1, 75.0), (high, 2, 70.0))
            for distances in [dict.fromkeys("1234567", valid)]
        ]
    )
    assert study.spread(runs, "row") == {"a": [50.0, 75.0, 70.0]}
    assert list(study.best_runs(runs)["lr"]) == [high] * 4
    assert study.by_distance(runs)["a"][3] == [75.0, 70.0]


def test_reach_splits_the_rule_by_twin_at_the_borders_of_windows() -> None:
    runs = study.contest_runs()
    row, inside, across = study.by_reach(runs).values()
    assert set(row) == set(inside) == set(across) == set(runs["model"]) == set(figures.GROUPS)
    windows = runs[(runs["model"] == "windows") & (runs["rule"] == "twin")]
    assert set(inside["windows"]) <= set(windows["same window"])
    assert set(across["windows"]) <= set(windows["across"])


def test_the_parts_of_detr_are_less_than_all_of_it() -> None:
    costs = study.detr_costs()
    assert costs.loc["backbone", "MFLOPs"] + costs.loc["encoder", "MFLOPs"] < costs.loc["all", "MFLOPs"]
    assert Counter(costs.index) == Counter(["backbone", "encoder", "all"])


def test_every_picture_says_what_it_shows() -> None:
    told, found = study.tell(study.captioner(), SCENE), study.find(study.detr(), SCENE, study.LEAST)
    numbers, part = study.window_numbers((8, 8), (4, 4), (2, 2)), book.pictures("test", 3)
    painted = study.Painted(part.images, part.labels != book.BLANK)
    cost, boxes = torch.rand(3, 2), torch.rand(3, 4).sort(dim=1).values
    drawn = [
        figures.draw_told(SCENE.image, told.words, told.light, found, study.naming(told.words)),
        figures.draw_book({"as it is": part.images[0], "painted": part.images[1]}),
        figures.draw_painted({"windows": painted, "shifted windows": painted}),
        figures.draw_reach({name: study.reaches(name, (2, 3)) for name in study.CONNECTS}, study.CONNECTS, (2, 3)),
        figures.draw_shift(numbers, 4, 2, study.allowed_in_windows(numbers, (4, 4), (2, 2))[-1]),
        figures.draw_contest(
            {"row": {"windows": [50.0], "bag": [40.0]}, "twin": {"windows": [3.0], "bag": [2.0]}}, 20.0
        ),
        figures.draw_reach_curves({"bag": {1: [80.0], 2: [90.0]}}, {"bag": {1: 100.0, 2: 100.0}}),
        figures.draw_cost({"inside places": {224: 8.0, 448: 32.0}, "global attention": {224: 1.0, 448: 16.0}}),
        figures.draw_matching(SCENE.image, boxes, ["fish", "house"], cost, [(0, 1), (2, 0)], torch.rand(3)),
    ]
    for figure in drawn:
        figure.canvas.draw()
        texts = [text.get_text() for axes in figure.axes for text in (axes.title, *axes.texts)]
        assert any(texts), figure
    plt.close("all")
