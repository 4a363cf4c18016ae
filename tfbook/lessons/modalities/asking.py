"""A reader asks the shipped CLIP: the best scenes for a text, the best text for a scene, and which patches matter.

Shapes: image, text; row, column of patches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.data.scenes import COLORS, KINDS, Scene
from tfbook.lessons.modalities.pictures_and_words import PICTURES, plain_chances, text_ids
from tfbook.models.clip import Clip
from tfbook.models.vit import patchify, unpatchify

if TYPE_CHECKING:
    from pandas import DataFrame

COVERED = "Where covering a patch changes the score"  # title of the figure

# ---- a caption for a scene -------------------------------------------------------------------------------------------


@cache
def short_texts() -> tuple[str, ...]:
    """Every standard caption of one object, and of two that are next to each other or one above the other."""
    things = [f"a {color} {kind}" for color, kind in product(COLORS, KINDS)]
    near = ("left of", "above")
    return (*things, *(f"{a} {how} {b}" for a, b in product(things, things) if a != b for how in near))


Chances = Callable[[Tensor, Tensor, Tensor], Tensor]  # of images' vectors, texts' vectors and the scale


@torch.no_grad()
def best_texts(model: Clip, scene: Scene, chances: Chances = plain_chances, *, count: int = 5) -> DataFrame:
    """The `count` of `short_texts` that fit a scene best, with their probabilities; and which is its own caption."""
    import pandas as pd

    vectors = model.text_vectors(*text_ids(short_texts()))
    best = chances(model.image_vectors(scene.image[None]), vectors, model.scale)[0].topk(count)
    texts = [short_texts()[row] for row in best.indices.tolist()]
    own = ["←" if text == str(scene) else "" for text in texts]
    percent = [f"{chance:.1%}" for chance in best.values.tolist()]
    return pd.DataFrame({"caption": texts, "probability": percent, "its own": own})


# ---- which patches matter --------------------------------------------------------------------------------------------


@torch.no_grad()
def place_maps(model: Clip, scene: Scene, texts: Sequence[str]) -> dict[str, Float[Tensor, "row column"]]:
    """The cosine of each patch's own vector with each text."""
    places = F.normalize(model.images.places(scene.image[None])[0], dim=-1)  # type: ignore[operator]
    cosines = model.text_vectors(*text_ids(texts)) @ places.T
    return {text: row.unflatten(0, PICTURES.grid) for text, row in zip(texts, cosines, strict=True)}


@torch.no_grad()
def covered_maps(model: Clip, scene: Scene, texts: Sequence[str]) -> dict[str, Float[Tensor, "row column"]]:
    """How much the cosine of the image with each text falls when a patch shows the mean color of the image instead."""
    vectors = model.text_vectors(*text_ids(texts))
    count, color = PICTURES.grid[0] * PICTURES.grid[1], scene.image.mean(dim=(1, 2))
    pieces = patchify(scene.image[None], PICTURES.patch).repeat(count, 1, 1)
    plain = color.repeat_interleave(PICTURES.patch**2)
    pieces[torch.arange(count), torch.arange(count)] = plain
    covered = unpatchify(pieces, PICTURES.patch, PICTURES.grid)
    falls = model.image_vectors(scene.image[None]) @ vectors.T - model.image_vectors(covered) @ vectors.T
    return {text: fall.unflatten(0, PICTURES.grid) for text, fall in zip(texts, falls.T, strict=True)}
