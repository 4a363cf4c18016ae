"""A caption, word by word, with attention over the places of an image (Xu et al., 2015).

Lesson 01's translator with another encoder: where that one annotates words, a CNN annotates places.

Shapes: batch, channel, height and width of images; place = row · column of the feature map; target (words, padded);
d_features, d_embed, d_hidden; vocab.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import AdditiveScore
from tfbook.checks import check_dropout, check_ids, check_positive, check_rows
from tfbook.models.cnn import convolution
from tfbook.models.config import Savable
from tfbook.models.outputs import Decoded
from tfbook.models.seq2seq import Annotations
from tfbook.models.vit import LearnedGrid, check_images, grid_of
from tfbook.modes import evaluating
from tfbook.text.vocabulary import BOS, EOS, PAD


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig(Savable):
    """Sizes of a captioner. Raises ValueError for impossible ones.

    The stride of the CNN, 2 for each of `backbone`, has to divide the images' sides.
    """

    vocab: int
    height: int = 64
    width: int = 64
    channels: int = 3
    backbone: tuple[int, ...] = (32, 64, 96)  # channels of convolutions with stride 2; two more keep the resolution
    d_features: int = 96
    d_embed: int = 64
    d_hidden: int = 128
    dropout: float = 0.0

    def __post_init__(self) -> None:
        names = ("vocab", "channels", "d_features", "d_embed", "d_hidden")
        check_positive(**{name: getattr(self, name) for name in names})
        check_dropout(self.dropout)
        grid_of(self.height, self.width, 2 ** len(self.backbone))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of places."""
        return grid_of(self.height, self.width, 2 ** len(self.backbone))


class ImageEncoder(nn.Module):
    """A CNN whose features, with their positions added, are the annotations of an image, one for each place."""

    def __init__(self, config: CaptionerConfig):
        super().__init__()
        self.config, widths = config, (config.channels, *config.backbone)
        layers = [convolution(before, after, stride=2) for before, after in pairwise(widths)]
        last = (convolution(widths[-1], config.d_features), convolution(config.d_features, config.d_features))
        self.layers = nn.Sequential(*layers, *last)
        self.position = LearnedGrid(config.grid, config.d_features)

    def forward(self, images: Float[Tensor, "batch channel height width"]) -> Annotations:
        """All places, and their mean as summary. Raises ValueError for images whose size is not the model's."""
        check_images(images, (self.config.channels, self.config.height, self.config.width))
        states = self.position.add(self.layers(images).flatten(2).mT)
        return Annotations(states, states.mean(dim=1), torch.ones_like(states[..., 0], dtype=torch.bool))


class CaptionState(NamedTuple):
    """The state that the decoder carries from one word to the next."""

    hidden: Float[Tensor, "batch d_hidden"]
    cell: Float[Tensor, "batch d_hidden"]
    keys: Float[Tensor, "batch place d_score"]  # projected by the score, once per image

    def select(self, rows: Int[Tensor, " kept"]) -> CaptionState:
        """The state of the images `rows`, in that order."""
        return CaptionState(*(part[rows] for part in self))


