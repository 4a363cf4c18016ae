"""PixelCNN: an image, pixel by pixel, from masked convolutions. Shapes: batch, row, column, channel; level."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.checks import check_positive
from tfbook.models.config import Savable


def raster_filter(kernel: int, *, center: bool) -> Bool[Tensor, "row column"]:
    """True above the filter's middle and left of it; at the middle itself if `center`.

    Mask A of van den Oord et al. (2016) is without the middle, mask B with it. Raises
    ValueError for an even kernel, which has no middle.
    """
    check_positive(kernel=kernel)
    if kernel % 2 == 0:
        raise ValueError(f"kernel is {kernel}; expected an odd number")
    place = torch.arange(kernel * kernel)
    middle = kernel * kernel // 2
    return (place <= middle if center else place < middle).view(kernel, kernel)


class MaskedConvolution(nn.Conv2d):
    """A convolution whose filter sees only pixels that come earlier in raster order, and its own if `center`."""

    allowed: Bool[Tensor, "row column"]

    def __init__(self, channels: int, outputs: int, kernel: int, *, center: bool):
        super().__init__(channels, outputs, kernel, padding=kernel // 2)
        self.register_buffer("allowed", raster_filter(kernel, center=center), persistent=False)

    def forward(self, x: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch output row column"]:
        """Outside the image there are zeros."""
        return F.conv2d(x, self.weight * self.allowed, self.bias, padding=self.padding)


@dataclass(frozen=True, kw_only=True)
class PixelCnnConfig(Savable):
    """Sizes of a PixelCNN. Raises ValueError for numbers below 1 and for even kernels."""

    levels: int = 2
    d_model: int = 32
    layers: int = 4  # with mask B, after the first with mask A
    first_kernel: int = 7
    kernel: int = 3

    def __post_init__(self) -> None:
        check_positive(**vars(self))
        for name in ("first_kernel", "kernel"):
            if getattr(self, name) % 2 == 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected an odd number")


class PixelCnn(nn.Module):
    """p(pixel | pixels above, and to the left in its row): mask A once, then mask B (van den Oord et al., 2016)."""

    def __init__(self, config: PixelCnnConfig):
        super().__init__()
        self.config = config
        d_model = config.d_model
        self.embed = nn.Embedding(config.levels, d_model)
        self.first = MaskedConvolution(d_model, d_model, config.first_kernel, center=False)
        later = (MaskedConvolution(d_model, d_model, config.kernel, center=True) for _ in range(config.layers))
        self.layers = nn.ModuleList(later)
        self.unembed = nn.Linear(d_model, config.levels)

    def forward(self, ids: Int[Tensor, "batch row column"]) -> Float[Tensor, "batch row column level"]:
        """Logits of each pixel from earlier ones alone, all at once."""
        return self.from_vectors(self.embed(ids))

    def from_vectors(self, x: Float[Tensor, "batch row column d_model"]) -> Float[Tensor, "batch row column level"]:
        """The same from the vectors of the pixels, by which one can take derivatives."""
        x = self.first(x.movedim(-1, 1))
        for layer in self.layers:
            x = x + layer(F.relu(x))
        return self.unembed(F.relu(x).movedim(1, -1))
