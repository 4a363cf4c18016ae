"""Selection in a Mamba that tells stories: its Δ, B and C word by word, and the loss when they no longer vary.

Shapes: batch, time, width, state; words (of some texts, one after the other).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook import runtime
from tfbook.course.experiments import experiment
from tfbook.lessons.state_spaces.telling import MAMBA, corpus, held_out, held_out_loss, storyteller, train_teller
from tfbook.models.gpt import Gpt
from tfbook.models.state_spaces import selective_scan
from tfbook.text.vocabulary import PAD

PARTS = ("Δ", "B and C")
SEEN = ("the", "a", "and", "was", ".", "Lily", "Tim", "Rosa", "kite", "ball", "said", "forest")  # words shown
BEST = 0.018  # Mamba's learning rate, of the four in `story_rates`

# ---- the three, seen and held still ----------------------------------------------------------------------------------


class Selected(NamedTuple):
    """A block's inputs to its scan at each word: a vector for each channel's step, and a key and a query."""

    step: Float[Tensor, "words width"]
    B: Float[Tensor, "words state"]
    C: Float[Tensor, "words state"]


class Watched:
    """A selective scan that writes down Δ, B and C of the words read, and puts their means in where it is told to.

    `means` are vectors for some of "Δ" and "B and C"; `shown`, (batch, time), is True at words, False at padding.
    """

    def __init__(self, shown: Tensor, means: Selected | None = None, parts: Sequence[str] = ()):
        self.shown, self.means, self.parts = shown, means, parts
        self.seen: list[Selected] = []

    def __call__(self, x: Tensor, step: Tensor, A: Tensor, B: Tensor, C: Tensor, start: Tensor) -> Any:
        """The scan's outputs and its last state."""
        self.seen.append(Selected(step[self.shown], B[self.shown], C[self.shown]))
        if self.means is not None and "Δ" in self.parts:
            step = self.means.step.expand_as(step)
        if self.means is not None and "B and C" in self.parts:
            B, C = self.means.B.expand_as(B), self.means.C.expand_as(C)
        return selective_scan(x, step, A, B, C, start)


def mixers_of(model: Gpt) -> list[Any]:
    """The Mamba of each block."""
    return [module for module in model.modules() if hasattr(module, "selective")]


@torch.no_grad()
def selected(model: Gpt) -> list[Selected]:
    """Δ, B and C of each block at each word of the held-out stories, rows after rows."""
    ids = held_out().to(runtime.device())
    kept = [mixer.selective for mixer in mixers_of(model)]
    watched = [Watched(ids[:, :-1] != PAD) for _ in kept]
    for mixer, each in zip(mixers_of(model), watched, strict=True):
        mixer.selective = each
    model.eval()(ids[:, :-1])
    for mixer, each in zip(mixers_of(model), kept, strict=True):
        mixer.selective = each
    return [each.seen[0] for each in watched]


def by_word(seen: Selected, words: Sequence[str] = SEEN) -> dict[str, Selected]:
    """The means of Δ, B and C over the places of each of these words in the held-out stories."""
    ids = held_out()[:, :-1]
    ids = ids[ids != PAD].to(seen.step.device)
    names = {word: corpus().vocabulary.encode([word])[0] for word in words}
    return {word: Selected(*(part[ids == name].mean(dim=0) for part in seen)) for word, name in names.items()}


def varying(part: Float[Tensor, "words numbers"]) -> float:
    """Σ |v − mean|² / Σ |v|² over words: 0 where a vector is the same at each word, 1 where its mean is 0."""
    return float((part - part.mean(dim=0)).square().sum() / part.square().sum())


def still_loss(model: Gpt, parts: Sequence[str]) -> float:
    """Nats per word of the held-out stories when these parts stay at their means over words, in each block."""
    ids, kept = held_out().to(runtime.device()), [mixer.selective for mixer in mixers_of(model)]
    for mixer, seen in zip(mixers_of(model), selected(model), strict=True):
        means = Selected(*(part.mean(dim=0) for part in seen))
        mixer.selective = Watched(ids[:, :-1] != PAD, means, parts)
    loss = held_out_loss(model)
    for mixer, each in zip(mixers_of(model), kept, strict=True):
        mixer.selective = each
    return loss


# ---- trained without them --------------------------------------------------------------------------------------------


class SteadyScan(nn.Module):
    """A selective scan that reads and writes with a learned B and C, the same at each word."""

    def __init__(self, state: int):
        super().__init__()
        self.B, self.C = nn.Parameter(torch.randn(state)), nn.Parameter(torch.randn(state))

    def forward(self, x: Tensor, step: Tensor, A: Tensor, B: Tensor, C: Tensor, start: Tensor) -> Any:
        """As `selective_scan`, whatever `B` and `C` are."""
        return selective_scan(x, step, A, self.B.expand_as(B), self.C.expand_as(C), start)


def unselective(d_model: int, heads: int, *, without: Sequence[str] = (), **options: Any) -> nn.Module:
    """A Mamba of the stories' size; "Δ" sets W_Δ = 0 and leaves b_Δ to be learned, "B and C" have no input."""
    mixer = MAMBA(d_model, heads, **options)
    if "Δ" in without:
        nn.init.zeros_(mixer.W_step.weight).requires_grad_(False)
    if "B and C" in without:
        mixer.selective = SteadyScan(mixer.state)
    return mixer


@experiment
def selection(*, steps: int = 250, seeds: Sequence[int] = (1, 2)) -> list[dict[str, Any]]:
    """Loss of Mamba with parts held at their means after training, and trained without them.

    The other seeds are trained without Δ, and without B and C; Mamba as it is has their runs in `story_rates`.
    """
    found: list[dict[str, Any]] = []
    for seed in seeds:
        for without in ((), ("Δ",), ("B and C",), PARTS) if seed == seeds[0] else (("Δ",), ("B and C",)):
            runtime.seed(seed)
            model = storyteller(partial(unselective, without=without))
            train_teller(model, lr=BEST, steps=steps, seed=seed)
            name = " and ".join(without)
            found.append({"kind": "trained", "still": name, "seed": seed, "loss": round(held_out_loss(model), 4)})
            print(found[-1], flush=True)
            if not without:
                found += _held_still(model, seed)
                found += _varied(model, seed)
    return found


def _held_still(model: Gpt, seed: int) -> list[dict[str, Any]]:
    return [
        {"kind": "held", "still": " and ".join(parts), "seed": seed, "loss": round(still_loss(model, parts), 4)}
        for parts in (("Δ",), ("B and C",), PARTS)
    ]


def _varied(model: Gpt, seed: int) -> list[dict[str, Any]]:
    """For each block the shares that vary from word to word, and each shown word's Δ averaged over channels."""
    found = []
    for block, seen in enumerate(selected(model)):
        steps = {word: round(float(means.step.mean()), 4) for word, means in by_word(seen).items()}
        shares = {key: round(varying(part), 4) for key, part in seen._asdict().items()}
        found.append({"kind": "seen", "seed": seed, "block": block, **shares, "words": steps})
    return found
