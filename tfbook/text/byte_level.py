"""Byte-level pre-tokenization: text is split into chunks, and GPT-2's files show each byte as a visible letter."""

from __future__ import annotations

from collections.abc import Iterable

import regex

# GPT-2's pattern (Radford et al., 2019): contractions; letters, digits or punctuation after a space; whitespace
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
BYTES = [bytes([b]) for b in (*_PRINTABLE, *(b for b in range(256) if b not in _PRINTABLE))]  # tokens 0 to 255
BYTE_ID = {byte[0]: number for number, byte in enumerate(BYTES)}
BYTE_LETTERS = [*map(chr, _PRINTABLE), *(chr(256 + n) for n in range(256 - len(_PRINTABLE)))]  # of the same tokens
_LETTER_OF = {byte[0]: letter for byte, letter in zip(BYTES, BYTE_LETTERS, strict=True)}
_BYTE_OF = {letter: byte for byte, letter in _LETTER_OF.items()}


def pre_tokenize(text: str, pattern: str = GPT2_PATTERN) -> list[str]:
    """The text split into chunks, the matches of `pattern`; pairs are merged only within a chunk.

    Raises ValueError for an invalid pattern, for one that does not match all of the text, and for a lone surrogate.
    """
    check_characters(text)
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression ({error})") from None
    chunks = [match[0] for match in compiled.finditer(text)] if compiled.groups else compiled.findall(text)
    if sum(map(len, chunks)) != len(text):
        raise ValueError(f"pattern {pattern!r} leaves out part of {text[:40]!r}; expected one that matches all of it")
    return chunks


def bytes_to_letters(token: bytes) -> str:
    """A token as GPT-2's files write it: one visible letter per byte, `Ġ` for the space."""
    return "".join(_LETTER_OF[byte] for byte in token)


def letters_to_bytes(letters: str) -> bytes:
    """The inverse of `bytes_to_letters`. Raises ValueError for a letter that stands for no byte."""
    unknown = sorted({letter for letter in letters if letter not in _BYTE_OF})
    if unknown:
        raise ValueError(f"token {letters!r} holds {unknown[0]!r}, which stands for no byte")
    return bytes(_BYTE_OF[letter] for letter in letters)


def check_characters(text: str, name: str = "text") -> None:
    """Raises TypeError for anything but a str, and ValueError for a lone surrogate, half of a character."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is a {type(text).__name__}; expected a str")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X} at {error.start}"
        raise ValueError(
            f"{name} holds a lone surrogate, {found}: half a character, which UTF-8 cannot write"
        ) from None


def check_texts(texts: Iterable[str], name: str = "texts") -> Iterable[str]:
    """The texts. Raises TypeError for a single string, which would be read as many texts of one letter each."""
    if isinstance(texts, str):
        raise TypeError(f"{name} is the string {texts[:40]!r}; expected several {name}, or one in a list")
    return texts
