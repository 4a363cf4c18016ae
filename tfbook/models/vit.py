"""ViT: an image as a sequence of patches, read by the shared blocks; DeiT, which imitates a teacher; attention rollout.

Shapes: batch, channel, height, width of images; patch (row by row) and pixel, the channel · p · p numbers of one;
time, the patches with the tokens that stand before them; d_model, label.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.positions import POSITIONS, MakePosition, Position
from tfbook.models.blocks import Config, Stack
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm
from tfbook.parts import Part

# ---- patches -----------------------------------------------------------------------------------------------------


def grid_of(height: int, width: int, patch: int) -> tuple[int, int]:
    """Rows and columns of patches. Raises ValueError when `patch` does not divide both sides."""
    if patch < 1 or min(height, width) < 1 or height % patch or width % patch:
        raise ValueError(f"patch is {patch} and images are {height} × {width}; expected patch to divide both sides")
    return height // patch, width // patch


def patchify(images: Float[Tensor, "batch channel height width"], patch: int) -> Float[Tensor, "batch patch pixel"]:
    """Cuts images into squares of `patch` × `patch`, row by row; each as one vector, channel by channel.

    Raises ValueError when `patch` does not divide both sides.
    """
    grid_of(images.shape[2], images.shape[3], patch)
    squares = "batch channel (row p) (column q) -> batch (row column) (channel p q)"
    return rearrange(images, squares, p=patch, q=patch)


def unpatchify(
    patches: Float[Tensor, "batch patch pixel"], patch: int, grid: tuple[int, int]
) -> Float[Tensor, "batch channel height width"]:
    """Puts the squares of `patchify` together again.

    Raises ValueError when they are no squares of side `patch` or do not fill the rows and columns of `grid`.
    """
    count, pixels = patches.shape[1:]
    if count != grid[0] * grid[1] or pixels % patch**2:
        expected = f"{grid[0]} · {grid[1]} patches of a multiple of {patch}² numbers"
        raise ValueError(f"patches has shape {tuple(patches.shape)}; expected {expected}")
    squares = "batch (row column) (channel p q) -> batch channel (row p) (column q)"
    return rearrange(patches, squares, row=grid[0], p=patch, q=patch)


class PatchEmbedding(nn.Conv2d):
    """x_p E + b for each patch (Dosovitskiy et al., 2021, eq. 1): a convolution whose windows touch and do not overlap.

    It has the weights of one, (d_model, channel, p, p), which laid flat are those of a linear layer. As that it is
    computed, since unfolding and one product take less time on a CPU.
    """

    def __init__(self, channels: int, patch: int, d_model: int):
        super().__init__(channels, d_model, kernel_size=patch, stride=patch)
        self.patch = patch

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch patch d_model"]:
        """One product for all patches. Raises ValueError when the patches do not fill the images."""
        return F.linear(patchify(images, self.patch), self.weight.flatten(1), self.bias)

    def convolved(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch patch d_model"]:
        """The same by the convolution, as the paper's code and torchvision have it."""
        return super().forward(images).flatten(2).mT


# ---- positions on a grid -----------------------------------------------------------------------------------------


def interpolated(
    table: Float[Tensor, "1 time d_model"], old: tuple[int, int], new: tuple[int, int], *, corners: bool = False
) -> Float[Tensor, "1 other d_model"]:
    """Vectors of an `old` grid of patches for a `new` one, each coordinate a bicubic surface over the image.

    Rows of the table before the grid's belong to tokens and stay. The outer edges of both grids fall together, as in
    DINO's code (Caron et al., 2021); with `corners` the centres of the corner patches do, as in torchvision's.
    """
    tokens, places = table.split([table.shape[1] - old[0] * old[1], old[0] * old[1]], dim=1)
    surface = rearrange(places, "1 (row column) d_model -> 1 d_model row column", row=old[0])
    surface = F.interpolate(surface, size=new, mode="bicubic", align_corners=corners)
    return torch.cat([tokens, rearrange(surface, "1 d_model row column -> 1 (row column) d_model")], dim=1)


