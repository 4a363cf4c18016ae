"""What pretraining is worth by number of labels, and what each choice in it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

import torch
from torch import nn

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import count_flops, in_turns, parameters
from tfbook.course.experiments.small_bert import (
    FINE,
    LONGEST,
    MASK_ONLY,
    OFTEN,
    SMALL,
    MaskedBatch,
    Pretraining,
    Reading,
    Rows,
    accuracy,
    fine_tuned,
    fresh,
    judged,
    masked_batches,
    mlm_loss,
    pretrained,
    scores,
    seeded,
)
from tfbook.models.bert import Bert, MaskedLanguageModel
from tfbook.models.bert_variants import Albert, Electra, student_of
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.text.masking import IGNORE_INDEX, SEP, Masked, Masking, mask_tokens
from tfbook.training.losses import Loss, distillation_loss, electra_loss, masked_token_loss

DRAWS = 2  # of the few texts with a label, for each pretraining
FEW = 8  # texts of each label, wherever one number has to do
JUDGED = ("nats", "right", "rare in ten")  # what a row holds about a pretrained model

# ---- stored: from scratch or pretrained, by number of labels -----------------------------------------------------

CORPORA = {  # numbers of texts of each label
    "docstrings": (4, 16, 64),
    "sentence-polarity": (16, 256),
    "subjectivity": (4, 16, 256),
}
LONGER = replace(FINE, steps=200)  # after which both starts have memorized their texts, however many they are


@experiment
def by_labels(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 2000) -> list[dict[str, Any]]:
    """Test accuracy of classifiers that started pretrained or from scratch, with few labels and with many.

    A row is a corpus, a seed, a number of labels and a draw of them; both classifiers of a row see the same texts.
    """
    rows = []
    for name, counts in CORPORA.items():
        reading = Reading(data.load(name))
        for seed in seeds:
            model, history = pretrained(Pretraining(steps=steps), reading, seed=seed)
            found = {key: round(history.evaluations[-1][key], 4) for key in JUDGED}
            runs = [(count, draw) for count in counts for draw in range(DRAWS)]
            rows += [
                {"corpus": name, "seed": seed, **found, "labels": count, "draw": draw}
                | _compared(model, reading, count, seed=10 * seed + draw)
                for count, draw in runs
            ]
    return rows


def _compared(model: MaskedLanguageModel, reading: Reading, count: int, *, seed: int) -> dict[str, float]:
    runtime.seed(seed)
    scratch = fresh(reading.vocab, model.bert.config)
    starts: dict[str, Any] = {"pretrained": model, "scratch": scratch}
    return {
        name: round(accuracy(fine_tuned(start, reading, count, seed=seed, recipe=LONGER)[0], reading.test), 4)
        for name, start in starts.items()
    }


# ---- stored: which tokens are masked, and how --------------------------------------------------------------------

STRATEGIES: dict[str, dict[str, Any]] = {  # how each differs from the defaults of `Pretraining`, the first row
    "rare first, 60%": {},
    "even, 60%": {"even": True},
    "even, 15%": {"even": True, "masking": Masking()},
    "100/0/0": {"masking": replace(OFTEN, mask=1.0, random=0.0)},
    "80/0/20": {"masking": replace(OFTEN, mask=0.8, random=0.2)},
    "80/20/0": {"masking": replace(OFTEN, mask=0.8, random=0.0)},
    "0/0/100": {"masking": replace(OFTEN, mask=0.0, random=1.0)},
    "static": {"static": True},
    "with pairs": {"pairs": True},
}


@experiment
def strategies(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1000) -> list[dict[str, Any]]:
    """Which tokens are masked, how many, and shares of [MASK] / the same / a random one (Devlin et al., 2019, table 8).

    Then the same tokens in every epoch (Liu et al., 2019, section 4.1), and pairs for next-sentence prediction as well.
    """
    reading = Reading(data.load("docstrings"))
    return [
        {"strategy": name, **_worth(Pretraining(steps=steps, **changes), reading, seed)}
        for seed in seeds
        for name, changes in STRATEGIES.items()
    ]


def _worth(plan: Pretraining, reading: Reading, seed: int) -> dict[str, Any]:
    """How well a pretrained model predicts masked tokens, and what it is worth with few labels."""
    model, history = pretrained(plan, reading, seed=seed)
    return {
        "seed": seed,
        "parameters": parameters(model.bert),
        "seconds": round(history.elapsed, 1),
        **{key: round(history.evaluations[-1][key], 4) for key in JUDGED},
        "accuracy": round(few_labels(model, reading, seed=seed), 4),
    }


def few_labels(start: MaskedLanguageModel | Bert, reading: Reading, *, seed: int) -> float:
    """Mean test accuracy over `DRAWS` draws of `FEW` texts of each label."""
    tuned = (fine_tuned(start, reading, FEW, seed=10 * seed + draw)[0] for draw in range(DRAWS))
    return fmean(accuracy(model, reading.test) for model in tuned)


# ---- stored: one direction or two --------------------------------------------------------------------------------


DIRECTIONS = {"the left": LanguageModel, "both sides": BidirectionalModel}


@experiment
def directions(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 2000) -> list[dict[str, Any]]:
    """The same masked tokens, predicted by two models that differ in their mask alone: from the left, or from all."""
    reading = Reading(data.load("docstrings"))
    config = replace(SMALL, position=POSITIONS["rotary"])  # with which both learn word order sooner
    plan = Pretraining(config=config, steps=steps, masking=Masking(rate=0.3), even=True, embedding_lr_factor=1.0)
    read = running_text(reading.texts)
    test = running_text([reading.encode(text) for text, _ in reading.corpus.test])
    masked = mask_tokens(test.ids, reading.vocab, MASK_ONLY, generator=seeded(0))

    def curve(kind: type[LanguageModel], seed: int) -> list[dict[str, float]]:
        runtime.seed(seed)
        model = kind(reading.vocab, plan.config).to(runtime.device())
        batches = masked_batches(read, reading, plan, seed=seed)
        evaluate = partial(prediction_scores, masked=masked)
        return training.fit(model, prediction_loss, batches, plan.recipe(), evaluate=evaluate).evaluations

    return [
        {"sees": name, "seed": seed, "curve": curve(kind, seed)} for seed in seeds for name, kind in DIRECTIONS.items()
    ]


def running_text(texts: Sequence[Sequence[int]]) -> Rows:
    """Texts one after the other, each followed by `[SEP]`, cut into rows of `LONGEST` ids without padding."""
    ids = torch.tensor([i for text in texts for i in (*text, SEP)]).unfold(0, LONGEST, LONGEST)
    return Rows(ids, torch.full((len(ids),), LONGEST), torch.zeros_like(ids), torch.zeros(len(ids), dtype=torch.int64))


def prediction_loss(model: LanguageModel, batch: MaskedBatch) -> Loss:
    """Mean cross-entropy of the masked tokens, in nats, each predicted from the output at its own position."""
    asked = batch.masked.targets != IGNORE_INDEX
    return masked_token_loss(model(batch.masked.ids)[asked], batch.masked.targets[asked])


@torch.no_grad()
def prediction_scores(model: LanguageModel, masked: Masked) -> dict[str, float]:
    """Loss and shares of right predictions, by `scores`."""
    asked = masked.targets != IGNORE_INDEX
    return scores(model(masked.ids.to(runtime.device()))[asked.to(runtime.device())], masked.targets[asked])


# ---- stored: learning from every token ---------------------------------------------------------------------------


@experiment
def electra(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1000) -> list[dict[str, Any]]:
    """What masked tokens and replaced tokens are worth with few labels, as training goes on.

    The generator has one block and a quarter of the width of the discriminator's feed-forward layer. The learning rate
    depends on the step alone: each point of a curve is a run that ends there.
    """
    reading = Reading(data.load("docstrings"))
    plan = Pretraining(steps=steps)
    rows = []
    for seed in seeds:
        batches = masked_batches(reading.windows(), reading, plan, seed=seed)
        for name, (build, loss, body) in OBJECTIVES.items():
            runtime.seed(seed)
            model = build(reading.vocab).to(runtime.device())
            step = partial(_one_step, model, loss, batches(0).to(runtime.device()))

            def evaluate(model: nn.Module, body: Callable[[Any], Bert] = body, seed: int = seed) -> dict[str, float]:
                with torch.enable_grad():
                    return {"accuracy": few_labels(body(model), reading, seed=seed)}

            recipe = replace(plan.recipe(), schedule=training.inverse_sqrt(steps // 10))
            history = training.fit(model, loss, batches, recipe, evaluate=evaluate)
            rows.append(
                {"objective": name, "seed": seed, "flops a step": count_flops(step), "curve": history.evaluations}
            )
    return rows


def _bert(vocab: int) -> MaskedLanguageModel:
    return MaskedLanguageModel(fresh(vocab, SMALL))


def _electra(vocab: int) -> Electra:
    generator = replace(SMALL, layers=1, d_ff=SMALL.d_ff // 4)
    return Electra(MaskedLanguageModel(fresh(vocab, generator)), fresh(vocab, SMALL))


def replaced_loss(model: Electra, batch: MaskedBatch) -> Loss:
    """ELECTRA's: was this token replaced?"""
    return electra_loss(model, batch.masked, batch.rows.lengths)


