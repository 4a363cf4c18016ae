"""Learning which bytes to join: byte-pair encoding, first to be read, then to be used."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from tfbook.text.spelling import BYTE_ID, BYTES, GPT2_PATTERN, chunks, several

TokenPair = tuple[int, int]  # two neighbouring tokens

# ---- naive, for reading ------------------------------------------------------------------------------------------


def count_pairs(words: Mapping[tuple[int, ...], int]) -> Counter[TokenPair]:
    """How often each two tokens are neighbours, over words that stand in the text so many times."""
    counts = Counter[TokenPair]()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts


def merge(word: Sequence[int], pair: TokenPair, token: int) -> tuple[int, ...]:
    """The word with each `pair`, from left to right, replaced by `token`."""
    merged: list[int] = []
    i = 0
    while i < len(word):
        found = tuple(word[i : i + 2]) == pair
        merged.append(token if found else word[i])
        i += 2 if found else 1
    return tuple(merged)


def learn_merges_naively(text: str, merges: int) -> list[TokenPair]:
    """The first `merges` pairs, each the most frequent of its time (Sennrich et al., 2016, algorithm 1).

    Among equals the smaller pair of ids wins. It counts everything anew for each merge.
    """
    words = Counter(tuple(BYTE_ID[byte] for byte in chunk.encode()) for chunk in chunks(text))
    learned: list[TokenPair] = []
    for token in range(256, 256 + merges):
        counts = count_pairs(words)
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        words = Counter({merge(word, best, token): times for word, times in words.items()})
        learned.append(best)
    return learned


# ---- incremental, for use ----------------------------------------------------------------------------------------


class Spelled:
    """Tokens as bytes, 256 at first, and the pairs that the others were joined from."""

    def __init__(self) -> None:
        self.tokens = list(BYTES)
        self.merges: list[TokenPair] = []

    def add(self, pair: TokenPair) -> int:
        """Joins two tokens and returns the number of the new one.

        No other pair spells the same: until it is one token, a part of the text is joined alike wherever it stands.
        """
        self.merges.append(pair)
        self.tokens.append(self.tokens[pair[0]] + self.tokens[pair[1]])
        return len(self.tokens) - 1


def learn_merges(texts: Iterable[str], vocab: int, *, pattern: str = GPT2_PATTERN) -> Spelled:
    """The same merges, until there are `vocab` tokens or no pair is left; only words that hold a pair are counted anew.

    Raises ValueError when `vocab` < 256, and TypeError when `texts` is one string.
    """
    if vocab < len(BYTES):
        raise ValueError(f"vocab is {vocab}; expected {len(BYTES)} or more, one token for each byte")
    counted = Counter(chain.from_iterable(chunks(text, pattern) for text in several(texts)))
    learning = _Learning([[BYTE_ID[byte] for byte in chunk.encode()] for chunk in counted], list(counted.values()))
    spelled = Spelled()
    while len(spelled.tokens) < vocab and (pair := learning.best()) is not None:
        learning.join(pair, spelled.add(pair))
    return spelled


class _Learning:
    """Words, how often each pair stands in them, and in which; a heap says which pair is the most frequent."""

    def __init__(self, words: list[list[int]], times: list[int]):
        self.words, self.times = words, times
        self.counts: defaultdict[TokenPair, int] = defaultdict(int)
        self.where: defaultdict[TokenPair, set[int]] = defaultdict(set)
        for number, (word, count) in enumerate(zip(words, times, strict=True)):
            for pair in pairwise(word):
                self.counts[pair] += count
                self.where[pair].add(number)
        self.heap = [(-count, pair) for pair, count in self.counts.items()]
        heapq.heapify(self.heap)

    def best(self) -> TokenPair | None:
        """The most frequent pair, the smaller one among equals; what the heap says may be old and is looked up."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            if count == -self.counts[pair]:
                return pair if count else None
            if self.counts[pair]:
                heapq.heappush(self.heap, (-self.counts[pair], pair))
        return None

    def join(self, pair: TokenPair, token: int) -> None:
        """Replaces the pair by the token in every word that holds it, and counts its new neighbours."""
        counts, where, new = self.counts, self.where, set[TokenPair]()
        first, second = pair
        for number in where.pop(pair):
            word, times = self.words[number], self.times[number]
            i = 0
            while i < len(word) - 1:
                if word[i] == first and word[i + 1] == second:
                    if i:
                        counts[word[i - 1], first] -= times
                        counts[word[i - 1], token] += times
                        where[word[i - 1], token].add(number)
                        new.add((word[i - 1], token))
                    if i + 2 < len(word):
                        counts[second, word[i + 2]] -= times
                        counts[token, word[i + 2]] += times
                        where[token, word[i + 2]].add(number)
                        new.add((token, word[i + 2]))
                    word[i : i + 2] = [token]
                i += 1
        counts[pair] = 0
        for changed in new:
            heapq.heappush(self.heap, (-counts[changed], changed))
