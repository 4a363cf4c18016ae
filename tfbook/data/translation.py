"""Sentence pairs, vocabularies and batches: what the translation lessons train on.

Shapes: batch, source and target (words, padded on the right). Every id tensor is int64.
"""

import gzip
import hashlib
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook.data.batching import ByLength, Sequences
from tfbook.data.words import tokenize

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

Words = tuple[str, ...]
Links = frozenset[tuple[int, int]]

COLUMNS = ["split", "template", "english", "french", "alignment"]


class Pair(NamedTuple):
    """A sentence and its translation, with gold links (source index, target index) where they are known.

    As in Och and Ney (2003), annotators are certain of the `sure` links and `possible` adds those that depend on taste.
    """

    source: Words
    target: Words
    sure: Links = frozenset()
    possible: Links = frozenset()  # includes sure
    template: str = ""  # the construction that a generated sentence was built from


@dataclass(frozen=True, kw_only=True)
class Translations:
    """A parallel corpus; `corpus["train"]` is a list of pairs."""

    name: str
    source_language: str
    target_language: str
    splits: Mapping[str, list[Pair]]
    references: Mapping[Words, list[Words]]  # every translation of each source that is not in train

    def __getitem__(self, split: str) -> list[Pair]:
        if split not in self.splits:
            raise KeyError(f"split is {split!r}; {self.name} has {', '.join(map(repr, self.splits))}")
        return self.splits[split]

    def __str__(self) -> str:
        sizes = ", ".join(f"{len(pairs):,} {split}" for split, pairs in self.splits.items())
        return f"{self.name}: {self.source_language} to {self.target_language}, {sizes}"


def between(pairs: Iterable[Pair], low: int, high: int) -> list[Pair]:
    """The pairs whose source has `low` to `high` tokens, both included."""
    if not 0 <= low <= high:
        raise ValueError(f"low is {low} and high is {high}; expected 0 ≤ low ≤ high")
    return [pair for pair in pairs if low <= len(pair.source) <= high]


