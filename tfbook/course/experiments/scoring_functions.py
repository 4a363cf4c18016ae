"""Six scores in one associative memory and in a recurrent translator; what width, norm and √d do to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import SCORES, GeneralScore, LocationScore, Score
from tfbook.course.claims import Bound, Claims
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import in_turns, kept_bytes, parameters
from tfbook.course.experiments.scoring_drawings import draw_accuracies as draw_accuracies
from tfbook.course.experiments.scoring_drawings import draw_collapse as draw_collapse
from tfbook.course.experiments.scoring_drawings import draw_costs as draw_costs
from tfbook.course.experiments.scoring_drawings import draw_early_maps as draw_early_maps
from tfbook.course.experiments.scoring_drawings import draw_failure as draw_failure
from tfbook.course.experiments.scoring_drawings import draw_growth as draw_growth
from tfbook.course.experiments.scoring_drawings import draw_recall as draw_recall
from tfbook.course.experiments.scoring_drawings import draw_soft_dictionary as draw_soft_dictionary
from tfbook.course.experiments.scoring_drawings import draw_temperature as draw_temperature
from tfbook.course.experiments.scoring_drawings import draw_towers
from tfbook.course.experiments.scoring_drawings import draw_widths as draw_widths
from tfbook.course.experiments.summaries import mean_and_range, ranges
from tfbook.course.experiments.translators import Task, alignment_error, forced_weights, quality
from tfbook.models.seq2seq import (
    Annotations,
    DecoderState,
    LuongDecoder,
    RecurrentDecoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.text.pairs import Batches, Pair, filter_by_length
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame

    from tfbook.course.experiments.scoring_drawings import Picture

PAIRS, WIDTH, NOISE = 16, 16, 0.5  # of a memory: how many pairs, how wide its keys, how inexact the question


CLAIMS = Claims(
    "scoring_functions",
    {
        1: Bound(
            "Where content decides, the location score is no better than guessing (its best accuracy; guessing has 6%)",
            "<=",
            0.12,
            "Luong et al. (2015), section 3.1",
        ),
        2: Bound(
            "Where the place decides, the location score finds it and all others guess (its lead in accuracy)",
            ">=",
            0.8,
            "measured here, 16 pairs",
        ),
        3: Bound(
            "Where keys are rescaled at random, cosine is the most accurate score (its lead over the next)",
            ">=",
            0.1,
            "Graves et al. (2014), section 3.3.1",
        ),
        4: Bound(
            "A learned matrix matches rotated keys, which a plain dot product cannot (difference in accuracy)",
            ">=",
            0.7,
            "Luong et al. (2015), section 3.1",
        ),
        5: Bound(
            "The additive score learns a relation that no matrix can express (its lead over the general score)",
            ">=",
            0.2,
            "Bahdanau et al. (2015), A.1.2",
        ),
        6: Bound(
            "The variance of q·k is the width d (largest relative error over five widths)",
            "<=",
            0.1,
            "Vaswani et al. (2017), footnote 4",
        ),
        7: Bound(
            "After 15 steps, the unscaled general score looks at far fewer words than the scaled one (ratio)",
            "<=",
            0.5,
            "Stored result, scoring_functions.collapse; width 128",
        ),
        8: Bound(
            "Dividing the general score by √d improves the translator (worst seed with it minus best seed without)",
            ">=",
            15,
            "Stored result, scoring_functions.collapse; width 128",
            " BLEU",
        ),
        9: Bound(
            "The additive score keeps many times as much memory for the backward pass as a dot product",
            ">=",
            15,
            "Vaswani et al. (2017), section 3.2.1, compare the two",
            " ×",
        ),
    },
)

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
def turn(width: int) -> Float[Tensor, "d d"]:
    """The fixed rotation (with or without a reflection) of the relation "turned", the same in every memory."""
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
    return _at(place, keys) @ turn(keys.shape[-1]).T, keys


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


def recall_loss(model: nn.Module, batch: Recall) -> Float[Tensor, ""]:
    """Mean −log p(answer) in nats; a probability that rounds to 0 counts as 1e-9."""
    found = model(batch).gather(1, batch.answer[:, None])
    return -(found + 1e-9).log().mean()


def learn(score: nn.Module, relation: str, *, steps: int, seed: int = 1, lr: float = 1e-2, **config: int) -> Recaller:
    """Trains the score's parameters, if it has any, on fresh memories at every step."""
    model = Recaller(score).to(runtime.device())
    if list(score.parameters()):
        _fit(model, relation, steps=steps, seed=seed, lr=lr, **config)
    return model