OBJECTIVES: dict[
    str, tuple[Callable[[int], Any], Callable[[Any, MaskedBatch], Loss], Callable[[Any], Bert]]
] = {  # what is built, its loss, and the part of it that is fine-tuned
    "masked tokens (BERT)": (_bert, mlm_loss, lambda model: model.bert),
    "replaced tokens (ELECTRA)": (_electra, replaced_loss, lambda model: model.discriminator.bert),
}


def _one_step(model: nn.Module, loss: Callable[[Any, MaskedBatch], Loss], batch: MaskedBatch) -> None:
    loss(model, batch).mean.backward()


# ---- stored: smaller models --------------------------------------------------------------------------------------

SHARING: dict[str, tuple[int, Callable[[int, Any], Bert]]] = {  # blocks, and how the body is built
    "BERT, 4 blocks": (4, Bert),
    "BERT, 1 block": (1, Bert),
    "ALBERT, 1 block used 4 times": (4, partial(Albert, d_embed=64)),
    "ALBERT, words of width 16": (4, partial(Albert, d_embed=16)),
}


@experiment
def sharing(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1500) -> list[dict[str, Any]]:
    """Parameters against quality: four blocks, one, one that is used four times, and narrow embeddings before it."""
    reading = Reading(data.load("docstrings"))
    plans = {
        name: Pretraining(config=replace(SMALL, layers=layers), body=body, steps=steps)
        for name, (layers, body) in SHARING.items()
    }
    return [{"model": name, **_worth(plan, reading, seed)} for seed in seeds for name, plan in plans.items()]


