"""Readers trained or asked otherwise: with older stories, without kinds of stand-ins, and on givings alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tfbook.course.experiments import experiment
from tfbook.data.stories.errand_sets import IDS, ErrandBatch
from tfbook.data.stories.errands import LONGEST, MOST, read_errand, read_question
from tfbook.lessons.memory.asking import answers, asked
from tfbook.lessons.memory.readers import accuracies, new_reader, placed, read, train_reader, unseen, unseen_errands
from tfbook.lessons.memory.tables import LATER, STORIES_TRIED, left_behind
from tfbook.models.memory_network import MemoryNetwork, ages, weighted_bag

if TYPE_CHECKING:
    from pandas import DataFrame

BROKEN = (  # right, until all sentences are one sentence older
    "Bo went to the barn. Ann went to the mill. Bo slept. Ann took the ring. Ann dropped the ring. "
    "Ann went to the lake."
)
VARIED = ("3 hops", "3 hops, plain bags", "3 hops, one pool", "3 hops, any age")
ASKS = "Where is the ring?"
OLDER = range(4)  # sentences by which a story is made older

# ---- older stories ---------------------------------------------------------------------------------------------------


def aged(filled: Tensor, by: Tensor | int) -> Tensor:
    """Ages, `by` larger, and never more than the oldest that a network knows; 0 for padding."""
    return ((ages(filled) + by) * filled).clamp(max=LONGEST - 1)


@contextmanager
def older(model: MemoryNetwork, by: int) -> Iterator[None]:
    """Inside, all sentences are `by` sentences older than they are, and nothing else is different."""
    usual = model.age
    model.age = placed(lambda filled: aged(filled, by))
    try:
        yield
    finally:
        model.age = usual


def any_age(filled: Tensor) -> Tensor:
    """Ages that begin anywhere: each story is made older at random, as far as the oldest age allows."""
    room = LONGEST - filled.sum(dim=1, keepdim=True)
    return aged(filled, (torch.rand(len(filled), 1, device=filled.device) * (room + 1)).long())


def said_when_older(model: MemoryNetwork) -> list[list[Any]]:
    """The answer to the broken story and its probability, by how much older the story is made."""
    acts = read_errand(BROKEN)
    found = []
    for by in OLDER:
        with older(model, by):
            reading = asked(model, acts, read_question(ASKS, acts))
        found.append([reading.answer, round(reading.probability, 4)])
    return found


def older_table(reader: MemoryNetwork, runs: DataFrame) -> DataFrame:
    """The answer to the broken story by how much older it is made: a reader's, and those of the usual stored runs."""
    import pandas as pd

    said = {"the network of Section 1": said_when_older(reader)}
    usual = runs[runs["reader"] == VARIED[0]]
    said |= {f"seed {seed}": story for seed, story in zip(usual["seed"], usual["story"], strict=True)}
    cells = {name: [f"{answer}, {chance:.0%}" for answer, chance in each] for name, each in said.items()}
    return pd.DataFrame(cells, index=pd.Index([*OLDER], name="sentences older"))


def right_when_older(model: MemoryNetwork, walks: int) -> list[int]:
    """How many of 40 stories with so many walks after the drop are answered right, by how much older they are made."""
    found = []
    for by in OLDER:
        with older(model, by):
            told = [answers(model, left_behind(walks, number), [ASKS])[ASKS] for number in range(STORIES_TRIED)]
        found.append(told.count("the mill"))
    return found


def older_counts(reader: MemoryNetwork, runs: DataFrame) -> DataFrame:
    """The right ones of 40 stories by walks and by age: a reader's, and of three seeds of two trainings."""
    import pandas as pd

    cells = {("the network of Section 1", walks): [*map(str, right_when_older(reader, walks))] for walks in (1, 2, 3)}
    for shown, name in {"trained as usual": VARIED[0], "trained on any age": VARIED[3]}.items():
        for walks in (1, 2, 3):
            seeds = [older[str(walks)] for older in runs[runs["reader"] == name]["older"]]
            cells[shown, walks] = [" · ".join(map(str, by)) for by in zip(*seeds, strict=True)]
    index = pd.MultiIndex.from_tuples([*cells], names=["reader", "walks after the drop"])
    return pd.DataFrame([*cells.values()], index=index, columns=[f"{by} older" for by in OLDER])


