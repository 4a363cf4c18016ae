"""Sequence to sequence with recurrent networks: one encoder, and three decoders that differ in their context.

Shapes: batch, source and target (words, padded), d_embed, d_hidden, d_memory (two directions side by side), vocab.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tfbook.attention.implementations import masked_softmax
from tfbook.attention.masks import padding_mask
from tfbook.attention.scoring import AdditiveScore
from tfbook.checks import check_dropout, check_ids, check_lengths, check_positive, check_rows, may_look
from tfbook.models.config import Savable
from tfbook.models.outputs import Decoded
from tfbook.text.vocabulary import PAD


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(Savable):
    """Sizes of a translator: `source_vocab` and `target_vocab` count tokens, the rest are widths."""

    source_vocab: int
    target_vocab: int
    d_embed: int = 128
    d_hidden: int = 128
    d_encoder: int | None = None  # of each direction of the encoder; None: d_hidden
    dropout: float = 0.1

    @property
    def d_memory(self) -> int:
        """Width of an annotation [→h_j; ←h_j]: both directions of the encoder side by side."""
        return 2 * (self.d_hidden if self.d_encoder is None else self.d_encoder)

    def __post_init__(self) -> None:
        names = ("source_vocab", "target_vocab", "d_embed", "d_hidden", "d_encoder")
        check_positive(**{name: getattr(self, name) for name in names})
        check_dropout(self.dropout)


class Annotations(NamedTuple):
    """The encoder's output for the decoder."""

    states: Float[Tensor, "batch source d_memory"]  # one annotation h_j per word
    summary: Float[Tensor, "batch d_memory"]  # the whole sentence in one vector
    mask: Bool[Tensor, "batch source"]  # True for words, False for padding

    def select(self, rows: Int[Tensor, " kept"]) -> Annotations:
        """The memory of the sentences `rows`, in that order."""
        return Annotations(*(part[rows] for part in self))


class DecoderState(NamedTuple):
    """The state that a decoder carries from one word to the next."""

    hidden: Float[Tensor, "batch d_hidden"]
    keys: Float[Tensor, "batch source d_score"] | None  # projected by the score, once per sentence

    def select(self, rows: Int[Tensor, " kept"]) -> DecoderState:
        """The state of the sentences `rows`, in that order."""
        return DecoderState(self.hidden[rows], None if self.keys is None else self.keys[rows])


class RecurrentEncoder(nn.Module):
    """Bidirectional GRU: h_j = [→h_j; ←h_j] has read the sentence from both ends to word j (Bahdanau et al., 2015)."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.embed = nn.Embedding(config.source_vocab, config.d_embed, padding_idx=PAD)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(config.d_embed, config.d_memory // 2, batch_first=True, bidirectional=True)

    def forward(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Annotations:
        """Reads each sentence up to its length; padded positions get state 0.

        Raises ValueError when an id is outside the vocabulary or a length is not one of 1 to the width of `source`.
        """
        check_ids("source", source, self.embed.num_embeddings)
        check_lengths(lengths, len(source), "sentences")
        mask = padding_mask(lengths, source.shape[1])
        if may_look() and not mask.any(dim=1).all():
            raise ValueError("lengths holds a 0; every source sentence needs at least one word")
        words = self.dropout(self.embed(source))
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, final = self.gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return Annotations(states, torch.cat([final[0], final[1]], dim=-1), mask)


class RecurrentDecoder(nn.Module):
    """The base of the recurrent decoders; a subclass defines how to `unroll` over time."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.embed = nn.Embedding(config.target_vocab, config.d_embed, padding_idx=PAD)
        self.dropout = nn.Dropout(config.dropout)
        self.begin = nn.Linear(config.d_memory, config.d_hidden)
        self.merge = nn.Linear(config.d_hidden + config.d_memory + config.d_embed, config.d_embed)
        self.unembed = nn.Linear(config.d_embed, config.target_vocab)

    def start(self, memory: Annotations) -> DecoderState:
        """The state before the first word: s_0 = tanh(W summary)."""
        return DecoderState(torch.tanh(self.begin(memory.summary)), None)

    def unroll(
        self, words: Float[Tensor, "batch target d_embed"], memory: Annotations, state: DecoderState
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden states and contexts of every step, and the attention weights if there are any."""
        raise NotImplementedError

    def forward(self, target: Int[Tensor, "batch target"], memory: Annotations, state: DecoderState) -> Decoded:
        """Logits for the word after each word of `target`: all at once in training, one per call in decoding.

        Raises ValueError when `target` holds no words, an id outside the vocabulary or not one row for each source.
        """
        check_ids("target", target, self.embed.num_embeddings)
        check_rows(target, len(memory.mask))
        words = self.dropout(self.embed(target))
        hidden, context, weights = self.unroll(words, memory, state)
        merged = torch.tanh(self.merge(torch.cat([hidden, context, words], dim=-1)))
        return Decoded(self.unembed(self.dropout(merged)), weights, DecoderState(hidden[:, -1], state.keys))


class FixedContextDecoder(RecurrentDecoder):
    """s_t = GRU([y_{t−1}; c], s_{t−1}): the same c, the summary of the sentence, at every step (Cho et al., 2014)."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config)
        self.gru = nn.GRU(config.d_embed + config.d_memory, config.d_hidden, batch_first=True)

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, None]:
        """One call of PyTorch's GRU, since no step attends to anything."""
        context = memory.summary[:, None].expand(-1, words.shape[1], -1)
        hidden, _ = self.gru(torch.cat([words, context], dim=-1), state.hidden[None].contiguous())
        return hidden, context, None


