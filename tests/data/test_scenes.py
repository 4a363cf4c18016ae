"""Scenes: objects are where and what the facts say, captions are true, and no two splits meet."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tfbook import data
from tfbook.data.scenes import (
    COLORS,
    GROUNDS,
    KINDS,
    RARE,
    SPLITS,
    Caption,
    SceneObject,
    Scenes,
    boxes_around,
    captions_of,
    compose,
    signed_distance,
    split_of,
)
from tfbook.data.scenes.drawing import draw_ground
from tfbook.data.scenes.shapes import CURVES, arc

SCENES = Scenes()
SOME = {split: SCENES.take(split, 40) for split in SPLITS}
places = st.floats(0.2, 0.8)

# ---- curves ------------------------------------------------------------------------------------------------------


def test_the_distance_to_a_circle_and_a_rectangle_is_the_closed_form() -> None:
    points = 3 * torch.rand(200, 2) - 1.5
    radius = torch.linalg.vector_norm(points, dim=1)
    torch.testing.assert_close(signed_distance([arc(1, 0, 351)], points), radius - 1, atol=0.004, rtol=0)
    beyond = points.abs() - torch.tensor([0.8, 0.5])
    exact = torch.linalg.vector_norm(beyond.clamp(min=0), dim=1) + beyond.amax(dim=1).clamp(max=0)
    corners = torch.tensor([(-0.8, -0.5), (0.8, -0.5), (0.8, 0.5), (-0.8, 0.5)])
    torch.testing.assert_close(signed_distance([corners], points), exact)


def test_a_curve_inside_another_is_a_hole() -> None:
    points = torch.tensor([(0.0, 0.0), (0.75, 0.0), (0.0, -0.75), (1.2, 0.0)])
    assert (signed_distance(CURVES["ring"](), points) < 0).tolist() == [False, True, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_fills_its_square(kind: str) -> None:
    curves = torch.cat(CURVES[kind]())
    assert 0.7 < float(curves.abs().amax()) <= 1.1
    assert float((curves.amax(dim=0) - curves.amin(dim=0)).amin()) > 1


# ---- images ------------------------------------------------------------------------------------------------------


@given(x=places, y=places, size=st.floats(0.2, 0.35), kind=st.sampled_from(KINDS), color=st.sampled_from([*COLORS]))
@settings(max_examples=40)
def test_an_object_is_drawn_where_it_was_put(x: float, y: float, size: float, kind: str, color: str) -> None:
    scene = compose([SceneObject(kind, color, x, y, size)], side=96)
    left, top, right, bottom = scene.boxes[0].tolist()
    assert (left + right) / 2 == pytest.approx(x, abs=0.12 * size)
    assert (top + bottom) / 2 == pytest.approx(y, abs=0.12 * size)
    assert 0.6 * size < max(right - left, bottom - top) < 1.15 * size
    middle = scene.image[:, scene.masks[0]].median(dim=1).values
    hues = torch.nn.functional.cosine_similarity(middle, torch.tensor([*COLORS.values()]), dim=1)  # outlines are darker
    assert list(COLORS)[int(hues.argmax())] == color


def test_boxes_are_tight() -> None:
    """Against loops over the pixels."""
    masks = torch.rand(5, 7, 7) < 0.08
    masks[0] = False
    for mask, box in zip(masks, boxes_around(masks).tolist(), strict=True):
        rows, columns = ([int(place[dim]) for place in mask.nonzero()] for dim in (0, 1))
        exact = [min(columns), min(rows), max(columns) + 1, max(rows) + 1] if rows else [0] * 4
        assert box == pytest.approx([edge / 7 for edge in exact])


def test_the_last_object_is_on_top() -> None:
    below, above = SceneObject("ball", "red", size=0.6), SceneObject("ball", "blue", size=0.3)
    scene = compose([below, above])
    alone = compose([below])
    assert not (scene.masks[0] & scene.masks[1]).any()
    assert torch.equal(scene.masks.any(dim=0), alone.masks[0])
    assert torch.equal(scene.boxes[0], alone.boxes[0])
    assert scene.image[2, 32, 32] > 2 * scene.image[0, 32, 32]


def test_away_from_objects_there_is_only_ground() -> None:
    for ground in GROUNDS:
        scene = compose([SceneObject("star", "red", 0.25, 0.25, 0.2)], ground=ground, seed=3)
        bare = draw_ground([ground], [3], 64)[0]
        assert torch.equal(scene.image[:, 32:], bare[:, 32:].clamp(0, 1))


def test_a_tilt_turns_clockwise() -> None:
    """A fish that looks left looks up after a quarter of a turn: its tail, the widest part at the end, is below."""
    straight, turned = (compose([SceneObject("fish", "red", tilt=tilt)], side=65).masks[0] for tilt in (0.0, 90.0))
    assert (straight.rot90(-1) ^ turned).float().mean() < 0.01


def test_a_scene_depends_on_its_split_and_number_alone() -> None:
    for split in SPLITS:
        (again,) = SCENES.take(split, 1, first=37)
        assert torch.equal(again.image, SOME[split][37].image)
        assert again.objects == SOME[split][37].objects
    assert SCENES.take("train", 0) == []


def test_objects_stand_apart_inside_the_image() -> None:
    for scene in (scene for split in SPLITS for scene in SOME[split]):
        assert scene.image.shape == (3, 64, 64)
        assert float(scene.image.min()) >= 0
        assert float(scene.image.max()) <= 1
        assert len(scene.objects) == len(scene.masks) == len(scene.boxes)
        assert int(scene.masks.sum(dim=0).max()) == 1
        assert float(scene.boxes.min()) > 0
        assert float(scene.boxes.max()) < 1
        assert scene.masks.flatten(1).sum(dim=1).min() > 40
        assert torch.equal(scene.boxes, boxes_around(scene.masks))
    counts = [len(scene.objects) for scene in SOME["train"]]
    assert set(counts) == {1, 2, 3}


# ---- splits ------------------------------------------------------------------------------------------------------


def test_no_seed_makes_two_splits_meet() -> None:
    """The split is a function of the arrangement, so other settings cannot move a scene from one to another either."""
    for scenes in (SCENES, Scenes(side=32, counts=(2,))):
        for split in SPLITS:
            assert {split_of(scene.objects) for scene in scenes.take(split, 30)} == {split}


def test_rare_looks_are_in_no_other_split() -> None:
    assert {kind for kind, _ in RARE} == set(KINDS)
    assert {color for _, color in RARE} == set(COLORS)
    looks = {split: [{(one.kind, one.color) for one in scene.objects} for scene in SOME[split]] for split in SPLITS}
    assert all(look & RARE for look in looks["rare"])
    assert not any(look & RARE for split in SPLITS[:3] for look in looks[split])


def test_a_tenth_each_is_held_out_whatever_the_order() -> None:
    common = [(kind, color) for kind in KINDS for color in COLORS if (kind, color) not in RARE]
    pairs = [
        [SceneObject(*one, x=x / 5, y=0.3), SceneObject(*other, x=0.9, y=0.6)]
        for one in common
        for other in common
        for x in range(4)
    ]
    found = [split_of(pair) for pair in pairs]
    assert found == [split_of(reversed(pair)) for pair in pairs]
    for split in ("valid", "test"):
        assert found.count(split) / len(found) == pytest.approx(0.1, abs=0.01)


# ---- captions ----------------------------------------------------------------------------------------------------


def phrases(caption: Caption) -> list[int]:
    """The objects that a caption names, in its order: each by a color and then a kind."""
    return [number for number in caption.named if number is not None][::2]


def test_captions_are_true() -> None:
    """Read by other rules than those that wrote them."""
    for scene in (scene for split in SPLITS for scene in SOME[split]):
        texts = [str(caption) for caption in scene.captions]
        assert len(set(texts)) == len(texts) > 2
        for caption in scene.captions:
            assert len(caption.words) == len(caption.named)
            for word, number in zip(caption.words, caption.named, strict=True):
                expected = word in KINDS or word in COLORS
                assert (number is not None) == expected
                if number is not None:
                    assert word in (scene.objects[number].kind, scene.objects[number].color)
            first, *others = (scene.objects[number] for number in phrases(caption))
            assert len(others) + 1 == len(scene.objects)
            for other in others[:1]:
                truth = {"left": first.x < other.x, "right": first.x > other.x}
                truth |= {"above": first.y < other.y, "below": first.y > other.y, "and": first.x < other.x}
                said = [word for word in caption.words if word in truth]
                assert said or "," in caption.words
                assert all(truth[word] for word in said)
            assert caption.words[-1] not in GROUNDS or caption.words[-1] == scene.ground


def test_a_caption_reads_as_english() -> None:
    fish, star = SceneObject("fish", "red", 0.2, 0.5), SceneObject("star", "blue", 0.8, 0.6)
    assert [str(caption) for caption in captions_of([star, fish], "sand")] == [
        "a red fish left of a blue star",
        "a blue star right of a red fish",
        "there is a red fish left of a blue star",
        "a red fish to the left of a blue star",
        "a blue star to the right of a red fish",
        "a red fish left of a blue star on sand",
    ]
    assert [str(caption) for caption in captions_of([star, replace(fish, x=0.75)], "wood")] == [
        "a red fish above a blue star",
        "a blue star below a red fish",
        "there is a red fish above a blue star",
        "a red fish above a blue star on wood",
    ]
    moon = SceneObject("moon", "white", 0.5)
    assert str(captions_of([star, fish, moon], "water")[0]) == "a red fish, a white moon and a blue star"
    assert str(captions_of([moon], "water")[1]) == "there is a white moon"


def test_every_word_is_in_the_vocabulary() -> None:
    vocabulary = SCENES.vocabulary
    words = {word for split in SPLITS for scene in SOME[split] for caption in scene.captions for word in caption.words}
    assert list(vocabulary.decode(vocabulary.encode(sorted(words)))) == sorted(words)


def test_facts_have_numbers() -> None:
    scene = SOME["train"][0]
    assert [KINDS[number] for number in scene.kinds] == [one.kind for one in scene.objects]
    assert [list(COLORS)[number] for number in scene.colors] == [one.color for one in scene.objects]
    assert str(scene) == str(scene.captions[0])


# ---- the door ----------------------------------------------------------------------------------------------------


def test_scenes_are_loaded_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    scenes = data.load("scenes")
    assert scenes == SCENES
    assert "8 kinds of objects in 6 colors on 5 grounds, 64 × 64 pixels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "cat"}, "kind is 'cat'; expected one of ball, ring"),
        ({"color": "pink"}, "color is 'pink'; expected one of red, yellow"),
        ({"x": 1.5}, "x is 1.5; expected 0 to 1"),
        ({"y": -0.5}, "y is -0.5; expected 0 to 1"),
        ({"size": 0.05}, "size is 0.05; expected 0.1 to 0.8"),
    ],
)
def test_impossible_objects_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SceneObject(**{"kind": "star", "color": "red"} | wrong)


def test_impossible_scenes_are_refused() -> None:
    star = SceneObject("star", "red")
    for call, error, message in (
        (lambda: compose([]), ValueError, "objects is empty; expected one or more"),
        (lambda: captions_of([], "sand"), ValueError, "objects is empty; expected one or more"),
        (lambda: compose([star], ground="lava"), ValueError, "ground is 'lava'; expected one of grass, sand"),
        (lambda: compose([star], side=8), ValueError, "side is 8; expected 16 or more pixels"),
        (lambda: Scenes(side=8), ValueError, "side is 8; expected 16 or more pixels"),
        (lambda: Scenes(counts=(0, 1)), ValueError, r"counts is \(0, 1\); expected numbers of objects from 1 to 4"),
        (lambda: Scenes(counts=()), ValueError, r"counts is \(\); expected numbers of objects from 1 to 4"),
        (lambda: SCENES.take("play", 1), KeyError, "split is 'play'; scenes has 'train', 'valid', 'test', 'rare'"),
        (lambda: SCENES.take("test", -1), ValueError, "count and first are -1 and 0; expected 0 or more each"),
    ):
        with pytest.raises(error, match=message):
            call()
