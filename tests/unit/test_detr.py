"""DETR: matching against brute force, boxes against torchvision's, and a loss that no order of objects changes."""

import math
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.ops import box_convert, box_iou, generalized_box_iou

from tfbook.attention import MultiHeadAttention, record, sinusoid, softmax
from tfbook.course.invariants import TOLERANCE, convexity
from tfbook.models.detr import BoxHead, Detections, Detr, DetrConfig, SinusoidalGrid
from tfbook.training.set_prediction import (
    FoundObjects,
    Objects,
    centers,
    claims,
    corners,
    detection_loss,
    found_objects,
    generalized_iou,
    match,
    matching_cost,
    overlaps,
    set_prediction_loss,
)

LABELS = 3
LITTLE = DetrConfig(
    d_model=8, heads=2, d_ff=12, layers=2, height=16, width=24, channels=2, backbone=(4, 6), queries=5, dropout=0.1
)
IMAGES = torch.rand(3, 2, 16, 24, generator=torch.Generator().manual_seed(0))


def some_boxes(count: int) -> Tensor:
    """By corners, inside the image."""
    ends = torch.rand(count, 2, 2).sort(dim=1).values
    return ends.flatten(1)


def some_objects(count: int) -> Objects:
    return Objects(torch.randint(LABELS, (count,)), some_boxes(count))


def some_answers(images: int, queries: int = 5) -> Detections:
    return Detections(
        torch.randn(images, queries, LABELS + 1), centers(some_boxes(images * queries)).unflatten(0, (images, queries))
    )


# ---- boxes -------------------------------------------------------------------------------------------------------