class BahdanauDecoder(RecurrentDecoder):
    """Attends, then recurs: c_t = Σ_j α_tj h_j, s_t = GRU([y_{t−1}; c_t], s_{t−1}).

    α_t = softmax_j score(s_{t−1}, h_j) (Bahdanau et al., 2015). `score` is one of
    `tfbook.attention.scoring.SCORES`, by default the additive one.
    """

    def __init__(self, config: Seq2SeqConfig, score: type[nn.Module] | None = None):
        super().__init__(config)
        self.score: Any = (score or AdditiveScore)(config.d_hidden, config.d_memory, config.d_hidden)
        self.cell = nn.GRUCell(config.d_embed + config.d_memory, config.d_hidden)

    def start(self, memory: Annotations) -> DecoderState:
        """As for every decoder, and the keys projected once for the whole sentence."""
        return super().start(memory)._replace(keys=self.score.project(memory.states))

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """A loop: the context of step t depends on the state of step t − 1."""
        hidden, steps = state.hidden, []
        for word in words.unbind(dim=1):
            weights = masked_softmax(self.score(hidden[:, None], state.keys), memory.mask[:, None])
            context = (weights @ memory.states)[:, 0]
            hidden = self.cell(torch.cat([word, context], dim=-1), hidden)
            steps.append((hidden, context, weights[:, 0]))
        states, contexts, weights = (torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
        return states, contexts, weights


class LuongDecoder(RecurrentDecoder):
    """Recurs, then attends: s_t = GRU(y_{t−1}, s_{t−1}), then c_t from score(s_t, h_j).

    So did Luong et al. (2015). `score` is one of `tfbook.attention.scoring.SCORES`, by default
    the additive one.
    """

    def __init__(self, config: Seq2SeqConfig, score: type[nn.Module] | None = None):
        super().__init__(config)
        self.score: Any = (score or AdditiveScore)(config.d_hidden, config.d_memory, config.d_hidden)
        self.gru = nn.GRU(config.d_embed, config.d_hidden, batch_first=True)

    def start(self, memory: Annotations) -> DecoderState:
        """As for every decoder, and the keys projected once for the whole sentence."""
        return super().start(memory)._replace(keys=self.score.project(memory.states))

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """No loop: the states do not depend on the contexts, so all steps attend at once."""
        hidden, _ = self.gru(words, state.hidden[None].contiguous())
        weights = masked_softmax(self.score(hidden, state.keys), memory.mask[:, None])
        return hidden, weights @ memory.states, weights


class Translator(nn.Module):
    """An encoder and a decoder: p(target | source) one word at a time."""

    def __init__(self, encoder: RecurrentEncoder, decoder: RecurrentDecoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], target: Int[Tensor, "batch target"]
    ) -> Decoded:
        """Teacher forcing: each step is given the true previous word, not the model's own prediction."""
        memory = self.encoder(source, lengths)
        return self.decoder(target, memory, self.decoder.start(memory))
