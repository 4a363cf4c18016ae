"""The captioner and the DETR of lesson 14: how they are trained, how they are scored, and the weights that ship.

Shapes: batch, scene, place, word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.captioning import (
    AttentionMass,
    attention_on_objects,
    caption_ids,
    images_of,
    middles,
    standard_captions,
    words_right,
)
from tfbook.course.cost import parameters
from tfbook.course.detection import labeled_crops, objects_of, slide
from tfbook.course.experiments import experiment
from tfbook.data.images import LabeledImages
from tfbook.data.scenes import KINDS, Scene, Scenes
from tfbook.lessons.vision_beyond.contest import Batches, recipe
from tfbook.models.captioner import Captioner, CaptionerConfig
from tfbook.models.cnn import Cnn
from tfbook.models.detr import Detections, Detr, DetrConfig
from tfbook.modes import evaluating
from tfbook.training.losses import Loss, caption_loss
from tfbook.training.set_prediction import FoundObjects, Objects, claims, detection_loss, found_objects

SCENES = Scenes()
TRAIN, JUDGED = 6_000, 500  # scenes for training, and of "valid" and of "test"
CROPPED = 2000  # of the training scenes, those whose crops the sliding classifier sees
BATCH = 32
NO_OBJECT = 0.4  # weight of "no object" in DETR's loss
LEAST = tuple(number / 20 for number in range(2, 20))  # thresholds that "valid" chooses from


@dataclass(frozen=True)
class Examples:
    """Images, and for each of them a caption as ids, and its objects."""

    images: Float[Tensor, "scene 3 height width"]
    ids: Int64[Tensor, "scene word"]
    objects: tuple[Objects, ...]

    @classmethod
    def of(cls, scenes: Sequence[Scene]) -> Examples:
        """With standard captions."""
        ids = caption_ids(standard_captions(scenes), SCENES.vocabulary)
        return cls(images_of(scenes), ids, tuple(objects_of(scenes)))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Int64[Tensor, " rows"]) -> Examples:
        """Some of them."""
        at = rows.to(self.images.device)
        return Examples(self.images[at], self.ids[at], tuple(self.objects[row] for row in rows.tolist()))

    def to(self, device: torch.device) -> Examples:
        """The same examples on another device."""
        if device == self.images.device:
            return self
        objects = tuple(Objects(*(part.to(device) for part in one)) for one in self.objects)
        return Examples(self.images.to(device), self.ids.to(device), objects)


# ---- models and losses -------------------------------------------------------------------------------------------


def new_captioner() -> Captioner:
    """A small captioner of the scenes, untrained."""
    sizes = CaptionerConfig(vocab=len(SCENES.vocabulary), backbone=(24, 48, 64), d_features=64, d_embed=48, d_hidden=96)
    return Captioner(sizes)


def new_detr() -> Detr:
    """A small DETR of the scenes, untrained: two layers in the encoder and in the decoder."""
    return Detr(len(KINDS), DetrConfig(d_model=64, heads=4, d_ff=128, layers=2, queries=8, dropout=0.0))


def told(model: nn.Module, batch: Examples) -> Loss:
    """The loss of the captions."""
    return caption_loss(model, batch.images, batch.ids)


def matched(model: nn.Module, batch: Examples) -> Loss:
    """The loss of the matched objects."""
    return detection_loss(model, batch.images, batch.objects, no_object=NO_OBJECT)


def trained_captioner(examples: Examples, *, seed: int, steps: int = 1300, lr: float = 0.003) -> Captioner:
    """A captioner trained on these examples."""
    runtime.seed(seed)
    model = new_captioner().to(runtime.device())
    training.fit(
        model, told, Batches(examples.to(runtime.device()), size=BATCH, seed=seed), recipe(steps, lr, weight_decay=0.01)
    )
    return model.eval()


def trained_detr(examples: Examples, *, seed: int, steps: int = 1500, lr: float = 0.0015) -> Detr:
    """A DETR trained on these examples."""
    runtime.seed(seed)
    model = new_detr().to(runtime.device())
    training.fit(
        model,
        matched,
        Batches(examples.to(runtime.device()), size=BATCH, seed=seed),
        recipe(steps, lr, weight_decay=0.01),
    )
    return model.eval()


# ---- scores ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def forced_looks(model: Captioner, scenes: Sequence[Scene]) -> Float[Tensor, "scene word place"]:
    """Where the captioner looks for each word of the standard captions, given the words before it."""
    ids = caption_ids(standard_captions(scenes), SCENES.vocabulary)
    with evaluating(model):
        return model(images_of(scenes), ids[:, :-1]).weights


def looks_at(
    model: Captioner, scenes: Sequence[Scene], *, margin: int = 0, tiles: bool = False, middle: bool = False
) -> AttentionMass:
    """The share of the attention that lies on the named object, or up to `margin` places beside it.

    A place is the square around the pixel in the middle of what it sees, or with `tiles` an even tile of the image; an
    object has to touch it, or with `middle` to cover its middle.
    """
    first, step = middles(model.encoder.layers)
    weights, grid = forced_looks(model, scenes), model.config.grid
    offset = 0 if tiles else round(step / 2 - first)
    captions = standard_captions(scenes)
    return attention_on_objects(weights, scenes, captions, grid, margin=margin, offset=offset, middle=middle)


def caption_scores(model: Captioner, scenes: Sequence[Scene]) -> dict[str, float]:
    """Words and captions right, and the share of the attention on the named object by tiles, with two baselines."""
    model = model.cpu()
    right = words_right(model, scenes, SCENES.vocabulary)
    mass = looks_at(model, scenes, tiles=True)
    scores = right._asdict() | {"on_object": mass.model, "uniform": mass.uniform, "center": mass.center}
    return {name: round(value, 4) for name, value in scores.items()}


@torch.no_grad()
def answers(model: Detr, scenes: Sequence[Scene]) -> Detections:
    """The answers of all queries, on the CPU."""
    device = next(model.parameters()).device
    with evaluating(model):
        parts = [model(piece.to(device)) for piece in images_of(scenes).split(100)]
    return Detections(*(torch.cat(part).cpu() for part in zip(*parts, strict=True)))


def balance(found: FoundObjects) -> float:
    """F1, the harmonic mean of recall and precision: 2 found / (objects + claimed)."""
    return 2 * found.found / max(found.objects + found.claimed, 1)


def best_threshold(said: Detections, scenes: Sequence[Scene]) -> float:
    """The chance of any object over which claims have the best F1 on these scenes."""
    objects = objects_of(scenes)
    return max(LEAST, key=lambda least: balance(found_objects(claims(*said, least=least), objects)))


def detection_scores(claimed: Sequence[Objects], scenes: Sequence[Scene]) -> dict[str, float]:
    """Recall and precision at an IoU of one half, with the right kind."""
    found = found_objects(claimed, objects_of(scenes))
    return {"recall": round(found.recall, 4), "precision": round(found.precision, 4)}


def trained_slider(scenes: Sequence[Scene], *, seed: int, steps: int = 1000, lr: float = 0.003) -> nn.Module:
    """A CNN with as many parameters as DETR that names crops: a kind, or nothing."""
    runtime.seed(seed)
    model = Cnn.of_size(parameters(new_detr()), len(KINDS) + 1, stages=3).to(runtime.device())
    part = labeled_crops(scenes, seed=seed).to(runtime.device())

    def named(model: nn.Module, part: LabeledImages) -> Float[Tensor, ""]:
        return F.cross_entropy(model(part.images), part.labels)

    training.fit(model, named, Batches(part, size=64, seed=seed), recipe(steps, lr, weight_decay=0.01))
    return model.eval()


# ---- one run each ------------------------------------------------------------------------------------------------


def captioned(
    examples: Examples, test: Sequence[Scene], seed: int, steps: int = 1300
) -> tuple[dict[str, Any], Captioner]:
    """A captioner's scores, and itself."""
    model = trained_captioner(examples, seed=seed, steps=steps)
    return {"model": "captioner", "seed": seed, "parameters": parameters(model)} | caption_scores(model, test), model


