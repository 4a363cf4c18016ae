"""The unigram tokenizer, T5's, in short form, to compare with byte-pair encoding.

It starts from the characters of its text, where BPE starts from bytes, so any other character needs an unknown token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from math import inf, log

from tfbook.text.byte_level import GPT2_PATTERN, check_texts, pre_tokenize
from tfbook.text.ids import Ids, ids_below


class Unigram:
    """Splits each chunk so that the product of its pieces' probabilities is largest; an id is a position in `pieces`.

    `scores` are the log-probabilities of the pieces. A run of unknown characters is one `<unk>`.
    """

    UNK = "<unk>"

    def __init__(self, scores: Mapping[str, float], *, pattern: str = GPT2_PATTERN):
        self.scores, self.pattern = dict(scores), pattern
        self.pieces = (self.UNK, *self.scores)
        self._ids = {piece: number for number, piece in enumerate(self.pieces)}
        self._max_piece = max(map(len, self.scores), default=1)
        self._unknown = min(self.scores.values(), default=0.0) - 10  # e¹⁰ times less likely than the rarest piece

    @classmethod
    def learn(cls, texts: Iterable[str], vocab: int, *, max_piece: int = 12, pattern: str = GPT2_PATTERN) -> Unigram:
        """Starts from the frequent substrings of the chunks and drops the least needed ones, down to `vocab`.

        Each round counts the pieces of the best splits, makes the counts the new probabilities (expectation
        maximization with Viterbi), and keeps three quarters (Kudo, 2018). A piece has at most `max_piece` characters.
        Raises ValueError when `vocab` has no room for the single characters.
        """
        chunks = Counter(chain.from_iterable(pre_tokenize(text, pattern) for text in check_texts(texts)))
        characters = sorted(set(chain.from_iterable(chunks)))
        if vocab <= len(characters):
            expected = f"{len(characters) + 1} or more, one for each character and <unk>"
            raise ValueError(f"vocab is {vocab}; expected {expected}")
        model = cls(_log_probabilities(_substrings(chunks, max_piece, 10 * vocab)), pattern=pattern)
        while True:
            used = model._piece_counts(chunks)
            model = cls(_log_probabilities(Counter(characters) | used), pattern=pattern)
            if len(model.pieces) <= vocab:
                return model
            size = max(vocab - 1, 3 * len(model.scores) // 4)
            kept = (*characters, *model._most_needed(used)[: size - len(characters)])
            model = cls({piece: model.scores[piece] for piece in kept}, pattern=pattern)

    def split(self, chunk: str) -> list[str]:
        """The pieces whose scores have the largest sum (Viterbi); an unknown character counts as a very rare piece."""
        best = [0.0] + [-inf] * len(chunk)  # the sum of the scores for the first n characters
        begins = [0] * (len(chunk) + 1)  # where their last piece begins
        for start in range(len(chunk)):
            for end in range(start + 1, min(start + self._max_piece, len(chunk)) + 1):
                score = self.scores.get(chunk[start:end], self._unknown if end == start + 1 else -inf)
                if best[start] + score > best[end]:
                    best[end], begins[end] = best[start] + score, start
        pieces, end = [], len(chunk)
        while end:
            pieces.append(chunk[begins[end] : end])
            end = begins[end]
        return pieces[::-1]

    def _piece_counts(self, chunks: Mapping[str, int]) -> Counter[str]:
        """How often each piece occurs in the best splits."""
        counts = Counter[str]()
        for chunk, frequency in chunks.items():
            for piece in self.split(chunk):
                counts[piece] += frequency
        return counts

    def _most_needed(self, counts: Mapping[str, int]) -> list[str]:
        """The pieces of several characters, by how much the log-likelihood of the text would fall without them."""
        losses = {}
        for piece, score in list(self.scores.items()):
            if len(piece) > 1:
                del self.scores[piece]  # for a moment, so that the piece is split into others
                losses[piece] = counts[piece] * (score - sum(self.scores[part] for part in self.split(piece)))
                self.scores[piece] = score
        return sorted(losses, key=lambda piece: (-losses[piece], piece))

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises ValueError as `pre_tokenize` does."""
        ids: list[int] = []
        for chunk in pre_tokenize(text, self.pattern):
            numbers = [self._ids.get(piece, 0) for piece in self.split(chunk)]
            ids += [number for before, number in pairwise((-1, *numbers)) if before or number]  # one <unk> for a run
        return ids

    def decode(self, ids: Ids) -> str:
        """The pieces, joined: the original text when all of its characters are known.

        Raises ValueError for an unknown id.
        """
        return "".join(self.pieces[number] for number in ids_below(len(self.pieces), ids))


def _substrings(chunks: Mapping[str, int], max_length: int, count: int) -> Counter[str]:
    """The counts of all single characters and of the `count` longer substrings with the largest count × length."""
    counts = Counter[str]()
    for chunk, frequency in chunks.items():
        for start in range(len(chunk)):
            for end in range(start + 1, min(start + max_length, len(chunk)) + 1):
                counts[chunk[start:end]] += frequency
    longer = (part for part, times in counts.items() if len(part) > 1 and times > 1)
    best = sorted(longer, key=lambda part: (-counts[part] * len(part), part))[:count]
    return Counter({part: counts[part] for part in (*(part for part in counts if len(part) == 1), *best)})


def _log_probabilities(counts: Mapping[str, int]) -> dict[str, float]:
    """log(count / total) of each piece, the most frequent first."""
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {piece: log(count / total) for piece, count in ordered}
