"""ConvMixer: "patches are all you need?" Shapes: batch, channel, height and width of images; d_model, label."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from tfbook.checks import check_positive
from tfbook.models.config import Savable
from tfbook.models.vit import grid_of


@dataclass(frozen=True, kw_only=True)
class ConvMixerConfig(Savable):
    """Sizes of a ConvMixer. Raises ValueError for numbers below 1 and for an even kernel, which has no middle."""

    d_model: int = 128
    layers: int = 4
    kernel: int = 5
    patch: int = 4
    channels: int = 3

    def __post_init__(self) -> None:
        check_positive(**vars(self))
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; expected an odd number")


def normed(layer: nn.Module, d_model: int) -> nn.Sequential:
    """BatchNorm(GELU(layer(x)))."""
    return nn.Sequential(layer, nn.GELU(), nn.BatchNorm2d(d_model))


class ConvMixerBlock(nn.Module):
    """A depthwise convolution mixes places, with a residual; a 1 × 1 convolution mixes channels."""

    def __init__(self, config: ConvMixerConfig):
        super().__init__()
        d_model, kernel = config.d_model, config.kernel
        self.places = normed(nn.Conv2d(d_model, d_model, kernel, groups=d_model, padding=kernel // 2), d_model)
        self.channels = normed(nn.Conv2d(d_model, d_model, 1), d_model)

    def forward(self, x: Float[Tensor, "batch d_model row column"]) -> Float[Tensor, "batch d_model row column"]:
        """No residual around the second."""
        return self.channels(x + self.places(x))


class ConvMixer(nn.Module):
    """Patches, blocks of two convolutions at one resolution, and the mean over places (Trockman & Kolter, 2022).

    It reads images of any size that the patch divides.
    """

    def __init__(self, labels: int, config: ConvMixerConfig):
        super().__init__()
        self.config = config
        patches = nn.Conv2d(config.channels, config.d_model, config.patch, stride=config.patch)
        self.patches = normed(patches, config.d_model)
        self.blocks = nn.Sequential(*(ConvMixerBlock(config) for _ in range(config.layers)))
        self.head = nn.Linear(config.d_model, labels)

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch label"]:
        """One row of logits per image. Raises ValueError when the patch does not divide the image."""
        grid_of(images.shape[2], images.shape[3], self.config.patch)
        return self.head(self.blocks(self.patches(images)).mean(dim=(2, 3)))
