"""Long texts, read from files and split into a part for training and one for validation."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfbook.data.archives import reader
from tfbook.text.vocabulary import CharacterVocabulary

TRAIN_SHARE = 0.9  # of a text, from its beginning
MARK = "\ufeff"  # the byte-order mark, with which editors begin a file
ENCODINGS = {  # by the mark's bytes; UTF-32 first, since UTF-16's mark is the beginning of it
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def read_text_file(path: str | Path) -> str:
    """The characters of a text file. Raises ValueError as `decode_text` does, and OSError when it cannot be opened."""
    return decode_text(Path(path).read_bytes(), path)


def decode_text(content: bytes, name: str | Path) -> str:
    """The characters of a text in UTF-8, or in UTF-16 or UTF-32 with a byte-order mark; `name` is for errors.

    All line ends (CRLF, CR) become line feeds, and byte-order marks are dropped, even between joined files. Raises
    ValueError for an empty text, another encoding, and NUL characters.
    """
    encoding = next((name for mark, name in ENCODINGS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding).replace(MARK, "")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not a {encoding.upper()} text ({error}); save it as UTF-8") from None
    if "\0" in text:
        found = f"{name} holds a NUL character at {text.index(chr(0)):,}"
        raise ValueError(f"{found}; expected a text in UTF-8, not binary data or UTF-16 without a byte-order mark")
    if not text:
        raise ValueError(f"{name}: the text is empty; expected at least one character")
    return text.replace("\r\n", "\n").replace("\r", "\n")


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


@reader
def read_tiny_shakespeare(path: str | Path) -> Text:
    """Forty thousand lines of Shakespeare's plays, collected by Andrej Karpathy."""
    return Text.split("tiny-shakespeare", read_text_file(path))
