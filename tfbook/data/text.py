"""Long texts, split into a part for training and one for validation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfbook.text.vocabulary import CharacterVocabulary

TRAIN_SHARE = 0.9  # of a text, from its beginning


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text in two parts: models are trained on the first and evaluated on the second."""

    name: str
    train: str
    valid: str

    @classmethod
    def split(cls, name: str, text: str) -> Text:
        """The first 90% for training, the rest for validation."""
        boundary = int(TRAIN_SHARE * len(text))
        return cls(name=name, train=text[:boundary], valid=text[boundary:])

    @cached_property
    def characters(self) -> CharacterVocabulary:
        """The characters of both parts."""
        return CharacterVocabulary(self.train + self.valid)

    def __str__(self) -> str:
        sizes = f"{len(self.train):,} characters train, {len(self.valid):,} valid"
        return f"{self.name}: {sizes}, {len(self.characters)} different ones"


def read_python_reference() -> Text:
    """The topics of Python's `help()`, which are its language reference; a paragraph of two topics appears once.

    The text comes with the running Python, so it differs a little between versions.
    """
    from pydoc_data.topics import topics

    paragraphs = (part for name in sorted(topics) for part in topics[name].strip("\n").split("\n\n"))
    return Text.split("python-reference", "\n\n".join(dict.fromkeys(paragraphs)))


def read_tiny_shakespeare(path: str | Path) -> Text:
    """Forty thousand lines of Shakespeare's plays, collected by Andrej Karpathy."""
    return Text.split("tiny-shakespeare", Path(path).read_text(encoding="utf-8"))
