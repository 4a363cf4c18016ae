"""The ice cream stand of lesson 19: the learner's FT-Transformer, its rivals, and a reader's own hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.data.tables import (
    NOISE,
    STAND_NUMBERS,
    DataTable,
    TableRows,
    TableSplit,
    cones_sold,
    ice_cream,
    one_hot,
)
from tfbook.models import tabular
from tfbook.models.tabular import FTTransformer, TableConfig, number_tokens as number_tokens

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS, SEED, BATCH = 3000, 19, 64

Tokens = Callable[[Tensor, Tensor, Tensor], Tensor]  # as `number_tokens`


@cache
def stand() -> DataTable:
    """3,000 hours at the stand."""
    return ice_cream(ROWS, seed=SEED)


@cache
def parts() -> TableSplit:
    """Its rows for training, validation and test."""
    return stand().split(SEED)


def falling(step: int, steps: int) -> float:
    """The factor on the learning rate: it falls in a line to zero."""
    return 1 - step / steps


def new_ft(table: DataTable, *, seed: int = 1, **sizes: Any) -> FTTransformer:
    """An untrained FT-Transformer for a table."""
    runtime.seed(seed)
    numbers = table.rows.numbers.shape[1]
    config = TableConfig(numbers=numbers, categories=tuple(map(len, table.values)), **sizes)
    return FTTransformer(len(table.labels) if table.labels else 1, config).to(runtime.device())


def table_loss(model: nn.Module, rows: TableRows) -> Float[Tensor, ""]:
    """Cross-entropy in nats where labels are asked, mean squared error where numbers are."""
    out = model(rows.numbers, rows.categories)
    return F.mse_loss(out[:, 0], rows.target) if rows.target.is_floating_point() else F.cross_entropy(out, rows.target)


def train_table(
    model: nn.Module, rows: TableRows, *, steps: int, lr: float = 3e-3, seed: int = 1, decay: float = 0.0
) -> training.History:
    """AdamW on random batches of 64 rows at a rate that falls to zero."""

    def batch(step: int) -> TableRows:
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        return rows[torch.randint(len(rows), (BATCH,), generator=generator)]

    recipe = training.Recipe(steps=steps, lr=lr, schedule=falling, weight_decay=decay, mixed_precision=False)
    return training.fit(model, table_loss, batch, recipe)


@torch.no_grad()
def predictions(model: nn.Module, rows: TableRows) -> Tensor:
    """Logits or values of all rows, on the CPU."""
    device = runtime.device()
    chunks = [rows[start : start + 512].to(device) for start in range(0, len(rows), 512)]
    return torch.cat([model(chunk.numbers, chunk.categories) for chunk in chunks]).cpu()


# ---- in cones ------------------------------------------------------------------------------------------------------


def in_cones(scaled: Tensor, table: DataTable | None = None) -> Tensor:
    """A standardized target as cones per hour, with the mean and deviation of the training rows."""
    raw = (table or stand()).rows.target[_training_rows(table or stand())]
    return scaled * raw.std(correction=0) + raw.mean()


def _training_rows(table: DataTable) -> Tensor:
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(SEED))
    return order[2 * round(len(table) * 0.2) :]


def miss(predicted: Tensor, rows: TableRows, table: DataTable | None = None) -> float:
    """The typical error, √ of the mean square, in cones per hour."""
    off = in_cones(predicted, table) - in_cones(rows.target, table)
    return float(off.square().mean().sqrt())


def rivals() -> dict[str, Tensor]:
    """Predictions for the test rows of the mean, ridge regression and boosted trees with their default options."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    train, test = parts().train, parts().test
    values, found = stand().values, {"the mean": torch.zeros(len(parts().test))}
    for name, model in {"ridge regression": RidgeCV(), "boosted trees": HistGradientBoostingRegressor()}.items():
        model.fit(one_hot(train, values).numpy(), train.target.numpy())
        found[name] = torch.from_numpy(model.predict(one_hot(test, values).numpy())).float()
    return found


def head(rows: int = 4) -> DataFrame:
    """The first hours of the table, as they are."""
    import pandas as pd

    table = stand()
    numbers = len(table.columns) - len(table.values)
    shown = pd.DataFrame(table.rows.numbers[:rows].double().numpy().round(1), columns=table.columns[:numbers])
    for j, values in enumerate(table.values):
        shown[table.columns[numbers + j]] = [values[code] for code in table.rows.categories[:rows, j].tolist()]
    shown["cones sold"] = table.rows.target[:rows].double().numpy().round(1)
    return shown


