"""Errands as tensors: stories of padded sentences with questions, in batches whose placeholders are dealt anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from tfbook.data.stories.errands import (
    ASKING,
    LONGEST,
    MOST,
    Act,
    Errand,
    ErrandQuestion,
    errand,
    placeholders,
    vocabulary,
)

IDS = {word: number for number, word in enumerate(vocabulary())}
WORDS = 7  # of the longest wording, and room for one more
PERMUTED = {IDS[f"{kind}0"]: most for kind, most in MOST.items()}  # the first placeholder of a kind, and how many


@dataclass(frozen=True, kw_only=True)
class ErrandBatch:
    """Stories with a question each; 0 is padding. `support` numbers the facts that it follows from: 1, 2, else 0."""

    story: Int[Tensor, "batch sentence word"]
    question: Int[Tensor, "batch word"]
    answer: Int[Tensor, " batch"]
    kind: Int[Tensor, " batch"]  # its place in ASKING
    support: Int[Tensor, "batch sentence"]

    def to(self, device: torch.device | str) -> ErrandBatch:
        """The same batch on another device."""
        return ErrandBatch(**{name: part.to(device) for name, part in vars(self).items()})

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, rows: Tensor | slice) -> ErrandBatch:
        return ErrandBatch(**{name: part[rows] for name, part in vars(self).items()})

    def dealt(self, generator: torch.Generator) -> ErrandBatch:
        """The same stories with other placeholders: in each row those of a kind are permuted at random."""
        deal = torch.arange(len(IDS)).repeat(len(self), 1)
        for first, most in PERMUTED.items():
            deal[:, first : first + most] = first + torch.rand(len(self), most, generator=generator).argsort(dim=1)
        story = deal.gather(1, self.story.flatten(1)).view_as(self.story)
        new = {"question": deal.gather(1, self.question), "answer": deal.gather(1, self.answer[:, None])[:, 0]}
        return ErrandBatch(**vars(self) | new | {"story": story})


def ids(acts: Sequence[Act], stands_for: dict[str, str]) -> Int[Tensor, "sentence word"]:
    """The ids of the words of sentences, padded with 0."""
    rows = [[IDS[word] for word in act.words(stands_for)] for act in acts]
    padded = [row + [0] * (WORDS - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.long).reshape(-1, WORDS)


def errand_batch(asked: Iterable[tuple[Errand, ErrandQuestion]]) -> ErrandBatch:
    """Questions, each with its story, as one batch; placeholders are numbered in the order of the names."""
    rows = [*asked]
    batch = ErrandBatch(
        story=torch.zeros(len(rows), LONGEST, WORDS, dtype=torch.long),
        question=torch.zeros(len(rows), WORDS, dtype=torch.long),
        answer=torch.zeros(len(rows), dtype=torch.long),
        kind=torch.tensor([[*ASKING].index(question.kind) for _, question in rows]),
        support=torch.zeros(len(rows), LONGEST, dtype=torch.long),
    )
    for number, (story, question) in enumerate(rows):
        stands_for = placeholders(story.acts)
        batch.story[number, : len(story.acts)] = ids(story.acts, stands_for)
        batch.question[number] = ids([question.act], stands_for)[0]
        batch.answer[number] = IDS[stands_for[question.answer]]
        batch.support[number, list(question.support)] = torch.arange(1, len(question.support) + 1)
    return batch


class ErrandSet:
    """The questions of the errands with these seeds, and batches in which every kind of question is equally common."""

    def __init__(self, seeds: Iterable[int]):
        self.asked = [(story, question) for story in map(errand, seeds) for question in story.questions]

    @cached_property
    def all(self) -> ErrandBatch:
        """All questions, in order."""
        return errand_batch(self.asked)

    @cached_property
    def _chances(self) -> Tensor:
        return 1 / torch.bincount(self.all.kind, minlength=len(ASKING))[self.all.kind]

    def batch(self, number: int, *, rows: int = 64, seed: int = 0) -> ErrandBatch:
        """Batch `number` of a run, always the same one: questions drawn at random, their placeholders dealt anew."""
        generator = torch.Generator().manual_seed(1_000_003 * seed + number)
        drawn = torch.multinomial(self._chances, rows, replacement=True, generator=generator)
        return self.all[drawn].dealt(generator)
