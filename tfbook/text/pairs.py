"""Sentence pairs and their batches: what the translation lessons train on.

Shapes: batch, source and target (words, padded on the right). Every id tensor is int64.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook.text.batching import ByLength, Sequences
from tfbook.text.vocabulary import BOS, EOS, PAD, Sentence, Vocabulary

Links = frozenset[tuple[int, int]]


class Pair(NamedTuple):
    """A sentence and its translation, with gold links (source index, target index) where they are known.

    As in Och and Ney (2003), annotators are certain of the `sure` links and `possible` adds those that depend on taste.
    """

    source: Sentence
    target: Sentence
    sure: Links = frozenset()
    possible: Links = frozenset()  # includes sure
    template: str = ""  # the construction that a generated sentence was built from


def between(pairs: Iterable[Pair], low: int, high: int) -> list[Pair]:
    """The pairs whose source has `low` to `high` tokens, both included."""
    if not 0 <= low <= high:
        raise ValueError(f"low is {low} and high is {high}; expected 0 ≤ low ≤ high")
    return [pair for pair in pairs if low <= len(pair.source) <= high]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pairs as ids. The decoder reads `target_in` (`<bos>` w₁ … wₙ) and has to say `target_out` (w₁ … wₙ `<eos>`).

    The source ends with `<eos>` too, so even an empty sentence has one state to attend to; lengths count it.
    """

    source: Int64[Tensor, "batch source"]
    source_lengths: Int64[Tensor, " batch"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    target_lengths: Int64[Tensor, " batch"]

    @property
    def tokens(self) -> int:
        """Target tokens to predict: words and `<eos>`, no padding."""
        return int(self.target_lengths.sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(**{name: tensor.to(device) for name, tensor in vars(self).items()})


class _EncodedPairs:
    """A list of pairs as ids, from which any rows can be batched."""

    def __init__(self, pairs: Sequence[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary):
        if not pairs:
            raise ValueError("pairs is empty; expected at least one Pair")
        self.source = Sequences([[*source_vocab.encode(pair.source), EOS] for pair in pairs], pad=PAD)
        self.target = Sequences([[BOS, *target_vocab.encode(pair.target), EOS] for pair in pairs], pad=PAD)

    def batch(self, rows: Int64[Tensor, " batch"]) -> Batch:
        return Batch(
            source=self.source.padded(rows),
            source_lengths=self.source.lengths[rows],
            target_in=self.target.padded(rows, drop=1),
            target_out=self.target.padded(rows, skip=1),
            target_lengths=self.target.lengths[rows] - 1,
        )


def collate(pairs: Sequence[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary) -> Batch:
    """All `pairs` as one batch, in their order."""
    return _EncodedPairs(pairs, source_vocab, target_vocab).batch(torch.arange(len(pairs)))


class Batches:
    """`batches(step)` is the batch of that training step, the same whenever it is asked for.

    An epoch is `len(batches)` steps and holds every pair once. Sentences of similar length share a batch, so little is
    padding: `ByLength` sorts them by source, then by target.
    """

    def __init__(
        self, pairs: Sequence[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary, *, size: int, seed: int
    ):
        self._pairs = _EncodedPairs(pairs, source_vocab, target_vocab)
        self._rows = ByLength(self._pairs.source.lengths, self._pairs.target.lengths, size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, step: int) -> Batch:
        return self._pairs.batch(self._rows(step))
