"""Study of lesson 05: a Transformer against the recurrent translator, its parts and recipe, and its alignments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS
from tfbook.attention.recording import record
from tfbook.course import translators
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.course.metrics import alignment_error_rate, hard_alignment
from tfbook.course.summaries import unnest
from tfbook.course.translators import Task, by_length, gold_links, quality
from tfbook.lessons.transformer.ablation import ablation as ablation
from tfbook.lessons.transformer.answers import answer as answer
from tfbook.lessons.transformer.broken import (
    losses as losses,
    scoreboard as scoreboard,
    scores as scores,
    versions as versions,
)
from tfbook.lessons.transformer.claims import CLAIMS as CLAIMS
from tfbook.lessons.transformer.inside import (
    AttentionMap as AttentionMap,
    growth as growth,
    package_model as package_model,
    parameter_names as parameter_names,
    steps as steps,
    swapped as swapped,
    three_maps as three_maps,
)
from tfbook.lessons.transformer.live import take_out as take_out
from tfbook.lessons.transformer.localized import places_table as places_table
from tfbook.lessons.transformer.stacks import (
    StackVariant as StackVariant,
    first_loss as first_loss,
    gradient_by_layer as gradient_by_layer,
    learned as learned,
    mean_change as mean_change,
    spreads as spreads,
    with_patience as with_patience,
    xavier,
)
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.seq2seq import BahdanauDecoder
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text.pairs import Batch, Batches, Pair, collate, filter_by_length
from tfbook.text.vocabulary import PAD
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame


SMALL = Config(d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS["rotary"])  # of the stored comparisons


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One translator of a comparison: its model and its training recipe."""

    config: Config = SMALL
    tied: bool = True
    xavier: bool = False  # the larger initialization of `xavier`
    smoothing: float = 0.0
    weight_decay: float = 0.0
    lr: float = 4e-3
    warmup: int = 150
    inverse_sqrt: bool = False  # decay after the warm-up as in 2017, or along half a cosine to 0
    steps: int = 800

    def build(self, task: Task) -> Transformer:
        """The untrained translator, on the chosen device."""
        encoder = Encoder(len(task.source_vocab), self.config)
        decoder = Decoder(len(task.target_vocab), self.config, tied=self.tied)
        model = Transformer(encoder, decoder)
        if self.xavier:
            xavier(model)
        return model.to(runtime.device())

    def recipe(self) -> training.Recipe:
        """A warm-up, then a decay of the learning rate."""
        if self.inverse_sqrt:
            schedule = training.inverse_sqrt(self.warmup)
        else:
            schedule = training.warmup_cosine(self.warmup, final=0.0)
        return training.Recipe(
            steps=self.steps, lr=self.lr, schedule=schedule, betas=(0.9, 0.98), weight_decay=self.weight_decay
        )


def trained(
    variant: Variant, task: Task, pairs: Sequence[Pair], *, seed: int, evaluate: training.Evaluate | None = None
) -> tuple[Transformer, training.History]:
    """A translator trained on `pairs` in batches of 64, and its history."""
    runtime.seed(seed)
    model = variant.build(task)
    batches = Batches(pairs, task.source_vocab, task.target_vocab, size=64, seed=seed)
    loss = partial(translation_loss, smoothing=variant.smoothing)
    return model, training.fit(model, loss, batches, variant.recipe(), evaluate=evaluate)


# ---- predictions, and scores of variants -----------------------------------------------------------------------------


class NextWords(NamedTuple):
    """A model's predictions of the true translations' words, each given the true words before it."""

    logp: Float[Tensor, " word"]  # of the true word
    confidence: Float[Tensor, " word"]  # probability of the likeliest word
    right: Bool[Tensor, " word"]  # whether the likeliest is the true one


def next_words(model: nn.Module, pairs: Sequence[Pair], task: Task) -> NextWords:
    """Predictions for every word of the targets of `pairs`, `<eos>` included, under teacher forcing."""
    parts = []
    for logp, batch in forced(model, pairs, task):
        words = batch.target_out != PAD
        best, likeliest = logp.max(dim=-1)
        true = logp.gather(-1, batch.target_out[..., None])[..., 0]
        parts.append([part[words].cpu() for part in (true, best.exp(), likeliest == batch.target_out)])
    return NextWords(*(torch.cat(part) for part in zip(*parts, strict=True)))


def forced(model: nn.Module, pairs: Sequence[Pair], task: Task) -> Iterator[tuple[Tensor, Batch]]:
    """Log-probabilities of every word at every position of the true translations, 250 pairs at a time."""
    model.eval()
    for start in range(0, len(pairs), 250):
        batch = collate(pairs[start : start + 250], task.source_vocab, task.target_vocab).to(runtime.device())
        with torch.inference_mode():
            logits = model(batch.source, batch.source_lengths, batch.target_in).logits
            logp = torch.log_softmax(logits.float(), dim=-1)
        yield logp, batch


