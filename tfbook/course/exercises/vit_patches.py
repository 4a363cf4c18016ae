"""Exercises of lesson 13: how to cut, what pixels cost, a forward pass, orders, other sizes, rollout, the head."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from itertools import product

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises.engine import exercise, randn

# ---- cut ---------------------------------------------------------------------------------------------------------


def _images() -> list[tuple[Tensor, int]]:
    return [(randn(2, 3, 4, 6, seed=1), 2), (randn(1, 2, 6, 3, seed=2), 3), (randn(1, 1, 2, 3, seed=3), 1)]


@exercise(
    cases=_images,
    hints=[
        "Split height into rows · p and width into columns · p with one `reshape`: six axes. Which three of them stay "
        "together in a patch, and in which order does the text ask for them?",
        "`reshape(b, c, rows, p, columns, p)`, then `permute` to (b, rows, columns, p, p, c), then flatten twice.",
    ],
)
def cut(images: Tensor, p: int) -> Tensor:
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(0, 2, 4, 3, 5, 1).reshape(b, (height // p) * (width // p), p * p * c)


def _cut(images: Tensor, p: int, *, order: str, split: str = "(row p) (column q)") -> Tensor:
    """With the axes of rows, columns, pixels and channels in another order, or the sides split in another."""
    squares = rearrange(images, f"b c {split} -> b {order}", p=p, q=p)
    return squares.reshape(len(images), -1, p * p * images.shape[1])


cut.mistakes(
    {
        "channel by channel, as `patchify` has it: here the channels of one pixel stand side by side": (
            partial(_cut, order="row column c p q")
        ),
        "patches come column by column: read them row by row, as a page": partial(_cut, order="column row p q c"),
        "each patch is turned over its diagonal: within one, pixels go row by row, too": (
            partial(_cut, order="row column q p c")
        ),
        "patches in columns, and each turned over: height and width are exchanged throughout": (
            partial(_cut, order="column row q p c")
        ),
        "nothing is a square yet: the rows of different patches alternate, so bring rows and columns of the grid "
        "together first": partial(_cut, order="row p column q c"),
        "nothing has moved: `reshape` alone cuts each channel into strips": partial(_cut, order="c row p column q"),
        "these are patches of one channel each: a patch holds all channels of its square": (
            lambda images, p: rearrange(images, "b c (row p) (column q) -> b (c row column) (p q)", p=p, q=p)
        ),
        "`unfold` returns (batch, pixel, patch): turn it, so that each row is a patch, and then put its pixels in "
        "order": lambda images, p: F.unfold(images, kernel_size=p, stride=p),
        "these windows overlap: without `stride=p` they move by one pixel": (
            lambda images, p: F.unfold(images, kernel_size=p).mT
        ),
        "pixels of a patch lie far apart: p is the inner of the two axes that a side is split into": (
            partial(_cut, order="row column p q c", split="(p row) (q column)")
        ),
    }
)


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


def _counted(
    height: int, width: int, p: int, tokens: int, heads: int, layers: int, *, pairs: Callable[[int, int], int]
) -> int:
    """With another number of `pairs`, a function of how many tokens and how many patches there are."""
    return layers * heads * pairs(tokens, (height // p) * (width // p))


count_weights.mistakes(
    {
        "these are the patches alone: class and distillation tokens attend and are attended to as well": (
            partial(_counted, pairs=lambda tokens, patches: patches**2)
        ),
        "a patch has p · p pixels: divide both sides by p": (
            lambda height, width, p, tokens, heads, layers: layers * heads * (tokens + height * width // p) ** 2
        ),
        "this counts positions: attention has a weight for each pair of them": (
            partial(_counted, pairs=lambda tokens, patches: tokens + patches)
        ),
        "one layer of several: each has weights of its own": lambda *sizes: count_weights.reference(*sizes[:5], 1),
        "one head of several: each weighs for itself": lambda *sizes: count_weights.reference(*sizes[:4], 1, sizes[5]),
        "the tokens come after squaring: they are positions like any, and each pairs with all": (
            partial(_counted, pairs=lambda tokens, patches: tokens + patches**2)
        ),
        "the image is no square: it has height / p rows and width / p columns": (
            lambda height, width, *rest: count_weights.reference(height, height, *rest)
        ),
        "half of the pairs: that would be a causal mask, and an image has no before": (
            partial(_counted, pairs=lambda tokens, patches: math.comb(tokens + patches + 1, 2))
        ),
    }
)


# ---- a forward pass with mean pooling ----------------------------------------------------------------------------


def _mixing(seed: int) -> Callable[[Tensor], Tensor]:
    """Something like a block: every vector reads all others, and all are changed."""
    matrix = randn(6, 6, seed=seed)
    return lambda x: x + ((x @ matrix) @ x.mT).softmax(dim=-1) @ torch.tanh(x @ matrix)


def _parts() -> list[tuple]:
    cases = []
    for seed, (count, layers) in enumerate(((4, 2), (3, 3), (1, 1)), start=50):
        matrix, out = randn(5, 6, seed=seed), randn(6, 3, seed=seed + 10)
        embed = partial(torch.matmul, other=matrix)
        blocks = [_mixing(seed + 20 + layer) for layer in range(layers)]
        norm, head = partial(F.layer_norm, normalized_shape=(6,)), partial(torch.matmul, other=out)
        cases.append((randn(2, count, 5, seed=seed + 30), embed, randn(count, 6, seed=seed + 40), blocks, norm, head))
    return cases


@exercise(
    cases=_parts,
    hints=[
        "Five steps: embed, add the positions, apply the blocks one after the other, norm, and then one vector per "
        "image for the head.",
        "`x = embed(images) + positions`, a loop `x = block(x)`, and `head(norm(x).mean(dim=1))`: dimension 1 is the "
        "patches.",
    ],
)
def mean_vit(
    images: Tensor,
    embed: Callable[[Tensor], Tensor],
    positions: Tensor,
    blocks: list[Callable[[Tensor], Tensor]],
    norm: Callable[[Tensor], Tensor],
    head: Callable[[Tensor], Tensor],
) -> Tensor:
    x = embed(images) + positions
    for block in blocks:
        x = block(x)
    return head(norm(x).mean(dim=1))


def _mean_vit(
    images: Tensor,
    embed: Callable,
    positions: Tensor,
    blocks: list[Callable],
    norm: Callable,
    head: Callable,
    *,
    placed: Callable[[Tensor, Tensor], Tensor] = torch.add,
    order: slice = slice(None),
    read: Callable[[Tensor, Callable], Tensor] = lambda x, norm: norm(x).mean(dim=1),
) -> Tensor:
    """With positions `placed` in another way, some of the blocks in some order, and another vector `read`."""
    x = placed(embed(images), positions)
    for block in blocks[order]:
        x = block(x)
    return head(read(x, norm))


mean_vit.mistakes(
    {
        "positions are missing: without them the patches are a set, in which no place has a name": (
            partial(_mean_vit, placed=lambda x, positions: x)
        ),
        "positions are added, not multiplied": partial(_mean_vit, placed=torch.mul),
        "the blocks run backwards: the first of the list comes first": partial(_mean_vit, order=slice(None, None, -1)),
        "only the first block runs: apply all of them": partial(_mean_vit, order=slice(1)),
        "the blocks are missing": partial(_mean_vit, order=slice(0)),
        "the norm is missing: the vectors are normalized before their mean is taken": (
            partial(_mean_vit, read=lambda x, norm: x.mean(dim=1))
        ),
        "the mean comes before the norm here: normalize each patch first, then take the mean": (
            partial(_mean_vit, read=lambda x, norm: norm(x.mean(dim=1)))
        ),
        "this reads the first vector, as with a class token: there is none, so take the mean of all": (
            partial(_mean_vit, read=lambda x, norm: norm(x)[:, 0])
        ),
        "this is the sum over the patches: the mean is asked for": (
            partial(_mean_vit, read=lambda x, norm: norm(x).sum(dim=1))
        ),
        "this is the largest number over the patches: the mean is asked for": (
            partial(_mean_vit, read=lambda x, norm: norm(x).amax(dim=1))
        ),
        "one answer per patch: one per image is asked for": partial(_mean_vit, read=lambda x, norm: norm(x)),
        "the mean leaves out the first patch: there is no class token in front": (
            partial(_mean_vit, read=lambda x, norm: norm(x)[:, 1:].mean(dim=1) if x.shape[1] > 1 else norm(x)[:, 0])
        ),
    }
)


# ---- which orders hurt -------------------------------------------------------------------------------------------

READERS = ("ViT", "ViT without positions", "linear classifier")
ORDERS = ("one, in the test alone", "one, in training and test", "one per image, in training and test")


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


hurts.mistakes(
    {
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
        "one order, the same in training and test, hurts a ViT? Its positions are learned: they are names of places": (
            lambda reader, order: reader == "ViT" or (reader == "linear classifier" and order != ORDERS[1])
        ),
        "an order for each image hurts a ViT without positions? It sees a set of patches in any case": (
            lambda reader, order: order == ORDERS[2] or (reader != "ViT without positions" and order == ORDERS[0])
        ),
        "a linear classifier has no idea of neighbours: one order for all images exchanges its weights, and no more": (
            lambda reader, order: reader == "linear classifier" or (reader == "ViT" and order != ORDERS[1])
        ),
        "a linear classifier knows no neighbours, but it knows places: each pixel of a place has a weight of its own": (
            lambda reader, order: reader == "ViT" and order != "one, in training and test"
        ),
    }
)


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
        "The last rows belong to tokens that stand nowhere. The others are a picture: as high and wide as the grid, "
        "with d_model channels.",
        '`F.interpolate(picture, size=new, mode="bicubic", align_corners=False)` takes (batch, channel, height, width).'
        " Row i · columns + j of the table is the pixel at (i, j).",
    ],
)
def interpolate_positions(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    places, behind = table[: len(table) - tokens], table[len(table) - tokens :]
    picture = places.T.reshape(1, -1, *old)
    picture = F.interpolate(picture, size=new, mode="bicubic", align_corners=False)
    return torch.cat([picture[0].flatten(1).T, behind])


def _interpolated(
    table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int, turned: Callable = torch.t, **how: object
) -> Tensor:
    """In another mode than bicubic, or with the rows of places `turned` into channels of a picture in another way."""
    places, behind = table.split([len(table) - tokens, tokens])
    picture = F.interpolate(turned(places).reshape(1, -1, *old), size=new, **({"mode": "bicubic"} | how))
    return torch.cat([picture[0].flatten(1).T, behind])


interpolate_positions.mistakes(
    {
        "the tokens' rows are gone: they stand nowhere in the image and stay as they are": (
            lambda table, old, new, tokens: _interpolated(table, old, new, tokens)[: new[0] * new[1]]
        ),
        "the tokens stand behind the patches in this table: put them back to where they were": (
            lambda table, old, new, tokens: _interpolated(table, old, new, tokens).roll(tokens, 0)
        ),
        "these are the first rows for the tokens: in this table the grid comes first": (
            lambda table, old, new, tokens: _interpolated(table.roll(-tokens, 0), old, new, tokens).roll(tokens, 0)
        ),
        "bilinear: the surface asked for is bicubic, which bends smoothly at the old places": (
            partial(_interpolated, mode="bilinear")
        ),
        "each new place takes its nearest old one: many patches then stand in the same place": (
            partial(_interpolated, mode="nearest")
        ),
        "the centres of the corner patches coincide here: `align_corners=False` lets the edges do": (
            partial(_interpolated, align_corners=True)
        ),
        "`reshape` without turning mixes places and coordinates: d_model is the channel": (
            partial(_interpolated, turned=lambda places: places)
        ),
        "rows and columns of the old grid are exchanged: `old` is (rows, columns)": (
            lambda table, old, new, tokens: _interpolated(table, old[::-1], new, tokens)
        ),
        "along one line of patches: the end of one row is no neighbour of the next one's start": (
            lambda table, old, new, tokens: _interpolated(
                table, (1, math.prod(old)), (1, math.prod(new)), tokens, mode="bilinear"
            )
        ),
    }
)


# ---- rollout -----------------------------------------------------------------------------------------------------


def _layers() -> list[tuple[list[Tensor], float]]:
    draws = [[randn(2, 3, 5, 5, seed=10 * case + n).softmax(dim=-1) for n in range(case)] for case in (1, 2, 3)]
    return [(layers, keep) for layers, keep in zip(draws, (0.3, 0.6, 0.8), strict=True)]


@exercise(
    cases=_layers,
    hints=[
        'A block hands on a share `keep` of what it had and 1 − `keep` of what it mixed. How is "what it had" written '
        "as a matrix of weights? Which row of the product is the class token's?",
        "Mean over heads, (1 − keep) A + keep I, then matrix products with the last layer's at the left; row 0 without "
        "its first column, divided by its sum.",
    ],
)
def roll(layers: list[Tensor], keep: float) -> Tensor:
    shares = torch.eye(layers[0].shape[-1])[:1].expand(len(layers[0]), -1, -1)  # the class token's row
    for weights in reversed(layers):
        shares = keep * shares + (1 - keep) * shares @ weights.mean(dim=1)
    patches = shares[:, 0, 1:]
    return patches / patches.sum(dim=1, keepdim=True)


def _of_token(reached: Tensor) -> Tensor:
    patches = reached[:, 0, 1:]
    return patches / patches.sum(dim=1, keepdim=True)


def _rolled(
    layers: list[Tensor],
    keep: float,
    *,
    step: Callable[[Tensor, Tensor, float], Tensor] = lambda mean, eye, keep: (1 - keep) * mean + keep * eye,
    heads: Callable[[Tensor], Tensor] = lambda weights: weights.mean(dim=1),
    read: Callable[[Tensor], Tensor] = _of_token,
) -> Tensor:
    eye = torch.eye(layers[0].shape[-1])
    reached = eye.expand(len(layers[0]), -1, -1)
    for weights in layers:
        reached = step(heads(weights), eye, keep) @ reached
    return read(reached)


roll.mistakes(
    {
        "the residual sum is missing: a block also hands on what it had, the identity": (
            partial(_rolled, step=lambda mean, eye, keep: mean)
        ),
        "half and half: here a share `keep` is handed on, and 1 − `keep` is mixed": (
            partial(_rolled, step=lambda mean, eye, keep: (mean + eye) / 2)
        ),
        "`keep` and 1 − `keep` are exchanged: `keep` is the share of what a block had, the identity's": (
            partial(_rolled, step=lambda mean, eye, keep: keep * mean + (1 - keep) * eye)
        ),
        "the order of the product is reversed: the last layer reads the one below, so it stands at the left": (
            lambda layers, keep: roll.reference(layers[::-1], keep)
        ),
        "`*` multiplies place by place: what reaches through two layers is a matrix product": (
            lambda layers, keep: _of_token(
                reduce(torch.mul, [_rolled([weights], keep, read=lambda reached: reached) for weights in layers])
            )
        ),
        "the heads' sum is no weight: take their mean": partial(_rolled, heads=lambda weights: weights.sum(dim=1)),
        "the strongest head alone: its rows do not sum to 1, and the mean is asked for": (
            partial(_rolled, heads=lambda weights: weights.amax(dim=1))
        ),
        "this is the last layer: rollout goes through all of them, down to the patches": (
            lambda layers, keep: roll.reference(layers[-1:], keep)
        ),
        "the shares do not sum to 1: what the class token kept of itself is gone, so divide by what is left": (
            partial(_rolled, read=lambda reached: reached[:, 0, 1:])
        ),
        "the class token's own share is still there: asked for are the patches, from column 1 on": (
            partial(_rolled, read=lambda reached: reached[:, 0])
        ),
        "this is the token's column, what of it is in each patch: asked for is its row": (
            partial(_rolled, read=lambda reached: reached[:, 1:, 0] / reached[:, 1:, 0].sum(dim=1, keepdim=True))
        ),
        "this is the mean over all positions: the head reads the class token's row alone": (
            partial(_rolled, read=lambda reached: _of_token(reached.mean(dim=1, keepdim=True)))
        ),
        "this is the whole matrix: the head reads the class token's row alone": (
            partial(_rolled, read=lambda reached: reached)
        ),
        "an average of the layers: paths go through one layer after the other, which is a product": (
            lambda layers, keep: torch.stack([roll.reference([weights], keep) for weights in layers]).mean(dim=0)
        ),
    }
)


# ---- find the bug: what the head reads ---------------------------------------------------------------------------


def _read() -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, str]]:
    token, registers, head = randn(1, 4, seed=31), randn(2, 4, seed=36), randn(4, 3, seed=33)
    several, positions = randn(2, 6, 4, seed=30), randn(7, 4, seed=32)
    return [
        (several, token, registers, positions, head, "token"),
        (several, token, registers, positions, head, "mean"),
        (randn(1, 3, 4, seed=34), token, registers[:1], randn(4, 4, seed=35), head, "mean"),
        (randn(2, 3, 4, seed=37), token, registers[:0], randn(4, 4, seed=38), head, "mean"),
    ]


@exercise(
    cases=_read,
    hints=[
        "Write down which vector stands where: token, patches, registers. Which row of `positions` does each patch "
        "get, and which vectors does the mean go over?",
        "Row 0 of `positions` belongs to the token, which has it added as well. And the mean is that of the patches: "
        "it begins at 1 and ends before the registers, if there are any: count the patches.",
    ],
)
def classify(patches: Tensor, token: Tensor, registers: Tensor, positions: Tensor, head: Tensor, pool: str) -> Tensor:
    front, behind = (part.expand(len(patches), -1, -1) for part in (token, registers))
    x = torch.cat([torch.cat([front, patches], dim=1) + positions, behind], dim=1)
    x = x + (x @ x.mT).softmax(dim=-1) @ x
    pooled = x[:, 0] if pool == "token" else x[:, 1 : 1 + patches.shape[1]].mean(dim=1)
    return pooled @ head


@classify.given
def _(patches: Tensor, token: Tensor, registers: Tensor, positions: Tensor, head: Tensor, pool: str) -> Tensor:
    front, behind = (part.expand(len(patches), -1, -1) for part in (token, registers))
    x = torch.cat([front, patches + positions[:-1], behind], dim=1)
    x = x + (x @ x.mT).softmax(dim=-1) @ x
    pooled = x[:, 0] if pool == "token" else x[:, 1:].mean(dim=1)
    return pooled @ head


def _classified(
    patches: Tensor,
    token: Tensor,
    registers: Tensor,
    positions: Tensor,
    head: Tensor,
    pool: str,
    *,
    rows: slice = slice(None),
    read: Callable[[Tensor, int], Tensor] = lambda x, n: x[:, 1 : 1 + n],
    scale: float = 1.0,
) -> Tensor:
    """With these `rows` of positions, and zeros before them, a mean over what is `read`, of n patches, and a scale."""
    front, behind = (part.expand(len(patches), -1, -1) for part in (token, registers))
    places = F.pad(positions[rows], (0, 0, len(positions) - len(positions[rows]), 0))
    x = torch.cat([torch.cat([front, patches], dim=1) + places, behind], dim=1)
    x = x + (scale * x @ x.mT).softmax(dim=-1) @ x
    return (x[:, 0] if pool == "token" else read(x, patches.shape[1]).mean(dim=1)) @ head


classify.mistakes(
    {
        "positions are right now; the mean still goes over the registers, which show no part of the image": (
            partial(_classified, read=lambda x, n: x[:, 1:])
        ),
        "positions are right now; the mean goes over all vectors: leave the class token and the registers out": (
            partial(_classified, read=lambda x, n: x)
        ),
        "positions are right, the registers are gone from the mean; the class token is still in it": (
            partial(_classified, read=lambda x, n: x[:, : 1 + n])
        ),
        "the mean is right now; but row 0 of the positions is the token's, and each patch has that of another": (
            partial(_classified, rows=slice(-1))
        ),
        "each patch has its row now, but the token has lost its own: row 0 belongs to it": (
            partial(_classified, rows=slice(1, None))
        ),
        "each patch has its row, the token has not; and the mean still goes over the registers": (
            partial(_classified, rows=slice(1, None), read=lambda x, n: x[:, 1:])
        ),
        "without registers the mean is over nothing: x[:, 1:-0] is empty, so count from the front, where patches end": (
            partial(_classified, read=lambda x, n: x[:, 1 : n + 1 - x.shape[1]])
        ),
        "the mean leaves out the first patch as well: patches begin at 1": (
            partial(_classified, read=lambda x, n: x[:, 2 : 1 + n])
        ),
        "the mean leaves out the last patch as well: a slice ends before its second number": (
            partial(_classified, read=lambda x, n: x[:, 1:n])
        ),
        "both bugs are gone. The scale 1/√d is missing on purpose: leave attention as it was given": (
            lambda *inputs: _classified(*inputs, scale=inputs[0].shape[-1] ** -0.5)
        ),
    }
)
