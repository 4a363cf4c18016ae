"""Study of lesson 00: the attention weights of padding."""

from __future__ import annotations

import torch
from torch import Tensor

from tfbook import runtime
from tfbook.lessons.start_here.claims import CLAIMS as CLAIMS
from tfbook.models.seq2seq import BahdanauDecoder, RecurrentEncoder, Seq2SeqConfig, Translator


def weights_with_padding() -> Tensor:
    """Attention weights (source,) of an untrained translator over two words and two padding tokens."""
    with runtime.fork_rng():
        torch.manual_seed(0)
        config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8)
        translator = Translator(RecurrentEncoder(config), BahdanauDecoder(config)).eval()
    padded, length, target = torch.tensor([[4, 5, 0, 0]]), torch.tensor([2]), torch.tensor([[1]])
    return translator(padded, length, target).weights.squeeze()
