"""How a text becomes bytes in chunks, and how the files of GPT-2 write bytes as letters."""

from __future__ import annotations

from collections.abc import Iterable

import regex

# GPT-2's chunks: contractions, letters, digits and signs, each with the space before it; spaces (Radford et al., 2019)
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
BYTES = [bytes([b]) for b in (*_PRINTABLE, *(b for b in range(256) if b not in _PRINTABLE))]  # the tokens 0 to 255
LETTERS = [*map(chr, _PRINTABLE), *(chr(256 + n) for n in range(256 - len(_PRINTABLE)))]  # as GPT-2's files write them
_LETTER_OF = {byte[0]: letter for byte, letter in zip(BYTES, LETTERS, strict=True)}
_BYTE_OF = {letter: byte for byte, letter in _LETTER_OF.items()}
BYTE_ID = {byte[0]: number for number, byte in enumerate(BYTES)}


def written(token: bytes) -> str:
    """A token as GPT-2's files write it: one visible letter a byte, `Ġ` for a space."""
    return "".join(_LETTER_OF[byte] for byte in token)


def read(letters: str) -> bytes:
    """What `written` wrote. Raises ValueError for a letter that stands for no byte."""
    unknown = sorted({letter for letter in letters if letter not in _BYTE_OF})
    if unknown:
        raise ValueError(f"token {letters!r} holds {unknown[0]!r}, which stands for no byte")
    return bytes(_BYTE_OF[letter] for letter in letters)


def several(texts: Iterable[str]) -> Iterable[str]:
    """The texts; raises TypeError for one string, which would be read as many texts of one letter."""
    if isinstance(texts, str):
        raise TypeError(f"texts is the string {texts[:40]!r}; expected several texts, or one in a list")
    return texts


def chunks(text: str, pattern: str = GPT2_PATTERN) -> list[str]:
    """The pieces within which pairs are merged: all that `pattern` matches.

    Raises ValueError when it is no pattern or leaves out a part of the text, and for a lone surrogate.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X} at {error.start}"
        raise ValueError(f"text holds a lone surrogate, {found}: half a character, which UTF-8 cannot write") from None
    try:
        found = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression ({error})") from None
    pieces = [match[0] for match in found.finditer(text)] if found.groups else found.findall(text)
    if sum(map(len, pieces)) != len(text):
        raise ValueError(f"pattern {pattern!r} leaves out a part of {text[:40]!r}; expected one that matches all of it")
    return pieces
