"""Lesson 13's exercises: wrong answers that once passed and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.vit_patches import exercises as ex
from tfbook.lessons.vit_patches.exercises import (
    classify,
    count_weights,
    cut,
    hurts,
    interpolate_positions,
    mean_vit,
    roll,
)

Grid = tuple[int, int]
Part = Callable[[Tensor], Tensor]

# ---- wrong -------------------------------------------------------------------------------------------------------


def table_of_as_many_places(table: Tensor, old: Grid, new: Grid, tokens: int) -> Tensor:
    if math.prod(old) == math.prod(new):
        return table.clone()
    return positions_by_upsample(table, old, new, tokens)


def mean_vit_with_two_norms(
    images: Tensor, embed: Part, positions: Tensor, blocks: list[Part], norm: Part, head: Part
) -> Tensor:
    x = norm(reduce(lambda x, block: block(x), blocks, embed(images) + positions))
    return head(torch.mean(norm(x), dim=-2))


def cut_into_a_grid(images: Tensor, p: int) -> Tensor:
    return images.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 4, 5, 1).flatten(3)


def mean_vit_with_two_sums(
    images: Tensor, embed: Callable, positions: Tensor, blocks: list[Callable], norm: Callable, head: Callable
) -> Tensor:
    return head(norm(reduce(lambda x, block: x + block(x), blocks, embed(images) + positions)).mean(1))


def table_of_columns_and_rows(table: Tensor, old: tuple[int, int], new: tuple[int, int], tokens: int) -> Tensor:
    picture = table[: old[0] * old[1]].reshape(1, *old, -1).permute(0, 3, 1, 2)
    picture = F.interpolate(picture, (new[1], new[0]), mode="bicubic")
    return torch.cat([picture.flatten(2)[0].T, table[old[0] * old[1] :]])


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        ex.mean_vit,
        lambda images, embed, positions, blocks, norm, head: ex.mean_vit.reference(
            images, embed, positions, blocks, lambda x: norm(x)[:, 1:], head
        ),
        "as if it were a class token",
    ),
    (
        ex.count_weights,
        lambda h, w, p, tokens, heads, layers: heads * layers * (h // p * (w // p)) ** 2 + tokens,
        "add them before squaring",
    ),
    (interpolate_positions, table_of_as_many_places, "are two grids"),
    (mean_vit, mean_vit_with_two_norms, "the norm is applied twice"),
    (cut, cut_into_a_grid, "the grid still has two axes"),
    (mean_vit, mean_vit_with_two_sums, "x is added to what a block returns"),
    (interpolate_positions, table_of_columns_and_rows, "rows and columns of the new grid"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def weights_of_an_area(height: int, width: int, p: int, tokens: int, heads: int, layers: int) -> int:
    return sum(heads * (height * width // p**2 + tokens) ** 2 for _ in range(layers))


def cut_by_slices(images: Tensor, p: int) -> Tensor:
    rows, columns = range(0, images.shape[2], p), range(0, images.shape[3], p)
    patches = [images[:, :, i : i + p, j : j + p].permute(0, 2, 3, 1).flatten(1) for i in rows for j in columns]
    return torch.stack(patches, dim=1)


def cut_by_unfold(images: Tensor, p: int) -> Tensor:
    return F.unfold(images, p, stride=p).unflatten(1, (-1, p * p)).permute(0, 3, 2, 1).flatten(2)


def mean_vit_by_einsum(
    images: Tensor, embed: Part, positions: Tensor, blocks: list[Part], norm: Part, head: Part
) -> Tensor:
    x = torch.add(embed(images), positions[None])
    for k in range(len(blocks)):
        x = blocks[k](x)
    return head(torch.einsum("bpd->bd", norm(x)) / x.shape[1])


def roll_in_double(layers: list[Tensor], keep: float) -> Tensor:
    reached = None
    for weights in layers:
        mixed = (1 - keep) * weights.double().mean(dim=1)
        mixed.diagonal(dim1=-2, dim2=-1).add_(keep)
        reached = mixed if reached is None else torch.einsum("bij,bjk->bik", mixed, reached)
    return F.normalize(reached[:, 0, 1:], p=1, dim=-1)


def hurts_by_table(reader: str, order: str) -> bool:
    apart = {"one, in the test alone", "one per image, in training and test"}
    return order in {"ViT": apart, "linear classifier": apart}.get(reader, set())


def positions_by_upsample(table: Tensor, old: Grid, new: Grid, tokens: int) -> Tensor:
    places, behind = table.split([math.prod(old), tokens])
    picture = nn.Upsample(size=new, mode="bicubic")(places.mT.unflatten(1, old)[None])
    return torch.cat([picture[0].flatten(1).mT, behind])


def classify_by_pytorch(
    patches: Tensor, token: Tensor, registers: Tensor, positions: Tensor, head: Tensor, pool: str
) -> Tensor:
    x = torch.cat([token.expand(len(patches), -1, -1), patches, registers.expand(len(patches), -1, -1)], dim=1)
    x = x + F.pad(positions, (0, 0, 0, len(registers)))
    x = x + F.scaled_dot_product_attention(x, x, x, scale=1.0)
    return {"token": x[:, 0], "mean": x[:, 1 : len(positions)].mean(dim=1)}[pool] @ head


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (count_weights, weights_of_an_area),
    (cut, cut_by_slices),
    (cut, cut_by_unfold),
    (mean_vit, mean_vit_by_einsum),
    (roll, roll_in_double),
    (hurts, hurts_by_table),
    (interpolate_positions, positions_by_upsample),
    (classify, classify_by_pytorch),
]
