"""Study of lesson 04: encodings of positions beyond the trained length, where models represent them, and addition."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention.positions import POSITIONS, InterpolatedRotary, Learned, Position, Rotary, Start
from tfbook.course.experiments import experiment
from tfbook.course.probing import probe_layers
from tfbook.data.text import Text
from tfbook.lessons.positions.answers import answer as answer
from tfbook.lessons.positions.claims import CLAIMS as CLAIMS
from tfbook.lessons.positions.reading import (
    WORDS as WORDS,
    Reader as Reader,
    answers as answers,
    judge as judge,
    news as news,
    sentences as sentences,
    shares as shares,
)
from tfbook.models.blocks import Config
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.text.windows import Windows
from tfbook.training.losses import next_token_loss

# ---- language models on short windows of text ------------------------------------------------------------------------

TRAINED = 64  # characters per window in training
LENGTHS = (64, 96, 128, 192, 256, 512)
JUDGED = 32  # the last characters of each window
SIZES = Config(d_model=64, heads=4, d_ff=256, layers=4, max_length=TRAINED)
BATCH = 32

Loss = Callable[[nn.Module, Tensor], Tensor]

MASKED = 0.15  # share of characters that a bidirectional model must predict


def masked_character_loss(model: BidirectionalModel, ids: Int[Tensor, "batch time"]) -> Float[Tensor, ""]:
    """Mean cross-entropy of the masked characters given all the others; the last id is the mask."""
    masked = torch.rand(ids.shape, device=ids.device) < MASKED
    logits = model(ids.masked_fill(masked, model.unembed.out_features - 1))
    return F.cross_entropy(logits[masked].float(), ids[masked])


def trained(
    position: str,
    text: Text,
    seed: int,
    *,
    steps: int,
    kind: type[LanguageModel] = LanguageModel,
    loss: training.LossFunction = next_token_loss,
) -> tuple[LanguageModel, training.History]:
    """A small model of the characters of `text`, trained on windows of `TRAINED` characters, and its history."""
    runtime.seed(seed)
    model = kind(len(text.characters) + 1, replace(SIZES, position=POSITIONS[position])).to(runtime.device())
    return model, tuned(model, text, seed, steps=steps, length=TRAINED, lr=3e-3, loss=loss)


def tuned(
    model: LanguageModel,
    text: Text,
    seed: int,
    *,
    steps: int,
    length: int,
    lr: float,
    loss: training.LossFunction = next_token_loss,
) -> training.History:
    """Trains `model` further on windows of `length`, with the same number of characters per step at any length."""
    ids = text.characters.encode(text.train)
    windows = Windows(ids, length=length + 1, size=BATCH * TRAINED // length, seed=seed)
    return training.fit(
        model, loss, windows, training.Recipe(steps=steps, lr=lr, schedule=training.warmup_cosine(steps // 10))
    )


def windows_ending_together(text: Text, length: int, count: int) -> Int[Tensor, "count time"]:
    """`length` + 1 ids before each of `count` positions of the validation text, the same positions for every length."""
    ids = text.characters.encode(text.valid)
    ends = torch.linspace(max(LENGTHS) + 1, len(ids), count).long()
    return ids[ends[:, None] + torch.arange(-length - 1, 0)]


@torch.inference_mode()
def perplexity(model: LanguageModel, text: Text, length: int, *, count: int = 128) -> float:
    """exp of the mean loss on the last `JUDGED` characters of windows of `length`, the same ones at every length."""
    model.eval()
    losses = []
    for ids in windows_ending_together(text, length, count).to(runtime.device()).split(32):
        logits = model(ids[:, :-1])[:, -JUDGED:]
        losses.append(F.cross_entropy(logits.flatten(0, 1), ids[:, -JUDGED:].flatten(), reduction="none"))
    return math.exp(torch.cat(losses).mean())


class SlowPairsInterpolated(InterpolatedRotary):
    """Interpolates only the pairs that never complete a circle in training (Peng et al., 2024, section 3.2).

    Without the paper's gradual transition. A pair that completes the circle has met all angles, and tells neighbors
    apart.
    """

    def angles(self, positions: Float[Tensor, " time"]) -> Float[Tensor, "time half"]:
        """p θ_i for fast pairs, (p / stretch) θ_i for slow ones."""
        last = Rotary.angles(self, positions.new_tensor([TRAINED]))
        return torch.where(last >= 2 * math.pi, Rotary.angles(self, positions), super().angles(positions))


def interpolate_positions(
    model: LanguageModel, stretch: float, kind: type[InterpolatedRotary] = InterpolatedRotary
) -> LanguageModel:
    """A copy of a rotary model whose positions are divided by `stretch`."""
    changed = copy.deepcopy(model)
    changed.stack.position = kind(cast(Rotary, model.stack.position).d_head, stretch=stretch)
    return changed


def position_probes(model: LanguageModel, text: Text, *, count: int = 256) -> list[float]:
    """R² of linear probes for each character's position: at the input of the first block, then after each block."""
    ids = windows_ending_together(text, TRAINED, count)[:, :-1].to(runtime.device())
    layers = ["stack.dropout", *(f"stack.blocks.{i}" for i in range(len(model.stack.blocks)))]
    positions = torch.arange(TRAINED, device=ids.device).expand(ids.shape)
    return list(probe_layers(model, ids, y=positions, layers=layers).values())


