"""A captioner's words when places are hidden from its attention.

Shapes: scene, word (of a caption, padded); name (a word of some caption that names an object's kind or color); place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.captioning import caption_ids, images_of, middles, places_of, standard_captions
from tfbook.data.scenes import COLORS, KINDS, Scene
from tfbook.lessons.vision_beyond.finding import SCENES
from tfbook.models.captioner import Captioner
from tfbook.text.vocabulary import EOS

if TYPE_CHECKING:
    from pandas import DataFrame


class Names(NamedTuple):
    """The words of standard captions that name an object, and the places that this object touches."""

    images: Float[Tensor, "scene 3 height width"]
    ids: Int64[Tensor, "scene word"]  # of the captions, `<bos>` first
    scene: Int64[Tensor, " name"]  # whose caption it is in
    at: Int64[Tensor, " name"]  # which word of the caption it is, from 0
    touched: Bool[Tensor, "name place"]
    beside: Bool[Tensor, "name place"]  # these, and the places next to them

    @property
    def wanted(self) -> Int64[Tensor, " name"]:
        """The right words."""
        return self.ids[self.scene, self.at + 1]


def names_in(model: Captioner, scenes: Sequence[Scene]) -> Names:
    """All kinds and colors in the standard captions, and where a captioner's grid has the objects that they name."""
    first, step = middles(model.encoder.layers)
    captions, found = standard_captions(scenes), []
    for row, (scene, caption) in enumerate(zip(scenes, captions, strict=True)):
        touched = places_of(scene.masks, model.config.grid, offset=round(step / 2 - first))
        said = enumerate(zip(caption.words, caption.named, strict=True))
        found += [(row, at, touched[one]) for at, (word, one) in said if one is not None and word in (*KINDS, *COLORS)]
    rows, numbers, places = zip(*found, strict=True)
    touched = torch.stack(places)
    around = F.max_pool2d(touched.float().unflatten(1, model.config.grid), 3, stride=1, padding=1).flatten(1) > 0
    ids = caption_ids(captions, SCENES.vocabulary)
    return Names(images_of(scenes), ids, torch.tensor(rows), torch.tensor(numbers), touched, around)


def as_many_others(hidden: Bool[Tensor, "name place"], seed: int = 0) -> Bool[Tensor, "name place"]:
    """As many places as are hidden, drawn from those that are not; all of these where there are fewer."""
    order = torch.rand(hidden.shape, generator=torch.Generator().manual_seed(seed)).masked_fill(hidden, 2)
    return (order.argsort(dim=1).argsort(dim=1) < hidden.sum(dim=1, keepdim=True)) & ~hidden


def brightest(looks: Float[Tensor, "name place"], count: Int64[Tensor, " name"] | int) -> Bool[Tensor, "name place"]:
    """The `count` places with the largest weights, of each name; a negative weight takes a place out."""
    order = looks.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return (order < torch.as_tensor(count).expand(len(looks))[:, None]) & (looks >= 0)


def read_from(said: Int64[Tensor, " name"], names: Names, scenes: Sequence[Scene]) -> tuple[float, float, int]:
    """Of the wrong words, the share in percent that names a kind or color of their scene; by chance; how many.

    By chance: any of the other kinds for a kind, any of the other colors for a color.
    """
    tokens, there, chance = SCENES.vocabulary.tokens, [], []
    for wanted, word, row in zip(names.wanted.tolist(), said.tolist(), names.scene.tolist(), strict=True):
        if word != wanted:
            shown = {name for one in scenes[row].objects for name in (one.kind, one.color)}
            right = tokens[wanted]
            others = {*(KINDS if right in KINDS else COLORS)} - {right}
            there.append(tokens[word] in shown)
            chance.append(len(others & shown) / len(others))
    count = max(1, len(there))
    return 100 * sum(there) / count, 100 * sum(chance) / count, len(there)


def effect(
    hidden: Mapping[str, Bool[Tensor, "name place"]],
    said: Mapping[str, Int64[Tensor, " name"]],
    names: Names,
    looks: Float[Tensor, "name place"],
) -> DataFrame:
    """For each way to hide: how many places, how much of the attention `looks` they had, and the words still right."""
    import pandas as pd

    rows = {
        way: (
            float(places.float().sum(dim=1).mean()),
            100 * float((looks * places).sum(dim=1).mean()),
            100 * float((said[way] == names.wanted).float().mean()),
        )
        for way, places in hidden.items()
    }
    return pd.DataFrame(rows, index=["places", "their attention (%)", "words right (%)"]).T


def words_of(words: Int64[Tensor, " name"]) -> list[str]:
    """Ids as words; "." for the end of a caption."""
    return ["." if word == EOS else SCENES.vocabulary.tokens[word] for word in words.tolist()]
