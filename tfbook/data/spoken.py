"""Spoken digits, synthesized: a voice's pulses and noise through a moving vocal tract; and tones and chords.

A vowel is a few **formants**, resonances of the mouth, over the harmonics of the voice. A digit is a path through them:
`speak(7, Voice(pitch=120))`. Everything follows from numbers and seeds; nothing was recorded.

Shapes: time, in samples; frame, the moments between which the tract moves; bin, of the discrete Fourier transform.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

RATE = 8000  # samples per second
LENGTH = 6576  # samples of a clip: 0.82 s, 80 windows of 256 that begin 80 apart
SLOWEST = 0.6  # speed; a slower digit does not fit into a clip
FRAME = 128  # samples of a frame of the synthesis, every half of which the tract moves
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# ---- sounds of speech ------------------------------------------------------------------------------------------------


class Phone(NamedTuple):
    """One sound: three formants in Hz for a mouth of scale 1, loudness of voice and of noise, and the noise's pitch."""

    formants: tuple[float, float, float]
    voice: float = 1.0
    noise: float = 0.0
    hiss: float = 3000.0  # Hz, where the noise is loudest
    share: float = 1.0  # of the time


PHONES = {  # formants after Peterson and Barney's averages (1952), rounded
    "iy": Phone((280, 2250, 3000)),
    "ih": Phone((400, 1950, 2550)),
    "eh": Phone((550, 1800, 2480)),
    "ey": Phone((450, 2100, 2700)),
    "ah": Phone((640, 1190, 2400)),
    "aa": Phone((730, 1100, 2450)),
    "ao": Phone((570, 840, 2410)),
    "ow": Phone((450, 900, 2350)),
    "uw": Phone((310, 870, 2250)),
    "w": Phone((300, 650, 2200), 0.6, share=0.6),
    "r": Phone((330, 1100, 1500), 0.7, share=0.7),
    "n": Phone((250, 1400, 2300), 0.4, share=0.9),
    "v": Phone((250, 1100, 2300), 0.35, 0.04, 3200, share=0.7),
    "z": Phone((250, 1700, 2500), 0.25, 0.10, 3600, share=0.9),
    "s": Phone((300, 1700, 2600), 0.0, 0.16, 3700, share=1.1),
    "f": Phone((300, 1100, 2300), 0.0, 0.05, 2600, share=1.0),
    "th": Phone((300, 1400, 2500), 0.0, 0.04, 3000, share=0.8),
    "hush": Phone((300, 1700, 2500), 0.0, 0.0, share=0.6),  # the closure before a stop
    "t": Phone((300, 1800, 2600), 0.0, 0.22, 3400, share=0.4),
    "k": Phone((300, 1700, 2200), 0.0, 0.20, 1900, share=0.4),
}
SPELLED = {
    0: ("z", "ih", "r", "ow"),
    1: ("w", "ah", "ah", "n"),
    2: ("t", "uw", "uw"),
    3: ("th", "r", "iy", "iy"),
    4: ("f", "ao", "ao", "r"),
    5: ("f", "aa", "ih", "v"),
    6: ("s", "ih", "hush", "k", "s"),
    7: ("s", "eh", "v", "ah", "n"),
    8: ("ey", "iy", "hush", "t"),
    9: ("n", "aa", "ih", "n"),
}

