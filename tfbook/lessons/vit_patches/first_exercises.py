"""The first exercises of lesson 13; the others are in exercises.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn

# ---- cut ---------------------------------------------------------------------------------------------------------


def _images() -> list[tuple[Tensor, int]]:
    sizes = [(2, 3, 4, 6, 2), (1, 2, 6, 3, 3), (1, 1, 2, 3, 1), (3, 2, 6, 9, 3)]  # batch, channel, height, width, p
    return [(randn(*size, seed=seed), p) for seed, (*size, p) in enumerate(sizes, start=1)]


@exercise(
    cases=_images,
    hints=[
        "Split height into rows · p and width into columns · p with one `reshape`: six axes. Which three of them stay "
        "together in a patch, and in which order does the text ask for them?",
        "`reshape(b, c, rows, p, columns, p)`, then `permute` to (b, rows, columns, p, p, c), then flatten twice.",
    ],
    differentiable=False,
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
        "the grid still has two axes, rows and columns: flatten them into one, (batch, patch, p · p · channel)": (
            lambda images, p: cut.reference(images, p).unflatten(1, (images.shape[2] // p, -1))
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
        "the extra tokens attend and are attended to as well: add them before squaring": (
            lambda height, width, p, tokens, heads, layers: (
                count_weights.reference(height, width, p, 0, heads, layers) + tokens
            )
        ),
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
        norm = partial(F.layer_norm, normalized_shape=(6,), weight=randn(6, seed=seed + 50), bias=randn(6, seed=seed))
        head = partial(torch.matmul, other=out)
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
        "the first vector is left out, as if it were a class token: here all of them are patches": (
            lambda images, embed, positions, blocks, norm, head: mean_vit.reference(
                images, embed, positions, blocks, lambda x: norm(x)[:, 1:], head
            )
        ),
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
        "the norm is applied twice: once is enough, after the last block": (
            partial(_mean_vit, read=lambda x, norm: norm(norm(x)).mean(dim=1))
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
        "x is added to what a block returns: a block has its residual sum inside, so x = block(x)": (
            lambda images, embed, positions, blocks, norm, head: mean_vit.reference(
                images, embed, positions, [lambda x, block=block: x + block(x) for block in blocks], norm, head
            )
        ),
        "these are probabilities: return the logits, as `head` gives them": (
            lambda *parts: mean_vit.reference(*parts).softmax(dim=-1)
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
        "model which places are neighbors. A linear classifier has a weight for each pixel of each label.",
        "Ask two questions. Does the model use places at all? And if it has to learn them: is a place the same one in "
        "every image that it is trained and tested on?",
    ],
)
def hurts(reader: str, order: str) -> bool:
    return reader != "ViT without positions" and order != "one, in training and test"


hurts.mistakes(
    {
        "without positions a ViT reads a set of patches, also in the test alone": (
            lambda reader, order: hurts.reference(reader, order) or order == "one, in the test alone"
        ),
        (
            "a ViT with positions has learned what stands where: another order in the test alone, or for each "
            "image, hurts it"
        ): (lambda reader, order: reader == "linear classifier" and hurts.reference(reader, order)),
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
        "a linear classifier has no idea of neighbors: one order for all images exchanges its weights, and no more": (
            lambda reader, order: reader == "linear classifier" or (reader == "ViT" and order != ORDERS[1])
        ),
        "a linear classifier knows no neighbors, but it knows places: each pixel of a place has a weight of its own": (
            lambda reader, order: reader == "ViT" and order != "one, in training and test"
        ),
        "an order in the test alone hurts whoever has learned what stands where: the places have new tenants": (
            lambda reader, order: reader != "ViT without positions" and order == ORDERS[2]
        ),
        "an order per image hurts the ViT as well: its positions then say nothing about where a patch came from": (
            lambda reader, order: (reader, order) in (("ViT", ORDERS[0]), *product(READERS[2:], ORDERS[::2]))
        ),
    }
)
