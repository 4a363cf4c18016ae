"""Running texts, in a part for training and one for validation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfbook.text.vocabulary import CharacterVocabulary

TRAIN = 0.9  # the share of a text that training may see, its beginning


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text in two parts: what models are trained on, and what follows it, on which they are judged."""

    name: str
    train: str
    valid: str

    @classmethod
    def split(cls, name: str, text: str) -> Text:
        """The first 90% for training, the rest for validation."""
        border = int(TRAIN * len(text))
        return cls(name=name, train=text[:border], valid=text[border:])

    @cached_property
    def characters(self) -> CharacterVocabulary:
        """The characters of both parts."""
        return CharacterVocabulary(self.train + self.valid)

    def __str__(self) -> str:
        sizes = f"{len(self.train):,} characters train, {len(self.valid):,} valid"
        return f"{self.name}: {sizes}, {len(self.characters)} different ones"


def read_python_reference() -> Text:
    """The topics of Python's `help()`, which are its language reference; what two topics share stands there once.

    The text is that of the running Python, so another version brings a slightly different one.
    """
    from pydoc_data.topics import topics

    paragraphs = (part for name in sorted(topics) for part in topics[name].strip("\n").split("\n\n"))
    return Text.split("python-reference", "\n\n".join(dict.fromkeys(paragraphs)))


def read_tiny_shakespeare(path: str | Path) -> Text:
    """Forty thousand lines of Shakespeare's plays, as Karpathy put them together."""
    return Text.split("tiny-shakespeare", Path(path).read_text(encoding="utf-8"))