def _fit(model: nn.Module, relation: str, *, steps: int, seed: int, lr: float, **config: int) -> None:
    schedule = training.warmup_cosine(30)
    recipe = training.Recipe(steps=steps, lr=lr, schedule=schedule, mixed_precision=False)  # a loss of log p
    training.fit(model, recall_loss, lambda step: recall(relation, seed=10**6 * seed + step, **config), recipe)


@torch.no_grad()
def accuracy(model: nn.Module, relation: str, *, seed: int = 1, **config: int) -> float:
    """Share of 2,000 unseen memories whose most probable value is the answer; chance is 1 / pairs."""
    batch = recall(relation, seed=10**6 * (seed + 1) - 1, rows=2000, **config).to(runtime.device())
    return float((model(batch).argmax(dim=1) == batch.answer).float().mean())


def make(name: str, *, width: int = WIDTH, pairs: int = PAIRS) -> nn.Module:
    """The score called `name`, all three widths equal; a location score has exactly as many places as `pairs`."""
    kind = type("LocationScore", (LocationScore,), {"longest": pairs}) if name == "location" else SCORES[name]
    return kind(width, width, width)


def package_score(name: str) -> Callable[..., Tensor]:
    """tfbook's score as a function of queries, keys and the learned numbers of the lesson's formula, in its order."""

    def score(query: Tensor, keys: Tensor, *weights: Tensor) -> Tensor:
        made = _with_weights(name, query.shape[-1], keys.shape[-1], *weights)
        return made(query, made.project(keys))

    score.__name__ = SCORES[name].__name__
    return score


def _with_weights(name: str, d_query: int, d_key: int, *weights: Tensor) -> Any:
    if name == "additive":
        W, U, b, v = weights
        made: Any = SCORES[name](d_query, d_key, len(v))
        state = {"W.weight": W.T, "U.weight": U.T, "U.bias": b, "v.weight": v[None]}
    elif name == "location":
        made = make(name, width=d_query, pairs=len(weights[0]))
        state = {"W.weight": weights[0]}
    else:
        made = SCORES[name](d_query, d_key, d_query)
        state = dict(
            zip(made.state_dict(), [weight.log() if name == "cosine" else weight for weight in weights], strict=True)
        )
    made.load_state_dict(state)
    return made


def draw_meeting(names: Sequence[str], query: Tensor, keys: Tensor, learned: Mapping[str, Sequence[Tensor]]) -> Picture:
    """The six scores of one query and a few keys, drawn as six towers, with the learned numbers of each."""
    inputs = query[None, None], keys[None]
    scores = {name: package_score(name)(*inputs, *weights)[0, 0].detach() for name, weights in learned.items()}
    return draw_towers(names, query, keys, learned, scores)


def train_lookup(look_up: Callable[..., Any], *, steps: int, relation: str = "turned") -> None:
    """Trains the W of a learner's `look_up(query, keys, values, W)` and prints its accuracy before and after."""
    model = _Learners(look_up)
    if not isinstance(model(recall(relation, seed=0)), Tensor):
        print(f"○ write {look_up.__name__} first, then run this cell again")
        return
    before = accuracy(model, relation)
    _fit(model, relation, steps=steps, seed=0, lr=1e-2)
    print(f"right before training {before:.0%}, after {accuracy(model, relation):.0%}; guessing {1 / PAIRS:.0%}")


class _Learners(nn.Module):
    """A recaller whose whole lookup is a learner's function."""

    def __init__(self, look_up: Callable[..., Any]):
        super().__init__()
        self.look_up = look_up
        self.W = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)) / math.sqrt(WIDTH))

    def forward(self, batch: Recall) -> Any:
        """What the function returns for values as one-hot vectors: the probability of each."""
        return self.look_up(batch.query, batch.keys, F.one_hot(batch.values).float(), self.W)


