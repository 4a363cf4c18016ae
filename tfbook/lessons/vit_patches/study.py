"""Study of lesson 13: a ViT against a CNN, an MLP and a linear classifier, shuffled patches, and looks inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention import POSITIONS, record
from tfbook.course.cost import count_flops, parameters, peak_memory
from tfbook.data.images import ImageBatches, Images, LabeledImages
from tfbook.interop import torch_vision
from tfbook.lessons.vit_patches.answers import answer as answer
from tfbook.lessons.vit_patches.claims import CLAIMS as CLAIMS
from tfbook.models.cnn import Cnn
from tfbook.models.vit import LearnedGrid, Vit, VitConfig, patchify, rollout, unpatchify

# ---- models and how they are trained ---------------------------------------------------------------------------------

MODELS = ("ViT", "CNN", "linear classifier")
BAG = "ViT without positions"
RATES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
TIE = 0.003  # in accuracy on 5,000 held-out images: too little to tell two rates apart
BEST = {  # the lowest of the rates that tie for the best
    "ViT": 0.002,
    "CNN": 0.004,
    "MLP": 0.004,
    "linear classifier": 0.008,
    BAG: 0.002,
}
POSITIONS_STD = 0.3  # initially, about as large as the patch vectors


def config(images: Images, *, patch: int, tokens: int = 1) -> VitConfig:
    """The lesson's ViT for these images: width 64, two blocks."""
    channels, height, width = images.train.images.shape[1:]
    return VitConfig(
        height=height,
        width=width,
        channels=channels,
        patch=patch,
        tokens=tokens,
        d_model=64,
        heads=4,
        d_ff=256,
        layers=2,
        dropout=0.0,
    )


class Mlp(nn.Module):
    """A network with two hidden layers that reads all pixels at once, without patches or attention."""

    def __init__(self, pixels: int, width: int, labels: int):
        super().__init__()
        self.embed = nn.Linear(pixels, width)
        self.layers = nn.ModuleList([nn.Linear(width, width)])  # a list, so that Muon finds the matrix
        self.head = nn.Linear(width, labels)

    @classmethod
    def of_size(cls, parameters: int, pixels: int, labels: int) -> Mlp:
        """The widest one of at most this many parameters: width² + (pixels + labels + 2) · width + labels."""
        linear = pixels + labels + 2
        return cls(pixels, (math.isqrt(linear**2 + 4 * (parameters - labels)) - linear) // 2, labels)

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """One row of logits per image."""
        x = F.gelu(self.embed(images.flatten(1)))
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


def build(name: str, images: Images, *, patch: int = 7, tokens: int = 1, positions: float = POSITIONS_STD) -> nn.Module:
    """An untrained model by its name; CNN and MLP are the widest with no more parameters than the ViT.

    `positions` is the initial standard deviation of a ViT's positions; with 0 `tokens` its head reads the patches'
    mean.
    """
    labels, pixels = len(images.labels), images.train.images[0].numel()
    if name == "linear classifier":
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, labels))
    shape = config(images, patch=patch, tokens=tokens)
    if name in ("ViT", BAG):
        model = Vit(labels, shape)
        nn.init.normal_(model.get_parameter("stack.position.embedding"), std=positions)
        return model if name == "ViT" else without_positions(model)
    with torch.device("meta"):
        count = parameters(Vit(labels, shape))
    if name == "MLP":
        return Mlp.of_size(count, pixels, labels)
    cnn = Cnn.of_size(count, labels, channels=shape.channels, stages=4, stem=2)
    return cnn.to(memory_format=torch.channels_last)  # a quarter less time on a CPU


def without_positions(model: Vit) -> Vit:
    """A copy of the weights without the positions, to which an image is a bag of patches."""
    bag = Vit(model.head.out_features, replace(model.config, position=POSITIONS["none"]))
    bag.load_state_dict(model.state_dict(), strict=False)
    return bag


