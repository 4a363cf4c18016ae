"""End-to-end memory networks: a question that reads a store of sentences in several hops (Sukhbaatar et al., 2015)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.attention.implementations import masked_softmax
from tfbook.models.config import Savable

Bag = Callable[[Tensor], Tensor]
Hop = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Age = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Savable):
    """Sizes of a memory network."""

    vocab: int  # with id 0, padding
    sentences: int  # of the longest story
    d_model: int = 48
    hops: int = 3
    tying: str = "adjacent"  # or "layer-wise"

    def __post_init__(self) -> None:
        for name in ("vocab", "sentences", "d_model", "hops"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.tying not in ("adjacent", "layer-wise"):
            raise ValueError(f"tying is {self.tying!r}; expected 'adjacent' or 'layer-wise'")


class MemoryReading(NamedTuple):
    """The answer's logits, and where each hop looked: weights that sum to 1 over the sentences, 0 without any."""

    logits: Float[Tensor, "batch vocab"]
    weights: Float[Tensor, "batch hop sentence"]


def word_weights(words: int, d_model: int) -> Float[Tensor, "word d_model"]:
    """l_jk = (1 − j/J) − (k/d)(1 − 2j/J) for word j of J and entry k of d, both counted from 1 (section 4.1)."""
    j = torch.arange(1, words + 1)[:, None] / words
    k = torch.arange(1, d_model + 1) / d_model
    return (1 - j) - k * (1 - 2 * j)


def weighted_bag(vectors: Float[Tensor, "*rows word d_model"]) -> Float[Tensor, "*rows d_model"]:
    """Σ_j l_j ⊙ v_j: a bag of words in which each place weighs the entries in its own way.

    J is the padded length, so that a word has the same weights in a short sentence; padding has vectors of zeros.
    """
    return (vectors * word_weights(*vectors.shape[-2:]).to(vectors)).sum(dim=-2)


def memory_hop(
    query: Float[Tensor, "batch d_model"],
    addresses: Float[Tensor, "batch sentence d_model"],
    contents: Float[Tensor, "batch sentence d_model"],
    filled: Bool[Tensor, "batch sentence"],
) -> tuple[Float[Tensor, "batch d_model"], Float[Tensor, "batch sentence"]]:
    """p = softmax(m u) over the filled sentences, o = Σ_i p_i c_i; returns o and p, both 0 for an empty memory."""
    weights = masked_softmax((addresses @ query[..., None])[..., 0], filled)
    return (weights[:, None] @ contents)[:, 0], weights


def ages(filled: Bool[Tensor, "batch sentence"]) -> Int[Tensor, "batch sentence"]:
    """How many sentences came after each: 0 for the last one. Padding has age 0, too."""
    after = filled.flip(1).cumsum(1).flip(1) - 1
    return after.clamp(min=0)


class MemoryNetwork(nn.Module):
    """u₁ = B q, then per hop u ← H u + o(u), and logits W u. The memory is the story, one vector per sentence.

    A hop compares u with addresses A x + T_A and mixes contents C x + T_C, where x is a sentence and T a learned vector
    for its age. With adjacent tying A of a hop is C of the one before it, B is the first A, W the last C, and H is the
    identity; layer-wise, all hops share A and C, and H is learned. `bag`, `hop` and `age` are the parts that
    lesson 18 writes.
    """

    def __init__(self, config: MemoryConfig, *, bag: Bag = weighted_bag, hop: Hop = memory_hop, age: Age = ages):
        super().__init__()
        self.config, self.bag, self.hop, self.age = config, bag, hop, age
        d = config.d_model
        layered = config.tying == "layer-wise"
        count = 2 if layered else config.hops + 1
        self.tables = nn.ModuleList(nn.Embedding(config.vocab, d, padding_idx=0) for _ in range(count))
        self.times = nn.ModuleList(nn.Embedding(config.sentences, d) for _ in range(count))
        self.H = nn.Linear(d, d, bias=False) if layered else nn.Identity()
        self.init_weights()

    def init_weights(self) -> None:
        """Normal numbers with standard deviation 0.1, as in the paper; padding keeps its zeros."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1)
        with torch.no_grad():
            for weight in self.tables.parameters():
                weight[0] = 0.0

    def forward(self, story: Int[Tensor, "batch sentence word"], question: Int[Tensor, "batch asked"]) -> MemoryReading:
        """Logits over the vocabulary and the weights of each hop. Raises ValueError when the story is too long."""
        if story.shape[1] > self.config.sentences:
            raise ValueError(f"the story has {story.shape[1]} sentences; expected at most {self.config.sentences}")
        filled = story.ne(0).any(dim=-1)
        age = self.age(filled)
        memory = [self.bag(table(story)) + time(age) for table, time in zip(self.tables, self.times, strict=True)]
        last: Any = self.tables[-1]
        query, looked = self.bag(self.tables[0](question)), []
        for number in range(self.config.hops):
            first = number if self.config.tying == "adjacent" else 0
            output, weights = self.hop(query, memory[first], memory[first + 1], filled)
            query = self.H(query) + output
            looked.append(weights)
        return MemoryReading(query @ last.weight.T, torch.stack(looked, dim=1))
