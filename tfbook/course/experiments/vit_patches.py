"""What a ViT needs: data, patches, order and a teacher, compared with a CNN with as many parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import parameters
from tfbook.data.images import ImageBatches, Images, LabeledImages
from tfbook.models.cnn import Cnn
from tfbook.models.vit import Deit, LearnedGrid, Vit, VitConfig, patchify, unpatchify
from tfbook.training.losses import Loss, hard_distillation, soft_distillation

# ---- models and how they are trained -----------------------------------------------------------------------------


def config(images: Images, *, patch: int, tokens: int = 0, d_model: int = 64, layers: int = 2) -> VitConfig:
    """The lesson's ViT in small, for these images; without dropout, since it reads few images many times at most."""
    channels, height, width = images.train.images.shape[1:]
    shape = {"height": height, "width": width, "channels": channels, "patch": patch, "tokens": tokens}
    return VitConfig(d_model=d_model, heads=4, d_ff=4 * d_model, layers=layers, dropout=0.0, **shape)


def vit_recipe(steps: int, *, lr: float = 0.01) -> training.Recipe:
    """Muon for the matrices of the blocks, AdamW at the same rate for patches, positions and head."""
    return _recipe(steps, lr=lr, optimizer="muon", momentum=0.9, rms=0.4)


def cnn_recipe(steps: int, *, lr: float = 0.03) -> training.Recipe:
    """AdamW, since Muon's matrices are not those of convolutions."""
    return _recipe(steps, lr=lr)


