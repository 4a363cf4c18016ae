"""BERT's experiments return what is plotted."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tfbook import data
from tfbook.data.sentences import LabeledText, LabeledTexts
from tfbook.lessons.bert_masking import small_bert, strategies
from tfbook.lessons.bert_masking.small_bert import SMALL, Pretraining
from tfbook.models.bert import Bert
from tfbook.models.bert_variants import Albert
from tfbook.text import Masking


def corpus() -> LabeledTexts:
    """Texts of two labels, each long enough for pairs."""
    generator = random.Random(1)
    texts = [" ".join(generator.choices(("red", "green", "one", "two"), k=30)) for _ in range(80)]
    return LabeledTexts.split("words", ("even", "odd"), [LabeledText(text, n % 2) for n, text in enumerate(texts)])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every experiment on the small corpus, with a small model and a handful of steps."""
    monkeypatch.setattr(data, "load", lambda name: corpus())
    monkeypatch.setattr(small_bert, "VOCAB", 300)
    monkeypatch.setattr(small_bert, "FINE", replace(small_bert.FINE, steps=2))
    monkeypatch.setattr(strategies, "SMALL", replace(SMALL, d_model=16, d_ff=32))
    monkeypatch.setattr(strategies, "FEW", 2)
    monkeypatch.setattr(strategies, "DRAWS", 1)
    changes = {"rare": {}, "even": {"even": True}, "static": {"static": True}, "pairs": {"pairs": True}}
    tiny = replace(SMALL, d_model=16, d_ff=32)
    monkeypatch.setattr(strategies, "STRATEGIES", {name: change | {"config": tiny} for name, change in changes.items()})
    monkeypatch.setattr(strategies, "SHARING", {"BERT": (2, Bert), "ALBERT": (2, partial(Albert, d_embed=4))})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("experiment", "keys", "count"),
    [
        (strategies.strategies, {"strategy", "seed", "right", "accuracy"}, 4),
        (strategies.sharing, {"model", "seed", "parameters", "seconds", "right", "accuracy"}, 2),
        (strategies.distilled, {"model", "seed", "parameters", "seconds a text", "right", "accuracy"}, 4),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_experiment_returns_the_rows_that_are_plotted(
    experiment: Callable[..., list[dict[str, Any]]], keys: set[str], count: int
) -> None:
    rows = experiment((1,), steps=10)
    assert len(rows) == count
    assert all(keys <= row.keys() for row in rows)


def test_the_strategies_are_devlins() -> None:
    """[MASK] / the same token / another one, in the order of their table 8."""
    shares = {name: changes["masking"] for name, changes in strategies.STRATEGIES.items() if "/" in name}
    assert len(shares) == 4
    for name, masking in shares.items():
        mask, same, other = (int(share) / 100 for share in name.split("/"))
        assert (masking.mask, masking.random) == (mask, other)
        assert math.isclose(mask + same + other, 1)


@pytest.mark.parametrize("rate", [60, 15])
def test_even_rates_are_what_they_are_called(rate: int) -> None:
    plan = Pretraining(**strategies.STRATEGIES[f"even, {rate}%"])
    assert (plan.even, plan.masking) == (True, Masking(rate=rate / 100))
