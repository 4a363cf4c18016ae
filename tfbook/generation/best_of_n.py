"""Best of n: sample several answers and keep the one that the reward likes best. No training; n times the sampling.

Shapes: batch, time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.checks import check_positive
from tfbook.generation.sampling import generate
from tfbook.models.language_model import LanguageModel
from tfbook.text.answers import Answers, generated_answers
from tfbook.text.vocabulary import EOS


class Best(NamedTuple):
    """The best answer to each prompt, and the scores of all answers."""

    answers: Answers
    scores: Float[Tensor, "batch n"]


def best_of_n(
    model: LanguageModel,
    prompts: Int[Tensor, "batch time"],
    score: Callable[[Answers], Float[Tensor, " answer"]],
    n: int,
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    max_new_tokens: int,
    stop: int = EOS,
    **options: Any,
) -> Best:
    """Samples n answers to each prompt and keeps the one with the largest score (Stiennon et al., 2020, appendix G.3).

    `score` is called once with all n · batch answers; `lengths` and `options` are those of `generate`. Raises
    ValueError when `n` < 1 or a score is NaN, and what `generate` raises.
    """
    check_positive(n=n)
    repeated = prompts.repeat_interleave(n, dim=0)
    starts = None if lengths is None else lengths.repeat_interleave(n)
    ids = generate(model, repeated, lengths=starts, max_new_tokens=max_new_tokens, stop=[stop], **options)
    answers = generated_answers(ids, prompts.shape[1] if starts is None else starts, stop=stop)
    scores = _checked(score(answers), len(answers)).view(len(prompts), n)
    first = torch.arange(len(prompts), device=ids.device) * n
    return Best(answers.select(first + scores.argmax(dim=1)), scores)


def _checked(scores: Tensor, answers: int) -> Tensor:
    """One score for each answer; raises ValueError for another number of them and for NaN, which no score beats."""
    if scores.shape != (answers,):
        raise ValueError(f"score returned shape {tuple(scores.shape)}; expected ({answers},), one for each answer")
    if (unknown := scores.isnan()).any():
        raise ValueError(f"score returned NaN for answer {int(unknown.int().argmax())}; expected numbers to compare")
    return scores


def best_of_n_kl(n: int) -> float:
    """ln n − (n − 1) / n, in nats: an upper bound on KL(best of n ‖ model) (Stiennon et al., 2020, appendix G.3).

    Exact where all answers differ and no two have the same score; otherwise the divergence is smaller (Beirami et al.,
    2024). Raises ValueError when `n` < 1.
    """
    check_positive(n=n)
    return math.log(n) - (n - 1) / n


def expected_best(scores: Float[Tensor, "batch pool"], n: int) -> Float[Tensor, " batch"]:
    """The mean of the largest score over all ways to choose n answers from a pool: best of n without sampling noise.

    Σ_i C(i − 1, n − 1) / C(pool, n) · (i-th smallest score) (Nakano et al., 2021), so that one pool is
    enough for every n up to its size. Raises ValueError for an n outside 1 to that.
    """
    pool = scores.shape[1]
    if not 1 <= n <= pool:
        raise ValueError(f"n is {n}; expected 1 to {pool}, the number of scores")
    shares = [math.comb(i, n - 1) / math.comb(pool, n) for i in range(n - 1, pool)]  # the n − 1 smallest never win
    return scores.sort(dim=1).values[:, n - 1 :] @ scores.new_tensor(shares)
