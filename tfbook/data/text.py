"""Long texts, read from files and split into a part for training and one for validation."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfbook.data.archives import reader
from tfbook.text.vocabulary import CharacterVocabulary

TRAIN_SHARE = 0.9  # of a text, from its beginning
BLOCK = 1 << 19  # bytes of a file that are read at once
LONGEST_BLOCK = 1 << 22  # characters
LONE_SPACE = re.compile(r"(?<=\S) (?=\S)")
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
    return "".join(_decoded([content], name))


def _decoded(blocks: Iterable[bytes], name: str | Path) -> Iterator[str]:
    """`decode_text` of a content that comes in blocks, the first of which holds the whole mark."""
    rest = iter(blocks)
    first = block = next(rest, b"")
    encoding = next((name for mark, name in ENCODINGS.items() if first.startswith(mark)), "utf-8")
    decoder, seen, kept = codecs.getincrementaldecoder(encoding)(), 0, ""
    while True:
        following = next(rest, None)
        try:
            text = decoder.decode(block, final=following is None).replace(MARK, "")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not a {encoding.upper()} text ({error}); save it as UTF-8") from None
        if "\0" in text:
            found = f"{name} holds a NUL character at {seen + text.index(chr(0)):,}"
            raise ValueError(f"{found}; expected a text in UTF-8, not binary data or UTF-16 without a byte-order mark")
        seen += len(text)
        text, kept = kept + text, ""
        if following is not None and text.endswith("\r"):  # the line feed of this CRLF may begin the next block
            text, kept = text[:-1], "\r"
        yield text.replace("\r\n", "\n").replace("\r", "\n")
        if following is None:
            break
        block = following
    if not seen:
        raise ValueError(f"{name}: the text is empty; expected at least one character")


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

    def blocks(self, part: str) -> Iterator[str]:
        """The part "train" or "valid" in one block."""
        yield getattr(self, part)

    def __str__(self) -> str:
        return _described(self.name, len(self.train), len(self.valid), len(self.characters))


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A text file in the same two parts, read block by block, so that it may be larger than the memory."""

    path: Path
    length: int  # characters
    characters: CharacterVocabulary

    @classmethod
    def scan(cls, path: str | Path) -> TextFile:
        """Reads the file once, to count its characters. Raises what `read_text_file` raises."""
        length, seen = 0, set[str]()
        for block in _file_blocks(path):
            length += len(block)
            seen.update(block)
        return cls(path=Path(path), length=length, characters=CharacterVocabulary("".join(seen)))

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    def blocks(self, part: str) -> Iterator[str]:
        """The part "train" or "valid" in blocks, cut between words, where no tokenizer joins what stands on both sides.

        A text without spaces is cut where a block of `LONGEST_BLOCK` characters ends.
        """
        boundary = int(TRAIN_SHARE * self.length)
        first, end = (0, boundary) if part == "train" else (boundary, self.length)
        start, text = 0, ""
        for block in _file_blocks(self.path):
            text += block[max(0, first - start) : max(0, end - start)]
            start += len(block)
            cut = _last_cut(text)
            if cut:
                yield text[:cut]
                text = text[cut:]
        if text:
            yield text

    def __str__(self) -> str:
        boundary = int(TRAIN_SHARE * self.length)
        return _described(self.name, boundary, self.length - boundary, len(self.characters))


def _file_blocks(path: str | Path) -> Iterator[str]:
    with Path(path).open("rb") as file:
        yield from _decoded(iter(lambda: file.read(BLOCK), b""), path)


def _last_cut(text: str) -> int:
    """Before the last space that stands alone between two other characters; 0 for none in a text that is not long."""
    if spaces := [match.start() for match in LONE_SPACE.finditer(text, max(0, len(text) - 1000))]:
        return spaces[-1]
    return len(text) if len(text) > LONGEST_BLOCK else 0


def _described(name: str, train: int, valid: int, characters: int) -> str:
    return f"{name}: {train:,} characters train, {valid:,} valid, {characters} different ones"


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
