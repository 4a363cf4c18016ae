"""What BERT learns from: masked tokens, and pairs of sentences that follow each other or do not.

Shapes: batch, time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first ids of every vocabulary


CLS, SEP, MASK = range(2, len(BERT_SPECIALS))  # `PAD` is 0 in every vocabulary


IGNORE_INDEX = -100  # the target of a position that no loss counts


# ---- hiding words ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Of the share `rate` of the words, how many become `[MASK]`, how many another word; the rest stay as they are.

    The defaults are BERT's 15% and 80/10/10 (Devlin et al., 2019, section 3.1). Raises ValueError for shares that are
    not 0 to 1.
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        for name in ("rate", "mask", "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share, 0 to 1")
        if self.mask + self.random > 1 + 1e-9:
            raise ValueError(f"mask is {self.mask} and random is {self.random}; expected a sum of 1 or less")


class Masked(NamedTuple):
    """A text with words hidden, and what they were: `IGNORE_INDEX` where nothing was asked."""

    ids: Int[Tensor, "batch time"]
    targets: Int[Tensor, "batch time"]


def mask_tokens(
    ids: Int[Tensor, "batch time"],
    vocab: int,
    masking: Masking,
    *,
    weights: Float[Tensor, " vocab"] | None = None,
    generator: torch.Generator | None = None,
) -> Masked:
    """Draws each word with probability `rate`, and for each drawn one what stands in its place.

    `weights` has a factor on the rate for each word. Special tokens (the first ids) are never drawn nor put in
    another's place. A new draw each time is RoBERTa's dynamic masking (Liu et al., 2019, section 4.1); to mask once for
    all, keep what this returns.
    """
    chance = masking.rate if weights is None else masking.rate * weights.to(ids.device)[ids]

    def dice() -> Tensor:
        return torch.rand(ids.shape, generator=generator).to(ids.device)

    drawn = (dice() < chance) & (ids >= len(BERT_SPECIALS))
    kind = dice()
    others = torch.randint(len(BERT_SPECIALS), vocab, ids.shape, generator=generator).to(ids.device)
    hidden = torch.where(drawn & (kind < masking.mask), MASK, ids)
    swapped = drawn & (kind >= masking.mask) & (kind < masking.mask + masking.random)
    return Masked(torch.where(swapped, others, hidden), ids.masked_fill(~drawn, IGNORE_INDEX))


# ---- does the second segment follow the first? -------------------------------------------------------------------


def join_segments(first: Sequence[int], second: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """`[CLS]` first `[SEP]` second `[SEP]` and the segment, 0 or 1, of each token; without a second, one segment."""
    ids, segments = [CLS, *first, SEP], [0] * (len(first) + 2)
    if second:
        ids, segments = [*ids, *second, SEP], [*segments, *[1] * (len(second) + 1)]
    return ids, segments


class NextSentence(NamedTuple):
    """Two sentences; `label` 0: the second follows the first in their document, 1: it comes from another document."""

    first: Sequence[int]
    second: Sequence[int]
    label: int


def next_sentence_pairs(documents: Sequence[Sequence[Sequence[int]]], *, seed: int) -> list[NextSentence]:
    """Each sentence that has a successor with it or, half of the time, with a sentence of another document.

    Raises ValueError unless two documents have sentences.
    """
    documents = [document for document in documents if document]
    if len(documents) < 2:
        raise ValueError(f"documents holds {len(documents)} with sentences; expected two or more, to draw from others")
    dice, pairs = random.Random(seed), []
    for number, document in enumerate(documents):
        for first, second in pairwise(document):
            other = documents[(number + dice.randrange(1, len(documents))) % len(documents)]
            label = dice.randrange(2)
            pairs.append(NextSentence(first, dice.choice(other) if label else second, label))
    return pairs
