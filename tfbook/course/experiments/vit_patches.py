"""What a ViT learns from images, and what it is worth: against a CNN and a linear classifier, under one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tfbook import data, runtime, training
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import count_flops, parameters
from tfbook.data.images import ImageBatches, Images, LabeledImages
from tfbook.models.cnn import Cnn
from tfbook.models.vit import LearnedGrid, Vit, VitConfig, patchify, unpatchify

# ---- models and how they are trained -----------------------------------------------------------------------------

MODELS = ("ViT", "CNN", "linear classifier")
RATES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
BEST = {"ViT": 0.001, "CNN": 0.008, "linear classifier": 0.008}  # by `rates`; a test compares


def config(images: Images, *, patch: int, tokens: int = 1) -> VitConfig:
    """The lesson's ViT, width 64 and two blocks, for these images."""
    channels, height, width = images.train.images.shape[1:]
    shape = {"height": height, "width": width, "channels": channels, "patch": patch, "tokens": tokens}
    return VitConfig(d_model=64, heads=4, d_ff=256, layers=2, dropout=0.0, **shape)


def build(name: str, images: Images, *, patch: int = 7, tokens: int = 1) -> nn.Module:
    """An untrained model of MODELS; the CNN is the widest that has no more parameters than the ViT."""
    labels, shape = len(images.labels), config(images, patch=patch, tokens=tokens)
    if name == "linear classifier":
        return nn.Sequential(nn.Flatten(), nn.Linear(shape.channels * shape.height * shape.width, labels))
    if name == "ViT":
        return Vit(labels, shape)
    with torch.device("meta"):
        count = parameters(Vit(labels, shape))
    model = Cnn.of_size(count, labels, channels=shape.channels, stages=4)
    return model.to(memory_format=torch.channels_last)  # a quarter less time on a CPU


