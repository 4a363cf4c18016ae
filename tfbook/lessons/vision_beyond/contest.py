"""The second question of lesson 14, "the same color?", its ViT and rivals with as many parameters.

Do two objects that stand apart have the same color? Yes or no, each with a chance of one half. A bag of patches can
answer: it only has to know which colors there are. (rows.py asks what no bag can answer.)
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
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
from tfbook.models.blocks import MakePart, alternate, on_paper
from tfbook.models.cnn import Cnn
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.norms import BatchNorm, LayerNorm
from tfbook.models.patch_mixers import convolutional, mlp_mixer, patch_bag, res_mlp
from tfbook.models.swin import Swin, SwinConfig
from tfbook.models.vit import Vit, VitConfig, grid_of, patchify, unpatchify

SIDE, PATCH, GRID = 32, 4, 8  # pixels of an image and of a patch, patches along a side
WINDOW, SHIFT = 4, 2  # patches along a side of a window
SHAPE = VitConfig(height=SIDE, width=SIDE, patch=PATCH, tokens=0, d_model=64, heads=4, d_ff=128, layers=4, dropout=0.0)
LABELS = 2  # different, the same
STEPS, COUNT, JUDGED = 500, 8000, 1000  # of training; images to train on; images of "valid" and of "test"
RATES = (0.001, 0.003, 0.009)
SEEDS = (1, 2)
DISTANCES = (0.3, 0.4, 0.5, 0.6, 0.7)  # bounds of groups of two objects, as shares of the image's side
BEST = {"ViT": 0.003, "ConvMixer": 0.009, "CNN": 0.003, "CNN + attention": 0.003}  # the best of RATES

BEST_BAG = {"bag, batch norms": 0.003}

# ---- the question ---------------------------------------------------------------------------------------------------


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


def drawn(split: str, number: int) -> tuple[list[SceneObject], int, str]:
    """The objects, the answer and the ground of a scene."""
    rng = random.Random(f"same color {split} {number}")
    objects, same = two_objects(rng)
    return objects, same, rng.choice(list(GROUNDS))


def asked(split: str, numbers: Sequence[int]) -> LabeledImages:
    """Images with the answers as labels, centered around 0; each follows from its split and number alone."""
    objects, labels, grounds = (list(part) for part in zip(*(drawn(split, each) for each in numbers), strict=True))
    return LabeledImages(centered(objects, grounds, numbers, SIDE), torch.tensor(labels))


def centered(
    objects: Sequence[Sequence[SceneObject]],
    grounds: Sequence[str],
    numbers: Sequence[int],
    side: int,
    *,
    shadow: float = 0.35,
) -> Float[Tensor, "batch 3 row column"]:
    """Images of scenes, centered around 0; drawn in pieces."""
    images = []
    for start in range(0, len(numbers), CHUNK):
        some = slice(start, start + CHUNK)
        scenes = drawn_scenes(objects[some], grounds[some], list(numbers[some]), side, shadow=shadow)
        images += [scene.image for scene in scenes]
    return 4 * (torch.stack(images) - 0.5)


def distances(split: str, numbers: Sequence[int]) -> Float[Tensor, " batch"]:
    """How far apart the two objects of each scene are, as a share of the image's side."""
    pairs = ([(one.x, one.y) for one in drawn(split, number)[0]] for number in numbers)
    return torch.tensor([apart(one, other) for one, other in pairs])


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


def with_deep_head(model: Vit) -> Vit:
    """The same model, its mean over places read by a network of two layers."""
    width = model.config.d_model
    model.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), model.head)  # type: ignore[assignment]
    return model


def _bag_of(norm: MakePart) -> Callable[[int, int], nn.Module]:
    return lambda labels, d_ff: with_deep_head(Vit(labels, patch_bag(replace(SHAPE, d_ff=d_ff, norm=norm))))


BAGS = {"bag, batch norms": _bag_of(BatchNorm), "bag, layer norms": _bag_of(LayerNorm)}


def of_size(name: str, labels: int, count: int) -> nn.Module:
    """The widest of these models with at most `count` parameters.

    The width is the feed-forward networks' where there are any to widen, and otherwise that of the whole model.
    """
    make = (MODELS | BAGS)[name]
    first = 16 if name in ("CNN + attention",) else 1
    width = bisect_right(range(first, 1024), count, key=lambda width: parameters(on_paper(lambda: make(labels, width))))
    return make(labels, first + width - 1)


def build(name: str) -> nn.Module:
    """An untrained model, with no more parameters than the ViT."""
    if name == LINEAR:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, LABELS))
    if name == "ViT":
        return MODELS[name](LABELS, SHAPE.d_ff)
    return of_size(name, LABELS, parameters(on_paper(lambda: MODELS["ViT"](LABELS, SHAPE.d_ff))))


# ---- training ----------------------------------------------------------------------------------------------------


