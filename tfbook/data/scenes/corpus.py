"""The corpus of scenes: any number of them in four splits, and scenes that a reader composes.

Shapes: scene, object (padded), height and width, word.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from tfbook.data.scenes.captions import Caption, caption_words, captions_of
from tfbook.data.scenes.drawing import GROUNDS, draw
from tfbook.data.scenes.objects import COLORS, SceneObject
from tfbook.data.scenes.shapes import KINDS
from tfbook.text.vocabulary import Vocabulary

SPLITS = ("train", "valid", "test", "rare")
RARE = frozenset((kind, list(COLORS)[number % len(COLORS)]) for number, kind in enumerate(KINDS))
LOOKS = [(kind, color) for kind in KINDS for color in COLORS]
CELLS = 4  # rows and columns of places that an arrangement counts as the same
SIZES = (0.22, 0.4)
TILT = 12.0  # degrees to either side
GAP = 0.04  # between boxes, and between a box and the edge of the image
CLEAR = 2.0  # of two objects, how many times farther apart they are on one axis than on the other
STEP = 0.08  # of more objects, how much farther right the next one is at least
CHUNK = 32  # scenes that are drawn at once


@dataclass(frozen=True, eq=False)
class Scene:
    """An image, and all that is known about it; objects, masks and boxes are in the same order."""

    objects: tuple[SceneObject, ...]
    ground: str
    image: Float[Tensor, "3 height width"]
    masks: Bool[Tensor, "object height width"]
    boxes: Float[Tensor, "object 4"]  # left, top, right, bottom as shares of the side

    @property
    def kinds(self) -> Int64[Tensor, " object"]:
        """The number of each object's kind in `KINDS`."""
        return torch.tensor([KINDS.index(one.kind) for one in self.objects])

    @property
    def colors(self) -> Int64[Tensor, " object"]:
        """The number of each object's color in `COLORS`."""
        return torch.tensor([list(COLORS).index(one.color) for one in self.objects])

    @cached_property
    def captions(self) -> list[Caption]:
        """True captions, the standard one first."""
        return captions_of(self.objects, self.ground)

    def __str__(self) -> str:
        return str(self.captions[0])


def drawn_scenes(
    arrangements: Sequence[Sequence[SceneObject]],
    grounds: Sequence[str],
    seeds: Sequence[int],
    side: int,
    *,
    shadow: float = 0.35,
) -> list[Scene]:
    """Draws scenes together; each is what it would be alone."""
    drawn = draw(arrangements, grounds, seeds, side, shadow=shadow)
    scenes = []
    for row, (objects, ground) in enumerate(zip(arrangements, grounds, strict=True)):
        masks, boxes = (part[row, : len(objects)].clone() for part in (drawn.masks, drawn.boxes))
        scenes.append(Scene(tuple(objects), ground, drawn.images[row].clone(), masks, boxes))
    return scenes


def compose(objects: Iterable[SceneObject], *, ground: str = "grass", side: int = 64, seed: int = 0) -> Scene:
    """The scene of these objects, drawn in their order; `seed` chooses the texture of the ground.

    Raises ValueError when there is no object, for an unknown ground, and for a side below 16.
    """
    objects = tuple(objects)
    if not objects:
        raise ValueError("objects is empty; expected one or more")
    if ground not in GROUNDS:
        raise ValueError(f"ground is {ground!r}; expected one of {', '.join(GROUNDS)}")
    check_side(side)
    return drawn_scenes([objects], [ground], [seed], side)[0]


def check_side(side: int) -> None:
    """Checks that an image has pixels enough to show an object."""
    if side < 16:
        raise ValueError(f"side is {side}; expected 16 or more pixels")


# ---- splits ------------------------------------------------------------------------------------------------------


def split_of(objects: Iterable[SceneObject]) -> str:
    """The split to which an arrangement belongs, whoever drew it: so no seed can make two splits meet.

    "rare" is every scene with a combination of kind and color from `RARE`, which no other split shows. Of the others, a
    hash of kinds, colors and rough places gives a tenth each to "valid" and "test", and the rest to "train".
    """
    objects = list(objects)
    if any((one.kind, one.color) in RARE for one in objects):
        return "rare"
    places = sorted(f"{one.color} {one.kind} {int(one.x * CELLS)} {int(one.y * CELLS)}" for one in objects)
    tenth = int.from_bytes(hashlib.sha256(", ".join(places).encode()).digest()[:8]) % 10
    return {0: "valid", 1: "test"}.get(tenth, "train")


