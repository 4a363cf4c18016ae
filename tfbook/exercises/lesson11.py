"""Exercises of lesson 11: cutting and pasting, what pixels cost, which orders hurt, other sizes, rollout, the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.exercises.engine import exercise, randn

# ---- cut ---------------------------------------------------------------------------------------------------------


def _images() -> list[tuple[Tensor, int]]:
    return [(randn(2, 3, 4, 6, seed=1), 2), (randn(1, 2, 6, 3, seed=2), 3), (randn(1, 1, 2, 3, seed=3), 1)]


@exercise(
    cases=_images,
    hints=[
        "Split height into rows · p and width into columns · p with one `reshape`: six axes. Which three of them stay "
        "together in a patch, and in which order does the text ask for them?",
        "`reshape(b, c, rows, p, columns, p)`, then `permute` to (b, rows, columns, c, p, p), then flatten twice.",
    ],
)
def cut(images: Tensor, p: int) -> Tensor:
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(0, 2, 4, 1, 3, 5).reshape(b, (height // p) * (width // p), c * p * p)


def _cut_as(images: Tensor, p: int, order: Sequence[int]) -> Tensor:
    """With the axes b, c, row, p, column, q in another order."""
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(*order).reshape(b, (height // p) * (width // p), c * p * p)


OTHER_CUTS = {
    "patches come column by column: read them row by row, as a page": (0, 4, 2, 1, 3, 5),
    "each patch is turned over its diagonal: within one, pixels go row by row, too": (0, 2, 4, 1, 5, 3),
    "pixel by pixel with the channels innermost: asked for is channel by channel": (0, 2, 4, 3, 5, 1),
    "patches in columns, and each turned over: height and width are exchanged throughout": (0, 4, 2, 1, 5, 3),
    "nothing is a square yet: the rows of different patches alternate, so bring rows and columns of the grid together "
    "first": (0, 1, 2, 3, 4, 5),
}
for _message, _order in OTHER_CUTS.items():
    cut.mistake(_message)(partial(_cut_as, order=_order))


@cut.mistake("these are patches of one channel each: a patch holds all channels of its square")
def _(images: Tensor, p: int) -> Tensor:
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(0, 1, 2, 4, 3, 5).reshape(b, c * (height // p) * (width // p), p * p)


@cut.mistake("`unfold` returns (batch, pixel, patch): turn it, so that each row is a patch")
def _(images: Tensor, p: int) -> Tensor:
    return F.unfold(images, kernel_size=p, stride=p)


@cut.mistake("these windows overlap: without `stride=p` they move by one pixel")
def _(images: Tensor, p: int) -> Tensor:
    return F.unfold(images, kernel_size=p).mT


# ---- paste -------------------------------------------------------------------------------------------------------


def _patches() -> list[tuple[Tensor, int, tuple[int, int]]]:
    return [
        (randn(2, 6, 12, seed=4), 2, (2, 3)),
        (randn(1, 4, 18, seed=5), 3, (4, 1)),
        (randn(1, 4, 4, seed=6), 2, (2, 2)),
    ]


@exercise(
    cases=_patches,
    hints=[
        "Paint one patch red before you paste, or number the pixels with `torch.arange`. Where does the second pixel "
        "of the first patch land?",
        "After `reshape` the axes are b, row, column, channel, p, q. The height is made of row and p, in this order, "
        "and the width of column and q.",
    ],
)
def paste(patches: Tensor, p: int, grid: tuple[int, int]) -> Tensor:
    rows, columns = grid
    squares = patches.reshape(len(patches), rows, columns, -1, p, p)
    return squares.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), -1, rows * p, columns * p)


@paste.given
def _(patches: Tensor, p: int, grid: tuple[int, int]) -> Tensor:
    rows, columns = grid
    squares = patches.reshape(len(patches), rows, columns, -1, p, p)
    return squares.permute(0, 3, 1, 5, 2, 4).reshape(len(patches), -1, rows * p, columns * p)


def _paste_as(patches: Tensor, p: int, grid: tuple[int, int], order: Sequence[int]) -> Tensor:
    squares = patches.reshape(len(patches), *grid, -1, p, p)
    return squares.permute(*order).reshape(len(patches), -1, grid[0] * p, grid[1] * p)


OTHER_PASTES = {
    "patches stand in the wrong places: row and column of the grid are exchanged": (0, 3, 2, 4, 1, 5),
    "height comes from columns and width from rows: on a square image that is a transposed picture": (0, 3, 2, 5, 1, 4),
    "pixels before places: the height is row · p + a pixel's row, so `row` is the outer of the two": (0, 3, 4, 1, 5, 2),
    "the axes are as they were: `reshape` alone lays the patches in strips": (0, 3, 1, 2, 4, 5),
}
for _message, _order in OTHER_PASTES.items():
    paste.mistake(_message)(partial(_paste_as, order=_order))


@paste.mistake("the channels are taken as innermost: `cut` puts the channel before the pixels")
def _(patches: Tensor, p: int, grid: tuple[int, int]) -> Tensor:
    rows, columns = grid
    squares = patches.reshape(len(patches), rows, columns, p, p, -1)
    return squares.permute(0, 5, 1, 3, 2, 4).reshape(len(patches), -1, rows * p, columns * p)


# ---- what pixels cost --------------------------------------------------------------------------------------------


def _shapes() -> list[tuple[int, int, int, int, int, int]]:
    return [(224, 224, 16, 1, 12, 12), (224, 224, 1, 1, 12, 12), (30, 20, 5, 2, 3, 4)]


@exercise(
    cases=_shapes,
    hints=[
        "How many squares stand side by side, and how many below one another? The extra tokens are positions like any.",
        "Every position attends to every position, in each head of each layer: layers · heads · time · time numbers.",
    ],
)
def count_weights(height: int, width: int, p: int, tokens: int, heads: int, layers: int) -> int:
    time = tokens + (height // p) * (width // p)
    return layers * heads * time * time


WRONG_COUNTS: dict[str, Callable[[int, int, int, int, int, int], int]] = {
    "these are the patches alone: class and distillation tokens attend and are attended to as well": (
        lambda height, width, p, tokens, heads, layers: layers * heads * ((height // p) * (width // p)) ** 2
    ),
    "a patch has p · p pixels: divide both sides by p": (
        lambda height, width, p, tokens, heads, layers: layers * heads * (tokens + height * width // p) ** 2
    ),
    "this counts positions: attention has a weight for each pair of them": (
        lambda height, width, p, tokens, heads, layers: layers * heads * (tokens + (height // p) * (width // p))
    ),
    "one layer of several: each has weights of its own": (
        lambda height, width, p, tokens, heads, layers: heads * (tokens + (height // p) * (width // p)) ** 2
    ),
    "one head of several: each weighs for itself": (
        lambda height, width, p, tokens, heads, layers: layers * (tokens + (height // p) * (width // p)) ** 2
    ),
    "half of the pairs: that would be a causal mask, and an image has no before": (
        lambda height, width, p, tokens, heads, layers: (
            layers * heads * (n := tokens + (height // p) * (width // p)) * (n + 1) // 2
        )
    ),
}
for _message, _wrong in WRONG_COUNTS.items():
    count_weights.mistake(_message)(_wrong)


# ---- which orders hurt -------------------------------------------------------------------------------------------

READERS = ("ViT", "ViT without positions", "linear classifier")
ORDERS = ("one, in the test alone", "one, in training and test", "one an image, in training and test")


@exercise(
    cases=lambda: list(product(READERS, ORDERS)),
    hints=[
        "A ViT without positions sees a set of patches. A learned position is the name of a place, and nobody told the "
        "model which places are neighbours. A linear classifier has a weight for each pixel of each label.",
        "Ask two questions. Does the model use places at all? And if it has to learn them: is a place the same one in "
        "every image that it is trained and tested on?",
    ],
)
def hurts(reader: str, order: str) -> bool:
    return reader != "ViT without positions" and order != "one, in training and test"


OTHER_GUESSES: dict[str, Callable[[str, str], bool]] = {
    "no order hurts any model? What was learned of a place is wrong when another patch stands there": (
        lambda reader, order: False
    ),
    "every order hurts every model? Without positions a ViT's patches are a set, which has no order": (
        lambda reader, order: True
    ),
    "an order that is the same in training and test changes the numbers of places alone, and these are learned": (
        lambda reader, order: reader != "ViT without positions"
    ),
    "an order of its own for each image leaves a place with nothing to say: where a patch came from is lost": (
        lambda reader, order: reader != "ViT without positions" and order == "one, in the test alone"
    ),
    "attention without positions and the mean treat all places alike: no order can ever be noticed": (
        lambda reader, order: order != "one, in training and test"
    ),
    "a linear classifier has no idea of neighbours: one order for all images exchanges its weights, and no more": (
        lambda reader, order: (
            reader == "linear classifier" or (reader == "ViT" and order != "one, in training and test")
        )
    ),
    "a linear classifier knows no neighbours, but it knows places: each pixel of a place has a weight of its own": (
        lambda reader, order: reader == "ViT" and order != "one, in training and test"
    ),
}
for _message, _guess in OTHER_GUESSES.items():
    hurts.mistake(_message)(_guess)


# ---- another resolution ------------------------------------------------------------------------------------------


def _tables() -> list[tuple[Tensor, tuple[int, int], tuple[int, int], int]]:
    return [
        (randn(1 + 6, 4, seed=7), (2, 3), (4, 5), 1),
        (randn(2 + 9, 3, seed=8), (3, 3), (2, 6), 2),
        (randn(4, 5, seed=9), (2, 2), (3, 3), 0),
    ]


@exercise(
    cases=_tables,
    hints=[
        "The first rows belong to tokens that stand nowhere. The others are a picture: as high and wide as the grid, "
        "with d_model channels.",
        '`F.interpolate(picture, size=new, mode="bicubic", align_corners=False)` takes (batch, channel, height, width).'
        " Row i · columns + j of the table is the pixel at (i, j).",
    ],
)
def interpolate_positions(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    front, places = table[:tokens], table[tokens:]
    picture = places.T.reshape(1, -1, *old)
    picture = F.interpolate(picture, size=new, mode="bicubic", align_corners=False)
    return torch.cat([front, picture[0].flatten(1).T])


def _interpolated(places: Tensor, old: tuple[int, int], new: tuple[int, int], **how: object) -> Tensor:
    picture = F.interpolate(places.T.reshape(1, -1, *old), size=new, **how)
    return picture[0].flatten(1).T


@interpolate_positions.mistake("the tokens' rows are gone: they stand nowhere in the image and stay as they are")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return _interpolated(table[tokens:], old, new, mode="bicubic")


@interpolate_positions.mistake("the tokens stand in front: put them back to where they were")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return torch.cat([_interpolated(table[tokens:], old, new, mode="bicubic"), table[:tokens]])


@interpolate_positions.mistake("bilinear: the surface asked for is bicubic, which bends smoothly at the old places")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return torch.cat([table[:tokens], _interpolated(table[tokens:], old, new, mode="bilinear")])


@interpolate_positions.mistake("each new place takes its nearest old one: many patches then stand in the same place")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return torch.cat([table[:tokens], _interpolated(table[tokens:], old, new, mode="nearest")])


@interpolate_positions.mistake(
    "the centres of the corner patches coincide here: `align_corners=False` lets the edges do"
)
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return torch.cat([table[:tokens], _interpolated(table[tokens:], old, new, mode="bicubic", align_corners=True)])


@interpolate_positions.mistake("`reshape` without turning mixes places and coordinates: d_model is the channel")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    picture = F.interpolate(table[tokens:].reshape(1, -1, *old), size=new, mode="bicubic")
    return torch.cat([table[:tokens], picture[0].flatten(1).T])


@interpolate_positions.mistake("along one line of patches: the end of one row is no neighbour of the next one's start")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    row = table[tokens:].T[None]
    stretched = F.interpolate(row, size=new[0] * new[1], mode="linear")
    return torch.cat([table[:tokens], stretched[0].T])


# ---- rollout -----------------------------------------------------------------------------------------------------


def _layers() -> list[tuple[list[Tensor]]]:
    draws = [[randn(2, 3, 4, 4, seed=10 * case + n).softmax(dim=-1) for n in range(case)] for case in (1, 2, 3)]
    return [(layers,) for layers in draws]


@exercise(
    cases=_layers,
    hints=[
        'A block hands on what it read and, by the residual sum, what it had: half and half. How is "what it had" '
        "written as a matrix of weights?",
        "Mean over heads, (A + I) / 2, then matrix products: the last layer's matrix stands at the left.",
    ],
)
def roll(layers: list[Tensor]) -> Tensor:
    eye = torch.eye(layers[0].shape[-1])
    reached = eye.expand(len(layers[0]), -1, -1)
    for weights in layers:
        reached = (weights.mean(dim=1) + eye) / 2 @ reached
    return reached


def _rolled(
    layers: list[Tensor],
    *,
    step: Callable[[Tensor, Tensor], Tensor] = lambda mean, eye: (mean + eye) / 2,
    heads: Callable[[Tensor], Tensor] = lambda weights: weights.mean(dim=1),
    join: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Tensor:
    eye = torch.eye(layers[0].shape[-1])
    reached = eye.expand(len(layers[0]), -1, -1)
    for weights in layers:
        reached = join(step(heads(weights), eye), reached)
    return reached


OTHER_ROLLS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "the residual sum is missing: a block also hands on what it had, the identity": (
        partial(_rolled, step=lambda mean, eye: mean)
    ),
    "rows sum to a power of 2: divide A + I by 2, so that they are shares": (
        partial(_rolled, step=lambda mean, eye: mean + eye)
    ),
    "the order of the product is turned round: the last layer reads the one below, so it stands at the left": (
        partial(_rolled, join=lambda one, other: other @ one)
    ),
    "`*` multiplies place by place: what reaches through two layers is a matrix product": (
        partial(_rolled, join=torch.mul)
    ),
    "the heads' sum is no weight: take their mean": partial(_rolled, heads=lambda weights: weights.sum(dim=1)),
    "the strongest head alone: its rows do not sum to 1, and the paper takes the mean": (
        partial(_rolled, heads=lambda weights: weights.amax(dim=1))
    ),
    "this is the last layer: rollout goes through all of them, down to the patches": lambda layers: _rolled(
        layers[-1:]
    ),
    "an average of the layers: paths go through one layer after the other, which is a product": lambda layers: (
        torch.stack([_rolled([weights]) for weights in layers]).mean(dim=0)
    ),
}
for _message, _wrong_roll in OTHER_ROLLS.items():
    roll.mistake(_message)(_wrong_roll)


# ---- find the bug: what the head reads ---------------------------------------------------------------------------


def _read() -> list[tuple[Tensor, Tensor, Tensor, Tensor, str]]:
    sizes = (randn(2, 6, 4, seed=30), randn(1, 4, seed=31), randn(7, 4, seed=32), randn(4, 3, seed=33))
    return [
        (*sizes, "token"),
        (*sizes, "mean"),
        (randn(1, 3, 4, seed=34), sizes[1], randn(4, 4, seed=35), sizes[3], "mean"),
    ]


def _attend(x: Tensor) -> Tensor:
    return x + (x @ x.mT).softmax(dim=-1) @ x


@exercise(
    cases=_read,
    hints=[
        "Follow the class token: where does it stand, and which vectors does the mean go over?",
        "Row 0 of `positions` belongs to the token. And the mean is that of the patches: `x[:, 1:]`.",
    ],
)
def classify(patches: Tensor, token: Tensor, positions: Tensor, head: Tensor, pool: str) -> Tensor:
    x = torch.cat([token.expand(len(patches), 1, -1), patches], dim=1) + positions
    x = x + (x @ x.mT).softmax(dim=-1) @ x
    pooled = x[:, 0] if pool == "token" else x[:, 1:].mean(dim=1)
    return pooled @ head


@classify.given
def _(patches: Tensor, token: Tensor, positions: Tensor, head: Tensor, pool: str) -> Tensor:
    x = torch.cat([token.expand(len(patches), 1, -1), patches + positions[:-1]], dim=1)
    x = x + (x @ x.mT).softmax(dim=-1) @ x
    pooled = x[:, 0] if pool == "token" else x.mean(dim=1)
    return pooled @ head


def _classified(
    patches: Tensor, token: Tensor, positions: Tensor, head: Tensor, pool: str, *, placed: bool, first: int
) -> Tensor:
    """With positions for token and patches or shifted by one, and a mean from `first` on."""
    front = token.expand(len(patches), 1, -1)
    together = torch.cat([front, patches], dim=1) + positions
    apart = torch.cat([front, patches + positions[:-1]], dim=1)
    x = _attend(together if placed else apart)
    return (x[:, 0] if pool == "token" else x[:, first:].mean(dim=1)) @ head


classify.mistake("positions are right now; the mean still goes over the class token, which is no part of the image")(
    partial(_classified, placed=True, first=0)
)
classify.mistake(
    "the mean is right now; but row 0 of the positions is the token's, and each patch has that of another"
)(partial(_classified, placed=False, first=1))


@classify.mistake("each patch has its row now, but the token has lost its own: row 0 belongs to it")
def _(patches: Tensor, token: Tensor, positions: Tensor, head: Tensor, pool: str) -> Tensor:
    x = _attend(torch.cat([token.expand(len(patches), 1, -1), patches + positions[1:]], dim=1))
    return (x[:, 0] if pool == "token" else x[:, 1:].mean(dim=1)) @ head


@classify.mistake("the patch after the token is left out of the mean as well: patches begin at 1")
def _(patches: Tensor, token: Tensor, positions: Tensor, head: Tensor, pool: str) -> Tensor:
    return _classified(patches, token, positions, head, pool, placed=True, first=2)
