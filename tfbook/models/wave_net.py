"""WaveNet: a sound, sample by sample, from gated dilated convolutions.

ByteNet (Kalchbrenner et al., 2016) translates with the same kind of stack. Shapes: batch, time, d_model; level, the
values that a sample can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.checks import check_ids, check_positive
from tfbook.models.config import Savable
from tfbook.models.convolutions import GatedConvolution, RecentInputs, receptive_field

DOUBLING = tuple(2**layer for layer in range(10))  # 1, 2, 4, …, 512


@dataclass(frozen=True, kw_only=True)
class WaveNetConfig(Savable):
    """Sizes of a WaveNet. Raises ValueError for numbers below 1 and when there is no layer."""

    levels: int = 256  # of a sample: 8 bits
    d_model: int = 32
    d_skip: int = 64  # width of the skip connections, from which the output is computed
    kernel: int = 2
    dilations: tuple[int, ...] = DOUBLING  # one for each layer

    def __post_init__(self) -> None:
        check_positive(levels=self.levels, d_model=self.d_model, d_skip=self.d_skip, kernel=self.kernel)
        if not self.dilations:
            raise ValueError("dilations is empty; expected one for each layer")
        for dilation in self.dilations:
            check_positive(dilation=dilation)

    @property
    def receptive_field(self) -> int:
        """How many samples the distribution of the next one depends on."""
        return receptive_field([self.kernel] * len(self.dilations), self.dilations)


class WaveNetLayer(nn.Module):
    """A gated convolution z, whose two 1 × 1 convolutions feed the residual stream and the skip connections.

    (Van den Oord et al., 2016, figure 4.)
    """

    def __init__(self, config: WaveNetConfig, dilation: int):
        super().__init__()
        self.convolution = GatedConvolution(config.d_model, 1, kernel=config.kernel, dilation=dilation)
        self.skip = nn.Linear(config.d_model, config.d_skip)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], cache: RecentInputs | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch time d_skip"]]:
        """x + W_O z for the next layer, and W_skip z for the output."""
        z = self.convolution.gated(x, cache)
        return x + self.convolution.W_O(z), self.skip(z)


class WaveNet(nn.Module):
    """p(next sample | samples so far) from the sum of all layers' skip connections (van den Oord et al., 2016)."""

    def __init__(self, config: WaveNetConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.levels, config.d_model)
        self.layers = nn.ModuleList(WaveNetLayer(config, dilation) for dilation in config.dilations)
        self.mix = nn.Linear(config.d_skip, config.d_skip)
        self.unembed = nn.Linear(config.d_skip, config.levels)

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: Sequence[RecentInputs] | None = None
    ) -> Float[Tensor, "batch time level"]:
        """Logits for the sample after each; with a cache, `ids` continue the sound that it has read.

        Raises ValueError for ids that are not levels.
        """
        check_ids("ids", ids, self.config.levels)
        return self.from_vectors(self.embed(ids), cache=cache)

    def from_vectors(
        self, x: Float[Tensor, "batch time d_model"], *, cache: Sequence[RecentInputs] | None = None
    ) -> Float[Tensor, "batch time level"]:
        """The same from the vectors of the samples, by which one can take derivatives."""
        total = x.new_zeros(*x.shape[:2], self.config.d_skip)
        for layer, kept in zip(self.layers, [None] * len(self.layers) if cache is None else cache, strict=True):
            x, skip = layer(x, kept)
            total = total + skip
        return self.unembed(torch.relu(self.mix(torch.relu(total))))

    def new_cache(self) -> list[RecentInputs]:
        """For each layer an empty cache, which never holds more than the layer reaches back."""
        return [RecentInputs() for _ in self.layers]


@torch.no_grad()
def generate_sound(
    model: WaveNet,
    prompt: Int[Tensor, "batch time"],
    samples: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch samples"]:
    """The samples after the prompt, each drawn from softmax(logits / temperature) in float32.

    One step costs the same however long the sound is. Raises ValueError unless `temperature` > 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; expected more than 0")
    cache, ids, drawn = model.new_cache(), prompt, []
    for _ in range(samples):
        logits = model(ids, cache=cache)[:, -1].float()
        ids = torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=generator)
        drawn.append(ids)
    return torch.cat(drawn, dim=1) if drawn else prompt[:, :0]
