"""ViT: an image as a sequence of patches for the shared blocks; DeiT, which distills a teacher; attention rollout.

Shapes: batch, channel, height, width of images; patch (row by row) and pixel, the channel · p · p numbers of one;
time, the class tokens and patches; d_model, label.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.positions import POSITIONS, MakePosition, Position, Start
from tfbook.models.blocks import Config, MakePart, Stack, on_paper
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm

# ---- patches -----------------------------------------------------------------------------------------------------


def grid_of(height: int, width: int, patch: int) -> tuple[int, int]:
    """Rows and columns of patches. Raises ValueError when `patch` does not divide both sides."""
    if patch < 1 or min(height, width) < 1 or height % patch or width % patch:
        raise ValueError(f"patch is {patch} and images are {height} × {width}; expected patch to divide both sides")
    return height // patch, width // patch


def check_images(images: Tensor, size: tuple[int, int, int], hint: str = "") -> None:
    """Raises ValueError unless each image has these channels, rows and columns."""
    if tuple(images.shape[1:]) != size:
        expected = f"(batch, {', '.join(map(str, size))})"
        raise ValueError(f"images has shape {tuple(images.shape)}; expected {expected}{hint}")


def patchify(images: Float[Tensor, "batch channel height width"], patch: int) -> Float[Tensor, "batch patch pixel"]:
    """Cuts images into patches of `patch` × `patch` pixels, row by row, each one vector, channel by channel.

    Raises ValueError when `patch` does not divide both sides.
    """
    grid_of(images.shape[2], images.shape[3], patch)
    squares = "batch channel (row p) (column q) -> batch (row column) (channel p q)"
    return rearrange(images, squares, p=patch, q=patch)


def unpatchify(
    patches: Float[Tensor, "batch patch pixel"], patch: int, grid: tuple[int, int]
) -> Float[Tensor, "batch channel height width"]:
    """The inverse of `patchify`.

    Raises ValueError when the patches do not have side `patch` or do not fill the rows and columns of `grid`.
    """
    count, pixels = patches.shape[1:]
    if count != grid[0] * grid[1] or pixels % patch**2:
        expected = f"{grid[0]} · {grid[1]} patches of a multiple of {patch}² numbers"
        raise ValueError(f"patches has shape {tuple(patches.shape)}; expected {expected}")
    squares = "batch (row column) (channel p q) -> batch channel (row p) (column q)"
    return rearrange(patches, squares, row=grid[0], p=patch, q=patch)


class PatchEmbedding(nn.Conv2d):
    """x_p E + b for each patch (Dosovitskiy et al., 2021, eq. 1): a convolution whose stride is its kernel size.

    Its weights, (d_model, channel, p, p), are those of a linear layer once flattened, and it is computed as one:
    unfolding and one product take less time on a CPU.
    """

    def __init__(self, channels: int, patch: int, d_model: int):
        super().__init__(channels, d_model, kernel_size=patch, stride=patch)
        self.patch = patch

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch patch d_model"]:
        """One product for all patches. Raises ValueError when the patch does not divide the image."""
        return F.linear(patchify(images, self.patch), self.weight.flatten(1), self.bias)


# ---- positions on a grid -----------------------------------------------------------------------------------------


def interpolated(
    table: Float[Tensor, "1 time d_model"], old: tuple[int, int], new: tuple[int, int], *, corners: bool = False
) -> Float[Tensor, "1 other d_model"]:
    """Embeddings of an `old` grid of patches resized to a `new` one by bicubic interpolation.

    Rows before the grid's belong to class tokens and are kept. The outer edges of both grids are aligned, as in DINO's
    code (Caron et al., 2021); with `corners`, the centers of the corner patches, as in torchvision's.
    """
    tokens, patches = table.split([table.shape[1] - old[0] * old[1], old[0] * old[1]], dim=1)
    surface = rearrange(patches, "1 (row column) d_model -> 1 d_model row column", row=old[0])
    surface = F.interpolate(surface, size=new, mode="bicubic", align_corners=corners)
    return torch.cat([tokens, rearrange(surface, "1 d_model row column -> 1 (row column) d_model")], dim=1)


class LearnedGrid(Position):
    """Adds a trained vector for each class token and each patch of a grid (Dosovitskiy et al., 2021, section 3.1).

    The vectors are independent of one another, so the model has to learn rows and columns.
    """

    def __init__(self, grid: tuple[int, int], d_model: int, *, tokens: int = 0):
        super().__init__()
        self.grid = grid
        self.embedding = nn.Parameter(0.02 * torch.randn(1, tokens + grid[0] * grid[1], d_model))

    def add(self, x: Float[Tensor, "batch time d_model"], start: Start = 0) -> Float[Tensor, "batch time d_model"]:
        """x + embedding. Raises ValueError unless x holds the tokens and the whole grid."""
        if start or x.shape[1] != self.embedding.shape[1]:
            expected = f"{self.embedding.shape[1]} positions from 0 on, {self.grid[0]} × {self.grid[1]} of them patches"
            raise ValueError(f"x holds {x.shape[1]} positions from {start} on; expected {expected}")
        return x + self.embedding.to(x.dtype)

    def resized(self, grid: tuple[int, int], *, corners: bool = False) -> LearnedGrid:
        """The encoding for another grid, by `interpolated`."""
        other = copy.deepcopy(self)
        other.grid = grid
        other.embedding = nn.Parameter(interpolated(self.embedding.detach(), self.grid, grid, corners=corners))
        return other


# ---- ViT ---------------------------------------------------------------------------------------------------------


def _columns(part: Any) -> Iterator[int]:
    """The columns of each grid that a part is made for, as its options say."""
    if not isinstance(part, partial):
        yield from [part.columns] if isinstance(getattr(part, "columns", None), int) else []
        return
    for name, option in part.keywords.items():
        yield from [option] if name == "columns" else _columns(option)


_FEED_FORWARD, _NORM = partial(FeedForward, activation=F.gelu), partial(LayerNorm, eps=1e-6)


@dataclass(frozen=True, kw_only=True)
class VitConfig(Config):
    """Sizes of the images, of their patches and of the blocks.

    Learned positions are a `LearnedGrid`; any other encoding numbers the patches row by row. Raises ValueError for
    impossible sizes, and for a mixer that is made for a grid with other columns.
    """

    height: int = 32
    width: int = 32
    channels: int = 3
    patch: int = 4
    tokens: int = 1  # class tokens, the first of which is classified; 0: the mean of the patches
    position: MakePosition | str = "learned"
    feed_forward: MakePart | str = _FEED_FORWARD
    norm: MakePart | str = _NORM

    def __post_init__(self) -> None:
        super().__post_init__()
        grid_of(self.height, self.width, self.patch)
        if self.channels < 1 or self.tokens < 0:
            found = f"channels is {self.channels} and tokens is {self.tokens}"
            raise ValueError(f"{found}; expected channels ≥ 1 and tokens ≥ 0")
        for columns in _columns(self.mixer):
            if columns != self.grid[1]:
                raise ValueError(f"mixer is made for grids of {columns} columns; the patches have {self.grid[1]}")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return grid_of(self.height, self.width, self.patch)

    @property
    def time(self) -> int:
        """The number of positions: tokens and patches."""
        return self.tokens + self.grid[0] * self.grid[1]

    def encoding(self) -> Position:
        """A new positional encoding for one stack."""
        if self.position is POSITIONS["learned"]:
            return LearnedGrid(self.grid, self.d_model, tokens=self.tokens)
        return self.make("position", self.d_model, self.heads, self.time)


VIT_BASE = VitConfig(d_model=768, heads=12, d_ff=3072, layers=12, height=224, width=224, patch=16)  # 86 million
VIT_TINY = replace(VIT_BASE, d_model=192, heads=3, d_ff=768)  # 6 million, as in DeiT
VIT_SMALL = replace(VIT_BASE, d_model=384, heads=6, d_ff=1536)  # 22 million, as in DeiT
VIT_LARGE = replace(VIT_BASE, d_model=1024, heads=16, d_ff=4096, layers=24)  # 304 million
VIT_HUGE = replace(VIT_BASE, d_model=1280, heads=16, d_ff=5120, layers=32, patch=14)  # 632 million


class Vit(nn.Module):
    """A class token and patches through blocks without a mask; the token's vector is classified.

    (Dosovitskiy et al., 2021, section 3.1.) With `config.tokens` = 0 the mean over the patches is classified instead.
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
        """A vector for each class token, then one for each patch, after the last norm.

        Raises ValueError for images whose size is not the model's.
        """
        size = self.config.channels, self.config.height, self.config.width
        check_images(images, size, "; `at(height, width)` makes a model for another size")
        tokens = [token.expand(len(images), -1, -1) for token in self.tokens]
        return self.stack(torch.cat([*tokens, self.patches(images)], dim=1))

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """One row of logits per image."""
        x = self.representations(images)
        return self.head(x[:, 0] if self.config.tokens else x.mean(dim=1))

    def at(self, height: int, width: int, *, corners: bool = False) -> Vit:
        """A copy for images of another size, with learned positions `interpolated` (section 3.2).

        Raises ValueError when the patch does not divide the size.
        """
        model = copy.deepcopy(self)
        model.config = replace(self.config, height=height, width=width)
        if isinstance(self.stack.position, LearnedGrid):
            model.stack.position = self.stack.position.resized(model.config.grid, corners=corners)
        return model


