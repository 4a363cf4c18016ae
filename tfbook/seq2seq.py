"""Sequence to sequence with recurrent networks: one encoder, and three decoders that differ in their context.

Shapes: batch, source and target (words, padded), d_embed, d_hidden, d_memory (two directions side by side), vocab.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tfbook.attention import masked_softmax
from tfbook.data.translation import PAD, Batch
from tfbook.masks import padding_mask
from tfbook.scoring import AdditiveScore
from tfbook.train import smoothed_cross_entropy


@dataclass(frozen=True, kw_only=True)
class Seq2SeqSizes:
    """Sizes of a translator; `source_vocab` and `target_vocab` count words, the rest are widths."""

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
        for name in ("source_vocab", "target_vocab", "d_embed", "d_hidden", "d_encoder"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; expected 0 ≤ dropout < 1")


class Memory(NamedTuple):
    """What the encoder leaves for the decoder."""

    states: Float[Tensor, "batch source d_memory"]  # one annotation h_j a word
    summary: Float[Tensor, "batch d_memory"]  # the whole sentence in one vector
    mask: Bool[Tensor, "batch source"]  # True where there is a word

    def select(self, rows: Int[Tensor, " kept"]) -> Memory:
        """The memory of the sentences `rows`, in that order."""
        return Memory(*(part[rows] for part in self))


class State(NamedTuple):
    """What a decoder carries from one word to the next."""

    hidden: Float[Tensor, "batch d_hidden"]
    keys: Float[Tensor, "batch source d_score"] | None  # the source as the score sees it, computed once

    def select(self, rows: Int[Tensor, " kept"]) -> State:
        """The state of the sentences `rows`, in that order."""
        return State(self.hidden[rows], None if self.keys is None else self.keys[rows])


class Decoded(NamedTuple):
    """What a decoder returns for the words it was given."""

    logits: Float[Tensor, "batch target vocab"]
    weights: Float[Tensor, "batch target source"] | None  # attention; None where the decoder has none of its own
    state: State


def check_ids(name: str, ids: Tensor, vocabulary: int) -> None:
    """Raises ValueError unless `ids` has one word or more in every row and each id is below `vocabulary`."""
    if ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
        expected = f"ids of shape (batch, {name}), one word or more a row"
        raise ValueError(f"{name} has shape {tuple(ids.shape)}, {ids.dtype}; expected {expected}")
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"{name} holds ids from {low} to {high}; expected 0 to {vocabulary - 1}, the model's vocabulary"
        )


class Encoder(nn.Module):
    """Bidirectional GRU: h_j = [→h_j; ←h_j] has read the sentence from both ends to word j (Bahdanau et al., 2015)."""

    def __init__(self, sizes: Seq2SeqSizes):
        super().__init__()
        self.embed = nn.Embedding(sizes.source_vocab, sizes.d_embed, padding_idx=PAD)
        self.dropout = nn.Dropout(sizes.dropout)
        self.gru = nn.GRU(sizes.d_embed, sizes.d_memory // 2, batch_first=True, bidirectional=True)

    def forward(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Memory:
        """Reads each sentence up to its length; padded positions get state 0.

        Raises ValueError when an id is outside the vocabulary or a length is not one of 1 to the width of `source`.
        """
        check_ids("source", source, self.embed.num_embeddings)
        if len(lengths) != len(source):
            raise ValueError(f"lengths holds {len(lengths)} numbers; expected one for each of {len(source)} sentences")
        mask = padding_mask(lengths, source.shape[1])
        if not mask.any(dim=1).all():
            raise ValueError("lengths holds a 0; every source sentence needs at least one word")
        words = self.dropout(self.embed(source))
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, final = self.gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return Memory(states, torch.cat([final[0], final[1]], dim=-1), mask)


class Decoder(nn.Module):
    """What all decoders share: word in, state and context, word out. A subclass says how to `unroll` over time."""

    def __init__(self, sizes: Seq2SeqSizes):
        super().__init__()
        self.embed = nn.Embedding(sizes.target_vocab, sizes.d_embed, padding_idx=PAD)
        self.dropout = nn.Dropout(sizes.dropout)
        self.begin = nn.Linear(sizes.d_memory, sizes.d_hidden)
        self.merge = nn.Linear(sizes.d_hidden + sizes.d_memory + sizes.d_embed, sizes.d_embed)
        self.vocabulary = nn.Linear(sizes.d_embed, sizes.target_vocab)

    def start(self, memory: Memory) -> State:
        """The state before the first word: s_0 = tanh(W summary)."""
        return State(torch.tanh(self.begin(memory.summary)), None)

    def unroll(
        self, words: Float[Tensor, "batch target d_embed"], memory: Memory, state: State
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden states and contexts of every step, and the attention weights if there are any."""
        raise NotImplementedError

    def forward(self, target: Int[Tensor, "batch target"], memory: Memory, state: State) -> Decoded:
        """Scores for the word after each word of `target`: all at once when training, one a call when decoding.

        Raises ValueError when `target` holds no words, an id outside the vocabulary or not one row for each source.
        """
        check_ids("target", target, self.embed.num_embeddings)
        if len(target) != len(memory.mask):
            raise ValueError(
                f"target has {len(target)} rows; expected {len(memory.mask)}, one for each source sentence"
            )
        words = self.dropout(self.embed(target))
        hidden, context, weights = self.unroll(words, memory, state)
        merged = torch.tanh(self.merge(torch.cat([hidden, context, words], dim=-1)))
        return Decoded(self.vocabulary(self.dropout(merged)), weights, State(hidden[:, -1], state.keys))


