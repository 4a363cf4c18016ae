"""BERT: bidirectional blocks, and the head that each task adds.

Shapes: batch, time, d_model, vocab, label.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.masks import Lengths
from tfbook.checks import check_ids, check_lengths
from tfbook.models.blocks import Config, PostNorm, Stack, init_weights
from tfbook.models.feed_forward import FeedForward
from tfbook.models.norms import LayerNorm

BERT = Config(
    position="learned",
    max_length=512,
    feed_forward=partial(FeedForward, activation=F.gelu),
    norm=partial(LayerNorm, eps=1e-12),
    residual=PostNorm,
    dropout=0.1,
)
BERT_BASE = replace(BERT, d_model=768, heads=12, d_ff=3072, layers=12)  # 110 million parameters with 30,522 words
BERT_LARGE = replace(BERT, d_model=1024, heads=16, d_ff=4096, layers=24)  # 340 million


# ---- the body ----------------------------------------------------------------------------------------------------


class Bert(nn.Module):
    """Token, segment and position embeddings, summed and normalized, then unmasked blocks (Devlin et al., 2019)."""

    def __init__(self, vocab: int, config: Config, *, segments: int = 2):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(vocab, config.d_model)
        self.segments = nn.Embedding(segments, config.d_model)
        self.stack = Stack(config, embed_norm=config.make("norm", config.d_model))
        self.apply(init_weights)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """A contextual vector for each token; all tokens belong to segment 0 unless `segments` is given.

        Raises ValueError for ids or segments out of range, for texts longer than the learned positions, and unless
        there is one length for each text.
        """
        segments = torch.zeros_like(ids) if segments is None else segments
        check_ids("ids", ids, self.embed.num_embeddings)
        check_lengths(lengths, len(ids), "texts")
        check_ids("segments", segments, self.segments.num_embeddings)
        return self.stack(self.embed(ids) + self.segments(segments), Lengths(lengths))


# ---- heads: what a task adds -------------------------------------------------------------------------------------


class MaskedTokenHead(nn.Module):
    """Logits of the token at a position: a layer, a norm, and an output matrix that is tied to the embedding."""

    def __init__(self, bert: Bert):
        super().__init__()
        vocab, width = bert.embed.weight.shape
        self.layer = nn.Linear(bert.config.d_model, width)
        self.norm = bert.config.make("norm", width)
        self.unembed = nn.Linear(width, vocab)
        self.apply(init_weights)
        self.unembed.weight = bert.embed.weight

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows vocab"]:
        """From the vector at each position to a logit for each token."""
        return self.unembed(self.norm(F.gelu(self.layer(x))))


class PooledHead(nn.Module):
    """Logits of a label for a text: from tanh(W h_[CLS]), with dropout (Devlin et al., 2019, section 4.1)."""

    def __init__(self, config: Config, labels: int):
        super().__init__()
        self.pool = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.label = nn.Linear(config.d_model, labels)
        self.apply(init_weights)

    def forward(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch label"]:
        """From the vector of `[CLS]`, the first token."""
        return self.label(self.dropout(torch.tanh(self.pool(x[:, 0]))))


class MaskedLanguageModel(nn.Module):
    """Predicts the token at each position (Devlin et al., 2019, section 3.1, task 1)."""

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
        """Logits at every position; the loss uses those of the masked tokens."""
        return self.head(self.bert(ids, lengths, segments))


class Classifier(nn.Module):
    """Predicts a label for a text; fine-tuning trains all weights (Devlin et al., 2019, section 3.2)."""

    def __init__(self, bert: Bert, labels: int):
        super().__init__()
        self.bert = bert
        self.head = PooledHead(bert.config, labels)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch label"]:
        """One row of logits per text."""
        return self.head(self.bert(ids, lengths, segments))


class Tagger(nn.Module):
    """Predicts labels for each token; two logits, start and end, find a span (Devlin et al., 2019, section 4.2)."""

    def __init__(self, bert: Bert, labels: int):
        super().__init__()
        self.bert = bert
        self.head = nn.Sequential(nn.Dropout(bert.config.dropout), nn.Linear(bert.config.d_model, labels))
        self.head.apply(init_weights)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time label"]:
        """One row of logits per token."""
        return self.head(self.bert(ids, lengths, segments))


class BertForPretraining(MaskedLanguageModel):
    """BERT's two tasks: masked tokens and next-sentence prediction (Devlin et al., 2019, section 3.1)."""

    def __init__(self, bert: Bert):
        super().__init__(bert)
        self.next_sentence = PooledHead(replace(bert.config, dropout=0.0), 2)