def _judged(model: Transformer, pairs: Sequence[Pair], task: Task) -> dict[str, Any]:
    """Loss and BLEU on held-out pairs."""
    words = next_words(model, pairs, task)
    return {
        "loss": round(-float(words.logp.mean()), 4),
        "bleu": round(quality(model, pairs, task).bleu, 2),
    }


def _compared(
    variants: Mapping[str, Variant], pairs: Sequence[Pair], task: Task, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Each variant trained on `pairs` with each seed, evaluated on sentences of the same lengths."""
    longest = max(len(pair.source) for pair in pairs)
    valid, test = (filter_by_length(task.corpus[split], 3, longest) for split in ("valid", "test"))

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"loss": -float(next_words(model, valid[:200], task).logp.mean())}

    rows = []
    for seed in seeds:
        for name, variant in variants.items():
            model, history = trained(variant, task, pairs, seed=seed, evaluate=evaluate)
            row = {"variant": name, "seed": seed, "parameters": parameters(model)}
            row["train loss"] = round(-float(next_words(model, pairs[:1000], task).logp.mean()), 4)
            row["curve"] = [[point["step"], round(point["loss"], 4)] for point in history.evaluations]
            rows.append(row | _judged(model, test, task))
    return rows


# ---- stored: parts and regularizers ----------------------------------------------------------------------------------

PARTS = {
    "as it is": Variant(),
    "untied": Variant(tied=False),
}
REGULARIZERS = {
    "nothing": Variant(),
    "dropout 0.1": Variant(config=replace(SMALL, dropout=0.1)),
    "dropout 0.3": Variant(config=replace(SMALL, dropout=0.3)),
    "weight decay 1": Variant(weight_decay=1.0),
}


@experiment
def parts(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12) -> list[dict[str, Any]]:
    """Tied and untied embeddings, on all sentences of up to `longest` words."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    return _compared(PARTS, filter_by_length(corpus["train"], 3, longest), task, seeds)


@experiment
def regularizers(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12, count: int = 1500) -> list[dict[str, Any]]:
    """Dropout and weight decay on `count` sentences that are repeated many times."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    return _compared(REGULARIZERS, filter_by_length(corpus["train"], 3, longest)[:count], task, seeds)


# ---- stored: the recipe of 2017 --------------------------------------------------------------------------------------

_OURS = Variant(  # larger than lesson 05's own
    config=Config(d_model=96, heads=4, d_ff=384, layers=2, position=POSITIONS["sinusoidal"]), lr=5e-3, steps=700
)
RECIPES = {
    "our recipe": _OURS,
    "recipe of 2017": replace(
        _OURS,
        config=replace(_OURS.config, residual=PostNorm, dropout=0.1),
        xavier=True,
        smoothing=0.1,
        lr=(_OURS.config.d_model * 300) ** -0.5,  # the paper's peak rate with 300 steps of warm-up
        warmup=300,
        inverse_sqrt=True,
    ),
}


@experiment
def recipes(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12) -> list[dict[str, Any]]:
    """Lesson 05's recipe against that of Vaswani et al. (2017), on sentences of up to `longest` words."""
    corpus = data.load("english-french")
    task, pairs = Task.of(corpus, corpus["train"]), filter_by_length(corpus["train"], 3, longest)
    held_out = filter_by_length(corpus["test"], 3, longest)[:300]
    rows = []
    for seed, (name, variant) in product(seeds, RECIPES.items()):
        model, _ = trained(variant, task, pairs, seed=seed)
        bleu = round(quality(model, held_out, task).bleu, 2)
        rows.append({"recipe": name, "seed": seed, "parameters": parameters(model), "test": bleu})
    return rows


# ---- stored: against a recurrent translator with attention -----------------------------------------------------------

LESSON = Variant(  # larger than lesson 05's own; lesson 06 decodes with it
    config=Config(d_model=128, heads=8, d_ff=512, layers=2, position=POSITIONS["rotary"]),
    lr=4e-3,
    warmup=200,
    steps=1000,
)
RIVALS = {
    "Transformer": LESSON,
    "Transformer of equal size": replace(LESSON, config=replace(LESSON.config, d_model=160, d_ff=640), steps=2200),
}


@experiment
def against_recurrence(seeds: Sequence[int] = (1, 2), *, recurrent_steps: int = 1500) -> list[dict[str, Any]]:
    """The recurrent translator with attention, then `RIVALS`, on the same corpus: validation BLEU against seconds.

    The recurrent one has lesson 01's recipe, the rivals their own. Run it on an idle machine, since it compares times.
    """
    corpus = data.load("english-french")
    task, pairs = Task.of(corpus, corpus["train"]), corpus["train"]

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"bleu": quality(model, corpus["valid"][:200], task).bleu}

    recurrent = partial(translators.trained, BahdanauDecoder, width=192, steps=recurrent_steps, dropout=0.2)
    rows = []
    model: nn.Module
    for seed in seeds:
        model, history = recurrent(seed, task, pairs, evaluate=evaluate)
        rows.append({"model": "recurrent", "seed": seed, **_raced(model, history, task)})
        for name, variant in RIVALS.items():
            model, history = trained(variant, task, pairs, seed=seed, evaluate=evaluate)
            rows.append({"model": name, "seed": seed, **_raced(model, history, task)})
    return rows


