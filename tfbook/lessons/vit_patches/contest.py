"""Stored runs of lesson 13: models by learning rate, the contest, data sizes, patch sizes, and shuffled patches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook import data, runtime
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.images import Images, LabeledImages
from tfbook.lessons.vit_patches.study import (
    BAG,
    BEST,
    MODELS,
    ORDERS,
    RATES,
    accuracy,
    build,
    config,
    flops,
    random_orders,
    recipe,
    reordered,
    rest_of,
    similarities,
    trained,
)
from tfbook.models.vit import Vit

# ---- stored: learning rates, and the contest -------------------------------------------------------------------------


@experiment
def rates(models: Sequence[str] = MODELS, *, steps: int = 500, seed: int = 11) -> list[dict[str, Any]]:
    """Accuracy on 5,000 held-out training images by learning rate: the same rates for each model, one run each."""
    images, rows = rest_of(data.load("fashion-mnist").standardized()), []
    for name, lr in product(models, RATES):
        model = trained(partial(build, name, images), images.train, recipe(name, steps, lr), seed=seed)
        rows.append({"model": name, "lr": lr, "accuracy": accuracy(model, images.test)})
    return rows


@experiment
def contest(
    seeds: Sequence[int] = (1, 2, 3, 4, 5), models: Sequence[str] = MODELS, *, steps: int = 3000
) -> list[dict[str, Any]]:
    """Test accuracy of the three models, each at its best rate, with parameters and operations per image.

    The row of the first ViT also holds the change of its patch filters during training.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, name in product(seeds, models):
        model = trained(partial(build, name, images), images.train, recipe(name, steps, BEST[name]), seed=seed)
        row = {"model": name, "seed": seed, "accuracy": accuracy(model, images.test)}
        row |= {"parameters": parameters(model), "flops": flops(model, images)}
        rows.append(row | ({"filters": _added(model, images, seed)} if (seed, name) == (1, "ViT") else {}))
    return rows


def _added(model: Vit, images: Images, seed: int) -> list[list[float]]:
    """Each patch filter minus its initial value."""
    runtime.seed(seed)
    start: Any = build("ViT", images)
    return _rounded((model.patches.weight.cpu() - start.patches.weight).flatten(1))


def _rounded(table: Float[Tensor, "row column"]) -> list[list[float]]:
    return [[round(x, 3) for x in row] for row in table.tolist()]


@experiment
def mlp_rates() -> list[dict[str, Any]]:
    """The same rates for an MLP, which has as many parameters to train but no attention."""
    return rates(("MLP",))


@experiment
def mlp_contest() -> list[dict[str, Any]]:
    """The contest for the MLP, with the same seeds."""
    return contest(models=("MLP",))


@experiment
def bag_rates() -> list[dict[str, Any]]:
    """The same rates for a ViT without positions."""
    return rates((BAG,))


@experiment
def bag_contest() -> list[dict[str, Any]]:
    """The contest for the ViT without positions, with the first three seeds."""
    return contest((1, 2, 3), models=(BAG,))


@experiment
def growth(
    seeds: Sequence[int] = (1, 2, 3),
    models: Sequence[str] = (*MODELS, "MLP"),
    *,
    counts: Sequence[int] = (1000, 5000, 30_000),
    steps: int = 500,
) -> list[dict[str, Any]]:
    """Test accuracy after the same number of steps on more and more training images, equally many per label.

    `fitted` is the accuracy on a thousand of the training images. The learning rates are those of the contest.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, count, name in product(seeds, counts, models):
        part = images.few_shot(count // len(images.labels), seed=seed)
        model = trained(partial(build, name, images), part, recipe(name, steps, BEST[name]), seed=seed)
        row = {"model": name, "images": count, "seed": seed, "accuracy": accuracy(model, images.test)}
        rows.append(row | {"fitted": accuracy(model, part[:: max(1, count // 1000)])})
    return rows


@experiment
def patch_sizes(
    seeds: Sequence[int] = (1, 2, 3), patches: Sequence[int] = (14, 7, 4), *, steps: int = 300
) -> list[dict[str, Any]]:
    """Test accuracy, operations and time of ViTs by side of their patches, at the best rate for patches of 7.

    `seconds` is the processor time of the whole training run, which other programs hardly affect.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, patch in product(seeds, patches):
        start = time.process_time()
        make = partial(build, "ViT", images, patch=patch)
        model = trained(make, images.train, recipe("ViT", steps, BEST["ViT"]), seed=seed)
        row = {"patch": patch, "seed": seed, "seconds": round(time.process_time() - start, 3)}
        rows.append(row | {"accuracy": accuracy(model, images.test), "flops": flops(model, images)})
    return rows


@experiment
def grids(seeds: Sequence[int] = (1, 2, 3), *, patch: int = 4, steps: int = 500) -> list[dict[str, Any]]:
    """Similarities of the position vectors of ViTs whose positions start small, as in the paper."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed in seeds:
        make = partial(build, "ViT", images, patch=patch, positions=0.02)
        model = trained(make, images.train, recipe("ViT", steps, BEST["ViT"]), seed=seed)
        rows.append(
            {"seed": seed, "accuracy": accuracy(model, images.test), "similarities": _rounded(similarities(model))}
        )
    return rows


@experiment
def shuffles(
    seeds: Sequence[int] = (1, 2, 3, 4), models: Sequence[str] = MODELS, *, patch: int = 7, steps: int = 300
) -> list[dict[str, Any]]:
    """Test accuracy with patches in order, in one fixed other order, and in a new order for each image.

    Training and test use the same kind of order. Runs with one seed differ only in the order, so differences are
    paired.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    patches = config(images, patch=patch).time - 1
    for seed, name in product(seeds, models):
        orders = (torch.arange(patches)[None], random_orders(1, patches, seed=seed), None)
        for order, chosen in zip(ORDERS, orders, strict=True):
            change = partial(_shuffled, patch=patch, order=chosen)
            make = partial(build, name, images, patch=patch)
            model = trained(make, images.train, recipe(name, steps, BEST[name]), seed=seed, change=change)
            right = accuracy(model, change(images.test, 0))
            rows.append({"model": name, "order": order, "seed": seed, "accuracy": right})
    return rows


def _shuffled(part: LabeledImages, step: int, *, patch: int, order: Int[Tensor, "1 patch"] | None) -> LabeledImages:
    """Batches with patches in this order or, if it is None, in a new order for each image at each step."""
    if order is None:
        height, width = part.images.shape[2:]
        order = random_orders(len(part), (height // patch) * (width // patch), seed=step)
    return replace(part, images=reordered(part.images, patch, order))


@experiment
def bags(
    seeds: Sequence[int] = (1, 2, 3, 4, 5), models: Sequence[str] = ("ViT", BAG), *, steps: int = 300
) -> list[dict[str, Any]]:
    """Test accuracy of ViTs with and without positions, patches in order, after as many steps as in `shuffles`."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, name in product(seeds, models):
        make = partial(build, name, images)
        model = trained(make, images.train, recipe(name, steps, BEST[name]), seed=seed)
        rows.append({"model": name, "seed": seed, "accuracy": accuracy(model, images.test)})
    return rows
