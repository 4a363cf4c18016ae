"""Lesson 14's last two sections: places hidden from a captioner, and three rectangles found in three orders."""

from itertools import permutations

import matplotlib.pyplot as plt
import pytest
import torch
from torch import Tensor, nn

from tfbook.course.experiments import stored
from tfbook.data.scenes import COLORS, KINDS, SceneObject, compose
from tfbook.lessons.vision_beyond import erasing, figures, finding, orders, study
from tfbook.models.detr import Detections
from tfbook.text.vocabulary import EOS
from tfbook.training.set_prediction import centers, corners, generalized_iou, match

SCENE = compose([SceneObject("fish", "red", 0.25, 0.3), SceneObject("house", "blue", 0.75, 0.7)])

# ---- hidden places -----------------------------------------------------------------------------------------------


def test_names_are_the_kinds_and_colors_of_captions_with_their_objects_places() -> None:
    names = study.names_in(study.captioner(), [SCENE])
    assert study.words_of(names.wanted) == ["red", "fish", "blue", "house"]
    assert names.scene.tolist() == [0] * 4
    assert [SCENE.captions[0].words[at] for at in names.at] == ["red", "fish", "blue", "house"]
    grids = names.touched.unflatten(1, (8, 8))
    assert torch.equal(grids[0], grids[1])
    assert not (grids[0] & grids[2]).any()
    assert grids[0, :5, :5].sum() == grids[0].sum()  # the fish is in the upper left, the house in the lower right
    assert grids[2, 4:, 4:].sum() == grids[2].sum()


