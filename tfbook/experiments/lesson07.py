"""Lesson 07: what pretraining is worth by number of labels, and what each choice in it changes."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, train
from tfbook.bert import (
    BERT,
    IGNORED,
    PAD,
    SEP,
    SPECIALS,
    Albert,
    Bert,
    Classifier,
    Electra,
    Follows,
    Masked,
    MaskedLanguageModel,
    Masking,
    PretrainedBert,
    distillation_loss,
    electra_loss,
    hide_words,
    joined,
    masked_loss,
    pretraining_loss,
    sentence_pairs,
    student_of,
    word_loss,
)
from tfbook.data import Labelled, LabelledTexts
from tfbook.experiments import in_turns
from tfbook.experiments.lesson03 import flops
from tfbook.tokenization import Tokenizer
from tfbook.transformer import BidirectionalModel, LanguageModel, Sizes

VOCAB = 2000
LONGEST = 48  # tokens that a classifier reads
SPAN = 12  # tokens at most of a "sentence" in pretraining: any span of contiguous text (Devlin et al., 2019, section 3)
SMALL = replace(BERT, d_model=64, heads=4, d_ff=256, layers=2, position="rotary", pre_norm=True, dropout=0.0)
OFTEN = Masking(rate=0.3)  # twice as often as BERT: a short training learns more from it
ALL_HIDDEN = Masking(mask=1.0, random=0.0)  # to judge by: every drawn word is [MASK]


# ---- texts as tokens ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Texts as ids, padded, the segment of each token and the label of each text."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    segments: Int[Tensor, "batch time"]
    labels: Int[Tensor, " batch"]

    @classmethod
    def of(cls, pairs: Sequence[Follows]) -> Rows:
        """One or two segments a row, put together by `joined`."""
        ids, segments = zip(*(joined(pair.first, pair.second) for pair in pairs), strict=True)
        return cls(
            _padded(ids),
            torch.tensor([len(row) for row in ids]),
            _padded(segments),
            torch.tensor([p.label for p in pairs]),
        )

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on another device."""
        return Rows(*(tensor.to(device) for tensor in vars(self).values()))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, chosen: slice | Int[Tensor, " chosen"]) -> Rows:
        """Some of the rows, cut to the longest of them."""
        longest = int(self.lengths[chosen].max())
        return Rows(
            self.ids[chosen, :longest], self.lengths[chosen], self.segments[chosen, :longest], self.labels[chosen]
        )


def _padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class Reading:
    """A corpus in tokens: what is pretrained on, and rows with a label; nothing of the test is in the former."""

    def __init__(self, corpus: LabelledTexts):
        self.corpus = corpus
        self.tokenizer = Tokenizer.learn((text.lower() for text in corpus.unlabelled), VOCAB, specials=SPECIALS)
        self.texts = [self.encode(text) for text in corpus.unlabelled]
        self.test = self.rows(corpus.test)

    def encode(self, text: str) -> list[int]:
        """In lower case, which makes more of a small text."""
        return self.tokenizer.encode(text.lower())

    def rows(self, labelled: Sequence[Labelled]) -> Rows:
        """Each text as one segment; of a long one its beginning."""
        return Rows.of([Follows(self.encode(text)[: LONGEST - 2], (), label) for text, label in labelled])

    def pairs(self, *, seed: int) -> Rows:
        """Neighbouring spans of the unlabelled texts, half of them with another text's span as the second."""
        documents = [spans(ids, seed=place) for place, ids in enumerate(self.texts)]
        return Rows.of(sentence_pairs(documents, seed=seed))