# ---- stored: beyond the trained length, and probes in every layer ----------------------------------------------------

TUNED = 256  # the length to which a rotary model is fine-tuned


@experiment
def lengths(seeds: Sequence[int] = (1, 2), *, steps: int = 800) -> list[dict[str, Any]]:
    """Perplexity at each length, and probes in each layer, for causal models with every encoding.

    A rotary model is evaluated again: interpolated, with all pairs or only the slow ones; and fine-tuned for a tenth of
    the steps to `TUNED` characters, with all pairs interpolated or none.
    """
    text = data.load("tiny-shakespeare", fallback="python-reference")
    rows = []
    for seed in seeds:
        for position in POSITIONS:
            model, _ = trained(position, text, seed, steps=steps)
            found = {"perplexity": _curve(model, text), "probes": _rounded(position_probes(model, text))}
            rows.append({"model": position, "seed": seed, **found})
            if position == "rotary":
                stretched = _stretched(model, text, seed, steps // 10)
                rows += [{"model": name, "seed": seed, "perplexity": curve} for name, curve in stretched.items()]
    return rows


Points = list[tuple[int, float]]  # length, perplexity


def _curve(model: LanguageModel, text: Text) -> Points:
    position = model.stack.position
    limit = position.embedding.num_embeddings if isinstance(position, Learned) else max(LENGTHS)
    return [(length, round(perplexity(model, text, length), 4)) for length in LENGTHS if length <= limit]


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def _stretched(model: LanguageModel, text: Text, seed: int, steps: int) -> dict[str, Points]:
    """Perplexities of a rotary model stretched to each length without training, and fine-tuned to one length."""
    found = {
        f"interpolated, {pairs}": [
            (length, round(perplexity(interpolate_positions(model, length / TRAINED, kind), text, length), 4))
            for length in LENGTHS
        ]
        for pairs, kind in (("all pairs", InterpolatedRotary), ("slow pairs", SlowPairsInterpolated))
    }
    for name, stretch in (("interpolated, tuned", TUNED / TRAINED), ("tuned", 1.0)):
        changed = interpolate_positions(model, stretch)
        tuned(changed, text, seed, steps=steps, length=TUNED, lr=1e-3)
        found[name] = _curve(changed, text)
    return found


@experiment
def control(seeds: Sequence[int] = (1, 2), *, steps: int = 800) -> list[dict[str, Any]]:
    """Probes in models without positions: bidirectional and trained on masked characters; causal and untrained."""
    text = data.load("tiny-shakespeare", fallback="python-reference")
    rows = []
    for seed in seeds:
        both_ways, _ = trained("none", text, seed, steps=steps, kind=BidirectionalModel, loss=masked_character_loss)
        rows.append({"model": "bidirectional", "seed": seed, "probes": _rounded(position_probes(both_ways, text))})
        runtime.seed(seed)
        fresh = LanguageModel(len(text.characters) + 1, replace(SIZES, position=POSITIONS["none"])).to(runtime.device())
        rows.append({"model": "untrained", "seed": seed, "probes": _rounded(position_probes(fresh, text))})
    return rows


# ---- stored: additions longer than those in training -----------------------------------------------------------------

COLUMNS = 8  # digits of the numbers in training
TESTED = (4, 8, 9, 10, 12, 14, 16)
ADDERS = (*POSITIONS, "sinusoidal, random start", "learned, random start")


def sums(count: int, columns: int, seed: int) -> Int[Tensor, "count digit"]:
    """Additions as in school, column by column from the right: a digit of a, one of b, and that of a + b below them.

    785 359 is 37 + 58 = 95; the carry of the last column is left out.
    """
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randint(10, (2, count, columns), generator=generator)
    carry, below = torch.zeros(count, dtype=torch.long), []
    for i in range(columns):
        total = a[:, i] + b[:, i] + carry
        below.append(total % 10)
        carry = total // 10
    return torch.stack([a, b, torch.stack(below, dim=1)], dim=2).flatten(1)


def sum_digits(model: LanguageModel, ids: Int[Tensor, "batch digit"]) -> Float[Tensor, "batch column vocab"]:
    """Logits for every third digit, given all digits before it."""
    return model(ids[:, :-1])[:, 1::3]


def sum_loss(model: LanguageModel, ids: Int[Tensor, "batch digit"]) -> Float[Tensor, ""]:
    """Mean cross-entropy of the answer's digits."""
    return F.cross_entropy(sum_digits(model, ids).flatten(0, 1).float(), ids[:, 2::3].flatten())


class RandomStart(Position):
    """In training, texts start at a random position from 0 to `latest`, so that late positions are trained, too."""

    def __init__(self, encoding: Position, latest: int):
        super().__init__()
        self.encoding, self.latest = encoding, latest

    def add(self, x: Float[Tensor, "batch time d_model"], start: Start = 0) -> Float[Tensor, "batch time d_model"]:
        """x plus the encoding, from the random start on in training."""
        return self.encoding.add(x, start + int(torch.randint(self.latest + 1, ())) if self.training else start)


def adder(name: str, seed: int, *, steps: int) -> LanguageModel:
    """A model trained to add numbers of `COLUMNS` digits with the encoding `name`, one of `ADDERS`."""
    position, _, start = name.partition(", ")
    runtime.seed(seed)
    config = Config(d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS[position], max_length=3 * max(TESTED))
    model = LanguageModel(10, config)
    if start:
        model.stack.position = RandomStart(model.stack.position, latest=3 * (max(TESTED) - COLUMNS))
    recipe = training.Recipe(steps=steps, lr=3e-3, schedule=training.warmup_cosine(steps // 20))
    training.fit(model.to(runtime.device()), sum_loss, lambda step: sums(64, COLUMNS, 10**6 * seed + step), recipe)
    return model


@torch.inference_mode()
def right(model: LanguageModel, columns: int, *, count: int = 500) -> tuple[float, float]:
    """On new additions with this many columns: the share that is entirely right, and the share of right digits."""
    ids = sums(count, columns, seed=columns).to(runtime.device())
    digits = sum_digits(model.eval(), ids).argmax(dim=-1) == ids[:, 2::3]
    return float(digits.all(dim=1).float().mean()), float(digits.float().mean())


@experiment
def addition(seeds: Sequence[int] = (1, 2), *, steps: int = 1000) -> list[dict[str, Any]]:
    """Shares of right additions and of right digits, by length: every encoding, and two with a random start."""
    rows = []
    for seed in seeds:
        for name in ADDERS:
            model = adder(name, seed, steps=steps)
            found = [(columns, *(round(share, 4) for share in right(model, columns))) for columns in TESTED]
            rows.append({"model": name, "seed": seed, "right": found})
    return rows
