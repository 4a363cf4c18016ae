"""What BERT learns from: words that are hidden, and sentences that follow each other or do not.

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
from torch.nn import functional as F

from tfbook.bert.model import MaskedLanguageModel, PretrainedBert

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first ids of every vocabulary
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))
IGNORED = -100  # the target of a position that no loss counts

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
    """A text with words hidden, and what they were: `IGNORED` where nothing was asked."""

    ids: Int[Tensor, "batch time"]
    targets: Int[Tensor, "batch time"]


def hide_words(
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

    drawn = (dice() < chance) & (ids >= len(SPECIALS))
    kind = dice()
    others = torch.randint(len(SPECIALS), vocab, ids.shape, generator=generator).to(ids.device)
    hidden = torch.where(drawn & (kind < masking.mask), MASK, ids)
    swapped = drawn & (kind >= masking.mask) & (kind < masking.mask + masking.random)
    return Masked(torch.where(swapped, others, hidden), ids.masked_fill(~drawn, IGNORED))


def word_loss(logits: Float[Tensor, "word vocab"], words: Int[Tensor, " word"]) -> Float[Tensor, ""]:
    """−mean log p(word) in nats, from the logits at the words that were drawn; 0, and not 0/0, where none was."""
    return F.cross_entropy(logits.float(), words, reduction="sum") / max(1, len(words))


def masked_loss(
    model: MaskedLanguageModel,
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"] | None = None,
) -> Float[Tensor, ""]:
    """−mean log p(word | text with words hidden) over the words that were drawn, in nats; 0 where none was.

    Only their positions go through the head, which is the larger part of a small model's work.
    """
    asked = masked.targets != IGNORED
    return word_loss(model.head(model.bert(masked.ids, lengths, segments)[asked]), masked.targets[asked])


# ---- does the second segment follow the first? -------------------------------------------------------------------


def joined(first: Sequence[int], second: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """`[CLS]` first `[SEP]` second `[SEP]` and the segment, 0 or 1, of each token; without a second, one segment."""
    ids, segments = [CLS, *first, SEP], [0] * (len(first) + 2)
    if second:
        ids, segments = [*ids, *second, SEP], [*segments, *[1] * (len(second) + 1)]
    return ids, segments


class Follows(NamedTuple):
    """Two sentences; `label` 0: the second follows the first in their document, 1: it comes from another document."""

    first: Sequence[int]
    second: Sequence[int]
    label: int


def sentence_pairs(documents: Sequence[Sequence[Sequence[int]]], *, seed: int) -> list[Follows]:
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
            pairs.append(Follows(first, dice.choice(other) if label else second, label))
    return pairs


def pretraining_loss(
    model: PretrainedBert,
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"],
    labels: Int[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """`masked_loss` + −mean log p(label | both sentences): both tasks after one reading (section A.2)."""
    asked = masked.targets != IGNORED
    x = model.bert(masked.ids, lengths, segments)
    return word_loss(model.head(x[asked]), masked.targets[asked]) + F.cross_entropy(model.follows(x).float(), labels)
