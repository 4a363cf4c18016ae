"""Convolutions of lesson 17: melodies of plucked strings, continued by networks that see far or near."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.data.sounds import from_mu_law, melody, mu_law
from tfbook.models.wave_net import WaveNet, WaveNetConfig

# ---- melodies --------------------------------------------------------------------------------------------------------

RATE = 4000  # samples per second
NOTE = 400  # samples of one note: a tenth of a second
STRINGS = (36, 30, 27, 24, 20, 18)  # periods in samples, from low to high: about A2, C3, D3, E3, G3 and A3
PROMPT = 3 * NOTE
HISS = 0.03  # standard deviation of the noise on what a network reads while it learns, not on what it predicts
CONTINUED = 10  # notes that follow a prompt


def walk(notes: int, generator: torch.Generator) -> list[int]:
    """Strings, by number, of a random walk: each note is one string higher or lower than the one before."""
    place = int(torch.randint(len(STRINGS), (1,), generator=generator))
    places = [place]
    for up in torch.randint(2, (notes - 1,), generator=generator).tolist():
        step = 1 if place == 0 or (up and place < len(STRINGS) - 1) else -1
        place += step
        places.append(place)
    return places


def melodies(count: int, notes: int, *, seed: int) -> Int[Tensor, "melody time"]:
    """Melodies of plucked strings as levels of 8 bits."""
    generator = torch.Generator().manual_seed(seed)
    walks = [[STRINGS[place] for place in walk(notes, generator)] for _ in range(count)]
    return mu_law(torch.stack([melody(periods, NOTE, generator=generator) for periods in walks]))


# ---- networks --------------------------------------------------------------------------------------------------------

DILATED = WaveNetConfig(dilations=tuple(2**layer for layer in range(9)))  # 1, 2, 4, …, 256
UNDILATED = replace(DILATED, dilations=(1,) * len(DILATED.dilations))  # the same layers and parameters
NETWORKS = {"dilated": DILATED, "not dilated": UNDILATED}


def bits(logits: Float[Tensor, "melody time level"], ids: Int[Tensor, "melody time"]) -> Float[Tensor, ""]:
    """Mean bits per sample for what comes after each sample."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) / math.log(2)


def learn_melodies(
    config: WaveNetConfig,
    *,
    steps: int,
    seed: int,
    batch: int = 4,
    length: int = 1200,
    rate: float = 4e-3,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> WaveNet:
    """A WaveNet trained with Adam on pieces of new melodies, its learning rate falling to 0 along a cosine."""
    torch.manual_seed(seed)
    model = WaveNet(config)
    sounds, generator = melodies(64, 24, seed=1000 + seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / steps)) / 2
        rows = torch.randint(len(sounds), (batch,), generator=generator).tolist()
        starts = torch.randint(sounds.shape[1] - length, (batch,), generator=generator).tolist()
        ids = torch.stack([sounds[row, start : start + length] for row, start in zip(rows, starts, strict=True)])
        noise = HISS * torch.randn(ids.shape, generator=generator)
        loss = bits(model(mu_law(from_mu_law(ids) + noise)), ids)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report(step, float(loss.detach()))
    return model.eval()


# ---- judging a continuation ------------------------------------------------------------------------------------------

IN_TUNE = 0.7  # correlation with itself one period earlier; of hiss alone it is near 0
STRUCK = 3.0  # how much louder the samples after a pluck are than those before
SHORTEST = NOTE // 4  # samples between plucks


def string_of(note: Float[Tensor, " time"]) -> int | None:
    """The string, by number, whose period the sound repeats; None where it repeats none of them."""
    note = note - note.mean()
    agreement = []
    for period in STRINGS:
        later, earlier = note[period + 1 :], (note[1:-period] + note[: -period - 1]) / 2
        agreement.append(float(F.cosine_similarity(later, earlier, dim=0)))
    good = [string for string, r in enumerate(agreement) if r > max(IN_TUNE, 0.95 * max(agreement))]
    return max(good, default=None)  # of a period and twice that period, the shorter


def plucks(sound: Float[Tensor, " time"], width: int = 40) -> list[int]:
    """Where the next `width` samples are much louder than the last ones, the clearest places first, then in order."""
    loudness = sound.square().unfold(0, width, 1).mean(dim=-1)
    rise = loudness[width:] / loudness[:-width].clamp(min=1e-4)
    places: list[int] = []
    for place in rise.argsort(descending=True).tolist():
        if rise[place] < STRUCK:
            break
        if all(abs(place - other) >= SHORTEST for other in places):
            places.append(place)
    return sorted(place + width for place in places)


def judged(sound: Float[Tensor, " time"]) -> dict[str, float]:
    """Of a sound that begins with a note: how many notes hold a string, follow a neighbor, last as long as they should.

    Shares of as many notes as there should be, or of those that there are, if they are more.
    """
    starts = [0, *(place for place in plucks(sound) if place >= SHORTEST)]
    ends = [*starts[1:], len(sound)]
    strings = [string_of(sound[start:end]) for start, end in zip(starts, ends, strict=True)]
    steps = sum(None not in pair and abs(pair[0] - pair[1]) == 1 for pair in pairwise(strings))  # type: ignore[operator]
    lengths = sum(abs(end - start - NOTE) <= NOTE // 10 for start, end in zip(starts, ends, strict=True))
    notes = max(len(starts), round(len(sound) / NOTE))
    in_tune = sum(string is not None for string in strings)
    return {"in tune": in_tune / notes, "a neighbor follows": steps / (notes - 1), "in time": lengths / notes}
