"""From a trained model to words: greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.data.translation import BOS, EOS, PAD, UNK, Pair, Vocabulary, Words, collate
from tfbook.seq2seq import Translator


class Decoding(NamedTuple):
    """Decoded words, `<pad>` after the end, and the attention weights with which each was chosen."""

    tokens: Int[Tensor, "batch target"]
    weights: Float[Tensor, "batch target source"] | None


@torch.inference_mode()
def greedy(
    model: Translator, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"], *, max_length: int = 64
) -> Decoding:
    """y_t = argmax p(y | y_1 … y_{t−1}, source): the most probable word each time, until `<eos>` or `max_length` words.

    Runs in eval mode and gives the model back in the mode it came. Raises ValueError when `max_length` < 1.
    """
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; expected 1 or more")
    training = model.training
    model.eval()
    try:
        memory = model.encoder(source, lengths)
        state, word = model.decoder.start(memory), torch.full_like(source[:, :1], BOS)
        finished, steps = torch.zeros_like(word, dtype=torch.bool), []
        while len(steps) < max_length and not finished.all():
            logits, weights, state = model.decoder(word, memory, state)
            logits[..., [PAD, BOS, UNK]] = -torch.inf  # the model reads them and never says them
            word = logits.argmax(dim=-1).masked_fill(finished, PAD)
            finished = finished | (word == EOS)
            steps.append((word, weights))
    finally:
        model.train(training)
    tokens, weights = zip(*steps, strict=True)
    return Decoding(torch.cat(tokens, dim=1), None if weights[0] is None else torch.cat(weights, dim=1))


class Translation(NamedTuple):
    """The words that the model said for one sentence, and where it looked for each (`<eos>` included on both axes)."""

    words: Words
    weights: Float[Tensor, "target source"] | None


def translate(
    model: Translator,
    pairs: Sequence[Pair],
    source_vocab: Vocabulary,
    target_vocab: Vocabulary,
    *,
    batch: int = 250,
    max_length: int = 64,
) -> list[Translation]:
    """Greedy translations of the sources of `pairs`, in their order.

    Raises ValueError when `pairs` is empty or `batch` < 1.
    """
    if not pairs or batch < 1:
        raise ValueError(f"pairs holds {len(pairs)} and batch is {batch}; expected at least 1 of each")
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))  # sentences of one length waste no padding
    found: dict[int, Translation] = {}
    device = next(model.parameters()).device
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        inputs = collate([pairs[i] for i in rows], source_vocab, target_vocab).to(device)
        tokens, weights = greedy(model, inputs.source, inputs.source_lengths, max_length=max_length)
        for place, i in enumerate(rows):
            words = target_vocab.decode(tokens[place])
            size = (min(len(words) + 1, tokens.shape[1]), int(inputs.source_lengths[place]))
            looked = None if weights is None else weights[place, : size[0], : size[1]].float().cpu()
            found[i] = Translation(words, looked)
    return [found[i] for i in range(len(pairs))]
