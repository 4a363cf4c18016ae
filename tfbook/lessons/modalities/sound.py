"""Sound: a small audio Transformer that hears digits, its rivals on the same spectra, and numbers read back.

Shapes: clip, time (samples); mel, frame; patch, value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.spoken import Spoken, Voice, recorded, speaker, spoken
from tfbook.models.audio import AudioConfig, AudioTransformer, cut_into_pieces, log_mel
from tfbook.models.patch_mixers import NoMixer

if TYPE_CHECKING:
    from pandas import DataFrame

STRIPS = AudioConfig(d_model=64, heads=4, d_ff=128, layers=2, piece=(32, 4))
TRAIN, VALID, TEST = range(100), range(500, 520), range(1000, 1040)  # speakers
STEPS, SIZE, RATE_OF_LEARNING = 200, 64, 3e-3
SHIFT, HISS = 16, 0.2  # of a picture in training: frames to either side, and noise
Cut = Callable[[Tensor, tuple[int, int]], Tensor]
Hearing = Any  # an `AudioTransformer`, or a rival with the same `picture` and `classify`

# ---- training --------------------------------------------------------------------------------------------------------


class Pictures(NamedTuple):
    """Pictures of sounds and their digits."""

    pictures: Float[Tensor, "clip mel frame"]
    digits: Int64[Tensor, " clip"]

    def to(self, device: torch.device) -> Pictures:
        """The same on a device."""
        return Pictures(*(part.to(device) for part in self))


def listener(config: AudioConfig = STRIPS, *, seed: int = 1, cut: Cut | None = None) -> AudioTransformer:
    """A new model for ten digits, whose pieces are cut by `cut`."""
    runtime.seed(seed)
    model = AudioTransformer(10, config)
    model.cut = cut or model.cut
    return model


def digit_loss(model: Hearing, batch: Pictures) -> training.Loss:
    """−log p(digit | sound) in nats; counts clips."""
    total = F.cross_entropy(model.classify(batch.pictures).float(), batch.digits, reduction="sum")
    return training.Loss(total, len(batch.digits))


def picture_batches(data: Spoken, model: Hearing, *, seed: int = 1) -> Callable[[int], Pictures]:
    """Maps a step to `SIZE` clips, each moved in time by up to `SHIFT` frames, around the end, under new noise."""
    pictures = model.picture(data.sounds)

    def batch(step: int) -> Pictures:
        generator = torch.Generator().manual_seed(1_000_000 * seed + step)
        rows = torch.randint(len(pictures), (SIZE,), generator=generator)
        shifts = torch.randint(-SHIFT, SHIFT + 1, (SIZE,), generator=generator).tolist()
        moved = torch.stack([pictures[row].roll(shift, -1) for row, shift in zip(rows.tolist(), shifts, strict=True)])
        return Pictures(moved + HISS * torch.randn(moved.shape, generator=generator), data.digits[rows])

    return batch


def train(model: Hearing, data: Spoken, *, seed: int = 1, steps: int = STEPS) -> training.History:
    """AdamW with a short warm-up and a cosine down to 2%."""
    batches = picture_batches(data, model, seed=seed)
    model.to(runtime.device())
    schedule = training.warmup_cosine(min(30, steps // 4), 0.02)
    recipe = training.Recipe(
        steps=steps, lr=RATE_OF_LEARNING, schedule=schedule, weight_decay=0.05, evaluate_every=steps
    )
    history = training.fit(model, digit_loss, batches, recipe)
    model.cpu()
    return history


@torch.no_grad()
def heard(model: Hearing, sounds: Float[Tensor, "clip time"]) -> Float[Tensor, "clip digit"]:
    """The probability of each digit."""
    return model(sounds).softmax(dim=-1)


def share_heard(model: Hearing, data: Spoken) -> float:
    """The share of clips whose digit is the most probable."""
    return float((heard(model, data.sounds).argmax(dim=1) == data.digits).float().mean())


# ---- rivals ----------------------------------------------------------------------------------------------------------


def standardized_pictures(sounds: Float[Tensor, "clip time"]) -> Float[Tensor, "clip mel frame"]:
    """Logarithms of energies as the model sees them, with mean 0 and standard deviation 1 over each clip."""
    values = log_mel(sounds)
    values = values - values.mean(dim=(1, 2), keepdim=True)
    return values / values.std(dim=(1, 2), keepdim=True)


FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "average spectrum": lambda x: x.mean(dim=2),
    "average and spread": lambda x: torch.cat([x.mean(dim=2), x.std(dim=2)], dim=1),
    "whole picture": lambda x: x.flatten(1),
}


def rival_rows(train: Spoken, valid: Spoken, test: Spoken) -> list[dict[str, Any]]:
    """Logistic regression and nearest neighbors on each of `FEATURES`, at the settings best on other speakers."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    pictures = [standardized_pictures(data.sounds) for data in (train, valid, test)]
    rows: list[dict[str, Any]] = []
    for name, feature in FEATURES.items():
        x, tuning, asked = (feature(picture).numpy() for picture in pictures)
        for kind, models in (
            ("linear", [LogisticRegression(C=c, max_iter=500) for c in (1e-3, 1e-2, 1e-1, 1.0, 10.0)]),
            ("neighbors", [KNeighborsClassifier(k) for k in (1, 3, 5, 9)]),
        ):
            fitted = [model.fit(x, train.digits.numpy()) for model in models]
            best = max(fitted, key=lambda model: model.score(tuning, valid.digits.numpy()))
            right = round(float(best.score(asked, test.digits.numpy())), 4)
            rows.append({"model": f"{kind}, {name}", "seed": 0, "right": right})
    return rows