# ---- stored: every score on every relation, all tuned alike --------------------------------------------------------

RECALL_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # learning rates among which each score has its best


@experiment
def relations(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 600) -> list[dict[str, Any]]:
    """Accuracy of each of the six scores on each relation, at the learning rate that is best for it with seed 0."""
    return [
        {"score": name, "relation": relation, **row}
        for name in SCORES
        for relation in RELATIONS
        for row in _tuned_recall(partial(make, name), relation, seeds, steps)
    ]


def _tuned_recall(
    build: Callable[[], nn.Module], relation: str, seeds: Sequence[int], steps: int
) -> Iterator[dict[str, Any]]:
    """Accuracy on unseen memories for each seed; a score without parameters is not trained."""

    def judged(seed: int, lr: float) -> float:
        runtime.seed(seed)
        return round(accuracy(learn(build(), relation, steps=steps, seed=seed, lr=lr), relation, seed=seed), 4)

    rates = RECALL_RATES if parameters(build()) else RECALL_RATES[:1]
    best = max(rates, key=lambda lr: judged(0, lr))
    for seed in seeds:
        yield {"seed": seed, "lr": best, "accuracy": judged(seed, best)}


# ---- what a score costs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Parameters of a score, least seconds of a pass forward and backward, bytes kept for the backward pass."""

    parameters: int
    seconds: float
    kept: int


def costs(*, pairs: int, width: int, rows: int = 8, rounds: int = 5) -> dict[str, Cost]:
    """Every query against every key, softmax, mixture and gradient, with as many queries as keys, for all six scores.

    The scores take turns in `rounds` rounds after one to warm up.
    """
    inputs = [torch.randn(rows, pairs, width, device=runtime.device(), requires_grad=True) for _ in range(2)]
    scores = {name: make(name, width=width, pairs=pairs).to(runtime.device()) for name in SCORES}

    def attend(score: nn.Module) -> Tensor:
        query, keys = inputs
        return (masked_softmax(score(query, score.project(keys)), None) @ keys).sum()

    seconds = in_turns({name: lambda score=score: attend(score).backward() for name, score in scores.items()}, rounds)
    return {
        name: Cost(
            parameters=parameters(score),
            seconds=min(seconds[name]),
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


SIZES: dict[str, Callable[[], nn.Module]] = {  # two sizes of both, with about as many parameters
    "additive, width 16": lambda: SCORES["additive"](WIDTH, WIDTH, 16),
    "network before dot, hidden 8": lambda: ProjectedScore(WIDTH, WIDTH, 16, 8),
    "additive, width 125": lambda: SCORES["additive"](WIDTH, WIDTH, 125),
    "network before dot, hidden 64": lambda: ProjectedScore(WIDTH, WIDTH, 16, 64),
}


@experiment
def nonlinear(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 600, pairs: int = 256) -> list[dict[str, Any]]:
    """The additive score and a dot product behind small networks on *squared*, at equal parameters, each tuned.

    `kept` are the bytes that `pairs` queries against as many keys keep for the backward pass.
    """
    rows = []
    for name, build in SIZES.items():
        score, inputs = build(), [torch.randn(1, pairs, WIDTH) for _ in range(2)]
        kept = kept_bytes(score, lambda: score(inputs[0], score.project(inputs[1])).sum())  # noqa: B023
        size = {"score": name, "parameters": parameters(score), "kept": kept}
        rows += [size | row for row in _tuned_recall(build, "squared", seeds, steps)]
    return rows


# ---- √d, temperature and norm ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A softmax over scores of random queries and keys: variance of the scores, mean entropy, median gradient."""

    width: int
    variance: float
    entropy: float  # in nats
    gradient: float  # Frobenius norm of ∂ weights / ∂ scores

    @property
    def looked_at(self) -> float:
        """The effective number of keys: as many keys with equal weights have this entropy."""
        return math.exp(self.entropy)


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
        gradient=float(torch.linalg.matrix_norm(jacobian).median()),
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


# ---- stored: every score in a recurrent translator ---------------------------------------------------------------


class ScaledGeneralScore(GeneralScore):
    """score(q, k) = qᵀ W k / √d_query: the general score at the temperature of the scaled dot product."""

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_query"]
    ) -> Float[Tensor, "batch query key"]:
        """The general score over √d_query."""
        return super().forward(query, projected) / math.sqrt(query.shape[-1])


class EqualScore(Score):
    """score(q, k) = 0 for every key: equal weights, so the context is the average of the states. A trivial baseline."""

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_key"]
    ) -> Float[Tensor, "batch query key"]:
        """Zeros."""
        return query.new_zeros(*query.shape[:2], projected.shape[1])


