"""Recall: facts "name keeps thing", one vector each, then questions. How many does a state of fixed size hold?

Shapes: batch, time (facts, then questions), pairs, d_model, things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention import Causal, MultiHeadAttention
from tfbook.attention.efficient import Banded
from tfbook.course.experiments import experiment
from tfbook.models.blocks import Config, Stack
from tfbook.models.gated import GatedLinearAttention, Lstm, MinGru
from tfbook.models.state_spaces import S4D, Mamba
from tfbook.training.schedules import Schedule

NAMES, THINGS = 16, 8
D_MODEL, BATCH = 32, 32
PAIRS = (2, 4, 8, 16)  # facts before the questions; each batch of training draws one of them

# ---- the task and its reader --------------------------------------------------------------------------------------


class Recall(NamedTuple):
    """Names and things at each position, THINGS where one is asked for, and the right thing of each question."""

    names: Int[Tensor, "batch time"]
    things: Int[Tensor, "batch time"]
    answers: Int[Tensor, "batch pairs"]

    def to(self, device: torch.device) -> Recall:
        """On that device."""
        return Recall(*(part.to(device) for part in self))


def recall_batch(size: int, pairs: int, generator: torch.Generator, *, known: int = NAMES) -> Recall:
    """`pairs` facts about different ones of the `known` names, then a question about each of them in a new order.

    Raises ValueError for more facts than names.
    """
    if pairs > known:
        raise ValueError(f"{pairs} facts need as many names; the reader knows {known}")
    names = torch.rand(size, known, generator=generator).argsort(dim=1)[:, :pairs]
    things = torch.randint(THINGS, (size, pairs), generator=generator)
    order = torch.rand(size, pairs, generator=generator).argsort(dim=1)
    asked = torch.cat([names, names.gather(1, order)], dim=1)
    return Recall(asked, torch.cat([things, torch.full_like(things, THINGS)], dim=1), things.gather(1, order))


class Reader(nn.Module):
    """Each position is the sum of a name's and a thing's vector; blocks of the mixer; the thing is read out."""

    def __init__(self, mixer: Any, *, heads: int = 1, layers: int = 1, known: int = NAMES):
        super().__init__()
        self.known = known
        self.name, self.thing = nn.Embedding(known, D_MODEL), nn.Embedding(THINGS + 1, D_MODEL)
        config = Config(d_model=D_MODEL, heads=heads, d_ff=4 * D_MODEL, layers=layers, position="none", mixer=mixer)
        self.stack = Stack(config)
        self.read = nn.Linear(D_MODEL, THINGS)

    def forward(
        self, names: Int[Tensor, "batch time"], things: Int[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time things"]:
        """Logits of the thing at each position."""
        return self.read(self.stack(self.name(names) + self.thing(things), Causal()))


def recall_loss(model: nn.Module, batch: Recall) -> Float[Tensor, ""]:
    """Cross-entropy at the questions."""
    logits = model(batch.names, batch.things)[:, -batch.answers.shape[1] :]
    return F.cross_entropy(logits.flatten(0, 1), batch.answers.flatten())


@torch.no_grad()
def recalled(model: Reader, pairs: int, *, count: int = 256, seed: int = 99) -> float:
    """Share of right answers in new texts with so many facts."""
    batch = recall_batch(count, pairs, torch.Generator().manual_seed(seed), known=model.known)
    device = next(model.parameters()).device
    logits = model(batch.names.to(device), batch.things.to(device))[:, -pairs:]
    return float((logits.argmax(dim=-1).cpu() == batch.answers).float().mean())


def counting(pairs: int, *, count: int = 4096, seed: int = 98) -> float:
    """Right answers of a reader that binds nothing: it always says the thing that most of the facts name."""
    things = recall_batch(count, pairs, torch.Generator().manual_seed(seed), known=max(pairs, NAMES)).things[:, :pairs]
    return float(F.one_hot(things, THINGS).sum(dim=1).amax(dim=1).float().mean()) / pairs


def rise_and_fall(warmup: int) -> Schedule:
    """Up in a line over so many steps, then down in a line to 0 at the end."""
    return lambda step, steps: min(1.0, (step + 1) / warmup) * (1 - step / steps)


def train_reader(
    mixer: Any,
    *,
    heads: int = 1,
    layers: int = 1,
    lr: float = 1e-2,
    steps: int = 600,
    seed: int = 0,
    pairs: Sequence[int] = PAIRS,
    known: int = NAMES,
) -> Reader:
    """A reader of so many names after so many batches, each with one of the numbers of facts; AdamW, falling to 0."""
    runtime.seed(seed)
    generator, device = torch.Generator().manual_seed(seed), runtime.device()
    drawn = [recall_batch(BATCH, pairs[_below(len(pairs), generator)], generator, known=known) for _ in range(steps)]
    model = Reader(mixer, heads=heads, layers=layers, known=known).to(device)
    recipe = training.Recipe(
        steps=steps, lr=lr, betas=(0.9, 0.98), schedule=rise_and_fall(20), evaluate_every=steps, mixed_precision=False
    )
    training.fit(model, recall_loss, lambda step: drawn[step].to(device), recipe)
    return model


def _below(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))


# ---- stored: state size against pairs -----------------------------------------------------------------------------

READERS: dict[str, list[tuple[Any, int, int]]] = {  # method → mixer, heads, numbers in its state after a long text
    "attention": [(MultiHeadAttention, 1, 0)],  # 2 · d_model for each position: it grows
    "window": [(partial(MultiHeadAttention, implementation=Banded(w - 1)), 1, 2 * D_MODEL * w) for w in (4, 16)],
    "gated linear attention": [(GatedLinearAttention, heads, D_MODEL**2 // heads) for heads in (1, 4, 16)],
    "Mamba": [(partial(Mamba, width=width, state=8), 1, width * 11) for width in (16, 64)],
    "minGRU": [(partial(MinGru, width=width), 1, width) for width in (32, 256)],
    "LSTM": [(partial(Lstm, width=width), 1, 2 * width) for width in (32, 128)],
    "S4D": [(partial(S4D, state=8), 1, D_MODEL * 16)],
}
RATES, SEEDS = (3e-3, 1e-2), (0, 1)


@experiment
def recall(*, steps: int = 500, seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """Right answers by the number of facts, for each state: the better of two learning rates on seed 0, then seeds."""
    found = []
    for method, readers in READERS.items():
        for mixer, heads, numbers in readers:
            for run in tuned_runs(mixer, heads, steps, seeds):
                found.append({"method": method, "numbers": numbers, **run})
                print(found[-1], flush=True)
    return found


def tuned_runs(mixer: Any, heads: int, steps: int, seeds: Sequence[int], layers: int = 1) -> Iterator[dict[str, float]]:
    """The run of each seed at the learning rate that is better on the first one."""
    runs = {lr: recall_run(mixer, heads, lr, steps, seeds[0], layers=layers) for lr in RATES}
    best = max(runs, key=lambda lr: fmean(runs[lr].values()))
    for seed in seeds:
        shares = runs[best] if seed == seeds[0] else recall_run(mixer, heads, best, steps, seed, layers=layers)
        yield {"lr": best, "seed": seed, **shares}


def recall_run(mixer: Any, heads: int, lr: float, steps: int, seed: int, layers: int = 1) -> dict[str, float]:
    """A reader's right answers by the number of facts, after its training."""
    model = train_reader(mixer, heads=heads, lr=lr, steps=steps, seed=seed, layers=layers)
    return {f"{pairs} facts": round(recalled(model, pairs), 4) for pairs in PAIRS}
