"""The first question of lesson 14, "what color stands in the ring's row?", and the contest about it.

Three objects of different colors stand one above the other, and a white ring stands in the row of one of them, 1 to 5
places to the left or right. Objects fill one place each, so that no place but theirs shows anything of them.

Swapping two colors turns the answer around, and so does moving the ring to the other's row. A sum over places, each of
which sees either the ring or the objects, changes by an amount of its own for each of these two and cannot follow.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.efficient import Axial, Neighborhood, Windowed
from tfbook.attention.implementations import softmax
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.images import LabeledImages
from tfbook.data.scenes import COLORS, GROUNDS, KINDS, SceneObject
from tfbook.lessons.vision_beyond.contest import centered, right, rounded, trained_with, with_deep_head
from tfbook.models.attentive_cnn import AttentiveCnn
from tfbook.models.blocks import MakePart, alternate, on_paper
from tfbook.models.cnn import Cnn
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.detr import SinusoidalGrid
from tfbook.models.norms import BatchNorm, LayerNorm
from tfbook.models.patch_mixers import convolutional, mlp_mixer, patch_bag, res_mlp
from tfbook.models.swin import Swin, SwinConfig
from tfbook.models.vit import Vit, VitConfig

SIX, EIGHT = 6, 8  # places along a side of the image, pixels along a side of a place
THREE = 3  # places along a side of a window, objects to choose from
PALETTE = tuple(color for color in COLORS if color != "white")  # the labels
LEARN, ASK = 8000, 1000  # images to train on; images of "valid" and of "test"
PASSES = 400  # training steps
LOW, HIGH = 0.003, 0.01  # learning rates
GUESS = 1 / THREE
BETTER = 0.4  # models above it on "valid" get more seeds

# ---- the question ------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A scene of the question."""

    objects: list[SceneObject]  # the last one is the ring
    answer: int  # in PALETTE
    away: int  # places between the ring and the object in its row, plus one
    ground: str
    places: tuple[int, int, int]  # the row of ring and answer; the columns of the ring and of the objects


def row_scene(split: str, number: int) -> Row:
    """The scene with this number; rows, colors and the ring's row are independent of one another and of columns."""
    rng = random.Random(f"row {split} {number}")
    away, side = rng.randint(1, SIX - 1), rng.choice((-1, 1))
    column = rng.randrange(away, SIX) if side < 0 else rng.randrange(SIX - away)
    rows, colors, chosen = rng.sample(range(SIX), THREE), rng.sample(PALETTE, THREE), rng.randrange(THREE)
    kinds = rng.choices([kind for kind in KINDS if kind != "ring"], k=THREE)
    ring, size = column + side * away, 0.95 / SIX
    looks = [*zip(kinds, colors, [column] * THREE, rows, strict=True), ("ring", "white", ring, rows[chosen])]
    objects = [SceneObject(kind, color, (x + 0.5) / SIX, (y + 0.5) / SIX, size) for kind, color, x, y in looks]
    answer = PALETTE.index(colors[chosen])
    return Row(objects, answer, away, rng.choice(list(GROUNDS)), (rows[chosen], ring, column))


@cache
def row_scenes(split: str, count: int) -> tuple[Row, ...]:
    """The first scenes of a split."""
    return tuple(row_scene(split, number) for number in range(count))


def row_images(split: str, count: int) -> LabeledImages:
    """Images of `row_scenes`, centered around 0, with the answers as labels."""
    rows = row_scenes(split, count)
    objects, grounds = [row.objects for row in rows], [row.ground for row in rows]
    images = centered(objects, grounds, range(count), SIX * EIGHT, shadow=0)
    return LabeledImages(images, torch.tensor([row.answer for row in rows]))


def moved(images: Float[Tensor, "batch 3 row column"], pixels: int) -> Float[Tensor, "batch 3 row column"]:
    """The images shifted down and to the right; the first row and column are repeated."""
    if not pixels:
        return images
    return F.pad(images[..., :-pixels, :-pixels], (pixels, 0, pixels, 0), mode="replicate")


