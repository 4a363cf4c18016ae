"""Sentence pairs and their batches, the training data of the translation lessons.

Shapes: batch, source and target (tokens, padded on the right). Every id tensor is int64.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsIndex

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook.text.batching import LengthGroupedSampler, Sequences
from tfbook.text.vocabulary import BOS, EOS, PAD, Sentence, Vocabulary

Links = frozenset[tuple[int, int]]


class Pair(NamedTuple):
    """A sentence and its translation, with gold alignment links (source index, target index) where they are known.

    As in Och and Ney (2003), annotators agree on the `sure` links; `possible` adds the ones that are open to debate.
    """

    source: Sentence
    target: Sentence
    sure: Links = frozenset()
    possible: Links = frozenset()  # includes sure
    template: str = ""  # the construction that a generated sentence was built from


def filter_by_length(pairs: Iterable[Pair], low: int, high: int) -> list[Pair]:
    """The pairs whose source has `low` to `high` tokens, both included."""
    if not 0 <= low <= high:
        raise ValueError(f"low is {low} and high is {high}; expected 0 ≤ low ≤ high")
    return [pair for pair in pairs if low <= len(pair.source) <= high]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pairs as ids. The decoder reads `target_in` (`<bos>` w₁ … wₙ) and must predict `target_out` (w₁ … wₙ `<eos>`).

    The source ends with `<eos>` too, so that even an empty sentence has one state to attend to; lengths include it.
    """

    source: Int64[Tensor, "batch source"]
    source_lengths: Int64[Tensor, " batch"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    target_lengths: Int64[Tensor, " batch"]

    @property
    def tokens(self) -> int:
        """The number of target tokens to predict: words and `<eos>`, not padding."""
        return int(self.target_lengths.sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(**{name: tensor.to(device) for name, tensor in vars(self).items()})


class _EncodedPairs:
    """A list of pairs as ids, from which any rows make a batch."""

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
    """`batches(step)` is the batch of that training step, the same one each time it is called.

    An epoch is `len(batches)` steps and contains every pair once. Sentences of similar length share a batch, first by
    source, then by target (see `LengthGroupedSampler`), so little of it is padding.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        source_vocab: Vocabulary,
        target_vocab: Vocabulary,
        *,
        size: int,
        seed: SupportsIndex,
    ):
        self._pairs = _EncodedPairs(pairs, source_vocab, target_vocab)
        self._rows = LengthGroupedSampler(self._pairs.source.lengths, self._pairs.target.lengths, size=size, seed=seed)

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, step: int) -> Batch:
        return self._pairs.batch(self._rows(step))
