"""Facts far apart: a retrieval task that needs long range, and stored runs of each attention on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention import POSITIONS
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.block_sparse import BlockSparse
from tfbook.attention.efficient.linear import Linear
from tfbook.attention.efficient.lsh import Lsh
from tfbook.attention.efficient.performer import Performer
from tfbook.attention.implementations import Implementation, fastest
from tfbook.course.experiments import experiment
from tfbook.lessons.efficient_attention.costs import STORED, shown, strided
from tfbook.models.blocks import Config, alternate
from tfbook.models.feed_forward import FeedForward
from tfbook.models.language_model import BidirectionalModel, LanguageModel

# ---- stored: a task that needs long range ----------------------------------------------------------------------------

KEYS, VALUES, NOISE = 8, 8, 8  # kinds of each
QUESTION = KEYS * VALUES  # the first id of each kind of token; facts begin at 0
ANSWER = QUESTION + KEYS
FIRST_NOISE = ANSWER + VALUES
VOCABULARY = FIRST_NOISE + NOISE
CONTEXT, QUESTIONS = 256, 64
BAND = 32  # the window of the banded layers of the stored models
GELU = partial(FeedForward, activation=F.gelu)
SIZES = Config(d_model=32, heads=2, d_ff=128, layers=2, position=POSITIONS["none"], feed_forward=GELU)
BEYOND = SIZES.layers * (BAND - 1)  # the farthest that all banded layers together can see


class Facts(NamedTuple):
    """Texts of facts, questions and noise. A fact is one token, a key with its value; a question is a key alone."""

    ids: Int64[Tensor, "batch time"]
    answers: Int64[Tensor, "batch time"]  # the value of the key asked for; −100 where nothing is asked
    distance: Int64[Tensor, "batch time"]  # from a question back to its fact; 0 where nothing is asked

    @classmethod
    def draw(cls, count: int, seed: int, *, context: int = CONTEXT, questions: int = QUESTIONS) -> Facts:
        """Random texts: each states one value per key in its first half, and every question follows its fact."""
        generator = torch.Generator().manual_seed(seed)
        ids = FIRST_NOISE + torch.randint(NOISE, (count, context), generator=generator)
        position = torch.rand(count, context // 2, generator=generator).argsort(dim=1)[:, :KEYS].sort(dim=1).values
        key = torch.rand(count, KEYS, generator=generator).argsort(dim=1)
        value = torch.randint(VALUES, (count, KEYS), generator=generator)
        known = (position[:, None] < torch.arange(context)[:, None]).sum(dim=-1)  # facts before each position
        about = (torch.rand(count, context, generator=generator) * known).long()
        luck = torch.rand(count, context, generator=generator).masked_fill(known == 0, -1.0).scatter(1, position, -1.0)
        asked = luck.argsort(dim=1, descending=True)[:, :questions]
        fact = about.gather(1, asked)
        ids = ids.scatter(1, position, key * VALUES + value).scatter(1, asked, QUESTION + key.gather(1, fact))
        answers = torch.full_like(ids, -100).scatter(1, asked, ANSWER + value.gather(1, fact))
        return cls(ids, answers, torch.zeros_like(ids).scatter(1, asked, asked - position.gather(1, fact)))

    def to(self, device: torch.device | str) -> Facts:
        """The same texts on another device."""
        return Facts(*(part.to(device) for part in self))


def answer_loss(model: LanguageModel, facts: Facts) -> Float[Tensor, ""]:
    """Mean cross-entropy of the answers, in nats; no other token adds to the loss."""
    return F.cross_entropy(model(facts.ids).flatten(0, 1).float(), facts.answers.flatten())


EDGES = (1, 16, 32, 48, BEYOND + 1, 96, 128, 160, 192, CONTEXT)  # of the bins of distance; each begins at its edge


@torch.inference_mode()
def right(model: LanguageModel, facts: Facts) -> dict[str, Any]:
    """Share of right answers: overall, by distance, and for facts beyond the reach of two banded layers."""
    facts = facts.to(runtime.device())
    hit = (model(facts.ids).argmax(dim=-1) == facts.answers).float()
    asked, away = facts.answers >= 0, facts.distance
    bins = [float(hit[(away >= low) & (away < high)].mean()) for low, high in pairwise(EDGES)]
    return {"all": float(hit[asked].mean()), "far": float(hit[away > BEYOND].mean()), "bins": bins}


ALSO_TRAINED = {  # name in the table: the stored experiment
    "dense, both ways": "both_directions",
    "BigBird, both ways": "layouts",
}


def by_distance(runs: Any, names: Sequence[str]) -> dict[str, tuple[list[float], ...]]:
    """For each name: the middles of the bins of distance, and the mean, lowest and highest accuracy over seeds."""
    middle = [(low + high - 1) / 2 for low, high in pairwise(EDGES)]
    curves: dict[str, tuple[list[float], ...]] = {}
    for name in names:
        columns = list(zip(*runs[runs["implementation"] == STORED.get(name, name)]["bins"], strict=True))
        means = [sum(column) / len(column) for column in columns]
        curves[name] = (
            middle,
            means,
            [min(column) for column in columns],
            [max(column) for column in columns],
        )
    return curves


def far_answers(runs: Any) -> dict[str, tuple[float, float]]:
    """For each implementation, the lowest and highest share of right answers beyond the windows' reach."""
    far = runs.groupby("implementation", sort=False)["far"]
    return {shown(name): (float(values.min()), float(values.max())) for name, values in far}


