"""Texts with a label, for models that classify, and the same kind of text without, for models that learn to read."""

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

from tfbook.data.download import DataUnavailable

TEST_PART = 0.25  # the share of the labelled texts that is kept for the test
MODULES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "xml")
FEWEST_WORDS = 5  # of a docstring that has to be told from others
NOT_READ = {
    "test", "tests", "idle_test", "site-packages", "dist-packages", "idlelib", "lib2to3", "tkinter", "turtledemo",
    "distutils",
}  # fmt: skip


class Labelled(NamedTuple):
    """A text and the number of its label."""

    text: str
    label: int


@dataclass(frozen=True, kw_only=True)
class LabelledTexts:
    """Texts of a few kinds in two parts, and texts to pretrain on, among them those of `train` but none of `test`."""

    name: str
    labels: tuple[str, ...]
    train: tuple[Labelled, ...]
    test: tuple[Labelled, ...]
    unlabelled: tuple[str, ...]

    @classmethod
    def split(
        cls, name: str, labels: Sequence[str], labelled: Iterable[Labelled], others: Iterable[str] = ()
    ) -> LabelledTexts:
        """Divides by a hash of the text, so that equal texts fall on one side, in whatever order they come.

        A text that stands under two labels belongs to neither and is left out. `others` have no label.
        """
        kinds: dict[str, set[int]] = {}
        for text, label in labelled:
            kinds.setdefault(text, set()).add(label)
        clear = [Labelled(text, label) for text, (label, *more) in kinds.items() if not more]
        test = tuple(item for item in clear if _is_test(item.text))
        train = tuple(item for item in clear if not _is_test(item.text))
        unlabelled = dict.fromkeys((*(item.text for item in train), *others))
        for item in test:
            unlabelled.pop(item.text, None)
        return cls(name=name, labels=tuple(labels), train=train, test=test, unlabelled=tuple(unlabelled))

    def few(self, count: int, *, seed: int) -> tuple[Labelled, ...]:
        """`count` texts of each label, drawn from `train`. Raises ValueError when a label has fewer."""
        kinds = [[item for item in self.train if item.label == label] for label in range(len(self.labels))]
        smallest = min(map(len, kinds))
        if not 1 <= count <= smallest:
            raise ValueError(f"count is {count}; expected 1 to {smallest}, the texts of the rarest label")
        dice = np.random.default_rng(seed)
        return tuple(kind[place] for kind in kinds for place in dice.permutation(len(kind))[:count])

    def __str__(self) -> str:
        sizes = f"{len(self.train):,} texts train, {len(self.test):,} test, {len(self.unlabelled):,} to pretrain on"
        return f"{self.name}: {sizes}; labels {', '.join(self.labels)}"


def _is_test(text: str) -> bool:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) < TEST_PART * 2**32


# ---- docstrings --------------------------------------------------------------------------------------------------


def read_docstrings(library: Path | None = None) -> LabelledTexts:
    """The docstrings of Python's standard library; those of `MODULES` have their module as label.

    They are read from the sources of the running Python, so another version brings slightly different ones. Raises
    DataUnavailable where it has no sources (`library` is their folder).
    """
    library = library or Path(sysconfig.get_paths()["stdlib"])
    labelled, others = [], []
    for path in _sources(library):
        module = path.relative_to(library).parts[0].removesuffix(".py")
        for text in _docstrings(path):
            others.append(text)
            if module in MODULES and len(text.split()) >= FEWEST_WORDS:
                labelled.append(Labelled(text, MODULES.index(module)))
    if missing := sorted(set(MODULES) - {MODULES[label] for _, label in labelled}):
        found = f"{library} holds no docstrings of {', '.join(missing)}"
        raise DataUnavailable(f"{found}; expected the sources of Python's standard library, which this Python lacks")
    return LabelledTexts.split("docstrings", MODULES, labelled, others)


def _sources(folder: Path) -> Iterator[Path]:
    """The Python files in a folder and below, in order; what others have installed there is not entered."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name not in NOT_READ:
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _docstrings(path: Path) -> Iterator[str]:
    """Each docstring of a source file on one line, without its examples."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, or another encoding than it says
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraphs = (ast.get_docstring(node) or "").split("\n\n")
            text = " ".join(" ".join(part.split()) for part in paragraphs if ">>>" not in part)
            if text:
                yield text


# ---- sentences about films ---------------------------------------------------------------------------------------


def read_sentence_polarity(path: str | Path) -> LabelledTexts:
    """Sentences of film reviews, half of them from reviews that recommend the film (Pang & Lee, 2005)."""
    files = {"negative": "sentence_polarity/rt-polarity.neg", "positive": "sentence_polarity/rt-polarity.pos"}
    return _read_lines("sentence-polarity", path, files)


def read_subjectivity(path: str | Path) -> LabelledTexts:
    """Sentences of film reviews, taken as subjective, and of plot summaries, taken as objective (Pang & Lee, 2004)."""
    files = {"subjective": "subjectivity/quote.tok.gt9.5000", "objective": "subjectivity/plot.tok.gt9.5000"}
    return _read_lines("subjectivity", path, files)


def _read_lines(name: str, path: str | Path, files: dict[str, str]) -> LabelledTexts:
    """One text a line, one file a label, in a zip archive."""
    with ZipFile(path) as archive:
        lines = [archive.read(file).decode("latin-1").splitlines() for file in files.values()]
    texts = ((" ".join(line.split()), label) for label, texts in enumerate(lines) for line in texts)
    return LabelledTexts.split(name, tuple(files), (Labelled(text, label) for text, label in texts if text))
