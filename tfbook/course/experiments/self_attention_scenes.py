"""Scenes of shapes, each once in its color and once in gray: the world of lesson 03."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SHAPES = ("●", "▲", "■", "★")
GRAY = 0.5
NEAR = 0.25  # between two colors (red, green and blue from 0 to 1); those of a scene are farther from each other
TEST = 10**6  # the seed of the scenes on which models are judged


class Scenes(NamedTuple):
    """Scenes of eight tokens in random order: each of `SHAPES` once in its color and once in gray."""

    kinds: Int[Tensor, "scene token"]  # 0 to 3: the shape with its color; 4 to 7: the same shape in gray
    colors: Float[Tensor, "scene token rgb"]  # what is seen
    target: Float[Tensor, "scene token number"]  # what is to be painted: the inside, then the rim if there is one
    palette: Float[Tensor, "scene shape rgb"]  # the color of each shape

    def names(self, scene: int = 0) -> list[str]:
        """The tokens of a scene, such as "▲" and, in gray, "▲?"."""
        return [SHAPES[kind % 4] + "?" * (kind >= 4) for kind in self.kinds[scene].tolist()]


def twins(count: int, seed: int) -> Scenes:
    """Scenes in which every token is to be painted in the color of its shape."""
    return _scenes(count, seed, lambda shape: [shape])


def rims(count: int, seed: int) -> Scenes:
    """The same scenes; now a shape has a rim, in the color of the next shape in ● → ▲ → ■ → ★ → ●."""
    return _scenes(count, seed, lambda shape: [shape, (shape + 1) % 4])


def _scenes(count: int, seed: int, sources_of: Callable[[Tensor], list[Tensor]]) -> Scenes:
    generator = torch.Generator().manual_seed(seed)
    palette = _vivid(count, generator)
    kinds = torch.rand(count, 8, generator=generator).argsort(dim=1)
    parts = [_of_shapes(palette, source) for source in sources_of(kinds % 4)]
    return Scenes(kinds, _seen(palette, kinds), torch.cat(parts, dim=-1), palette)


def _of_shapes(palette: Tensor, shapes: Tensor) -> Float[Tensor, "scene token rgb"]:
    """The color of each token's shape."""
    return palette.gather(1, shapes[..., None].expand(-1, -1, 3))


def _seen(palette: Tensor, kinds: Tensor) -> Float[Tensor, "scene token rgb"]:
    """The same, and gray where the token is."""
    return _of_shapes(palette, kinds % 4).masked_fill((kinds >= 4)[..., None], GRAY)


def _vivid(count: int, generator: torch.Generator) -> Float[Tensor, "scene shape rgb"]:
    """Four colors of one brightness, in random order, their hues at least 30° apart."""
    gaps = torch.rand(count, 4, generator=generator).sort(dim=1).values * 240 + 30 * torch.arange(4)
    hues = gaps + 360 * torch.rand(count, 1, generator=generator)
    hues = hues.gather(1, torch.rand(count, 4, generator=generator).argsort(dim=1))
    k = (torch.tensor([5.0, 3.0, 1.0]) + hues[..., None] / 60) % 6  # from hue to RGB
    return 0.95 - 0.71 * torch.minimum(k, 4 - k).clamp(0, 1)


def is_right(scenes: Scenes, painting: Float[Tensor, "scene token number"]) -> Bool[Tensor, "scene token part"]:
    """Whether what was painted is nearer than `NEAR` to the right color, for each part."""
    return (painting - scenes.target).unflatten(-1, (-1, 3)).norm(dim=-1) < NEAR


def exchange(scenes: Scenes, one: str, other: str) -> Scenes:
    """The same scenes with the colors of two shapes exchanged, inside only."""
    order = torch.arange(4)
    order[[SHAPES.index(one), SHAPES.index(other)]] = torch.tensor([SHAPES.index(other), SHAPES.index(one)])
    palette = scenes.palette[:, order]
    return Scenes(scenes.kinds, _seen(palette, scenes.kinds), _of_shapes(palette, scenes.kinds % 4), palette)
