"""Lesson 00: a rival that remembers who was named, but does not look back: counts of words times counts of names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import fmean as mean
from typing import Any

import torch

from tfbook import data
from tfbook.course.experiments import experiment
from tfbook.data.stories import words_of
from tfbook.lessons.start_here.study import MANY, SPLIT, letters_of, names_read
from tfbook.pretrain.storyteller import Storyteller, load_storyteller
from tfbook.text.vocabulary import BOS

OLD, NEW = "<old>", "<new>"  # any name that was said before in the story, and any other, where words are counted
PAST = 4  # words that the counts see, chosen on other stories


@experiment
def memory(stories: int = 100) -> list[dict[str, Any]]:
    """Nats per name that was said before in its story, in two parts: that such a name comes now, and which one.

    By counts of words, in as many letters as `names` counts, times how often each name has been said in the story so
    far; and by lesson 09's model.
    """
    corpus, names = data.load("stories"), names_read()
    held_out, teller = corpus[SPLIT][:stories], load_storyteller()
    letters = accumulate(len(letters_of(story)) for story in corpus["train"])
    seen = [story for story, end in zip(corpus["train"], letters, strict=True) if end <= MANY]
    rivals = {
        "memory": by_memory(seen, held_out, names),
        "lesson 09": [pair for story in held_out for pair in by_storyteller(teller, story, names)],
    }
    return [{"model": model, **_parts(pairs)} for model, pairs in rivals.items()]


def _parts(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The mean of each part, and how many names they were."""
    comes, which = (round(mean(column), 4) for column in zip(*pairs, strict=True))
    return {"comes": comes, "which": which, "names": len(pairs)}


def by_memory(seen: Iterable[str], judged: Iterable[str], names: Iterable[str]) -> list[tuple[float, float]]:
    """−ln p of each old name of the stories `judged`: that one comes, by counts of `seen`, and which, by its share.

    A name that was said n times, where names were said N times in all, has the share n / N.
    """
    known, pairs = {name.lower() for name in names}, list[tuple[float, float]]()
    words = [word for story in judged for word in [*letters_of(story).split(), ""]]  # "" ends a story
    comes = old_name_probabilities(marked(seen, known), marked(judged, known), PAST)
    said = Counter[str]()
    for word, p in zip(words, comes, strict=True):
        if word in said:
            pairs.append((-math.log(p), -math.log(said[word] / said.total())))
        said = said + Counter(known & {word}) if word else Counter()
    return pairs


def marked(stories: Iterable[str], names: set[str]) -> list[str]:
    """The words of the stories, with `OLD` or `NEW` in place of each name, and "" after each story."""
    words = list[str]()
    for story in stories:
        said = set[str]()
        for word in letters_of(story).split():
            words.append(word if word not in names else OLD if word in said else NEW)
            said |= names & {word}
        words.append("")
    return words


def old_name_probabilities(seen: Sequence[str], judged: Sequence[str], past: int) -> list[float]:
    """Probability of `OLD` at each word of `judged`, given up to `past` words before it.

    By counts of `seen`, blended with those of fewer words: Witten and Bell (1991), method C.
    """
    p = [1 / len({*seen})] * len(judged)
    for n in range(past + 1):
        runs = Counter(tuple(seen[i - n : i + 1]) for i in range(n, len(seen)))
        pasts = Counter(tuple(seen[i - n : i]) for i in range(n, len(seen)))
        kinds = Counter(run[:n] for run in runs)  # how many different words follow
        for i in range(n, len(judged)):
            if (before := tuple(judged[i - n : i])) in pasts:
                p[i] = (runs[*before, OLD] + kinds[before] * p[i]) / (pasts[before] + kinds[before])
    return p


@torch.no_grad()
def by_storyteller(teller: Storyteller, story: str, names: Iterable[str]) -> list[tuple[float, float]]:
    """−ln p of each old name of the story by lesson 09's model: that one of those said so far comes, and which."""
    words, device = words_of(story), next(teller.model.parameters()).device
    ids = torch.tensor([BOS, *teller.vocabulary.encode(words)], device=device)
    log_p = torch.log_softmax(teller.model(ids[None, :-1])[0], dim=-1)
    said, pairs = dict[str, int](), list[tuple[float, float]]()  # each name's place in the vocabulary
    for word, token, row in zip(words, ids[1:].tolist(), log_p, strict=True):
        if word in said:
            comes = row[[*said.values()]].logsumexp(dim=0).item()
            pairs.append((-comes, comes - row[token].item()))
        said |= {word: token} if word in {*names} else {}
    return pairs