def _raced(model: nn.Module, history: training.History, task: Task) -> dict[str, Any]:
    """Learning curve and final quality, over the whole test set and by length."""
    return {
        "parameters": parameters(model),
        "curve": [{key: round(value, 3) for key, value in point.items()} for point in history.evaluations],
        "by_length": [[*length, round(q.bleu, 2)] for length, q in by_length(model, task, 250).items()],
        "test": round(quality(model, task.corpus["test"], task).bleu, 2),
        "template": round(quality(model, task.corpus["template"], task).bleu, 2),
    }


def time_to_match(frame: DataFrame, rival: str = "Transformer") -> list[float]:
    """For each seed: seconds until the rival reaches the recurrent translator's final BLEU, ÷ the latter's seconds.

    BLEU is on validation sentences. Infinite where the rival never reaches it.
    """
    shares = []
    for _, runs in unnest(frame, "curve").groupby("seed"):
        recurrent, other = (runs[runs["model"] == name] for name in ("recurrent", rival))
        reached = other["seconds"][other["bleu"] >= recurrent["bleu"].iloc[-1]]
        shares.append(min(reached, default=math.inf) / recurrent["seconds"].iloc[-1])
    return shares


def against_lesson_01(race: DataFrame) -> dict[int, float]:
    """Claims 6 to 8: share of time, smallest lead up to 20 words, and smallest lag at 21 to 30 words."""
    by_length = unnest(race, "by_length", ["from", "to", "bleu"])
    table = by_length.pivot(index=["seed", "from"], columns="model", values="bleu")
    leads = (table["Transformer"] - table["recurrent"]).unstack("from")
    return {6: max(time_to_match(race)), 7: leads[[3, 9, 15]].min().min(), 8: -leads[21].max()}


# ---- live: alignments of the heads -----------------------------------------------------------------------------------


def crossing(pairs: Sequence[Pair], *, words: int = 7) -> Pair:
    """The first pair of about `words` words in which two neighbors, linked to one word each, change places.

    Raises ValueError when there is none.
    """
    for pair in pairs:
        if abs(len(pair.source) - words) < 2 and swapped(pair):
            return pair
    raise ValueError(f"no pair of about {words} words has neighbors that swap; expected one or more")


@torch.inference_mode()
def cross_maps(
    model: Transformer, pairs: Sequence[Pair], task: Task
) -> list[Float[Tensor, "layer head target source"]]:
    """Weights of every cross-attention for each word of the true translations, without `<eos>`."""
    model.eval()
    batch = collate(pairs, task.source_vocab, task.target_vocab).to(runtime.device())
    with record(model) as maps:
        model.decoder(batch.target_in, model.encoder(batch.source, batch.source_lengths))
    weights = torch.stack([layer for name, layer in maps.items() if ".cross." in name], dim=1).float().cpu()
    return [weights[i, ..., : len(pair.target), : len(pair.source)] for i, pair in enumerate(pairs)]


def head_errors(model: Transformer, pairs: Sequence[Pair], task: Task) -> Float[Tensor, "layer head"]:
    """Alignment error rate of each cross-attention head's largest weights, as in `alignment_error`."""
    maps = cross_maps(model, pairs, task)
    gold = gold_links(pairs)
    layers, heads = maps[0].shape[:2]
    errors = [
        alignment_error_rate([hard_alignment(weights[layer, head]) for weights in maps], *gold)
        for layer, head in product(range(layers), range(heads))
    ]
    return torch.tensor(errors).view(layers, heads)


class Head(NamedTuple):
    """The cross-attention head with the best alignments, and its weights for one pair."""

    place: tuple[int, int]  # layer and head, from 0
    errors: list[float]  # alignment error rates of all heads
    pair: Pair
    weights: Float[Tensor, "target source"]

    def misses(self) -> list[str]:
        """The words whose largest weight is on a word without a sure link to them in the gold alignment."""
        looked_at = self.weights.argmax(dim=-1).tolist()
        return [word for t, word in enumerate(self.pair.target) if (looked_at[t], t) not in self.pair.sure]


def best_head(model: Transformer, pairs: Sequence[Pair], task: Task) -> Head:
    """The head with the lowest alignment error rate on `pairs`, shown on a pair in which words swap."""
    errors, pair = head_errors(model, pairs, task), crossing(pairs)
    layer, head = divmod(int(errors.argmin()), errors.shape[1])
    return Head((layer, head), errors.flatten().tolist(), pair, cross_maps(model, [pair], task)[0][layer, head])
