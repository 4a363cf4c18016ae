"""Study of lesson 02: six scores in an associative memory, their costs, and the effects of width, norm and √d."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import SCORES, LocationScore, Score
from tfbook.course.cost import in_turns, kept_bytes, parameters
from tfbook.course.experiments import experiment
from tfbook.course.summaries import ranges
from tfbook.lessons.scoring_functions.answers import answer as answer
from tfbook.lessons.scoring_functions.claims import CLAIMS as CLAIMS
from tfbook.lessons.scoring_functions.translation import (
    bleu_table as bleu_table,
    equal_weights as equal_weights,
    heads_table as heads_table,
    translator_table as translator_table,
    words_after as words_after,
)

if TYPE_CHECKING:
    from pandas import DataFrame


PAIRS, WIDTH, NOISE = 16, 16, 0.5  # of a memory: pairs, width of its keys, size of the query's noise

# ---- an associative memory: pairs of a key and a value, and a query --------------------------------------------------


@dataclass(frozen=True)
class Recall:
    """A batch of memories, each with a query. The values of a memory are 0 … pairs − 1 in random order."""

    query: Float[Tensor, "batch d"]
    keys: Float[Tensor, "batch pair d"]
    values: Int[Tensor, "batch pair"]
    answer: Int[Tensor, " batch"]

    def to(self, device: torch.device | str) -> Recall:
        """The same batch on another device."""
        return Recall(*(part.to(device) for part in vars(self).values()))


Relation = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]  # keys, index → query, keys


def _at(index: Tensor, rows: Tensor) -> Tensor:
    """The row of each memory at its index."""
    return rows[torch.arange(len(rows)), index]


@cache
def turn(width: int) -> Float[Tensor, "d d"]:
    """The fixed orthogonal matrix of the relation "turned": a rotation, perhaps with a reflection."""
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(width)))[0]


@cache
def _codes(width: int) -> Float[Tensor, "index d"]:
    """A fixed random vector for each index of a memory."""
    return torch.randn(1024, width, generator=torch.Generator().manual_seed(width))


def _same(keys: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(index, keys), keys


def _stretched(keys: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(index, keys), keys * torch.exp(torch.randn(*keys.shape[:2], 1, generator=generator))


def _turned(keys: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(index, keys) @ turn(keys.shape[-1]).T, keys


def _squared(keys: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _at(index, keys**2 - 1), keys


def _place(keys: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _codes(keys.shape[-1])[index], keys


def _marked(keys: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    codes = _codes(keys.shape[-1])
    return codes[index], keys + codes[: keys.shape[1]]


RELATIONS: dict[str, Relation] = {
    "same": _same,  # the query is the key
    "stretched": _stretched,  # every key is rescaled at random, by about 1/7 to 7
    "turned": _turned,  # the query is the key in other coordinates
    "squared": _squared,  # the query holds the squares of the key's entries, without their signs
    "place": _place,  # the query names an index
    "marked place": _marked,  # the query names an index, and every key has the code of its index added
}


def recall(relation: str, *, seed: int, pairs: int = PAIRS, width: int = WIDTH, rows: int = 128) -> Recall:
    """New memories with one noisy query each; the keys are standard normal vectors that no training has seen."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(rows, pairs, width, generator=generator)
    index = torch.randint(pairs, (rows,), generator=generator)
    query, keys = RELATIONS[relation](keys, index, generator)
    values = torch.rand(rows, pairs, generator=generator).argsort(dim=1)
    noise = NOISE * torch.randn(query.shape, generator=generator)
    return Recall(query + noise, keys, values, _at(index, values))


class Recaller(nn.Module):
    """p(value) = Σ_j α_j [value of pair j] with α = softmax_j score(query, key_j). Only the score is learned."""

    def __init__(self, score: nn.Module):
        super().__init__()
        self.score: Any = score  # with a method `project`, like the package's scores

    def forward(self, batch: Recall) -> Float[Tensor, "batch value"]:
        """The probability of each value."""
        weights = masked_softmax(self.score(batch.query[:, None], self.score.project(batch.keys)), None)
        return (weights.float() @ F.one_hot(batch.values).float())[:, 0]