@experiment
def distilled(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1500) -> list[dict[str, Any]]:
    """A teacher of four blocks, its student of two, and two blocks without a teacher: size, speed and quality.

    The student is initialized with blocks of its teacher, and so is one of the others; the last one is random.
    """
    reading = Reading(data.load("docstrings"))
    plan = Pretraining(config=replace(SMALL, layers=4), steps=steps)
    rows = []
    for seed in seeds:
        teacher, _ = pretrained(plan, reading, seed=seed)
        models = {
            "teacher, 4 blocks": teacher,
            "student, 2 blocks": student(teacher, 2, plan, reading, seed=seed),
            "its initialization, no teacher": student(teacher, 2, plan, reading, seed=seed, distill=False),
            "2 blocks, no teacher": pretrained(replace(plan, config=SMALL), reading, seed=seed)[0],
        }
        rows += [
            {
                "model": name,
                "seed": seed,
                "parameters": parameters(model.bert),
                "seconds a text": _seconds_a_text(model.bert, reading.test),
                **{key: round(value, 4) for key, value in judged(model, reading).items() if key in JUDGED},
                "accuracy": round(few_labels(model, reading, seed=seed), 4),
            }
            for name, model in models.items()
        ]
    return rows


def student(
    teacher: MaskedLanguageModel,
    layers: int,
    plan: Pretraining,
    reading: Reading,
    *,
    seed: int,
    distill: bool = True,
) -> MaskedLanguageModel:
    """A model that starts with blocks of its teacher and, with `distill`, imitates its output (Sanh et al., 2019)."""
    runtime.seed(seed)
    model = MaskedLanguageModel(student_of(teacher.bert, layers)).to(runtime.device())
    model.head.load_state_dict(teacher.head.state_dict())

    def both(model: MaskedLanguageModel, batch: MaskedBatch) -> Loss:
        asked = batch.masked.targets != IGNORE_INDEX
        logits = [m.head(m.bert(batch.masked.ids, batch.rows.lengths)[asked]) for m in (model, teacher)]
        return distillation_loss(*logits) + mlm_loss(model, batch)

    batches = masked_batches(reading.windows(), reading, plan, seed=seed)
    training.fit(model, both if distill else mlm_loss, batches, plan.recipe())
    return model


@torch.inference_mode()
def _seconds_a_text(body: Bert, rows: Rows) -> float:
    rows = rows[:64].to(runtime.device())
    (times,) = in_turns({"body": lambda: body(rows.ids, rows.lengths)}, 10).values()
    return median(times) / len(rows)
