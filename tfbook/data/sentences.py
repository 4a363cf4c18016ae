"""Labeled texts to train classifiers on, and unlabeled texts of the same kind to pretrain on."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np

from tfbook.data.archives import read_member, reader
from tfbook.data.download import DataUnavailable
from tfbook.text.byte_level import check_characters

TEST_SHARE = 0.25  # of the labeled texts
MODULES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "xml")
MIN_WORDS = 5  # of a labeled docstring
MOST = 1 << 24  # bytes of the movie reviews of one label, unpacked; they have less than a million
SKIPPED = {
    "test", "tests", "idle_test", "site-packages", "dist-packages", "idlelib", "lib2to3", "tkinter", "turtledemo",
    "distutils",
}  # fmt: skip


class LabeledText(NamedTuple):
    """A text and the number of its label."""

    text: str
    label: int


@dataclass(frozen=True, kw_only=True)
class LabeledTexts:
    """Labeled texts, split into train and test, and texts to pretrain on, which include `train` and exclude `test`."""

    name: str
    labels: tuple[str, ...]
    train: tuple[LabeledText, ...]
    test: tuple[LabeledText, ...]
    unlabeled: tuple[str, ...]

    @classmethod
    def split(
        cls, name: str, labels: Sequence[str], labeled: Iterable[LabeledText], others: Iterable[str] = ()
    ) -> LabeledTexts:
        """Splits by a hash of the text, so that equal texts end up on the same side, whatever their order.

        A text with two different labels is left out. `others` have no label. Raises ValueError for a lone surrogate.
        """
        labels_of: dict[str, set[int]] = {}
        for text, label in labeled:
            check_characters(text)
            labels_of.setdefault(text, set()).add(label)
        unambiguous = [LabeledText(text, label) for text, (label, *more) in labels_of.items() if not more]
        test = tuple(item for item in unambiguous if _is_test(item.text))
        train = tuple(item for item in unambiguous if not _is_test(item.text))
        unlabeled = dict.fromkeys((*(item.text for item in train), *others))
        for item in test:
            unlabeled.pop(item.text, None)
        return cls(name=name, labels=tuple(labels), train=train, test=test, unlabeled=tuple(unlabeled))

    def few_shot(self, count: int, *, seed: int) -> tuple[LabeledText, ...]:
        """`count` texts of each label, sampled from `train`. Raises ValueError when a label has fewer."""
        by_label = [[item for item in self.train if item.label == label] for label in range(len(self.labels))]
        smallest = min(map(len, by_label))
        if not 1 <= count <= smallest:
            raise ValueError(f"count is {count}; expected 1 to {smallest}, the texts of the rarest label")
        rng = np.random.default_rng(seed)
        return tuple(items[place] for items in by_label for place in rng.permutation(len(items))[:count])

    def __str__(self) -> str:
        sizes = f"{len(self.train):,} texts train, {len(self.test):,} test, {len(self.unlabeled):,} to pretrain on"
        return f"{self.name}: {sizes}; labels {', '.join(self.labels)}"


def _is_test(text: str) -> bool:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) < TEST_SHARE * 2**32


# ---- docstrings --------------------------------------------------------------------------------------------------


def read_docstrings(library: Path | None = None) -> LabeledTexts:
    """The docstrings of Python's standard library; the label of those in `MODULES` is their module.

    They come from the sources of the running Python, in the folder `library`, so they differ a little between versions.
    Raises DataUnavailable when it has no sources.
    """
    library = library or Path(sysconfig.get_paths()["stdlib"])
    labeled, others = [], []
    for path in _sources(library):
        module = path.relative_to(library).parts[0].removesuffix(".py")
        for text in _docstrings(path):
            others.append(text)
            if module in MODULES and len(text.split()) >= MIN_WORDS:
                labeled.append(LabeledText(text, MODULES.index(module)))
    if missing := sorted(set(MODULES) - {MODULES[label] for _, label in labeled}):
        found = f"{library} holds no docstrings of {', '.join(missing)}"
        raise DataUnavailable(f"{found}; expected the sources of Python's standard library, which this Python lacks")
    return LabeledTexts.split("docstrings", MODULES, labeled, others)


def _sources(folder: Path) -> Iterator[Path]:
    """The Python files in a folder and below, in order, without tests and installed packages."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name not in SKIPPED:
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _docstrings(path: Path) -> Iterator[str]:
    """Each docstring of a source file as one line, without its examples."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, or in another encoding than it declares
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraphs = (ast.get_docstring(node) or "").split("\n\n")
            text = " ".join(" ".join(part.split()) for part in paragraphs if ">>>" not in part)
            if text:
                yield text


# ---- movie reviews -----------------------------------------------------------------------------------------------


@reader
def read_sentence_polarity(path: str | Path) -> LabeledTexts:
    """Sentences from movie reviews, half of them from reviews that recommend the movie (Pang & Lee, 2005)."""
    files = {"negative": "sentence_polarity/rt-polarity.neg", "positive": "sentence_polarity/rt-polarity.pos"}
    return _read_lines("sentence-polarity", path, files)


@reader
def read_subjectivity(path: str | Path) -> LabeledTexts:
    """Sentences from movie reviews, taken as subjective, and plot summaries, taken as objective (Pang & Lee, 2004)."""
    files = {"subjective": "subjectivity/quote.tok.gt9.5000", "objective": "subjectivity/plot.tok.gt9.5000"}
    return _read_lines("subjectivity", path, files)


def _read_lines(name: str, path: str | Path, files: dict[str, str]) -> LabeledTexts:
    """A zip archive with one file per label and one text per line. Raises ValueError beyond `MOST` bytes."""
    with ZipFile(path) as archive:
        lines = [read_member(archive, file, most=MOST).decode("latin-1").split("\n") for file in files.values()]
    texts = ((" ".join(line.split()), label) for label, texts in enumerate(lines) for line in texts)
    return LabeledTexts.split(name, tuple(files), (LabeledText(text, label) for text, label in texts if text))
