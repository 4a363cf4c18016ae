"""Sounds that are synthesized: plucked strings and melodies of them, and 8 bits per sample.

Shapes: time, in samples; amplitudes are between −1 and 1.
"""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

# ---- 8 bits ------------------------------------------------------------------------------------------------------


def mu_law(sound: Float[Tensor, "*rows time"], *, levels: int = 256) -> Int[Tensor, "*rows time"]:
    """The level, 0 to μ = `levels` − 1, of each amplitude x: sign(x) · ln(1 + μ|x|) / ln(1 + μ) in equal steps.

    Steps are small where the sound is soft, where ears are sensitive (ITU-T G.711). Amplitudes beyond ±1 are clipped.
    """
    mu = levels - 1
    x = sound.clamp(-1, 1)
    compressed = x.sign() * (mu * x.abs()).log1p() / math.log1p(mu)
    return ((compressed + 1) / 2 * mu + 0.5).floor().long()


def from_mu_law(ids: Int[Tensor, "*rows time"], *, levels: int = 256) -> Float[Tensor, "*rows time"]:
    """The amplitude in the middle of each level."""
    mu = levels - 1
    compressed = 2 * ids.float() / mu - 1
    return compressed.sign() * ((compressed.abs() * math.log1p(mu)).exp() - 1) / mu


# ---- strings -----------------------------------------------------------------------------------------------------


FADE = 0.15  # of the loudness is left when a note ends


def decay_of(period: int, samples: int) -> float:
    """The factor per period that leaves `FADE` after so many samples."""
    return FADE ** ((period + 0.5) / samples)


def plucked(period: int, samples: int, *, pick: float = 0.3, loudness: float = 0.8) -> Float[Tensor, " time"]:
    """y_t = decay · (y_{t−N} + y_{t−N−1}) / 2 with N = `period`: a loop that rings like a string.

    (Karplus & Strong, 1983.) It starts as a string pulled into a triangle at `pick`, a share of its length. The
    period is N + ½ samples, and the averages damp high overtones first; the decay is that of `decay_of`. Raises
    ValueError unless 0 < `pick` < 1.
    """
    if not 0 < pick < 1:
        raise ValueError(f"pick is {pick}; expected a share of the string between 0 and 1")
    place = torch.linspace(0, 1, period + 2)[:-1]
    string = torch.minimum(place / pick, (1 - place) / (1 - pick))
    string = string - string.mean()
    decay = decay_of(period, samples)
    sound = (loudness * string / string.abs().max()).tolist()
    while len(sound) < samples:
        sound.append(decay * (sound[-period] + sound[-period - 1]) / 2)
    return torch.tensor(sound[:samples])


def melody(
    periods: Sequence[int], samples: int, *, hiss: float = 0.004, generator: torch.Generator | None = None
) -> Float[Tensor, " time"]:
    """One string after the other, each for so many samples, under white noise of standard deviation `hiss`."""
    notes = torch.cat([plucked(period, samples) for period in periods])
    return notes + hiss * torch.randn(len(notes), generator=generator)


# ---- listening ---------------------------------------------------------------------------------------------------


def wav_bytes(sound: Float[Tensor, " time"], rate: int) -> bytes:
    """A WAV file of 8 bits per sample, which every browser plays."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(1)
        writer.setframerate(rate)
        writer.writeframes(bytes(((sound.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).tolist()))
    return file.getvalue()
