"""The encoder–decoder Transformer. Shapes: batch, time (source, target), d_model, vocab."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.attention.masks import Causal, Lengths
from tfbook.checks import check_ids, check_lengths, check_rows
from tfbook.models.blocks import Config, Stack, StackCache
from tfbook.models.language_model import ScaledEmbedding
from tfbook.models.outputs import Decoded


class Memory(NamedTuple):
    """The encoder's output for the decoder: a vector for each source word, and the number of words."""

    states: Float[Tensor, "batch source d_model"]
    lengths: Int[Tensor, " batch"]

    def select(self, rows: Int[Tensor, " kept"]) -> Memory:
        """The memory of the sentences `rows`, in that order."""
        return Memory(self.states[rows], self.lengths[rows])


class Encoder(nn.Module):
    """Every source word attends to every other (Vaswani et al., 2017, section 3.1)."""

    def __init__(self, vocab: int, config: Config):
        super().__init__()
        self.embed = ScaledEmbedding(vocab, config.d_model)
        self.stack = Stack(config)

    def forward(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Memory:
        """Reads each sentence up to its length.

        Raises ValueError unless there is one length for each, from 0 to the width of `source`, and for ids outside the
        vocabulary.
        """
        check_lengths(lengths, len(source), "sentences")
        check_ids("ids", source, self.embed.num_embeddings)
        return Memory(self.stack(self.embed(source), Lengths(lengths)), lengths)


class Decoder(nn.Module):
    """Every target word attends to those before it and to the whole source (Vaswani et al., 2017, section 3.1).

    If `tied`, the output matrix is the embedding (Press & Wolf, 2017).
    """

    def __init__(self, vocab: int, config: Config, *, tied: bool = True):
        super().__init__()
        self.embed = ScaledEmbedding(vocab, config.d_model)
        self.stack = Stack(config, cross=True)
        self.unembed = nn.Linear(config.d_model, vocab, bias=False)
        if tied:
            self.unembed.weight = self.embed.weight

    def start(self, memory: Memory) -> StackCache:
        """An empty cache, for decoding word by word."""
        return self.stack.new_cache()

    def forward(self, target: Int[Tensor, "batch target"], memory: Memory, state: StackCache | None = None) -> Decoded:
        """Logits for the word after each of `target`; with a state, `target` continues the text that it has read.

        Raises ValueError unless there is one row for each source sentence, and for ids outside the vocabulary.
        """
        check_rows(target, len(memory.lengths))
        check_ids("ids", target, self.embed.num_embeddings)
        seen = Lengths(memory.lengths)
        x = self.stack(self.embed(target), Causal(), memory=memory.states, memory_mask=seen, cache=state)
        return Decoded(self.unembed(x), None, state)


class Transformer(nn.Module):
    """An encoder and a decoder: p(target | source), all target words in parallel in training."""

    def __init__(self, encoder: Encoder, decoder: Decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], target: Int[Tensor, "batch target"]
    ) -> Decoded:
        """Teacher forcing: each position is given the true previous words."""
        return self.decoder(target, self.encoder(source, lengths))