class LearnedGrid(Position):
    """Adds a trained vector for each token in front and each patch of a grid (Dosovitskiy et al., 2021, section 3.1).

    No vector is told where in the grid it stands: rows and columns have to be learned.
    """

    def __init__(self, grid: tuple[int, int], d_model: int, *, tokens: int = 0):
        super().__init__()
        self.grid = grid
        self.embedding = nn.Parameter(0.02 * torch.randn(1, tokens + grid[0] * grid[1], d_model))

    def add(self, x: Float[Tensor, "batch time d_model"], start: int = 0) -> Float[Tensor, "batch time d_model"]:
        """x + embedding. Raises ValueError unless x holds the tokens and the whole grid."""
        if start or x.shape[1] != self.embedding.shape[1]:
            places = f"{self.embedding.shape[1]} positions from 0 on, {self.grid[0]} × {self.grid[1]} of them patches"
            raise ValueError(f"x holds {x.shape[1]} positions from {start} on; expected {places}")
        return x + self.embedding.to(x.dtype)

    def resized(self, grid: tuple[int, int], *, corners: bool = False) -> LearnedGrid:
        """The encoding of another grid, by `interpolated`."""
        other = copy.deepcopy(self)
        other.grid = grid
        other.embedding = nn.Parameter(interpolated(self.embedding.detach(), self.grid, grid, corners=corners))
        return other


# ---- ViT ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class VitConfig(Config):
    """Sizes of the images, of their patches and of the blocks that read them.

    Learned positions are those of the grid of patches; any other encoding takes the patches row by row.
    """

    height: int = 32
    width: int = 32
    channels: int = 3
    patch: int = 4
    tokens: int = 1  # learned vectors before the patches, the first of which is read at the end; 0: the patches' mean
    position: MakePosition = POSITIONS["learned"]
    feed_forward: Callable[..., Part] = lambda d_model, d_ff, dropout: FeedForward(
        d_model, d_ff, activation=F.gelu, dropout=dropout
    )
    norm: Callable[[int], Part] = lambda d_model: LayerNorm(d_model, eps=1e-6)

    def __post_init__(self) -> None:
        super().__post_init__()
        grid_of(self.height, self.width, self.patch)
        if self.channels < 1 or self.tokens < 0:
            found = f"channels is {self.channels} and tokens is {self.tokens}"
            raise ValueError(f"{found}; expected channels ≥ 1 and tokens ≥ 0")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return grid_of(self.height, self.width, self.patch)

    @property
    def time(self) -> int:
        """Positions that the blocks read: tokens and patches."""
        return self.tokens + self.grid[0] * self.grid[1]

    def encoding(self) -> Position:
        """A new encoding of positions for one stack."""
        if self.position is POSITIONS["learned"]:
            return LearnedGrid(self.grid, self.d_model, tokens=self.tokens)
        return self.position(self.d_model, self.heads, self.time)


VIT_BASE = VitConfig(d_model=768, heads=12, d_ff=3072, layers=12, height=224, width=224, patch=16)  # 86 million


VIT_TINY = replace(VIT_BASE, d_model=192, heads=3, d_ff=768)  # 6 million, as in DeiT


VIT_SMALL = replace(VIT_BASE, d_model=384, heads=6, d_ff=1536)  # 22 million, as in DeiT


VIT_LARGE = replace(VIT_BASE, d_model=1024, heads=16, d_ff=4096, layers=24)  # 304 million


VIT_HUGE = replace(VIT_BASE, d_model=1280, heads=16, d_ff=5120, layers=32, patch=14)  # 632 million