MODELS = {
    "Transformer, strips": STRIPS,
    "Transformer, squares": replace(STRIPS, piece=(8, 8)),
    "strips without positions": replace(STRIPS, position="none"),
    "strips without attention": replace(STRIPS, mixer=NoMixer),
}


@experiment
def digits(seeds: Sequence[int] = (1, 2, 3), *, steps: int = STEPS) -> list[dict[str, Any]]:
    """Digits of 40 held-out speakers, by Transformers with other pieces or parts and by classical models."""
    train_set, valid, test = spoken(TRAIN), spoken(VALID), spoken(TEST)
    rows = rival_rows(train_set, valid, test)
    for name, config in MODELS.items():
        for seed in seeds:
            model = listener(config, seed=seed)
            train(model, train_set, seed=seed, steps=steps)
            right = round(share_heard(model, test), 4)
            rows.append({"model": name, "seed": seed, "right": right, "parameters": parameters(model)})
    return rows


@experiment
def harder_voices(seeds: Sequence[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """The strips' model on what it never heard: more noise, smaller mouths, and slower or faster speech."""
    train_set = spoken(TRAIN)
    rows = []
    for seed in seeds:
        model = listener(seed=seed)
        train(model, train_set, seed=seed)
        for name, clips in stresses().items():
            rows.append({"seed": seed, "change": name, "right": round(share_heard(model, clips), 4)})
    return rows


def stresses(speakers: Sequence[int] = TEST) -> dict[str, Spoken]:
    """Every digit of held-out speakers, as they are and with one thing changed."""

    def clips(noise: float = 0.03, **changes: float) -> Spoken:
        said = [(number, digit) for number in speakers for digit in range(10)]
        voices = {number: replace(speaker(number), **changes) for number in speakers}  # type: ignore[arg-type]
        sounds = [recorded(digit, voices[number], noise=noise, seed=number) for number, digit in said]
        who, what = zip(*said, strict=True)
        return Spoken(torch.stack(sounds), torch.tensor(what), torch.tensor(who))

    return {
        "as in training": clips(),
        "noise 0.2": clips(noise=0.2),
        "noise 0.4": clips(noise=0.4),
        "a child's mouth (1.35)": clips(mouth=1.35),
        "slow (0.65)": clips(speed=0.65),
        "fast (1.7)": clips(speed=1.7),
    }


# ---- a reader's number -----------------------------------------------------------------------------------------------


class ReadBack(NamedTuple):
    """A number, spoken digit by digit, and what the model heard."""

    said: str
    heard: str
    sounds: Float[Tensor, "clip time"]
    chances: Float[Tensor, "clip digit"]

    @property
    def sound(self) -> Float[Tensor, " time"]:
        """All clips, one after the other."""
        return self.sounds.flatten()


def say(number: int | str, voice: Voice, *, noise: float = 0.02) -> Float[Tensor, "clip time"]:
    """A clip for each digit of a number. Raises ValueError unless it consists of 1 to 6 digits."""
    digits = str(number)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise ValueError(f"number is {number!r}; expected 1 to 6 digits")
    return torch.stack([recorded(int(digit), voice, noise=noise, seed=100 + i) for i, digit in enumerate(digits)])


def read_back(model: AudioTransformer, number: int | str, voice: Voice, *, noise: float = 0.02) -> ReadBack:
    """Speaks a number and lets the model write down what it hears."""
    sounds = say(number, voice, noise=noise)
    chances = heard(model, sounds)
    return ReadBack(str(number), "".join(str(int(digit)) for digit in chances.argmax(dim=1)), sounds, chances)


# ---- tables ----------------------------------------------------------------------------------------------------------


def digit_scores(rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Each model's share of right digits: the mean over seeds, the smallest and the largest."""
    import pandas as pd

    frame = pd.DataFrame(rows).groupby("model").right.agg(["mean", "min", "max"])
    return frame.sort_values("mean", ascending=False).map("{:.1%}".format)


def sound_claims(rows: DataFrame) -> dict[int, float]:
    """The lead of strips, in the mean of the seeds, over the best linear model."""
    linear = rows[rows.model.str.startswith("linear")].right.max()
    return {7: float(rows[rows.model == "Transformer, strips"].right.mean() - linear)}


def plain_cut(picture: Float[Tensor, "batch mel frame"], bands: int, steps: int) -> Float[Tensor, "batch patch value"]:
    """The package's pieces, as the exercise asks for them."""
    return cut_into_pieces(picture, (bands, steps))
