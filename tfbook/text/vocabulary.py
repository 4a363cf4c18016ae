"""Vocabularies: which id stands for which word or character."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook.text.byte_level import check_characters
from tfbook.text.ids import Ids, id_list, ids_below

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

Sentence = tuple[str, ...]


class Vocabulary:
    """Tokens and their ids: the four special ones, then every token seen `min_count` times, frequent ones first."""

    def __init__(self, sentences: Iterable[Sequence[str]], *, min_count: int = 1):
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}; expected 1 or more")
        counts = Counter[str]()
        for sentence in sentences:
            if isinstance(sentence, str):
                raise TypeError(f"sentences holds the string {sentence!r}; expected sequences of tokens")
            counts.update(sentence)
        if not counts:
            raise ValueError("sentences holds no tokens; expected at least one sentence")
        kept = (token for token, count in counts.items() if count >= min_count and token not in SPECIALS)
        self.tokens = (*SPECIALS, *sorted(kept, key=lambda token: (-counts[token], token)))
        self._ids = {token: index for index, token in enumerate(self.tokens) if token not in SPECIALS}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids or token in SPECIALS

    def __repr__(self) -> str:
        return f"Vocabulary of {len(self):,} tokens"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of each token; adds neither `<bos>` nor `<eos>`.

        It is `UNK` for an unknown token, and for a special one's name: what stands in a text does not end it.
        """
        if isinstance(tokens, str):
            raise TypeError(f"tokens is the string {tokens!r}; expected a sequence of tokens")
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Ids) -> Sentence:
        """The tokens up to the first `<eos>`, without `<pad>` and `<bos>`. Raises ValueError for an unknown id."""
        sentence = takewhile(lambda number: number != EOS, id_list(ids))  # `<eos>` may be followed by anything
        return tuple(self.tokens[number] for number in ids_below(len(self), sentence) if number not in (PAD, BOS))


class CharacterVocabulary:
    """The characters of a text and their ids, in Unicode order.

    Raises ValueError for an empty text and for one with a lone surrogate.
    """

    def __init__(self, text: str):
        if not text:
            raise ValueError("text is empty; expected at least one character")
        check_characters(text)
        self.tokens = tuple(sorted(set(text)))
        self._ids = {character: index for index, character in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Int64[Tensor, " time"]:
        """The id of each character. Raises ValueError for an unknown one."""
        if unknown := set(text) - self._ids.keys():
            raise ValueError(f"text holds {min(unknown)!r}, which is none of the {len(self)} characters")
        return torch.tensor([self._ids[character] for character in text], dtype=torch.int64)

    def decode(self, ids: Ids) -> str:
        """The text of these ids. Raises ValueError for an unknown one."""
        return "".join(self.tokens[number] for number in ids_below(len(self), ids))
