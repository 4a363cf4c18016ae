"""The storyteller with a store: what it gains on plays, on tales and on rare tales, beside counting the same texts.

Shapes: batch, time; place (of all texts, without padding), vocab.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tfbook.course.experiments import experiment
from tfbook.data.stories import story_ids, told
from tfbook.generation.neighbors import Datastore, interpolate, last_states, neighbor_distribution
from tfbook.pretrain import finetune
from tfbook.pretrain.storyteller import Storyteller, load_storyteller
from tfbook.text.vocabulary import PAD

if TYPE_CHECKING:
    from IPython.display import HTML
    from pandas import DataFrame

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # λ, of the store
TEMPERATURES = (3.0, 10.0, 30.0)
NEIGHBORS = 32


class Judged(NamedTuple):
    """At each place of some texts: the model's state, its next-token probabilities, and the token that came."""

    states: Float[Tensor, "place d_model"]
    model: Float[Tensor, "place vocab"]
    followed: Int64[Tensor, " place"]


@torch.no_grad()
def judged(teller: Storyteller, ids: Int64[Tensor, "batch time"]) -> Judged:
    """The storyteller at each place that a token follows."""
    real = ids[:, 1:] != PAD
    states = last_states(teller.model, ids[:, :-1])[real]
    return Judged(states, teller.model.unembed(states).softmax(dim=-1), ids[:, 1:][real])


def by_store(store: Datastore, places: Judged, temperature: float = 10.0) -> Float[Tensor, "place vocab"]:
    """The store's probabilities at the same places."""
    distances, entries = store.nearest(places.states, min(NEIGHBORS, len(store.keys)))
    return neighbor_distribution(distances, store.followed[entries], places.model.shape[1], temperature)


def loss(p: Float[Tensor, "place vocab"], followed: Int64[Tensor, " place"]) -> float:
    """Nats per token."""
    return float(-p.gather(1, followed[:, None]).log().mean())


def by_share(store: Datastore, places: Judged, temperature: float = 10.0) -> dict[float, float]:
    """Nats per token of the mixture for each λ."""
    p = by_store(store, places, temperature)
    return {share: loss(interpolate(places.model, p, share), places.followed) for share in SHARES}


# ---- one lookup, in words --------------------------------------------------------------------------------------------


def lookup_table(
    teller: Storyteller, store_ids: Int64[Tensor, "batch time"], beginning: Sequence[str], count: int = 5
) -> DataFrame:
    """The nearest places to the end of a beginning: the words before each, the one that followed, and its weight."""
    import pandas as pd

    store = Datastore.of(teller.model, store_ids, PAD)
    places = [(int(row), int(at)) for row, at in (store_ids[:, 1:] != PAD).nonzero()]
    ids = torch.tensor([[store_ids[0, 0], *teller.vocabulary.encode(beginning)]])
    distances, entries = store.nearest(last_states(teller.model, ids)[0, -1:], count)
    weights = torch.softmax(-distances[0] / 10.0, dim=0)
    rows = []
    for weight, entry in zip(weights.tolist(), entries[0].tolist(), strict=True):
        row, at = places[entry]
        before = teller.vocabulary.decode(store_ids[row, max(1, at - 6) : at + 1])
        followed = teller.vocabulary.decode(store.followed[entry : entry + 1])
        rows.append({"a place in the store": "… " + " ".join(before), "next": " ".join(followed), "weight": weight})
    return pd.DataFrame(rows)


def folded(tables: Mapping[str, DataFrame]) -> HTML:
    """Tables that open on a click, each under its question."""
    from IPython.display import HTML

    parts = [
        f"<details><summary>{question}</summary>{table.round(2).to_html()}</details>"
        for question, table in tables.items()
    ]
    return HTML("\n".join(parts))


# ---- a rival that counts ---------------------------------------------------------------------------------------------


def counted(seen: Iterable[list[int]], texts: Iterable[list[int]], context: int, vocab: int) -> list[float]:
    """p of each token after the first of each text, by counts of `seen`, blended (Witten and Bell, 1991, method C)."""
    runs = Counter[tuple[int, ...]]()
    for row in seen:
        runs.update(tuple(row[i - n : i + 1]) for i in range(1, len(row)) for n in range(min(i, context) + 1))
    pasts, kinds = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for run, times in runs.items():
        pasts[run[:-1]] += times
        kinds[run[:-1]] += 1
    found = []
    for row in texts:
        for i in range(1, len(row)):
            p = 1 / vocab
            for n in range(min(i, context) + 1):
                if (past := tuple(row[i - n : i])) in pasts:
                    p = (runs[*past, row[i]] + kinds[past] * p) / (pasts[past] + kinds[past])
            found.append(p)
    return found


