"""The coloring book of lesson 14: pictures in which white objects get their colors by one of two rules.

A picture has 8 × 8 places. Each row holds one white and one colored object, in columns drawn at random, and each of the
eight kinds is there once in white and once in color. Rule "row": a white object gets the color of the colored object in
its row. Rule "twin": it gets the color of the one of its own kind, wherever that is. The pictures are the same.

Colors are drawn independently, so a white object whose partner a model cannot see is a guess: one in five.
Shapes: batch; place (row by row); row, column; channel 3; side = 64 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook.data.scenes import COLORS, GROUNDS, KINDS, SceneObject
from tfbook.data.scenes.drawing import distances_to, draw_ground, paint
from tfbook.models.vit import patchify, unpatchify

EIGHT, PIXELS = 8, 8  # places along a side of the picture, pixels along a side of a place
SIDE = EIGHT * PIXELS
PALETTE = tuple(color for color in COLORS if color != "white")  # the labels
GUESS = 100 / len(PALETTE)
RULES = ("row", "twin")
BLANK = -100  # the label of places without a white object, which no loss counts
SHEETS = 500  # grounds of a split
SEEDS = {"train": 1, "valid": 2, "test": 3}  # of the splits


@dataclass(frozen=True)
class Pictures:
    """Images centered around 0, and for each place a color to give (or BLANK) and where that comes from."""

    images: Float[Tensor, "batch 3 side side"]
    labels: Int64[Tensor, "batch place"]
    sources: Int64[Tensor, "batch place"]  # the colored partner's place; the place itself where nothing is white
    kinds: Int64[Tensor, "batch place"]  # of white objects, in KINDS; 0 elsewhere

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: slice | Tensor) -> Pictures:
        """Some of the pictures."""
        return Pictures(self.images[rows], self.labels[rows], self.sources[rows], self.kinds[rows])

    def to(self, device: torch.device) -> Pictures:
        """The same pictures on another device."""
        return Pictures(*(part.to(device) for part in (self.images, self.labels, self.sources, self.kinds)))


# ---- what is where -----------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """The columns, kinds and colors of the objects in the rows of each picture."""

    columns: Int64[Tensor, "batch row 2"]  # of the white and of the colored object
    kinds: Int64[Tensor, "batch row 2"]
    colors: Int64[Tensor, "batch row"]  # of the colored one, in PALETTE


def layouts(split: str, count: int) -> tuple[Layout, torch.Generator]:
    """The first pictures of a split, and the generator, from which what is left to draw can be drawn."""
    dice = torch.Generator().manual_seed(SEEDS[split])
    columns = torch.rand(count, EIGHT, EIGHT, generator=dice).argsort(dim=-1)[..., :2]
    kinds = torch.rand(count, 2, len(KINDS), generator=dice).argsort(dim=-1).mT
    return Layout(columns, kinds, torch.randint(len(PALETTE), (count, EIGHT), generator=dice)), dice


def partners(layout: Layout, rule: str) -> Int64[Tensor, "batch row"]:
    """The row of the colored object that each row's white object looks to. Raises ValueError for an unknown rule."""
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; expected one of {', '.join(RULES)}")
    if rule == "row":
        return torch.arange(EIGHT).expand_as(layout.colors)
    white, colored = layout.kinds.unbind(dim=-1)
    return (white[:, :, None] == colored[:, None]).int().argmax(dim=-1)


def places(layout: Layout) -> Int64[Tensor, "2 batch row"]:
    """Where the white and the colored object of each row are."""
    return torch.arange(EIGHT) * EIGHT + layout.columns.movedim(-1, 0)


# ---- drawn -------------------------------------------------------------------------------------------------------