class HeadedDecoder(LuongDecoder):
    """Attends several times at once: each head compares its part of q and W k, and mixes its part of the values h."""

    heads = 4
    shown: int | None = None  # the head whose weights are returned; None: the mean of all

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config, ScaledGeneralScore)

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """As Luong's, once for each head."""
        hidden, _ = self.gru(words, state.hidden[None].contiguous())
        contexts, weights = [], []
        parts = (tensor.chunk(self.heads, dim=-1) for tensor in (hidden, state.keys, memory.states))
        for query, keys, values in zip(*parts, strict=True):
            weights.append(masked_softmax(self.score(query, keys), memory.mask[:, None]))
            contexts.append(weights[-1] @ values)
        shown = torch.stack(weights).mean(dim=0) if self.shown is None else weights[self.shown]
        return hidden, torch.cat(contexts, dim=-1), shown


HEADS, EQUAL = "general / √d, 4 heads", "equal weights"
TRANSLATORS: dict[str, Callable[[Seq2SeqConfig], RecurrentDecoder]] = {
    **{name: partial(LuongDecoder, score=score) for name, score in SCORES.items()},
    "general / √d": partial(LuongDecoder, score=ScaledGeneralScore),
    EQUAL: partial(LuongDecoder, score=EqualScore),
    HEADS: HeadedDecoder,
}
RATES = (3e-3, 1e-2, 3e-2)  # learning rates among which each score has its best
PAIR_OF_SCORES = ("general", "general / √d")
LONGEST, BATCH = 10, 64  # words in a sentence of training; sentences in a batch
WATCHED, DRAWN = 64, (0, 15, 400)  # validation sentences that are watched; steps at which one of them is drawn
LOOKS = ("words", "right", "end")
EXAMPLE = ("there", "was", "a", "strong", "black", "cat", ".")


@experiment
def translators(seeds: Sequence[int] = (1, 2, 3), *, width: int = 128, steps: int = 400) -> list[dict[str, Any]]:
    """A small recurrent translator in Luong's order with each score; `collapse` has the general ones.

    Sentences of training have 3 to 10 words, `long` is the BLEU of sentences of 11 to 20. Each direction of the encoder
    is half as wide as the decoder, so that states and annotations can be multiplied. Each score has the learning rate
    that is best for it with seed 0, by BLEU on validation sentences.
    """
    names = [name for name in TRANSLATORS if name not in PAIR_OF_SCORES]
    return [row for name in names for row in _tuned(name, seeds, width, steps)]


@experiment
def collapse(
    seeds: Sequence[int] = (1, 2, 3), *, widths: Sequence[int] = (16, 32, 64, 128), steps: int = 400
) -> list[dict[str, Any]]:
    """The translators of `translators` with the general score and with the same over √d, by width.

    `curve` has the step, how many words the weights look at (the exponential of their entropy), and which shares of the
    weight lie on words that the true alignment allows and on `<eos>`, on validation sentences. `example` has the maps
    of one sentence at the steps `DRAWN`; the last column is `<eos>`.
    """
    return [row for width in widths for name in PAIR_OF_SCORES for row in _tuned(name, seeds, width, steps, curve=True)]


