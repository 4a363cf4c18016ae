"""Exercises of lesson 11: cutting and pasting, what pixels cost, which orders hurt, other sizes, rollout, the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
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
        "`reshape(b, c, rows, p, columns, p)`, then `permute` to (b, rows, columns, p, p, c), then flatten twice.",
    ],
)
def cut(images: Tensor, p: int) -> Tensor:
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(0, 2, 4, 3, 5, 1).reshape(b, (height // p) * (width // p), p * p * c)


def _cut_as(images: Tensor, p: int, order: Sequence[int]) -> Tensor:
    """With the axes b, c, row, p, column, q in another order."""
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(*order).reshape(b, (height // p) * (width // p), p * p * c)


OTHER_CUTS = {
    "channel by channel, as `patchify` has it: here the channels of one pixel stand side by side": (0, 2, 4, 1, 3, 5),
    "patches come column by column: read them row by row, as a page": (0, 4, 2, 3, 5, 1),
    "each patch is turned over its diagonal: within one, pixels go row by row, too": (0, 2, 4, 5, 3, 1),
    "patches in columns, and each turned over: height and width are exchanged throughout": (0, 4, 2, 5, 3, 1),
    "nothing is a square yet: the rows of different patches alternate, so bring rows and columns of the grid together "
    "first": (0, 2, 3, 4, 5, 1),
    "nothing has moved: `reshape` alone cuts each channel into strips": (0, 1, 2, 3, 4, 5),
}
for _message, _order in OTHER_CUTS.items():
    cut.mistake(_message)(partial(_cut_as, order=_order))


@cut.mistake("these are patches of one channel each: a patch holds all channels of its square")
def _(images: Tensor, p: int) -> Tensor:
    b, c, height, width = images.shape
    squares = images.reshape(b, c, height // p, p, width // p, p)
    return squares.permute(0, 1, 2, 4, 3, 5).reshape(b, c * (height // p) * (width // p), p * p)


@cut.mistake(
    "`unfold` returns (batch, pixel, patch): turn it, so that each row is a patch, and then put its pixels in order"
)
def _(images: Tensor, p: int) -> Tensor:
    return F.unfold(images, kernel_size=p, stride=p)


@cut.mistake("these windows overlap: without `stride=p` they move by one pixel")
def _(images: Tensor, p: int) -> Tensor:
    return F.unfold(images, kernel_size=p).mT


@cut.mistake("pixels of a patch lie far apart: p is the inner of the two axes that a side is split into")
def _(images: Tensor, p: int) -> Tensor:
    b, c, height, width = images.shape
    squares = images.reshape(b, c, p, height // p, p, width // p)
    return squares.permute(0, 3, 5, 2, 4, 1).reshape(b, (height // p) * (width // p), p * p * c)


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
        "After `reshape` the axes are b, row, column, p, q, channel. The height is made of row and p, in this order, "
        "and the width of column and q.",
    ],
)
def paste(patches: Tensor, p: int, grid: tuple[int, int]) -> Tensor:
    rows, columns = grid
    squares = patches.reshape(len(patches), rows, columns, p, p, -1)
    return squares.permute(0, 5, 1, 3, 2, 4).reshape(len(patches), -1, rows * p, columns * p)


@paste.given
def _(patches: Tensor, p: int, grid: tuple[int, int]) -> Tensor:
    rows, columns = grid
    squares = patches.reshape(len(patches), rows, columns, p, p, -1)
    return squares.permute(0, 5, 1, 4, 2, 3).reshape(len(patches), -1, rows * p, columns * p)


def _paste_as(patches: Tensor, p: int, grid: tuple[int, int], order: Sequence[int]) -> Tensor:
    squares = patches.reshape(len(patches), *grid, p, p, -1)
    return squares.permute(*order).reshape(len(patches), -1, grid[0] * p, grid[1] * p)


OTHER_PASTES = {
    "patches stand in the wrong places: row and column of the grid are exchanged": (0, 5, 2, 3, 1, 4),
    "height comes from columns and width from rows: on a square image that is a transposed picture": (0, 5, 2, 4, 1, 3),
    "pixels before places: the height is row · p + a pixel's row, so `row` is the outer of the two": (0, 5, 3, 1, 4, 2),
    "row, column, p, q as they are: this lays the patches in strips": (0, 5, 1, 2, 3, 4),
}
for _message, _order in OTHER_PASTES.items():
    paste.mistake(_message)(partial(_paste_as, order=_order))


@paste.mistake("the channels are taken as outermost: here, as in exercise 1, those of one pixel stand side by side")
def _(patches: Tensor, p: int, grid: tuple[int, int]) -> Tensor:
    rows, columns = grid
    squares = patches.reshape(len(patches), rows, columns, -1, p, p)
    return squares.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), -1, rows * p, columns * p)


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
    "the tokens come after squaring: they are positions like any, and each pairs with all": (
        lambda height, width, p, tokens, heads, layers: layers * heads * (tokens + ((height // p) * (width // p)) ** 2)
    ),
    "the image is no square: it has height / p rows and width / p columns": (
        lambda height, width, p, tokens, heads, layers: layers * heads * (tokens + (height // p) ** 2) ** 2
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
    "one order, the same in training and test, hurts a ViT? Its positions are learned: they are names of places": (
        lambda reader, order: reader == "ViT" or (reader == "linear classifier" and order != ORDERS[1])
    ),
    "an order for each image hurts a ViT without positions? It sees a set of patches in any case": (
        lambda reader, order: order == ORDERS[2] or (reader != "ViT without positions" and order == ORDERS[0])
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


def _apart(table: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """The rows of places and those of tokens."""
    return table[: len(table) - tokens], table[len(table) - tokens :]


def _interpolated(places: Tensor, old: tuple[int, int], new: tuple[int, int], **how: object) -> Tensor:
    picture = F.interpolate(places.T.reshape(1, -1, *old), size=new, **how)
    return picture[0].flatten(1).T


@interpolate_positions.mistake("the tokens' rows are gone: they stand nowhere in the image and stay as they are")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return _interpolated(_apart(table, tokens)[0], old, new, mode="bicubic")


@interpolate_positions.mistake("the tokens stand behind the patches in this table: put them back to where they were")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    places, behind = _apart(table, tokens)
    return torch.cat([behind, _interpolated(places, old, new, mode="bicubic")])


@interpolate_positions.mistake("these are the first rows for the tokens: in this table the grid comes first")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    return torch.cat([table[:tokens], _interpolated(table[tokens:], old, new, mode="bicubic")])


INTERPOLATIONS = {
    "bilinear: the surface asked for is bicubic, which bends smoothly at the old places": {"mode": "bilinear"},
    "each new place takes its nearest old one: many patches then stand in the same place": {"mode": "nearest"},
    "the centres of the corner patches coincide here: `align_corners=False` lets the edges do": {
        "mode": "bicubic",
        "align_corners": True,
    },
}


def _in_another_way(
    table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int, *, how: Mapping[str, object]
) -> Tensor:
    places, behind = _apart(table, tokens)
    return torch.cat([_interpolated(places, old, new, **how), behind])


for _message, _how in INTERPOLATIONS.items():
    interpolate_positions.mistake(_message)(partial(_in_another_way, how=_how))


@interpolate_positions.mistake("`reshape` without turning mixes places and coordinates: d_model is the channel")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    places, behind = _apart(table, tokens)
    picture = F.interpolate(places.reshape(1, -1, *old), size=new, mode="bicubic")
    return torch.cat([picture[0].flatten(1).T, behind])


@interpolate_positions.mistake("rows and columns of the old grid are exchanged: `old` is (rows, columns)")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    places, behind = _apart(table, tokens)
    return torch.cat([_interpolated(places, old[::-1], new, mode="bicubic"), behind])


@interpolate_positions.mistake("along one line of patches: the end of one row is no neighbour of the next one's start")
def _(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    places, behind = _apart(table, tokens)
    stretched = F.interpolate(places.T[None], size=new[0] * new[1], mode="linear")
    return torch.cat([stretched[0].T, behind])


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


def _from_the_first(layers: list[Tensor], keep: float) -> Tensor:
    """The layers' matrices multiplied the other way round."""
    return _rolled(layers[::-1], keep)