def test_beside_are_the_places_next_to_those_that_an_object_touches() -> None:
    names = study.names_in(study.captioner(), finding.SCENES.take("test", 4))
    assert set(study.words_of(names.wanted)) <= {*KINDS, *COLORS}
    for touched, beside in zip(*(part.unflatten(1, (8, 8)) for part in (names.touched, names.beside)), strict=True):
        for row in range(8):
            for column in range(8):
                near = touched[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
                assert beside[row, column] == near.any()


def test_as_many_other_places_are_drawn_or_all_that_are_left() -> None:
    hidden = torch.zeros(3, 64, dtype=torch.bool)
    hidden[0, :5], hidden[1, :40] = True, True
    others = study.as_many_others(hidden)
    assert others.sum(dim=1).tolist() == [5, 24, 0]
    assert not (others & hidden).any()
    assert not torch.equal(others, study.as_many_others(hidden, seed=1))


def test_the_end_of_a_caption_is_a_point() -> None:
    assert erasing.words_of(torch.tensor([EOS, *finding.SCENES.vocabulary.encode(["fish"])])) == [".", "fish"]


def test_the_brightest_places_are_those_with_the_largest_weights() -> None:
    looks = torch.tensor([[0.1, 0.6, 0.3], [0.5, -1.0, 0.5]])
    assert study.brightest(looks, 1).tolist() == [[False, True, False], [True, False, False]]
    assert study.brightest(looks, torch.tensor([2, 3])).tolist() == [[False, True, True], [True, False, True]]


def test_wrong_words_are_looked_for_in_their_scene() -> None:
    names = study.names_in(study.captioner(), [SCENE])  # red fish, blue house
    said = torch.tensor(finding.SCENES.vocabulary.encode(["blue", "fish", "green", "fish"]))
    share, chance, wrong = study.read_from(said, names, [SCENE])
    assert wrong == 3
    assert share == pytest.approx(200 / 3)
    assert chance == pytest.approx(100 * (1 / 5 + 1 / 5 + 1 / 7) / 3)


def test_an_effect_counts_places_their_attention_and_right_words() -> None:
    names = study.names_in(study.captioner(), [SCENE])
    looks = torch.full(names.touched.shape, 1 / 64)
    table = study.effect({"all": torch.ones_like(names.touched)}, {"all": names.wanted}, names, looks)
    assert table.loc["all"].tolist() == pytest.approx([64, 100, 100])


# ---- three rectangles --------------------------------------------------------------------------------------------


def test_rectangles_have_their_colors_where_their_boxes_are() -> None:
    part = study.rectangles(20, seed=3)
    assert torch.equal(part.images, study.rectangles(20, seed=3).images)
    for image, labels, boxes in zip(part.images, part.labels, part.boxes, strict=True):
        drawn = torch.zeros_like(image)
        for label, box in zip(labels, (boxes * orders.PIXELS).round().int().tolist(), strict=True):
            left, top, right, bottom = box
            assert all(5 <= side <= 8 for side in (right - left, bottom - top))
            drawn[label, top:bottom, left:right] += 1
        assert torch.equal(drawn, image)  # none covers another


def answers(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    part, draw = study.rectangles(1, seed), torch.Generator().manual_seed(seed)
    logits, boxes = torch.randn(3, 4, generator=draw), torch.rand(3, 4, generator=draw)
    return logits, boxes, part.labels[0], part.boxes[0]


def test_orders_say_which_object_each_query_is_for() -> None:
    for seed in range(5):
        logits, boxes, labels, targets = answers(seed)
        assert orders.as_listed(logits, boxes, labels, targets).tolist() == [0, 1, 2]
        lefts = targets[orders.left_to_right(logits, boxes, labels, targets), 0].tolist()
        assert lefts == sorted(lefts)
        cost = study.match_cost(logits, boxes, labels, centers(targets), generalized_iou(corners(boxes), targets))
        totals = {way: float(sum(cost[query, way[query]] for query in range(3))) for way in permutations(range(3))}
        chosen = tuple(orders.by_matching(logits, boxes, labels, targets).tolist())
        assert totals[chosen] == pytest.approx(min(totals.values()))


class Answers(nn.Module):
    """The same answers for every batch."""

    def __init__(self, logits: Tensor, boxes: Tensor):
        super().__init__()
        self.logits, self.boxes = nn.Parameter(logits), nn.Parameter(boxes)

    def forward(self, images: Tensor) -> Detections:
        return Detections(self.logits, self.boxes)


def test_a_matched_loss_does_not_depend_on_the_order_of_the_list() -> None:
    part, draw = study.rectangles(6, seed=1), torch.Generator().manual_seed(1)
    model = Answers(torch.randn(6, 3, 4, generator=draw), torch.rand(6, 3, 4, generator=draw))
    turned = orders.Rectangles(part.images, part.labels.roll(1, 1), part.boxes.roll(1, 1))
    one, other = (orders.ordered_loss(model, each, orders.by_matching).item() for each in (part, turned))
    assert one == pytest.approx(other)
    one, other = (orders.ordered_loss(model, each, orders.as_listed).item() for each in (part, turned))
    assert one != pytest.approx(other)


def test_right_answers_are_found_and_two_for_one_rectangle_count_once() -> None:
    part = study.rectangles(5, seed=2)
    logits = 9 * nn.functional.one_hot(part.labels, 4).float()
    right = Answers(logits, centers(part.boxes))
    assert orders.rectangles_found(right, part) == 100
    assert orders.ordered_loss(right, part, orders.as_listed).item() < 0.01
    first = torch.zeros(3, dtype=torch.int64)
    twice = Answers(logits[:, first], centers(part.boxes)[:, first])
    assert orders.rectangles_found(twice, part) == pytest.approx(100 / 3, abs=0.1)


def test_a_finder_learns_and_stored_runs_have_all_orders() -> None:
    part = study.rectangles(64, seed=1)
    before, after = (study.finding_in(orders.by_matching, part, seed=1, steps=steps) for steps in (1, 30))
    with torch.no_grad():
        assert orders.ordered_loss(after, part, orders.by_matching) < orders.ordered_loss(
            before, part, orders.by_matching
        )
    rows = stored("vision_beyond.in_order").rows
    assert {(row["order"], row["seed"]) for row in rows if row["steps"] == orders.STEPS} == {
        (name, seed) for name in orders.ORDERS for seed in (1, 2, 3)
    }


def test_pictures_of_matchings_say_what_they_show() -> None:
    costs, part = torch.tensor([[1.0, 2.0], [3.0, 8.0]]), study.rectangles(2, seed=1)
    best = list(zip(*(each.tolist() for each in match(costs)), strict=True))
    assert best == [(0, 1), (1, 0)]
    ways = {"smallest first": [(0, 0), (1, 1)], "least in all": best}
    drawn = [
        figures.draw_greedy(costs, ways, ["fish", "house"]),
        figures.draw_rectangles(part.images, {"a": part.boxes, "b": study.drawn_boxes()[:2]}),
    ]
    assert [axes.get_title() for axes in drawn[0].axes] == ["smallest first: 1 + 8 = 9", "least in all: 2 + 3 = 5"]
    for figure in drawn:
        figure.canvas.draw()
    plt.close("all")