# ---- DeiT --------------------------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """Logits from the two tokens of a `Deit`."""

    label: Float[Tensor, "batch label"]
    teacher: Float[Tensor, "batch label"]  # trained on the teacher's answer


class Deit(Vit):
    """ViT with a distillation token and its own head, which imitate a teacher (Touvron et al., 2021, section 4)."""

    def __init__(self, labels: int, config: VitConfig):
        super().__init__(labels, replace(config, tokens=2))
        self.imitation = nn.Linear(config.d_model, labels)

    def heads(self, images: Float[Tensor, "batch channel height width"]) -> Heads:
        """The logits of both heads, for training."""
        x = self.representations(images)
        return Heads(self.head(x[:, 0]), self.imitation(x[:, 1]))

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """The mean of both heads' logits, as in the paper's code; the paper's text adds their probabilities."""
        label, teacher = self.heads(images)
        return (label + teacher) / 2


# ---- rollout and cost ----------------------------------------------------------------------------------------------


def rollout(weights: Iterable[Float[Tensor, "batch head query key"]]) -> Float[Tensor, "batch query key"]:
    """Ã_L ⋯ Ã_1 with Ã = (Ā + I) / 2, where Ā is the mean over heads (Abnar & Zuidema, 2020, section 3).

    An estimate of how much each input contributes to each output if values were passed on unchanged; I is the residual
    stream. Takes the weights of `attention.record`, first layer first. Raises ValueError when there are none.
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
    """The cost of one image in the blocks."""

    time: int  # positions
    weights: int  # attention weights: layers · heads · time²
    attention: int  # operations that grow with time²: scores and weighted values, 4 · layers · time² · d_model
    matrices: int  # those that grow with time: 2 · layers · time · (4 d_model² + 2 d_model · d_ff) for plain parts


def cost(config: VitConfig) -> Cost:
    """The floating-point operations that the blocks report; with a patch of 1 every pixel is a position."""
    n, stack = config.time, on_paper(lambda: Stack(config))
    one, two = stack.flops(1), stack.flops(2)
    pair = (two - 2 * one) // 2  # one position costs linear + pair, two cost 2 linear + 4 pair
    return Cost(
        time=n,
        weights=config.layers * config.heads * n * n,
        attention=pair * n * n,
        matrices=(one - pair) * n,
    )