def aside_table(reader: MemoryNetwork, aside: str = "Bo laughed.") -> DataFrame:
    """Of 40 stories for each number of walks: right as they are, and made wrong or right by one more last sentence."""
    import pandas as pd

    rows = {}
    for walks in (1, 2, 3):
        stories = [left_behind(walks, number) for number in range(STORIES_TRIED)]
        before, after = (
            [answers(reader, f"{story} {more}", [ASKS])[ASKS] == "the mill" for story in stories]
            for more in ("", aside)
        )
        pairs = [*zip(before, after, strict=True)]
        rows[walks] = {
            "right": before.count(True),
            f"made wrong by “{aside}”": pairs.count((True, False)),
            "made right": pairs.count((False, True)),
        }
    return pd.DataFrame(rows).T.rename_axis("walks after the drop")


def walked_long_ago(later: int) -> str:
    """A story in which Ann walks once, and Bo takes so many walks after that."""
    return "Ann went to the mill. " + " ".join(f"Bo went to {LATER[i % len(LATER)]}." for i in range(later))


def right_long_ago(model: MemoryNetwork) -> list[int]:
    """The numbers of later walks of Bo, 0 to 15, with which "Where is Ann?" is answered right."""
    asks = "Where is Ann?"
    return [n for n in range(LONGEST) if answers(model, walked_long_ago(n), [asks])[asks] == "the mill"]


# ---- stand-ins of one pool -------------------------------------------------------------------------------------------


def from_one_pool(batch: ErrandBatch, generator: torch.Generator) -> ErrandBatch:
    """The same stories with stand-ins that do not tell people, things and places apart: all are dealt anew together."""
    names = torch.tensor([IDS[f"{kind}{number}"] for kind, most in MOST.items() for number in range(most)])
    deal = torch.arange(len(IDS)).repeat(len(batch), 1)
    deal[:, names] = names[torch.rand(len(batch), len(names), generator=generator).argsort(dim=1)]
    parts = {"question": deal.gather(1, batch.question), "answer": deal.gather(1, batch.answer[:, None])[:, 0]}
    story = deal.gather(1, batch.story.flatten(1)).view_as(batch.story)
    return ErrandBatch(**vars(batch) | parts | {"story": story})


# ---- givings alone ---------------------------------------------------------------------------------------------------


def right_after_a_giving(model: nn.Module, batch: ErrandBatch) -> float:
    """Share of right answers to the questions of `batch` (the unseen ones) where a giving says who has the thing."""
    given = torch.tensor(
        [q.kind == "holder" and story.acts[q.support[0]].event == "give" for story, q in unseen_errands().asked]
    )
    rows = batch[given]
    return float((read(model, rows).logits.argmax(dim=1) == rows.answer).float().mean())


# ---- the runs --------------------------------------------------------------------------------------------------------


def plain_bag(vectors: Tensor) -> Tensor:
    """Σ_j v_j: a bag that forgets the order of its words."""
    return vectors.sum(dim=-2)


@experiment
def varied(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 4000) -> list[dict[str, Any]]:
    """Three hops as usual, with plain bags, with stand-ins of one pool, and trained on stories of any age.

    Each answers the unseen questions, those that a giving answers, and stories made older, see `older`.
    """
    return [_row(name, seed, steps) for name in VARIED for seed in seeds]


def _row(name: str, seed: int, steps: int) -> dict[str, Any]:
    model, batch = new_reader(seed=seed, bag=plain_bag if "plain" in name else weighted_bag), unseen()
    usual, pooled = model.age, "pool" in name
    if "any age" in name:
        model.age = placed(any_age)
    if pooled:
        batch = from_one_pool(batch, torch.Generator().manual_seed(18))
        train_reader(model, steps=steps, seed=seed, deal=from_one_pool)
    else:
        train_reader(model, steps=steps, seed=seed)
    model.age = usual
    row = {"reader": name, "seed": seed, "steps": steps, "given": round(right_after_a_giving(model, batch), 4)}
    row["right"] = {kind: round(share, 4) for kind, share in accuracies(model, batch).items()}
    if not pooled:
        row["long_ago"] = right_long_ago(model)
        row["story"] = said_when_older(model)
        row["older"] = {str(walks): right_when_older(model, walks) for walks in (1, 2, 3)}
    return row
