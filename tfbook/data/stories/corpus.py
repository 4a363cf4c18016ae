"""The fixed corpus of stories that every lesson shares, and the words that the world can say.

Shapes: batch, time.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tfbook import files
from tfbook.checks import check_positive
from tfbook.data.archives import Unpacked
from tfbook.data.stories.lexicon import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    OBSTACLES,
    PLACES,
    PREPOSITIONS,
    SPECIES,
    SPOTS,
    USES,
    words_of,
)
from tfbook.data.stories.plots import story
from tfbook.data.stories.questions import ASKED
from tfbook.data.stories.teller import Story, World
from tfbook.data.stories.world import EVENTS, Slot
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary

WORLD = World(names=12, places=12, things=16)
SPLITS = {"train": 16_000, "valid": 500, "test": 500, "rare": 500}  # stories in the file
SEEDS = {split: range(10_000_000 * number, 10_000_000 * (number + 1)) for number, split in enumerate(SPLITS)}
BEYOND = 100_000_000  # every seed from here on is for training: those of all held-out splits are below
MOST = 1 << 25  # bytes of the corpus, unpacked; it has 7 million
_FIXED = ("a", "an", "the", "she", "he", "her", "him", "his", "it", "of", "end")
_NAMED = (*NAMES, *NOUNS, *PLACES, *SPECIES, *ADJECTIVES, *PREPOSITIONS.values(), *USES.values(), *_FIXED)


def world_words() -> list[str]:
    """Every word and mark that a story or a question can hold, in both dialects, in alphabetical order."""
    pieces = (
        piece
        for event in EVENTS.values()
        for forms in event.wordings.values()
        for form in forms
        for piece in form.pieces
    )
    told = chain.from_iterable(run for piece in pieces if not hasattr(piece, "role") for run in piece)
    phrases = (*SPOTS, *(text for parts in OBSTACLES.values() for text in parts.values()), *ASKED)
    return sorted({*told, *_NAMED, *(word for phrase in phrases for word in words_of(phrase))})


def words_of_plays_alone() -> list[str]:
    """The words that only plays use, such as "enter", in alphabetical order."""
    return sorted(_forms("play") - _forms("tale") - set(_NAMED))


def _forms(dialect: str) -> set[str]:
    """The words of a dialect's wordings, and those of the obstacles in the parts that the wordings take."""
    pieces = [piece for event in EVENTS.values() for form in event.wordings.get(dialect, ()) for piece in form.pieces]
    parts = {piece.part for piece in pieces if isinstance(piece, Slot)}
    told = {word for piece in pieces if not isinstance(piece, Slot) for run in piece for word in run}
    return told | {word for each in OBSTACLES.values() for part in parts & set(each) for word in words_of(each[part])}


@dataclass(frozen=True, kw_only=True)
class Stories:
    """Stories in splits; `corpus["train"]` is a list of texts, and `corpus.behind("train", 5)` the facts of one.

    `rare` holds combinations (name and species, look and noun) that no story of the other splits has.
    """

    name: str
    splits: Mapping[str, list[str]]

    def __getitem__(self, split: str) -> list[str]:
        if split not in self.splits:
            raise KeyError(f"split is {split!r}; {self.name} has {', '.join(map(repr, self.splits))}")
        return self.splits[split]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every word that the world can say, and the four special tokens: the same for each corpus and model."""
        return Vocabulary([world_words()])

    def behind(self, split: str, number: int) -> Story:
        """The story of this number, with its events and facts."""
        self[split][number]
        return told(split, number)

    def __str__(self) -> str:
        sizes = ", ".join(f"{len(stories):,} {split}" for split, stories in self.splits.items())
        return f"{self.name}: {sizes}"


class StoryBatches:
    """`batches(step)` is the batch of that training step: the ids of `size` stories, each with `<bos>` and `<eos>`.

    Shorter ones are padded to the longest of their batch. The stories are those of the training split, told again from
    their seeds, and those that would come after them: no story is seen twice, and none is held out. Raises ValueError
    when `size` < 1, and for a negative step.
    """

    def __init__(self, *, size: int, first: int = 0, split: str = "train"):
        check_positive(size=size)
        self.size, self.first, self.split = size, first, split
        self.vocabulary = Vocabulary([world_words()])

    def __call__(self, step: int) -> Int64[Tensor, "batch time"]:
        start = self.first + step * self.size
        return story_ids([told(self.split, start + number).words for number in range(self.size)], self.vocabulary)


def story_ids(stories: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Int64[Tensor, "batch time"]:
    """A row of ids per story: `<bos>`, its words, `<eos>`, and padding up to the longest."""
    rows = [torch.tensor([BOS, *vocabulary.encode(words), EOS]) for words in stories]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def told(split: str, number: int) -> Story:
    """The story of this number in a split of the corpus, told again from its seed.

    There are far more than in the file: 10 million of each held-out split, of "train" any number. Raises ValueError as
    `split_seed` does.
    """
    return story(split_seed(SEEDS, split, number), replace(WORLD, rare=split == "rare"))


def split_seed(seeds: Mapping[str, range], split: str, number: int) -> int:
    """The seed of a split's story of this number; where those of "train" end, it goes on with those `BEYOND`.

    Raises ValueError for a negative number, and for one that a held-out split does not have.
    """
    block = seeds[split]
    if 0 <= number < len(block):
        return block[number]
    if number < 0 or split != "train":
        expected = "0 or more" if split == "train" else f"0 to {len(block) - 1:,}"
        raise ValueError(f"number is {number}; expected {expected} in the split {split!r}")
    return BEYOND + number - len(block)


def read_stories(path: str | Path) -> Stories:
    """The corpus that ships with tfbook: gzipped text, a story per line, the splits one after the other.

    Raises ValueError for another number of stories and when it unpacks to more than `MOST` bytes.
    """
    with io.TextIOWrapper(io.BufferedReader(Unpacked(path, most=MOST)), encoding="utf-8", newline="\n") as lines:
        texts = lines.read().splitlines()
    if len(texts) != sum(SPLITS.values()):
        raise ValueError(f"{path} holds {len(texts):,} stories; expected {sum(SPLITS.values()):,}")
    stories = iter(texts)
    return Stories(name="stories", splits={split: list(islice(stories, count)) for split, count in SPLITS.items()})


def write_stories(path: str | Path) -> None:
    """Tells the corpus again and writes it, always the same bytes; interrupted, it leaves the file as it was."""
    texts = (told(split, number).text for split, count in SPLITS.items() for number in range(count))
    with (
        files.atomic_write(path) as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=9) as packed,
    ):
        packed.writelines(f"{text}\n".encode() for text in texts)
