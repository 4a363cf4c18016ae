"""The GPT of the lesson, grown in stages: the plain layers of the page, and the runs that put a number on each stage.

Shapes: batch, n (words), heads, d_head, d_model, vocab.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime
from tfbook.course.batches import SortedBatches
from tfbook.course.experiments import experiment
from tfbook.data.stories import written
from tfbook.lessons.gpt_pretraining.attention_exercise import attend
from tfbook.lessons.gpt_pretraining.stories import judged, story_rows, training_rows
from tfbook.pretrain.storyteller import LONGEST
from tfbook.text.vocabulary import BOS, EOS, PAD
from tfbook.training.optimizers import Optimizer, adamw, muon

WIDTH, HEADS, BATCH, WARMUP = 128, 4, 16, 20

# ---- the layers of the page --------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention of some heads, with rotary positions."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch heads n d_head"]:
        """The heads' parts of each vector."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """The mixture of what all heads found."""
        return attend.reference(self, x)


class FeedForward(nn.Module):
    """A network that works on each word alone."""

    def __init__(self, d_model: int):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """Up, a nonlinearity, and down."""
        return self.down(F.gelu(self.up(x)))


class Residual(nn.Module):
    """x + branch(norm(x))."""

    def __init__(self, branch: nn.Module, d_model: int):
        super().__init__()
        self.branch, self.norm = branch, nn.LayerNorm(d_model)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """The stream, with what the branch adds to it."""
        return x + self.branch(self.norm(x))


class Added(nn.Module):
    """x + branch(x): a residual branch without its norm."""

    def __init__(self, branch: nn.Module, d_model: int):
        super().__init__()
        self.branch = branch

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """The stream, with what the branch adds to it."""
        return x + self.branch(x)


class GPT(nn.Module):
    """Layers between an embedding and the same embedding transposed."""

    def __init__(self, vocab: int, d_model: int, *layers: nn.Module):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList(layers)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n vocab"]:
        """Logits of the next word at each position."""
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return x @ self.embed.weight.T


# ---- the stages --------------------------------------------------------------------------------------------------


def block(d: int, heads: int) -> nn.Sequential:
    """Attention and a feed-forward network, each beside the residual stream."""
    return nn.Sequential(Residual(Attention(d, heads), d), Residual(FeedForward(d), d))


WITHOUT = ", without branches"  # ends the names of stages whose layers just follow each other

STAGES: dict[str, Callable[[int], Sequence[nn.Module]]] = {
    "one word": lambda d: [nn.Linear(d, d)],
    "one head": lambda d: [Attention(d, 1)],
    "residual and norm": lambda d: [Residual(Attention(d, 1), d), nn.LayerNorm(d)],
    "four heads": lambda d: [Residual(Attention(d, HEADS), d), nn.LayerNorm(d)],
    "feed-forward": lambda d: [block(d, HEADS), nn.LayerNorm(d)],
    "two blocks": lambda d: [block(d, HEADS), block(d, HEADS), nn.LayerNorm(d)],
    "two blocks, attention alone": lambda d: [*(Residual(Attention(d, HEADS), d) for _ in range(2)), nn.LayerNorm(d)],
    f"four heads{WITHOUT}": lambda d: [Attention(d, HEADS)],
    f"feed-forward{WITHOUT}": lambda d: [Attention(d, HEADS), FeedForward(d)],
    f"two blocks{WITHOUT}": lambda d: [part for _ in range(2) for part in (Attention(d, HEADS), FeedForward(d))],
}


def stage(name: str, vocab: int, d_model: int = WIDTH) -> GPT:
    """The untrained model of a stage."""
    return GPT(vocab, d_model, *STAGES[name](d_model))


def story_loss(model: nn.Module, ids: Int[Tensor, "batch time"]) -> Tensor:
    """The mean loss of all words but the first of each story."""
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)


def optimizer_of(name: str, model: nn.Module, lr: float) -> Optimizer:
    """Muon for the matrices of the layers and AdamW for the rest, or AdamW for all."""
    if name == "Muon":
        return muon(model, lr=lr, momentum=0.9, betas=(0.9, 0.99), weight_decay=0.0, rms=0.2)
    return adamw(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)


