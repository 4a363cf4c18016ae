"""Learning byte-pair encoding: which pairs of tokens to merge. A naive version to read and a fast one to use."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from tfbook.text.byte_level import BYTE_ID, BYTES, GPT2_PATTERN, check_texts, pre_tokenize

TokenPair = tuple[int, int]  # two adjacent tokens
REMOVED = -1  # in place of a token that was merged into the one before it

# ---- naive, to read ----------------------------------------------------------------------------------------------


def count_pairs(words: Mapping[tuple[int, ...], int]) -> Counter[TokenPair]:
    """How often each pair of tokens is adjacent; `words` maps each word to its frequency in the text."""
    counts = Counter[TokenPair]()
    for word, frequency in words.items():
        for pair in pairwise(word):
            counts[pair] += frequency
    return counts


def merge(word: Sequence[int], pair: TokenPair, token: int) -> tuple[int, ...]:
    """The word with every occurrence of `pair`, from left to right, replaced by `token`."""
    merged: list[int] = []
    i = 0
    while i < len(word):
        found = tuple(word[i : i + 2]) == pair
        merged.append(token if found else word[i])
        i += 2 if found else 1
    return tuple(merged)


def learn_merges_naively(text: str, merges: int) -> list[TokenPair]:
    """The first `merges` merges, each of the most frequent pair at that point (Sennrich et al., 2016, algorithm 1).

    Ties go to the pair with the smaller ids. Every merge counts all pairs again.
    """
    words = Counter(tuple(BYTE_ID[byte] for byte in chunk.encode()) for chunk in pre_tokenize(text))
    learned: list[TokenPair] = []
    for token in range(256, 256 + merges):
        counts = count_pairs(words)
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        words = Counter({merge(word, best, token): frequency for word, frequency in words.items()})
        learned.append(best)
    return learned


# ---- incremental, to use -----------------------------------------------------------------------------------------


class BpeVocabulary:
    """The tokens as byte strings, the 256 single bytes first, and the merges that made the others."""

    def __init__(self) -> None:
        self.tokens = list(BYTES)
        self.merges: list[TokenPair] = []

    def add(self, pair: TokenPair) -> int:
        """Adds the merge of two tokens and returns the new token's id.

        No two merges spell the same bytes, since the bytes between two token boundaries are always merged alike.
        """
        self.merges.append(pair)
        self.tokens.append(self.tokens[pair[0]] + self.tokens[pair[1]])
        return len(self.tokens) - 1


def learn_merges(texts: Iterable[str], vocab: int, *, pattern: str = GPT2_PATTERN) -> BpeVocabulary:
    """The merges of `learn_merges_naively`, until there are `vocab` tokens or no pairs left.

    A merge updates the counts of the words that it changes and of no others. Raises ValueError when `vocab` < 256, and
    TypeError when `texts` is one string.
    """
    if vocab < len(BYTES):
        raise ValueError(f"vocab is {vocab}; expected {len(BYTES)} or more, one token for each byte")
    counted = Counter(chain.from_iterable(pre_tokenize(text, pattern) for text in check_texts(texts)))
    index = _PairIndex([[BYTE_ID[byte] for byte in chunk.encode()] for chunk in counted], list(counted.values()))
    vocabulary = BpeVocabulary()
    while len(vocabulary.tokens) < vocab and (pair := index.most_frequent()) is not None:
        index.merge(pair, vocabulary.add(pair))
    return vocabulary


class _PairIndex:
    """How often each pair occurs, and in which words; a heap finds the most frequent pair."""

    def __init__(self, words: list[list[int]], frequencies: list[int]):
        self.words, self.frequencies = words, frequencies
        self.counts: defaultdict[TokenPair, int] = defaultdict(int)
        self.words_with: defaultdict[TokenPair, set[int]] = defaultdict(set)
        for number, (word, frequency) in enumerate(zip(words, frequencies, strict=True)):
            for pair in pairwise(word):
                self.counts[pair] += frequency
                self.words_with[pair].add(number)
        self.heap = [(-count, pair) for pair, count in self.counts.items()]
        heapq.heapify(self.heap)

    def most_frequent(self) -> TokenPair | None:
        """The most frequent pair, the smaller ids in a tie; updates stale counts."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            if count == -self.counts[pair]:
                return pair if count else None
            if self.counts[pair]:
                heapq.heappush(self.heap, (-self.counts[pair], pair))
        return None

    def merge(self, pair: TokenPair, token: int) -> None:
        """Replaces the pair by the token everywhere, and counts the pairs that this makes."""
        counts, words_with, created = self.counts, self.words_with, set[TokenPair]()
        first, second = pair
        for number in words_with.pop(pair):
            word, frequency = self.words[number], self.frequencies[number]
            i = 0
            while i < len(word) - 1:
                if word[i] == first and word[i + 1] == second:
                    if i:
                        before = token if word[i - 1] == REMOVED else word[i - 1]
                        counts[before, first] -= frequency
                        counts[before, token] += frequency
                        words_with[before, token].add(number)
                        created.add((before, token))
                    if i + 2 < len(word):
                        counts[second, word[i + 2]] -= frequency
                        counts[token, word[i + 2]] += frequency
                        words_with[token, word[i + 2]].add(number)
                        created.add((token, word[i + 2]))
                    word[i], word[i + 1] = token, REMOVED
                i += 1
            self.words[number] = [kept for kept in word if kept != REMOVED]
        counts[pair] = 0
        for changed in created:
            heapq.heappush(self.heap, (-counts[changed], changed))
