"""The two peers of byte-pair encoding, short, for comparison: WordPiece (BERT's) and unigram (T5's).

Both begin with the characters of their text where BPE begins with bytes, so both need a token for any other character.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from math import inf, log

import regex

from tfbook.text.bpe import TokenPair, merge
from tfbook.text.spelling import GPT2_PATTERN, chunks, several

# ---- WordPiece ---------------------------------------------------------------------------------------------------

WORD = r"\w+|[^\w\s]"  # words and signs; the spaces between them are forgotten
INSIDE = "##"  # marks a piece that continues a word


class WordPiece:
    """Words in the longest pieces that are known, from left to right; ids are the places in `pieces`.

    `##` marks a piece that continues a word. A word with an unknown character is `[UNK]`, all of it.
    """

    UNK = "[UNK]"

    def __init__(self, pieces: Iterable[str]):
        self.pieces = tuple(dict.fromkeys((self.UNK, *pieces)))
        self._ids = {piece: number for number, piece in enumerate(self.pieces)}

    @classmethod
    def learn(cls, texts: Iterable[str], vocab: int, *, min_count: int = 10) -> WordPiece:
        """Joins the two pieces that are together most often for how often each is there, until there are `vocab`.

        That is the largest count(ab) / (count(a) · count(b)): what the likelihood gains wherever they are joined
        (Schuster and Nakajima, 2012). Rare pieces make it large, so pairs seen less than `min_count` times stay apart.
        """
        pieces = _Pieces(Counter(word for text in several(texts) for word in regex.findall(WORD, text)))
        while len(pieces.names) + 1 < vocab and (pair := pieces.best(min_count)) is not None:
            pieces.join(pair)
        return cls(pieces.names)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return [number for word in regex.findall(WORD, text) for number in self._longest(word)]

    def _longest(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            mark = INSIDE if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._ids), None)
            if end is None:
                return [self._ids[self.UNK]]
            found.append(self._ids[mark + word[start:end]])
            start = end
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """The words with one space between any two: what stood there is lost."""
        return " ".join(self.pieces[number] for number in ids).replace(f" {INSIDE}", "")


class _Pieces:
    """Words in pieces, how often each piece and each pair stands in them, and in which words a pair stands."""

    def __init__(self, counted: Mapping[str, int]):
        spelled = [(word[0], *(INSIDE + letter for letter in word[1:])) for word in counted]
        self.names = sorted(set(chain.from_iterable(spelled)))
        self.ids = {name: number for number, name in enumerate(self.names)}
        self.words, self.times = [tuple(self.ids[name] for name in names) for names in spelled], list(counted.values())
        self.alone, self.pairs = Counter[int](), Counter[TokenPair]()
        self.where: defaultdict[TokenPair, set[int]] = defaultdict(set)
        for number in range(len(self.words)):
            self._count(number, 1)

    def _count(self, number: int, sign: int) -> None:
        """Adds what stands in a word to the counts, or takes it away."""
        word, times = self.words[number], sign * self.times[number]
        for piece in word:
            self.alone[piece] += times
        for pair in pairwise(word):
            self.pairs[pair] += times
            self.where[pair].add(number)

    def best(self, min_count: int) -> TokenPair | None:
        """The pair with the largest gain, the smaller one among equals."""
        often = ((count, pair) for pair, count in self.pairs.items() if count >= max(min_count, 1))
        gains = ((-count / (self.alone[a] * self.alone[b]), (a, b)) for count, (a, b) in often)
        return min(gains, default=(0.0, None))[1]

    def join(self, pair: TokenPair) -> None:
        """Replaces the pair by one piece in every word that holds it."""
        name = self.names[pair[0]] + self.names[pair[1]].removeprefix(INSIDE)
        token = self.ids.setdefault(name, len(self.names))
        if token == len(self.names):
            self.names.append(name)
        for number in self.where.pop(pair):
            self._count(number, -1)
            self.words[number] = merge(self.words[number], pair, token)
            self._count(number, 1)
        del self.pairs[pair]


# ---- unigram -----------------------------------------------------------------------------------------------------


class Unigram:
    """Chunks cut where the product of their pieces' probabilities is largest; ids are the places in `pieces`.

    `scores` are the pieces' logarithms of probability. Unknown characters, a run at a time, are `<unk>`.
    """

    UNK = "<unk>"

    def __init__(self, scores: Mapping[str, float], *, pattern: str = GPT2_PATTERN):
        self.scores, self.pattern = dict(scores), pattern
        self.pieces = (self.UNK, *self.scores)
        self._ids = {piece: number for number, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.scores), default=1)
        self._unknown = min(self.scores.values(), default=0.0) - 10  # e¹⁰ times rarer than the rarest piece

    @classmethod
    def learn(cls, texts: Iterable[str], vocab: int, *, longest: int = 12, pattern: str = GPT2_PATTERN) -> Unigram:
        """Begins with the frequent parts of the chunks and drops those that are needed least, down to `vocab`.

        Each round counts the pieces of the best cuts, takes the counts for probabilities (expectation maximisation, by
        Viterbi) and keeps three quarters (Kudo, 2018). Raises ValueError when `vocab` has no room for the characters.
        """
        words = Counter(chain.from_iterable(chunks(text, pattern) for text in several(texts)))
        letters = sorted(set(chain.from_iterable(words)))
        if vocab <= len(letters):
            raise ValueError(f"vocab is {vocab}; expected {len(letters) + 1} or more, one for each character and <unk>")
        model = cls(_logarithms(_parts(words, longest, 10 * vocab)), pattern=pattern)
        while True:
            used = model._used(words)
            model = cls(_logarithms(Counter(letters) | used), pattern=pattern)
            if len(model.pieces) <= vocab:
                return model
            size = max(vocab - 1, 3 * len(model.scores) // 4)
            kept = (*letters, *model._most_needed(used)[: size - len(letters)])
            model = cls({piece: model.scores[piece] for piece in kept}, pattern=pattern)

    def cut(self, chunk: str) -> list[str]:
        """The pieces whose scores have the largest sum (Viterbi); an unknown character is a very rare piece."""
        best, begins = [0.0] + [-inf] * len(chunk), [0] * (len(chunk) + 1)  # of the first n characters: sum, last piece
        for start in range(len(chunk)):
            for end in range(start + 1, min(start + self._longest, len(chunk)) + 1):
                score = self.scores.get(chunk[start:end], self._unknown if end == start + 1 else -inf)
                if best[start] + score > best[end]:
                    best[end], begins[end] = best[start] + score, start
        pieces, end = [], len(chunk)
        while end:
            pieces.append(chunk[begins[end] : end])
            end = begins[end]
        return pieces[::-1]

    def _used(self, words: Mapping[str, int]) -> Counter[str]:
        """How often each piece is in the best cuts."""
        used = Counter[str]()
        for word, times in words.items():
            for piece in self.cut(word):
                used[piece] += times
        return used

    def _most_needed(self, used: Mapping[str, int]) -> list[str]:
        """Pieces of several characters, first those without which the likelihood of the text falls most."""
        losses = {}
        for piece, score in list(self.scores.items()):
            if len(piece) > 1:
                del self.scores[piece]  # for a moment, so that the piece is cut into others
                losses[piece] = used[piece] * (score - sum(self.scores[part] for part in self.cut(piece)))
                self.scores[piece] = score
        return sorted(losses, key=lambda piece: (-losses[piece], piece))

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises ValueError as `chunks` does."""
        ids: list[int] = []
        for chunk in chunks(text, self.pattern):
            numbers = [self._ids.get(piece, 0) for piece in self.cut(chunk)]
            ids += [number for before, number in pairwise((-1, *numbers)) if before or number]  # one <unk> for a run
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces: all of it, where every character is known."""
        return "".join(self.pieces[number] for number in ids)


def _parts(words: Mapping[str, int], longest: int, most: int) -> Counter[str]:
    """How often each character and the `most` frequent longer parts stand in the words; length makes up for rarity."""
    counts = Counter[str]()
    for word, times in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(start + longest, len(word)) + 1):
                counts[word[start:end]] += times
    longer = (part for part, count in counts.items() if len(part) > 1 and count > 1)
    best = sorted(longer, key=lambda part: (-counts[part] * len(part), part))[:most]
    return Counter({part: counts[part] for part in (*(part for part in counts if len(part) == 1), *best)})


def _logarithms(counts: Mapping[str, int]) -> dict[str, float]:
    """Of the probabilities, frequent pieces first."""
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {piece: log(count / total) for piece, count in ordered}
