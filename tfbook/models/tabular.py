"""Tables as tokens: a feature tokenizer, and FT-Transformer, which puts it in front of the shared blocks.

Shapes: batch (rows of the table), number (numeric columns), category (categorical ones), time (1 + number + category),
d_model, output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.positions import MakePosition
from tfbook.models.blocks import Config, MakePart, Stack
from tfbook.models.feed_forward import FeedForward


def number_tokens(
    x: Float[Tensor, "batch number"], weight: Float[Tensor, "number d_model"], bias: Float[Tensor, "number d_model"]
) -> Float[Tensor, "batch number d_model"]:
    """x_j · w_j + b_j: a token for each number of a row (Gorishniy et al., 2021, section 3.3)."""
    return x[:, :, None] * weight + bias


class FeatureTokenizer(nn.Module):
    """A row as tokens: x_j · w_j + b_j for numbers, e_j[c] + b_j for categories (Gorishniy et al., 2021, section 3.3).

    `categories` holds the number of values of each categorical column. A number that is missing (NaN) gets a trained
    token of its column instead, `missing`. Raises ValueError when there is no column, or a category without values.
    """

    UNDECAYED = ("weight", "bias", "missing", "table_bias")  # vectors of columns, which are added or stretched

    def __init__(self, numbers: int, categories: Sequence[int], d_model: int):
        super().__init__()
        if numbers < 0 or numbers + len(categories) < 1 or min([*categories, 1]) < 1:
            found = f"numbers is {numbers} and categories is {list(categories)}"
            raise ValueError(f"{found}; expected a column or more, and a value or more for each category")
        self.weight, self.bias, self.missing = (
            nn.Parameter(torch.empty(numbers, d_model).uniform_(-(d_model**-0.5), d_model**-0.5)) for _ in range(3)
        )
        self.tables = nn.ModuleList(nn.Embedding(values, d_model) for values in categories)
        self.table_bias = nn.Parameter(torch.zeros(len(categories), d_model))
        for table in self.tables:
            nn.init.uniform_(table.weight, -(d_model**-0.5), d_model**-0.5)  # type: ignore[arg-type]

    def forward(
        self, numbers: Float[Tensor, "batch number"], categories: Int[Tensor, "batch category"]
    ) -> Float[Tensor, "batch column d_model"]:
        """The tokens of each row, numbers first. Raises ValueError for another number of columns."""
        found, expected = (numbers.shape[1], categories.shape[1]), (len(self.weight), len(self.tables))
        if found != expected:
            raise ValueError(f"the rows have {found} numbers and categories; expected {expected}")
        there = ~numbers.isnan()
        tokens = number_tokens(numbers.nan_to_num(), self.weight, self.bias)
        tokens = torch.where(there[:, :, None], tokens, self.missing.to(tokens.dtype))
        looked_up = [table(categories[:, j]) + self.table_bias[j] for j, table in enumerate(self.tables)]
        return torch.cat([tokens, *(token[:, None] for token in looked_up)], dim=1)


_FEED_FORWARD = partial(FeedForward, activation=F.gelu)


@dataclass(frozen=True, kw_only=True)
class TableConfig(Config):
    """Columns of a table and sizes of the blocks; columns have no order, so there is no position encoding.

    Raises ValueError for impossible sizes.
    """

    numbers: int = 1
    categories: tuple[int, ...] = ()  # the number of values of each
    d_model: int = 32
    heads: int = 4
    d_ff: int = 64
    position: MakePosition | str = "none"
    feed_forward: MakePart | str = _FEED_FORWARD

    @property
    def time(self) -> int:
        """The number of positions: the class token and the columns."""
        return 1 + self.numbers + len(self.categories)


class FTTransformer(nn.Module):
    """A class token and the tokens of a row through blocks without a mask; the class token's vector is read.

    (Gorishniy et al., 2021, section 3.3.) The head is Linear(ReLU(LayerNorm(x))), the norm being the stack's last. The
    paper leaves away the norm before the first attention, which is kept here: the blocks are those of every lesson.
    """

    def __init__(self, outputs: int, config: TableConfig):
        super().__init__()
        self.config = config
        self.tokenizer = FeatureTokenizer(config.numbers, config.categories, config.d_model)
        self.token = nn.Parameter(torch.empty(1, 1, config.d_model).uniform_(-0.1, 0.1))
        self.stack = Stack(config)
        self.head = nn.Linear(config.d_model, outputs)

    def forward(
        self, numbers: Float[Tensor, "batch number"], categories: Int[Tensor, "batch category"]
    ) -> Float[Tensor, "batch output"]:
        """Logits, or predicted values, of each row."""
        tokens = self.tokenizer(numbers, categories)
        x = self.stack(torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1))
        return self.head(F.relu(x[:, 0]))