@cache
def sprites() -> tuple[Float[Tensor, "kind color 3 p p"], Float[Tensor, "kind color 3 p p"]]:
    """Each kind in each color, white last, on its place: what it adds, and how much of what is behind it stays."""
    colors = (*PALETTE, "white")
    middle = (EIGHT // 2 + 0.5) / EIGHT
    objects = [SceneObject(kind, color, middle, middle, 0.95 / EIGHT) for kind in KINDS for color in colors]
    tints = torch.tensor([COLORS[one.color] for one in objects])
    distance, some = distances_to(objects, SIDE), slice(SIDE // 2, SIDE // 2 + PIXELS)
    black, bright = (
        paint(torch.full((len(objects), 3, SIDE, SIDE), level), distance, tints, shadow=0)[..., some, some]
        for level in (0.0, 1.0)
    )
    shape = (len(KINDS), len(colors))
    return black.unflatten(0, shape), (bright - black).unflatten(0, shape)


@cache
def pictures(split: str, count: int, rule: str = "row") -> Pictures:
    """The first pictures of a split with the answers under a rule; the images of both rules are the same."""
    layout = layouts(split, count)[0]
    row, (white, colored) = partners(layout, rule), places(layout)
    here = torch.arange(EIGHT**2).repeat(count, 1)
    labels = torch.full_like(here, BLANK).scatter(1, white, layout.colors.gather(1, row))
    kinds = torch.zeros_like(here).scatter(1, white, layout.kinds[..., 0])
    return Pictures(_images(split, count), labels, here.scatter(1, white, colored.gather(1, row)), kinds)


@cache
def _images(split: str, count: int) -> Float[Tensor, "batch 3 side side"]:
    layout, dice = layouts(split, count)
    names = [list(GROUNDS)[number % len(GROUNDS)] for number in range(SHEETS)]
    grounds = patchify(draw_ground(names, [SHEETS * SEEDS[split] + number for number in range(SHEETS)], SIDE), PIXELS)
    sheets = torch.randint(SHEETS, (count,), generator=dice)
    tints = torch.stack([torch.full_like(layout.colors, len(PALETTE)), layout.colors], dim=1)
    at, images = places(layout).movedim(0, 1).flatten(1)[..., None], torch.empty(count, 3, SIDE, SIDE)
    for some in torch.arange(count).split(SHEETS):  # in pieces, which keeps the memory small
        added, kept = (part[layout.kinds[some].mT, tints[some]].flatten(3).flatten(1, 2) for part in sprites())
        tiles, here = grounds[sheets[some]], at[some].expand_as(added)
        tiles.scatter_(1, here, tiles.gather(1, here) * kept + added)
        images[some] = 4 * (unpatchify(tiles, PIXELS, (EIGHT, EIGHT)).clamp(0, 1) - 0.5)
    return images


def colored_in(part: Pictures, said: Int64[Tensor, "batch place"]) -> Float[Tensor, "batch 3 side side"]:
    """The images with their white objects in the colors that are said; places without one stay as they are."""
    here = part.labels != BLANK
    kinds, added = part.kinds[here], sprites()[0].flatten(3)
    tiles = patchify(part.images / 4 + 0.5, PIXELS)
    tiles[here] += (added[kinds, said[here]] - added[kinds, len(PALETTE)]).flatten(1)
    return 4 * (unpatchify(tiles, PIXELS, (EIGHT, EIGHT)).clamp(0, 1) - 0.5)


# ---- changed -----------------------------------------------------------------------------------------------------


def jigsaw(part: Pictures, *, seed: int = 0) -> Pictures:
    """The places of each picture in a random order of its own; everything that is known of them goes along."""
    dice = torch.Generator().manual_seed(seed)
    order = torch.rand(part.labels.shape, generator=dice).argsort(dim=1)
    tiles = torch.take_along_dim(patchify(part.images, PIXELS), order[..., None], dim=1)
    labels, sources, kinds = (
        torch.take_along_dim(each, order, dim=1) for each in (part.labels, part.sources, part.kinds)
    )
    sources = torch.take_along_dim(order.argsort(dim=1), sources, dim=1)  # where the source went
    return Pictures(unpatchify(tiles, PIXELS, (EIGHT, EIGHT)), labels, sources, kinds)


def moved(part: Pictures, pixels: int) -> Pictures:
    """The images shifted down and to the right, with their first row and column repeated; the answers stay."""
    if not pixels:
        return part
    images = F.pad(part.images[..., :-pixels, :-pixels], (pixels, 0, pixels, 0), mode="replicate")
    return replace(part, images=images)
