"""Choices in BERT's pretraining, tried on Python's docstrings: which tokens are masked, shared blocks, distillation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

import torch

from tfbook import data, runtime, training
from tfbook.course.cost import in_turns, parameters
from tfbook.course.experiments import experiment
from tfbook.lessons.bert_masking.small_bert import (
    OFTEN,
    SMALL,
    MaskedBatch,
    Pretraining,
    Reading,
    Rows,
    accuracy,
    fine_tuned,
    judged,
    masked_batches,
    mlm_loss,
    pretrained,
)
from tfbook.models.bert import Bert, MaskedLanguageModel
from tfbook.models.bert_variants import Albert, student_of
from tfbook.text.masking import IGNORE_INDEX, Masking
from tfbook.training.losses import Loss, distillation_loss

DRAWS = 2  # random selections of labeled texts per pretrained model
FEW = 8  # texts per label where only one number is tried
JUDGED = ("nats", "right", "rare in ten")  # the scores of a pretrained model in a row

# ---- stored: which tokens are masked, and how ------------------------------------------------------------------------

STRATEGIES: dict[str, dict[str, Any]] = {  # differences from the defaults of `Pretraining`, the first row
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
    """Quality by masked tokens: which, how many, and [MASK] / unchanged / random shares (Devlin et al., 2019, table 8).

    Then the same tokens in every epoch (Liu et al., 2019, section 4.1), and pairs for next-sentence prediction.
    """
    reading = Reading(data.load("docstrings"))
    return [
        {"strategy": name, **_worth(Pretraining(steps=steps, **changes), reading, seed)}
        for seed in seeds
        for name, changes in STRATEGIES.items()
    ]


def _worth(plan: Pretraining, reading: Reading, seed: int) -> dict[str, Any]:
    """How well a pretrained model predicts masked tokens, and its accuracy after fine-tuning on few labels."""
    model, history = pretrained(plan, reading, seed=seed)
    return {
        "seed": seed,
        "parameters": parameters(model.bert),
        "seconds": round(history.elapsed, 1),
        **{key: round(history.evaluations[-1][key], 4) for key in JUDGED},
        "accuracy": round(few_labels(model, reading, seed=seed), 4),
    }


def few_labels(start: MaskedLanguageModel | Bert, reading: Reading, *, seed: int) -> float:
    """Mean test accuracy over `DRAWS` random selections of `FEW` texts per label."""
    tuned = (fine_tuned(start, reading, FEW, seed=10 * seed + draw)[0] for draw in range(DRAWS))
    return fmean(accuracy(model, reading.test) for model in tuned)


# ---- stored: smaller models ------------------------------------------------------------------------------------------

SHARING: dict[str, tuple[int, Callable[[int, Any], Bert]]] = {  # blocks, and how the body is built
    "BERT, 4 blocks": (4, Bert),
    "BERT, 1 block": (1, Bert),
    "ALBERT, 1 block used 4 times": (4, partial(Albert, d_embed=64)),
    "ALBERT, embeddings of width 16": (4, partial(Albert, d_embed=16)),
}


@experiment
def sharing(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1500) -> list[dict[str, Any]]:
    """Parameters against quality: four blocks, one, one used four times, and that with factorized embeddings."""
    reading = Reading(data.load("docstrings"))
    plans = {
        name: Pretraining(config=replace(SMALL, layers=layers), body=body, steps=steps)
        for name, (layers, body) in SHARING.items()
    }
    return [{"model": name, **_worth(plan, reading, seed)} for seed in seeds for name, plan in plans.items()]


@experiment
def distilled(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1500) -> list[dict[str, Any]]:
    """A teacher of four blocks, its student of two, and two blocks without a teacher: size, speed and quality.

    The student starts from blocks of its teacher, and so does one of the others; the last one starts from random
    weights.
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
    """A model that starts from blocks of its teacher and, with `distill`, imitates its output (Sanh et al., 2019)."""
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