def _tuned(name: str, seeds: Sequence[int], width: int, steps: int, *, curve: bool = False) -> Iterator[dict[str, Any]]:
    """A translator for each seed at the best of `RATES`; `tried` has the BLEU of seed 0 at each of them."""
    corpus = data.load("english-french")
    task = Task.of(corpus, filter_by_length(corpus["train"], 3, LONGEST))
    tried = {lr: _translate(name, task, 0, lr, width, steps, curve=False)["valid"] for lr in RATES}
    best = max(tried, key=tried.__getitem__)
    for seed in seeds:
        made = _translate(name, task, seed, best, width, steps, curve=curve)
        yield {"score": name, "width": width, "seed": seed, "lr": best, "tried": [*tried.values()], **made}


def _translate(name: str, task: Task, seed: int, lr: float, width: int, steps: int, *, curve: bool) -> dict[str, Any]:
    runtime.seed(seed)
    model = task.translator(TRANSLATORS[name], width=width, d_encoder=width // 2, dropout=0.0)
    short = {split: filter_by_length(task.corpus[split], 3, LONGEST) for split in ("train", "valid", "test")}
    batches = Batches(short["train"], task.source_vocab, task.target_vocab, size=BATCH, seed=seed)
    schedule = training.warmup_cosine(30)
    recipe = training.Recipe(steps=steps, lr=lr, schedule=schedule, evaluate_every=5 if curve else steps)
    example, watched = next(pair for pair in short["valid"] if pair.source == EXAMPLE), short["valid"][:WATCHED]
    drawn: list[list[list[float]]] = []

    def look(model: Any) -> dict[str, float]:
        drawn.append([[round(weight, 3) for weight in row] for row in _maps(model, [example], task)[0].tolist()])
        return _looks(_maps(model, watched, task), watched)

    before = look(model) if curve else {}
    history = training.fit(model, translation_loss, batches, recipe, evaluate=look if curve else None)
    test, long = short["test"][:300], filter_by_length(task.corpus["test"], LONGEST + 1, 20)[:200]
    made: dict[str, Any] = {
        "parameters": parameters(model.decoder.score),
        "seconds": round(history.seconds[-1], 1),
        "loss": round(mean(history.loss[-20:]), 4),
        "valid": round(quality(model, short["valid"][:200], task).bleu, 2),
        "bleu": round(quality(model, test, task).bleu, 2),
        "long": round(quality(model, long, task).bleu, 2),
        "alignment error": round(alignment_error(model, test, task), 4),
    }
    if curve:
        points = [{"step": 0, **before}, *history.evaluations]
        made["curve"] = [[each["step"], *(each[name] for name in LOOKS)] for each in points]
        maps = {str(at["step"]): weights for at, weights in zip(points, drawn, strict=True) if at["step"] in DRAWN}
        made["example"] = {
            "source": [*example.source, "<eos>"],
            "target": [*example.target],
            "links": sorted(example.sure),
            "maps": maps,
        }
    if isinstance(model.decoder, HeadedDecoder):
        made["heads"] = [_error_of_head(model, head, test, task) for head in range(model.decoder.heads)]
    return made


def _maps(model: Translator, pairs: Sequence[Pair], task: Task) -> list[Float[Tensor, "target source"]]:
    """Weights for each word of the true translations; unlike in `forced_weights`, the last column is of `<eos>`."""
    maps = forced_weights(model, pairs, task)
    return [torch.cat([weights, 1 - weights.sum(dim=-1, keepdim=True)], dim=-1).clamp(min=0) for weights in maps]


def _looks(maps: Sequence[Tensor], pairs: Sequence[Pair]) -> dict[str, float]:
    """How many words a row of weights looks at, and its shares on words that may be linked and on `<eos>`."""
    counts, shares, ends = [], [], []
    for weights, pair in zip(maps, pairs, strict=True):
        allowed = torch.zeros_like(weights)
        source, target = zip(*pair.possible, strict=True)
        allowed[list(target), list(source)] = 1
        counts.append(torch.special.entr(weights).sum(dim=-1).exp())
        shares.append((weights * allowed).sum(dim=-1)[allowed.any(dim=-1)])
        ends.append(weights[:, -1])
    means = (round(float(torch.cat(each).mean()), 3) for each in (counts, shares, ends))
    return dict(zip(LOOKS, means, strict=True))


def equal_weights() -> dict[str, float]:
    """The same on the sentences of `collapse`, for weights that are equal."""
    pairs = filter_by_length(data.load("english-french")["valid"], 3, LONGEST)[:WATCHED]
    return _looks([torch.full((len(p.target), len(p.source) + 1), 1 / (len(p.source) + 1)) for p in pairs], pairs)


def _error_of_head(model: Translator, head: int, pairs: Sequence[Pair], task: Task) -> float:
    decoder: Any = model.decoder
    decoder.shown = head
    try:
        return round(alignment_error(model, pairs, task), 4)
    finally:
        decoder.shown = None


def words_after(frame: DataFrame, step: int, width: int = 128) -> dict[str, list[float]]:
    """How many words the weights of each score look at after so many steps, one number per seed."""
    runs = frame[frame["width"] == width]
    found: dict[str, list[float]] = {name: [] for name in runs["score"]}
    for name, curve in zip(runs["score"], runs["curve"], strict=True):
        found[name] += [words for at, words, *_ in curve if at == step]
    return found


# ---- tables ------------------------------------------------------------------------------------------------------


def bleu_table(frame: DataFrame, width: int = 128) -> DataFrame:
    """BLEU of the general scores and of equal weights by the translator's width: mean, lowest and highest seed.

    Below it, for one width, the BLEU of seed 0 on validation sentences at each learning rate that was tried.
    """
    import pandas as pd

    shown = frame[frame["score"].isin([*PAIR_OF_SCORES, EQUAL])]
    table = shown.pivot_table(index="width", columns="score", values="bleu", aggfunc=mean_and_range)
    table.index = [f"width {size}, best learning rate" for size in table.index]
    tried = shown[shown["width"] == width].groupby("score")["tried"].first()
    for place, lr in enumerate(RATES):
        table.loc[f"width {width}, learning rate {lr:g}"] = [f"{tried[name][place]:.1f}" for name in table.columns]
    order = [name for name in (EQUAL, *PAIR_OF_SCORES) if name in table.columns]
    return pd.DataFrame(table[order]).fillna("").rename_axis(columns="BLEU")


def translator_table(frame: DataFrame, width: int = 128) -> DataFrame:
    """What each score does in the translator of one width, the best BLEU first; the decoder with heads is left out."""
    rows = frame[(frame["width"] == width) & (frame["score"] != HEADS)]
    order = rows.groupby("score")["bleu"].mean().sort_values(ascending=False).index
    columns = {"parameters": 0, "bleu": 1, "long": 1, "alignment error": 2}
    names = {"parameters": "learned numbers", "bleu": "BLEU, 3–10 words", "long": "BLEU, 11–20 words"}
    return ranges(rows, "score", columns).loc[order].rename(columns=names)


def heads_table(frame: DataFrame, single: DataFrame, width: int = 128) -> DataFrame:
    """One head against four: BLEU, and the alignment error of the mean of the heads, of the best and of the worst."""
    many = frame[frame["score"] == HEADS]
    one = single[(single["score"] == "general / √d") & (single["width"] == width)]
    errors = {
        "alignment error": many["alignment error"],
        "best head": many["heads"].map(min),
        "worst head": many["heads"].map(max),
    }
    text = {name: mean_and_range(values, 2) for name, values in errors.items()}
    return _frame(
        {
            "one head": {
                "BLEU": mean_and_range(one["bleu"]),
                "alignment error": mean_and_range(one["alignment error"], 2),
            },
            "four heads": {"BLEU": mean_and_range(many["bleu"]), **text},
        }
    )


def _frame(rows: dict[str, dict[str, str]]) -> DataFrame:
    import pandas as pd

    return pd.DataFrame.from_dict(rows, orient="index").fillna("")


def nonlinear_table(frame: DataFrame) -> DataFrame:
    """Parameters, accuracy in percent and kept kilobytes of the scores with a nonlinearity."""
    shown = frame.assign(accuracy=100 * frame["accuracy"], kept=frame["kept"] / 1024)
    names = {"accuracy": "right on squared (%)", "kept": "kept for 256 × 256 pairs (kB)"}
    return ranges(shown, "score", {"parameters": 0, "accuracy": 0, "kept": 0}).rename(columns=names)