def fit(model: nn.Module, optimizer: Optimizer, lr: float, batches: Callable[[int], Tensor], steps: int) -> None:
    """The loop of the page."""
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / steps)) / 2
        loss = story_loss(model, batches(step))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


# ---- stored: every stage, with tuned rates and three seeds -------------------------------------------------------

STEPS, HELD_OUT, SAMPLES = 600, 100, 100
SEEDS = (1, 2, 3)
RATES = {"Muon": (0.01, 0.02, 0.04), "AdamW": (0.005, 0.01, 0.02)}
RUNGS = (*((name, "Muon") for name in STAGES), ("two blocks", "AdamW"))


@experiment
def ladder(rungs: Sequence[tuple[str, str]] = RUNGS, *, steps: int = STEPS) -> list[dict[str, Any]]:
    """Each stage with its best learning rate, which seed 1 chose by the loss on stories held out.

    Rates are tried by factors of two until the best is neither the lowest nor the highest. Stories are judged for it.
    """
    return [row for name, optimizer in rungs for row in rung(name, optimizer, steps)]


def rung(name: str, optimizer: str, steps: int) -> list[dict[str, Any]]:
    """The rows of one stage: all rates with the first seed, and the best rate with the others."""
    tried = {lr: _run(name, optimizer, lr, SEEDS[0], steps) for lr in RATES[optimizer]}
    while (best := _best(tried)) in (min(tried), max(tried)):  # a better one may lie beyond
        beyond = best / 2 if best == min(tried) else 2 * best
        tried[beyond] = _run(name, optimizer, beyond, SEEDS[0], steps)
    others = [_run(name, optimizer, best, seed, steps) for seed in SEEDS[1:]]
    judged_rows = [row | _stories(model) | {"best": True} for model, row in (tried.pop(best), *others)]
    return [*judged_rows, *(row | {"best": False} for _, row in tried.values())]


def _best(tried: Mapping[float, tuple[GPT, dict[str, Any]]]) -> float:
    return lowest({lr: row["loss"] for lr, (_, row) in tried.items()})


def lowest(losses: Mapping[float, float]) -> float:
    """The learning rate with the lowest loss; one that diverged to NaN has none."""
    return min(losses, key=lambda lr: losses[lr] if math.isfinite(losses[lr]) else math.inf)


def _run(name: str, optimizer: str, lr: float, seed: int, steps: int) -> tuple[GPT, dict[str, Any]]:
    model = trained_on_stories(STAGES[name], optimizer, lr, seed, steps)
    loss = loss_on_others(model)
    return model, {"stage": name, "optimizer": optimizer, "lr": lr, "seed": seed, "loss": round(loss, 4)}


def trained_on_stories(
    layers: Callable[[int], Sequence[nn.Module]], optimizer: str, lr: float, seed: int, steps: int
) -> GPT:
    """A new model with these layers, after the lesson's training from this seed."""
    vocab, batches = len(data.load("stories").vocabulary), SortedBatches(training_rows(), size=BATCH, seed=seed)
    runtime.seed(seed)
    model = GPT(vocab, WIDTH, *layers(WIDTH)).to(runtime.device())
    fit(model, optimizer_of(optimizer, model, lr), lr, batches, steps)
    return model


def loss_on_others(model: nn.Module) -> float:
    """The mean loss per word on stories held out."""
    corpus = data.load("stories")
    return _held_out_loss(model, story_rows(corpus["valid"][:HELD_OUT], corpus.vocabulary))


@torch.no_grad()
def _held_out_loss(model: nn.Module, rows: Sequence[Tensor]) -> float:
    ids = pad_sequence(list(rows), batch_first=True, padding_value=PAD).to(runtime.device())
    return float(story_loss(model, ids))


def _stories(model: GPT) -> dict[str, Any]:
    """Shares of right stories, and the first of them."""
    texts = written_by(model, SAMPLES)
    return {name: round(share, 4) for name, share in judged(texts).items()} | {"sample": written(texts[0])}