def recipe(steps: int, lr: float, *, weight_decay: float = 0.05) -> training.Recipe:
    """AdamW with a warm-up over the first twentieth of the steps, then a cosine down to 0."""
    return training.Recipe(
        steps=steps,
        lr=lr,
        schedule=training.warmup_cosine(max(1, steps // 20), final=0.0),
        weight_decay=weight_decay,
        evaluate_every=steps,
        mixed_precision=False,
    )


def loss(model: nn.Module, part: LabeledImages) -> Float[Tensor, ""]:
    """Mean cross-entropy of the labels, in nats."""
    return F.cross_entropy(model(part.images).float(), part.labels)


def trained_with(
    make: Callable[[], nn.Module], part: LabeledImages, *, lr: float, seed: int, steps: int = STEPS
) -> nn.Module:
    """A model trained on `part`; weights, batches and their order follow from `seed`."""
    runtime.seed(seed)
    model = make().to(runtime.device())
    training.fit(model, loss, ImageBatches(part, size=64, seed=seed), recipe(steps, lr))
    return model.eval()


def trained(name: str, part: LabeledImages, *, lr: float, seed: int) -> nn.Module:
    """A model of the contest, trained on `part`."""
    return trained_with(partial(build, name), part, lr=lr, seed=seed)


# ---- judging -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def right(model: nn.Module, images: Float[Tensor, "batch 3 row column"], labels: Tensor) -> Tensor:
    """Whether the most probable label is the true one, for each image; computed in pieces."""
    device = next(model.parameters()).device
    said = torch.cat([model(piece.to(device)).argmax(dim=1).cpu() for piece in images.split(500)])
    return (said == labels.cpu()).float()


def shuffled(
    images: Float[Tensor, "batch 3 row column"], patch: int = PATCH, *, seed: int = 0
) -> Float[Tensor, "batch 3 row column"]:
    """A jigsaw: the patches of each image in a random order of its own."""
    pieces, grid = patchify(images, patch), grid_of(images.shape[2], images.shape[3], patch)
    orders = torch.rand(pieces.shape[:2], generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
    return unpatchify(torch.take_along_dim(pieces, orders[..., None], dim=1), patch, grid)


def by_distance(answers: Float[Tensor, " batch"], far: Float[Tensor, " batch"]) -> dict[str, float]:
    """Accuracy in each group of `DISTANCES`, by its lower bound."""
    group = torch.bucketize(far, torch.tensor(DISTANCES), right=True) - 1
    return {str(bound): rounded(answers[group == number]) for number, bound in enumerate(DISTANCES[:-1])}


def rounded(answers: Float[Tensor, " batch"]) -> float:
    """Their mean, with four digits."""
    return round(float(answers.mean()), 4)


def judged(model: nn.Module, part: LabeledImages, far: Float[Tensor, " batch"]) -> dict[str, Any]:
    """Accuracy on images as they are, as a jigsaw, and by the distance between the objects."""
    answers = right(model, part.images, part.labels)
    jigsaw = right(model, shuffled(part.images), part.labels)
    return {"accuracy": rounded(answers), "jigsaw": rounded(jigsaw), "by_distance": by_distance(answers, far)}


# ---- stored ------------------------------------------------------------------------------------------------------


def train_part() -> LabeledImages:
    """The images that all models learn from."""
    return asked("train", range(COUNT))


@experiment
def rates(*, seed: int = 11) -> list[dict[str, Any]]:
    """Accuracy on validation images of each model at each of `RATES`, one run each."""
    return tried_rates((*MODELS, LINEAR), seed=seed)


@experiment
def bag_rates(*, seed: int = 11) -> list[dict[str, Any]]:
    """The same for bags of patches."""
    return tried_rates(BAGS, seed=seed)


def tried_rates(names: Iterable[str], *, seed: int) -> list[dict[str, Any]]:
    """Accuracy on validation images of some models at each of `RATES`."""
    train, valid, rows = train_part(), asked("valid", range(JUDGED)), []
    for name, lr in product(names, RATES):
        model = trained(name, train, lr=lr, seed=seed)
        answers = right(model, valid.images, valid.labels)
        rows.append({"model": name, "lr": lr, "accuracy": rounded(answers)})
    return rows


def learned(name: str, train: LabeledImages, seed: int) -> dict[str, Any]:
    """One run of a model at its best rate, judged on test images."""
    model, test = trained(name, train, lr=(BEST | BEST_BAG)[name], seed=seed), range(JUDGED)
    return {"model": name, "seed": seed} | judged(model, asked("test", test), distances("test", test))


@experiment
def learners() -> list[dict[str, Any]]:
    """The models that did better than guessing: more seeds, at their best rates."""
    train = train_part()
    return [learned(name, train, seed) for name, seed in product(BEST, SEEDS)]


@experiment
def bag_learners() -> list[dict[str, Any]]:
    """The bag with batch norms: more seeds at its best rate."""
    train = train_part()
    return [learned(name, train, seed) for name, seed in product(BEST_BAG, SEEDS)]