def recall_loss(model: nn.Module, batch: Recall) -> Float[Tensor, ""]:
    """Mean −log p(answer) in nats, computed as −log(p + 1e-9) so that it stays finite."""
    found = model(batch).gather(1, batch.answer[:, None])
    return -(found + 1e-9).log().mean()


def learn(score: nn.Module, relation: str, *, steps: int, seed: int = 1, lr: float = 1e-2, **config: int) -> Recaller:
    """Trains the score's parameters, if it has any, on new memories at every step."""
    model = Recaller(score).to(runtime.device())
    if list(score.parameters()):
        _fit(model, relation, steps=steps, seed=seed, lr=lr, **config)
    return model


def _fit(model: nn.Module, relation: str, *, steps: int, seed: int, lr: float, **config: int) -> None:
    schedule = training.warmup_cosine(30)
    recipe = training.Recipe(steps=steps, lr=lr, schedule=schedule, mixed_precision=False)  # log p needs float32
    training.fit(model, recall_loss, lambda step: recall(relation, seed=10**6 * seed + step, **config), recipe)


@torch.no_grad()
def accuracy(model: nn.Module, relation: str, *, seed: int = 1, **config: int) -> float:
    """Share of 2,000 unseen memories whose most probable value is the answer; chance is 1 / pairs."""
    batch = recall(relation, seed=10**6 * (seed + 1) - 1, rows=2000, **config).to(runtime.device())
    return float((model(batch).argmax(dim=1) == batch.answer).float().mean())


def make(name: str, *, width: int = WIDTH, pairs: int = PAIRS) -> nn.Module:
    """The score called `name`, with all three widths equal; a location score has exactly `pairs` positions."""
    kind = type("LocationScore", (LocationScore,), {"longest": pairs}) if name == "location" else SCORES[name]
    return kind(width, width, width)


def package_score(name: str) -> Callable[..., Tensor]:
    """tfbook's score as a function of queries, keys, and the learned numbers in the order of the lesson's formula."""

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


def train_lookup(look_up: Callable[..., Any], *, steps: int, relation: str = "turned") -> None:
    """Trains the W of a learner's `look_up(query, keys, values, W)` and prints its accuracy before and after."""
    model = _Learners(look_up).to(runtime.device())
    if not isinstance(model(recall(relation, seed=0).to(runtime.device())), Tensor):
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
        """The function's output for one-hot values: the probability of each value."""
        return self.look_up(batch.query, batch.keys, F.one_hot(batch.values).float(), self.W)


# ---- stored: every score on every relation, all tuned alike ----------------------------------------------------------

RECALL_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # learning rates to choose from, for each score


@experiment
def relations(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 600) -> list[dict[str, Any]]:
    """Accuracy of each of the six scores on each relation, at its best learning rate for seed 0."""
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


# ---- what a score costs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A score's number of parameters, least seconds forward and backward, and bytes kept for the backward pass."""

    parameters: int
    seconds: float
    kept: int


def costs(*, pairs: int, width: int, rows: int = 8, rounds: int = 5) -> dict[str, Cost]:
    """Costs of all six scores for `pairs` queries and as many keys: scores, softmax, weighted sum and gradient.

    The scores take turns in `rounds` rounds, after one to warm up.
    """
    inputs = [torch.randn(rows, pairs, width, device=runtime.device(), requires_grad=True) for _ in range(2)]
    scores = {name: make(name, width=width, pairs=pairs).to(runtime.device()) for name in SCORES}

    def attend(score: Any) -> Tensor:
        query, keys = inputs
        return (masked_softmax(score(query, score.project(keys)), None) @ keys).sum()

    def forward_backward(score: nn.Module) -> None:
        attend(score).backward()

    seconds = in_turns({name: partial(forward_backward, score) for name, score in scores.items()}, rounds)
    return {
        name: Cost(
            parameters=parameters(score),
            seconds=min(seconds[name]),
            kept=kept_bytes(score, partial(attend, score)),
        )
        for name, score in scores.items()
    }


# ---- projections before the score ------------------------------------------------------------------------------------