def spans(ids: Sequence[int], *, seed: int = 0) -> list[Sequence[int]]:
    """The ids in pieces of `SPAN` / 2 to `SPAN`, drawn at random: an even cut would tell which two belong together."""
    lengths = random.Random(seed)
    pieces = []
    while ids:
        border = lengths.randint(SPAN // 2, SPAN)
        pieces.append(ids[:border])
        ids = ids[border:]
    return pieces


def dice(*numbers: int) -> torch.Generator:
    """Random numbers that depend on all of `numbers`."""
    number = 0
    for other in numbers:
        number = (number * 1_000_003 + other) % 2**32
    return torch.Generator().manual_seed(number)


# ---- pretraining --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """What is pretrained, and how."""

    sizes: Sizes = SMALL
    body: Callable[[int, Sizes], Bert] = Bert
    masking: Masking = OFTEN
    static: bool = False  # the same words are hidden in every pass
    steps: int = 600
    lr: float = 2e-3
    size: int = 256  # rows of a batch

    def recipe(self) -> train.Recipe:
        """A warm-up over a tenth of the steps, then half a cosine down to 0."""
        schedule = train.warmup_cosine(self.steps // 10, final=0.0)
        return train.Recipe(steps=self.steps, lr=self.lr, schedule=schedule, betas=(0.9, 0.98), weight_decay=0.01)


class Hidden(NamedTuple):
    """Rows, and the same with words hidden."""

    rows: Rows
    masked: Masked

    def to(self, device: torch.device | str) -> Hidden:
        """The same on another device."""
        return Hidden(self.rows.to(device), Masked(*(tensor.to(device) for tensor in self.masked)))


def hidden_batches(rows: Rows, vocab: int, plan: Pretraining, *, seed: int) -> Callable[[int], Hidden]:
    """Every row once a pass, in a new order; words are hidden anew each time, or once for all."""
    once = hide_words(rows.ids, vocab, plan.masking, generator=dice(seed)) if plan.static else None

    def batch(step: int) -> Hidden:
        turn, place = divmod(step, len(rows) // plan.size)
        order = torch.randperm(len(rows), generator=dice(seed, turn))[plan.size * place : plan.size * (place + 1)]
        chosen = rows[order]
        if once is None:
            return Hidden(chosen, hide_words(chosen.ids, vocab, plan.masking, generator=dice(seed, turn, place)))
        return Hidden(chosen, Masked(*(part[order, : chosen.ids.shape[1]] for part in once)))

    return batch


def both_losses(model: PretrainedBert, batch: Hidden) -> Tensor:
    """BERT's: hidden words, and does the second span follow?"""
    rows = batch.rows
    return pretraining_loss(model, batch.masked, rows.lengths, rows.segments, rows.labels)


def pretrained(plan: Pretraining, reading: Reading, *, seed: int) -> tuple[PretrainedBert, train.History]:
    """A BERT that has read the unlabelled texts, and its history."""
    runtime.seed(seed)
    vocab = len(reading.tokenizer)
    model = PretrainedBert(plan.body(vocab, plan.sizes)).to(runtime.device())
    batches = hidden_batches(reading.pairs(seed=seed), vocab, plan, seed=seed)
    return model, train.fit(model, both_losses, batches, plan.recipe(), evaluate=partial(judged, reading=reading))


@torch.no_grad()
def judged(model: MaskedLanguageModel, reading: Reading) -> dict[str, float]:
    """Of test texts with 15% of their words hidden, all by `[MASK]`: loss in nats and share of right first guesses."""
    rows = reading.test.to(runtime.device())
    masked = hide_words(rows.ids, len(reading.tokenizer), ALL_HIDDEN, generator=dice(0))
    asked = masked.targets != IGNORED
    return scores(model.head(model.bert(masked.ids, rows.lengths)[asked]), masked.targets[asked])


def scores(logits: Float[Tensor, "word vocab"], words: Int[Tensor, " word"]) -> dict[str, float]:
    """Loss in nats, and share of right first guesses."""
    words = words.to(logits.device)
    return {"nats": float(word_loss(logits, words)), "right": float((logits.argmax(dim=-1) == words).float().mean())}


# ---- fine-tuning --------------------------------------------------------------------------------------------------

FINE = train.Recipe(steps=100, lr=5e-4, schedule=train.warmup_cosine(10, final=0.0))
DRAWS = 3  # of the few texts with a label


def classifier(start: PretrainedBert | Bert, labels: int) -> Classifier:
    """A copy of the body under a new head; where there is one for pairs, its first layer is copied as well."""
    body = start.bert if isinstance(start, PretrainedBert) else start
    model = Classifier(body, labels)
    if isinstance(start, PretrainedBert):
        model.head.pool.load_state_dict(start.follows.pool.state_dict())
    return copy.deepcopy(model).to(runtime.device())


def label_loss(model: Classifier, rows: Rows) -> Tensor:
    """Mean cross-entropy in nats a text."""
    return F.cross_entropy(model(rows.ids, rows.lengths, rows.segments).float(), rows.labels)


def fine_tuned(
    start: PretrainedBert | Bert, reading: Reading, count: int, *, seed: int, recipe: train.Recipe | None = None
) -> tuple[Classifier, train.History]:
    """A classifier trained on `count` texts of each label from `start`, which stays as it is."""
    runtime.seed(seed)
    model = classifier(start, len(reading.corpus.labels))
    rows = reading.rows(reading.corpus.few(count, seed=seed))

    def batch(step: int) -> Rows:
        return rows[torch.randperm(len(rows), generator=dice(seed, step))[:32]]

    return model, train.fit(model, label_loss, batch, recipe or FINE)


@torch.inference_mode()
def accuracy(model: Classifier, rows: Rows) -> float:
    """Share of right labels."""
    model.eval()
    right = [model(part.ids, part.lengths, part.segments).argmax(-1) == part.labels for part in _pieces(rows)]
    return float(torch.cat(right).float().mean())


def _pieces(rows: Rows, size: int = 256) -> Iterator[Rows]:
    """The rows on the chosen device, some at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size].to(runtime.device())


# ---- stored: from scratch or pretrained, by number of labels -----------------------------------------------------

CORPORA = {  # numbers of texts of each label
    "docstrings": (4, 8, 16, 32, 64),
    "sentence-polarity": (16, 64, 256, 1024),
    "subjectivity": (4, 16, 64, 256, 1024),
}


def by_labels(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 600) -> list[dict[str, Any]]:
    """Test accuracy of classifiers that began pretrained or from scratch, with few labels and with many.

    A row is a corpus, a seed, a number of labels and a draw of them; both classifiers of a row see the same texts.
    """
    rows = []
    for name, counts in CORPORA.items():
        reading = Reading(data.load(name))
        for seed in seeds:
            model, history = pretrained(Pretraining(steps=steps), reading, seed=seed)
            found = {key: round(history.evaluations[-1][key], 4) for key in ("nats", "right")}
            runs = [(count, draw) for count in counts for draw in range(DRAWS)]
            rows += [
                {"corpus": name, "seed": seed, **found, "labels": count, "draw": draw}
                | _compared(model, reading, count, seed=10 * seed + draw)
                for count, draw in runs
            ]
    return rows


def _compared(model: PretrainedBert, reading: Reading, count: int, *, seed: int) -> dict[str, float]:
    runtime.seed(seed)
    scratch = Bert(len(reading.tokenizer), model.bert.sizes)
    starts = {"pretrained": model, "scratch": scratch}
    return {
        name: round(accuracy(fine_tuned(start, reading, count, seed=seed)[0], reading.test), 4)
        for name, start in starts.items()
    }


class Interval(NamedTuple):
    """A mean and the half-width of its 95% confidence interval."""

    mean: float
    half: float


def interval(values: Sequence[float]) -> Interval:
    """Student's, for the mean of independent values. Raises ValueError when there are fewer than two."""
    from scipy import stats

    if len(values) < 2:
        raise ValueError(f"values holds {len(values)} number; expected two or more")
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(fmean(values), float(half))


def over_seeds(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> Interval:
    """The interval of a value over seeds; what stands in several rows of a seed is averaged first."""
    seeds = sorted({row["seed"] for row in rows})
    return interval([fmean(value(row) for row in rows if row["seed"] == seed) for seed in seeds])


# ---- stored: which words are hidden ------------------------------------------------------------------------------

FEW = 16  # texts of each label, wherever one number has to do
HIDING = {  # a rate, or Devlin's shares of [MASK] / the same token / another one
    **{f"{rate:.0%}": Masking(rate=rate) for rate in (0.05, 0.15, 0.3, 0.5)},
    "100/0/0": Masking(rate=OFTEN.rate, mask=1.0, random=0.0),
    "80/0/20": Masking(rate=OFTEN.rate, mask=0.8, random=0.2),
    "80/20/0": Masking(rate=OFTEN.rate, mask=0.8, random=0.0),
    "0/20/80": Masking(rate=OFTEN.rate, mask=0.0, random=0.8),
    "0/0/100": Masking(rate=OFTEN.rate, mask=0.0, random=1.0),
}


def hiding(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400) -> list[dict[str, Any]]:
    """Rates, and shares of [MASK] / another word / the word itself (Devlin et al., 2019, table 8), in small.

    The last row hides the same words in every pass (Liu et al., 2019, section 4.1).
    """
    reading = Reading(data.load("docstrings"))
    plans = {name: Pretraining(sizes=SMALL, masking=masking, steps=steps) for name, masking in HIDING.items()}
    plans["static"] = replace(plans["15%"], static=True)
    return [{"hiding": name, **_worth(plan, reading, seed)} for seed in seeds for name, plan in plans.items()]


def _worth(plan: Pretraining, reading: Reading, seed: int) -> dict[str, Any]:
    """How well a pretrained model guesses hidden words, and what it is worth with few labels."""
    model, history = pretrained(plan, reading, seed=seed)
    return {
        "seed": seed,
        "parameters": sum(p.numel() for p in model.bert.parameters()),
        "seconds": round(history.elapsed, 1),
        **{key: round(history.evaluations[-1][key], 4) for key in ("nats", "right")},
        "accuracy": round(few_labels(model, reading, seed=seed), 4),
    }


def few_labels(start: PretrainedBert | Bert, reading: Reading, *, seed: int) -> float:
    """Mean test accuracy over `DRAWS` draws of `FEW` texts of each label."""
    tuned = (fine_tuned(start, reading, FEW, seed=10 * seed + draw)[0] for draw in range(DRAWS))
    return fmean(accuracy(model, reading.test) for model in tuned)


# ---- stored: one direction or two --------------------------------------------------------------------------------


DIRECTIONS = {"the left": LanguageModel, "both sides": BidirectionalModel}


def directions(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400) -> list[dict[str, Any]]:
    """The same hidden words, guessed by two models that differ in one word, their mask: from the left, or from all."""
    reading = Reading(data.load("docstrings"))
    plan = Pretraining(steps=steps, size=128)
    read = running_text(reading.texts)
    test = running_text([reading.encode(text) for text, _ in reading.corpus.test])
    masked = hide_words(test.ids, VOCAB, ALL_HIDDEN, generator=dice(0))

    def curve(kind: type[LanguageModel], seed: int) -> list[dict[str, float]]:
        runtime.seed(seed)
        model = kind(VOCAB, plan.sizes).to(runtime.device())
        batches = hidden_batches(read, VOCAB, plan, seed=seed)
        evaluate = partial(guesses, masked=masked)
        return train.fit(model, guessing_loss, batches, plan.recipe(), evaluate=evaluate).evaluations

    return [
        {"sees": name, "seed": seed, "curve": curve(kind, seed)} for seed in seeds for name, kind in DIRECTIONS.items()
    ]


def running_text(texts: Sequence[Sequence[int]]) -> Rows:
    """Texts one after the other, each followed by `[SEP]`, cut into rows of `LONGEST` ids without padding."""
    ids = torch.tensor([i for text in texts for i in (*text, SEP)]).unfold(0, LONGEST, LONGEST)
    return Rows(ids, torch.full((len(ids),), LONGEST), torch.zeros_like(ids), torch.zeros(len(ids), dtype=torch.int64))


def guessing_loss(model: LanguageModel, batch: Hidden) -> Tensor:
    """Mean cross-entropy of the hidden words, in nats, each guessed from the output at its own place."""
    asked = batch.masked.targets != IGNORED
    return word_loss(model(batch.masked.ids)[asked], batch.masked.targets[asked])


@torch.no_grad()
def guesses(model: LanguageModel, masked: Masked) -> dict[str, float]:
    """Loss and share of right first guesses."""
    asked = masked.targets != IGNORED
    return scores(model(masked.ids.to(runtime.device()))[asked.to(runtime.device())], masked.targets[asked])


# ---- stored: learning from every token ---------------------------------------------------------------------------


def electra(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400) -> list[dict[str, Any]]:
    """What hidden words and replaced words are worth with few labels, while the training goes on.

    Neither reads pairs here. The generator has one block and a quarter of the width of the discriminator's feed-forward
    layer. The learning rate depends on the step alone: each point of a curve is a training that ends there.
    """
    reading = Reading(data.load("docstrings"))
    plan = Pretraining(sizes=SMALL, steps=steps)
    rows = []
    for seed in seeds:
        batches = hidden_batches(reading.pairs(seed=seed), VOCAB, plan, seed=seed)
        for name, (build, loss, body) in READERS.items():
            runtime.seed(seed)
            model = build().to(runtime.device())
            step = partial(_one_step, model, loss, batches(0).to(runtime.device()))

            def evaluate(model: nn.Module, body: Callable[[Any], Bert] = body, seed: int = seed) -> dict[str, float]:
                with torch.enable_grad():
                    return {"accuracy": few_labels(body(model), reading, seed=seed)}

            recipe = replace(plan.recipe(), schedule=train.inverse_sqrt(steps // 10))
            history = train.fit(model, loss, batches, recipe, evaluate=evaluate)
            rows.append({"reads": name, "seed": seed, "flops a step": flops(step), "curve": history.evaluations})
    return rows


def _masked_reader() -> MaskedLanguageModel:
    return MaskedLanguageModel(Bert(VOCAB, SMALL))


def _electra() -> Electra:
    generator = replace(SMALL, layers=1, d_ff=SMALL.d_ff // 4)
    return Electra(MaskedLanguageModel(Bert(VOCAB, generator)), Bert(VOCAB, SMALL))


def hidden_loss(model: MaskedLanguageModel, batch: Hidden) -> Tensor:
    """Hidden words alone."""
    return masked_loss(model, batch.masked, batch.rows.lengths)


def replaced_loss(model: Electra, batch: Hidden) -> Tensor:
    """ELECTRA's: was this word replaced?"""
    return electra_loss(model, batch.masked, batch.rows.lengths)


READERS = {  # what is built, its loss, and the part of it that is fine-tuned
    "hidden words (BERT)": (_masked_reader, hidden_loss, lambda model: model.bert),
    "replaced words (ELECTRA)": (_electra, replaced_loss, lambda model: model.discriminator.bert),
}


def _one_step(model: nn.Module, loss: Callable[[Any, Hidden], Tensor], batch: Hidden) -> None:
    loss(model, batch).backward()


# ---- stored: smaller models --------------------------------------------------------------------------------------

SHARING = {  # blocks, and how the body is built
    "BERT, 4 blocks": (4, Bert),
    "BERT, 1 block": (1, Bert),
    "ALBERT, 1 block used 4 times": (4, partial(Albert, d_embed=64)),
    "ALBERT, words of width 16": (4, partial(Albert, d_embed=16)),
}


def sharing(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400) -> list[dict[str, Any]]:
    """Parameters against quality: four blocks, one, one that is used four times, and narrow words before it."""
    reading = Reading(data.load("docstrings"))
    plans = {
        name: Pretraining(sizes=replace(SMALL, layers=layers), body=body, steps=steps)
        for name, (layers, body) in SHARING.items()
    }
    return [{"model": name, **_worth(plan, reading, seed)} for seed in seeds for name, plan in plans.items()]


def distilled(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400) -> list[dict[str, Any]]:
    """A teacher of four blocks, its student of two, and two blocks that had no teacher: size, speed and quality."""
    reading = Reading(data.load("docstrings"))
    plan = Pretraining(sizes=replace(SMALL, layers=4), steps=steps)
    rows = []
    for seed in seeds:
        teacher, _ = pretrained(plan, reading, seed=seed)
        alone, _ = pretrained(replace(plan, sizes=SMALL), reading, seed=seed)
        models = {"teacher, 4 blocks": teacher, "student, 2 blocks": taught(teacher, 2, plan, reading, seed=seed)}
        rows += [
            {
                "model": name,
                "seed": seed,
                "parameters": sum(p.numel() for p in model.bert.parameters()),
                "seconds a text": _seconds_a_text(model.bert, reading.test),
                **{key: round(value, 4) for key, value in judged(model, reading).items()},
                "accuracy": round(few_labels(model, reading, seed=seed), 4),
            }
            for name, model in (models | {"2 blocks without a teacher": alone}).items()
        ]
    return rows


def taught(teacher: PretrainedBert, layers: int, plan: Pretraining, reading: Reading, *, seed: int) -> PretrainedBert:
    """A student that begins with blocks of its teacher and learns its guesses as well (Sanh et al., 2019)."""
    runtime.seed(seed)
    student = PretrainedBert(student_of(teacher.bert, layers)).to(runtime.device())
    student.head.load_state_dict(teacher.head.state_dict())
    student.follows.load_state_dict(teacher.follows.state_dict())

    def loss(model: PretrainedBert, batch: Hidden) -> Tensor:
        asked = batch.masked.targets != IGNORED
        said = [
            m.head(m.bert(batch.masked.ids, batch.rows.lengths, batch.rows.segments)[asked]) for m in (model, teacher)
        ]
        return distillation_loss(*said) + both_losses(model, batch)

    batches = hidden_batches(reading.pairs(seed=seed), len(reading.tokenizer), plan, seed=seed)
    train.fit(student, loss, batches, plan.recipe())
    return student


@torch.inference_mode()
def _seconds_a_text(body: Bert, rows: Rows) -> float:
    rows = rows[:64].to(runtime.device())
    (times,) = in_turns({"body": lambda: body(rows.ids, rows.lengths)}, 10).values()
    return median(times) / len(rows)
