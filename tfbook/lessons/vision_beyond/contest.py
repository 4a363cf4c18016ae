"""The contest of lesson 14: one ViT and its rivals with as many parameters, two questions about small scenes.

"kind" asks what one object is, which is seen in one place; "same color" asks it of two objects that stand apart.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.efficient import Axial, Neighborhood, Windowed
from tfbook.attention.implementations import Implementation
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.images import ImageBatches, LabeledImages
from tfbook.data.scenes import COLORS, GROUNDS, KINDS, SceneObject
from tfbook.data.scenes.corpus import CHUNK, drawn_scenes
from tfbook.models.attentive_cnn import AttentiveCnn
from tfbook.models.blocks import alternate, on_paper
from tfbook.models.cnn import Cnn
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.patch_mixers import convolutional, mlp_mixer, res_mlp
from tfbook.models.swin import Swin, SwinConfig
from tfbook.models.vit import Vit, VitConfig, patchify, unpatchify

SIDE, PATCH, GRID = 32, 4, 8  # pixels of an image and of a patch, patches along a side
WINDOW, SHIFT = 4, 2  # patches along a side of a window
SHAPE = VitConfig(height=SIDE, width=SIDE, patch=PATCH, tokens=0, d_model=64, heads=4, d_ff=128, layers=4, dropout=0.0)
LABELS = {"kind": len(KINDS), "same color": 2}
STEPS = {"kind": 200, "same color": 500}
COUNTS = {"kind": (300, 1500), "same color": (8000,)}  # images for training
JUDGED = 1000  # images of "valid" and of "test"
RATES = (0.001, 0.003, 0.009)  # for the same color
RATE = 0.003  # for the kind
SEEDS = (1, 2)
SHIFTS = (0, 1, 2, 3, 4, 6, 8, 10, 12)  # pixels; no object leaves the image

# ---- questions ---------------------------------------------------------------------------------------------------


def one_object(rng: random.Random) -> tuple[list[SceneObject], int]:
    """An object in the left part of the image, and the number of its kind."""
    kind, color = rng.randrange(len(KINDS)), rng.choice(list(COLORS))
    place = rng.uniform(0.2, 0.4), rng.uniform(0.2, 0.8)
    return [SceneObject(KINDS[kind], color, *place, rng.uniform(0.28, 0.38), rng.uniform(-12, 12))], kind


def apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The larger of the distances along both axes."""
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))


def two_objects(rng: random.Random) -> tuple[list[SceneObject], int]:
    """Two objects of different kinds that stand apart, and whether they have the same color: in half of the scenes."""
    same, kinds, colors = rng.randrange(2), rng.sample(KINDS, 2), rng.sample(list(COLORS), 2)
    places = [(0.5, 0.5)] * 2
    while apart(*places) < 0.3:
        places = [(rng.uniform(0.15, 0.85), rng.uniform(0.15, 0.85)) for _ in range(2)]
    colors = colors[:1] * 2 if same else colors
    looks = zip(kinds, colors, places, strict=True)
    return [SceneObject(kind, color, *place, rng.uniform(0.22, 0.3)) for kind, color, place in looks], same


QUESTIONS = {"kind": one_object, "same color": two_objects}


def asked(question: str, split: str, numbers: Sequence[int]) -> LabeledImages:
    """Images with the answers as labels, centered around 0; each follows from its number alone."""
    rngs = [random.Random(f"{question} {split} {number}") for number in numbers]
    drawn = [QUESTIONS[question](rng) for rng in rngs]
    objects, labels = [scene for scene, _ in drawn], [label for _, label in drawn]
    grounds = [rng.choice(list(GROUNDS)) for rng in rngs]
    images = []
    for start in range(0, len(numbers), CHUNK):
        some = slice(start, start + CHUNK)
        images += [scene.image for scene in drawn_scenes(objects[some], grounds[some], list(numbers[some]), SIDE)]
    return LabeledImages(4 * (torch.stack(images) - 0.5), torch.tensor(labels))


# ---- models ------------------------------------------------------------------------------------------------------


def attending(*implementations: Implementation) -> Callable[[int, int], nn.Module]:
    """The ViT whose blocks attend by these implementations in turn."""

    def make(labels: int, d_ff: int) -> nn.Module:
        model = Vit(labels, replace(SHAPE, d_ff=d_ff))
        alternate(model.stack, *implementations)
        return model

    return make


def mixing(change: Callable[[VitConfig], VitConfig]) -> Callable[[int, int], nn.Module]:
    """The ViT with a changed config."""
    return lambda labels, d_ff: Vit(labels, change(replace(SHAPE, d_ff=d_ff)))


def swin(labels: int, width: int) -> nn.Module:
    """Two stages of two blocks, the second after merging."""
    return Swin(labels, SwinConfig(d_model=4 * width, depths=(2, 2), heads=(2, 4), window=WINDOW, patch=PATCH))


def conv_mixer(labels: int, width: int) -> nn.Module:
    """As many blocks as the ViT."""
    return ConvMixer(labels, ConvMixerConfig(d_model=width, layers=SHAPE.layers, kernel=3, patch=PATCH))


