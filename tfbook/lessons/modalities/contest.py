"""Who wins on tables: FT-Transformer, boosted trees and linear models, each with as many random trials."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.course.experiments import experiment, stored
from tfbook.data.tables import DataTable, TableRows, TableSplit, ice_cream, one_hot, read_table, rotated
from tfbook.lessons.modalities.stand import new_ft, predictions, train_table

if TYPE_CHECKING:
    from pandas import DataFrame

Options = dict[str, Any]
Predict = Callable[[TableRows], Tensor]  # labels, or numbers
Fit = Callable[[DataTable, TableRows, Options], Predict]


# ---- the contestants -------------------------------------------------------------------------------------------------


def _log_uniform(generator: random.Random, low: float, high: float) -> float:
    return math.exp(generator.uniform(math.log(low), math.log(high)))


def draw_trees(generator: random.Random) -> Options:
    """Options of a histogram gradient boosting."""
    return {
        "learning_rate": _log_uniform(generator, 0.02, 0.3),
        "max_iter": generator.choice((50, 100, 200, 400)),
        "max_leaf_nodes": generator.choice((4, 8, 16, 31)),
        "min_samples_leaf": generator.choice((2, 5, 10, 20)),
        "l2_regularization": generator.choice((0.0, 0.1, 1.0, 10.0)),
    }


def fit_trees(table: DataTable, train: TableRows, options: Options) -> Predict:
    """Histogram gradient boosting of scikit-learn, which splits on categories as sets."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    numbers = train.numbers.shape[1]
    kind = HistGradientBoostingClassifier if table.labels else HistGradientBoostingRegressor
    model = kind(
        categorical_features=[*range(numbers, numbers + len(table.values))],
        early_stopping=False,
        random_state=0,
        **options,
    )
    model.fit(_side_by_side(train), train.target.numpy())
    return lambda rows: torch.from_numpy(model.predict(_side_by_side(rows)))


def _side_by_side(rows: TableRows) -> Any:
    return torch.cat([rows.numbers, rows.categories.float()], dim=1).numpy()


def draw_linear(generator: random.Random) -> Options:
    """The penalty of a linear model."""
    return {"penalty": _log_uniform(generator, 1e-3, 1e3)}


def fit_linear(table: DataTable, train: TableRows, options: Options) -> Predict:
    """Logistic or ridge regression."""
    from sklearn.linear_model import LogisticRegression, Ridge

    penalty = options["penalty"]
    model = LogisticRegression(C=1 / penalty, max_iter=2000) if table.labels else Ridge(alpha=penalty)
    model.fit(one_hot(train, table.values).numpy(), train.target.numpy())
    return lambda rows: torch.from_numpy(model.predict(one_hot(rows, table.values).numpy()))


def draw_mlp(generator: random.Random) -> Options:
    """Sizes of a multilayer perceptron and how it is trained."""
    return {
        "hidden_layer_sizes": generator.choice(((64, 64), (128, 128))),
        "learning_rate_init": _log_uniform(generator, 1e-3, 1e-2),
        "alpha": _log_uniform(generator, 1e-4, 1.0),
        "max_iter": generator.choice((50, 100)),
    }


def fit_mlp(table: DataTable, train: TableRows, options: Options) -> Predict:
    """A multilayer perceptron of scikit-learn on all columns side by side: its first layer prefers no axis."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    model = (MLPClassifier if table.labels else MLPRegressor)(random_state=0, **options)
    with warnings.catch_warnings():  # the number of rounds is an option here, and none of them waits for a plateau
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(one_hot(train, table.values).numpy(), train.target.numpy())
    return lambda rows: torch.from_numpy(model.predict(one_hot(rows, table.values).numpy()))


def draw_ft(generator: random.Random) -> Options:
    """Sizes of an FT-Transformer and how it is trained."""
    return {
        "lr": _log_uniform(generator, 1e-3, 1e-2),
        "steps": generator.choice((100, 200)),
        "layers": generator.choice((1, 2)),
        "dropout": generator.choice((0.0, 0.1, 0.3)),
        "decay": generator.choice((0.0, 0.1)),
    }


def fit_ft(table: DataTable, train: TableRows, options: Options) -> Predict:
    """The package's FT-Transformer."""
    model = new_ft(table, layers=options["layers"], dropout=options["dropout"])
    train_table(model, train, steps=options["steps"], lr=options["lr"], decay=options["decay"])

    def predict(rows: TableRows) -> Tensor:
        out = predictions(model, rows)
        return out.argmax(dim=1) if table.labels else out[:, 0]

    return predict


def fit_trivial(table: DataTable, train: TableRows, options: Options) -> Predict:
    """The most frequent label, or the mean."""
    answer = train.target.mode().values if table.labels else train.target.mean()
    return lambda rows: answer.expand(len(rows))


@dataclass(frozen=True)
class Contestant:
    """How options are drawn, and how a model is fitted with them."""

    draw: Callable[[random.Random], Options]
    fit: Fit


