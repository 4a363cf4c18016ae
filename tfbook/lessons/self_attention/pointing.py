"""Where *it* looks in readers of two layers, and who has to read the last word: many runs, stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.layer import attention_weights
from tfbook.lessons.self_attention.rivals import READERS, Reader
from tfbook.lessons.self_attention.runs import reader_loss, train_on
from tfbook.lessons.self_attention.words import (
    FIRST,
    FORM,
    IT,
    REASON,
    SECOND,
    TEST,
    named_right,
    points_right,
    pronouns,
)

if TYPE_CHECKING:
    from pandas import DataFrame

RIGHT, MOSTLY = 0.95, 0.8  # shares of sentences from which on a run counts as right, and as looking at an animal


def without_reason(positions: Sequence[int]) -> Bool[Tensor, "query key"]:
    """The mask that hides the last word from these positions."""
    mask = torch.ones(len(FORM), len(FORM), dtype=torch.bool)
    mask[list(positions), REASON] = False
    return mask


def states(
    reader: Reader, ids: Int[Tensor, "batch n"], mask: Bool[Tensor, "query key"] | None = None
) -> list[Float[Tensor, "batch n d"]]:
    """The vectors of all words before and after each layer; the mask holds in every layer."""
    found = [reader.word(ids) + reader.position.weight]
    for layer in reader.layers:
        found.append(found[-1] + layer(found[-1], mask=mask))
    return found


def _answer(reader: Reader, ids: Int[Tensor, "batch n"], *, hidden_from: Sequence[int]) -> Float[Tensor, "batch word"]:
    return reader.name(states(reader, ids, without_reason(hidden_from))[-1][:, IT])


@torch.no_grad()
def look(reader: Reader) -> dict[str, float]:
    """How often a reader of two layers names and points right, and how often it names right without the last word."""
    test = pronouns(500, TEST, unseen=True)
    x, layer = states(reader, test.ids)[1], reader.layers[1]
    weights = attention_weights(layer.W_Q(x), layer.W_K(x))
    other = test._replace(place=FIRST + SECOND - test.place)
    found = {"right": named_right(reader), "points": points_right(test, weights), "other": points_right(other, weights)}
    blind = {"it": [IT], "animals": [FIRST, SECOND], "first": [FIRST], "second": [SECOND]}
    found |= {
        f"without {who}": named_right(partial(_answer, reader, hidden_from=places)) for who, places in blind.items()
    }
    return {name: round(share, 4) for name, share in found.items()}


@experiment
def pointing(
    rates: Sequence[float] = (0.001, 0.003), seeds: Sequence[int] = range(100, 112), steps: int = 500
) -> list[dict[str, Any]]:
    """The findings of `look` in many readers of two layers. The seeds were fixed before any of their runs was seen."""
    rows = []
    for rate in rates:
        for seed in seeds:
            torch.manual_seed(seed)
            reader = READERS["two layers"]()
            rows.append({"rate": rate, "seed": seed, **look(train_on(reader, reader_loss(reader), steps, rate))})
    return rows


def many_readers(rows: Sequence[Mapping[str, Any]], rate: float) -> DataFrame:
    """How many of the stored readers at this rate name right, look right, and need whose view of the last word."""
    import pandas as pd

    runs = [row for row in rows if row["rate"] == rate]
    able = [row for row in runs if row["right"] >= RIGHT]
    counts = {
        "all": len(runs),
        "name the right animal": len(able),
        "… and “it” looks at it": sum(row["points"] >= MOSTLY for row in able),
    }
    readers = {"it": "“it”", "first": "the first animal", "second": "the second animal", "animals": "both animals"}
    counts |= {
        f"… still, last word hidden from {who}": sum(row[f"without {key}"] >= RIGHT for row in able)
        for key, who in readers.items()
    }
    return pd.DataFrame({"runs": counts})
