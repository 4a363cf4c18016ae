"""The story world read by seven mixers of equal size: their loss, and how many of their stories are right.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime, training
from tfbook.attention import MultiHeadAttention
from tfbook.attention.efficient import Banded
from tfbook.course.batches import SortedBatches
from tfbook.course.experiments import experiment, stored
from tfbook.data.stories import written
from tfbook.data.stories.corpus import Stories
from tfbook.lessons.gpt_pretraining.stories import judged, story_rows, training_rows
from tfbook.lessons.state_spaces.recall import rise_and_fall
from tfbook.models.blocks import Config
from tfbook.models.gated import GatedLinearAttention, Lstm, MinGru
from tfbook.models.gpt import Gpt
from tfbook.models.state_spaces import Mamba
from tfbook.pretrain.storyteller import Storyteller, tell
from tfbook.text.vocabulary import PAD
from tfbook.training import History
from tfbook.training.losses import next_token_loss

SIZES: dict[str, Any] = {"d_model": 96, "heads": 4, "d_ff": 192, "layers": 2, "position": "rotary"}
WINDOW = 6  # positions: as many numbers as Mamba's state
MAMBA = partial(Mamba, width=112, state=8)  # as many parameters as attention, to 1%
MIXERS: dict[str, Any] = {
    "attention": MultiHeadAttention,
    "Mamba": MAMBA,
    "hybrid": (MAMBA, MultiHeadAttention),
    "window": partial(MultiHeadAttention, implementation=Banded(WINDOW - 1)),
    "LSTM": partial(Lstm, width=54),
    "minGRU": partial(MinGru, width=128),
    "gated linear attention": GatedLinearAttention,
}
BATCH, STEPS, WARMUP, HELD_OUT, SAMPLES = 16, 250, 20, 60, 100
RATE, OTHER_RATES, SEEDS = 0.006, (0.002, 0.018, 0.05), (1, 2)


@cache
def corpus() -> Stories:
    """The story world's texts, loaded once."""
    return data.load("stories")


def storyteller(mixer: Any) -> Gpt:
    """A GPT of the lesson's sizes, its vocabulary the story world's."""
    return Gpt(len(corpus().vocabulary), Config(**SIZES, mixer=mixer)).to(runtime.device())


@cache
def held_out() -> Tensor:
    """The ids of stories that no run trains on."""
    rows = story_rows(corpus()["valid"][:HELD_OUT], corpus().vocabulary)
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    """Nats per word of the held-out stories."""
    return float(next_token_loss(model.eval(), held_out().to(runtime.device()), pad=PAD).mean)


def train_teller(model: Gpt, *, lr: float = RATE, steps: int = STEPS, seed: int = 1) -> History:
    """Next-word training with AdamW, the rate rising for `WARMUP` steps and falling to 0."""
    batches, device = SortedBatches(training_rows(), size=BATCH, seed=seed), runtime.device()
    recipe = training.Recipe(
        steps=steps,
        lr=lr,
        betas=(0.9, 0.98),
        schedule=rise_and_fall(WARMUP),
        evaluate_every=steps,
        mixed_precision=False,
    )
    loss = partial(next_token_loss, pad=PAD)
    return training.fit(model, loss, lambda step: batches(step).to(device), recipe)


def told_by(model: Gpt, count: int, *, beginning: str = "", seed: int = 0) -> list[list[str]]:
    """Stories in words, at temperature 0.7."""
    teller = Storyteller(model, corpus().vocabulary)
    return tell(teller, count, temperature=0.7, seed=seed, beginning=beginning)


def as_text(words: Sequence[str]) -> str:
    """A story as it is printed."""
    return written(list(words))


def state_bytes(model: Gpt, words: int) -> int:
    """The memory of all layers' caches after so many words: what attention keeps, or the states."""
    cache, ids = model.new_cache(), torch.randint(4, 100, (1, words), device=runtime.device())
    with torch.no_grad():
        for piece in ids.split(512, dim=1):
            model(piece, cache=cache)
    return sum(_bytes(block.past) for block in cache.blocks)


def _bytes(past: Any) -> int:
    if hasattr(past, "nbytes"):
        return past.nbytes()
    return sum(kept.numel() * kept.element_size() for kept in past.seen())


@experiment
def stories(
    mixers: Sequence[str] = tuple(MIXERS), *, steps: int = STEPS, seeds: Sequence[int] = SEEDS
) -> list[dict[str, Any]]:
    """Loss and right stories for each mixer and seed, all at one learning rate."""
    found = []
    for seed in seeds:
        for name in mixers:
            found.append({"method": name, "seed": seed, **_told(name, RATE, steps, seed)})
            print(found[-1], flush=True)
    return found


@experiment
def story_rates(
    mixers: Sequence[str] = tuple(MIXERS), *, steps: int = STEPS, seeds: Sequence[int] = SEEDS
) -> list[dict[str, Any]]:
    """A smaller and two larger rates on the first seed; the other seeds, too, where one is better than `RATE`."""
    first = {row["method"]: row["loss"] for row in stored("state_spaces.stories").rows if row["seed"] == seeds[0]}
    found = []
    for name in mixers:
        own = [{"method": name, "lr": lr, "seed": seeds[0], **_told(name, lr, steps, seeds[0])} for lr in OTHER_RATES]
        best = min(own, key=lambda row: row["loss"])
        if best["loss"] < first[name]:
            own += [
                {"method": name, "lr": best["lr"], "seed": seed, **_told(name, best["lr"], steps, seed)}
                for seed in seeds[1:]
            ]
        print(*own, sep="\n", flush=True)
        found += own
    return found


def _told(name: str, lr: float, steps: int, seed: int) -> dict[str, Any]:
    runtime.seed(seed)
    model = storyteller(MIXERS[name])
    train_teller(model, lr=lr, steps=steps, seed=seed)
    shares = {kind: round(share, 4) for kind, share in judged(told_by(model, SAMPLES)).items()}
    sizes = {"parameters": model.parameter_count(), "flops": model.flops(100) // 100}
    return {"loss": round(held_out_loss(model), 4), **shares, **sizes}
