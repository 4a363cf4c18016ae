"""Sound as a picture: spectrograms, and an audio spectrogram Transformer over pieces of them.

Shapes: batch, time (samples); frame; bin (of the discrete Fourier transform); mel (bands on the ear's scale); patch
(row by row) and value, the numbers of one; label.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tfbook.attention.positions import MakePosition, Position
from tfbook.checks import check_positive
from tfbook.models.blocks import Config, Stack, init_weights

FLOOR = 1e-6  # added to energies before their logarithm

# ---- spectrograms ------------------------------------------------------------------------------------------------


def spectrogram(
    sound: Float[Tensor, "*batch time"], window: int = 256, hop: int = 80
) -> Float[Tensor, "*batch bin frame"]:
    """|DFT of window · frame|² for each frame: `window` samples, `hop` apart, under a raised cosine (Hann).

    Raises ValueError for a sound shorter than a window.
    """
    if sound.shape[-1] < window:
        raise ValueError(f"sound has {sound.shape[-1]} samples; expected at least window, {window}")
    frames = sound.unfold(-1, window, hop) * torch.hann_window(window, dtype=sound.dtype, device=sound.device)
    return torch.fft.rfft(frames).abs().square().mT


def mel(hz: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Pitch as it is heard: 1127 ln(1 + f / 700), about linear below 700 Hz and logarithmic above."""
    return 1127 * (hz / 700).log1p()


def mel_bands(bands: int, bins: int, rate: int) -> Float[Tensor, "mel bin"]:
    """Triangles of equal width on the mel scale, each rising from its neighbor's peak to its own and falling again."""
    hz = torch.linspace(0, rate / 2, bins)
    highest = 1127 * math.log1p(rate / 2 / 700)  # mel of the last frequency, without a look at a tensor
    peaks = torch.linspace(0, highest, bands + 2)
    rise = (mel(hz) - peaks[:-2, None]) / (peaks[1:-1] - peaks[:-2])[:, None]
    fall = (peaks[2:, None] - mel(hz)) / (peaks[2:] - peaks[1:-1])[:, None]
    return torch.minimum(rise, fall).clamp(min=0)


def log_mel(
    sound: Float[Tensor, "*batch time"], *, window: int = 256, hop: int = 80, bands: int = 32, rate: int = 8000
) -> Float[Tensor, "*batch mel frame"]:
    """ln(energy in each band + ε), a row per band from low to high: the picture of a sound."""
    energy = spectrogram(sound, window, hop)
    return (mel_bands(bands, energy.shape[-2], rate).to(energy) @ energy + FLOOR).log()


def cut_into_pieces(
    picture: Float[Tensor, "*batch mel frame"], size: tuple[int, int]
) -> Float[Tensor, "*batch patch value"]:
    """Cuts a picture into pieces of `size` (bands, frames), row by row of pieces, each one vector, band by band.

    Raises ValueError unless `size` divides the picture.
    """
    height, width = picture.shape[-2:]
    if min(size) < 1 or height % size[0] or width % size[1]:
        raise ValueError(f"size is {size} and pictures are {height} × {width}; expected it to divide both sides")
    cut = "... (row p) (column q) -> ... (row column) (p q)"
    return rearrange(picture, cut, p=size[0], q=size[1])


# ---- AST ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AudioConfig(Config):
    """Sizes of the picture of a sound, of its pieces and of the blocks.

    Raises ValueError for impossible sizes, such as a piece that does not divide the picture.
    """

    rate: int = 8000  # samples per second
    window: int = 256
    hop: int = 80
    bands: int = 32
    frames: int = 80
    piece: tuple[int, int] = (32, 4)  # bands, frames; of all bands: a strip
    position: MakePosition | str = "learned"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(rate=self.rate, window=self.window, hop=self.hop)
        check_positive(bands=self.bands, frames=self.frames)
        if min(self.piece) < 1 or self.bands % self.piece[0] or self.frames % self.piece[1]:
            found = f"piece is {self.piece} and pictures are {self.bands} × {self.frames}"
            raise ValueError(f"{found}; expected it to divide both sides")

    @property
    def time(self) -> int:
        """The number of positions."""
        return self.bands // self.piece[0] * (self.frames // self.piece[1])

    @property
    def samples(self) -> int:
        """The length of the sounds: `frames` windows, `hop` apart."""
        return (self.frames - 1) * self.hop + self.window

    def encoding(self) -> Position:
        """A new positional encoding for as many positions as there are pieces."""
        return self.make("position", self.d_model, self.heads, self.time)


class AudioTransformer(nn.Module):
    """Pieces of a spectrogram through blocks without a mask; their mean is classified.

    (AST; Gong et al., 2021.)

    `cut` maps pictures and the size of a piece to the vectors of the pieces.
    """

    def __init__(self, labels: int, config: AudioConfig):
        super().__init__()
        self.config = config
        self.cut: Callable[[Tensor, tuple[int, int]], Tensor] = cut_into_pieces
        self.embed = nn.Linear(config.piece[0] * config.piece[1], config.d_model)
        self.stack = Stack(config)
        self.head = nn.Linear(config.d_model, labels)
        self.head.apply(init_weights)

    def picture(self, sound: Float[Tensor, "batch time"]) -> Float[Tensor, "batch mel frame"]:
        """The logarithms with mean 0 and standard deviation 1 over each sound.

        Raises ValueError for sounds of another length than `config.samples`.
        """
        config = self.config
        if sound.shape[1] != config.samples:
            raise ValueError(f"sound has {sound.shape[1]} samples; expected {config.samples}")
        values = log_mel(sound, window=config.window, hop=config.hop, bands=config.bands, rate=config.rate)
        values = values - values.mean(dim=(1, 2), keepdim=True)
        return values / (values.std(dim=(1, 2), keepdim=True) + FLOOR)

    def classify(self, picture: Float[Tensor, "batch mel frame"]) -> Float[Tensor, "batch label"]:
        """One row of logits per picture."""
        return self.head(self.stack(self.embed(self.cut(picture, self.config.piece))).mean(dim=1))

    def forward(self, sound: Float[Tensor, "batch time"]) -> Float[Tensor, "batch label"]:
        """One row of logits per sound."""
        return self.classify(self.picture(sound))