def board_claims(found: DataFrame) -> dict[int, float]:
    """The error of the FT-Transformer as a share of ridge regression's."""
    errors = found.iloc[:, 0]
    return {1: errors["your FT-Transformer"] / errors["ridge regression"]}


def board(model: nn.Module) -> DataFrame:
    """The typical error in cones per hour of everything on the test rows, and of the rule, which leaves the noise."""
    import pandas as pd

    test = parts().test
    misses = {name: miss(guess, test) for name, guess in rivals().items()}
    misses["your FT-Transformer"] = miss(predictions(model, test)[:, 0], test)
    misses["the rule itself"] = NOISE
    return pd.DataFrame({"typical error, cones per hour": misses}).round(2)


# ---- an hour of the reader's own -------------------------------------------------------------------------------------


def hours(*typed: Mapping[str, Any]) -> TableRows:
    """Hours in words, such as {"temperature": 30, "hour": 14, "price": 2.5, "distance": 1, "sky": "sun", …}, as rows.

    Useless numbers are 0 and the flavor is vanilla unless they are given. Raises ValueError for an unknown column, a
    value that its column does not have, and one outside the years that were seen.
    """
    table = stand()
    defaults = {name: 0.0 for name in table.columns if name.startswith("useless")} | {"flavor": "vanilla"}
    numbers, categories = [], []
    for hour in typed:
        row = defaults | dict(hour)
        if wrong := [name for name in row if name not in table.columns]:
            raise ValueError(f"the table has no column {wrong[0]!r}; its columns are {', '.join(table.columns)}")
        if missing := [name for name in table.columns if name not in row]:
            raise ValueError(f"an hour has no {missing[0]!r}; expected {', '.join((*STAND_NUMBERS, 'sky', 'day'))}")
        names = table.columns[len(table.columns) - len(table.values) :]
        for name, values in zip(names, table.values, strict=True):
            if row[name] not in values:
                raise ValueError(f"{name} is {row[name]!r}; expected {', '.join(values)}")
        numbers.append([float(row[name]) for name in table.columns[: len(table.columns) - len(names)]])
        categories.append([values.index(row[name]) for name, values in zip(names, table.values, strict=True)])
    return TableRows(torch.tensor(numbers), torch.tensor(categories), torch.zeros(len(numbers)))


def sell(model: nn.Module, *typed: Mapping[str, Any]) -> DataFrame:
    """The model's guess for hours typed by the reader, and the rule's."""
    import pandas as pd

    rows, train = hours(*typed), stand().rows.numbers[_training_rows(stand())]
    scaled = (rows.numbers - train.mean(dim=0)) / train.std(dim=0, correction=0)
    expected = in_cones(predictions(model, TableRows(scaled, rows.categories, rows.target))[:, 0])
    found = pd.DataFrame(typed)
    found["the model says"] = expected.double().numpy().round(1)
    found["the rule says"] = cones_sold(rows.numbers, rows.categories).double().numpy().round(1)
    return found


class LearnersTokenizer(tabular.FeatureTokenizer):
    """The tokenizer with another function for the tokens of numbers: the learner's."""

    def __init__(self, numbers: int, categories: tuple[int, ...], d_model: int, tokens: Tokens):
        super().__init__(numbers, categories, d_model)
        self.tokens = tokens

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """The tokens of each row, numbers first; nothing may be missing."""
        made = self.tokens(numbers, self.weight, self.bias)
        looked_up = [(table(categories[:, j]) + self.table_bias[j])[:, None] for j, table in enumerate(self.tables)]
        return torch.cat([made, *looked_up], dim=1)


def learners_ft(tokens: Tokens, *, seed: int = 1) -> FTTransformer:
    """An untrained FT-Transformer for the stand whose numbers become tokens by the learner's function."""
    model = new_ft(stand(), seed=seed)
    config, kept = model.config, model.tokenizer.state_dict()
    model.tokenizer = LearnersTokenizer(config.numbers, config.categories, config.d_model, tokens)
    model.tokenizer.load_state_dict(kept)
    return model.to(runtime.device())