def _arranged(rng: random.Random, count: int) -> list[SceneObject]:
    """Objects of different looks that stand apart and inside the image; none when these places do not fit."""
    objects: list[SceneObject] = []
    for kind, color in rng.sample(LOOKS, count):
        size = rng.uniform(*SIZES)
        low, high = size / 2 + GAP, 1 - size / 2 - GAP
        one = SceneObject(kind, color, rng.uniform(low, high), rng.uniform(low, high), size, rng.uniform(-TILT, TILT))
        if not all(_apart(one, other) for other in objects):
            return []
        objects.append(one)
    return objects if _clear(objects) else []


def _apart(one: SceneObject, other: SceneObject) -> bool:
    """Whether the boxes of two objects do not touch."""
    return max(abs(one.x - other.x), abs(one.y - other.y)) > (one.size + other.size) / 2 + GAP


def _clear(objects: Sequence[SceneObject]) -> bool:
    """Whether nobody would argue about where one of two objects is, seen from the other, or about an order in x."""
    if len(objects) == 2:
        near, far = sorted((abs(objects[0].x - objects[1].x), abs(objects[0].y - objects[1].y)))
        return far > CLEAR * near
    across = sorted(one.x for one in objects)
    return all(right - left > STEP for left, right in pairwise(across))


@dataclass(frozen=True)
class Scenes:
    """Scenes without end: `scenes.take("train", 1000)`. `Scenes(side=48, counts=(2,))` has other sizes and counts.

    A scene depends on its split, its number and these settings alone. Raises ValueError for a side below 16 and counts
    that are not from 1 to 4.
    """

    side: int = 64
    counts: tuple[int, ...] = field(default=(1, 2, 3))  # of objects in a scene, equally often

    def __post_init__(self) -> None:
        check_side(self.side)
        if not self.counts or not 1 <= min(self.counts) <= max(self.counts) <= 4:
            raise ValueError(f"counts is {self.counts}; expected numbers of objects from 1 to 4")

    def take(self, split: str, count: int, *, first: int = 0) -> list[Scene]:
        """The scenes of a split with the numbers `first`, `first` + 1, …; about 1 ms each.

        Raises KeyError for an unknown split and ValueError for negative numbers.
        """
        if split not in SPLITS:
            raise KeyError(f"split is {split!r}; scenes has {', '.join(map(repr, SPLITS))}")
        if min(count, first) < 0:
            raise ValueError(f"count and first are {count} and {first}; expected 0 or more each")
        scenes: list[Scene] = []
        for start in range(first, first + count, CHUNK):
            numbers = range(start, min(start + CHUNK, first + count))
            plans = [self._planned(split, number) for number in numbers]
            objects, grounds, seeds = (list(part) for part in zip(*plans, strict=True))
            scenes += drawn_scenes(objects, grounds, seeds, self.side)
        return scenes

    def _planned(self, split: str, number: int) -> tuple[list[SceneObject], str, int]:
        """Objects, ground and the seed of its texture: drawn again until the arrangement belongs to the split."""
        rng = random.Random(f"{split} {number} {self.counts}")
        count = rng.choice(self.counts)
        objects: list[SceneObject] = []
        while not objects or split_of(objects) != split:
            objects = _arranged(rng, count)
        return objects, rng.choice(list(GROUNDS)), rng.getrandbits(32)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every word of any caption, and the special tokens."""
        return Vocabulary([caption_words()])

    def __str__(self) -> str:
        size = f"{self.side} × {self.side} pixels"
        looks = f"{len(KINDS)} kinds of objects in {len(COLORS)} colors on {len(GROUNDS)} grounds"
        return f"scenes: {looks}, {size}; any number in the splits {', '.join(SPLITS)}"


def read_scenes() -> Scenes:
    """The scenes of the lessons: one to three objects, 64 × 64 pixels."""
    return Scenes()
