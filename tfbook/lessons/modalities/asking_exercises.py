"""The exercise on questions about pictures: a loss that counts the answer's words alone."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn


def _spoken() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Sizes that differ: scenes, tiles, words, vocabulary; and where each answer begins and ends."""
    cases = []
    spans = [(4, 5, 9, [(2, 4)]), (4, 6, 7, [(3, 6), (2, 3)]), (1, 4, 5, [(1, 3), (3, 4), (2, 4)]), (9, 5, 6, [(4, 5)])]
    for seed, (tiles, words, vocab, answers) in enumerate(spans, start=80):
        rows = len(answers)
        ids = torch.randint(vocab, (rows, words), generator=torch.Generator().manual_seed(seed))
        places = torch.arange(words)
        answer = torch.stack([(places >= first) & (places < end) for first, end in answers])
        cases.append((3 * randn(rows, tiles + words, vocab, seed=seed), ids, answer))
    return cases


@exercise(
    cases=_spoken,
    hints=[
        "The last `ids.shape[1]` places of `logits` are the words' own; the guess of a word stands one place earlier. "
        "So the first word is guessed at the last tile.",
        "`tiles = logits.shape[1] - ids.shape[1]`, and `before = logits[:, tiles - 1 : -1]` has a guess for each word.",
        "Choose the answers' words: `F.cross_entropy(before[answer], ids[answer])` is the mean over them.",
    ],
    differentiable=("logits",),
)
def ask_loss(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    tiles = logits.shape[1] - ids.shape[1]
    before = logits[:, tiles - 1 : -1]
    return F.cross_entropy(before[answer], ids[answer])


def _asked(logits: Tensor, ids: Tensor, answer: Tensor, *, mistake: str) -> Tensor:
    tiles = logits.shape[1] - ids.shape[1]
    if mistake == "own":
        return F.cross_entropy(logits[:, tiles:][answer], ids[answer])
    before = logits[:, : ids.shape[1]] if mistake == "front" else logits[:, tiles - 1 : -1]
    if mistake == "all":
        return F.cross_entropy(before.flatten(0, 1), ids.flatten())
    if mistake == "rest":
        return F.cross_entropy(before[~answer], ids[~answer])
    if mistake == "first":
        answer = answer & (answer.cumsum(dim=1) == 1)
    if mistake == "rows":
        losses = F.cross_entropy(before.mT, ids, reduction="none") * answer
        return (losses.sum(dim=1) / answer.sum(dim=1)).mean()
    return F.cross_entropy(before[answer], ids[answer], reduction="sum" if mistake == "sum" else "mean")


ask_loss.mistakes(
    {
        "each place is asked for its own word, which it reads: the guess of a word stands one place earlier": partial(
            _asked, mistake="own"
        ),
        "the tiles are forgotten: they stand in front, so a word's place in `logits` is its place in `ids` plus the "
        "number of tiles": partial(_asked, mistake="front"),
        "the question's words and the padding count, too: choose the answer's words with `answer`": partial(
            _asked, mistake="all"
        ),
        "these are the words that are *not* the answer's": partial(_asked, mistake="rest"),
        "only the first word of each answer counts; the later ones and the end count as well": partial(
            _asked, mistake="first"
        ),
        "the words are summed; take their mean, so that the loss does not grow with the batch": partial(
            _asked, mistake="sum"
        ),
        "each answer counts the same here, long or short: take the mean over all words of all answers": partial(
            _asked, mistake="rows"
        ),
    }
)
