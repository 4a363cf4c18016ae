"""Six scores in one associative memory and in a recurrent translator; what width, norm and √d do to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import SCORES, GeneralScore, LocationScore, Score
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import in_turns, kept_bytes, parameters
from tfbook.course.experiments.summaries import Curve, bands
from tfbook.course.experiments.translators import Task, alignment_error, quality, trained
from tfbook.models.seq2seq import Annotations, DecoderState, LuongDecoder, RecurrentDecoder, Seq2SeqConfig
from tfbook.text.pairs import filter_by_length

if TYPE_CHECKING:
    from pandas import DataFrame

PAIRS, WIDTH, NOISE = 16, 16, 0.5  # of a memory: how many pairs, how wide its keys, how inexact the question


# ---- an associative memory: pairs of a key and a value, and a question -------------------------------------------


@dataclass(frozen=True)
class Recall:
    """A batch of memories, each with a question. The values of a memory are 0 … pairs − 1 in random order."""

    query: Float[Tensor, "batch d"]
    keys: Float[Tensor, "batch pair d"]
    values: Int[Tensor, "batch pair"]
    answer: Int[Tensor, " batch"]

    def to(self, device: torch.device | str) -> Recall:
        """The same on another device."""
        return Recall(*(part.to(device) for part in vars(self).values()))


Relation = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]  # keys, place → query, keys


def _at(place: Tensor, rows: Tensor) -> Tensor:
    """The row of each memory at its place."""
    return rows[torch.arange(len(rows)), place]


@cache
def _turn(width: int) -> Float[Tensor, "d d"]:
    """A fixed rotation (with or without a reflection), the same in every memory."""
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(width)))[0]


@cache
def _codes(width: int) -> Float[Tensor, "place d"]:
    """A fixed random vector for each place of a memory."""
    return torch.randn(1024, width, generator=torch.Generator().manual_seed(width))


def _same(keys: Tensor, place: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(place, keys), keys


def _stretched(keys: Tensor, place: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(place, keys), keys * torch.exp(torch.randn(*keys.shape[:2], 1, generator=generator))


def _turned(keys: Tensor, place: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(place, keys) @ _turn(keys.shape[-1]).T, keys


def _squared(keys: Tensor, place: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(place, keys**2 - 1), keys


def _place(keys: Tensor, place: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _codes(keys.shape[-1])[place], keys


def _marked(keys: Tensor, place: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    codes = _codes(keys.shape[-1])
    return codes[place], keys + codes[: keys.shape[1]]


RELATIONS: dict[str, Relation] = {
    "same": _same,  # the query is the key
    "stretched": _stretched,  # every key has a length of its own, from about 1/7 to 7 times as long
    "turned": _turned,  # the query is the key in other coordinates
    "squared": _squared,  # the query has the squares of the key's entries, and so not their signs
    "place": _place,  # the query names a place
    "marked place": _marked,  # the query names a place, and every key has the code of its place added
}


def recall(relation: str, *, seed: int, pairs: int = PAIRS, width: int = WIDTH, rows: int = 128) -> Recall:
    """Fresh memories with a noisy question each; the keys are normal random vectors that no training has seen."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(rows, pairs, width, generator=generator)
    place = torch.randint(pairs, (rows,), generator=generator)
    query, keys = RELATIONS[relation](keys, place, generator)
    values = torch.rand(rows, pairs, generator=generator).argsort(dim=1)
    noise = NOISE * torch.randn(query.shape, generator=generator)
    return Recall(query + noise, keys, values, _at(place, values))


class Recaller(nn.Module):
    """p(value) = Σ_j α_j [value of pair j] with α = softmax_j score(query, key_j). Nothing but the score is learned."""

    def __init__(self, score: nn.Module):
        super().__init__()
        self.score = score

    def forward(self, batch: Recall) -> Float[Tensor, "batch value"]:
        """The probability of each value."""
        weights = masked_softmax(self.score(batch.query[:, None], self.score.project(batch.keys)), None)
        return (weights.float() @ F.one_hot(batch.values).float())[:, 0]


def recall_loss(model: Recaller, batch: Recall) -> Float[Tensor, ""]:
    """Mean −log p(answer) in nats; a probability that rounds to 0 counts as 1e-9."""
    found = model(batch).gather(1, batch.answer[:, None])
    return -(found + 1e-9).log().mean()


def learn(score: nn.Module, relation: str, *, steps: int, seed: int = 1, **config: int) -> Recaller:
    """Trains the score's parameters, if it has any, on fresh memories at every step."""
    model = Recaller(score).to(runtime.device())
    if list(score.parameters()):
        schedule = training.warmup_cosine(30)
        recipe = training.Recipe(steps=steps, lr=1e-2, schedule=schedule, mixed_precision=False)  # a loss of log p
        training.fit(model, recall_loss, lambda step: recall(relation, seed=10**6 * seed + step, **config), recipe)
    return model