class FixedContextDecoder(Decoder):
    """s_t = GRU([y_{t−1}; c], s_{t−1}): the same c, the summary of the sentence, at every step (Cho et al., 2014)."""

    def __init__(self, sizes: Seq2SeqSizes):
        super().__init__(sizes)
        self.gru = nn.GRU(sizes.d_embed + sizes.d_memory, sizes.d_hidden, batch_first=True)

    def unroll(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor, None]:
        """One call of the fused kernel, since no step has to look anything up."""
        context = memory.summary[:, None].expand(-1, words.shape[1], -1)
        hidden, _ = self.gru(torch.cat([words, context], dim=-1), state.hidden[None].contiguous())
        return hidden, context, None


class BahdanauDecoder(Decoder):
    """s_t = GRU([y_{t−1}; c_t], s_{t−1}) with c_t = Σ_j α_tj h_j and α_t = softmax_j score(s_{t−1}, h_j).

    `score` is one of `tfbook.scoring.SCORES`; left out, it is the additive one (Bahdanau et al., 2015).
    """

    def __init__(self, sizes: Seq2SeqSizes, score: type[nn.Module] | None = None):
        super().__init__(sizes)
        self.score = (score or AdditiveScore)(sizes.d_hidden, sizes.d_memory, sizes.d_hidden)
        self.cell = nn.GRUCell(sizes.d_embed + sizes.d_memory, sizes.d_hidden)

    def start(self, memory: Memory) -> State:
        """As for every decoder, and the keys projected once for the whole sentence."""
        return super().start(memory)._replace(keys=self.score.project(memory.states))

    def unroll(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """A loop: the context of step t depends on the state of step t − 1."""
        hidden, steps = state.hidden, []
        for word in words.unbind(dim=1):
            weights = masked_softmax(self.score(hidden[:, None], state.keys), memory.mask[:, None])
            context = (weights @ memory.states)[:, 0]
            hidden = self.cell(torch.cat([word, context], dim=-1), hidden)
            steps.append((hidden, context, weights[:, 0]))
        return tuple(torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))


class LuongDecoder(Decoder):
    """s_t = GRU(y_{t−1}, s_{t−1}), then c_t from score(s_t, h_j): attention after recurrence (Luong et al., 2015).

    `score` is one of `tfbook.scoring.SCORES`; left out, it is the additive one.
    """

    def __init__(self, sizes: Seq2SeqSizes, score: type[nn.Module] | None = None):
        super().__init__(sizes)
        self.score = (score or AdditiveScore)(sizes.d_hidden, sizes.d_memory, sizes.d_hidden)
        self.gru = nn.GRU(sizes.d_embed, sizes.d_hidden, batch_first=True)

    def start(self, memory: Memory) -> State:
        """As for every decoder, and the keys projected once for the whole sentence."""
        return super().start(memory)._replace(keys=self.score.project(memory.states))

    def unroll(self, words: Tensor, memory: Memory, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """No loop: the states do not depend on the contexts, so all steps attend at once."""
        hidden, _ = self.gru(words, state.hidden[None].contiguous())
        weights = masked_softmax(self.score(hidden, state.keys), memory.mask[:, None])
        return hidden, weights @ memory.states, weights


class Translator(nn.Module):
    """An encoder and a decoder: p(target | source) one word at a time."""

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], target: Int[Tensor, "batch target"]
    ) -> Decoded:
        """Teacher forcing: each step is given the true word before it, whatever the model would have said."""
        memory = self.encoder(source, lengths)
        return self.decoder(target, memory, self.decoder.start(memory))


def translation_loss(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats a target word, padding left out; `smoothing` as in `smoothed_cross_entropy`."""
    logits = model(batch.source, batch.source_lengths, batch.target_in).logits
    return smoothed_cross_entropy(logits, batch.target_out, smoothing=smoothing, ignore=PAD)
