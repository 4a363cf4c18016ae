"""Lesson 05's plain Transformer beside the package's, and where the heads of its cross-attention look."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook import runtime
from tfbook.attention import POSITIONS
from tfbook.attention.recording import record
from tfbook.course.experiments.translators import Task
from tfbook.course.metrics import alignment_error_rate, hard_alignment
from tfbook.models.blocks import Config
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text.pairs import Pair, collate

# Beginnings of the names of weights: the lesson's encoder and decoder hold what a stack holds in the package.
RENAME = {f"{side}.{part}": f"{side}.stack.{part}" for side in ("encoder", "decoder") for part in ("blocks", "norm")}


def package_model(
    source_words: int, target_words: int, d_model: int, heads: int, d_ff: int, layers: int
) -> Transformer:
    """The package's Transformer with the parts of lesson 05: sinusoids, pre-norm, tied embeddings."""
    config = Config(d_model=d_model, heads=heads, d_ff=d_ff, layers=layers, position=POSITIONS["sinusoidal"])
    return Transformer(Encoder(source_words, config), Decoder(target_words, config))


def crossing(pairs: Sequence[Pair], *, words: int = 7) -> Pair:
    """The first pair of about `words` words, source and target, in which two neighbors change places.

    Raises ValueError when there is none.
    """
    for pair in pairs:
        if abs(len(pair.source) - words) < 2 and any((j + 1, t - 1) in pair.sure for j, t in pair.sure):
            return pair
    raise ValueError(f"no pair of about {words} words has neighbors that change places; expected one or more")


# ---- who looks where -------------------------------------------------------------------------------------------


@torch.inference_mode()
def cross_maps(
    model: Transformer, pairs: Sequence[Pair], task: Task
) -> list[Float[Tensor, "layer head target source"]]:
    """Weights of every cross-attention for each word of the true translations; `<eos>` is left out."""
    model.eval()
    batch = collate(pairs, task.source_vocab, task.target_vocab).to(runtime.device())
    with record(model) as maps:
        model(batch.source, batch.source_lengths, batch.target_in)
    weights = torch.stack([layer for name, layer in maps.items() if ".cross." in name], dim=1).float().cpu()
    return [weights[i, ..., : len(pair.target), : len(pair.source)] for i, pair in enumerate(pairs)]


def head_errors(model: Transformer, pairs: Sequence[Pair], task: Task) -> Float[Tensor, "layer head"]:
    """Alignment error rate of the largest weights of each head of the cross-attentions, as in `alignment_error`."""
    maps = cross_maps(model, pairs, task)
    gold = [set(pair.sure) for pair in pairs], [set(pair.possible) for pair in pairs]
    layers, heads = maps[0].shape[:2]
    errors = [
        alignment_error_rate([hard_alignment(weights[layer, head]) for weights in maps], *gold)
        for layer, head in product(range(layers), range(heads))
    ]
    return torch.tensor(errors).view(layers, heads)


class Head(NamedTuple):
    """The head of the cross-attentions that aligns best, and its weights for one pair."""

    place: tuple[int, int]  # layer and head, from 0
    errors: list[float]  # alignment error rates of all heads
    pair: Pair
    weights: Float[Tensor, "target source"]

    def misses(self) -> list[str]:
        """The words whose largest weight lies on a word to which the gold alignment has no sure link."""
        looked_at = self.weights.argmax(dim=-1).tolist()
        return [word for t, word in enumerate(self.pair.target) if (looked_at[t], t) not in self.pair.sure]


def best_head(model: Transformer, pairs: Sequence[Pair], task: Task) -> Head:
    """The head with the lowest alignment error rate on `pairs`, shown on one in which words change places."""
    errors, pair = head_errors(model, pairs, task), crossing(pairs)
    layer, head = divmod(int(errors.argmin()), errors.shape[1])
    return Head((layer, head), errors.flatten().tolist(), pair, cross_maps(model, [pair], task)[0][layer, head])