def rows_of(ids: Int64[Tensor, "batch time"]) -> list[list[int]]:
    """The texts without their padding."""
    return [[token for token in row if token != PAD] for row in ids.tolist()]


# ---- stored ----------------------------------------------------------------------------------------------------------


def _texts(teller: Storyteller, kind: str, first: int, count: int) -> Int64[Tensor, "batch time"]:
    """Held-out texts of a kind, or "training" tales."""
    if kind == "plays":
        return finetune.plays(teller.vocabulary, count, first=first)
    split = {"tales": "valid", "rare tales": "rare", "training tales": "train"}[kind]
    return story_ids([told(split, first + number).words for number in range(count)], teller.vocabulary)


STORES = (  # what is read, what the store holds, and how many texts of it
    ("plays", "plays", 25),
    ("plays", "plays", 100),
    ("plays", "plays", 400),
    ("rare tales", "training tales", 400),
    ("rare tales", "rare tales", 400),
    ("tales", "training tales", 400),
)


@experiment
def storing(texts: int = 30) -> list[dict[str, Any]]:
    """Nats per token without and with a store, λ and temperature chosen on other texts; and with counts instead.

    On plays also what the same λ does to tales.
    """
    teller = load_storyteller()
    vocab, rows = len(teller.vocabulary), []
    for kind, held, count in STORES:
        if kind == "plays":
            ids = finetune.plays(teller.vocabulary, count, split="train")
        else:
            ids = _texts(teller, held, 2 * texts if held == kind else 0, count)
        store = Datastore.of(teller.model, ids, PAD)
        chosen_on, test_ids = _texts(teller, kind, texts, texts), _texts(teller, kind, 0, texts)
        tuning, test = judged(teller, chosen_on), judged(teller, test_ids)
        curves = {each: by_share(store, tuning, each) for each in TEMPERATURES}
        temperature, share = min(product(TEMPERATURES, SHARES), key=lambda at: curves[at[0]][at[1]])
        about = {"read": kind, "store": held, "texts": count, "entries": len(store.keys)}
        after = by_share(store, test, temperature)
        rows.append(about | {"method": "alone", "share": 0.0, "loss": after[0.0]})
        rows.append(about | {"method": "store", "share": share, "temperature": temperature, "loss": after[share]})
        best = min(_counting(ids, chosen_on, tuning, vocab), key=lambda row: row["loss"])
        same = _counting(ids, test_ids, test, vocab)
        rows += [about | row for row in same if (row["context"], row["share"]) == (best["context"], best["share"])]
        if kind == "plays":
            tales = by_share(store, judged(teller, _texts(teller, "tales", 0, texts)), temperature)
            rows.append(about | {"read": "tales", "method": "store", "share": share, "loss": tales[share]})
    return [{key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()} for row in rows]


def table_of_storing(rows: DataFrame) -> DataFrame:
    """Nats per token by what is read and what is stored: alone, with counts of the stored texts, with the store."""
    table = rows.pivot_table(index=["read", "store", "texts"], columns="method", values="loss")
    table = table.reindex(columns=["alone", "counts", "store"]).join(
        rows[rows.method == "store"].set_index(["read", "store", "texts"]).share.rename("λ of the store")
    )
    return table.round(2)


def _counting(
    seen: Int64[Tensor, "batch time"], texts: Int64[Tensor, "batch time"], places: Judged, vocab: int
) -> list[dict[str, Any]]:
    """Losses of the storyteller mixed with blended counts of 1 to 3 tokens before, for each λ."""
    model = places.model.gather(1, places.followed[:, None])[:, 0]
    rows = []
    for context in (1, 2, 3):
        p = torch.tensor(counted(rows_of(seen), rows_of(texts), context, vocab))
        for share in (*SHARES, 1.0):
            mixed = float(-interpolate(model, p, share).log().mean())
            rows.append({"method": "counts", "context": context, "share": share, "loss": mixed})
    return rows
