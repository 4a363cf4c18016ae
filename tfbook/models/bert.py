"""BERT: blocks that read both ways, and the head that each task adds.

Shapes: batch, time, d_model, vocab, label.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.masks import Lengths
from tfbook.checks import check_ids
from tfbook.models.blocks import Config, Stack
from tfbook.models.norms import LayerNorm

BERT = Config(position="learned", longest=512, pre_norm=False, activation=F.gelu, epsilon=1e-12, dropout=0.1)
BERT_BASE = replace(BERT, d_model=768, heads=12, d_ff=3072, layers=12)  # 110 million parameters with 30,522 words
BERT_LARGE = replace(BERT, d_model=1024, heads=16, d_ff=4096, layers=24)  # 340 million


# ---- the body ----------------------------------------------------------------------------------------------------


class Bert(nn.Module):
    """Words, segments and positions added and normalised, then blocks that see all (Devlin et al., 2019, section 3)."""

    def __init__(self, vocab: int, sizes: Config, *, segments: int = 2):
        super().__init__()
        self.sizes = sizes
        self.words = nn.Embedding(vocab, sizes.d_model)
        self.segments = nn.Embedding(segments, sizes.d_model)
        self.stack = Stack(sizes, enter=LayerNorm(sizes.d_model, epsilon=sizes.epsilon))
        self.apply(init_weights)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """A vector for each token that has read all others; all are of segment 0 unless `segments` says otherwise.

        Raises ValueError for ids or segments out of range, for texts longer than the positions that it has, and unless
        there is one length for each text.
        """
        segments = torch.zeros_like(ids) if segments is None else segments
        check_ids("ids", ids, self.words.num_embeddings)
        if len(lengths) != len(ids):
            raise ValueError(f"lengths holds {len(lengths)} numbers; expected one for each of {len(ids)} texts")
        check_ids("segments", segments, self.segments.num_embeddings)
        return self.stack(self.words(ids) + self.segments(segments), Lengths(lengths))


def init_weights(module: nn.Module) -> None:
    """BERT's and GPT-2's beginning: matrices from a normal distribution of width 0.02, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


# ---- heads: what a task adds -------------------------------------------------------------------------------------


class MaskedTokenHead(nn.Module):
    """Logits of the word at a position: a layer, a norm, and the table of words again as the output's matrix."""

    def __init__(self, bert: Bert):
        super().__init__()
        vocab, width = bert.words.weight.shape
        self.layer = nn.Linear(bert.sizes.d_model, width)
        self.norm = LayerNorm(width, epsilon=bert.sizes.epsilon)
        self.vocabulary = nn.Linear(width, vocab)
        self.apply(init_weights)
        self.vocabulary.weight = bert.words.weight

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows vocab"]:
        """From the vector at a position to a score for each word."""
        return self.vocabulary(self.norm(F.gelu(self.layer(x))))


class PooledHead(nn.Module):
    """Logits of a label for a text: from tanh(W h_[CLS]), with dropout (Devlin et al., 2019, section 4.1)."""

    def __init__(self, sizes: Config, labels: int):
        super().__init__()
        self.pool = nn.Linear(sizes.d_model, sizes.d_model)
        self.dropout = nn.Dropout(sizes.dropout)
        self.label = nn.Linear(sizes.d_model, labels)
        self.apply(init_weights)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch label"]:
        """From the vector of `[CLS]` alone."""
        return self.label(self.dropout(torch.tanh(self.pool(x[:, 0]))))


class MaskedLanguageModel(nn.Module):
    """What was the word at each position? (Devlin et al., 2019, section 3.1, task 1)."""

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert
        self.head = MaskedTokenHead(bert)

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
        self.head = PooledHead(bert.sizes, labels)

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
        self.head.apply(init_weights)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time label"]:
        """One row of logits a token."""
        return self.head(self.bert(ids, lengths, segments))


class BertForPretraining(MaskedLanguageModel):
    """Both tasks of BERT: which words are hidden, and does the second segment follow? (section 3.1, tasks 1 and 2)."""

    def __init__(self, bert: Bert):
        super().__init__(bert)
        self.next_sentence = PooledHead(replace(bert.sizes, dropout=0.0), 2)