class Vocabulary:
    """Tokens and their ids: four specials, then every token seen `min_count` times, frequent ones first."""

    def __init__(self, sentences: Iterable[Sequence[str]], *, min_count: int = 1):
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}; expected 1 or more")
        counts = Counter[str]()
        for sentence in sentences:
            if isinstance(sentence, str):
                raise TypeError(f"sentences holds the string {sentence!r}; expected sequences of tokens")
            counts.update(sentence)
        if not counts:
            raise ValueError("sentences holds no tokens; expected at least one sentence")
        kept = (token for token, count in counts.items() if count >= min_count and token not in SPECIALS)
        self.tokens = (*SPECIALS, *sorted(kept, key=lambda token: (-counts[token], token)))
        self._ids = {token: index for index, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __repr__(self) -> str:
        return f"Vocabulary of {len(self):,} tokens"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of each token, `UNK` for a token that is not here; adds neither `<bos>` nor `<eos>`."""
        if isinstance(tokens, str):
            raise TypeError(f"tokens is the string {tokens!r}; expected a sequence of tokens")
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int] | Tensor) -> Words:
        """The tokens up to the first `<eos>`, without `<pad>` and `<bos>`."""
        if isinstance(ids, Tensor) and ids.ndim != 1:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected the ids of one sentence, such as ids[0]")
        words = []
        for index in ids.tolist() if isinstance(ids, Tensor) else ids:
            if not 0 <= index < len(self):
                raise ValueError(f"ids holds {index}; expected 0 to {len(self) - 1}")
            if index == EOS:
                break
            if index not in (PAD, BOS):
                words.append(self.tokens[index])
        return tuple(words)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pairs as ids. The decoder reads `target_in` (`<bos>` w₁ … wₙ) and has to say `target_out` (w₁ … wₙ `<eos>`).

    The source ends with `<eos>` too, so even an empty sentence has one state to attend to; lengths count it.
    """

    source: Int64[Tensor, "batch source"]
    source_lengths: Int64[Tensor, " batch"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    target_lengths: Int64[Tensor, " batch"]

    @property
    def tokens(self) -> int:
        """Target tokens to predict: words and `<eos>`, no padding."""
        return int(self.target_lengths.sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(**{name: tensor.to(device) for name, tensor in vars(self).items()})


class _EncodedPairs:
    """A list of pairs as ids, from which any rows can be batched."""

    def __init__(self, pairs: Sequence[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary):
        if not pairs:
            raise ValueError("pairs is empty; expected at least one Pair")
        self.source = Sequences([[*source_vocab.encode(pair.source), EOS] for pair in pairs], pad=PAD)
        self.target = Sequences([[BOS, *target_vocab.encode(pair.target), EOS] for pair in pairs], pad=PAD)

    def batch(self, rows: Int64[Tensor, " batch"]) -> Batch:
        return Batch(
            source=self.source.padded(rows),
            source_lengths=self.source.lengths[rows],
            target_in=self.target.padded(rows, drop=1),
            target_out=self.target.padded(rows, skip=1),
            target_lengths=self.target.lengths[rows] - 1,
        )


def collate(pairs: Sequence[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary) -> Batch:
    """All `pairs` as one batch, in their order."""
    return _EncodedPairs(pairs, source_vocab, target_vocab).batch(torch.arange(len(pairs)))


class Batches:
    """`batches(step)` is the batch of that training step, the same whenever it is asked for.

    An epoch is `len(batches)` steps and holds every pair once. Sentences of similar length share a batch, so little is
    padding: `ByLength` sorts them by source, then by target.
    """

    def __init__(
        self, pairs: Sequence[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary, *, size: int, seed: int
    ):
        self._pairs = _EncodedPairs(pairs, source_vocab, target_vocab)
        self._rows = ByLength(self._pairs.source.lengths, self._pairs.target.lengths, size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, step: int) -> Batch:
        return self._pairs.batch(self._rows(step))


def read_english_french(path: str | Path) -> Translations:
    """The generated corpus that ships: a gzipped TSV with the columns of `COLUMNS`, tokens separated by spaces."""
    splits: dict[str, list[Pair]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            columns = line.removesuffix("\n").split("\t")
            if len(columns) != len(COLUMNS) or (number == 1 and columns != COLUMNS):
                raise ValueError(f"line {number} of {path} is {columns}; expected the columns {', '.join(COLUMNS)}")
            if number > 1:
                split, template, english, french, alignment = columns
                pair = Pair(tuple(english.split()), tuple(french.split()), *_links(alignment), template)
                splits.setdefault(split, []).append(pair)
    held_out = [pair for split, pairs in splits.items() if split != "train" for pair in pairs]
    return _english_french("english-french", splits, _references(held_out))


def _links(alignment: str) -> tuple[Links, Links]:
    """Sure and possible links of `0-0 1-2 3?4`."""
    links = [_link(text) for text in alignment.split()]
    return frozenset(link for link, sure in links if sure), frozenset(link for link, _ in links)


@cache  # a corpus has hundreds of thousands of links, but only some thousand different ones
def _link(text: str) -> tuple[tuple[int, int], bool]:
    """`1-2` is a sure link from word 1 to word 2, `1?2` only a possible one."""
    link = re.fullmatch(r"(\d+)([-?])(\d+)", text)
    if not link:
        raise ValueError(f"alignment holds {text!r}; expected links such as 0-0 or 3?4")
    return (int(link[1]), int(link[3])), link[2] == "-"


def _references(pairs: Iterable[Pair]) -> dict[Words, list[Words]]:
    references: dict[Words, list[Words]] = {}
    for pair in pairs:
        references.setdefault(pair.source, []).append(pair.target)
    return references


def _english_french(name: str, splits: dict[str, list[Pair]], references: dict[Words, list[Words]]) -> Translations:
    languages = {"source_language": "english", "target_language": "french"}
    return Translations(name=name, splits=splits, references=references, **languages)


def read_tatoeba(path: str | Path) -> Translations:
    """Tatoeba's English–French pairs, from the zip of manythings.org: 96% train, 2% valid, 2% test by English sentence.

    A sentence's split depends on its words alone (not on punctuation, nor on what else the file holds), so no English
    sentence is in two splits and a newer file moves none. In training each French translation is a pair of its own; the
    other splits hold each English sentence once, the first translation as its target and all of them in `references`.
    """
    translations: dict[Words, list[Words]] = {}
    for english, french in _tatoeba_lines(path):
        source, target = tokenize(english, "english"), tokenize(french, "french")
        if source and target and target not in translations.setdefault(source, []):
            translations[source].append(target)
    splits: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    references = {}
    for source, targets in translations.items():
        split = _split(source)
        if split == "train":
            splits[split].extend(Pair(source, target) for target in targets)
        else:
            splits[split].append(Pair(source, targets[0]))
            references[source] = targets
    return _english_french("tatoeba", splits, references)


def check_tatoeba(path: str | Path) -> None:
    """Raise unless `path` is a zip whose `fra.txt` has the form of Tatoeba's, and its size at the least."""
    lines = sum(1 for _ in _tatoeba_lines(path))
    if lines < 100_000:
        raise ValueError(f"fra.txt has {lines} lines; expected 100,000 or more")


def _tatoeba_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """The English and French of each line of `fra.txt` in the zip; a third column, the attribution, is left out."""
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if Path(name).name == "fra.txt"]
        if not members:
            raise ValueError(f"{path} holds no fra.txt")
        text = archive.read(members[0]).decode("utf-8")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise ValueError(f"line {number} of fra.txt is {line[:80]!r}; expected English, a tab, French")
        yield columns[0], columns[1]


def _split(source: Words) -> str:
    words = [token for token in source if any(map(str.isalnum, token))]
    digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") % 100
    return "train" if share < 96 else "valid" if share < 98 else "test"