CONTESTANTS = {
    "FT-Transformer": Contestant(draw_ft, fit_ft),
    "boosted trees": Contestant(draw_trees, fit_trees),
    "linear model": Contestant(draw_linear, fit_linear),
    "MLP": Contestant(draw_mlp, fit_mlp),
    "trivial": Contestant(lambda generator: {}, fit_trivial),
}


def score(table: DataTable, predicted: Tensor, rows: TableRows) -> float:
    """The share of right labels, or R² = 1 − mean square error / variance of the rows."""
    if table.labels:
        return float((predicted == rows.target).float().mean())
    return 1 - float((predicted - rows.target).square().mean() / rows.target.var(correction=0))


def best_of(name: str, table: DataTable, split: TableSplit, *, trials: int, seed: int) -> dict[str, Any]:
    """The score on the test rows of the trial that was best on the validation rows."""
    generator = random.Random(seed)
    tried = []
    for _ in range(trials if name != "trivial" else 1):
        options = CONTESTANTS[name].draw(generator)
        predict = CONTESTANTS[name].fit(table, split.train, options)
        valid, test = (score(table, predict(rows), rows) for rows in (split.valid, split.test))
        tried.append((valid, test, options))
    valid, test, options = max(tried, key=lambda each: each[0])
    return {"model": name, "seed": seed, "valid": round(valid, 4), "test": round(test, 4), "options": options}


# ---- experiments -----------------------------------------------------------------------------------------------------

TABLES = ("wine", "breast_cancer", "diabetes")


@experiment
def tables(seeds: Sequence[int] = (1, 2, 3), *, trials: int = 3) -> list[dict[str, Any]]:
    """Three tables of scikit-learn, three splits, three random trials for each contestant, chosen by validation."""
    return [
        {"table": table.name} | best_of(name, table, table.split(seed), trials=trials, seed=seed)
        for table in map(read_table, TABLES)
        for name in CONTESTANTS
        if name != "MLP"
        for seed in seeds
    ]


VARIANTS = ("as it is", "16 useless columns", "axes turned")


@experiment
def reasons(seeds: Sequence[int] = (1, 2), *, trials: int = 3, rows: int = 3000) -> list[dict[str, Any]]:
    """The stand as it is, with more useless columns, and with the axes of its numbers turned at random."""
    return _on_variants(("FT-Transformer", "boosted trees", "linear model"), seeds, trials=trials, rows=rows)


@experiment
def without_columns(seeds: Sequence[int] = (1, 2, 3), *, trials: int = 3, rows: int = 3000) -> list[dict[str, Any]]:
    """The rival that prefers no axis, a multilayer perceptron, on the same stands and a third one."""
    return _on_variants(("MLP",), seeds, trials=trials, rows=rows)


def _on_variants(names: Sequence[str], seeds: Sequence[int], *, trials: int, rows: int) -> list[dict[str, Any]]:
    found = []
    for variant in VARIANTS:
        irrelevant = 16 if variant == "16 useless columns" else 4
        for seed in seeds:
            table = ice_cream(rows, seed=seed, irrelevant=irrelevant)
            split = table.split(seed)
            if variant == "axes turned":
                split = TableSplit(*(rotated(part, seed) for part in (split.train, split.valid, split.test)))
            for name in names:
                found.append({"variant": variant} | best_of(name, table, split, trials=trials, seed=seed))
    return found


# ---- tables and claims -----------------------------------------------------------------------------------------------


def all_reasons() -> DataFrame:
    """The stored runs of `reasons` and of `without_columns` in one table."""
    import pandas as pd

    return pd.concat([stored("modalities.reasons").frame, stored("modalities.without_columns").frame])


def by_table(runs: DataFrame, group: str = "table") -> DataFrame:
    """Mean and range of the test scores over the seeds: a row for each table, a column for each contestant."""
    scores = runs.groupby([group, "model"], sort=False)["test"].agg(["mean", "min", "max"])
    text = scores.apply(lambda row: f"{row['mean']:.2f} ({row['min']:.2f} to {row['max']:.2f})", axis=1)
    return text.unstack().reindex(columns=[name for name in CONTESTANTS if name in text.index.levels[1]])


def table_claims(runs: DataFrame) -> dict[int, float]:
    """The largest lead of FT-Transformer over the best of trees and linear models, in means of the splits."""
    means = runs.groupby(["table", "model"])["test"].mean().unstack()
    return {2: (means["FT-Transformer"] - means[["boosted trees", "linear model"]].max(axis=1)).max()}


def reason_claims(runs: DataFrame) -> dict[int, float]:
    """The loss in R² by turned axes, to trees or to FT-Transformer, whichever loses less."""
    means = runs.groupby(["variant", "model"])["test"].mean()
    lost = means["as it is"] - means["axes turned"]
    return {10: min(lost["boosted trees"], lost["FT-Transformer"])}


def wins(runs: DataFrame, model: str, other: str) -> int:
    """In how many of the splits a model's test score is above the other's."""
    scores = runs.pivot_table(index=["table", "seed"], columns="model", values="test")
    return int((scores[model] > scores[other]).sum())