@given(one=st.integers(0, 5), other=st.integers(0, 5), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_boxes_overlap_as_torchvision_says(one: int, other: int, seed: int) -> None:
    torch.manual_seed(seed)
    a, b = some_boxes(one), some_boxes(other)
    torch.testing.assert_close(overlaps(a, b)[0], box_iou(a, b))
    torch.testing.assert_close(generalized_iou(a, b), generalized_box_iou(a, b))
    torch.testing.assert_close(centers(a), box_convert(a, "xyxy", "cxcywh"))
    torch.testing.assert_close(corners(centers(a)), a)


def test_boxes_without_area_have_no_nan() -> None:
    point = torch.tensor([[0.5, 0.5, 0.5, 0.5]], requires_grad=True)
    iou = generalized_iou(point, point.detach())
    iou.sum().backward()
    assert bool(iou.isfinite().all())
    assert bool(point.grad.isfinite().all())


def test_far_boxes_are_pulled_together_by_the_generalized_iou_alone() -> None:
    box, goal = torch.tensor([[0.1, 0.1, 0.2, 0.2]], requires_grad=True), torch.tensor([[0.7, 0.7, 0.9, 0.9]])
    assert not torch.autograd.grad(overlaps(box, goal)[0].sum(), box)[0].any()
    assert torch.autograd.grad(generalized_iou(box, goal).sum(), box)[0].abs().sum() > 0.1


# ---- matching ----------------------------------------------------------------------------------------------------


@given(objects=st.integers(0, 4), more=st.integers(0, 3), seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_matching_is_the_best_of_all_assignments(objects: int, more: int, seed: int) -> None:
    torch.manual_seed(seed)
    cost = torch.randn(objects + more, objects)
    queries, numbers = match(cost)
    assert sorted(numbers.tolist()) == list(range(objects))
    assert len(set(queries.tolist())) == objects
    best = min(
        sum(float(cost[query, number]) for number, query in enumerate(order))
        for order in permutations(range(objects + more), objects)
    )
    assert float(cost[queries, numbers].sum()) == pytest.approx(best, abs=1e-5)


def test_the_cost_is_the_one_worked_out_by_hand() -> None:
    answers, objects = some_answers(1), some_objects(2)
    cost = matching_cost(answers.logits[0], answers.boxes[0], objects)
    for query in range(5):
        for number in range(2):
            logits, box = answers.logits[0, query].tolist(), answers.boxes[0, query]
            chance = math.exp(logits[int(objects.labels[number])]) / sum(map(math.exp, logits))
            right = box_convert(objects.boxes[number], "xyxy", "cxcywh")
            distance = sum(abs(a - b) for a, b in zip(box.tolist(), right.tolist(), strict=True))
            overlap = generalized_box_iou(box_convert(box[None], "cxcywh", "xyxy"), objects.boxes[number, None])
            assert float(cost[query, number]) == pytest.approx(5 * distance - 2 * float(overlap) - chance, abs=1e-5)


def test_more_objects_than_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 3 objects and 2 queries; expected a query for each"):
        match(torch.zeros(2, 3))


# ---- loss --------------------------------------------------------------------------------------------------------


def by_brute_force(answers: Detections, objects: Objects) -> float:
    """The loss of one image under the assignment of least cost, found by trying all."""
    cost, count = matching_cost(answers.logits[0], answers.boxes[0], objects), len(objects.labels)
    best = min(permutations(range(5), count), key=lambda order: sum(float(cost[q, n]) for n, q in enumerate(order)))
    total = 0.0
    for query in range(5):
        logp = answers.logits[0, query].log_softmax(dim=0)
        if query not in best:
            total -= 0.1 * float(logp[-1])
            continue
        number = best.index(query)
        box, right = answers.boxes[0, query], objects.boxes[number]
        total -= float(logp[objects.labels[number]])
        total += 5 * float((box - box_convert(right, "xyxy", "cxcywh")).abs().sum())
        total += 2 - 2 * float(generalized_box_iou(box_convert(box[None], "cxcywh", "xyxy"), right[None]))
    return total


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=3), seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_the_loss_is_the_one_worked_out_by_hand(counts: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    answers, targets = some_answers(len(counts)), [some_objects(count) for count in counts]
    loss = set_prediction_loss(*answers, targets)
    alone = [Detections(answers.logits[n, None], answers.boxes[n, None]) for n in range(len(counts))]
    expected = sum(by_brute_force(one, objects) for one, objects in zip(alone, targets, strict=True))
    assert float(loss.totals[0]) == pytest.approx(expected, rel=1e-4)
    assert loss.counts == [sum(counts)]


def test_the_order_of_objects_changes_nothing_nor_does_that_of_queries() -> None:
    answers, objects = some_answers(1), some_objects(4)
    order, other = torch.randperm(4), torch.randperm(5)
    expected = set_prediction_loss(*answers, [objects]).mean
    turned = Objects(objects.labels[order], objects.boxes[order])
    asked = Detections(answers.logits[:, other], answers.boxes[:, other])
    torch.testing.assert_close(set_prediction_loss(*answers, [turned]).mean, expected)
    torch.testing.assert_close(set_prediction_loss(*asked, [objects]).mean, expected)


def test_perfect_answers_cost_nothing() -> None:
    objects = Objects(torch.tensor([0, 2]), some_boxes(2))
    labels = torch.tensor([[3, 2, 3, 0, 3]])
    boxes = torch.rand(1, 5, 4)
    boxes[0, [3, 1]] = centers(objects.boxes)
    answers = Detections(100 * nn.functional.one_hot(labels, 4).float(), boxes)
    assert float(set_prediction_loss(*answers, [objects]).mean) == pytest.approx(0, abs=1e-4)
    assert found_objects(claims(*answers), [objects]) == FoundObjects(2, 2, 2)


def test_layers_are_added_and_targets_counted() -> None:
    model, targets = drawn(Detr(LABELS, LITTLE)), [some_objects(2), some_objects(1), some_objects(0)]
    first, second = (set_prediction_loss(*answers, targets).mean for answers in model.by_layer(IMAGES))
    torch.testing.assert_close(detection_loss(model, IMAGES, targets).mean, first + second)
    with pytest.raises(ValueError, match="targets holds 1 images; expected 3, as logits does"):
        set_prediction_loss(*model(IMAGES), targets[:1])


# ---- what was found ----------------------------------------------------------------------------------------------


def test_claims_are_answers_that_are_likelier_than_not() -> None:
    """Of a classifier trained with weight 0.1 on "no object", chance q stands for odds of q / (10 (1 − q))."""
    chances = torch.tensor([[0.95, 0.0, 0.05], [0.9, 0.0, 0.1], [0.45, 0.47, 0.08], [0.03, 0.92, 0.05]])
    boxes = torch.rand(4, 4)
    (found,) = claims((chances + 1e-9).log()[None], boxes[None])
    assert found.labels.tolist() == [0, 1, 1]
    torch.testing.assert_close(found.boxes, corners(boxes[[0, 2, 3]]))
    assert len(claims((chances + 1e-9).log()[None], boxes[None], least=0.5)[0].labels) == 4


def test_an_object_is_found_by_a_box_that_covers_it_under_its_name() -> None:
    box, near, far = [0.0, 0.0, 0.4, 0.4], [0.0, 0.0, 0.4, 0.6], [0.0, 0.0, 0.4, 0.9]

    def objects(*rows: tuple[int, list[float]]) -> Objects:
        return Objects(
            torch.tensor([label for label, _ in rows]).long(), torch.tensor([b for _, b in rows]).view(-1, 4)
        )

    target = [objects((1, box))]
    for claim, found in (
        (objects((1, near)), 1),  # IoU 2/3
        (objects((1, far)), 0),  # 4/9
        (objects((2, box)), 0),
        (objects((1, box), (1, near)), 1),  # the second one finds nothing
        (objects(), 0),
    ):
        assert found_objects([claim], target) == FoundObjects(1, found, len(claim.labels))
    assert found_objects([objects((1, far))], target, at=0.4).found == 1
    assert found_objects([objects((1, box))], [objects((1, box), (1, near))]).found == 1
    crossing = [objects((1, [0, 0, 1, 0.6]), (1, [0, 0, 1, 0.9]))]
    assert found_objects([objects((1, [0, 0, 1, 0.75]), (1, [0, 0, 1, 0.4]))], crossing).found == 2
    assert FoundObjects(4, 3, 6).recall == 0.75
    assert FoundObjects(4, 3, 6).precision == 0.5
    assert FoundObjects(0, 0, 0).recall == 0


# ---- the model ---------------------------------------------------------------------------------------------------


def drawn(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.eval()


def test_rows_and_columns_have_waves_of_their_own() -> None:
    grid, x = SinusoidalGrid((2, 3), 8), torch.randn(1, 6, 8)
    waves = sinusoid(torch.arange(3.0), 4)
    expected = torch.stack([torch.cat([waves[row], waves[column]]) for row in range(2) for column in range(3)])
    torch.testing.assert_close(grid.add(x), x + expected)
    for call, message in (
        (lambda: grid.add(x[:, :5]), "x holds 5 positions from 0 on; expected all 2 × 3 of the grid"),
        (lambda: SinusoidalGrid((2, 3), 6), "d_model is 6; expected a multiple of 4"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@torch.no_grad()
def test_answers_have_labels_and_boxes_inside_the_image() -> None:
    model = drawn(Detr(LABELS, LITTLE))
    logits, boxes = model(IMAGES)
    assert (logits.shape, boxes.shape) == ((3, 5, 4), (3, 5, 4))
    assert 0 < float(boxes.min()) <= float(boxes.max()) < 1
    first, last = model.by_layer(IMAGES)
    assert torch.equal(last.logits, logits)
    assert not torch.allclose(first.logits, logits)


@torch.no_grad()
def test_queries_are_a_set() -> None:
    """In another order they give the same answers in that order."""
    model, order = drawn(Detr(LABELS, LITTLE)), torch.tensor([3, 0, 4, 1, 2])
    expected = model(IMAGES)
    model.queries.copy_(model.queries[:, order])
    for found, right in zip(model(IMAGES), expected, strict=True):
        torch.testing.assert_close(found, right[:, order])


@torch.no_grad()
def test_places_count_twice() -> None:
    """What enters the decoder, by hand: positions are added before the encoder and after it."""
    model = drawn(Detr(LABELS, LITTLE))
    features = model.project(model.backbone(IMAGES)).flatten(2).mT
    x = SinusoidalGrid((4, 6), 8).add(features)
    for block in model.encoder.blocks:
        x = block(x)
    torch.testing.assert_close(model.memory(IMAGES), SinusoidalGrid((4, 6), 8).add(model.encoder.norm(x)))


@torch.no_grad()
def test_every_attention_is_recorded() -> None:
    model = drawn(Detr(LABELS, LITTLE))
    with record(model) as maps:
        model(IMAGES)
    shapes = [(3, 2, 24, 24)] * 2 + [(3, 2, 5, 5), (3, 2, 5, 24)] * 2
    assert [tuple(weights.shape) for weights in maps.values()] == shapes
    for weights in maps.values():
        assert convexity(weights, torch.ones(weights.shape[2:], dtype=torch.bool)) < TOLERANCE


@torch.no_grad()
def test_the_box_head_is_its_formula() -> None:
    head, start = BoxHead(8), torch.randn(1, 2, 8)
    first, second, last = head.layers
    by_hand = 1 / (1 + (-last((second(first(start).clamp(min=0))).clamp(min=0))).exp())
    torch.testing.assert_close(head(start), by_hand)


@torch.no_grad()
def test_its_work_can_be_counted() -> None:
    model = Detr(LABELS, LITTLE).eval()
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            layer.implementation = softmax
    with FlopCounterMode(display=False) as counter:
        model(IMAGES)
    stacks = model.encoder.flops(24) + model.decoder.flops(5, source=24)
    convolutions = 2 * (8 * 12 * 4 * 2 * 9 + 4 * 6 * 6 * 4 * 9 + 24 * 6 * 8)
    heads = 2 * 2 * 5 * (8 * 4 + 8 * 8 + 8 * 8 + 8 * 4)  # after each of two layers
    assert counter.get_total_flops() == 3 * (stacks + convolutions + heads)


def test_it_learns_the_objects_of_a_few_images() -> None:
    """From noise to every object found, which takes matching, boxes and labels to work together."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    images, targets = torch.zeros(4, 2, 16, 24), []
    for number in range(4):
        row, column = 4 * int(torch.randint(3, (), generator=generator)), 4 * number
        images[number, number % 2, row : row + 6, column : column + 8] = 1
        box = torch.tensor([[column / 24, row / 16, (column + 8) / 24, (row + 6) / 16]])
        targets.append(Objects(torch.tensor([number % 2]), box))
    model = Detr(2, DetrConfig(**{**vars(LITTLE), "d_model": 32, "dropout": 0.0}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(150):
        optimizer.zero_grad()
        detection_loss(model, images, targets).mean.backward()
        optimizer.step()
    assert found_objects(claims(*model(images)), targets).recall == 1


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Detr(LABELS, LITTLE)(torch.rand(1, 2, 16, 16)), r"images has shape .*; expected \(batch, 2, 16, 24\)"),
        (lambda: DetrConfig(height=60), "patch is 8 and images are 60 × 64"),
        (lambda: DetrConfig(queries=0), "queries is 0; expected 1 or more"),
        (lambda: DetrConfig(channels=0), "channels is 0; expected 1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
