"""Sentences in which *it* is one of two animals, and the last word says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

ANIMALS = ("cat", "dog", "fox", "horse", "cow", "hen", "duck", "wolf", "lion", "goat", "bear", "mouse")
VERBS = ("chased", "followed", "watched", "caught")
OF_THE_FIRST, OF_THE_SECOND = ("hungry", "fast", "angry", "brave"), ("slow", "weak", "small", "tasty")
LEXICON = ["the", "because", "it", "was", *ANIMALS, *VERBS, *OF_THE_FIRST, *OF_THE_SECOND]
FORM = ("the", ANIMALS, VERBS, "the", ANIMALS, "because", "it", "was", OF_THE_FIRST + OF_THE_SECOND)
FIRST, SECOND, IT, REASON = 1, 4, 6, 8  # places in a sentence
TEST = 10**6  # the seed of the test sentences


class Pronouns(NamedTuple):
    """Sentences such as *the dog chased the cat because it was hungry*, and which animal *it* is."""

    ids: Int[Tensor, "sentence place"]  # of `LEXICON`
    target: Int[Tensor, " sentence"]  # the id of the animal
    place: Int[Tensor, " sentence"]  # where it stands


def pronouns(count: int, seed: int, *, unseen: bool = False) -> Pronouns:
    """`count` sentences; with `unseen`, of two animals that meet in no other sentence (a quarter of the pairs)."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [
        (a, b) for a in range(len(ANIMALS)) for b in range(len(ANIMALS)) if a != b and ((a + b) % 4 == 0) == unseen
    ]
    chosen = torch.tensor(pairs)[torch.randint(len(pairs), (count,), generator=generator)]
    verbs = torch.randint(len(VERBS), (count,), generator=generator)
    reasons = torch.randint(len(FORM[REASON]), (count,), generator=generator)
    ids = torch.tensor([LEXICON.index(word if isinstance(word, str) else word[0]) for word in FORM]).repeat(count, 1)
    ids[:, FIRST] += chosen[:, 0]
    ids[:, SECOND] += chosen[:, 1]
    ids[:, 2] += verbs
    ids[:, REASON] += reasons
    place = torch.where(reasons < len(OF_THE_FIRST), FIRST, SECOND)
    return Pronouns(ids, ids.gather(1, place[:, None])[:, 0], place)


def encode(sentence: str) -> Int[Tensor, "one place"]:
    """The ids of a sentence. Raises ValueError, with the words to choose from, when it does not have the form."""
    words = sentence.lower().strip(" .").split()
    if len(words) != len(FORM):
        raise ValueError(f"the sentence has {len(words)} words; expected {len(FORM)}, such as {example()!r}")
    for word, allowed in zip(words, FORM, strict=True):
        choices = (allowed,) if isinstance(allowed, str) else allowed
        if word not in choices:
            raise ValueError(f"found {word!r} where one of these words can stand: {', '.join(choices)}")
    return torch.tensor([[LEXICON.index(word) for word in words]])


def example() -> str:
    return "the dog chased the cat because it was hungry"


@torch.no_grad()
def named_right(model: Callable[[Tensor], Tensor]) -> float:
    """The share of 500 sentences with unseen pairs in which the model names the right animal."""
    test = pronouns(500, TEST, unseen=True)
    return float((model(test.ids).argmax(dim=-1) == test.target).float().mean())


def points_right(sentences: Pronouns, weights: Float[Tensor, "sentence query key"]) -> float:
    """The share of sentences in which the largest weight of *it* lies on the right animal."""
    return float((weights[:, IT].argmax(dim=1) == sentences.place).float().mean())


def rules_of_thumb() -> dict[str, float]:
    """How often the first noun of a sentence is right, and how often the one that is nearest to *it*."""
    test = pronouns(500, TEST, unseen=True)
    places = {"the first noun": FIRST, "the nearest noun": SECOND}
    return {name: float((test.place == place).float().mean()) for name, place in places.items()}