def detected(
    examples: Examples, valid: Sequence[Scene], test: Sequence[Scene], seed: int, steps: int = 1500
) -> tuple[dict[str, Any], Detr]:
    """A DETR's scores at the threshold that "valid" chooses, and itself."""
    model = trained_detr(examples, seed=seed, steps=steps)
    least = best_threshold(answers(model, valid), valid)
    scores = detection_scores(claims(*answers(model, test), least=least), test)
    return {"model": "DETR", "seed": seed, "parameters": parameters(model), "least": least} | scores, model


def slid(scenes: Sequence[Scene], test: Sequence[Scene], seed: int, steps: int = 1000) -> dict[str, Any]:
    """The scores of a sliding classifier."""
    model = trained_slider(scenes, seed=seed, steps=steps)
    claimed = [Objects(*(part.cpu() for part in one)) for one in slide(model, images_of(test).to(runtime.device()))]
    row = {"model": "sliding classifier", "seed": seed, "parameters": parameters(model)}
    return row | detection_scores(claimed, test)


# ---- stored ------------------------------------------------------------------------------------------------------


@experiment
def captions(seeds: Sequence[int] = (1,)) -> list[dict[str, Any]]:
    """Captioners, scored on test scenes; the weights of the first one ship."""
    examples, test = Examples.of(SCENES.take("train", TRAIN)), SCENES.take("test", JUDGED)
    return [captioned(examples, test, seed)[0] for seed in seeds]


@experiment
def detections(seeds: Sequence[int] = (1,)) -> list[dict[str, Any]]:
    """DETRs, scored on test scenes at the thresholds that "valid" chooses; the weights of the first one ship."""
    examples, valid = Examples.of(SCENES.take("train", TRAIN)), SCENES.take("valid", JUDGED)
    return [detected(examples, valid, SCENES.take("test", JUDGED), seed)[0] for seed in seeds]


@experiment
def sliding(seeds: Sequence[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """Sliding classifiers, scored on test scenes."""
    return [slid(SCENES.take("train", CROPPED), SCENES.take("test", JUDGED), seed) for seed in seeds]
