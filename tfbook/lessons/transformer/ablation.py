"""Lesson 05's translator taken apart: each part is removed in turn, and what is left is trained anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS, Position
from tfbook.attention.masks import Causal
from tfbook.course.experiments import experiment
from tfbook.course.translators import Task, quality
from tfbook.models.blocks import Config
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text.pairs import Batches, Pair, filter_by_length
from tfbook.training.losses import translation_loss

PAGE = Config(d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS["sinusoidal"])  # at scale `cpu`
STEPS, LONGEST = 700, 10
RATES = (5e-3, 2e-3, 1e-2)  # each variant's peak is the best of these; the first is the page's

# ---- the parts that are removed --------------------------------------------------------------------------------------


class Chain(nn.Module):
    """branch(norm(x)): a residual branch without its sum."""

    def __init__(self, residual: Any):
        super().__init__()
        self.branch, self.norm = residual.branch, residual.norm

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        """Replaces x by the branch's output."""
        return self.branch(self.norm(x), **context)


class Unmasked(nn.Module):
    """Self-attention whose causal mask is taken away, so that a word sees those after it."""

    def __init__(self, attention: Any):
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, mask: Any = None, **context: Any) -> Tensor:
        """Attends to every position."""
        return self.attention(x, mask=None if isinstance(mask, Causal) else mask, **context)

    def new_cache(self) -> Any:
        """The cache of the attention."""
        return self.attention.new_cache()


class Silent(nn.Module):
    """A residual branch that adds nothing to its stream."""

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        """Zeros."""
        return torch.zeros_like(x)

    def new_cache(self) -> None:
        """None: it remembers nothing."""


def _blocks(model: Transformer) -> Iterator[Any]:
    yield from model.encoder.stack.blocks
    yield from model.decoder.stack.blocks


def _without_residuals(model: Transformer) -> None:
    for block in _blocks(model):
        for name in ("mixer", "cross", "feed_forward"):
            if getattr(block, name) is not None:
                setattr(block, name, Chain(getattr(block, name)))


def _without_norms(model: Transformer) -> None:
    for block in _blocks(model):
        for branch in (block.mixer, block.cross, block.feed_forward):
            if branch is not None:
                branch.norm = nn.Identity()


def _without_feed_forward(model: Transformer) -> None:
    for block in _blocks(model):
        block.feed_forward = nn.Identity()


def _without_mask(model: Transformer) -> None:
    for block in model.decoder.stack.blocks:
        block.mixer.branch = Unmasked(block.mixer.branch)


def _without_self_attention(model: Transformer) -> None:
    for block in _blocks(model):
        block.mixer.branch = Silent()


def _without_cross_attention(model: Transformer) -> None:
    for block in model.decoder.stack.blocks:
        block.cross.branch = Silent()


def _without_positions(model: Transformer) -> None:
    model.encoder.stack.position = model.decoder.stack.position = Position()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The page's translator, with the part that `remove` takes out of an untrained one, and its warm-up."""

    remove: Callable[[Transformer], None] = lambda model: None
    warmup: int = STEPS // 6
    blocks: int | None = None  # in each half; None: as many as the page's

    def build(self, task: Task) -> Transformer:
        """The untrained translator, on the chosen device."""
        config = replace(PAGE, layers=self.blocks or PAGE.layers)
        encoder, decoder = Encoder(len(task.source_vocab), config), Decoder(len(task.target_vocab), config)
        model = Transformer(encoder, decoder)
        self.remove(model)
        return model.to(runtime.device())

    def recipe(self, lr: float, steps: int) -> training.Recipe:
        """Adam, up a ramp and down to 0, without clipping, as on the page."""
        return training.Recipe(
            steps=steps,
            lr=lr,
            schedule=lambda step, total: min((step + 1) / self.warmup, (total - step) / (total - self.warmup)),
            betas=(0.9, 0.98),
            clip=math.inf,
            mixed_precision=False,
        )


MACHINES = {
    "the whole machine": Machine(),
    "no residuals": Machine(remove=_without_residuals),
    "no norms": Machine(remove=_without_norms),
    "no feed-forward": Machine(remove=_without_feed_forward),
    "no causal mask": Machine(remove=_without_mask),
    "no warm-up": Machine(warmup=1),
}
WITHOUT_ATTENTION = {
    "no self-attention": Machine(remove=_without_self_attention),
    "no cross-attention": Machine(remove=_without_cross_attention),
    "no positions": Machine(remove=_without_positions),
    "no feed-forward, five blocks": Machine(remove=_without_feed_forward, blocks=5),
}

# ---- stored ----------------------------------------------------------------------------------------------------------


def trained(
    machine: Machine, task: Task, pairs: Sequence[Pair], *, lr: float, seed: int, steps: int = STEPS
) -> tuple[Transformer, float]:
    """The machine after training on `pairs` in batches of 64, and its mean loss over the last twenty steps."""
    runtime.seed(seed)
    model = machine.build(task)
    batches = Batches(pairs, task.source_vocab, task.target_vocab, size=64, seed=seed)
    history = training.fit(model, translation_loss, batches, machine.recipe(lr, steps))
    return model, fmean(history.loss[-20:])


def runs(
    seeds: Sequence[int],
    rates: Sequence[float],
    *,
    machines: Mapping[str, Machine] | None = None,
    steps: int = STEPS,
) -> Iterator[tuple[dict[str, Any], Transformer]]:
    """A row and the model of each run: every machine at every rate with the first seed, then the other seeds.

    These use the rate that gave the machine the best BLEU on 200 validation sentences. The machines are `MACHINES`
    unless others are given.
    """
    machines = machines or MACHINES
    corpus = data.load("english-french")
    task, pairs = Task.of(corpus, corpus["train"]), filter_by_length(corpus["train"], 3, LONGEST)
    valid, test = (filter_by_length(corpus[split], 3, LONGEST) for split in ("valid", "test"))

    def run(name: str, lr: float, seed: int) -> tuple[dict[str, Any], Transformer]:
        model, loss = trained(machines[name], task, pairs, lr=lr, seed=seed, steps=steps)
        scores = {"valid": quality(model, valid[:200], task).bleu, "bleu": quality(model, test, task).bleu}
        row: dict[str, Any] = {"machine": name, "lr": lr, "seed": seed, "loss": round(loss, 4)}
        return row | {key: round(score, 2) for key, score in scores.items()}, model

    found = []
    for lr in rates:
        for name in machines:
            row, model = run(name, lr, seeds[0])
            found.append(row)
            yield row, model
    for seed in seeds[1:]:
        for name in machines:
            best = max((row for row in found if row["machine"] == name), key=lambda row: row["valid"])
            yield run(name, best["lr"], seed)


@experiment
def ablation(seeds: Sequence[int] = (1, 2, 3), rates: Sequence[float] = RATES) -> list[dict[str, Any]]:
    """BLEU on unseen sentences of each machine at each rate, and with more seeds at its best one."""
    return [row for row, _ in runs(seeds, rates)]


@experiment
def attentions(seeds: Sequence[int] = (1, 2, 3), rates: Sequence[float] = RATES) -> list[dict[str, Any]]:
    """The same of `WITHOUT_ATTENTION`: of each attention, of positions, and of as many weights without feed-forward."""
    return [row for row, _ in runs(seeds, rates, machines=WITHOUT_ATTENTION)]
