"""Stories as rows of ids, and what the checker says of those that a model has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from tfbook import data
from tfbook.data.stories import Verdict, check_story, summary, words_of
from tfbook.text.vocabulary import BOS, EOS, Vocabulary


def story_rows(texts: Sequence[str], vocabulary: Vocabulary) -> list[Tensor]:
    """A row of ids per story, `<bos>` first and `<eos>` last."""
    return [torch.tensor([BOS, *vocabulary.encode(words_of(text)), EOS]) for text in texts]


@cache
def training_rows() -> list[Tensor]:
    """The rows of all stories to train on, made once for all runs."""
    corpus = data.load("stories")
    return story_rows(corpus["train"], corpus.vocabulary)


def judged(texts: Sequence[Sequence[str]]) -> dict[str, float]:
    """Shares of sentences that the world allows, of stories without a wrong name, and of entirely right stories."""
    found = summary([check_story(list(words)) for words in texts])
    return {"sentences": found["sentences"], "names": found["names"], "all": found["consistent"]}


def first_mistakes(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    """Number of stories by the kind of their first mistake, the most frequent kind first.

    A story without a contradiction still counts as wrong if it has no ending, or a sentence that the world never tells.
    """
    verdicts = [check_story(list(words)) for words in texts]
    return dict(Counter(_first_mistake(verdict) for verdict in verdicts if not verdict.consistent).most_common())


def _first_mistake(verdict: Verdict) -> str:
    if verdict.faults:
        return verdict.faults[0].kind
    return "sentence" if verdict.unread else "no end"
