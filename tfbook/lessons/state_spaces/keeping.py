"""Who has the lantern now? A stream of words in which few matter, read with decays that are fixed or set by the input.

Shapes: batch, time, d (numbers of the state).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training

HOLDERS = ("Rosa", "Tom", "Anna", "Ben", "Mia", "Max", "Lily", "Sam")
IDLE = ("rain", "wind", "clouds", "stars", "leaves", "fog", "snow", "sun")
TIME, BATCH, EVERY = 64, 32, 0.08  # positions of a stream, streams in a batch, and how often the lantern changes hands
GAPS = ((1, 3), (3, 6), (6, 12), (12, 24), (24, 48), (48, 96))  # words since the lantern last changed hands


class Stream(NamedTuple):
    """Words, by their number in HOLDERS + IDLE, who has the lantern after each of them, and for how many words."""

    words: Int[Tensor, "batch time"]
    holder: Int[Tensor, "batch time"]
    since: Int[Tensor, "batch time"]

    def to(self, device: torch.device) -> Stream:
        """On that device."""
        return Stream(*(part.to(device) for part in self))


def stream(size: int, time: int, generator: torch.Generator, *, every: float = EVERY) -> Stream:
    """A name says who takes the lantern; all other words are weather. The first word is a name."""
    taken = torch.rand(size, time, generator=generator) < every
    taken[:, 0] = True
    names = torch.randint(len(HOLDERS), (size, time), generator=generator)
    weather = torch.randint(len(IDLE), (size, time), generator=generator) + len(HOLDERS)
    words = torch.where(taken, names, weather)
    at = torch.where(taken, torch.arange(time), 0).cummax(dim=1).values
    return Stream(words, words.gather(1, at), torch.arange(time) - at)


def keeper_loss(model: nn.Module, batch: Stream) -> Float[Tensor, ""]:
    """Cross-entropy of who has the lantern, at every position."""
    return F.cross_entropy(model(batch.words).flatten(0, 1), batch.holder.flatten())


def train_keeper(model: nn.Module, *, steps: int = 300, lr: float = 0.01, seed: int = 0) -> nn.Module:
    """Next to each word, the model says who has the lantern: AdamW at one rate, new streams at each step."""

    def batch(step: int) -> Stream:
        return stream(BATCH, TIME, torch.Generator().manual_seed(1_000_000 * seed + step)).to(runtime.device())

    recipe = training.Recipe(steps=steps, lr=lr, evaluate_every=steps, mixed_precision=False)
    training.fit(model.to(runtime.device()), keeper_loss, batch, recipe)
    return model


@torch.no_grad()
def right_by_gap(
    model: Any, gaps: Sequence[tuple[int, int]] = GAPS, *, time: int = 128, noise: float = 0.0
) -> list[float]:
    """Share of right answers where the lantern changed hands so many words ago, in new streams.

    With `noise`, what the model's layer `read` sees of the state has normal errors of this share of the largest number.
    """
    batch, generator = stream(256, time, torch.Generator().manual_seed(99)), torch.Generator().manual_seed(5)

    def blurred(_: nn.Module, seen: tuple[Tensor]) -> tuple[Tensor]:
        errors = torch.randn(seen[0].shape, generator=generator).to(seen[0].device)
        return (seen[0] + noise * seen[0].abs().max() * errors,)

    hook = model.read.register_forward_pre_hook(blurred) if noise else None
    logits = model.to(runtime.device())(batch.words.to(runtime.device()))
    if hook is not None:
        hook.remove()
    right: Bool[Tensor, "batch time"] = logits.argmax(dim=-1).cpu() == batch.holder
    return [float(right[(batch.since >= low) & (batch.since < high)].float().mean()) for low, high in gaps]


def shares_left(decays: Float[Tensor, "time *state"]) -> Float[Tensor, "time *state"]:
    """Of h_t = a_t ⊙ h_{t−1} + (1 − a_t) ⊙ x_t, the share of each word in the last h: (1 − a_t) Π_{s > t} a_s."""
    later = torch.cat([decays[1:], torch.ones_like(decays[:1])])
    return (1 - decays) * later.flip(0).cumprod(dim=0).flip(0)


@torch.no_grad()
def held_by(model: Any, names: Sequence[str]) -> list[float]:
    """The shares of these words in a reader's last state, averaged over its numbers, relative to the largest.

    The reader has the page's parts: `embed`, and `decays` of what it embeds.
    """
    words = torch.tensor([(HOLDERS + IDLE).index(name) for name in names], device=runtime.device())
    shares = shares_left(model.decays(model.embed(words))).mean(dim=-1)
    return (shares / shares.max()).tolist()
