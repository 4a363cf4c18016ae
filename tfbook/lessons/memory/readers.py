"""Readers of errands: the lesson's memory network, a Transformer encoder, and how both are trained and judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.masks import Lengths
from tfbook.data.stories.errand_sets import IDS, ErrandBatch, ErrandSet
from tfbook.data.stories.errands import ASKING, LONGEST
from tfbook.models.blocks import Config, Stack
from tfbook.models.memory_network import (
    Age,
    Bag,
    Hop,
    MemoryConfig,
    MemoryNetwork,
    MemoryReading,
    ages,
    memory_hop,
    weighted_bag,
)

WIDTH, LR = 48, 5e-3
STORIES, UNSEEN, FIRST_UNSEEN = 6000, 1000, 10_000_000  # of training, of tests, and the first seed of these


@cache
def told_for_training() -> ErrandSet:
    """The questions of 6,000 stories."""
    return ErrandSet(range(STORIES))


@cache
def unseen_errands() -> ErrandSet:
    """1,000 stories that no reader is trained on, with their names."""
    return ErrandSet(range(FIRST_UNSEEN, FIRST_UNSEEN + UNSEEN))


def unseen() -> ErrandBatch:
    """The questions about them."""
    return unseen_errands().all


def new_reader(
    hops: int = 3, *, seed: int = 1, bag: Bag = weighted_bag, hop: Hop = memory_hop, age: Age = ages
) -> MemoryNetwork:
    """An untrained memory network for errands."""
    runtime.seed(seed)
    config = MemoryConfig(vocab=len(IDS), sentences=LONGEST, d_model=WIDTH, hops=hops)
    return MemoryNetwork(config, bag=placed(bag), hop=placed(hop), age=placed(age)).to(runtime.device())


def placed(piece: Callable[..., Any]) -> Callable[..., Any]:
    """A reader's function that also runs on a GPU: the tensors that it makes lie where its first argument lies."""

    def there(first: Tensor, *others: Tensor) -> Any:
        if first.device.type == "cpu":
            return piece(first, *others)
        with first.device:
            return piece(first, *others)

    return there


def reread_by(hop: Hop) -> Callable[[Tensor, list[Tensor], Tensor], Tensor]:
    """The query after all hops: each compares with one tensor of sentences and takes from the next one."""

    def reread(query: Tensor, memory: list[Tensor], filled: Tensor) -> Tensor:
        for addresses, contents in pairwise(memory):
            query = query + hop(query, addresses, contents, filled)[0]
        return query

    return reread


def falling(step: int, steps: int) -> float:
    """The factor on the learning rate: it falls in a line to zero."""
    return 1 - step / steps


Deal = Callable[[ErrandBatch, torch.Generator], ErrandBatch]  # (batch, generator) → it with other stand-ins


def train_reader(
    model: nn.Module, *, steps: int, seed: int = 1, lr: float = LR, deal: Deal | None = None
) -> training.History:
    """Trains on batches of 64 questions with Adam at a rate that falls to zero; `deal` changes their stand-ins."""

    def batch(step: int) -> ErrandBatch:
        told = told_for_training().batch(step, seed=seed)
        return told if deal is None else deal(told, torch.Generator().manual_seed(1_000_003 * seed + step))

    recipe = training.Recipe(steps=steps, lr=lr, schedule=falling, clip=10.0, mixed_precision=False)
    return training.fit(model, answer_loss, batch, recipe)


def answer_loss(model: nn.Module, batch: ErrandBatch) -> Float[Tensor, ""]:
    """Mean −log p(answer) in nats."""
    return F.cross_entropy(model(batch.story, batch.question).logits, batch.answer)


@torch.no_grad()
def read(model: nn.Module, batch: ErrandBatch) -> MemoryReading:
    """The model's logits and weights for all rows, on the CPU."""
    rows = batch.to(runtime.device())
    parts = [model(rows.story[i : i + 512], rows.question[i : i + 512]) for i in range(0, len(rows), 512)]
    return MemoryReading(*(torch.cat([part[j] for part in parts]).cpu() for j in range(2)))


def by_kind(batch: ErrandBatch, values: Tensor) -> dict[str, float]:
    """The mean of one value per question, for each kind of question."""
    return {kind: float(values[batch.kind == number].float().mean()) for number, kind in enumerate(ASKING)}


def accuracies(model: nn.Module, batch: ErrandBatch | None = None) -> dict[str, float]:
    """Share of right answers for each kind of question, on the unseen stories."""
    batch = unseen() if batch is None else batch
    return by_kind(batch, read(model, batch).logits.argmax(dim=1) == batch.answer)


def looks(model: nn.Module, batch: ErrandBatch | None = None) -> dict[str, list[list[float]]]:
    """For each kind of question and each hop: the mean weight on the first fact and on the second."""
    batch = unseen() if batch is None else batch
    weights = read(model, batch).weights
    on = torch.stack([(weights * (batch.support == link)[:, None]).sum(dim=-1) for link in (1, 2)], dim=-1)
    return {
        kind: [[round(x, 3) for x in hop] for hop in on[batch.kind == number].mean(dim=0).tolist()]
        for number, kind in enumerate(ASKING)
    }


class SentenceEncoder(nn.Module):
    """A Transformer encoder whose positions are the question and the sentences: the bags and ages of the hops."""

    def __init__(self, *, layers: int = 2, d_model: int = 32, d_ff: int = 40, tied: bool = True):
        super().__init__()
        sizes = Config(d_model=d_model, layers=layers, heads=4, d_ff=d_ff, dropout=0.0, position="none")
        self.table = nn.Embedding(len(IDS), d_model, padding_idx=0)
        self.times = nn.Embedding(LONGEST + 1, d_model)  # the last one for the question
        self.stack = Stack(sizes)
        self.output = nn.Linear(d_model, len(IDS), bias=not tied)
        if tied:
            self.output.weight = self.table.weight

    def forward(self, story: Int[Tensor, "batch sentence word"], question: Int[Tensor, "batch word"]) -> MemoryReading:
        """Logits over the vocabulary, from the question's position; no weights, since its heads are not hops."""
        filled = story.ne(0).any(dim=-1)
        asked = weighted_bag(self.table(question)) + self.times.weight[-1]
        told = weighted_bag(self.table(story)) + self.times(ages(filled))
        states = self.stack(torch.cat([asked[:, None], told], dim=1), Lengths(1 + filled.sum(dim=1)))
        logits = self.output(states[:, 0])
        return MemoryReading(logits, logits.new_zeros(len(logits), 0, story.shape[1]))


def new_sentence_encoder(*, seed: int = 1, **sizes: Any) -> SentenceEncoder:
    """An untrained Transformer reader of whole sentences."""
    runtime.seed(seed)
    return SentenceEncoder(**sizes).to(runtime.device())


Build = Callable[[int], nn.Module]  # seed → an untrained reader
