"""Inside a Transformer: what norms and residual connections are for, what heads attend to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import median

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention.recording import record
from tfbook.course.experiments.transformer import LESSON, xavier
from tfbook.course.experiments.translators import Task, random_batch, random_translator, training_seconds
from tfbook.course.metrics import alignment_error_rate, hard_alignment
from tfbook.models.blocks import Config, PreNorm
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.seq2seq import BahdanauDecoder
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text.pairs import Pair, collate

# ---- what norms and residual connections are for --------------------------------------------------------------


class Bare(nn.Module):
    """A branch of a block without its residual connection: what comes in is replaced by what the branch computes."""

    def __init__(self, residual: PreNorm):
        super().__init__()
        self.norm, self.branch = residual.norm, residual.branch

    def forward(self, x: Float[Tensor, "batch time d_model"], **context: object) -> Float[Tensor, "batch time d_model"]:
        """branch(norm(x))."""
        return self.branch(self.norm(x), **context)


def ablated(symbols: int, config: Config, *, residuals: bool = True, norms: bool = True) -> BidirectionalModel:
    """A stack of blocks over `symbols` with the weights of `xavier`, without residual connections, norms, or either."""
    model = BidirectionalModel(symbols, config)
    xavier(model)
    for block in model.stack.blocks:
        for name in ("mixer", "feed_forward"):
            part = getattr(block, name)
            part.norm = part.norm if norms else nn.Identity()
            setattr(block, name, part if residuals else Bare(part))
    model.stack.norm = model.stack.norm if norms else nn.Identity()  # type: ignore[assignment]
    return model.to(runtime.device())


def reversal(step: int, *, symbols: int = 10, length: int = 10, rows: int = 64) -> Int[Tensor, "row length"]:
    """Random rows of symbols, the same whenever the step is asked for; a model has to reverse them."""
    return torch.randint(symbols, (rows, length), generator=torch.Generator().manual_seed(step))


def reversal_loss(model: nn.Module, rows: Int[Tensor, "row length"]) -> Float[Tensor, ""]:
    """Cross-entropy in nats per symbol."""
    return F.cross_entropy(model(rows).flatten(0, 1).float(), rows.flip(1).flatten())


def gradient_by_layer(config: Config, *, symbols: int = 100, rows: int = 32, length: int = 16) -> list[float]:
    """Norm of the gradient of each layer's second feed-forward matrix, in an untrained causal language model.

    As in Xiong et al. (2020, Figure 3), with their initial weights.
    """
    model = LanguageModel(symbols, config).to(runtime.device())
    xavier(model)
    ids = torch.randint(symbols, (rows, length + 1), device=runtime.device())
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    return [float(block.feed_forward.branch.down.weight.grad.norm()) for block in model.stack.blocks]


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


# ---- time --------------------------------------------------------------------------------------------------


def step_seconds(
    lengths: Sequence[int], *, rows: int = 16, vocabulary: int = 1000, rounds: int = 3
) -> dict[str, list[float]]:
    """Median seconds of a training step on sentences of each length: a recurrent translator and a Transformer."""
    found: dict[str, list[float]] = {}
    for words in lengths:
        recurrent = random_translator(BahdanauDecoder, 192, vocabulary)
        parts = Encoder(vocabulary, LESSON.config), Decoder(vocabulary, LESSON.config)
        models = {"recurrent": recurrent, "Transformer": Transformer(*parts).to(runtime.device())}
        batch = random_batch(rows, words, vocabulary).to(runtime.device())
        for name, seconds in training_seconds(models, batch, rounds).items():
            found.setdefault(name, []).append(median(seconds))
    return found
