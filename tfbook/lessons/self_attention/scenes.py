"""Scenes of shapes, each of which should be painted in a color that it may have to look up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Run = TypeVar("Run")

SHAPES = ("●", "▲", "■", "★")
GRAY = 0.5
NEAR = 0.25  # distance of RGB values from 0 to 1; the colors of a scene of four shapes are farther apart
TEST = 10**6  # the seed of the test data


class Scenes(NamedTuple):
    """Scenes in random order: each of n shapes, at first the four of `SHAPES`, once in its color and once in gray."""

    kinds: Int[Tensor, "scene token"]  # below n the shape with its color; from n on the same shape in gray
    colors: Float[Tensor, "scene token rgb"]  # what is seen
    target: Float[Tensor, "scene token number"]  # to be painted: the inside, then the rim if there is one
    palette: Float[Tensor, "scene shape rgb"]  # the color of each shape

    @property
    def asked(self) -> Bool[Tensor, "scene token"]:
        """True at the tokens that do not show the color they should get: the gray ones of twins and rims."""
        return (self.colors != self.target[..., :3]).any(dim=-1)

    def names(self, scene: int = 0) -> list[str]:
        """The tokens of a scene of the four `SHAPES`, such as "▲" and, for the gray one, "▲?"."""
        return [SHAPES[kind % 4] + "?" * (kind >= 4) for kind in self.kinds[scene].tolist()]


def twins(count: int, seed: int) -> Scenes:
    """Scenes in which every token should be painted in the color of its shape."""
    return _scenes(count, seed, lambda shape: [shape])


def rims(count: int, seed: int) -> Scenes:
    """Scenes in which a shape also has a rim, in the color of the next shape in ● → ▲ → ■ → ★ → ●."""
    return _scenes(count, seed, lambda shape: [shape, (shape + 1) % 4])


def _scenes(count: int, seed: int, sources_of: Callable[[Tensor], list[Tensor]]) -> Scenes:
    generator = torch.Generator().manual_seed(seed)
    palette = _vivid(count, generator)
    kinds = torch.rand(count, 8, generator=generator).argsort(dim=1)
    parts = [_of_shapes(palette, source) for source in sources_of(kinds % 4)]
    return Scenes(kinds, _seen(palette, kinds), torch.cat(parts, dim=-1), palette)


def ring(count: int, seed: int) -> Scenes:
    """Scenes of the four colored shapes alone, each to be painted in the color of the next in ● → ▲ → ■ → ★ → ●."""
    generator = torch.Generator().manual_seed(seed)
    palette = _vivid(count, generator)
    kinds = torch.rand(count, 4, generator=generator).argsort(dim=1)
    return Scenes(kinds, _of_shapes(palette, kinds), _of_shapes(palette, (kinds + 1) % 4), palette)


def many_twins(shapes: int) -> Callable[[int, int], Scenes]:
    """The function `twins` for any number of shapes, whose colors may be alike."""

    def draw(count: int, seed: int) -> Scenes:
        generator = torch.Generator().manual_seed(seed)
        palette = _colors(360 * torch.rand(count, shapes, generator=generator))
        kinds = torch.rand(count, 2 * shapes, generator=generator).argsort(dim=1)
        return Scenes(kinds, _seen(palette, kinds), _of_shapes(palette, kinds % shapes), palette)

    return draw


def _of_shapes(palette: Tensor, shapes: Tensor) -> Float[Tensor, "scene token rgb"]:
    """The color of each token's shape."""
    return palette.gather(1, shapes[..., None].expand(-1, -1, 3))


def _seen(palette: Tensor, kinds: Tensor) -> Float[Tensor, "scene token rgb"]:
    """The visible color of each token: its shape's color, or gray."""
    shapes = palette.shape[1]
    return _of_shapes(palette, kinds % shapes).masked_fill((kinds >= shapes)[..., None], GRAY)


def _vivid(count: int, generator: torch.Generator) -> Float[Tensor, "scene shape rgb"]:
    """Four equally bright colors in random order, with hues at least 30° apart."""
    gaps = torch.rand(count, 4, generator=generator).sort(dim=1).values * 240 + 30 * torch.arange(4)
    hues = gaps + 360 * torch.rand(count, 1, generator=generator)
    return _colors(hues.gather(1, torch.rand(count, 4, generator=generator).argsort(dim=1)))


def _colors(hues: Float[Tensor, "scene shape"]) -> Float[Tensor, "scene shape rgb"]:
    """Equally bright colors of these hues, in degrees."""
    k = (torch.tensor([5.0, 3.0, 1.0]) + hues[..., None] / 60) % 6
    return 0.95 - 0.71 * torch.minimum(k, 4 - k).clamp(0, 1)


def is_right(scenes: Scenes, painting: Float[Tensor, "scene token number"]) -> Bool[Tensor, "scene token part"]:
    """Whether each painted part is within `NEAR` of the right color."""
    return (painting - scenes.target).unflatten(-1, (-1, 3)).norm(dim=-1) < NEAR


def exchange(scenes: Scenes, one: str, other: str) -> Scenes:
    """The same scenes with the colors of two shapes exchanged, inside only."""
    order = torch.arange(4)
    order[[SHAPES.index(one), SHAPES.index(other)]] = torch.tensor([SHAPES.index(other), SHAPES.index(one)])
    palette = scenes.palette[:, order]
    return Scenes(scenes.kinds, _seen(palette, scenes.kinds), _of_shapes(palette, scenes.kinds % 4), palette)


@torch.no_grad()
def painted_right(model: Callable[[Tensor, Tensor], Tensor], draw: Callable[[int, int], Scenes]) -> float:
    """The share of parts painted in the right color, over the tokens `asked` in 500 new scenes."""
    scenes = draw(500, TEST)
    return float(is_right(scenes, model(scenes.kinds, scenes.colors))[scenes.asked].float().mean())


def judge(models: Mapping[str, Sequence[nn.Module]], draw: Callable[[int, int], Scenes]) -> dict[str, list[float]]:
    """The value of `painted_right` for each run of each model."""
    return {name: [painted_right(model, draw) for model in runs] for name, runs in models.items()}


def middle(runs: Sequence[Run], shares: Sequence[float]) -> Run:
    """The run with the median share."""
    return runs[sorted(range(len(runs)), key=shares.__getitem__)[len(runs) // 2]]