@torch.no_grad()
def written_by(model: nn.Module, count: int, *, temperature: float = 0.7, seed: int = 0) -> list[list[str]]:
    """Stories by a model of the page, word by word, cut where the storyteller's are."""
    vocabulary, device = data.load("stories").vocabulary, runtime.device()
    generator = torch.Generator(device).manual_seed(seed)
    ids = torch.full((count, 1), BOS, device=device)
    while ids.shape[1] < LONGEST and not (ids == EOS).any(dim=1).all():
        logits = model(ids)[:, -1] / temperature
        logits[:, [PAD, BOS]] = -math.inf
        ids = torch.cat([ids, torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)], dim=1)
    return [list(vocabulary.decode(row)) for row in ids]


# ---- stored: the norm, the sum, or both ------------------------------------------------------------------------------

SHORT = 60  # steps, as in the stages of the page
BRANCHES: dict[str, Callable[[nn.Module, int], nn.Module]] = {
    "neither": lambda branch, d: branch,
    "sum alone": Added,
    "norm alone": lambda branch, d: nn.Sequential(nn.LayerNorm(d), branch),
    "both": Residual,
}


@experiment
def branches(depths: Sequence[int] = (1, 2), *, steps: int = SHORT) -> list[dict[str, Any]]:
    """Layers of one head in each kind of branch and a norm at the end, at the best of three rates for seed 1."""
    return [row for depth in depths for kind in BRANCHES for row in _branches_of(kind, depth, steps)]


def _branches_of(kind: str, depth: int, steps: int) -> list[dict[str, Any]]:
    def layers(d: int) -> list[nn.Module]:
        return [*(BRANCHES[kind](Attention(d, 1), d) for _ in range(depth)), nn.LayerNorm(d)]

    def loss(lr: float, seed: int) -> float:
        return loss_on_others(trained_on_stories(layers, "Muon", lr, seed, steps))

    tried = {lr: loss(lr, SEEDS[0]) for lr in RATES["Muon"]}
    best = lowest(tried)
    losses = [tried[best], *(loss(best, seed) for seed in SEEDS[1:])]
    same = {"branch": kind, "layers": depth, "lr": best}
    return [same | {"seed": seed, "loss": round(value, 4)} for seed, value in zip(SEEDS, losses, strict=True)]


# ---- stored: memorized -------------------------------------------------------------------------------------------

FEW, AT_ONCE = 100, 20  # stories, and how many in a batch, so that an epoch reads all of them
EVERY, READINGS = 40, 80  # steps between evaluations, and epochs
EARLY = (5, 10, 15, 20, 30)  # steps at which the losses are looked at as well


@experiment
def overfit(*, steps: int = READINGS * FEW // AT_ONCE, seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """The model of two blocks on 100 stories, read again and again: losses on these and on others, and how many of its
    stories stand in the text word for word."""
    corpus = data.load("stories")
    known = corpus["train"][:FEW]
    train, valid = (story_rows(part, corpus.vocabulary) for part in (known, corpus["valid"][:HELD_OUT]))
    found = []
    for seed in seeds:
        runtime.seed(seed)
        model = stage("two blocks", len(corpus.vocabulary)).to(runtime.device())
        curve: list[dict[str, float]] = []
        batches = SortedBatches(train, size=AT_ONCE, seed=seed)

        def watched(step: int, model: GPT = model, curve: list = curve, batches: SortedBatches = batches) -> Tensor:
            if step % EVERY == 0 or step in EARLY:
                losses = {"train": _held_out_loss(model, train), "held out": _held_out_loss(model, valid)}
                curve.append({"step": step} | {name: round(loss, 4) for name, loss in losses.items()})
            return batches(step)

        fit(model, optimizer_of("Muon", model, 0.02), 0.02, watched, steps)
        watched(steps)
        texts = written_by(model, SAMPLES)
        recited = sum(written(words) in known for words in texts) / len(texts)
        found.append({"seed": seed, "curve": curve, "recited": recited})
    return found