# ---- models ------------------------------------------------------------------------------------------------------


def _rows_and_columns(d_model: int, heads: int, time: int) -> SinusoidalGrid:
    return SinusoidalGrid((SIX, SIX), d_model)


FORM = VitConfig(
    height=SIX * EIGHT,
    width=SIX * EIGHT,
    patch=EIGHT,
    tokens=0,
    d_model=48,
    heads=4,
    d_ff=96,
    layers=2,
    dropout=0.0,
    position=_rows_and_columns,
    norm=BatchNorm,
)
Eyes = Windowed | Neighborhood | Axial
Make = Callable[[VitConfig], nn.Module]


def seeing(*eyes: Eyes) -> Make:
    """The ViT whose blocks attend so, in turn."""

    def make(form: VitConfig) -> nn.Module:
        model = Vit(len(PALETTE), form)
        alternate(model.stack, *eyes)
        return model

    return make


def changed(change: Callable[[VitConfig], VitConfig]) -> Make:
    """The ViT with a changed config."""
    return lambda form: Vit(len(PALETTE), change(form))


def alone(change: Callable[[VitConfig], VitConfig]) -> Make:
    """A bag of patches whose mean is read by a network of two layers."""
    return lambda form: with_deep_head(Vit(len(PALETTE), change(form)))


def bag_with_positions(form: VitConfig) -> VitConfig:
    """A bag whose patches know where they are."""
    return replace(patch_bag(form), position=form.position)


def _swin(form: VitConfig) -> nn.Module:
    width = form.d_ff - form.d_ff % 2
    return Swin(len(PALETTE), SwinConfig(d_model=width, depths=(2, 2), heads=(2, 4), window=THREE, patch=EIGHT))


def _conv_mixer(form: VitConfig) -> nn.Module:
    sizes = ConvMixerConfig(d_model=form.d_ff, layers=form.layers, kernel=3, patch=EIGHT)
    return ConvMixer(len(PALETTE), sizes)


ATTENDING: dict[str, Make] = {
    "ViT": changed(lambda form: form),
    "windows": seeing(Windowed(SIX, THREE)),
    "shifted windows": seeing(Windowed(SIX, THREE), Windowed(SIX, THREE, 1)),
    "neighborhood": seeing(Neighborhood(SIX)),
    "axial": seeing(Axial(SIX)),
    "Swin": _swin,
}
FIXED: dict[str, Make] = {
    "MLP-Mixer": changed(partial(mlp_mixer, d_tokens=96)),
    "ResMLP": changed(res_mlp),
    "convolution": changed(convolutional),
    "ConvMixer": _conv_mixer,
    "bag": alone(patch_bag),
    "bag + positions": alone(bag_with_positions),
}
CNNS: dict[str, Make] = {
    "CNN": lambda form: Cnn(len(PALETTE), width=form.d_ff, stages=3, stem=2),
    "CNN + attention": lambda form: AttentiveCnn(len(PALETTE), width=form.d_ff, stages=3, stem=2),
}
WORDS = ATTENDING | FIXED | CNNS


def of_this_size(name: str, form: VitConfig = FORM) -> nn.Module:
    """The widest of these models with no more parameters than the ViT; `form.d_ff` is the width that is chosen."""
    make = WORDS[name]
    most = parameters(on_paper(lambda: Vit(len(PALETTE), form)))
    widths = range(4, 1024)
    count = bisect_right(widths, most, key=lambda d_ff: parameters(on_paper(lambda: make(replace(form, d_ff=d_ff)))))
    return make(replace(form, d_ff=widths[count - 1]))


# ---- training and judging ----------------------------------------------------------------------------------------


def by_away(answers: Float[Tensor, " batch"], split: str = "test") -> dict[str, float]:
    """Accuracy at each distance between the ring and the object in its row."""
    away = torch.tensor([row.away for row in row_scenes(split, len(answers))])
    return {str(length): rounded(answers[away == length]) for length in range(1, SIX)}