MODELS: dict[str, tuple[Implementation, ...]] = {  # implementations of the layers, in turn
    "dense": (fastest,),
    "banded": (Banded(BAND, block=BAND),),
    "dense, banded": (fastest, Banded(BAND, block=BAND)),
    "block-sparse": (BlockSparse(strided, block=16),),
    "LSH": (Lsh(buckets=16, window=BAND, rounds=4),),
    "linear": (Linear(),),
    "Performer": (Performer(64),),
}
TESTED = 128  # texts to evaluate


@experiment
def long_range(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400, batch: int = 16) -> list[dict[str, Any]]:
    """Accuracy of a small model trained with each of `MODELS`, and of the dense model with its attention replaced.

    `trained` is False for the latter: the implementation was put into the model after its training.
    """
    test, rows = Facts.draw(TESTED, seed=10**6), []
    for seed in seeds:
        for name, implementations in MODELS.items():
            model, curve, spent = trained_on_facts(implementations, seed, steps, batch, test)
            rows.append({"implementation": name, "seed": seed, "trained": True, "curve": curve, "seconds": spent})
            rows[-1] |= right(model, test)
            if name == "dense":
                dense = model
            alternate(dense.stack, *implementations)
            rows.append({"implementation": name, "seed": seed, "trained": False, **right(dense, test)})
    return rows


@experiment
def layouts(seeds: Sequence[int] = (1, 2, 3, 4), *, steps: int = 400, batch: int = 16) -> list[dict[str, Any]]:
    """Accuracy with BigBird, bidirectional as in the paper, with a new layout and initialization for each seed."""
    return both_ways({seed: BigBird(block=16, seed=seed) for seed in seeds}, steps, batch)


@experiment
def both_directions(seeds: Sequence[int] = (1, 2), *, steps: int = 400, batch: int = 16) -> list[dict[str, Any]]:
    """Accuracy of the same model with dense bidirectional attention, for comparison with `layouts`."""
    return both_ways(dict.fromkeys(seeds, fastest), steps, batch)


def both_ways(implementations: Mapping[int, Implementation], steps: int, batch: int) -> list[dict[str, Any]]:
    """One row per seed: the accuracy of a bidirectional model trained with this implementation in all layers."""
    test, rows = Facts.draw(TESTED, seed=10**6), []
    for seed, implementation in implementations.items():
        model, curve, spent = trained_on_facts((implementation,), seed, steps, batch, test, BidirectionalModel)
        rows.append({"seed": seed, "curve": curve, "seconds": spent, **right(model, test)})
    return rows


def trained_on_facts(
    implementations: tuple[Implementation, ...],
    seed: int,
    steps: int,
    batch: int,
    test: Facts,
    kind: type[LanguageModel] = LanguageModel,
) -> tuple[LanguageModel, list[dict[str, float]], float]:
    """A model trained with these layers, the accuracy during its training, and the seconds."""
    runtime.seed(seed)
    model = kind(VOCABULARY, SIZES).to(runtime.device())
    alternate(model.stack, *implementations)
    recipe = training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=0.01,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(20),
        evaluate_every=max(1, steps // 16),
        mixed_precision=False,
    )
    few = Facts(*(part[:32] for part in test))
    history = training.fit(
        model,
        answer_loss,
        lambda step: Facts.draw(batch, seed=10**5 * seed + step),
        recipe,
        evaluate=lambda model: {"all": right(model, few)["all"]},
    )
    curve = [{"step": point["step"], "all": point["all"]} for point in history.evaluations]
    return model, curve, round(history.elapsed, 1)
