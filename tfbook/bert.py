"""BERT and its children: blocks that read both ways, trained on hidden words, then given a head for a task.

Shapes: batch, time, d_model, vocab, label. A text begins with `[CLS]`, whose vector stands for the whole; `[SEP]` ends
each of its one or two segments.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.masks import Lengths, padding_mask
from tfbook.seq2seq import check_ids
from tfbook.transformer import LayerNorm, Sizes, Stack

IGNORED = -100  # the target of a position that no loss counts
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))

BERT = Sizes(position="learned", longest=512, pre_norm=False, activation=F.gelu, epsilon=1e-12, dropout=0.1)
BASE = replace(BERT, d_model=768, heads=12, d_ff=3072, layers=12)  # 110 million parameters with 30,522 words
LARGE = replace(BERT, d_model=1024, heads=16, d_ff=4096, layers=24)  # 340 million


# ---- the body ----------------------------------------------------------------------------------------------------


class Bert(nn.Module):
    """Words, segments and positions added and normalised, then blocks that see all (Devlin et al., 2019, section 3)."""

    def __init__(self, vocab: int, sizes: Sizes, *, segments: int = 2):
        super().__init__()
        self.sizes = sizes
        self.words = nn.Embedding(vocab, sizes.d_model)
        self.segments = nn.Embedding(segments, sizes.d_model)
        self.stack = Stack(sizes, enter=LayerNorm(sizes.d_model, epsilon=sizes.epsilon))
        self.apply(small_weights)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """A vector for each token that has read all others; all are of segment 0 unless `segments` says otherwise.

        Raises ValueError for ids or segments out of range, and for texts longer than the positions that it has.
        """
        segments = torch.zeros_like(ids) if segments is None else segments
        check_ids("ids", ids, self.words.num_embeddings)
        check_ids("segments", segments, self.segments.num_embeddings)
        return self.stack(self.words(ids) + self.segments(segments), Lengths(lengths))


def small_weights(module: nn.Module) -> None:
    """BERT's and GPT-2's beginning: matrices from a normal distribution of width 0.02, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


# ---- heads: what a task adds -------------------------------------------------------------------------------------


class WordHead(nn.Module):
    """Logits of the word at a position: a layer, a norm, and the table of words again as the output's matrix."""

    def __init__(self, bert: Bert):
        super().__init__()
        vocab, width = bert.words.weight.shape
        self.layer = nn.Linear(bert.sizes.d_model, width)
        self.norm = LayerNorm(width, epsilon=bert.sizes.epsilon)
        self.vocabulary = nn.Linear(width, vocab)
        self.apply(small_weights)
        self.vocabulary.weight = bert.words.weight

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows vocab"]:
        """From the vector at a position to a score for each word."""
        return self.vocabulary(self.norm(F.gelu(self.layer(x))))


class TextHead(nn.Module):
    """Logits of a label for a text: from tanh(W h_[CLS]), with dropout (Devlin et al., 2019, section 4.1)."""

    def __init__(self, sizes: Sizes, labels: int):
        super().__init__()
        self.pool = nn.Linear(sizes.d_model, sizes.d_model)
        self.dropout = nn.Dropout(sizes.dropout)
        self.label = nn.Linear(sizes.d_model, labels)
        self.apply(small_weights)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch label"]:
        """From the vector of `[CLS]` alone."""
        return self.label(self.dropout(torch.tanh(self.pool(x[:, 0]))))