def scored(model: nn.Module) -> dict[str, Any]:
    """Accuracy on validation and test images; on test images by distance, and shifted by some pixels."""
    valid, test = row_images_once("valid", ASK), row_images_once("test", ASK)
    answers = right(model, test.images, test.labels)
    shifts = {
        str(pixels): rounded(right(model, moved(test.images, pixels), test.labels)) for pixels in range(EIGHT // 2 + 1)
    }
    return {
        "valid": rounded(right(model, valid.images, valid.labels)),
        "test": rounded(answers),
        "by_away": by_away(answers),
        "shifted": shifts,
    }


row_images_once = cache(row_images)

# ---- stored ------------------------------------------------------------------------------------------------------


def one_run(
    name: str, *, lr: float, seed: int, count: int = LEARN, norm: MakePart = BatchNorm, steps: int = PASSES
) -> dict[str, Any]:
    """A model trained on the first `count` images and judged."""
    part = row_images_once("train", LEARN)[slice(count)]
    model = trained_with(partial(of_this_size, name, replace(FORM, norm=norm)), part, lr=lr, seed=seed, steps=steps)
    return {"model": name, "lr": lr, "seed": seed, "images": count, "steps": steps} | scored(model)


def runs_of(names: Iterable[str], *, seed: int = 1, again: Sequence[int] = (2,)) -> list[dict[str, Any]]:
    """One run at each rate; more seeds at the rate that "valid" chooses, for models that beat guessing there."""
    rows = []
    for name in names:
        tried = [one_run(name, lr=lr, seed=seed) for lr in (LOW, HIGH)]
        best = max(tried, key=lambda row: row["valid"])
        seeds = again if best["valid"] > BETTER else ()
        rows += [*tried, *(one_run(name, lr=best["lr"], seed=other) for other in seeds)]
    return rows


@experiment
def attending() -> list[dict[str, Any]]:
    """Models whose weights come from the image."""
    return runs_of(ATTENDING)


@experiment
def fixed() -> list[dict[str, Any]]:
    """Models whose weights are fixed, and bags."""
    return runs_of(FIXED)


@experiment
def cnns() -> list[dict[str, Any]]:
    """A CNN, and the same with one layer of attention."""
    return runs_of(CNNS, again=())


@experiment
def amounts(*, counts: Sequence[int] = (500, 2000)) -> list[dict[str, Any]]:
    """Fewer images to learn from, for models that answered at both rates."""
    return [
        one_run(name, lr=LOW, seed=1, count=count) for name in ("axial", "MLP-Mixer", "convolution") for count in counts
    ]


@experiment
def norms() -> list[dict[str, Any]]:
    """Layer norms instead of batch norms, at both rates."""
    names = ("MLP-Mixer", "convolution")
    return [one_run(name, lr=lr, seed=1, norm=LayerNorm) | {"norm": "layer"} for name in names for lr in (LOW, HIGH)]


@experiment
def patience() -> list[dict[str, Any]]:
    """The ViT with four times as many steps."""
    return [one_run("ViT", lr=LOW, seed=1, steps=4 * PASSES)]


@experiment
def handed_over(seeds: Sequence[int] = (1, 2)) -> list[dict[str, Any]]:
    """Trained axial weights in a ViT, whose attention is global: as they are, and after half as many steps again."""
    part, lines = row_images_once("train", LEARN), []
    for seed in seeds:
        model: Any = trained_with(partial(of_this_size, "axial"), part, lr=LOW, seed=seed, steps=PASSES)
        alternate(model.stack, softmax)
        lines.append({"model": "axial, then ViT", "seed": seed, "steps": 0} | scored(model))
        model = trained_with(lambda model=model: model, part, lr=LOW, seed=seed, steps=PASSES // 2)  # type: ignore[misc]
        lines.append({"model": "axial, then ViT", "seed": seed, "steps": PASSES // 2} | scored(model))
    return lines
