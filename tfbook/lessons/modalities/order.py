"""Who is where: towers and a single stream that are asked about swapped captions; and what may stand in a tower.

Shapes: image, text; pair (an image beside a text); place (patches, then words).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.masks import Lengths
from tfbook.course.captioning import images_of
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment, stored
from tfbook.data.scenes import GROUNDS, Scene, SceneObject
from tfbook.data.scenes.corpus import drawn_scenes
from tfbook.lessons.modalities.pictures_and_words import (
    D_SHARED,
    PICTURES,
    SCENES,
    TEXTS,
    Score,
    clip,
    close_ups,
    looks_of,
    plain_loss,
    recipe,
    scorer,
    swaps_of,
    text_ids,
    told_apart,
    train_clip,
    zero_shot,
)
from tfbook.models.blocks import Config, Stack, init_weights
from tfbook.models.clip import Clip, ConvolutionalPatches
from tfbook.models.cnn import Cnn
from tfbook.models.sentence_encoder import mean_pooled

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SMALL = 32  # pixels of a side
TAUGHT, ASKED = 2000, 400  # scenes of two objects
PATCHES = (SMALL // PICTURES.patch) ** 2
TOGETHER = Config(d_model=64, heads=4, d_ff=128, layers=2, max_length=PATCHES + TEXTS.max_length, position="sinusoidal")

# ---- a single stream -------------------------------------------------------------------------------------------------


class OneStream(nn.Module):
    """Patches and words in one sequence through the shared blocks, and one score for each pair."""

    def __init__(self, config: Config = TOGETHER):
        super().__init__()
        self.patches = ConvolutionalPatches(3, PICTURES.patch, config.d_model)
        self.embed = nn.Embedding(len(SCENES.vocabulary), config.d_model)
        self.stack = Stack(config)
        self.head = nn.Linear(config.d_model, 1)
        self.stack.apply(init_weights)

    def forward(
        self,
        images: Float[Tensor, "pair 3 height width"],
        ids: Int[Tensor, "pair time"],
        lengths: Int[Tensor, " pair"],
    ) -> Float[Tensor, " pair"]:
        """How well each text fits the image beside it; padding is never read."""
        x = torch.cat([self.patches(images), self.embed(ids)], dim=1)
        there = lengths + x.shape[1] - ids.shape[1]
        return self.head(mean_pooled(self.stack(x, Lengths(there)), there))[:, 0]


def stream_scorer(model: OneStream) -> Score:
    """The scores of all pairs, each of which is a pass of its own."""

    @torch.no_grad()
    def score(scenes: Sequence[Scene], texts: Sequence[str]) -> Tensor:
        images, (ids, lengths) = images_of(scenes), text_ids(texts)
        rows = [model(image.expand(len(texts), -1, -1, -1), ids, lengths) for image in images]
        return torch.stack(rows)

    return score


# ---- training --------------------------------------------------------------------------------------------------------


def with_swaps(split: str, count: int) -> list[Scene]:
    """Small scenes of two large objects of different kinds and colors, side by side or one above the other."""
    rng, looks = random.Random(f"two objects {split}"), looks_of()
    things: list[list[SceneObject]] = []
    grounds: list[str] = []
    while len(things) < count:
        (one, first), (other, second) = rng.sample(looks, 2)
        if one == other or first == second:
            continue
        near, far, middle = rng.uniform(0.24, 0.3), rng.uniform(0.7, 0.76), rng.uniform(0.45, 0.55)
        beside = [(near, middle), (far, middle)] if rng.random() < 0.5 else [(middle, near), (middle, far)]
        sizes = [rng.uniform(0.36, 0.46) for _ in beside]
        named = zip(((one, first), (other, second)), beside, sizes, strict=True)
        things.append([SceneObject(kind, color, x, y, size) for (kind, color), (x, y), size in named])
        grounds.append(rng.choice(list(GROUNDS)))
    return drawn_scenes(things, grounds, [rng.getrandbits(32) for _ in things], SMALL)


SWAPPED = ("colors swapped", "places swapped")


def false_captions(scene: Scene) -> list[str]:
    """Another color, colors swapped and places swapped."""
    return [*swaps_of(scene).values()]


class Beside(NamedTuple):
    """Images, each repeated beside its own caption and its three false ones."""

    images: Float[Tensor, "pair 3 height width"]
    ids: Int[Tensor, "pair time"]
    lengths: Int[Tensor, " pair"]

    def to(self, device: torch.device) -> Beside:
        """The same on a device."""
        return Beside(*(part.to(device) for part in self))


def beside(scenes: Sequence[Scene]) -> Beside:
    """Each scene beside its own caption, then beside its false ones."""
    texts = [[str(scene), *false_captions(scene)] for scene in scenes]
    images = images_of(scenes).repeat_interleave(len(texts[0]), dim=0)
    return Beside(images, *text_ids([text for own in texts for text in own]))


def choices_of(scenes: Sequence[Scene], size: int, seed: int) -> Callable[[int], Beside]:
    """Maps a step to `size` scenes, each beside four captions."""
    return lambda step: beside(random.Random(f"{seed} {step}").sample(scenes, size))


def choice_loss(model: OneStream, batch: Beside) -> Float[Tensor, ""]:
    """The mean of −log p(own caption), in nats, p being the softmax over it and the false ones."""
    scores = model(*batch).unflatten(0, (-1, 1 + len(SWAPPED) + 1))
    return -scores.log_softmax(dim=1)[:, 0].mean()


def trained_stream(scenes: Sequence[Scene], *, seed: int, steps: int, size: int, lr: float = 2e-3) -> OneStream:
    """A single stream that learns to choose the caption: AdamW, as the towers."""
    runtime.seed(seed)
    model = OneStream().to(runtime.device())
    training.fit(model, choice_loss, choices_of(scenes, size, seed), recipe(steps, lr))
    return model.cpu().eval()


# ---- experiments -----------------------------------------------------------------------------------------------------

TAUGHT_TOWERS, CNN_TOWERS, STREAM = "two towers", "two towers, CNN for images", "one stream"


def _taught(name: str, scenes: Sequence[Scene], seed: int, steps: int, size: int) -> tuple[nn.Module, Score]:
    if name == STREAM:
        stream = trained_stream(scenes, seed=seed, steps=steps, size=size)
        return stream, stream_scorer(stream)
    model = with_cnn(seed) if name == CNN_TOWERS else clip(seed, side=SMALL)
    train_clip(model, scenes, seed=seed, steps=steps, size=size, lr=2e-3, foils=false_captions)
    return model, scorer(model.eval())


def _asked_order(names: Sequence[str], seeds: Sequence[int], steps: int, size: int) -> list[dict[str, Any]]:
    scenes, asked = with_swaps("train", TAUGHT), with_swaps("test", ASKED)
    found = []
    for seed, name in product(seeds, names):
        model, score = _taught(name, scenes, seed, steps, size)
        right = {kind: round(share, 4) for kind, share in told_apart(score, asked).items()}
        found.append({"model": name, "seed": seed, "parameters": parameters(model)} | right)
    return found


@experiment
def order(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 800, size: int = 32) -> list[dict[str, Any]]:
    """Swapped captions of unseen scenes of two objects, after training with false captions: equal steps and scenes."""
    return _asked_order((TAUGHT_TOWERS, STREAM), seeds, steps, size)


@experiment
def order_cnn(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 800, size: int = 32) -> list[dict[str, Any]]:
    """The same by two towers of which the one for images is a CNN: the same scenes, false captions, steps and rate."""
    return _asked_order((CNN_TOWERS,), seeds, steps, size)


def diagonal(scores: Float[Tensor, "image text"], same: Bool[Tensor, "image text"]) -> Float[Tensor, ""]:
    """The loss that knows no twins: the one true text of an image is the one at its own place."""
    own = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


def with_cnn(seed: int) -> Clip:
    """CLIP with a convolutional network for images, at most as large as the page's image tower."""
    model = clip(seed, side=SMALL)
    model.images = Cnn.of_size(parameters(model.images), D_SHARED, stem=2)
    return model