class CaptionDecoder(nn.Module):
    """Attends, then recurs: z_t = β_t Σ_i α_ti a_i, h_t = LSTM([E y_{t−1}; z_t], h_{t−1}) (Xu et al., 2015, eq. 1).

    α_t = softmax_i score(h_{t−1}, a_i) is the additive attention of lesson 01; the gate β_t = σ(w · h_{t−1}) says how
    much the image counts for this word (section 4.2.1).
    """

    def __init__(self, config: CaptionerConfig):
        super().__init__()
        d_embed, d_features, d_hidden = config.d_embed, config.d_features, config.d_hidden
        self.embed = nn.Embedding(config.vocab, d_embed, padding_idx=PAD)
        self.dropout = nn.Dropout(config.dropout)
        self.begin = nn.Linear(d_features, 2 * d_hidden)
        self.score = AdditiveScore(d_hidden, d_features, d_hidden)
        self.gate = nn.Linear(d_hidden, 1)
        self.lstm = nn.LSTMCell(d_embed + d_features, d_hidden)
        self.merge = nn.Linear(d_hidden + d_features + d_embed, d_embed)
        self.unembed = nn.Linear(d_embed, config.vocab)

    def start(self, memory: Annotations) -> CaptionState:
        """The state before the first word: hidden and cell state from the mean annotation."""
        hidden, cell = torch.tanh(self.begin(memory.summary)).chunk(2, dim=-1)
        return CaptionState(hidden, cell, self.score.project(memory.states))

    def step(
        self, word: Float[Tensor, "batch d_embed"], memory: Annotations, state: CaptionState
    ) -> tuple[CaptionState, Float[Tensor, "batch d_features"], Float[Tensor, "batch place"]]:
        """The next state, the gated context and the attention weights, after one more word."""
        scores = self.score(state.hidden[:, None], state.keys)
        weights = masked_softmax(scores, memory.mask[:, None])
        context = torch.sigmoid(self.gate(state.hidden)) * (weights @ memory.states)[:, 0]
        hidden, cell = self.lstm(torch.cat([word, context], dim=-1), (state.hidden, state.cell))
        return CaptionState(hidden, cell, state.keys), context, weights[:, 0]

    def forward(self, target: Int[Tensor, "batch target"], memory: Annotations, state: CaptionState) -> Decoded:
        """Logits for the word after each word of `target`, and where the decoder looked for it.

        Raises ValueError when `target` holds no words, an id outside the vocabulary or not one row for each image.
        """
        check_ids("target", target, self.embed.num_embeddings)
        check_rows(target, len(memory.mask))
        words, steps = self.dropout(self.embed(target)), []
        for word in words.unbind(dim=1):
            state, context, weights = self.step(word, memory, state)
            steps.append((state.hidden, context, weights))
        hidden, contexts, weights = (torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
        merged = torch.tanh(self.merge(torch.cat([hidden, contexts, words], dim=-1)))
        return Decoded(self.unembed(self.dropout(merged)), weights, state)


class Captioner(nn.Module):
    """An encoder of images and a decoder of words: p(caption | image) one word at a time."""

    def __init__(self, config: CaptionerConfig):
        super().__init__()
        self.config = config
        self.encoder = ImageEncoder(config)
        self.decoder = CaptionDecoder(config)

    def forward(
        self, images: Float[Tensor, "batch channel height width"], target: Int[Tensor, "batch target"]
    ) -> Decoded:
        """Teacher forcing: each step is given the true previous word."""
        memory = self.encoder(images)
        return self.decoder(target, memory, self.decoder.start(memory))


class Captioned(NamedTuple):
    """The words of each image, `<pad>` after the end, and where the model looked for each of them."""

    tokens: Int[Tensor, "batch target"]
    weights: Float[Tensor, "batch target place"]


@torch.no_grad()
def describe(
    model: Captioner, images: Float[Tensor, "batch channel height width"], *, max_length: int = 24
) -> Captioned:
    """The most probable word each time, until `<eos>` or `max_length` words; runs in eval mode.

    Raises ValueError when `max_length` < 1.
    """
    check_positive(max_length=max_length)
    word = torch.full((len(images), 1), BOS, device=images.device)
    ended, tokens, looks = torch.zeros_like(word, dtype=torch.bool), [], []
    with evaluating(model):
        memory = model.encoder(images)
        state = model.decoder.start(memory)
        for _ in range(max_length):
            logits, weights, state = model.decoder(word, memory, state)
            logits[..., [PAD, BOS]] = -torch.inf
            word = logits.argmax(dim=-1).masked_fill(ended, PAD)
            ended = ended | (word == EOS)
            tokens.append(word)
            looks.append(weights)
            if ended.all():
                break
    return Captioned(torch.cat(tokens, dim=1), torch.cat(looks, dim=1))
