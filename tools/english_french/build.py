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
PATH = Path(__file__).resolve().parents[2] / "data" / "english_french.tsv.gz"
SIZES = {"train": 24_000, "valid": 1_000, "test": 1_500, "long": 1_500, "template": 1_000}

# How many sentences of 3, 4, … 20 English tokens come in a thousand: 12 on average, and enough beyond 15 to learn from.
_SHORT = dict(zip(range(3, 21), (6, 20, 35, 45, 53, 58, 63, 68, 72, 75, 75, 73, 70, 66, 62, 57, 53, 49), strict=True))
_LONG = dict.fromkeys(range(21, 51), 1)
_HELD_OUT = dict.fromkeys(range(12, 21), 1)  # these constructions need some room
_QUESTIONS = dict.fromkeys(range(6, 14), 1)
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
    for split in ("train", "valid", "test"):
        corpus.draw(split, _SHORT, SIZES[split])
    corpus.draw("long", _LONG, SIZES["long"])
    for name in HELD_OUT:
        lengths = _QUESTIONS if name == "clitic-in-question" else _HELD_OUT
        corpus.draw("template", lengths, SIZES["template"] // len(HELD_OUT), licensed=name)
    return corpus.rows


def write(path: Path = PATH) -> None:
    """Generate the corpus and write it; gzip gets no time stamp, so that the file depends on the corpus alone."""
    text = "".join("\t".join(row) + "\n" for row in [Row(*Row._fields), *generate()])
    unfinished = path.with_name(f"{path.name}.part")  # by itself, since this tool needs no tfbook
    unfinished.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    unfinished.replace(path)


class _Corpus:
    """Rows drawn so far, and what later rows must respect: no sentence twice, no word that training does not show."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: list[Row] = []
        self.seen: set[str] = set()
        self.counts: Counter[tuple[int, str]] = Counter()  # of forms in training, by language

    def draw(self, split: str, shares: dict[int, int], size: int, licensed: str = "") -> None:
        """Add sentences whose lengths have these shares; if a held-out construction is licensed, all have it."""
        remaining = _quotas(shares, size)
        sampler = Sampler(self.rng, licensed)
        rows = []
        while remaining:
            sentence = sampler.sentence(self._room(remaining))
            construction = template(sentence)
            if [name for name in HELD_OUT if name in construction] != [licensed] * bool(licensed):
                continue
            row = Row(split, construction, *translate(sentence))
            length = row.english.count(" ") + 1
            if length in remaining and self._fits(row):
                self.seen.add(row.english)
                rows.append(row)
                remaining[length] -= 1
                if not remaining[length]:
                    del remaining[length]
        self.rng.shuffle(rows)
        self.rows += rows
        if split == "train":
            self.counts.update(form for row in rows for form in _forms(row))

    def _room(self, remaining: dict[int, int]) -> int:
        """Draw one of the remaining lengths, and a few words more, because sentences rarely use all their room."""
        length = self.rng.choices(list(remaining), list(remaining.values()))[0]
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
