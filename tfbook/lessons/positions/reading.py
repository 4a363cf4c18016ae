"""Sentences about who does what to whom, and a model that answers two questions about them: the world of lesson 04."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.positions import Position
from tfbook.models.feed_forward import FeedForward

if TYPE_CHECKING:
    from pandas import DataFrame


NOUNS, VERBS = ("dog", "man", "cat", "girl", "bear", "boy"), ("bites", "sees", "hears", "follows")
WORDS = (*NOUNS, *VERBS, "old", "young", "big", "often", "rarely", "today", "again", "there")
TEST = 10**6  # seed of the test sentences, plus their length

Answer = Callable[[Tensor], tuple[Tensor, Tensor]]  # ids → logits of the two roles, and of the previous word


def sentences(count: int, words: int, seed: int) -> Int[Tensor, "3 count word"]:
    """Sentences such as "old dog often bites man": ids; roles, 0 for the agent and 1 for the target; previous words.

    Roles of other words, and the word before the first, are −100, which the loss ignores.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(NOUNS + VERBS), len(WORDS), (count, words), generator=generator)
    positions = torch.rand(count, words, generator=generator).argsort(dim=1)[:, :3].sort(dim=1).values
    does, suffers = torch.rand(count, len(NOUNS), generator=generator).argsort(dim=1)[:, :2].T
    verb = torch.randint(len(NOUNS), len(NOUNS + VERBS), (count,), generator=generator)
    ids.scatter_(1, positions, torch.stack([does, verb, suffers], dim=1))
    roles = torch.full_like(ids, -100).scatter_(1, positions[:, ::2], torch.tensor([0, 1]).expand(count, 2))
    return torch.stack([ids, roles, F.pad(ids[:, :-1], (1, 0), value=-100)])


class Reader(nn.Module):
    """One layer of self-attention and a feed-forward layer, which answer two questions about each word.

    Is it the one that acts or the target? Which word comes before it?
    """

    def __init__(self, position: Position, *, d_model: int = 32, heads: int = 2):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), d_model)
        self.position = position
        self.attention = MultiHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, 2 * d_model)
        self.role, self.before = nn.Linear(d_model, 2), nn.Linear(d_model, len(WORDS))

    def forward(
        self, ids: Int[Tensor, "batch word"]
    ) -> tuple[Float[Tensor, "batch word role"], Float[Tensor, "batch word vocab"]]:
        """Logits of the two roles and of the previous word."""
        x = self.position.add(self.embed(ids))
        x = x + self.attention(x, position=self.position)
        x = x + self.feed_forward(x)
        return self.role(x), self.before(x)


@torch.no_grad()
def answered(model: Answer, words: int, *, count: int = 500) -> tuple[float, float]:
    """Accuracy on new sentences of this many words: who acts, and which word comes before."""
    ids, *right = sentences(count, words, seed=TEST + words)
    pairs = zip(model(ids), right, strict=True)
    role, before = (float((logits.argmax(dim=-1) == one)[one >= 0].float().mean()) for logits, one in pairs)
    return role, before


def judge(models: Mapping[str, Sequence[Answer]], words: int) -> dict[str, list[tuple[float, float]]]:
    """The results of `answered` for each run of each model."""
    return {name: [answered(model, words) for model in runs] for name, runs in models.items()}


def shares(found: Mapping[str, Sequence[tuple[float, float]]]) -> DataFrame:
    """The results of `judge` as a table: one row per model, its runs side by side."""
    import pandas as pd

    questions = ("who does it", "word before")
    rows = {
        name: {question: "  ".join(f"{run[i]:.0%}" for run in runs) for i, question in enumerate(questions)}
        for name, runs in found.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def ids_of(sentence: str) -> Int[Tensor, "1 word"]:
    """The ids of a sentence. Raises ValueError for a word outside the reader's vocabulary."""
    words = sentence.lower().split()
    if unknown := [word for word in words if word not in WORDS]:
        raise ValueError(f"the reader does not know {unknown[0]!r}; its words are {', '.join(WORDS)}")
    return torch.tensor([[WORDS.index(word) for word in words]])


@torch.no_grad()
def news(model: Answer, *sentences: str) -> DataFrame:
    """The probability that each noun is the one that acts: one row per sentence, one column per noun."""
    import pandas as pd

    rows = {}
    for sentence in sentences:
        words, shares = sentence.lower().split(), model(ids_of(sentence))[0][0].softmax(dim=-1)[:, 0].tolist()
        rows[sentence] = {f"{word} does it": f"{share:.0%}" for word, share in zip(words, shares, strict=True)}
    columns = [f"{word} does it" for word in sorted(set(" ".join(sentences).lower().split()) & {*NOUNS})]
    return pd.DataFrame.from_dict(rows, orient="index")[columns].fillna("")


@torch.no_grad()
def answers(models: Mapping[str, Answer], sentence: str) -> DataFrame:
    """Each model's answer for each word: whether a noun acts or is the target, and which word comes before."""
    import pandas as pd

    words, rows = sentence.lower().split(), {}
    for name, model in models.items():
        roles, before = (logits[0].argmax(dim=-1).tolist() for logits in model(ids_of(sentence)))
        does = [
            ("does it", "is the target")[role] if word in NOUNS else "" for word, role in zip(words, roles, strict=True)
        ]
        rows[f"{name}: role"] = does
        rows[f"{name}: word before"] = ["", *(WORDS[word] for word in before[1:])]
    return pd.DataFrame.from_dict(rows, orient="index", columns=words)
