"""The GPT of the lesson, grown in stages: the plain layers of the page, and the runs that put a number on each stage.

Shapes: batch, n (words), heads, d_head, d_model, vocab.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime
from tfbook.course.batches import SortedBatches
from tfbook.course.experiments import experiment
from tfbook.data.stories import told
from tfbook.lessons.gpt_pretraining.first_exercises import attend, rotated as rotated
from tfbook.lessons.gpt_pretraining.stories import judged, story_rows
from tfbook.pretrain.storyteller import Storyteller, tell
from tfbook.text.vocabulary import PAD
from tfbook.training.optimizers import muon

WIDTH, HEADS, BATCH, WARMUP = 128, 4, 16, 20

# ---- the layers of the page --------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention of some heads, with rotary positions."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.heads = heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch heads n d_head"]:
        """The heads' parts of each vector."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """The mixture of what all heads found."""
        return attend.reference(self, x)


class FeedForward(nn.Module):
    """A network that works on each word alone."""

    def __init__(self, d_model: int):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """Up, a nonlinearity, and down."""
        return self.down(F.gelu(self.up(x)))


class Residual(nn.Module):
    """x + branch(norm(x))."""

    def __init__(self, branch: nn.Module, d_model: int):
        super().__init__()
        self.branch, self.norm = branch, nn.LayerNorm(d_model)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """The stream, with what the branch adds to it."""
        return x + self.branch(self.norm(x))


class GPT(nn.Module):
    """Layers between an embedding and the same embedding transposed."""

    def __init__(self, vocab: int, d_model: int, *layers: nn.Module):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList(layers)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n vocab"]:
        """Logits of the next word at each position."""
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return x @ self.embed.weight.T


# ---- the stages --------------------------------------------------------------------------------------------------


def block(d: int, heads: int) -> nn.Sequential:
    """Attention and a feed-forward network, each beside the residual stream."""
    return nn.Sequential(Residual(Attention(d, heads), d), Residual(FeedForward(d), d))


def _bare(d: int, heads: int) -> nn.Sequential:
    return nn.Sequential(Attention(d, heads), FeedForward(d))


STAGES: dict[str, Callable[[int], Sequence[nn.Module]]] = {
    "one word": lambda d: [nn.Linear(d, d)],
    "one head": lambda d: [Attention(d, 1)],
    "four heads": lambda d: [Attention(d, HEADS)],
    "feed-forward": lambda d: [Attention(d, HEADS), FeedForward(d)],
    "residual and norm": lambda d: [block(d, HEADS), nn.LayerNorm(d)],
    "two blocks": lambda d: [block(d, HEADS), block(d, HEADS), nn.LayerNorm(d)],
    "two blocks, neither residual nor norm": lambda d: [_bare(d, HEADS), _bare(d, HEADS)],
    "three blocks": lambda d: [*(block(d, HEADS) for _ in range(3)), nn.LayerNorm(d)],
}


def stage(name: str, vocab: int, d_model: int = WIDTH) -> GPT:
    """The untrained model of a stage."""
    return GPT(vocab, d_model, *STAGES[name](d_model))


def story_loss(model: nn.Module, ids: Int[Tensor, "batch time"]) -> Tensor:
    """The mean loss of all words but the first of each story."""
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)


def fit(model: GPT, optimizer: torch.optim.Optimizer, lr: float, batches: Callable[[int], Tensor], steps: int) -> None:
    """The loop of the page."""
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / steps)) / 2
        loss = story_loss(model, batches(step))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
