"""CLIP beside its rivals: stored runs of the model, with swapped captions as negatives, and of three without either.

Shapes: image, text, word; feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.captioning import images_of
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.scenes import Scene
from tfbook.lessons.modalities.pictures_and_words import (
    PICTURES,
    SCENES,
    TRAINED,
    TRAINED_ON,
    Pairs,
    Score,
    asked_everything,
    batches,
    candidates,
    foils_of,
    retrieved,
    save,
    scorer,
    text_ids,
    trained_clip,
)
from tfbook.models.clip import ImageTower

if TYPE_CHECKING:
    from pandas import DataFrame

WORDS = len(SCENES.vocabulary)

# ---- a bag of words --------------------------------------------------------------------------------------------------


def bags(texts: Sequence[str]) -> Float[Tensor, "text word"]:
    """How often each word of the vocabulary stands in each text."""
    ids, lengths = text_ids(texts)
    there = torch.arange(ids.shape[1]) < lengths[:, None]
    return F.one_hot(ids, WORDS).mul(there[..., None]).sum(dim=1).float()


def word_scorer(tower: ImageTower) -> Score:
    """Σ over words of log p(the word is, or is not, in the caption | image): a caption as a set of labels."""

    @torch.no_grad()
    def score(scenes: Sequence[Scene], texts: Sequence[str]) -> Tensor:
        logits, there = tower(images_of(scenes)), bags(texts).clamp(max=1)
        return F.logsigmoid(logits) @ there.T + F.logsigmoid(-logits) @ (1 - there).T

    return score


def trained_labeler(scenes: Sequence[Scene], *, seed: int, steps: int, size: int, lr: float) -> ImageTower:
    """The same image tower, steps and rate, trained to say which words the caption has."""
    runtime.seed(seed)
    tower = ImageTower(WORDS, PICTURES).to(runtime.device())
    schedule = training.warmup_cosine(50, 0.02)
    recipe = training.Recipe(steps=steps, lr=lr, schedule=schedule, weight_decay=0.05, evaluate_every=steps)

    def word_loss(model: ImageTower, pairs: Pairs) -> Tensor:
        there = F.one_hot(pairs.ids, WORDS).amax(dim=1).float()
        there[:, 0] = 0  # padding
        return F.binary_cross_entropy_with_logits(model(pairs.images), there)

    training.fit(tower, word_loss, batches(scenes, size, seed), recipe)
    return tower.cpu()


# ---- color histograms ------------------------------------------------------------------------------------------------


def histograms(scenes: Sequence[Scene], *, cells: int, levels: int = 4) -> Float[Tensor, "image feature"]:
    """The square root of the share of each of `levels`³ colors in each of `cells`² parts of an image."""
    found = []
    for scene in scenes:
        red, green, blue = (scene.image * levels).long().clamp(max=levels - 1)
        colors = F.one_hot((red * levels + green) * levels + blue, levels**3).permute(2, 0, 1).float()
        found.append(F.adaptive_avg_pool2d(colors, cells).flatten())
    return torch.stack(found).sqrt()


def linear_scorer(
    known: Float[Tensor, "image feature"], bag: Float[Tensor, "image word"], *, cells: int, ridge: float
) -> Score:
    """Ridge regression from histograms to bags of words; a score is the cosine of the guess with a text's bag."""
    middle, center = known.mean(dim=0), bag.mean(dim=0)
    x = known - middle
    matrix = torch.linalg.solve(x.T @ x + ridge * torch.eye(x.shape[1]), x.T @ (bag - center))

    def score(asked: Sequence[Scene], texts: Sequence[str]) -> Tensor:
        guessed = (histograms(asked, cells=cells) - middle) @ matrix
        return F.normalize(guessed, dim=1) @ F.normalize(bags(texts) - center, dim=1).T

    return score


def tuned_linear_scorer(scenes: Sequence[Scene], valid: Sequence[Scene]) -> tuple[Score, dict[str, Any]]:
    """The best of histograms of the whole image and of 4 × 4 parts, at three strengths, on other scenes."""
    bag, tried = bags([str(scene) for scene in scenes]), {}
    for cells in (1, 4):
        known = histograms(scenes, cells=cells)
        for ridge in (0.1, 1.0, 10.0):
            score = linear_scorer(known, bag, cells=cells, ridge=ridge)
            tried[cells, ridge] = (sum(retrieved(score, valid).values()), score)
    cells, ridge = max(tried, key=lambda key: tried[key][0])
    return tried[cells, ridge][1], {"cells": cells, "ridge": ridge}


# ---- runs ------------------------------------------------------------------------------------------------------------


def one_run(name: str, seed: int, scenes: Sequence[Scene]) -> dict[str, Any]:
    """One of the models after training, asked everything."""
    if name == "words as labels":
        tower = trained_labeler(scenes, seed=seed, **TRAINED)
        return {"model": name, "seed": seed, "parameters": parameters(tower)} | asked_everything(word_scorer(tower))
    foils = foils_of if name == "CLIP, swaps as negatives" else None
    model, _ = trained_clip(scenes, seed=seed, foils=foils, **TRAINED)
    if name == "CLIP" and seed == 1:
        save(model)
    return {"model": name, "seed": seed, "parameters": parameters(model)} | asked_everything(scorer(model))


RUNS = (("CLIP", 1), ("CLIP", 2), ("CLIP", 3), ("CLIP, swaps as negatives", 1), ("CLIP, swaps as negatives", 2),
        ("words as labels", 1), ("words as labels", 2))  # fmt: skip


@experiment
def images_and_captions(runs: Sequence[tuple[str, int]] = RUNS) -> list[dict[str, Any]]:
    """Retrieval among 100 captions, swapped captions and prompts, for CLIP and its rivals."""
    scenes = SCENES.take("train", TRAINED_ON)
    score, chosen = tuned_linear_scorer(scenes, candidates(split="valid"))
    rows = [{"model": "color histograms, linear", "seed": 0} | chosen | asked_everything(score)]
    return rows + [one_run(name, seed, scenes) for name, seed in runs]


# ---- tables ----------------------------------------------------------------------------------------------------------

SWAPS = ("another color", "colors swapped", "places swapped")


def retrieval_table(rows: DataFrame) -> DataFrame:
    """The mean over seeds of what each model finds, in percent."""
    columns = ["caption found", "image found", "look, test", "look, rare"]
    table = (100 * rows.groupby("model", sort=False)[columns].mean()).round(0).astype(int)
    table.loc["chance"] = [1, 1, 2, 2]
    return table.sort_values("caption found", ascending=False)


def picture_claims(rows: DataFrame) -> dict[int, float]:
    """Retrieval, and places told apart."""
    plain = rows[rows.model == "CLIP"]
    worst = float(plain[["caption found", "image found"]].min().min())
    return {13: worst, 8: float(plain["places swapped"].max())}
