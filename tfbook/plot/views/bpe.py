"""A view in which the reader types a text and a tokenizer cuts it, merge by merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import regex
import torch

from tfbook.plot.tokens import visible
from tfbook.plot.views import base

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2's, as in bpe.js
BYTES = 256
MAX_MERGES = 5000  # more would make a notebook large
MAX_TEXT = 200  # characters
LISTED = 12  # steps in the table


@dataclass(frozen=True)
class BpeView:
    """The view returned by `bpe_view`, which a notebook displays when it is the last line of a cell."""

    tokens: Sequence[bytes]
    merges: Sequence[tuple[int, int]]
    text: str

    def __repr__(self) -> str:
        return f"BpeView(merges={len(self.merges)}, text={self.text!r})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        data = {
            "text": self.text,
            "most": MAX_TEXT,
            "bytes": base.encoded(torch.tensor([token[0] for token in self.tokens[:BYTES]], dtype=torch.uint8)),
            "merges": [*chain.from_iterable(self.merges)],
        }
        return base.embed("bpe", data, self._table())

    def _table(self) -> str:
        """The text at some of the steps, including the first and the last."""
        every = [*steps(self.tokens, self.merges, self.text)]
        last = len(every) - 1
        chosen = sorted({round(i * last / (LISTED - 1)) for i in range(LISTED)})
        rows = ((f"{place} of {last}", _cells(*every[place], self.tokens)) for place in chosen)
        lead = f"The {len(self.text.encode()):,} bytes of the text, and its tokens after each of these merges."
        return f"{base.paragraph(lead)}\n{base.table(['merge', 'tokens', 'text'], rows)}"


def _cells(made: int | None, words: Sequence[Sequence[int]], tokens: Sequence[bytes]) -> Iterator[str]:
    """The token that was created, the number of tokens, and all of them separated by bars."""
    ids = [*chain.from_iterable(words)]
    yield base.cell("bytes" if made is None else visible(tokens[made]))
    yield base.cell(str(len(ids)))
    yield base.cell("|".join(visible(tokens[number]) for number in ids))


def steps(
    tokens: Sequence[bytes], merges: Sequence[tuple[int, int]], text: str
) -> Iterator[tuple[int | None, list[list[int]]]]:
    """The chunks of the text as ids after each merge that changes one of them, with the token that it creates."""
    number = {token[0]: i for i, token in enumerate(tokens[:BYTES])}
    words = [[number[byte] for byte in chunk.encode()] for chunk in regex.findall(PATTERN, text)]
    yield None, words
    for token, pair in enumerate(merges, start=BYTES):
        merged = [_merged(word, pair, token) for word in words]
        if merged != words:
            words = merged
            yield token, words


def _merged(word: Sequence[int], pair: tuple[int, int], token: int) -> list[int]:
    """The word with every occurrence of `pair`, from left to right, replaced by `token`."""
    merged: list[int] = []
    for number in word:
        if merged and (merged[-1], number) == pair:
            merged[-1] = token
        else:
            merged.append(number)
    return merged


def bpe_view(tokens: Sequence[bytes], merges: Sequence[tuple[int, int]], text: str) -> BpeView:
    """A view that cuts a text into tokens, one merge at a time; the reader types another text and steps through it.

    `tokens` are the bytes of each id, the 256 single bytes first; `merges` are pairs of ids in the order of learning,
    the first of which makes token 256. The text is split by GPT-2's pattern. Raises ValueError when the tokens are not
    those of the merges, for more merges than a page should hold, and for a text that is empty, too long or not Unicode.
    """
    if {*tokens[:BYTES]} != {bytes([byte]) for byte in range(BYTES)}:
        raise ValueError("tokens does not begin with the 256 single bytes")
    if len(tokens) != BYTES + len(merges):
        raise ValueError(f"tokens holds {len(tokens)}; expected {BYTES + len(merges)}, the bytes and a token per merge")
    if len(merges) > MAX_MERGES:
        raise ValueError(f"merges holds {len(merges):,}; expected at most {MAX_MERGES:,}, which fit on a page")
    for token, pair in enumerate(merges, start=BYTES):
        if not all(0 <= number < token for number in pair) or b"".join(tokens[i] for i in pair) != tokens[token]:
            raise ValueError(f"merge {token - BYTES + 1} is {pair}; expected two earlier ids that spell token {token}")
    if not 1 <= len(text) <= MAX_TEXT:
        raise ValueError(f"text has {len(text)} characters; expected 1 to {MAX_TEXT}")
    text.encode()  # raises for half a character
    return BpeView(list(tokens), [(int(first), int(second)) for first, second in merges], text)
