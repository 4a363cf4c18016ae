"""WordPiece, BERT's tokenizer, in short form, to compare with byte-pair encoding.

It starts from the characters of its text, where BPE starts from bytes, so any other character needs an unknown token.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise

import regex

from tfbook.text.bpe import TokenPair, merge
from tfbook.text.byte_level import check_characters, check_texts
from tfbook.text.ids import Ids, ids_below

WORD = r"\w+|[^\w\s]"  # words and punctuation; the spaces between them are dropped
CONTINUATION = "##"  # marks a piece that continues a word


class WordPiece:
    """Splits each word, from left to right, into the longest known pieces; an id is a position in `pieces`.

    `##` marks a piece that continues a word. A word with an unknown character is `[UNK]` as a whole.
    """

    UNK = "[UNK]"

    def __init__(self, pieces: Iterable[str]):
        self.pieces = tuple(dict.fromkeys((self.UNK, *pieces)))
        self._ids = {piece: number for number, piece in enumerate(self.pieces)}
        self._max_piece = max(map(len, self.pieces))  # so that a word of any length takes time in proportion to it

    @classmethod
    def learn(cls, texts: Iterable[str], vocab: int, *, min_count: int = 10) -> WordPiece:
        """Merges the pair with the largest count(ab) / (count(a) · count(b)) until there are `vocab` pieces.

        That is the merge with the largest gain in likelihood per occurrence (Schuster and Nakajima, 2012). Rare pieces
        make the ratio large, so pairs with a count below `min_count` are left out.
        """
        index = _PieceIndex(Counter(word for text in check_texts(texts) for word in regex.findall(WORD, text)))
        while len(index.names) + 1 < vocab and (pair := index.best(min_count)) is not None:
            index.merge(pair)
        return cls(index.names)

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises ValueError for a lone surrogate."""
        check_characters(text)
        return [number for word in regex.findall(WORD, text) for number in self._longest_match(word)]

    def _longest_match(self, word: str) -> list[int]:
        ids, start = [], 0
        while start < len(word):
            mark = CONTINUATION if start else ""
            ends = range(min(start + self._max_piece, len(word)), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._ids), None)
            if end is None:
                return [self._ids[self.UNK]]
            ids.append(self._ids[mark + word[start:end]])
            start = end
        return ids

    def decode(self, ids: Ids) -> str:
        """The words, separated by single spaces; the original spacing is lost. Raises ValueError for an unknown id."""
        return " ".join(self.pieces[number] for number in ids_below(len(self.pieces), ids)).replace(
            f" {CONTINUATION}", ""
        )


class _PieceIndex:
    """The words as pieces, the count of each piece and each pair, and which words contain a pair."""

    def __init__(self, frequencies: Mapping[str, int]):
        split = [(word[0], *(CONTINUATION + letter for letter in word[1:])) for word in frequencies]
        self.names = sorted(set(chain.from_iterable(split)))
        self.ids = {name: number for number, name in enumerate(self.names)}
        self.words = [tuple(self.ids[name] for name in names) for names in split]
        self.frequencies = list(frequencies.values())
        self.piece_counts, self.pair_counts = Counter[int](), Counter[TokenPair]()
        self.words_with: defaultdict[TokenPair, set[int]] = defaultdict(set)
        for number in range(len(self.words)):
            self._count(number, 1)

    def _count(self, number: int, sign: int) -> None:
        """Adds the pieces and pairs of a word to the counts, or subtracts them."""
        word, frequency = self.words[number], sign * self.frequencies[number]
        for piece in word:
            self.piece_counts[piece] += frequency
        for pair in pairwise(word):
            self.pair_counts[pair] += frequency
            self.words_with[pair].add(number)

    def best(self, min_count: int) -> TokenPair | None:
        """The pair with the largest gain, the smaller ids in a tie; None when no pair is frequent enough."""
        frequent = ((count, pair) for pair, count in self.pair_counts.items() if count >= max(min_count, 1))
        gains = ((-count / (self.piece_counts[a] * self.piece_counts[b]), (a, b)) for count, (a, b) in frequent)
        return min(gains, default=(0.0, None))[1]

    def merge(self, pair: TokenPair) -> None:
        """Replaces the pair by one piece in every word that contains it."""
        name = self.names[pair[0]] + self.names[pair[1]].removeprefix(CONTINUATION)
        piece = self.ids.setdefault(name, len(self.names))
        if piece == len(self.names):
            self.names.append(name)
        for number in self.words_with.pop(pair):
            self._count(number, -1)
            self.words[number] = merge(self.words[number], pair, piece)
            self._count(number, 1)
        del self.pair_counts[pair]