def recipe(name: str, steps: int, lr: float, *, evaluations: int = 1) -> training.Recipe:
    """Muon with a warm-up over the first twentieth of the steps, then a cosine down to 0.

    Muon trains hidden matrices and convolution filters, and AdamW the rest, which is all of a linear classifier.
    """
    return training.Recipe(
        steps=steps,
        lr=lr,
        optimizer="adamw" if name == "linear classifier" else "muon",
        schedule=training.warmup_cosine(max(1, steps // 20), final=0.0),
        weight_decay=0.1,
        evaluate_every=max(1, steps // evaluations),
        mixed_precision=False,
    )


def mean_vit(
    images: Tensor,
    embed: Callable[[Tensor], Tensor],
    positions: Float[Tensor, "patch d_model"],
    blocks: Iterable[Callable[[Tensor], Tensor]],
    norm: Callable[[Tensor], Tensor],
    head: Callable[[Tensor], Tensor],
) -> Float[Tensor, "batch label"]:
    """A ViT's forward pass without a class token: the head reads the mean of the patches after the norm."""
    x = embed(images) + positions
    for block in blocks:
        x = block(x)
    return head(norm(x).mean(dim=1))


def loss(model: nn.Module, part: LabeledImages) -> Float[Tensor, ""]:
    """Mean cross-entropy of the labels, in nats."""
    return F.cross_entropy(model(part.images).float(), part.labels)


@torch.no_grad()
def predictions(model: nn.Module, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
    """The model's probabilities, computed in pieces that fit into memory."""
    pieces = images.to(runtime.device()).split(500)
    return torch.cat([model(piece).float().softmax(dim=-1) for piece in pieces]).cpu()


def accuracy(model: nn.Module, part: LabeledImages) -> float:
    """Share of images whose true label has the highest probability."""
    right = predictions(model, part.images).argmax(dim=-1) == part.labels.cpu()
    return round(float(right.float().mean()), 4)


Change = Callable[[LabeledImages, int], LabeledImages]  # a batch and the number of its step


@dataclass(frozen=True)
class Changed:
    """Batches whose images are transformed: `change(batch, step)`."""

    batches: Callable[[int], LabeledImages]
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
    """A model trained on `part`; weights, batches and their order follow from `seed`."""
    runtime.seed(seed)
    model = make().to(runtime.device())
    batches: Callable[[int], LabeledImages] = ImageBatches(part, size=batch, seed=seed)
    if change is not None:
        batches = Changed(batches, change)
    training.fit(model, loss, batches, how)
    return model.eval()


def flops(model: nn.Module, images: Images) -> int:
    """Floating-point operations for one image; one multiplication and one addition count as two."""
    one = images.test.images[:1].to(next(model.parameters()).device)
    with torch.no_grad():
        return count_flops(lambda: model(one))


def rest_of(images: Images, *, held: int = 5000) -> Images:
    """The images with the last `held` training images as the test set: for tuning without the real test set."""
    return replace(images, train=images.train[:-held], test=images.train[-held:])


# ---- stored: patches in another order --------------------------------------------------------------------------------

ORDERS = ("in order", "one order", "an order each")


def reordered(
    images: Float[Tensor, "batch channel height width"], patch: int, order: Int[Tensor, "#batch patch"]
) -> Float[Tensor, "batch channel height width"]:
    """Each image with patch `order[i]` at position i; one order for all images, or one for each."""
    pieces = patchify(images, patch)
    indices = order.to(images.device).expand(len(images), -1)[..., None].expand_as(pieces)
    grid = images.shape[2] // patch, images.shape[3] // patch
    return unpatchify(pieces.gather(1, indices), patch, grid)


def random_orders(count: int, places: int, *, seed: int) -> Int64[Tensor, "count places"]:
    """`count` uniformly random permutations of `places` positions."""
    return torch.rand(count, places, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)


# ---- looking inside --------------------------------------------------------------------------------------------------


def megabytes(attend: Callable[[Tensor], Tensor], tokens: int, d_model: int = 64) -> float:
    """Peak memory of the tensors while `attend` reads this many tokens of one image, in millions of bytes."""
    x = torch.randn(tokens, d_model, generator=torch.Generator().manual_seed(0))
    return peak_memory(lambda: attend(x)) / 1e6


def hidden(
    images: Float[Tensor, "batch channel height width"],
    gone: Bool[Tensor, "batch patch"],
    patch: int,
    mean: Float[Tensor, "channel height width"],
) -> Float[Tensor, "batch channel height width"]:
    """The images with the patches `gone` replaced by those of the mean image."""
    grid = images.shape[2] // patch, images.shape[3] // patch
    whole = patchify(mean[None], patch), patchify(images, patch)
    return unpatchify(torch.where(gone[..., None], *whole), patch, grid)


def accuracy_without(
    model: nn.Module, part: LabeledImages, score: Float[Tensor, "batch patch"], count: int, patch: int, mean: Tensor
) -> float:
    """Accuracy with the `count` highest-scoring patches of each image hidden."""
    highest = score.argsort(dim=1, descending=True)[:, :count]
    gone = torch.zeros(score.shape, dtype=torch.bool).scatter(1, highest, True)
    return accuracy(model, replace(part, images=hidden(part.images, gone, patch, mean)))


def accuracy_at(model: Vit, part: LabeledImages, cells: int, table: Float[Tensor, "1 time d_model"]) -> float:
    """Accuracy on images enlarged to cells × cells patches, with a copy of the model that has these positions."""
    side = cells * model.config.patch
    other = model.at(side, side)
    other.stack.position.embedding = nn.Parameter(table.to(model.head.weight.device))
    larger = F.interpolate(part.images, size=(side, side), mode="bicubic")
    return accuracy(other, replace(part, images=larger))


class Look(NamedTuple):
    """A pretrained ViT's prediction for a photograph, and two maps (row, column) of where it looks."""

    label: int
    sure: float
    rollout: Float[Tensor, "row column"]
    ablation: Float[Tensor, "row column"]


@torch.no_grad()
def look_at(photograph: Float[Tensor, "3 height width"], state: Mapping[str, Tensor], *, heads: int = 12) -> Look:
    """The `Look` of torchvision's pretrained ViT; colors are standardized as for ImageNet, hidden patches mid-gray."""
    shape = torch_vision.torchvision_config(state, heads=heads)
    model = Vit(len(state["heads.head.bias"]), replace(shape, dropout=0.0)).eval()
    torch_vision.load_torchvision(model, state)
    mean, deviation = (torch.tensor(three)[:, None, None] for three in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    image = ((photograph - mean) / deviation)[None]
    with record(model) as recorded:
        sure, label = model(image).softmax(dim=-1)[0].max(dim=0)
    gone = torch.eye(shape.grid[0] * shape.grid[1]).bool()
    zero = torch.zeros_like(photograph)
    pieces = (hidden(image.expand(len(row), -1, -1, -1), row, shape.patch, zero) for row in gone.split(28))
    needed = sure - torch.cat([model(piece).softmax(dim=-1)[:, label] for piece in pieces])
    arrived = rollout(recorded.values())[0, 0, 1:]
    return Look(int(label), float(sure), arrived.view(shape.grid), needed.view(shape.grid))


@torch.no_grad()
def similarities(model: Vit) -> Float[Tensor, "patch patch"]:
    """Cosine between all pairs of position vectors minus their mean (Dosovitskiy et al., 2021, figure 7).

    Raises ValueError when positions are not learned.
    """
    position = model.stack.position
    if not isinstance(position, LearnedGrid):
        raise ValueError(f"positions are {type(position).__name__}; expected LearnedGrid")
    return cosines(position.embedding[0, model.config.tokens :])


@torch.no_grad()
def cosines(table: Float[Tensor, "patch d_model"]) -> Float[Tensor, "patch patch"]:
    """Cosine between all pairs of vectors, after their mean is subtracted."""
    directions = F.normalize(table - table.mean(dim=0), dim=-1).cpu()
    return directions @ directions.T


def by_offset(similar: Float[Tensor, "patch patch"]) -> Float[Tensor, "rows columns"]:
    """Mean similarity of all pairs of patches by row and column offset; the middle entry is offset zero."""
    side = round(len(similar) ** 0.5)
    total, pairs = torch.zeros(2, 2 * side - 1, 2 * side - 1)
    for i, values in enumerate(similar.view(-1, side, side)):
        row, column = divmod(i, side)
        here = slice(side - 1 - row, 2 * side - 1 - row), slice(side - 1 - column, 2 * side - 1 - column)
        total[here] += values
        pairs[here] += 1
    return total / pairs
