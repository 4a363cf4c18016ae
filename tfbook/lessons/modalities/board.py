"""The scoreboard of lesson 19: every task with our blocks, the best rival, and the trivial answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import nn

from tfbook.course.cost import parameters
from tfbook.course.experiments import stored
from tfbook.lessons.modalities.clubs import share_right, unseen_clubs
from tfbook.lessons.modalities.order import ATTENDING, CNN_TOWERS, CONVOLVING, STREAM, SWAPPED, all_orders
from tfbook.lessons.modalities.pictures_and_words import LOOKS
from tfbook.lessons.modalities.rings import most_frequent
from tfbook.lessons.modalities.rivals import all_digits
from tfbook.lessons.modalities.sound import MODELS

if TYPE_CHECKING:
    from pandas import DataFrame

Scores = Mapping[str, Sequence[float]]  # "our blocks", "best rival", "trivial" → a score for each seed


def _of(runs: DataFrame, score: str, **wanted: object) -> list[float]:
    """The scores of the runs whose columns have these values."""
    for column, value in wanted.items():
        runs = runs[runs[column] == value]
    return [float(each) for each in runs[score]]


def _best(runs: DataFrame, score: str, column: str, names: Sequence[str]) -> list[float]:
    """The scores of the one of these models whose mean is highest, among those that have run."""
    found = [scores for name in names if (scores := _of(runs, score, **{column: name}))]
    return max(found, key=lambda scores: sum(scores) / len(scores))


def scoreboard() -> dict[str, Scores]:
    """The stored scores of each task; R² where a number is asked, shares of right answers elsewhere."""
    tables, stand = stored("modalities.tables").frame, stored("modalities.reasons").frame
    hops, codes = stored("modalities.hops").frame, stored("modalities.codes").frame
    digits = all_digits()
    classical, usual = ("boosted trees", "linear model"), stand[stand["variant"] == "as it is"]
    small = {name: tables[tables["table"] == name] for name in ("wine", "breast cancer", "diabetes")}
    walks = codes[codes["sight"] == "+ return probabilities"]
    listeners = [name for name in digits["model"].unique() if name not in MODELS]
    rows = {
        "table: ice cream (R²)": (
            _of(usual, "test", model="FT-Transformer"),
            _best(usual, "test", "model", classical),
            [0.0],
        ),
        **{
            f"table: {name}{' (R²)' * (name == 'diabetes')}": (
                _of(runs, "test", model="FT-Transformer"),
                _best(runs, "test", "model", classical),
                _of(runs, "test", model="trivial"),
            )
            for name, runs in small.items()
        },
        "graph: clubs": (
            _of(hops, "right", reader="our blocks along edges", layers=4),
            _of(hops, "right", reader="GCN", layers=4),
            [share_right(unseen_clubs().target * 0, unseen_clubs())],
        ),
        "graph: rings": (
            _of(walks, "right", reader="our blocks along edges"),
            _best(walks, "right", "reader", ("GCN", "boosted trees")),
            [most_frequent()],
        ),
        "sound: digits": (
            _of(digits, "right", model="Transformer, strips"),
            _best(digits, "right", "model", listeners),
            [0.1],
        ),
        **_with_texts(),
    }
    names = ("our blocks", "best rival", "trivial")
    return {task: dict(zip(names, scores, strict=True)) for task, scores in rows.items()}


def _with_texts() -> dict[str, tuple[list[float], ...]]:
    pairs, looks = stored("modalities.images_and_captions").frame, stored("modalities.towers").frame
    order = all_orders().assign(worse=lambda runs: runs[list(SWAPPED)].min(axis=1))
    return {
        "image with text: caption of 100": (
            _of(pairs, "caption found", model="CLIP"),
            _best(pairs, "caption found", "model", ("color histograms, linear", "words as labels")),
            [0.01],
        ),
        "image with text: look, 180 steps": (
            _of(looks, "right", model=ATTENDING),
            _of(looks, "right", model=CONVOLVING),
            [1 / len(LOOKS)],
        ),
        "image with text: who is where": (
            _of(order, "worse", model=STREAM),
            _of(order, "worse", model=CNN_TOWERS),
            [0.5],
        ),
    }


def stacks(models: Mapping[str, nn.Module], tokens: Mapping[str, int | str]) -> DataFrame:
    """For each model: the class of its stack, its parameters in the blocks and outside of them, and its tokens."""
    import pandas as pd

    found = {}
    for name, model in models.items():
        stack: nn.Module = model.stack  # type: ignore[assignment]
        blocks = parameters(stack)
        found[name] = {
            "tokens": tokens[name],
            "blocks": f"{type(stack).__name__} of {len(stack.blocks)}",  # type: ignore[arg-type]
            "parameters of the blocks": f"{blocks:,}",
            "of tokenizer and head": f"{parameters(model) - blocks:,}",
        }
    return pd.DataFrame(found).T
