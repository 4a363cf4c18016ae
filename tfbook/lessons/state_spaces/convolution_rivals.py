"""Rivals of a WaveNet in lesson 17: linear prediction, the string's own rule, and loudness alone.

Shapes: melody, time, lag.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.data.sounds import decay_of, from_mu_law
from tfbook.lessons.state_spaces.convolutions import NOTE, PROMPT, STRINGS

LEVELS = 256
Predict = Callable[[Float[Tensor, "melody time"]], Float[Tensor, "melody time"]]  # each sample from earlier ones

# ---- bits of a prediction --------------------------------------------------------------------------------------------


def level_bits(
    predicted: Float[Tensor, "melody time"], ids: Int[Tensor, "melody time"], scale: float
) -> Float[Tensor, ""]:
    """Mean bits per sample if each is its prediction plus logistic noise of this scale, cut into the levels of μ-law.

    A thousandth of the probability is spread over all levels.
    """
    middles = from_mu_law(torch.arange(LEVELS), levels=LEVELS)
    edges = torch.cat([torch.tensor([-math.inf]), (middles[1:] + middles[:-1]) / 2, torch.tensor([math.inf])])
    below, above = edges[ids], edges[ids + 1]
    p = torch.sigmoid((above - predicted) / scale) - torch.sigmoid((below - predicted) / scale)
    return -(0.999 * p + 0.001 / LEVELS).log2().mean()


def rival_bits(predict: Predict, learned: Int[Tensor, "other past"], asked: Int[Tensor, "melody time"]) -> float:
    """Bits per sample after a prompt, by a prediction whose noise has the best scale for what it learned."""
    scales = [0.3 * 0.7**i for i in range(16)]
    predicted = predict(from_mu_law(learned))[:, PROMPT:]
    scale = min(scales, key=lambda scale: float(level_bits(predicted, learned[:, PROMPT:], scale)))
    return float(level_bits(predict(from_mu_law(asked))[:, PROMPT:], asked[:, PROMPT:], scale))


def loudness_bits(learned: Int[Tensor, "other past"], asked: Int[Tensor, "melody time"]) -> float:
    """Bits per sample of the levels' frequencies alone, whatever came before."""
    counts = torch.bincount(learned.flatten(), minlength=LEVELS) + 1.0
    return float(-(counts / counts.sum()).log2()[asked[:, PROMPT:]].mean())


# ---- linear prediction -----------------------------------------------------------------------------------------------


def linear_weights(sounds: Float[Tensor, "melody time"], order: int) -> Float[Tensor, " lag"]:
    """The least squares of x_t against x_{t−1}, …, x_{t−order}, over all melodies."""
    windows = sounds.double().unfold(1, order + 1, 5).flatten(0, 1)  # every fifth place
    earlier, now = windows[:, :-1].flip(1), windows[:, -1]
    ridge = 1e-6 * len(earlier) * torch.eye(order, dtype=torch.float64)
    return torch.linalg.solve(earlier.T @ earlier + ridge, earlier.T @ now).float()


def linearly(weights: Float[Tensor, " lag"]) -> Predict:
    """The prediction Σ_j weights_j x_{t−1−j}; before the sound stand zeros."""
    order = len(weights)

    def predict(sounds: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(sounds, (order, 0))[:, :-1]
        return padded.unfold(1, order, 1) @ weights.flip(0)

    return predict


def linear_continuation(
    weights: Float[Tensor, " lag"], prompt: Float[Tensor, "melody time"], samples: int
) -> Float[Tensor, "melody samples"]:
    """The samples after the prompt, each predicted from those before."""
    sound, order = prompt, len(weights)
    for _ in range(samples):
        now = sound[:, -order:].flip(1) @ weights[: sound.shape[1]]
        sound = torch.cat([sound, now[:, None].clamp(-1, 1)], dim=1)
    return sound[:, prompt.shape[1] :]


# ---- the strings' own rule -------------------------------------------------------------------------------------------


def one_period(sounds: Float[Tensor, "melody time"], period: int) -> Float[Tensor, "melody time"]:
    """decay · (x_{t−N} + x_{t−N−1}) / 2, by which a string of this period rings; before the sound stand zeros."""
    padded = torch.nn.functional.pad(sounds, (period + 1, 0))
    return decay_of(period, NOTE) * (padded[:, 1:-period] + padded[:, : -period - 1]) / 2


def by_period(sounds: Float[Tensor, "melody time"], past: int = 100) -> Float[Tensor, "melody time"]:
    """The rule of the string, of all six, whose rule predicted the last `past` samples best."""
    predictions = torch.stack([one_period(sounds, period) for period in STRINGS])  # (string, melody, time)
    errors = torch.nn.functional.pad((predictions - sounds).square().cumsum(dim=-1), (past + 1, 0))
    best = (errors[..., past:-1] - errors[..., : -past - 1]).argmin(dim=0)
    return predictions.gather(0, best[None])[0]


def ringing_on(prompt: Float[Tensor, "melody time"], samples: int) -> Float[Tensor, "melody samples"]:
    """The last string rings on, as if none was plucked any more."""
    errors = torch.stack([(one_period(prompt, period) - prompt)[:, -200:].norm(dim=-1) for period in STRINGS])
    sounds = []
    for sound, string in zip(prompt, errors.argmin(dim=0).tolist(), strict=True):
        period = STRINGS[string]
        values = sound[-period - 1 :].tolist()
        for _ in range(samples):
            values.append(decay_of(period, NOTE) * (values[-period] + values[-period - 1]) / 2)
        sounds.append(torch.tensor(values[period + 1 :]))
    return torch.stack(sounds)
