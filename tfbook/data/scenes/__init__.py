"""Scenes: images of a few objects of known kind, color and place on textured ground, with captions.

`data.load("scenes").take("train", 1000)` draws some, `compose([SceneObject("fish", "red", x=0.3)])` draws one to order.
The files: `shapes` holds the kinds of objects, `drawing` makes images of them, `captions` describes them.
"""

from tfbook.data.scenes.captions import Caption, caption_words, captions_of, relation_between
from tfbook.data.scenes.corpus import RARE, SPLITS, Scene, Scenes, compose, read_scenes, split_of
from tfbook.data.scenes.drawing import GROUNDS, boxes_around
from tfbook.data.scenes.objects import COLORS, SceneObject
from tfbook.data.scenes.shapes import KINDS, signed_distance

__all__ = [
    "COLORS",
    "GROUNDS",
    "KINDS",
    "RARE",
    "SPLITS",
    "Caption",
    "Scene",
    "SceneObject",
    "Scenes",
    "boxes_around",
    "caption_words",
    "captions_of",
    "compose",
    "read_scenes",
    "relation_between",
    "signed_distance",
    "split_of",
]