@torch.no_grad()
def accuracy(model: Recaller, relation: str, *, seed: int = 1, **config: int) -> float:
    """Share of 2,000 unseen memories whose most probable value is the answer; chance is 1 / pairs."""
    batch = recall(relation, seed=10**6 * (seed + 1) - 1, rows=2000, **config).to(runtime.device())
    return float((model(batch).argmax(dim=1) == batch.answer).float().mean())


def make(name: str, *, width: int = WIDTH, pairs: int = PAIRS) -> nn.Module:
    """The score called `name`, all three widths equal; a location score has exactly as many places as `pairs`."""
    kind = type("LocationScore", (LocationScore,), {"longest": pairs}) if name == "location" else SCORES[name]
    return kind(width, width, width)


def recall_table(relations: Sequence[str], *, steps: int, seed: int = 1) -> dict[str, dict[str, float]]:
    """Accuracy of each of the six scores on each relation, each trained by itself: score → relation → share."""
    found: dict[str, dict[str, float]] = {}
    for name in SCORES:
        found[name] = {}
        for relation in relations:
            runtime.seed(seed)
            model = learn(make(name), relation, steps=steps, seed=seed)
            found[name][relation] = accuracy(model, relation, seed=seed)
    return found


# ---- what a score costs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Parameters of a score; its time ÷ that of the cheapest score; bytes kept for the backward pass."""

    parameters: int
    time: float
    kept: int


def costs(*, pairs: int, width: int, rows: int = 8, rounds: int = 5) -> dict[str, Cost]:
    """Every query against every key, softmax, mixture and gradient, with as many queries as keys, for all six scores.

    The scores take turns in `rounds` rounds after one to warm up; a time is the median of its ratios.
    """
    inputs = [torch.randn(rows, pairs, width, device=runtime.device(), requires_grad=True) for _ in range(2)]
    scores = {name: make(name, width=width, pairs=pairs).to(runtime.device()) for name in SCORES}

    def attend(score: nn.Module) -> Tensor:
        query, keys = inputs
        return (masked_softmax(score(query, score.project(keys)), None) @ keys).sum()

    seconds = in_turns({name: lambda score=score: attend(score).backward() for name, score in scores.items()}, rounds)
    cheapest = min(seconds.values(), key=median)
    return {
        name: Cost(
            parameters=parameters(score),
            time=median(t / c for t, c in zip(seconds[name], cheapest, strict=True)),
            kept=kept_bytes(score, partial(attend, score)),
        )
        for name, score in scores.items()
    }


# ---- keys and queries that are made to match ---------------------------------------------------------------------


class ProjectedScore(Score):
    """score(q, k) = f(q)ᵀ g(k) / √d_score. Linear f and g make it (W₁ q)ᵀ (W₂ k): a W = W₁ᵀ W₂ of rank d_score."""

    def __init__(self, d_query: int, d_key: int, d_score: int, hidden: int | None = None):
        super().__init__(d_query, d_key, d_score)
        self.f, self.g = self._map(d_query, d_score, hidden), self._map(d_key, d_score, hidden)

    @staticmethod
    def _map(d_in: int, d_out: int, hidden: int | None) -> nn.Module:
        if hidden is None:
            return nn.Linear(d_in, d_out, bias=False)
        return nn.Sequential(nn.Linear(d_in, hidden), nn.GELU(), nn.Linear(hidden, d_out))

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_score"]:
        """g of every key."""
        return self.g(keys)

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_score"]
    ) -> Float[Tensor, "batch query key"]:
        """The scaled dot product of every f(q) and every g(k)."""
        return super().forward(self.f(query) / math.sqrt(projected.shape[-1]), projected)


def by_key_width(widths: Sequence[int], *, steps: int) -> dict[int, float]:
    """Accuracy on turned keys when the score sees queries and keys through as many numbers as each of `widths`."""
    found = {}
    for d_score in widths:
        runtime.seed(1)
        found[d_score] = accuracy(learn(ProjectedScore(WIDTH, WIDTH, d_score), "turned", steps=steps), "turned")
    return found


# ---- √d, temperature and norm ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A softmax over scores of random queries and keys, in the mean: variance of the scores, entropy, gradient."""

    width: int
    variance: float
    entropy: float  # in nats
    gradient: float  # Frobenius norm of ∂ weights / ∂ scores