MODELS: dict[str, Callable[[int, int], nn.Module]] = {  # (labels, the width that `of_size` chooses)
    "ViT": mixing(lambda shape: shape),
    "windows": attending(Windowed(GRID, WINDOW)),
    "shifted windows": attending(Windowed(GRID, WINDOW), Windowed(GRID, WINDOW, SHIFT)),
    "neighborhood": attending(Neighborhood(GRID)),
    "axial": attending(Axial(GRID)),
    "Swin": swin,
    "MLP-Mixer": mixing(partial(mlp_mixer, d_tokens=128)),
    "ResMLP": mixing(res_mlp),
    "convolution": mixing(convolutional),
    "ConvMixer": conv_mixer,
    "CNN": lambda labels, width: Cnn(labels, width=width, stages=3, stem=2),
    "CNN + attention": lambda labels, width: AttentiveCnn(labels, width=width, stages=3, stem=2),
}
LINEAR = "linear classifier"


def of_size(name: str, labels: int, count: int) -> nn.Module:
    """The widest of these models with at most `count` parameters.

    The width is the feed-forward networks' where there are any to widen, and otherwise that of the whole model.
    """
    make = MODELS[name]
    first = 16 if name in ("CNN + attention",) else 1
    width = bisect_right(range(first, 1024), count, key=lambda width: parameters(on_paper(lambda: make(labels, width))))
    return make(labels, first + width - 1)


def build(name: str, question: str) -> nn.Module:
    """An untrained model, with no more parameters than the ViT."""
    labels = LABELS[question]
    if name == LINEAR:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, labels))
    if name == "ViT":
        return MODELS[name](labels, SHAPE.d_ff)
    return of_size(name, labels, parameters(on_paper(lambda: MODELS["ViT"](labels, SHAPE.d_ff))))


# ---- training ----------------------------------------------------------------------------------------------------


def recipe(steps: int, lr: float) -> training.Recipe:
    """AdamW with a warm-up over the first twentieth of the steps, then a cosine down to 0."""
    return training.Recipe(
        steps=steps,
        lr=lr,
        schedule=training.warmup_cosine(max(1, steps // 20), final=0.0),
        weight_decay=0.05,
        evaluate_every=steps,
        mixed_precision=False,
    )


def loss(model: nn.Module, part: LabeledImages) -> Float[Tensor, ""]:
    """Mean cross-entropy of the labels, in nats."""
    return F.cross_entropy(model(part.images).float(), part.labels)


def trained(name: str, question: str, part: LabeledImages, *, lr: float, steps: int, seed: int) -> nn.Module:
    """A model trained on `part`; weights, batches and their order follow from `seed`."""
    runtime.seed(seed)
    model = build(name, question).to(runtime.device())
    training.fit(model, loss, ImageBatches(part, size=64, seed=seed), recipe(steps, lr))
    return model.eval()


# ---- judging -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def right(model: nn.Module, images: Float[Tensor, "batch 3 row column"], labels: Tensor) -> Tensor:
    """Whether the most probable label is the true one, for each image; computed in pieces."""
    device = next(model.parameters()).device
    said = torch.cat([model(piece.to(device)).argmax(dim=1).cpu() for piece in images.split(500)])
    return (said == labels.cpu()).float()


def shuffled(images: Float[Tensor, "batch 3 row column"], *, seed: int = 0) -> Float[Tensor, "batch 3 row column"]:
    """A jigsaw: the patches of each image in a random order of its own."""
    pieces = patchify(images, PATCH)
    orders = torch.rand(pieces.shape[:2], generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
    return unpatchify(torch.take_along_dim(pieces, orders[..., None], dim=1), PATCH, (GRID, GRID))


def by_shift(model: nn.Module, part: LabeledImages) -> dict[str, float]:
    """Accuracy on images that are rolled to the right by so many pixels."""
    moved = {shift: part.images.roll(shift, dims=3) for shift in SHIFTS}
    return {str(shift): rounded(right(model, images, part.labels)) for shift, images in moved.items()}


def rounded(answers: Float[Tensor, " batch"]) -> float:
    """Their mean, with four digits."""
    return round(float(answers.mean()), 4)


def judged(model: nn.Module, part: LabeledImages) -> dict[str, Any]:
    """Accuracy on images of one object: as they are, as a jigsaw, and by shift."""
    answers = [rounded(right(model, images, part.labels)) for images in (part.images, shuffled(part.images))]
    return {"accuracy": answers[0], "jigsaw": answers[1], "by_shift": by_shift(model, part)}


# ---- stored ------------------------------------------------------------------------------------------------------


def parts_of(question: str) -> dict[str, LabeledImages]:
    """All images of a question, by split."""
    counts = {"train": max(COUNTS[question]), "valid": JUDGED, "test": JUDGED}
    return {split: asked(question, split, range(count)) for split, count in counts.items()}


@experiment
def colors(*, seed: int = 11) -> list[dict[str, Any]]:
    """The same color: accuracy on validation images of each model at each of `RATES`, one run each."""
    parts, rows = parts_of("same color"), []
    for name, lr in product((*MODELS, LINEAR), RATES):
        model = trained(name, "same color", parts["train"], lr=lr, steps=STEPS["same color"], seed=seed)
        answers = right(model, parts["valid"].images, parts["valid"].labels)
        rows.append({"model": name, "lr": lr, "accuracy": rounded(answers), "parameters": parameters(model)})
    return rows


@experiment
def kinds() -> list[dict[str, Any]]:
    """The kind: each model at one rate, by the number of images and by seed, judged on test images."""
    parts, rows = parts_of("kind"), []
    for name, images, seed in product((*MODELS, LINEAR), COUNTS["kind"], SEEDS):
        model = trained(name, "kind", parts["train"][:images], lr=RATE, steps=STEPS["kind"], seed=seed)
        row = {"model": name, "images": images, "seed": seed, "parameters": parameters(model)}
        rows.append(row | judged(model, parts["test"]))
    return rows
