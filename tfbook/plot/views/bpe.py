"""A view in which the reader types a text and a tokenizer cuts it, merge by merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from tfbook.plot.tokens import visible
from tfbook.plot.views import base
from tfbook.text.bpe import TokenPair, merge
from tfbook.text.byte_level import BYTE_ID, BYTES, pre_tokenize

MAX_MERGES = 5000  # more would make a notebook large
MAX_TEXT = 200  # characters
LISTED = 12  # steps in the table


@dataclass(frozen=True)
class BpeView:
    """What `bpe_view` returns; a notebook displays it when it is the last line of a cell."""

    merges: Sequence[TokenPair]
    text: str

    def __repr__(self) -> str:
        return f"BpeView(merges={len(self.merges)}, text={self.text!r})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it by the view; without JavaScript the table stays."""
        data = {
            "text": self.text,
            "most": MAX_TEXT,
            "bytes": base.encoded(torch.tensor([token[0] for token in BYTES], dtype=torch.uint8)),
            "merges": [*chain.from_iterable(self.merges)],
        }
        return base.embed("bpe", data, self._table())

    def _table(self) -> str:
        """The text at some of the steps, the first and the last among them."""
        tokens = list(BYTES)
        for first, second in self.merges:
            tokens.append(tokens[first] + tokens[second])
        every = [*steps(self.text, self.merges)]
        last = len(every) - 1
        chosen = sorted({round(i * last / (LISTED - 1)) for i in range(LISTED)})
        rows = ((f"{place} of {last}", _cells(*every[place], tokens)) for place in chosen)
        lead = f"The {len(self.text.encode()):,} bytes of the text, and its tokens after each of these merges."
        return f"{base.paragraph(lead)}\n{base.table(['merge', 'tokens', 'text'], rows)}"


def _cells(made: int | None, words: Sequence[Sequence[int]], tokens: Sequence[bytes]) -> Iterator[str]:
    """The token that was made, how many there are, and all of them with a bar between any two."""
    ids = [*chain.from_iterable(words)]
    yield base.cell("bytes" if made is None else visible(tokens[made]))
    yield base.cell(str(len(ids)))
    yield base.cell("|".join(visible(tokens[number]) for number in ids))


def steps(text: str, merges: Sequence[TokenPair]) -> Iterator[tuple[int | None, list[tuple[int, ...]]]]:
    """The chunks of the text as ids after each merge that changes one of them, with the token that it makes."""
    words = [tuple(BYTE_ID[byte] for byte in chunk.encode()) for chunk in pre_tokenize(text)]
    yield None, words
    for token, pair in enumerate(merges, start=len(BYTES)):
        merged = [merge(word, pair, token) for word in words]
        if merged != words:
            words = merged
            yield token, words


def bpe_view(merges: Sequence[TokenPair], text: str) -> BpeView:
    """A view that cuts a text into tokens, one merge at a time; the reader types another text and steps through it.

    `merges` are pairs of ids in the order of learning, numbered as `learn_merges` numbers them; the text is split by
    GPT-2's pattern. Raises ValueError for a merge of tokens that do not exist yet, for more merges than a page should
    hold, and for a text that is empty, too long or not Unicode.
    """
    if len(merges) > MAX_MERGES:
        raise ValueError(f"merges holds {len(merges):,}; expected at most {MAX_MERGES:,}, which fit on a page")
    for token, pair in enumerate(merges, start=len(BYTES)):
        if not all(0 <= number < token for number in pair):
            raise ValueError(f"merge {token - len(BYTES) + 1} is {pair}; expected two of the {token} ids before it")
    if not 1 <= len(text) <= MAX_TEXT:
        raise ValueError(f"text has {len(text)} characters; expected 1 to {MAX_TEXT}")
    pre_tokenize(text)  # raises for half a character
    return BpeView([(int(first), int(second)) for first, second in merges], text)