OTHER_ROLLS: dict[str, Callable[[list[Tensor], float], Tensor]] = {
    "the residual sum is missing: a block also hands on what it had, the identity": (
        partial(_rolled, step=lambda mean, eye, keep: mean)
    ),
    "half and half: here a share `keep` is handed on, and 1 − `keep` is mixed": (
        partial(_rolled, step=lambda mean, eye, keep: (mean + eye) / 2)
    ),
    "`keep` and 1 − `keep` are exchanged: `keep` is the share of what a block had, the identity's": (
        partial(_rolled, step=lambda mean, eye, keep: keep * mean + (1 - keep) * eye)
    ),
    "the order of the product is turned round: the last layer reads the one below, so it stands at the left": (
        _from_the_first
    ),
    "`*` multiplies place by place: what reaches through two layers is a matrix product": (
        lambda layers, keep: _of_token(
            reduce(torch.mul, [_rolled([weights], keep, read=lambda step: step) for weights in layers])
        )
    ),
    "the heads' sum is no weight: take their mean": partial(_rolled, heads=lambda weights: weights.sum(dim=1)),
    "the strongest head alone: its rows do not sum to 1, and the mean is asked for": (
        partial(_rolled, heads=lambda weights: weights.amax(dim=1))
    ),
    "this is the last layer: rollout goes through all of them, down to the patches": (
        lambda layers, keep: _rolled(layers[-1:], keep)
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
    "this is the whole matrix: the head reads the class token's row alone": partial(_rolled, read=lambda all_: all_),
    "an average of the layers: paths go through one layer after the other, which is a product": lambda layers, keep: (
        torch.stack([_rolled([weights], keep) for weights in layers]).mean(dim=0)
    ),
}
for _message, _wrong_roll in OTHER_ROLLS.items():
    roll.mistake(_message)(_wrong_roll)


# ---- find the bug: what the head reads ---------------------------------------------------------------------------


def _read() -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, str]]:
    token, registers, head = randn(1, 4, seed=31), randn(2, 4, seed=36), randn(4, 3, seed=33)
    several, positions = randn(2, 6, 4, seed=30), randn(7, 4, seed=32)
    return [
        (several, token, registers, positions, head, "token"),
        (several, token, registers, positions, head, "mean"),
        (randn(1, 3, 4, seed=34), token, registers[:1], randn(4, 4, seed=35), head, "mean"),
    ]


