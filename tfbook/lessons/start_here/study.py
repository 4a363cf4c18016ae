"""The weights of padding, which lesson 00 looks at."""

from __future__ import annotations

import torch
from torch import Tensor

from tfbook import runtime
from tfbook.lessons.start_here.claims import CLAIMS as CLAIMS
from tfbook.models.seq2seq import BahdanauDecoder, RecurrentEncoder, Seq2SeqConfig, Translator


def weights_with_padding() -> Tensor:
    """The attention of an untrained translator (source) over two words and two padding tokens."""
    with runtime.fork_rng():
        torch.manual_seed(0)
        config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8)
        translator = Translator(RecurrentEncoder(config), BahdanauDecoder(config)).eval()
    padded, length, target = torch.tensor([[4, 5, 0, 0]]), torch.tensor([2]), torch.tensor([[1]])
    return translator(padded, length, target).weights.squeeze()