class ProjectedScore(Score):
    """score(q, k) = f(q)ᵀ g(k) / √d_score. With linear f and g, it is general with W = W₁ᵀ W₂ of rank d_score."""

    def __init__(self, d_query: int, d_key: int, d_score: int, hidden: int | None = None):
        super().__init__(d_query, d_key, d_score)
        self.f, self.g = self._map(d_query, d_score, hidden), self._map(d_key, d_score, hidden)

    @staticmethod
    def _map(d_in: int, d_out: int, hidden: int | None) -> nn.Module:
        if hidden is None:
            return nn.Linear(d_in, d_out, bias=False)
        return nn.Sequential(nn.Linear(d_in, hidden), nn.GELU(), nn.Linear(hidden, d_out))

    def project(self, keys: Float[Tensor, "batch key d_key"]) -> Float[Tensor, "batch key d_score"]:
        """g(k) for every key."""
        return self.g(keys)

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_score"]
    ) -> Float[Tensor, "batch query key"]:
        """The scaled dot product of every f(q) with every g(k)."""
        return super().forward(self.f(query) / math.sqrt(projected.shape[-1]), projected)


def by_key_width(widths: Sequence[int], *, steps: int) -> dict[int, float]:
    """Accuracy on turned keys when the score projects queries and keys to each of `widths`."""
    found = {}
    for d_score in widths:
        runtime.seed(1)
        found[d_score] = accuracy(learn(ProjectedScore(WIDTH, WIDTH, d_score), "turned", steps=steps), "turned")
    return found


SIZES: dict[str, Callable[[], nn.Module]] = {  # two sizes of both, matched in parameters
    "additive, width 16": lambda: SCORES["additive"](WIDTH, WIDTH, 16),
    "network before dot, hidden 8": lambda: ProjectedScore(WIDTH, WIDTH, 16, 8),
    "additive, width 125": lambda: SCORES["additive"](WIDTH, WIDTH, 125),
    "network before dot, hidden 64": lambda: ProjectedScore(WIDTH, WIDTH, 16, 64),
}


@experiment
def nonlinear(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 600, pairs: int = 256) -> list[dict[str, Any]]:
    """Additive score and a dot product after small networks on *squared*, at equal parameters, each tuned.

    `kept` is the number of bytes that `pairs` queries and as many keys keep for the backward pass.
    """
    rows = []
    for name, build in SIZES.items():
        score: Any = build()
        query, keys = (torch.randn(1, pairs, WIDTH) for _ in range(2))
        kept = kept_bytes(score, lambda: score(query, score.project(keys)).sum())  # noqa: B023
        size = {"score": name, "parameters": parameters(score), "kept": kept}
        rows += [size | row for row in _tuned_recall(build, "squared", seeds, steps)]
    return rows


# ---- √d, temperature and norm ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A softmax over scores of random queries and keys: score variance, mean entropy, and median gradient."""

    width: int
    variance: float
    entropy: float  # in nats
    gradient: float  # Frobenius norm of ∂ weights / ∂ scores

    @property
    def looked_at(self) -> float:
        """The effective number of keys, exp(entropy): this many equal weights have the same entropy."""
        return math.exp(self.entropy)


def spread(width: int, *, scaled: bool, keys: int = 32, rows: int = 1000, seed: int = 1) -> Spread:
    """The softmax over dot products of queries and keys with independent standard normal entries."""
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


# ---- stored: recall as memories and keys grow ------------------------------------------------------------------------

LENGTHS, WIDTHS = (4, 8, 16, 32, 64), (4, 8, 16, 32, 64)


@experiment
def growth(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 300) -> list[dict[str, Any]]:
    """Accuracy of each score on noisy copies of a key, by length of memory and by width.

    Each width is a separate training run; the lengths are tests of one score trained on `PAIRS` pairs.
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


def nonlinear_table(frame: DataFrame) -> DataFrame:
    """Parameters, accuracy in percent, and kilobytes kept, for the scores with a nonlinearity."""
    shown = frame.assign(accuracy=100 * frame["accuracy"], kept=frame["kept"] / 1024)
    names = {"accuracy": "right on squared (%)", "kept": "kept for 256 × 256 pairs (kB)"}
    return ranges(shown, "score", {"parameters": 0, "accuracy": 0, "kept": 0}).rename(columns=names)
