"""Exercises of lesson 13: how to cut, what pixels cost, a forward pass, orders, other sizes, rollout, the head."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.vit_patches.first_exercises import (
    count_weights as count_weights,
    cut as cut,
    hurts as hurts,
    mean_vit as mean_vit,
)

# ---- another resolution ------------------------------------------------------------------------------------------


def _tables() -> list[tuple[Tensor, tuple[int, int], tuple[int, int], int]]:
    return [
        (randn(1 + 6, 4, seed=7), (2, 3), (4, 5), 1),
        (randn(2 + 9, 3, seed=8), (3, 3), (2, 6), 2),
        (randn(4, 5, seed=9), (2, 2), (3, 3), 0),
        (randn(1 + 12, 2, seed=10), (2, 6), (3, 4), 1),  # as many places as before, in another shape
    ]


@exercise(
    cases=_tables,
    hints=[
        "The last rows belong to tokens that stand nowhere. The others are a picture: as high and wide as the grid, "
        "with d_model channels.",
        '`F.interpolate(picture, size=new, mode="bicubic", align_corners=False)` takes (batch, channel, height, width).'
        " Row i · columns + j of the table is the pixel at (i, j).",
    ],
    differentiable=False,
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
        "as many places as before are not the same places: (2, 6) and (3, 4) are two grids": (
            lambda table, old, new, tokens: (
                table if math.prod(old) == math.prod(new) else _interpolated(table, old, new, tokens)
            )
        ),
        "rows and columns of the old grid are exchanged: `old` is (rows, columns)": (
            lambda table, old, new, tokens: _interpolated(table, old[::-1], new, tokens)
        ),
        "along one line of patches: the end of one row is no neighbor of the next one's start": (
            lambda table, old, new, tokens: _interpolated(
                table, (1, math.prod(old)), (1, math.prod(new)), tokens, mode="bilinear"
            )
        ),
        "rows and columns of the new grid are exchanged: `new` is (rows, columns)": (
            lambda table, old, new, tokens: _interpolated(table, old, new[::-1], tokens)
        ),
        "without tokens, `table[-tokens:]` is the whole table: count the places from the front": (
            lambda table, old, new, tokens: torch.cat(
                [interpolate_positions.reference(table, old, new, tokens)[: math.prod(new)], table[-tokens:]]
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
    differentiable=False,
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
        "this is the last token's row: the class token is the first": (
            partial(_rolled, read=lambda reached: reached[:, -1, 1:] / reached[:, -1, 1:].sum(dim=1, keepdim=True))
        ),
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
        (8 * randn(3, 5, 4, seed=39), token, registers, randn(6, 4, seed=40), head, "token"),  # exp overflows
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
        "both bugs are gone, but the registers have a position now: they belong to no place, so they get none": (
            lambda patches, token, registers, positions, *rest: classify.reference(
                patches, token, registers + positions[:1], positions, *rest
            )
        ),
    }
)
