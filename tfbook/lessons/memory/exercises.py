"""Exercises of lesson 18: a hop, the bag that a sentence becomes, a chain of hops, and the age of a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.memory.machine_exercises import focus as focus, move_head as move_head, write_slots as write_slots

# ---- one hop -----------------------------------------------------------------------------------------------------


def _memories() -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    return [
        (
            2 * randn(3, 4, seed=1),
            randn(3, 4, 4, seed=2),
            randn(3, 4, 4, seed=3),
            torch.tensor([[True, True, False, False], [True] * 4, [True, False, False, False]]),
        ),
        (
            randn(2, 3, seed=4),
            randn(2, 5, 3, seed=5),
            randn(2, 5, 3, seed=6),
            torch.tensor([[True, True, True, True, False], [False, True, True, False, True]]),
        ),
        (
            torch.tensor([[90.0] * 3, [-90.0] * 3]),  # scores above 90 and below -90: exponentials leave float32
            1 + randn(2, 3, 3, seed=8).abs(),
            randn(2, 3, 3, seed=9),
            torch.tensor([[True, True, False]] * 2),
        ),
    ]


@exercise(
    cases=_memories,
    hints=[
        "The score of sentence i is the dot product of its address with the query: "
        "`torch.einsum('bsd,bd->bs', addresses, query)`.",
        "An empty place must get weight 0: fill its score with `-math.inf` *before* the softmax (`masked_fill`).",
        "The mixture is a sum over sentences, weight times *content*: `torch.einsum('bs,bsd->bd', weights, contents)`.",
    ],
)
def hop(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bsd,bd->bs", addresses, query)
    weights = torch.softmax(scores.masked_fill(~filled, -math.inf), dim=-1)
    return torch.einsum("bs,bsd->bd", weights, contents), weights


def _weighted(weights: Tensor, contents: Tensor) -> tuple[Tensor, Tensor]:
    return torch.einsum("bs,bsd->bd", weights, contents), weights


def _scores(query: Tensor, addresses: Tensor) -> Tensor:
    return torch.einsum("bsd,bd->bs", addresses, query)


hop.mistakes(
    {
        "empty places get weight: set their scores to −∞ before the softmax": (
            lambda query, addresses, contents, filled: _weighted(
                torch.softmax(_scores(query, addresses), dim=-1), contents
            )
        ),
        "a score of 0 is not weight 0, since exp(0) = 1: fill the scores of empty places with −∞": (
            lambda query, addresses, contents, filled: _weighted(
                torch.softmax(_scores(query, addresses) * filled, dim=-1), contents
            )
        ),
        "you took the empty places away after the softmax, so the weights no longer sum to 1: mask the scores": (
            lambda query, addresses, contents, filled: _weighted(
                torch.softmax(_scores(query, addresses), dim=-1) * filled, contents
            )
        ),
        "you mixed the addresses: a hop finds a sentence by its address and takes its content": (
            lambda query, addresses, contents, filled: hop.reference(query, addresses, addresses, filled)
        ),
        "you compared the query with the contents: they are what a sentence hands over, not how it is found": (
            lambda query, addresses, contents, filled: hop.reference(query, contents, contents, filled)
        ),
        "the query is in the mixture already: the network adds it, so return the mixture alone": (
            lambda query, addresses, contents, filled: (
                query + hop.reference(query, addresses, contents, filled)[0],
                hop.reference(query, addresses, contents, filled)[1],
            )
        ),
        "you divided by √d: the formula has no scale, its tables can learn one": (
            lambda query, addresses, contents, filled: hop.reference(
                query / math.sqrt(query.shape[-1]), addresses, contents, filled
            )
        ),
        "the softmax runs over the stories of the batch: it should run over the sentences of each (dim=-1)": (
            lambda query, addresses, contents, filled: _weighted(
                torch.softmax(_scores(query, addresses).masked_fill(~filled, -1e9), dim=0), contents
            )
        ),
        "the mask is the wrong way round: True marks a filled place": (
            lambda query, addresses, contents, filled: hop.reference(query, addresses, contents, ~filled)
        ),
    }
)

# ---- a bag with positions ----------------------------------------------------------------------------------------


def _words() -> list[tuple[Tensor]]:
    return [(randn(3, 3, 3, seed=10),), (randn(2, 4, 6, 5, seed=11),), (randn(1, 2, 4, seed=12),)]


@exercise(
    cases=_words,
    hints=[
        "`J, d = vectors.shape[-2:]`, and j and k count from 1: `torch.arange(1, J + 1)`.",
        "j runs down the rows, `[:, None]`, and k along the columns. The weights are then (J, d).",
        "`(weights * vectors).sum(dim=-2)` multiplies entry by entry and adds up the words.",
    ],
)
def bag(vectors: Tensor) -> Tensor:
    words, width = vectors.shape[-2:]
    j = torch.arange(1, words + 1)[:, None] / words
    k = torch.arange(1, width + 1) / width
    return (((1 - j) - k * (1 - 2 * j)) * vectors).sum(dim=-2)


def _bag_by(j: Tensor, k: Tensor, vectors: Tensor) -> Tensor:
    return (((1 - j) - k * (1 - 2 * j)) * vectors).sum(dim=-2)


def _counted(vectors: Tensor, start_j: int = 1, start_k: int = 1) -> tuple[Tensor, Tensor]:
    words, width = vectors.shape[-2:]
    j = torch.arange(start_j, words + start_j)[:, None] / words
    return j, torch.arange(start_k, width + start_k) / width


bag.mistakes(
    {
        "this is the plain sum, a bag that forgets the order of its words: weigh each word first": (
            lambda vectors: vectors.sum(dim=-2)
        ),
        "j counts from 1 to J, so that j / J of the last word is 1": (
            lambda vectors: _bag_by(*_counted(vectors, start_j=0), vectors)
        ),
        "k counts from 1 to d, so that k / d of the last entry is 1": (
            lambda vectors: _bag_by(*_counted(vectors, start_k=0), vectors)
        ),
        "both counts start at 0: j runs from 1 to J and k from 1 to d": (
            lambda vectors: _bag_by(*_counted(vectors, 0, 0), vectors)
        ),
        "j is divided by d and k by J: J counts the words, d the entries": (
            lambda vectors: _bag_by(
                torch.arange(1, vectors.shape[-2] + 1)[:, None] / vectors.shape[-1],
                torch.arange(1, vectors.shape[-1] + 1) / vectors.shape[-2],
                vectors,
            )
        ),
        "this is a mean: the words are added up, not averaged": (
            lambda vectors: bag.reference(vectors) / vectors.shape[-2]
        ),
        "you added up the entries of each word: the sum runs over the words (dim=-2)": (
            lambda vectors: (
                ((1 - _counted(vectors)[0]) - _counted(vectors)[1] * (1 - 2 * _counted(vectors)[0])) * vectors
            ).sum(dim=-1)
        ),
        "the factor is 1 − 2j/J; without the 2 the weights of different entries are no longer mirrored": (
            lambda vectors: (((1 - _counted(vectors)[0]) * (1 - _counted(vectors)[1])) * vectors).sum(dim=-2)
        ),
    }
)

# ---- any name will do ----------------------------------------------------------------------------------------------


def _named_words() -> list[tuple[list[list[str]], dict[str, str]]]:
    kinds = {
        "Bilbo": "person",
        "Frodo": "person",
        "Gollum": "person",
        "ring": "thing",
        "Shire": "place",
        "Moria": "place",
    }
    return [
        ([["Bilbo", "took", "ring"], ["Bilbo", "gave", "ring", "to", "Frodo"]], kinds),
        ([["Gollum", "went", "to", "Moria"], ["Frodo", "went", "to", "Shire"], ["Gollum", "slept"]], kinds),
        ([["Shire", "Moria"], ["ring", "Frodo", "Bilbo", "Frodo"], ["Moria", "Gollum"], []], kinds),
        ([["Ben", "slept"], ["Ann", "told", "Ben", "about", "Ann"]], {"Ann": "person", "Ben": "person"}),
    ]


Numbering = Callable[[dict[str, str], str], int]  # the stand-ins so far and the kind of a new name → its number


def _replaced(story: list[list[str]], kinds: dict[str, str], number: Numbering) -> list[list[str]]:
    found: dict[str, str] = {}
    for sentence in story:
        for word in sentence:
            if word in kinds and word not in found:
                found[word] = f"{kinds[word]}{number(found, kinds[word])}"
    return [[found.get(word, word) for word in sentence] for sentence in story]


@exercise(
    cases=_named_words,
    hints=[
        "Keep a dictionary from the names seen so far to their stand-ins, for the whole story.",
        "A new name's number is how many stand-ins of its kind there are already: the first person is person0.",
    ],
    differentiable=False,
)
def stand_ins(story: list[list[str]], kinds: dict[str, str]) -> list[list[str]]:
    found: dict[str, str] = {}
    count = dict.fromkeys(kinds.values(), 0)
    for word in (word for sentence in story for word in sentence):
        if word in kinds and word not in found:
            found[word] = f"{kinds[word]}{count[kinds[word]]}"
            count[kinds[word]] += 1
    return [[found.get(word, word) for word in sentence] for sentence in story]


stand_ins.mistakes(
    {
        "the numbers start anew in every sentence, so one person gets two names: number them once per story": (
            lambda story, kinds: [line for sentence in story for line in stand_ins.reference([sentence], kinds)]
        ),
        "all kinds are counted together: the first person is person0 and the first thing thing0": (
            lambda story, kinds: _replaced(story, kinds, lambda found, kind: len(found))
        ),
        "the numbers start at 1: the first of each kind is number 0": (
            lambda story, kinds: _replaced(
                story, kinds, lambda found, kind: 1 + sum(each.startswith(kind) for each in found.values())
            )
        ),
        "every name of a kind got the same stand-in, so nobody can be told apart": (
            lambda story, kinds: _replaced(story, kinds, lambda found, kind: 0)
        ),
        "the numbers follow the list of names, not the story: number them as they appear": (
            lambda story, kinds: [
                [
                    f"{kinds[word]}{[name for name in kinds if kinds[name] == kinds[word]].index(word)}"
                    if word in kinds
                    else word
                    for word in sentence
                ]
                for sentence in story
            ]
        ),
    }
)

# ---- hop after hop -----------------------------------------------------------------------------------------------


def _stores() -> list[tuple[Tensor, list[Tensor], Tensor]]:
    return [
        (
            randn(2, 4, seed=20),
            [randn(2, 3, 4, seed=21 + i) for i in range(4)],
            torch.tensor([[True, True, True], [True, True, False]]),
        ),
        (randn(1, 3, seed=30), [randn(1, 5, 3, seed=31 + i) for i in range(3)], torch.ones(1, 5, dtype=torch.bool)),
        (randn(3, 2, seed=40), [randn(3, 2, 2, seed=41 + i) for i in range(2)], torch.ones(3, 2, dtype=torch.bool)),
    ]


def _step(query: Tensor, addresses: Tensor, contents: Tensor, filled: Tensor) -> Tensor:
    return hop.reference(query, addresses, contents, filled)[0]


@exercise(
    cases=_stores,
    hints=[
        "With n entries in `memory` there are n − 1 hops: hop i compares with memory[i] and takes from memory[i + 1].",
        "`for addresses, contents in zip(memory[:-1], memory[1:]):` walks through the pairs.",
        "After each hop the mixture is added: `query = query + mixture`.",
    ],
)
def reread(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for addresses, contents in pairwise(memory):
        query = query + _step(query, addresses, contents, filled)
    return query


def _pairs_apart(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for addresses, contents in zip(memory[::2], memory[1::2], strict=False):
        query = query + _step(query, addresses, contents, filled)
    return query


def _without_the_question(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for addresses, contents in pairwise(memory):
        query = _step(query, addresses, contents, filled)
    return query


def _one_memory(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for _ in memory[1:]:
        query = query + _step(query, memory[0], memory[1], filled)
    return query


def _same_question(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    return query + sum(_step(query, a, c, filled) for a, c in pairwise(memory))


def _address_is_content(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for each in memory[:-1]:
        query = query + _step(query, each, each, filled)
    return query


def _later_table(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for each in memory[1:]:
        query = query + _step(query, each, each, filled)
    return query


def _every_table(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
    for each in memory:
        query = _step(query, each, each, filled)
    return query


reread.mistakes(
    {
        "the pairs overlap: what hop i took its contents from is what hop i + 1 compares with": _pairs_apart,
        "the question is lost: add the mixture to the query, do not replace it": _without_the_question,
        "every hop uses the first two tables: hop i has memory[i] and memory[i + 1]": _one_memory,
        "every hop asks the first question, so no hop knows what was read: go on with query + mixture": _same_question,
        "addresses and contents come from one table: the contents of hop i are memory[i + 1]": _address_is_content,
        "addresses and contents come from one table, the later one: hop i compares with memory[i]": _later_table,
        "each table is used for both, and there is a hop too many: hop i has memory[i] and memory[i + 1]": _every_table,
        "one hop is missing: n tables make n − 1 hops": (
            lambda query, memory, filled: reread.reference(query, memory[:-1], filled)
        ),
        "this is one hop: go through all the pairs": (
            lambda query, memory, filled: reread.reference(query, memory[:2], filled)
        ),
    }
)

# ---- find the bug: how old is a sentence? ------------------------------------------------------------------------


def _fillings() -> list[tuple[Tensor]]:
    rows = [[True, True, True, False, False], [True] * 5, [True, False, False, False, False], [False] * 5]
    return [(torch.tensor(rows),), (torch.tensor([[True, True]]),), (torch.tensor([[True, True, True, False]]),)]


@exercise(
    cases=_fillings,
    hints=[
        "Print the ages of a story that is shorter than its batch. Which age does its last sentence have?",
        "`filled.sum(dim=1, keepdim=True)` is the number of sentences of each story: the last one has age 0.",
        "Empty places would get negative ages, and no table has a row −1: `.clamp(min=0)`.",
    ],
    differentiable=False,
)
def ages(filled: Tensor) -> Tensor:
    count = filled.sum(dim=1, keepdim=True)
    return (count - 1 - torch.arange(filled.shape[1])).clamp(min=0)


ages.mistakes(
    {
        "these count from the beginning: the last sentence of every story has age 0": (
            lambda filled: torch.arange(filled.shape[1]).expand(*filled.shape) * filled
        ),
        "the last sentence has age 1: count the sentences that come after it": (
            lambda filled: (filled.sum(dim=1, keepdim=True) - torch.arange(filled.shape[1])).clamp(min=0)
        ),
        "empty places have negative ages: give them 0": (
            lambda filled: filled.sum(dim=1, keepdim=True) - 1 - torch.arange(filled.shape[1])
        ),
        "all stories get the length of the longest: count the sentences of each one (dim=1)": (
            lambda filled: (
                (filled.sum(dim=1).max() - 1 - torch.arange(filled.shape[1])).clamp(min=0).expand(*filled.shape)
            )
        ),
    }
)


@ages.given
def _(filled: Tensor) -> Tensor:
    places = filled.shape[1]
    return (places - 1 - torch.arange(places)).expand(*filled.shape)