class Vit(nn.Module):
    """Patches and a token before them through blocks that see all; the token's vector tells the label.

    (Dosovitskiy et al., 2021, section 3.1.) With `config.tokens` = 0 the mean over the patches takes its place.
    """

    def __init__(self, labels: int, config: VitConfig):
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(config.channels, config.patch, config.d_model)
        self.tokens = nn.ParameterList(0.02 * torch.randn(1, 1, config.d_model) for _ in range(config.tokens))
        self.stack = Stack(config)
        self.head = nn.Linear(config.d_model, labels)

    def representations(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch time d_model"]:
        """A vector for each token, then one for each patch, after the last norm.

        Raises ValueError for images of another size than the model's.
        """
        expected = (self.config.channels, self.config.height, self.config.width)
        if tuple(images.shape[1:]) != expected:
            found = f"images has shape {tuple(images.shape)}; expected (batch, {', '.join(map(str, expected))})"
            raise ValueError(f"{found}; `at(height, width)` makes a model for another size")
        tokens = [token.expand(len(images), -1, -1) for token in self.tokens]
        return self.stack(torch.cat([*tokens, self.patches(images)], dim=1))

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """One row of logits an image."""
        x = self.representations(images)
        return self.head(x[:, 0] if self.config.tokens else x.mean(dim=1))

    def at(self, height: int, width: int, *, corners: bool = False) -> Vit:
        """A copy for images of another size, learned positions interpolated (section 3.2; `corners` as there).

        Raises ValueError when patches do not fill the size.
        """
        model = copy.deepcopy(self)
        model.config = replace(self.config, height=height, width=width)
        if isinstance(self.stack.position, LearnedGrid):
            model.stack.position = self.stack.position.resized(model.config.grid, corners=corners)
        return model


# ---- DeiT --------------------------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """What the two tokens of a `Deit` say."""

    label: Float[Tensor, "batch label"]
    teacher: Float[Tensor, "batch label"]  # what the teacher would say


class Deit(Vit):
    """ViT with a second token and a head of its own, which imitates a teacher (Touvron et al., 2021, section 4)."""

    def __init__(self, labels: int, config: VitConfig):
        super().__init__(labels, replace(config, tokens=2))
        self.imitation = nn.Linear(config.d_model, labels)

    def heads(self, images: Float[Tensor, "batch channel height width"]) -> Heads:
        """Both answers, for training."""
        x = self.representations(images)
        return Heads(self.head(x[:, 0]), self.imitation(x[:, 1]))

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """The mean of both heads' logits, as in the paper's code; its text adds their probabilities."""
        label, teacher = self.heads(images)
        return (label + teacher) / 2


# ---- looking inside, and what it costs ---------------------------------------------------------------------------


def rollout(weights: Iterable[Float[Tensor, "batch head query key"]]) -> Float[Tensor, "batch query key"]:
    """Ã_L ⋯ Ã_1 with Ã = (Ā + I) / 2, where Ā is the mean over heads (Abnar & Zuidema, 2020, section 3).

    How much of each position below is in each position above, were values passed on as they are; I is the residual sum.
    Takes the weights of `attention.record`, the first layer's first. Raises ValueError when there are none.
    """
    reached = None
    for layer in weights:
        mean = layer.mean(dim=1)
        step = (mean + torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)) / 2
        reached = step if reached is None else step @ reached
    if reached is None:
        raise ValueError("weights is empty; expected those of one layer or more")
    return reached


class Cost(NamedTuple):
    """What one image costs on its way through the blocks."""

    time: int  # positions
    weights: int  # attention weights: layers · heads · time²
    attention: int  # floating-point operations between queries, keys and values: 4 · layers · time² · d_model
    matrices: int  # those of the blocks' matrices: 2 · layers · time · (4 d_model² + 2 d_model · d_ff)


def cost(config: VitConfig) -> Cost:
    """By formula; a product and a sum are two operations. With a patch of 1 every pixel is a position."""
    n, d = config.time, config.d_model
    return Cost(
        time=n,
        weights=config.layers * config.heads * n * n,
        attention=4 * config.layers * n * n * d,
        matrices=2 * config.layers * n * (4 * d * d + 2 * d * config.d_ff),
    )
