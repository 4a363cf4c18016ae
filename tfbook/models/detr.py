"""DETR: objects are found by a set of queries, each of which answers with one object or with none.

(Carion et al., 2020.) Shapes: batch, channel, height and width of images; time (places of the feature map, row by row),
query, label (the last one means "no object"), d_model. A box is its center, width and height, as shares of the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.positions import POSITIONS, MakePosition, Position, Start, sinusoid
from tfbook.checks import check_positive
from tfbook.models.blocks import Config, Stack
from tfbook.models.cnn import convolution
from tfbook.models.vit import check_images, grid_of


class Detections(NamedTuple):
    """The answer of each query."""

    logits: Float[Tensor, "batch query label"]  # the last label is "no object"
    boxes: Float[Tensor, "batch query 4"]  # x and y of the center, width, height


# ---- positions ---------------------------------------------------------------------------------------------------


class SinusoidalGrid(Position):
    """Adds sine and cosine waves of the row to half of the coordinates, of the column to the others (section A.4).

    Raises ValueError unless 4 divides `d_model`: a sine and a cosine for each frequency of either half.
    """

    def __init__(self, grid: tuple[int, int], d_model: int):
        super().__init__()
        if d_model % 4:
            raise ValueError(f"d_model is {d_model}; expected a multiple of 4")
        self.grid, self.d_model = grid, d_model

    def add(self, x: Float[Tensor, "batch time d_model"], start: Start = 0) -> Float[Tensor, "batch time d_model"]:
        """x + [PE(row); PE(column)]. Raises ValueError unless x holds the whole grid."""
        rows, columns = self.grid
        if start or x.shape[1] != rows * columns:
            found = f"x holds {x.shape[1]} positions from {start} on"
            raise ValueError(f"{found}; expected all {rows} × {columns} of the grid")
        lines = [
            sinusoid(torch.arange(length, dtype=torch.float32, device=x.device), self.d_model // 2)
            for length in self.grid
        ]
        row, column = lines[0][:, None].expand(-1, columns, -1), lines[1].expand(rows, -1, -1)
        return x + torch.cat([row, column], dim=-1).flatten(0, 1).to(x.dtype)


# ---- the model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DetrConfig(Config):
    """Sizes of the images and of the blocks; `layers` is the number of each of encoder and decoder.

    "sinusoidal" positions are a `SinusoidalGrid`. Raises ValueError when the backbone's stride does not divide the
    images' sides.
    """

    height: int = 64
    width: int = 64
    channels: int = 3
    backbone: tuple[int, ...] = (32, 64, 96)  # channels of convolutions, each with stride 2
    queries: int = 8  # more than objects in an image
    position: MakePosition | str = "sinusoidal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(channels=self.channels, queries=self.queries)
        grid_of(self.height, self.width, self.stride)

    @property
    def stride(self) -> int:
        """Pixels of the image per place of the feature map, along a side."""
        return 2 ** len(self.backbone)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the feature map."""
        return grid_of(self.height, self.width, self.stride)

    def encoding(self) -> Position:
        """A new positional encoding for the encoder."""
        if self.position is POSITIONS["sinusoidal"]:
            return SinusoidalGrid(self.grid, self.d_model)
        return self.make("position", self.d_model, self.heads, self.grid[0] * self.grid[1])

    def decoder(self) -> Config:
        """The decoder's config: queries are a set, and have no positions."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in Config.__dataclass_fields__}
        return Config(**shared | {"position": "none"})


class BoxHead(nn.Module):
    """A network of three layers whose sigmoid gives center, width and height (section 3.2)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d_model, width) for width in (d_model, d_model, 4))

    def forward(self, x: Float[Tensor, "batch query d_model"]) -> Float[Tensor, "batch query 4"]:
        """Each number is a share of the image, from 0 to 1."""
        first, second, last = self.layers
        return last(F.relu(second(F.relu(first(x))))).sigmoid()


class Detr(nn.Module):
    """A CNN's feature map through an encoder; a decoder's trained queries read it and become objects (figure 2).

    As in a translator, but all answers are given at once and no order matters: the queries see one another, unmasked.
    """

    def __init__(self, labels: int, config: DetrConfig):
        super().__init__()
        self.config, widths = config, (config.channels, *config.backbone)
        self.backbone = nn.Sequential(*(convolution(before, after, stride=2) for before, after in pairwise(widths)))
        self.project = nn.Conv2d(widths[-1], config.d_model, 1)
        self.encoder = Stack(config)
        self.queries = nn.Parameter(torch.randn(1, config.queries, config.d_model))
        self.decoder = Stack(config.decoder(), cross=True)
        self.label = nn.Linear(config.d_model, labels + 1)
        self.box = BoxHead(config.d_model)

    def memory(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch time d_model"]:
        """The encoded feature map, with its positions added once more, so that queries can ask for places.

        Raises ValueError for images whose size is not the model's.
        """
        check_images(images, (self.config.channels, self.config.height, self.config.width))
        features = self.project(self.backbone(images)).flatten(2).mT
        return self.encoder.position.add(self.encoder(features))

    def by_layer(self, images: Float[Tensor, "batch channel height width"]) -> Iterator[Detections]:
        """The answers after each layer of the decoder, of which training uses all (section 3.2, "auxiliary losses")."""
        memory = self.memory(images)
        x = self.queries.repeat(len(images), 1, 1)
        for block in self.decoder.blocks:
            x = block(x, memory=memory)
            answers = self.decoder.norm(x)
            yield Detections(self.label(answers), self.box(answers))

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Detections:
        """The answers after the last layer."""
        *_, last = self.by_layer(images)
        return last
