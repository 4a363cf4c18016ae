"""CLIP: one encoder for images and one for texts, trained so that what belongs together points the same way.

Shapes: image, text (rows of either kind); time (tokens, padded); d_shared.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.models.bert import Bert
from tfbook.models.blocks import Config, init_weights
from tfbook.models.cnn import convolution
from tfbook.models.sentence_encoder import mean_pooled
from tfbook.models.vit import Vit, VitConfig

HOTTEST = 100.0  # scores are never multiplied by more (Radford et al., 2021, section 2.5)
START = 1 / 0.07  # what they are multiplied by at first


class ConvolutionalPatches(nn.Module):
    """Patches by convolutions of stride 2 instead of one cut (Xiao et al., 2021): small images need fewer steps.

    Each of log2 `patch` convolutions doubles the channels, and a 1 × 1 convolution ends at `d_model`. Raises
    ValueError unless `patch` is a power of 2.
    """

    def __init__(self, channels: int, patch: int, d_model: int):
        super().__init__()
        halvings = patch.bit_length() - 1
        if patch != 2**halvings:
            raise ValueError(f"patch is {patch}; expected a power of 2")
        widths = [channels, *(max(d_model >> k, 1) for k in reversed(range(halvings)))]
        layers = [convolution(one, other, stride=2) for one, other in pairwise(widths)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], d_model, 1))

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch patch d_model"]:
        """A vector for each patch, row by row."""
        return self.layers(images).flatten(2).mT


class ImageTower(Vit):
    """A `Vit` over `ConvolutionalPatches` whose head leads into the shared space."""

    def __init__(self, d_shared: int, config: VitConfig):
        super().__init__(d_shared, config)
        patches = ConvolutionalPatches(config.channels, config.patch, config.d_model)
        self.patches = patches  # type: ignore[assignment] # it is called in the same way

    def places(self, images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch patch d_shared"]:
        """The head of each patch's own vector: with `config.tokens` = 0 their mean is the image's vector."""
        return self.head(self.representations(images)[:, self.config.tokens :])


class TextTower(nn.Module):
    """Unmasked blocks over words, averaged over each text, and a layer into the shared space."""

    def __init__(self, vocab: int, d_shared: int, config: Config):
        super().__init__()
        self.bert = Bert(vocab, config, segments=1)
        self.head = nn.Linear(config.d_model, d_shared)
        self.head.apply(init_weights)

    def forward(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch d_shared"]:
        """A vector for each text, which does not depend on padding."""
        return self.head(mean_pooled(self.bert(ids, lengths), lengths))


class Clip(nn.Module):
    """Scores s · cos(image, text) for all pairs, with a learned s (Radford et al., 2021, figure 3).

    `images` and `texts` map a batch of either kind to vectors of one size.
    """

    def __init__(self, images: nn.Module, texts: nn.Module):
        super().__init__()
        self.images, self.texts = images, texts
        self.log_scale = nn.Parameter(torch.tensor(math.log(START)))

    @property
    def scale(self) -> Float[Tensor, ""]:
        """s = exp(`log_scale`), at most `HOTTEST`: the inverse of a temperature."""
        return self.log_scale.clamp(max=math.log(HOTTEST)).exp()

    def image_vectors(self, images: Float[Tensor, "image channel height width"]) -> Float[Tensor, "image d_shared"]:
        """A unit vector for each image."""
        return F.normalize(self.images(images), dim=-1)

    def text_vectors(
        self, ids: Int[Tensor, "text time"], lengths: Int[Tensor, " text"]
    ) -> Float[Tensor, "text d_shared"]:
        """A unit vector for each text."""
        return F.normalize(self.texts(ids, lengths), dim=-1)

    def forward(
        self,
        images: Float[Tensor, "image channel height width"],
        ids: Int[Tensor, "text time"],
        lengths: Int[Tensor, " text"],
    ) -> Float[Tensor, "image text"]:
        """The score of every image with every text."""
        return self.scale * self.image_vectors(images) @ self.text_vectors(ids, lengths).T