def spread(width: int, *, scaled: bool, keys: int = 32, rows: int = 1000, seed: int = 1) -> Spread:
    """Draws queries and keys with independent standard normal entries and looks at the softmax of their products."""
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(rows, 1, width, generator=generator), torch.randn(rows, keys, width, generator=generator)
    scores = (query @ key.mT)[:, 0] / (math.sqrt(width) if scaled else 1)
    weights = torch.softmax(scores, dim=-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
    return Spread(
        width=width,
        variance=float(scores.var()),
        entropy=float(torch.special.entr(weights).sum(dim=-1).mean()),
        gradient=float(torch.linalg.matrix_norm(jacobian).mean()),
    )


# ---- stored: recall as memories and keys grow --------------------------------------------------------------------

LENGTHS, WIDTHS = (4, 8, 16, 32, 64), (4, 8, 16, 32, 64)


@experiment
def growth(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 300) -> list[dict[str, Any]]:
    """Accuracy of each score where query and key are the same but for noise, by length of memory and by width.

    Each width is a training of its own; the lengths are tests of one score that was trained on `PAIRS` pairs.
    """
    rows = []
    for seed in seeds:
        for name in SCORES:
            runtime.seed(seed)
            model = learn(make(name, pairs=max(LENGTHS)), "same", steps=steps, seed=seed)
            found = {f"{n} pairs": accuracy(model, "same", seed=seed, pairs=n) for n in LENGTHS}
            for width in WIDTHS:
                runtime.seed(seed)
                model = learn(make(name, width=width), "same", steps=steps, seed=seed, width=width)
                found[f"width {width}"] = accuracy(model, "same", seed=seed, width=width)
            rows.append({"score": name, "seed": seed, **{key: round(value, 4) for key, value in found.items()}})
    return rows


def growth_curves(frame: DataFrame, unit: str, config: Sequence[int]) -> dict[str, Curve]:
    """Mean accuracy over seeds at each of `config`, with half the range; `unit` is "{} pairs" or "width {}".

    Location, which guesses, and scaled dot, which finds what dot finds, are left out.
    """
    shown = frame[frame["score"].isin(["additive", "general", "dot", "cosine"])]
    columns = {unit.format(size): size for size in config}
    points = shown.rename(columns=columns).melt("score", config, var_name="size", value_name="accuracy")
    return bands(points, "score", "size", "accuracy")


# ---- stored: every score in a recurrent translator ---------------------------------------------------------------


class ScaledGeneralScore(GeneralScore):
    """score(q, k) = qᵀ W k / √d_query: the general score at the temperature of the scaled dot product."""

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_query"]
    ) -> Float[Tensor, "batch query key"]:
        """The general score over √d_query."""
        return super().forward(query, projected) / math.sqrt(query.shape[-1])


class HeadedDecoder(LuongDecoder):
    """Attends several times at once: each head compares its part of q and W k, and mixes its part of the values h."""

    heads = 4

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config, ScaledGeneralScore)

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """As Luong's, once for each head; the weights shown are the heads' mean."""
        hidden, _ = self.gru(words, state.hidden[None].contiguous())
        contexts, shown = [], []
        parts = (tensor.chunk(self.heads, dim=-1) for tensor in (hidden, state.keys, memory.states))
        for query, keys, values in zip(*parts, strict=True):
            weights = masked_softmax(self.score(query, keys), memory.mask[:, None])
            contexts.append(weights @ values)
            shown.append(weights)
        return hidden, torch.cat(contexts, dim=-1), torch.stack(shown).mean(dim=0)


TRANSLATORS: dict[str, Callable[[Seq2SeqConfig], RecurrentDecoder]] = {
    **{name: partial(LuongDecoder, score=score) for name, score in SCORES.items()},
    "general / √d": partial(LuongDecoder, score=ScaledGeneralScore),
    "general / √d, 4 heads": HeadedDecoder,
}


@experiment
def scores(seeds: Sequence[int] = (1, 2), *, width: int = 128, steps: int = 400) -> list[dict[str, Any]]:
    """A recurrent translator in Luong's order with each score: BLEU, alignment error, loss and seconds of training.

    Sentences of training have up to 20 words; `long` is the BLEU of sentences of 21 to 30. Each direction of the
    encoder is half as wide as the decoder, so that states and annotations can be multiplied.
    """
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    return [
        {"score": name, "seed": seed, **_translate(decoder, task, seed, width, steps)}
        for seed in seeds
        for name, decoder in TRANSLATORS.items()
    ]


def _translate(
    decoder: Callable[[Seq2SeqConfig], RecurrentDecoder], task: Task, seed: int, width: int, steps: int
) -> dict[str, float]:
    config: dict[str, Any] = {"width": width, "d_encoder": width // 2}
    model, history = trained(decoder, seed, task, task.corpus["train"], **config, steps=steps, dropout=0.0)
    test = task.corpus["test"][:500]
    return {
        "parameters": parameters(model.decoder.score),
        "seconds": round(history.seconds[-1], 1),
        "loss": round(mean(history.loss[-20:]), 4),
        "bleu": round(quality(model, test, task).bleu, 2),
        "long": round(quality(model, filter_by_length(task.corpus["long"], 21, 30)[:250], task).bleu, 2),
        "alignment error": round(alignment_error(model, test, task), 4),
    }