# ---- voices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Voice:
    """How somebody speaks: pitch in Hz, formants times `mouth`, faster or slower, breath, and own vowels.

    `accent` seeds a shift of each sound's formants by about `drift`. Raises ValueError for a pitch outside 60 to 400
    Hz, a mouth outside 0.7 to 1.4 and a speed outside `SLOWEST` to 1.8.
    """

    pitch: float = 120.0
    mouth: float = 1.0
    speed: float = 1.0
    fall: float = 0.15  # of the pitch from beginning to end
    breath: float = 0.02
    accent: int = 0
    drift: float = 0.08

    def __post_init__(self) -> None:
        for name, low, high in (("pitch", 60, 400), ("mouth", 0.7, 1.4), ("speed", SLOWEST, 1.8)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {low:g} to {high:g}")

    def formants(self, name: str) -> tuple[float, ...]:
        """The three formants of one of `PHONES` in this mouth."""
        rng = random.Random(f"{self.accent} {name}")
        return tuple(hz * self.mouth * math.exp(rng.gauss(0, self.drift)) for hz in PHONES[name].formants)


def speaker(number: int) -> Voice:
    """One of any number of people, always the same one: a low or a high voice, and a mouth that goes with it."""
    rng = random.Random(f"speaker {number}")
    high = rng.random() < 0.5
    return Voice(
        pitch=rng.uniform(160, 250) if high else rng.uniform(85, 155),
        mouth=rng.gauss(1.14 if high else 1.0, 0.05),
        speed=rng.uniform(0.75, 1.4),
        fall=rng.uniform(-0.05, 0.3),
        breath=rng.uniform(0.005, 0.06),
        accent=number,
    )


# ---- tones -----------------------------------------------------------------------------------------------------------

NOTES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")


def pitch_of(note: str, octave: int = 4) -> float:
    """The pitch in Hz, of equal steps with A at 440 in octave 4. Raises ValueError unless it is one of `NOTES`."""
    if note not in NOTES:
        raise ValueError(f"note is {note!r}; expected one of {', '.join(NOTES)}")
    return 440 * 2 ** (octave - 4 + (NOTES.index(note) - NOTES.index("A")) / 12)


def tones(
    pitches: Sequence[float], *, seconds: float = 0.5, overtones: int = 3, rate: int = RATE
) -> Float[Tensor, " time"]:
    """All pitches at once, each with overtones half as loud as the one before, fading like a string.

    Raises ValueError when there is none, and for one that `rate` samples cannot hold (half of them or more).
    """
    if not pitches or not all(0 < pitch < rate / 2 for pitch in pitches):
        raise ValueError(f"pitches is {list(pitches)}; expected one or more, each between 0 and {rate / 2:g} Hz")
    t = torch.arange(int(seconds * rate)) / rate
    waves = [(k * pitch, 0.5 ** (k - 1)) for pitch in pitches for k in range(1, overtones + 2) if k * pitch < rate / 2]
    sound = torch.stack([share * (2 * math.pi * hz * t).sin() for hz, share in waves]).sum(dim=0)
    return 0.5 * sound / sound.abs().max() * (-2 * t / seconds).exp()


# ---- speaking --------------------------------------------------------------------------------------------------------


def resonances(formants: Float[Tensor, "frame formant"], hz: Float[Tensor, " bin"]) -> Float[Tensor, "frame bin"]:
    """|H(f)| = Π F² / √((F² − f²)² + (f B)²): resonators of center F and bandwidth B = 50 Hz + F / 20, in a row."""
    center, f = formants[..., None], hz
    width = 50 + center / 20
    return (center**2 / ((center**2 - f**2).square() + (f * width).square()).sqrt()).prod(dim=-2)


def _path(digit: int, voice: Voice, frames: int) -> Float[Tensor, "frame 6"]:
    """Formants, voice, noise and hiss at each frame: a sound holds in the middle of its time and then glides on."""
    names = SPELLED[digit]
    phones = [PHONES[name] for name in names]
    ends = torch.tensor([0.0, *(phone.share for phone in phones)]).cumsum(0)
    ends = ends / ends[-1] * frames
    rows = [
        (*voice.formants(name), phone.voice, phone.noise, phone.hiss) for name, phone in zip(names, phones, strict=True)
    ]
    table, middles = torch.tensor(rows), (ends[:-1] + ends[1:]) / 2
    at = torch.arange(frames) + 0.5
    right = torch.searchsorted(middles, at).clamp(1, len(rows) - 1)
    along = ((at - middles[right - 1]) / (middles[right] - middles[right - 1])).clamp(0, 1)
    steep = ((along - 0.5) * 2.2 + 0.5).clamp(0, 1)[:, None]
    return torch.lerp(table[right - 1], table[right], steep)


def _pulses(pitch: Float[Tensor, " time"]) -> Float[Tensor, " time"]:
    """A smooth pulse per period, whose harmonics fall off like a bell 2 kHz wide; its mean is 0."""
    phase = (pitch / RATE).cumsum(0)
    sharp = (2000 / pitch) ** 2
    return (sharp * ((2 * math.pi * phase).cos() - 1)).exp() * sharp.sqrt() - 0.4


def speak(
    digit: int,
    voice: Voice = Voice(),
    *,
    seed: int = 0,
    seconds: float = 0.45,
) -> Float[Tensor, " time"]:
    """A digit, 0.12 loud (root mean square); about `seconds` / `voice.speed` long.

    The source, pulses and noise, is cut into overlapping frames; the spectrum of each is multiplied by the tract's
    response at that moment, and the frames are added up again. Raises ValueError unless `digit` is 0 to 9.
    """
    if digit not in SPELLED:
        raise ValueError(f"digit is {digit}; expected 0 to 9")
    generator = torch.Generator().manual_seed(seed)
    samples = int(seconds / voice.speed * RATE) // FRAME * FRAME
    frames = 2 * samples // FRAME + 1
    path = _path(digit, voice, frames)
    slope = torch.linspace(1 + voice.fall / 2, 1 - voice.fall / 2, samples)
    window, hop = torch.hann_window(FRAME), FRAME // 2
    noise = torch.randn(samples, generator=generator)
    sources = torch.stack([_pulses(voice.pitch * slope) + voice.breath * noise, noise])
    spectra = torch.stft(sources, FRAME, hop, window=window, return_complex=True)
    hz = torch.linspace(0, RATE / 2, FRAME // 2 + 1)
    tract = resonances(path[:, :3], hz) * path[:, 3, None]
    hiss = path[:, 4, None] * (-((hz - path[:, 5, None]) / 900).square() / 2).exp() * 40
    shaped = spectra[0] * tract.T + spectra[1] * hiss.T
    sound = torch.istft(shaped, FRAME, hop, window=window, length=samples)
    fade = torch.minimum(torch.arange(samples), torch.arange(samples).flip(0)).div(160).clamp(max=1)
    return _leveled(sound * fade, 0.12)


def _leveled(sound: Float[Tensor, " time"], loudness: float) -> Float[Tensor, " time"]:
    """Scaled to a root mean square of `loudness`, and bent softly where it would exceed 1."""
    return torch.tanh(loudness / sound.square().mean().sqrt() * sound)


def recorded(
    digit: int,
    voice: Voice = Voice(),
    *,
    noise: float = 0.02,
    start: float | None = None,
    seed: int = 0,
) -> Float[Tensor, " time"]:
    """A clip of `LENGTH` samples: the digit somewhere in it, under white noise of standard deviation `noise`.

    `start`, from 0 to 1, is its place in the room that is left; None draws one. Raises ValueError where `speak` does.
    """
    rng = random.Random(f"clip {seed}")
    sound = speak(digit, voice, seed=seed)[:LENGTH]
    first = round((rng.random() if start is None else start) * (LENGTH - len(sound)))
    clip = noise * torch.randn(LENGTH, generator=torch.Generator().manual_seed(seed + 1))
    clip[first : first + len(sound)] += sound
    return clip.clamp(-1, 1)


class Spoken(NamedTuple):
    """Clips, their digits, and who spoke."""

    sounds: Float[Tensor, "clip time"]
    digits: Int64[Tensor, " clip"]
    speakers: Int64[Tensor, " clip"]

    def to(self, device: torch.device) -> Spoken:
        """The same on a device."""
        return Spoken(*(part.to(device) for part in self))


def taken(number: int, take: int, digit: int, noises: tuple[float, float]) -> Float[Tensor, " time"]:
    """A clip of a speaker's digit, whose speed, pitch, place and noise differ from take to take."""
    rng, voice = random.Random(f"take {number} {digit} {take}"), speaker(number)
    pitch = min(max(voice.pitch * rng.uniform(0.92, 1.08), 60), 400)
    speed = min(max(voice.speed * rng.uniform(0.92, 1.08), SLOWEST), 1.8)
    noise = math.exp(rng.uniform(*map(math.log, noises)))
    return recorded(digit, replace(voice, pitch=pitch, speed=speed), noise=noise, seed=rng.getrandbits(31))


def spoken(speakers: Sequence[int], *, takes: int = 1, noises: tuple[float, float] = (0.01, 0.1)) -> Spoken:
    """Each digit from each speaker, `takes` times, under noise whose logarithm is drawn from between two."""
    order = [(number, take, digit) for number in speakers for take in range(takes) for digit in SPELLED]
    who, _, said = zip(*order, strict=True)
    return Spoken(torch.stack([taken(*each, noises) for each in order]), torch.tensor(said), torch.tensor(who))
