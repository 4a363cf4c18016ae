"""The corpus: five splits drawn from the grammar with one seed, and the file that holds them."""

import gzip
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .constructions import HELD_OUT, template
from .grammar import translate
from .sampler import Sampler

SEED = 2014
PATH = Path(__file__).parents[3] / "data" / "english_french.tsv.gz"
SIZES = {"train": 24_000, "valid": 1_000, "test": 1_500, "long": 1_500, "template": 1_000}

# How many sentences of 3, 4, … 20 English tokens come in a thousand: 12 on average, and enough beyond 15 to learn from.
_SHORT = dict(zip(range(3, 21), (6, 20, 35, 45, 53, 58, 63, 68, 72, 75, 75, 73, 70, 66, 62, 57, 53, 49), strict=True))
_MEDIUM = {length: share for length, share in _SHORT.items() if length >= 14}  # the held-out constructions need some room
_QUESTION = dict.fromkeys(range(6, 13), 1)
_LONG = dict.fromkeys(range(21, 51), 1)
_ATTESTED = 10  # how often training must show a word before another split may use it


class Row(NamedTuple):
    """A line of the file."""

    split: str
    template: str
    english: str
    french: str
    alignment: str


def generate(seed: int = SEED) -> list[Row]:
    """Draw the whole corpus; the same seed gives the same corpus on every machine and version of Python."""
    corpus = _Corpus(random.Random(seed))
    corpus.draw("train", _SHORT)
    for split in ("valid", "test"):
        corpus.draw(split, _SHORT)
    corpus.draw("long", _LONG)
    for name in HELD_OUT:
        corpus.draw("template", _QUESTION if "question" in name else _MEDIUM, licensed=name, size=SIZES["template"] // len(HELD_OUT))
    return corpus.rows


def write(path: Path = PATH) -> None:
    """Generate the corpus and write it; gzip gets no time stamp, so that the file depends on the corpus alone."""
    text = "".join("\t".join(row) + "\n" for row in [Row(*Row._fields), *generate()])
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def read(path: Path = PATH) -> list[Row]:
    """Read the file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        header, *lines = file.read().splitlines()
    if header != "\t".join(Row._fields):
        raise ValueError(f"path: expected the columns {', '.join(Row._fields)} in {path}, got {header!r}")
    return [Row(*line.split("\t")) for line in lines]


class _Corpus:
    """Rows drawn so far, and what later rows must respect: no sentence twice, no word that training does not show."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: list[Row] = []
        self.seen: set[str] = set()
        self.counts: Counter[tuple[int, str]] = Counter()  # of forms in training, by language

    def draw(self, split: str, shares: dict[int, int], licensed: str = "", size: int | None = None) -> None:
        """Add a split whose lengths have these shares, and in which one held-out construction may be licensed."""
        wanted = _quotas(shares, SIZES[split] if size is None else size)
        sampler = Sampler(self.rng, licensed)
        rows = []
        while wanted:
            sentence = sampler.sentence(self._room(wanted))
            name = template(sentence)
            if [construction for construction in HELD_OUT if construction in name] != [licensed] * bool(licensed):
                continue
            row = Row(split, name, *translate(sentence))
            length = row.english.count(" ") + 1
            if length in wanted and self._fits(row):
                self.seen.add(row.english)
                rows.append(row)
                wanted[length] -= 1
                if not wanted[length]:
                    del wanted[length]
        self.rng.shuffle(rows)
        self.rows += rows
        if split == "train":
            self.counts.update(form for row in rows for form in _forms(row))

    def _room(self, wanted: dict[int, int]) -> int:
        """Draw a length that is still wanted, and some words more, because sentences rarely use all their room."""
        length = self.rng.choices(list(wanted), list(wanted.values()))[0]
        return length + int(self.rng.random() * 4)

    def _fits(self, row: Row) -> bool:
        if row.english in self.seen:
            return False
        return row.split == "train" or all(self.counts[form] >= _ATTESTED for form in _forms(row))


def _quotas(shares: dict[int, int], size: int) -> dict[int, int]:
    """Share out so many sentences over lengths; what rounding leaves goes to the most frequent length."""
    total = sum(shares.values())
    quotas = {length: size * share // total for length, share in shares.items()}
    quotas[max(shares, key=shares.__getitem__)] += size - sum(quotas.values())
    return quotas


def _forms(row: Row) -> Iterator[tuple[int, str]]:
    for language, text in enumerate((row.english, row.french)):
        yield from ((language, word) for word in text.split())
