"""The contest of lesson 17's convolutions: who continues a melody? Networks of equal parameters, and simple rivals."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.course.experiments import experiment
from tfbook.data.sounds import from_mu_law, mu_law
from tfbook.lessons.state_spaces.convolution_rivals import (
    by_period,
    linear_continuation,
    linear_weights,
    linearly,
    loudness_bits,
    ringing_on,
    rival_bits,
)
from tfbook.lessons.state_spaces.convolutions import (
    CONTINUED,
    NETWORKS,
    NOTE,
    PROMPT,
    bits,
    judged,
    learn_melodies,
    melodies,
)
from tfbook.models.wave_net import WaveNet, generate_sound

STEPS = 400
SEEDS = (0, 1, 2)
ASKED = 16  # new melodies of the same kind
TEMPERATURE = 0.7
ORDER = 64  # of linear prediction: two periods of most strings

# ---- scores ----------------------------------------------------------------------------------------------------------


def asked_melodies() -> Int[Tensor, "melody time"]:
    """Melodies for the test: a prompt and what follows."""
    return melodies(ASKED, PROMPT // NOTE + CONTINUED, seed=7)


def scores(sounds: Float[Tensor, "melody time"]) -> dict[str, float]:
    """The means of `judged` over the continuations of all melodies."""
    each = [judged(sound) for sound in sounds]
    return {name: sum(one[name] for one in each) / len(each) for name in each[0]}


def packed(ids: Int[Tensor, " time"]) -> str:
    """Levels as hexadecimal text, two characters per sample."""
    return bytes(ids.tolist()).hex()


def unpacked(text: str) -> Float[Tensor, " time"]:
    """The amplitudes that `packed` wrote as levels."""
    return from_mu_law(torch.tensor(list(bytes.fromhex(text))))


@torch.no_grad()
def network_row(model: WaveNet, asked: Int[Tensor, "melody time"], seed: int) -> dict[str, Any]:
    """Bits per sample after the prompts, the scores of what the network continues, and the first of these sounds."""
    generator = torch.Generator().manual_seed(seed)
    samples = asked.shape[1] - PROMPT
    ids = generate_sound(model, asked[:, :PROMPT], samples, temperature=TEMPERATURE, generator=generator)
    found = float(bits(model(asked)[:, PROMPT - 1 :], asked[:, PROMPT - 1 :]))
    return {"bits": found, **scores(from_mu_law(ids)), "sound": packed(ids[0])}


def rival_rows(learned: Int[Tensor, "other past"], asked: Int[Tensor, "melody time"]) -> list[dict[str, Any]]:
    """The same of linear prediction, of the strings' own rule and of loudness alone; and the melodies themselves."""
    prompts, samples = from_mu_law(asked[:, :PROMPT]), asked.shape[1] - PROMPT
    weights = linear_weights(from_mu_law(learned), ORDER)
    continued = {
        "linear prediction": (
            rival_bits(linearly(weights), learned, asked),
            linear_continuation(weights, prompts, samples),
        ),
        "the string rings on": (rival_bits(by_period, learned, asked), ringing_on(prompts, samples)),
    }
    rows = [
        {"kind": kind, "bits": found, **scores(sounds), "sound": packed(mu_law(sounds[0]))}
        for kind, (found, sounds) in continued.items()
    ]
    truth = asked[:, PROMPT:]
    rows.append({"kind": "the melody", **scores(from_mu_law(truth)), "sound": packed(truth[0])})
    return [*rows, {"kind": "loudness alone", "bits": loudness_bits(learned, asked)}]


@experiment
def continued_melodies(steps: int = STEPS, seeds: tuple[int, ...] = SEEDS) -> list[dict[str, Any]]:
    """Each network with each seed, and the rivals: bits per sample, scores and a sound."""
    asked = asked_melodies()
    rows = rival_rows(melodies(16, 24, seed=1000), asked)
    for kind, config in NETWORKS.items():
        for seed in seeds:
            model = learn_melodies(config, steps=steps, seed=seed)
            parameters = sum(weight.numel() for weight in model.parameters())
            sees = {"parameters": parameters, "receptive field": config.receptive_field}
            rows.append({"kind": kind, "seed": seed, **sees, **network_row(model, asked, seed)})
            print(rows[-1] | {"sound": ""}, flush=True)
    return rows


@experiment
def melody_rates(steps: int = STEPS, rates: tuple[float, ...] = (2e-3, 8e-3)) -> list[dict[str, Any]]:
    """Both networks with half and twice the learning rate: whether the contest is one of rates."""
    asked, rows = asked_melodies(), list[dict[str, Any]]()
    for kind, config in NETWORKS.items():
        for rate in rates:
            found = network_row(learn_melodies(config, steps=steps, seed=0, rate=rate), asked, 0)
            rows.append({"kind": kind, "rate": rate, **{name: found[name] for name in found if name != "sound"}})
    return rows
