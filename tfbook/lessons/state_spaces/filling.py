"""A state that is full: facts of random keys in a matrix, and readers trained on more facts than their state holds.

Shapes: batch, time, d_model, key (numbers of a key, and of a value).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor, nn

from tfbook.attention import MultiHeadAttention
from tfbook.course.experiments import experiment
from tfbook.lessons.state_spaces.recall import RATES, recalled, train_reader
from tfbook.models.gated import GatedLinearAttention

if TYPE_CHECKING:
    from pandas import DataFrame

MANY = (4, 8, 16, 32, 64)  # facts before the questions; each batch of training draws one of them
KEYS = (8, 16, 32)  # numbers of a key; a matrix state has their square
ENOUGH = 0.9  # right answers up to which a state counts as holding its facts

# ---- readers with keys of one size ----------------------------------------------------------------------------------


class Narrow(nn.Module):
    """W_up mixer(W_down x): a mixer of one head inside, so that queries, keys and values have `key` numbers each."""

    def __init__(self, d_model: int, heads: int, *, mixer: Any, key: int, dropout: float = 0.0):
        super().__init__()
        self.down, self.up = nn.Linear(d_model, key, bias=False), nn.Linear(key, d_model, bias=False)
        self.inside = mixer(key, 1, dropout=dropout)

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: Any) -> Float[Tensor, "batch time d_model"]:
        """As the mixer inside, between the two maps."""
        return self.up(self.inside(self.down(x), **context))


HELD: dict[str, Any] = {"attention": MultiHeadAttention, "gated linear attention": GatedLinearAttention}


STEPS = {"attention": (500,), "gated linear attention": (500, 1500)}


@experiment
def overflow(*, steps: Mapping[str, Sequence[int]] = STEPS, seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """Right answers about 4 to 64 facts, by the size of the keys; attention keeps all keys, a matrix key × key numbers.

    The better of two learning rates on the first seed after the first number of batches, then all seeds and batches.
    """
    found = []
    for method, mixer in HELD.items():
        for key in KEYS:
            make = partial(Narrow, mixer=mixer, key=key)
            first = {lr: _filled_run(make, lr, steps[method][0], seeds[0]) for lr in RATES}
            best = max(first, key=lambda lr: sum(first[lr].values()))
            for count in steps[method]:
                for seed in seeds:
                    known = (count, seed) == (steps[method][0], seeds[0])
                    shares = first[best] if known else _filled_run(make, best, count, seed)
                    found.append({"method": method, "key": key, "steps": count, "lr": best, "seed": seed, **shares})
                    print(found[-1], flush=True)
    return found


def _filled_run(mixer: Any, lr: float, steps: int, seed: int) -> dict[str, float]:
    model = train_reader(mixer, lr=lr, steps=steps, seed=seed, pairs=MANY, known=max(MANY))
    return {f"{facts} facts": round(recalled(model, facts), 4) for facts in MANY}


# ---- how many facts a state holds ----------------------------------------------------------------------------------


def facts_held(shares: Mapping[int, float], *, enough: float = ENOUGH) -> float:
    """The number of facts at which right answers fall below `enough`: on a line between two counts, in logarithms.

    `shares` has the right answers by the number of facts, few first. Infinite where they never fall below it; the
    first count where they begin below it.
    """
    counts = list(shares)
    for few, many in pairwise(counts):
        if shares[few] >= enough > shares[many]:
            part = (shares[few] - enough) / (shares[few] - shares[many])
            return math.exp(math.log(few) + part * math.log(many / few))
    return math.inf if shares[counts[0]] >= enough else float(counts[0])


def held_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """For each method, size of the keys and number of batches, the facts that each seed holds, from stored runs."""
    import pandas as pd

    found: dict[tuple[str, int, str], list[str]] = {}
    for row in rows:
        held = facts_held({facts: row[f"{facts} facts"] for facts in MANY})
        place = row["method"], row["key"], f"{row['steps']:,} batches"
        text = f"all {MANY[-1]}" if math.isinf(held) else f"{held:.1f}" if held > MANY[0] else f"under {MANY[0]}"
        found.setdefault(place, []).append(text)
    joined = pd.Series({place: ", ".join(each) for place, each in found.items()})
    table = joined.rename_axis(["reader", "key", "batches"]).unstack("batches").fillna("")
    return table[sorted(table.columns, key=len)]
