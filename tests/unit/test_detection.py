"""The sliding classifier: crops are what loops cut out, suppression is torchvision's, and what it is shown it finds."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torchvision.ops import box_iou, nms

from tfbook.course.detection import (
    CROP,
    FAR,
    NEAR,
    NOTHING,
    all_squares,
    crops,
    labeled_crops,
    objects_of,
    random_squares,
    slide,
    suppress,
)
from tfbook.data.scenes import KINDS, SceneObject, Scenes, compose
from tfbook.training.set_prediction import found_objects

SOME = Scenes().take("train", 8)


def test_a_crop_is_the_part_of_the_image_in_its_box() -> None:
    """A box of 24 pixels is copied, one of 48 is every second pixel's neighborhood, beyond the image it is black."""
    image = torch.rand(3, 96, 96)
    boxes = torch.tensor([[8, 16, 32, 40], [84, 0, 108, 24]]) / 96
    same, beyond = crops(image, boxes)
    torch.testing.assert_close(same, image[:, 16:40, 8:32], atol=1e-4, rtol=0)
    torch.testing.assert_close(beyond[:, :, :12], image[:, :24, 84:], atol=1e-4, rtol=0)
    assert float(beyond[:, :, 13:].abs().max()) < 1e-4
    (half,) = crops(image, torch.tensor([[0, 0, 48, 48]]) / 96)
    by_hand = image[:, :48, :48].unflatten(1, (24, 2)).unflatten(3, (24, 2)).mean(dim=(2, 4))
    torch.testing.assert_close(half, by_hand, atol=1e-4, rtol=0)


@given(count=st.integers(0, 12), at=st.sampled_from([0.0, 0.3, 0.6]), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_suppression_is_torchvision_s(count: int, at: float, seed: int) -> None:
    torch.manual_seed(seed)
    boxes, scores = torch.rand(count, 2, 2).sort(dim=1).values.flatten(1), torch.rand(count)
    assert suppress(boxes, scores, at=at).tolist() == nms(boxes, scores, at).tolist()


def test_squares_are_inside_and_all_of_them() -> None:
    squares = all_squares([0.5, 1.0], 0.25)
    assert len(squares) == 3 * 3 + 1
    generator = torch.Generator().manual_seed(0)
    for boxes in (squares, random_squares(50, generator)):
        assert float(boxes.min()) >= 0
        assert float(boxes.max()) <= 1 + 1e-6
        torch.testing.assert_close(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])


def test_crops_are_labeled_by_what_they_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object is there, and the ground; asked of the boxes themselves."""
    seen: list[tuple[Tensor, Tensor]] = []
    for scene in SOME:
        part = labeled_crops([scene], seed=1)
        assert part.images.shape[1:] == (3, CROP, CROP)
        assert set(scene.kinds.tolist()) <= set(part.labels.tolist())
        assert NOTHING in part.labels.tolist()
        generator = torch.Generator().manual_seed(1)
        squares = torch.cat([random_squares(40, generator), scene.boxes])
        iou = box_iou(squares, scene.boxes)
        near, far = (iou.amax(dim=1) > NEAR).sum(), (iou.amax(dim=1) < FAR).sum()
        assert (part.labels != NOTHING).sum() == min(int(near), 4)
        assert (part.labels == NOTHING).sum() == min(int(far), 4)
        seen.append((part.images, part.labels))
    together = labeled_crops(SOME[:1], seed=1)
    assert torch.equal(together.images, seen[0][0])


class Oracle(nn.Module):
    """Knows a ball by its color: a red disk that does not fill the edge of the crop; everything else is nothing."""

    def forward(self, images: Tensor) -> Tensor:
        red = (images[:, 0] > 2 * images[:, 1]).float()
        edge = torch.cat(
            [red[:, :2].flatten(1), red[:, -2:].flatten(1), red[..., :2].flatten(1), red[..., -2:].flatten(1)], 1
        )
        logits = torch.full((len(images), NOTHING + 1), -20.0)
        logits[:, KINDS.index("ball")] = 40 * (red.mean(dim=(1, 2)) - edge.mean(dim=1))
        logits[:, NOTHING] = 14
        return logits


def test_what_the_classifier_knows_is_found_once() -> None:
    objects = [SceneObject("ball", "red", 0.3, 0.3, 0.35), SceneObject("ball", "red", 0.75, 0.7, 0.3)]
    scene = compose([*objects, SceneObject("star", "blue", 0.75, 0.25, 0.3)])
    model = Oracle().train()
    found = slide(model, scene.image[None])
    assert model.training
    balls = found_objects(found, [objects_of([compose(objects)])[0]])
    assert balls == (2, 2, 2)
    assert slide(model, torch.zeros(1, 3, 64, 64))[0].labels.tolist() == []


def test_objects_are_those_of_the_scenes() -> None:
    for scene, objects in zip(SOME, objects_of(SOME), strict=True):
        assert [KINDS[label] for label in objects.labels] == [one.kind for one in scene.objects]
        assert torch.equal(objects.boxes, scene.boxes)