def _attend(x: Tensor) -> Tensor:
    return x + (x @ x.mT).softmax(dim=-1) @ x


@exercise(
    cases=_read,
    hints=[
        "Write down which vector stands where: token, patches, registers. Which row of `positions` does each patch "
        "get, and which vectors does the mean go over?",
        "Row 0 of `positions` belongs to the token, which has it added as well. And the mean is that of the patches: "
        "it begins at 1 and ends before the registers.",
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


def _scaled(x: Tensor) -> Tensor:
    return x + (x @ x.mT / x.shape[-1] ** 0.5).softmax(dim=-1) @ x


def _classified(
    patches: Tensor,
    token: Tensor,
    registers: Tensor,
    positions: Tensor,
    head: Tensor,
    pool: str,
    *,
    placed: str = "all",
    span: tuple[int, int] = (1, 0),
    attend: Callable[[Tensor], Tensor] = _attend,
) -> Tensor:
    """With positions for "all", "patches" or "shifted", and a mean over the patches, begun and ended elsewhere."""
    front, behind = (part.expand(len(patches), -1, -1) for part in (token, registers))
    read = {
        "all": lambda: torch.cat([front, patches], dim=1) + positions,
        "patches": lambda: torch.cat([front, patches + positions[1:]], dim=1),
        "shifted": lambda: torch.cat([front, patches + positions[:-1]], dim=1),
    }[placed]()
    x, (first, further) = attend(torch.cat([read, behind], dim=1)), span
    last = min(1 + patches.shape[1] + further, x.shape[1])
    return (x[:, 0] if pool == "token" else x[:, first:last].mean(dim=1)) @ head


MANY = 9  # more than there are registers
OTHER_HEADS: dict[str, tuple[str, tuple[int, int]]] = {
    "positions are right now; the mean still goes over the registers, which show no part of the image": (
        ("all", (1, MANY))
    ),
    "positions are right now; the mean goes over all vectors: leave the class token and the registers out": (
        ("all", (0, MANY))
    ),
    "positions are right, the registers are gone from the mean; the class token is still in it": ("all", (0, 0)),
    "the mean is right now; but row 0 of the positions is the token's, and each patch has that of another": (
        ("shifted", (1, 0))
    ),
    "each patch has its row now, but the token has lost its own: row 0 belongs to it": ("patches", (1, 0)),
    "each patch has its row, the token has not; and the mean still goes over the registers": ("patches", (1, MANY)),
    "the mean leaves out the first patch as well: patches begin at 1": ("all", (2, 0)),
    "the mean leaves out the last patch as well: a slice ends before its second number": ("all", (1, -1)),
}
for _message, (_placed, _span) in OTHER_HEADS.items():
    classify.mistake(_message)(partial(_classified, placed=_placed, span=_span))
classify.mistake("both bugs are gone. The scale 1/√d is missing on purpose: leave attention as it was given")(
    partial(_classified, attend=_scaled)
)