def recipe(steps: int, lr: float) -> training.Recipe:
    """AdamW for every model: a warm-up over the first twentieth of the steps, then a cosine down to 0."""
    schedule = training.warmup_cosine(max(1, steps // 20), final=0.0)
    return training.Recipe(
        steps=steps, lr=lr, schedule=schedule, weight_decay=0.1, evaluate_every=steps, mixed_precision=False
    )


def loss(model: nn.Module, part: LabeledImages) -> Float[Tensor, ""]:
    """Cross-entropy of the labels."""
    return F.cross_entropy(model(part.images).float(), part.labels)


@torch.no_grad()
def predictions(
    model: nn.Module, images: Float[Tensor, "batch channel height width"]
) -> Float[Tensor, "batch label"]:
    """The model's probabilities, in pieces that fit into memory."""
    pieces = images.to(runtime.device()).split(500)
    return torch.cat([model(piece).float().softmax(dim=-1) for piece in pieces]).cpu()


def accuracy(model: nn.Module, part: LabeledImages) -> float:
    """The share of images whose label has the highest probability."""
    right = predictions(model, part.images).argmax(dim=-1) == part.labels.cpu()
    return round(float(right.float().mean()), 4)


Change = Callable[[LabeledImages, int], LabeledImages]  # a batch and the number of its step


@dataclass(frozen=True)
class Changed:
    """Batches whose images are changed on their way: `change(batch, step)`."""

    batches: ImageBatches
    change: Change

    def __call__(self, step: int) -> LabeledImages:
        return self.change(self.batches(step), step)


def trained(
    make: Callable[[], nn.Module],
    part: LabeledImages,
    how: training.Recipe,
    *,
    seed: int,
    batch: int = 64,
    change: Change | None = None,
) -> Any:
    """A model after its training on `part`: weights, batches and their order follow from `seed`."""
    runtime.seed(seed)
    model = make().to(runtime.device())
    batches: Callable[[int], LabeledImages] = ImageBatches(part, size=batch, seed=seed)
    if change is not None:
        batches = Changed(batches, change)
    training.fit(model, loss, batches, how)
    return model.eval()


def flops(model: nn.Module, images: Images) -> int:
    """Floating-point operations on one image; a product and a sum are two."""
    one = images.test.images[:1].to(next(model.parameters()).device)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # whose products every version of PyTorch counts
        return count_flops(lambda: model(one))


def rest_of(images: Images, *, held: int = 5000) -> Images:
    """The last `held` images of the training part judge, and the test stays unseen: for choosing how to train."""
    return replace(images, train=images.train[:-held], test=images.train[-held:])


# ---- stored: learning rates, and the contest ---------------------------------------------------------------------


@experiment
def rates(*, steps: int = 1000, seed: int = 11) -> list[dict[str, Any]]:
    """Accuracy on 5,000 held-out training images by learning rate, the same rates for each model, one run each."""
    images, rows = rest_of(data.load("fashion-mnist").standardized()), []
    for name, lr in product(MODELS, RATES):
        model = trained(partial(build, name, images), images.train, recipe(steps, lr), seed=seed)
        rows.append({"model": name, "lr": lr, "accuracy": accuracy(model, images.test)})
    return rows


@experiment
def contest(seeds: Sequence[int] = (1, 2, 3, 4, 5), *, steps: int = 3000) -> list[dict[str, Any]]:
    """Test accuracy of the three models, each at its best rate, with their parameters and operations per image.

    The row of the first ViT holds its patch filters and the similarities of its position vectors as well.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, name in product(seeds, MODELS):
        model = trained(partial(build, name, images), images.train, recipe(steps, BEST[name]), seed=seed)
        row = {"model": name, "seed": seed, "accuracy": accuracy(model, images.test)}
        row |= {"parameters": parameters(model), "flops": flops(model, images)}
        rows.append(row | (_inside(model) if name == "ViT" and seed == seeds[0] else {}))
    return rows


def _inside(model: Vit) -> dict[str, Any]:
    """Filters (d_model, pixel) and similarities (patch, patch), rounded."""
    found = {"filters": model.patches.weight.detach().flatten(1).cpu(), "similarities": similarities(model)}
    return {name: [[round(x, 3) for x in row] for row in table.tolist()] for name, table in found.items()}


@experiment
def growth(
    seeds: Sequence[int] = (1, 2, 3), *, counts: Sequence[int] = (10, 100, 1000), steps: int = 500
) -> list[dict[str, Any]]:
    """Test accuracy after the same number of steps on so many images per label."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, count, name in product(seeds, counts, MODELS):
        part = images.few_shot(count, seed=seed)
        model = trained(partial(build, name, images), part, recipe(steps, BEST[name]), seed=seed)
        rows.append({"model": name, "images": len(part), "seed": seed, "accuracy": accuracy(model, images.test)})
    return rows


VARIANTS = {"14 × 14": (14, 1), "7 × 7": (7, 1), "4 × 4": (4, 1), "7 × 7, mean": (7, 0)}  # patch and tokens


@experiment
def variants(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 500) -> list[dict[str, Any]]:
    """Test accuracy of the ViT by the side of its patches, and with the patches' mean in place of a class token."""
    images, rows = data.load("fashion-mnist").standardized(), []
    for seed, (name, (patch, tokens)) in product(seeds, VARIANTS.items()):
        make = partial(build, "ViT", images, patch=patch, tokens=tokens)
        model = trained(make, images.train, recipe(steps, BEST["ViT"]), seed=seed)
        row = {"variant": name, "seed": seed, "accuracy": accuracy(model, images.test)}
        rows.append(row | {"patches": (28 // patch) ** 2, "flops": flops(model, images)})
    return rows


# ---- stored: patches in another order ----------------------------------------------------------------------------

ORDERS = ("in order", "one order", "an order each")


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
def shuffles(seeds: Sequence[int] = (1, 2, 3, 4, 5), *, patch: int = 7, steps: int = 500) -> list[dict[str, Any]]:
    """Test accuracy with patches in order, in one other order for all images, and in an order drawn for each image.

    The same in training and test. Runs of one seed differ in the order alone, so their differences are paired.
    """
    images, rows = data.load("fashion-mnist").standardized(), []
    places = config(images, patch=patch).time - 1
    for seed, name in product(seeds, MODELS):
        orders = (torch.arange(places)[None], random_orders(1, places, seed=seed), None)
        for order, chosen in zip(ORDERS, orders, strict=True):
            change = partial(_shuffled, patch=patch, order=chosen)
            make = partial(build, name, images, patch=patch)
            model = trained(make, images.train, recipe(steps, BEST[name]), seed=seed, change=change)
            right = accuracy(model, change(images.test, 0))
            rows.append({"model": name, "order": order, "seed": seed, "accuracy": right})
    return rows


def _shuffled(part: LabeledImages, step: int, *, patch: int, order: Int[Tensor, "1 patch"] | None) -> LabeledImages:
    """In this order or, without one, each image in its own, drawn anew for each step."""
    if order is None:
        height, width = part.images.shape[2:]
        order = random_orders(len(part), (height // patch) * (width // patch), seed=step)
    return replace(part, images=reordered(part.images, patch, order))


# ---- inside ------------------------------------------------------------------------------------------------------


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