class MaskedLanguageModel(nn.Module):
    """What was the word at each position? (Devlin et al., 2019, section 3.1, task 1)."""

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert
        self.head = WordHead(bert)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits at every position; the loss counts the hidden ones."""
        return self.head(self.bert(ids, lengths, segments))


class Classifier(nn.Module):
    """Which label does the text have? Fine-tuning trains all of it (Devlin et al., 2019, section 3.2)."""

    def __init__(self, bert: Bert, labels: int):
        super().__init__()
        self.bert = bert
        self.head = TextHead(bert.sizes, labels)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch label"]:
        """One row of logits a text."""
        return self.head(self.bert(ids, lengths, segments))


class Tagger(nn.Module):
    """Which label does each token have? Two labels, start and end, find a span (Devlin et al., 2019, section 4.2)."""

    def __init__(self, bert: Bert, labels: int):
        super().__init__()
        self.bert = bert
        self.head = nn.Sequential(nn.Dropout(bert.sizes.dropout), nn.Linear(bert.sizes.d_model, labels))
        self.head.apply(small_weights)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time label"]:
        """One row of logits a token."""
        return self.head(self.bert(ids, lengths, segments))


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
    ids: Int[Tensor, "batch time"], vocab: int, masking: Masking, *, generator: torch.Generator | None = None
) -> Masked:
    """Draws each word with probability `rate`, and for each drawn one what stands in its place.

    Special tokens (the first ids) are never drawn nor put in another's place. A new draw each time is RoBERTa's dynamic
    masking (Liu et al., 2019, section 4.1); to mask once for all, keep what this returns.
    """

    def dice() -> Tensor:
        return torch.rand(ids.shape, generator=generator)

    drawn = ((dice() < masking.rate).to(ids.device)) & (ids >= len(SPECIALS))
    kind = dice().to(ids.device)
    others = torch.randint(len(SPECIALS), vocab, ids.shape, generator=generator).to(ids.device)
    hidden = torch.where(drawn & (kind < masking.mask), MASK, ids)
    swapped = drawn & (kind >= masking.mask) & (kind < masking.mask + masking.random)
    return Masked(torch.where(swapped, others, hidden), ids.masked_fill(~drawn, IGNORED))


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
    logits = model.head(model.bert(masked.ids, lengths, segments)[asked])
    return F.cross_entropy(logits.float(), masked.targets[asked], reduction="sum") / max(1, int(asked.sum()))


# ---- does the second segment follow the first? -------------------------------------------------------------------


class PretrainedBert(MaskedLanguageModel):
    """Both tasks of BERT: which words are hidden, and does the second segment follow? (section 3.1, tasks 1 and 2)."""

    def __init__(self, bert: Bert):
        super().__init__(bert)
        self.follows = TextHead(replace(bert.sizes, dropout=0.0), 2)


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


# ---- children of BERT --------------------------------------------------------------------------------------------


class FactorisedWords(nn.Embedding):
    """A narrow table and a matrix that widens: vocab · d_embed + d_embed · d_model numbers (Lan et al., 2020)."""

    def __init__(self, vocab: int, d_embed: int, d_model: int):
        super().__init__(vocab, d_embed)
        self.widen = nn.Linear(d_embed, d_model)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """As wide as the blocks."""
        return self.widen(super().forward(ids))


class Albert(Bert):
    """BERT with factorised words and one block that is used `layers` times (Lan et al., 2020, section 3.1)."""

    def __init__(self, vocab: int, sizes: Sizes, *, d_embed: int, segments: int = 2):
        super().__init__(vocab, sizes, segments=segments)
        self.words = FactorisedWords(vocab, d_embed, sizes.d_model).apply(small_weights)
        self.stack.blocks = nn.ModuleList([self.stack.blocks[0]] * sizes.layers)


class Electra(nn.Module):
    """A small generator fills hidden words in; the discriminator says of every token if it was replaced.

    (Clark et al., 2020, section 3.) Both share the table of words, so they are equally wide.
    """

    def __init__(self, generator: MaskedLanguageModel, discriminator: Bert):
        super().__init__()
        self.generator = generator
        self.discriminator = Tagger(discriminator, 1)
        discriminator.words.weight = generator.bert.words.weight


def electra_loss(
    model: Electra,
    ids: Int[Tensor, "batch time"],
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    *,
    weight: float = 50.0,
) -> Float[Tensor, ""]:
    """Masked loss of the generator + `weight` · binary cross-entropy over all tokens (Clark et al., 2020, eq. 1).

    What the generator draws reaches the discriminator as ids, through which no gradient flows.
    """
    asked = masked.targets != IGNORED
    logits = model.generator.head(model.generator.bert(masked.ids, lengths)[asked]).float()
    filled = ids.clone()
    filled[asked] = torch.distributions.Categorical(logits=logits.detach()).sample()
    said = model.discriminator(filled, lengths)[..., 0].float()
    there = padding_mask(lengths, ids.shape[1])
    replaced = F.binary_cross_entropy_with_logits(said[there], (filled != ids)[there].float())
    return F.cross_entropy(logits, ids[asked]) + weight * replaced


def distillation_loss(
    student: Float[Tensor, "*rows label"], teacher: Float[Tensor, "*rows label"], *, temperature: float = 2.0
) -> Float[Tensor, ""]:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)), mean over rows (Hinton et al., 2015, section 2).

    T² keeps the gradient's size as T grows. Raises ValueError unless `temperature` > 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; expected more than 0")
    soft, own = (
        torch.log_softmax(logits.float().flatten(0, -2) / temperature, dim=-1) for logits in (teacher, student)
    )
    return temperature**2 * (soft.exp() * (soft - own)).sum(dim=-1).mean()


def student_of(teacher: Bert, layers: int) -> Bert:
    """A copy with `layers` evenly spaced blocks of the teacher, as DistilBERT begins (Sanh et al., 2019, section 3).

    Raises ValueError when the teacher has fewer.
    """
    if not 1 <= layers <= teacher.sizes.layers:
        raise ValueError(f"layers is {layers}; expected 1 to {teacher.sizes.layers}, the teacher's")
    student = copy.deepcopy(teacher)
    student.sizes = replace(teacher.sizes, layers=layers)
    student.stack.blocks = student.stack.blocks[:: teacher.sizes.layers // layers][:layers]
    return student
