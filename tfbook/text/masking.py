"""BERT's two pretraining tasks: masked language modeling and next-sentence prediction.

Shapes: batch, time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import index
from typing import NamedTuple, SupportsIndex

import torch
from jaxtyping import Float, Int
from torch import Tensor

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first ids of every vocabulary
CLS, SEP, MASK = range(2, len(BERT_SPECIALS))  # as in every vocabulary, `PAD` is 0
IGNORE_INDEX = -100  # the target at a position that the loss leaves out

# ---- masked language modeling ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Selects tokens with probability `rate`; of these, the share `mask` becomes `[MASK]`, `random` another token.

    The rest stay as they are. The defaults are BERT's 15% and 80/10/10 (Devlin et al., 2019, section 3.1). Raises
    ValueError for a share outside 0 to 1.
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
    """Texts with masked tokens and, as targets, the original tokens; `IGNORE_INDEX` where none was selected."""

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
    """Selects each token with probability `rate`, and replaces the selected ones as `masking` says.

    `weights` multiplies the rate of each token of the vocabulary. Special tokens (the first ids) are neither selected
    nor used as replacements. Calling it again for each batch is RoBERTa's dynamic masking (Liu et al., 2019, section
    4.1); for static masking, keep what it returns. Raises ValueError for a vocabulary of special tokens only.
    """
    if vocab <= len(BERT_SPECIALS):
        raise ValueError(f"vocab is {vocab}; expected more than the {len(BERT_SPECIALS)} special tokens")
    probability = masking.rate if weights is None else masking.rate * weights.to(ids.device)[ids]

    def uniform() -> Tensor:
        return torch.rand(ids.shape, generator=generator).to(ids.device)

    selected = (uniform() < probability) & (ids >= len(BERT_SPECIALS))
    u = uniform()
    random_ids = torch.randint(len(BERT_SPECIALS), vocab, ids.shape, generator=generator).to(ids.device)
    masked = ids.masked_fill(selected & (u < masking.mask), MASK)
    randomized = selected & (u >= masking.mask) & (u < masking.mask + masking.random)
    return Masked(torch.where(randomized, random_ids, masked), ids.masked_fill(~selected, IGNORE_INDEX))


# ---- next-sentence prediction ------------------------------------------------------------------------------------


def join_segments(first: Sequence[int], second: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """The ids `[CLS]` first `[SEP]` second `[SEP]` and the segment, 0 or 1, of each; one segment without a second."""
    ids, segments = [CLS, *first, SEP], [0] * (len(first) + 2)
    if second:
        ids, segments = [*ids, *second, SEP], [*segments, *[1] * (len(second) + 1)]
    return ids, segments


class NextSentence(NamedTuple):
    """Two sentences; `label` is 0 when the second follows the first, 1 when it comes from another document."""

    first: Sequence[int]
    second: Sequence[int]
    label: int


def next_sentence_pairs(documents: Sequence[Sequence[Sequence[int]]], *, seed: SupportsIndex) -> list[NextSentence]:
    """Pairs each sentence except a document's last with the next one or, half of the time, with a random one.

    The random sentence comes from another document. Raises ValueError unless two documents have sentences.
    """
    documents = [document for document in documents if document]
    if len(documents) < 2:
        found = f"documents holds {len(documents)} with sentences"
        raise ValueError(f"{found}; expected two or more, so that a sentence can come from another one")
    rng, pairs = random.Random(index(seed)), []
    for number, document in enumerate(documents):
        for first, second in pairwise(document):
            other = documents[(number + rng.randrange(1, len(documents))) % len(documents)]
            label = rng.randrange(2)
            pairs.append(NextSentence(first, rng.choice(other) if label else second, label))
    return pairs