ATTENDING, ALONE, CONVOLVING = "your towers, your loss", "the diagonal only", "CNN as the image tower"
ENDING, STAYING = "your towers, 360 steps", "your towers, 720 steps"


def _looked_at(names: Sequence[str], seeds: Sequence[int], steps: int, size: int) -> list[dict[str, Any]]:
    scenes, asked = close_ups("train", 600), {"right": close_ups("test", 200), "held back": close_ups("rare", 200)}
    found = []
    for seed, name in product(seeds, names):
        model = with_cnn(seed) if name == CONVOLVING else clip(seed, side=SMALL)
        loss = diagonal if name == ALONE else plain_loss
        train_clip(model, scenes, loss=loss, seed=seed, steps=steps, size=size, lr=2e-3)
        score = scorer(model.eval())
        right = {looks: round(zero_shot(score, own)["look"], 4) for looks, own in asked.items()}
        found.append({"model": name, "seed": seed, "parameters": parameters(model)} | right)
    return found


@experiment
def towers(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 180, size: int = 48) -> list[dict[str, Any]]:
    """Looks of unseen close-ups after half of the page's training, with another target and with another tower."""
    return _looked_at((ATTENDING, ALONE, CONVOLVING), seeds, steps, size)


@experiment
def towers_page(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 360, size: int = 48) -> list[dict[str, Any]]:
    """Looks of unseen close-ups after the page's training, from three starts."""
    return _looked_at((ENDING,), seeds, steps, size)


@experiment
def towers_later(seeds: Sequence[int] = (1, 2), *, steps: int = 720, size: int = 48) -> list[dict[str, Any]]:
    """Looks of unseen close-ups after twice the steps of the page's training."""
    return _looked_at((STAYING,), seeds, steps, size)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _with_range(shares: Series) -> str:
    return f"{shares.mean():.0%} ({shares.min():.0%} to {shares.max():.0%})"


def tower_table(runs: DataFrame) -> DataFrame:
    """The share of right descriptions, of looks in training and held back: the mean over seeds, and the range; size."""
    groups = runs.groupby("model", sort=False)
    table = groups[["right", "held back"]].agg(_with_range)
    table["parameters"] = groups.parameters.first().map("{:,}".format)
    return table.rename(columns={"right": "looks of training"})


def all_towers() -> DataFrame:
    """The stored runs of `towers`, of `towers_page` and of `towers_later` in one table."""
    import pandas as pd

    return pd.concat([stored(f"modalities.{name}").frame for name in ("towers", "towers_page", "towers_later")])


def all_orders() -> DataFrame:
    """The stored runs of `order` and of `order_cnn` in one table."""
    import pandas as pd

    return pd.concat([stored(f"modalities.{name}").frame for name in ("order", "order_cnn")])


def order_claims(runs: DataFrame) -> dict[int, float]:
    """The smallest share of swapped captions, over kinds and seeds, that a stream or towers with a CNN refuse."""
    learned = runs[runs.model.isin((STREAM, CNN_TOWERS))]
    return {14: float(learned[list(SWAPPED)].min(axis=None))}


def order_table(runs: DataFrame) -> DataFrame:
    """How often the true caption beats each false one: the mean over seeds, and their range."""
    return runs.groupby("model", sort=False)[["another color", *SWAPPED]].agg(_with_range)