def _recipe(steps: int, **options: Any) -> training.Recipe:
    schedule = training.warmup_cosine(min(20, steps // 5), final=0.0)
    return training.Recipe(steps=steps, schedule=schedule, evaluate_every=steps, mixed_precision=False, **options)


def loss(model: nn.Module, part: LabeledImages) -> Float[Tensor, ""]:
    """Cross-entropy of the labels."""
    return F.cross_entropy(model(part.images).float(), part.labels)


@torch.no_grad()
def accuracy(model: nn.Module, part: LabeledImages) -> float:
    """The share of images whose label has the highest logit."""
    pieces = part.to(runtime.device())
    predicted = torch.cat([model(images).argmax(dim=-1) for images in pieces.images.split(500)])
    return round(float((predicted == pieces.labels).float().mean()), 4)


Change = Callable[[LabeledImages, int], LabeledImages]  # a batch and the number of its step


@dataclass(frozen=True)
class Changed:
    """Batches whose images are changed on their way: `change(batch, step)`."""

    batches: ImageBatches
    change: Change

    def __call__(self, step: int) -> LabeledImages:
        return self.change(self.batches(step), step)


@dataclass(frozen=True, kw_only=True)
class Start:
    """An untrained model, and how it is trained."""

    build: Callable[[], nn.Module]
    recipe: training.Recipe
    loss: Callable[[Any, LabeledImages], Loss | Tensor] = loss


def trained(start: Start, part: LabeledImages, *, seed: int, batch: int = 64, change: Change | None = None) -> Any:
    """A model after its training on `part`: weights, batches and their order follow from `seed`."""
    runtime.seed(seed)
    model = start.build().to(runtime.device())
    batches: Callable[[int], LabeledImages] = ImageBatches(part, size=batch, seed=seed)
    if change is not None:
        batches = Changed(batches, change)
    training.fit(model, start.loss, batches, start.recipe)
    return model


def kinds(images: Images, steps: int, *, patch: int = 7) -> dict[str, Start]:
    """The two that are compared: the widest CNN that has no more parameters than the ViT."""
    labels, shape = len(images.labels), config(images, patch=patch)
    with torch.device("meta"):
        count = parameters(Vit(labels, shape))
    return {
        "ViT": Start(build=lambda: Vit(labels, shape), recipe=vit_recipe(steps)),
        "CNN": Start(build=lambda: Cnn.of_size(count, labels, channels=shape.channels), recipe=cnn_recipe(steps)),
    }


def rest_of(images: Images, *, held: int = 5000) -> Images:
    """The last `held` images of the training part judge, and the test stays unseen: for choosing how to train."""
    return replace(images, train=images.train[:-held], test=images.train[-held:])


# ---- stored: learning rates --------------------------------------------------------------------------------------

RATES = {"ViT": (0.005, 0.01, 0.02), "CNN": (0.003, 0.01, 0.03, 0.1)}
STEPS = 250


@experiment
def searches(*, steps: int = STEPS, seed: int = 11) -> list[dict[str, Any]]:
    """Accuracy on 5,000 held-out training images by learning rate, one run each on 1,000 images per label."""
    images = rest_of(data.load("fashion-mnist").standardized())
    part, rows = images.few_shot(1000, seed=seed), []
    for name, start in kinds(images, steps).items():
        for lr in RATES[name]:
            model = trained(replace(start, recipe=replace(start.recipe, lr=lr)), part, seed=seed)
            rows.append({"model": name, "lr": lr, "accuracy": accuracy(model, images.test)})
    return rows


# ---- stored: more images -----------------------------------------------------------------------------------------

COUNTS = (10, 50, 250, 1000)  # images of each label


@experiment
def growth(
    seeds: Sequence[int] = (1, 2, 3), *, counts: Sequence[int] = COUNTS, steps: int = 400
) -> list[dict[str, Any]]:
    """Accuracy of the ViT and of the CNN with as many parameters after the same number of steps on more images."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, count in product(seeds, counts):
        part = images.few_shot(count, seed=seed)
        for name, start in kinds(images, steps).items():
            model = trained(start, part, seed=seed)
            found = {"parameters": parameters(model), "train": accuracy(model, part[:: max(1, len(part) // 2000)])}
            rows.append(
                {"model": name, "images": len(part), "seed": seed, "accuracy": accuracy(model, images.test), **found}
            )
    return rows


# ---- stored: patches of every size -------------------------------------------------------------------------------

PATCHES = (28, 14, 7, 4, 2)


@experiment
def patch_sizes(
    seeds: Sequence[int] = (1, 2, 3), *, patches: Sequence[int] = PATCHES, steps: int = 150
) -> list[dict[str, Any]]:
    """Accuracy and seconds of the same number of steps, by the side of a patch, on 1,000 images per label."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, patch in product(seeds, patches):
        part, shape = images.few_shot(1000, seed=seed), config(images, patch=patch)
        start, began = kinds(images, steps, patch=patch)["ViT"], time.process_time()
        model = trained(start, part, seed=seed)
        seconds = time.process_time() - began
        found = {"patches": shape.time, "parameters": parameters(model), "seconds": round(seconds, 2)}
        rows.append({"patch": patch, "seed": seed, "accuracy": accuracy(model, images.test), **found})
    return rows


@experiment
def longer(
    seeds: Sequence[int] = (1, 2, 3), *, patches: Sequence[int] = PATCHES[:-1], steps: int = 1500
) -> list[dict[str, Any]]:
    """`patch_sizes` with ten times the steps, without the smallest patch, which would take an hour."""
    return patch_sizes(seeds, patches=patches, steps=steps)


# ---- stored: a class token, or the mean --------------------------------------------------------------------------


@experiment
def pooling(seeds: Sequence[int] = (1, 2, 3), *, steps: int = STEPS) -> list[dict[str, Any]]:
    """Accuracy with a class token and with the patches' mean, on 1,000 images per label."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, tokens in product(seeds, (0, 1)):
        start = replace(kinds(images, steps)["ViT"], build=partial(_vit, images, tokens))
        model = trained(start, images.few_shot(1000, seed=seed), seed=seed)
        rows.append({"read": "token" if tokens else "mean", "seed": seed, "accuracy": accuracy(model, images.test)})
    return rows


def _vit(images: Images, tokens: int) -> Vit:
    return Vit(len(images.labels), config(images, patch=7, tokens=tokens))


# ---- stored: patches in another order ----------------------------------------------------------------------------


def reordered(
    images: Float[Tensor, "batch channel height width"], patch: int, order: Int[Tensor, "#batch patch"]
) -> Float[Tensor, "batch channel height width"]:
    """Each image with patch `order[i]` at place i; one order for all images or one for each."""
    pieces = patchify(images, patch)
    places = order.to(images.device).expand(len(images), -1)[..., None].expand_as(pieces)
    grid = images.shape[2] // patch, images.shape[3] // patch
    return unpatchify(pieces.gather(1, places), patch, grid)


def random_orders(count: int, places: int, *, seed: int) -> Int64[Tensor, "count places"]:
    """`count` permutations of as many places, all equally likely."""
    return torch.rand(count, places, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)


@experiment
def shuffles(
    seeds: Sequence[int] = (1, 2, 3), *, patch: int = 4, count: int = 1000, steps: int = STEPS
) -> list[dict[str, Any]]:
    """Accuracy with patches in order, in one other order for all images, and in an order drawn anew for each image.

    In training and in the test alike, on `count` images per label; `mixed` is the accuracy with the one other order in
    the test alone. Where a ViT's places have a meaning, its row holds the similarities of its position vectors as well,
    at the places where the patches were taken.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    places = config(images, patch=patch).time
    for seed in seeds:
        part, one = images.few_shot(count, seed=seed), random_orders(1, places, seed=seed)
        orders = {"in order": torch.arange(places)[None], "one order": one, "an order each": None}
        for (order, chosen), (name, start) in product(orders.items(), kinds(images, steps, patch=patch).items()):
            model = trained(start, part, seed=seed, change=partial(_shuffled, patch=patch, order=chosen))
            row = {"model": name, "order": order, "seed": seed}
            row["accuracy"] = accuracy(model, _shuffled(images.test, 0, patch=patch, order=chosen))
            row["mixed"] = accuracy(model, _shuffled(images.test, 0, patch=patch, order=one))
            rows.append(row | (_position_row(model, chosen[0]) if name == "ViT" and chosen is not None else {}))
    return rows


@experiment
def few_shuffled(seeds: Sequence[int] = (1, 2, 3), *, steps: int = STEPS) -> list[dict[str, Any]]:
    """`shuffles` with 10 images per label, where a CNN is farthest ahead; similarities left out."""
    rows = shuffles(seeds, count=10, steps=steps)
    return [{key: value for key, value in row.items() if key != "similarity"} for row in rows]


SQUARES = (28, 14, 7, 4, 2, 1)


@experiment
def squares(
    seeds: Sequence[int] = (1, 2, 3), *, sides: Sequence[int] = SQUARES, steps: int = STEPS
) -> list[dict[str, Any]]:
    """Accuracy when all images, 1,000 per label and the test, are cut into squares that are put in one other order.

    By the side of a square, from 28, the whole image, to 1, a pixel; the ViT's patches have 4 × 4 pixels throughout.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, side in product(seeds, sides):
        part, order = images.few_shot(1000, seed=seed), random_orders(1, config(images, patch=side).time, seed=seed)
        for name, start in kinds(images, steps, patch=4).items():
            model = trained(start, part, seed=seed, change=partial(_shuffled, patch=side, order=order))
            right = accuracy(model, _shuffled(images.test, 0, patch=side, order=order))
            rows.append({"model": name, "side": side, "seed": seed, "accuracy": right})
    return rows


@experiment
def pixels(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 4 * STEPS) -> list[dict[str, Any]]:
    """`squares` with four times the steps, for images as they are and for single pixels in one other order."""
    return squares(seeds, sides=(28, 1), steps=steps)


def _shuffled(part: LabeledImages, step: int, *, patch: int, order: Int[Tensor, "1 patch"] | None) -> LabeledImages:
    """In this order or, without one, each image in its own, drawn anew for each step."""
    if order is None:
        height, width = part.images.shape[2:]
        order = random_orders(len(part), (height // patch) * (width // patch), seed=step)
    return replace(part, images=reordered(part.images, patch, order))


def _position_row(model: Vit, order: Int[Tensor, " patch"]) -> dict[str, Any]:
    """Similarities, brought back from where patches were shown to where they were taken."""
    back = order.argsort()
    found = similarities(model)[back][:, back]
    return {"similarity": [[round(value, 3) for value in row] for row in found.tolist()]}


@torch.no_grad()
def similarities(model: Vit) -> Float[Tensor, "patch patch"]:
    """Cosine between the position vectors of each two patches, minus their mean (Dosovitskiy et al., 2021, figure 7).

    Raises ValueError when positions are not learned.
    """
    position = model.stack.position
    if not isinstance(position, LearnedGrid):
        raise ValueError(f"positions are {type(position).__name__}; expected LearnedGrid")
    table = position.embedding[0, model.config.tokens :].cpu()
    directions = F.normalize(table - table.mean(dim=0), dim=-1)
    return directions @ directions.T


def grid_distances(rows: int, columns: int) -> Float[Tensor, "patch patch"]:
    """Distance between the centers of each two patches, in patches."""
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).float()
    return torch.cdist(places, places)


# ---- stored: a teacher -------------------------------------------------------------------------------------------

FEW = 100  # images of each label that teacher and student learn from


@experiment
def teachers(seeds: Sequence[int] = (1, 2, 3), *, count: int = FEW, steps: int = 300) -> list[dict[str, Any]]:
    """`Deit`s taught by a CNN, by its prediction or all its probabilities, and one whose second head learns the labels.

    Teacher and students see the same few images, shifted by a pixel or two each time; `agrees` is the share of these
    for which the teacher's prediction is the label.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed in seeds:
        part, start = images.few_shot(count, seed=seed), kinds(images, steps)
        teacher = trained(start["CNN"], part, seed=seed, change=moved)
        found = {"CNN, the teacher": teacher, "ViT": trained(start["ViT"], part, seed=seed, change=moved)}
        for name, lesson in {"told the labels": told, "taught, hard": hard, "taught, soft": soft}.items():
            found[f"DeiT, {name}"] = _student(images, part, partial(lesson, teacher), start["ViT"].recipe, seed)
        agrees = accuracy(teacher, moved(part, steps))
        rows += [
            {"model": name, "seed": seed, "accuracy": accuracy(model, images.test), "agrees": agrees}
            for name, model in found.items()
        ]
    return rows


def told(teacher: nn.Module, model: Deit, batch: LabeledImages) -> Loss:
    """Without the teacher: both heads learn the label."""
    logits = model.heads(batch.images)
    return hard_distillation(logits, batch.labels, F.one_hot(batch.labels, logits.label.shape[1]).float())


def hard(teacher: nn.Module, model: Deit, batch: LabeledImages) -> Loss:
    """The second head learns the teacher's prediction."""
    return hard_distillation(model.heads(batch.images), batch.labels, _teacher_logits(teacher, batch))


def soft(teacher: nn.Module, model: Deit, batch: LabeledImages) -> Loss:
    """The second head learns the teacher's probabilities, softened; both heads count alike, as in `hard`."""
    return soft_distillation(model.heads(batch.images), batch.labels, _teacher_logits(teacher, batch), share=0.5)


@torch.no_grad()
def _teacher_logits(teacher: nn.Module, batch: LabeledImages) -> Float[Tensor, "batch label"]:
    return teacher(batch.images)


def _student(
    images: Images,
    part: LabeledImages,
    lesson: Callable[[Deit, LabeledImages], Loss],
    recipe: training.Recipe,
    seed: int,
) -> Deit:
    """A `Deit` trained on shifted images with such a loss."""
    build = partial(Deit, len(images.labels), config(images, patch=7, tokens=2))
    return trained(Start(build=build, recipe=recipe, loss=lesson), part, seed=seed, change=moved)


def moved(part: LabeledImages, step: int, *, most: int = 2) -> LabeledImages:
    """Each image shifted by up to `most` pixels along each axis; its edge is repeated beyond it."""
    count, height, width = len(part), *part.images.shape[2:]
    generator = torch.Generator().manual_seed(step)
    down, right = torch.randint(-most, most + 1, (2, count, 1), generator=generator)
    rows = (torch.arange(height) + down).clamp(0, height - 1)
    columns = (torch.arange(width) + right).clamp(0, width - 1)
    picked = torch.arange(count)[:, None, None], slice(None), rows[:, :, None], columns[:, None, :]
    return replace(part, images=part.images[picked].permute(0, 3, 1, 2).contiguous())
