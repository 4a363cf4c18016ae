"""Captions in plain English: several true ones for each scene, and which object each word names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbook.data.scenes.drawing import GROUNDS
from tfbook.data.scenes.objects import COLORS, SceneObject
from tfbook.data.scenes.shapes import KINDS

OPPOSITES = {"left of": "right of", "above": "below"}
_PHRASES = ("there is", "to the left of", "to the right of", "above", "below", "and", ",", "on", "a")


@dataclass(frozen=True)
class Caption:
    """Words, and for each of them the number of the object whose color or kind it names, or None."""

    words: tuple[str, ...]
    named: tuple[int | None, ...]

    def __add__(self, other: Caption | str) -> Caption:
        more = plain_words(other) if isinstance(other, str) else other
        return Caption(self.words + more.words, self.named + more.named)

    def __str__(self) -> str:
        return " ".join(self.words).replace(" ,", ",")


def plain_words(text: str) -> Caption:
    """Words that name no object."""
    words = tuple(text.split())
    return Caption(words, (None,) * len(words))


def noun_phrase(number: int, thing: SceneObject) -> Caption:
    """The object `number` as "a red fish"."""
    return Caption(("a", thing.color, thing.kind), (None, number, number))


def caption_words() -> list[str]:
    """Every word of any caption, in alphabetical order."""
    return sorted({*KINDS, *COLORS, *GROUNDS, *(word for text in _PHRASES for word in text.split())})


def relation_between(first: SceneObject, second: SceneObject) -> str:
    """Where the first of two objects is, seen from the second: along the axis on which they are farther apart."""
    across, down = first.x - second.x, first.y - second.y
    near = "left of" if abs(across) > abs(down) else "above"
    return near if (across if near == "left of" else down) < 0 else OPPOSITES[near]


def captions_of(objects: Sequence[SceneObject], ground: str) -> list[Caption]:
    """All captions of a scene, the standard one first.

    It names the objects from left to right; two whose difference in height is larger, from top to bottom. The others
    say the same in other words. Raises ValueError when there is no object.
    """
    if not objects:
        raise ValueError("objects is empty; expected one or more")
    if len(objects) == 2:
        told = _of_two(objects)
    else:
        order = sorted(range(len(objects)), key=lambda number: objects[number].x)
        listed = _listed([noun_phrase(number, objects[number]) for number in order])
        told = [listed, plain_words("there is") + listed]
    return [*told, told[0] + f"on {ground}"]


def _of_two(objects: Sequence[SceneObject]) -> list[Caption]:
    first, second = (0, 1) if relation_between(*objects) in OPPOSITES else (1, 0)
    near = relation_between(objects[first], objects[second])
    a, b = noun_phrase(first, objects[first]), noun_phrase(second, objects[second])
    standard, turned = a + near + b, b + OPPOSITES[near] + a
    told = [standard, turned, plain_words("there is") + standard]
    return told if near == "above" else [*told, a + "to the left of" + b, b + "to the right of" + a]


def _listed(phrases: Sequence[Caption]) -> Caption:
    """ "a, b and c"."""
    text = phrases[0]
    for each in phrases[1:-1]:
        text = text + "," + each
    return text if len(phrases) == 1 else text + "and" + phrases[-1]
