"""Captions of scenes as ids, and two questions to a captioner: are its words right, and does it look at what it names?

Shapes: scene, word (padded), place = row · column of the grid that a captioner attends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook.data.scenes import Caption, Scene
from tfbook.models.captioner import Captioner, describe
from tfbook.modes import evaluating
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary

Grid = tuple[int, int]


def caption_ids(captions: Sequence[Caption], vocabulary: Vocabulary) -> Int64[Tensor, "scene word"]:
    """A row per caption: `<bos>`, its words, `<eos>`, and padding up to the longest."""
    rows = [torch.tensor([BOS, *vocabulary.encode(caption.words), EOS]) for caption in captions]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def images_of(scenes: Sequence[Scene]) -> Float[Tensor, "scene 3 height width"]:
    """The images of scenes as one batch."""
    return torch.stack([scene.image for scene in scenes])


def standard_captions(scenes: Sequence[Scene]) -> list[Caption]:
    """The first caption of each scene."""
    return [scene.captions[0] for scene in scenes]


# ---- words -------------------------------------------------------------------------------------------------------


class WordsRight(NamedTuple):
    """How good captions are."""

    words: float  # share of the words (and ends) of the standard captions that are most probable after those before
    captions: float  # share of the scenes whose caption, written freely, is one of their true ones


@torch.no_grad()
def words_right(model: Captioner, scenes: Sequence[Scene], vocabulary: Vocabulary) -> WordsRight:
    """Scores a captioner on scenes, in eval mode."""
    images, ids = images_of(scenes), caption_ids(standard_captions(scenes), vocabulary)
    with evaluating(model):
        said = model(images, ids[:, :-1]).logits.argmax(dim=-1)
    targets = ids[:, 1:]
    right = (said == targets)[targets != PAD].float().mean()
    free = [vocabulary.decode(row) for row in describe(model, images).tokens]
    true = [words in {caption.words for caption in scene.captions} for words, scene in zip(free, scenes, strict=True)]
    return WordsRight(float(right), sum(true) / len(true))


# ---- attention ---------------------------------------------------------------------------------------------------


class AttentionMass(NamedTuple):
    """The share of the attention that lies on the named object, averaged over the words that name one."""

    model: float
    uniform: float  # that of attention which is equal everywhere
    center: float  # that of a bell around the middle of the image, a quarter of its side wide
    other: float  # the model's on another object of the image, in the mean of these; nan where there is none


class Middles(NamedTuple):
    """Which pixels the places of a feature map see in the middle, along rows as along columns."""

    first: float  # of the first place; 0 is the first pixel
    step: int  # from one place to the next


def middles(layers: nn.Module) -> Middles:
    """The middles of square convolutions, one after the other: each begins (kernel − 1) / 2 − padding further in."""
    first, step = 0.0, 1
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d):
            first += ((layer.kernel_size[0] - 1) / 2 - int(layer.padding[0])) * step
            step *= layer.stride[0]
    return Middles(first, step)


def places_of(
    masks: Bool[Tensor, "object height width"], grid: Grid, *, offset: int = 0, middle: bool = False
) -> Bool[Tensor, "object place"]:
    """The places of a grid that an object touches, or with `middle` those whose middle is on it.

    Places stand `offset` pixels to the upper left of even tiles. Raises ValueError when the grid does not divide the
    image.
    """
    rows, columns = (length // side for length, side in zip(masks.shape[1:], grid, strict=True))
    if (rows * grid[0], columns * grid[1]) != tuple(masks.shape[1:]):
        raise ValueError(f"grid is {grid} and masks are {tuple(masks.shape[1:])}; expected the grid to divide them")
    height, width = masks.shape[1:]
    moved = F.pad(masks[None].float(), (offset, 0, offset, 0))[..., :height, :width]
    if middle:
        return moved[0, :, rows // 2 :: rows, columns // 2 :: columns].flatten(1) > 0
    return F.max_pool2d(moved, (rows, columns))[0].flatten(1) > 0


def bell(grid: Grid) -> Float[Tensor, " place"]:
    """Weights that fall off from the middle of a grid like a normal distribution; their sum is 1."""
    lines = [((torch.arange(side) + 0.5) / side - 0.5) / 0.25 for side in grid]
    return torch.softmax(-(lines[0][:, None].square() + lines[1].square()).flatten() / 2, dim=0)


def attention_on_objects(
    weights: Float[Tensor, "scene word place"],
    scenes: Sequence[Scene],
    captions: Sequence[Caption],
    grid: Grid,
    *,
    margin: int = 0,
    offset: int = 0,
    middle: bool = False,
) -> AttentionMass:
    """How much of the attention at each word that names an object lies on places that this object touches.

    `weights[:, t]` are those at word t of the captions. Places up to `margin` rows and columns away count, too, and
    all stand `offset` pixels to the upper left of even tiles; with `middle`, those count whose middle is on the object.
    Raises ValueError when no word names an object.
    """
    masses, others = [], []
    for row, (scene, caption) in enumerate(zip(scenes, captions, strict=True)):
        touched = places_of(scene.masks, grid, offset=offset, middle=middle).float().unflatten(1, grid)
        touched = F.max_pool2d(touched, 2 * margin + 1, stride=1, padding=margin).flatten(1)
        for word, number in enumerate(caption.named):
            if number is not None:
                looks = torch.stack([weights[row, word], torch.full_like(bell(grid), 1 / len(bell(grid))), bell(grid)])
                masses.append(looks @ touched[number])
                rest = torch.cat([touched[:number], touched[number + 1 :]])
                others += [(rest @ weights[row, word]).mean()] if len(rest) else []
    if not masses:
        raise ValueError("captions names no object; expected words for a kind or a color")
    other = float(torch.stack(others).mean()) if others else float("nan")
    model, uniform, center = torch.stack(masses).mean(dim=0).tolist()
    return AttentionMass(model, uniform, center, other)
