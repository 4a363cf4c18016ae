"""Translation corpora: sentence pairs in splits."""

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tfbook.data.archives import Unpacked, read_member, reader
from tfbook.data.text import decode_text
from tfbook.text.pairs import Links, Pair
from tfbook.text.vocabulary import Sentence
from tfbook.text.words import tokenize

COLUMNS = ["split", "template", "english", "french", "alignment"]
MOST = 1 << 27  # bytes of a corpus, unpacked; Tatoeba's has 40 million
FEWEST = 100_000  # pairs in Tatoeba's file, which has more than twice as many


@dataclass(frozen=True, kw_only=True)
class Translations:
    """A parallel corpus; `corpus["train"]` is a list of pairs."""

    name: str
    source_language: str
    target_language: str
    splits: Mapping[str, list[Pair]]
    references: Mapping[Sentence, list[Sentence]]  # every translation of each source that is not in train

    def __getitem__(self, split: str) -> list[Pair]:
        if split not in self.splits:
            raise KeyError(f"split is {split!r}; {self.name} has {', '.join(map(repr, self.splits))}")
        return self.splits[split]

    def __str__(self) -> str:
        sizes = ", ".join(f"{len(pairs):,} {split}" for split, pairs in self.splits.items())
        return f"{self.name}: {self.source_language} to {self.target_language}, {sizes}"


@reader
def read_english_french(path: str | Path) -> Translations:
    """The generated corpus that ships with tfbook: a gzipped TSV with `COLUMNS`, tokens separated by spaces.

    Raises ValueError for other columns, a link beyond its sentences, when there are no pairs, and when it unpacks to
    more than `MOST` bytes.
    """
    splits: dict[str, list[Pair]] = {}
    with io.TextIOWrapper(io.BufferedReader(Unpacked(path, most=MOST)), encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            columns = line.removesuffix("\n").split("\t")
            if len(columns) != len(COLUMNS) or (number == 1 and columns != COLUMNS):
                raise ValueError(f"line {number} of {path} is {columns}; expected the columns {', '.join(COLUMNS)}")
            if number > 1:
                split, template, english, french, alignment = columns
                pair = Pair(tuple(english.split()), tuple(french.split()), *_links(alignment), template)
                if not all(i < len(pair.source) and j < len(pair.target) for i, j in pair.possible):
                    raise ValueError(f"line {number} of {path} links {alignment}; expected words of both sentences")
                splits.setdefault(split, []).append(pair)
    held_out = [pair for split, pairs in splits.items() if split != "train" for pair in pairs]
    return _english_french("english-french", splits, _references(held_out))


def _links(alignment: str) -> tuple[Links, Links]:
    """The sure and the possible links of an alignment such as `0-0 1-2 3?4`."""
    links = [_link(text) for text in alignment.split()]
    return frozenset(link for link, sure in links if sure), frozenset(link for link, _ in links)


@cache  # a corpus has hundreds of thousands of links, but only a few thousand different ones
def _link(text: str) -> tuple[tuple[int, int], bool]:
    """`1-2` is a sure link from word 1 to word 2, `1?2` only a possible one."""
    link = re.fullmatch(r"(\d+)([-?])(\d+)", text)
    if not link:
        raise ValueError(f"alignment holds {text!r}; expected links such as 0-0 or 3?4")
    return (int(link[1]), int(link[3])), link[2] == "-"


def _references(pairs: Iterable[Pair]) -> dict[Sentence, list[Sentence]]:
    references: dict[Sentence, list[Sentence]] = {}
    for pair in pairs:
        references.setdefault(pair.source, []).append(pair.target)
    return references


def _english_french(
    name: str, splits: dict[str, list[Pair]], references: dict[Sentence, list[Sentence]]
) -> Translations:
    if not any(splits.values()):
        raise ValueError(f"{name} holds no pairs of sentences; expected one or more")
    languages = {"source_language": "english", "target_language": "french"}
    return Translations(name=name, splits=splits, references=references, **languages)


@reader
def read_tatoeba(path: str | Path) -> Translations:
    """Tatoeba's English–French pairs, from the zip of manythings.org: 96% train, 2% valid, 2% test by English sentence.

    A sentence's split depends on its words alone (not on punctuation or the rest of the file), so no English sentence
    is in two splits, and none changes its split in a newer file. In training each French translation makes a pair; the
    other splits have each English sentence once, with its first translation as target and all of them in `references`.
    Raises ValueError for a file of another form, without pairs or larger than `MOST` bytes.
    """
    translations: dict[Sentence, dict[Sentence, None]] = {}  # each once, in the order of the file
    for english, french in _tatoeba_lines(path):
        source, target = tokenize(english, "english"), tokenize(french, "french")
        if source and target:
            translations.setdefault(source, {})[target] = None
    splits: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    references = {}
    for source, targets in translations.items():
        split = _split(source)
        if split == "train":
            splits[split].extend(Pair(source, target) for target in targets)
        else:
            splits[split].append(Pair(source, next(iter(targets))))
            references[source] = list(targets)
    return _english_french("tatoeba", splits, references)


def check_tatoeba(path: str | Path) -> None:
    """Raise ValueError unless `path` is a zip with a `fra.txt` in Tatoeba's format and of about its size."""
    pairs = sum(all(any(map(str.isalnum, side)) for side in line) for line in _tatoeba_lines(path))
    if pairs < FEWEST:
        raise ValueError(f"fra.txt has {pairs:,} pairs of sentences; expected {FEWEST:,} or more")


def _tatoeba_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """The English and French of each line of `fra.txt` in the zip, without the third column, the attribution."""
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if Path(name).name == "fra.txt"]
        if not members:
            raise ValueError(f"{path} holds no fra.txt")
        text = decode_text(read_member(archive, members[0], most=MOST), members[0])
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise ValueError(f"line {number} of fra.txt is {line[:80]!r}; expected English, a tab, French")
        yield columns[0], columns[1]


def _split(source: Sentence) -> str:
    words = [token for token in source if any(map(str.isalnum, token))]
    digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") % 100
    return "train" if share < 96 else "valid" if share < 98 else "test"
