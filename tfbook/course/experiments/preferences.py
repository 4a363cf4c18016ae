"""Lesson 12: stories in which somebody gives something; a reward from pairs, PPO, DPO and best of n on the storyteller.

Shapes: batch (stories), time; all begin with `<bos>`, end with `<eos>` if they ended, and are padded.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import count
from math import comb
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook import runtime
from tfbook.course.claims import Bound, Claims
from tfbook.course.experiments import experiment
from tfbook.course.experiments.preferences_drawn import (
    draw_accuracy,
    draw_betas,
    draw_clip,
    draw_four,
    draw_frontier,
    draw_gap,
    draw_margins,
    draw_pair,
)
from tfbook.data.stories import Verdict, check_story, told, words_of, written
from tfbook.generation.best_of_n import best_of_n_kl
from tfbook.generation.sampling import generate
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel, ValueModel
from tfbook.pretrain.storyteller import LONGEST, Storyteller, load_storyteller
from tfbook.text.answers import Answers, generated_answers
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary
from tfbook.training import preferences
from tfbook.training.ppo import PpoRecipe, assess, generalized_advantages, ppo_update

if TYPE_CHECKING:
    from IPython.display import HTML
    from pandas import DataFrame, Series

__all__ = [
    "CLAIMS",
    "Pool",
    "advantages",
    "as_answers",
    "best_by_score",
    "claims_of_betas",
    "claims_of_dpo",
    "claims_of_methods",
    "critic_of",
    "demonstrations",
    "dpo",
    "dpo_loss",
    "draw_accuracy",
    "draw_betas",
    "draw_clip",
    "draw_four",
    "draw_frontier",
    "draw_gap",
    "draw_margins",
    "draw_pair",
    "generous",
    "hacked",
    "methods_of",
    "pair_loss",
    "pairs",
    "right_order",
    "sample",
    "shares",
    "side_by_side",
    "two_of",
]

CLAIMS = Claims(
    "preferences",
    {
        1: Bound(
            "With 32 better stories, the reward model orders at least nine in ten held-out pairs as the reader does",
            ">=",
            0.9,
            "Stored result, preferences.accuracy, smallest of three runs",
        ),
        2: Bound(
            "DPO raises the share of generous stories by at least 30 points",
            ">=",
            0.3,
            "Stored result, preferences.dpo, smallest of three runs, 160 stories each",
        ),
        3: Bound(
            "Meanwhile, the share of consistent stories falls by at most 5 points",
            "<=",
            0.05,
            "Stored result, preferences.dpo, mean of three runs",
        ),
        4: Bound(
            "It stays within a few nats of the storyteller: KL of a story",
            "<=",
            8,
            "Stored result, preferences.dpo, largest of three runs",
            " nats",
        ),
        5: Bound(
            "Without a KL penalty, PPO raises the reward model's score (standard deviations)",
            ">=",
            0.7,
            "Stored result, preferences.ppo, last three rounds minus the storyteller",
        ),
        6: Bound(
            "… while fewer of its stories are consistent (difference of shares)",
            ">=",
            0.1,
            "Stored result, preferences.ppo, storyteller minus last three rounds",
        ),
        7: Bound(
            "With the strongest penalty, consistency falls by less (difference of shares)",
            "<=",
            0.15,
            "Stored result, preferences.ppo, storyteller minus last three rounds",
        ),
        8: Bound(
            "At equal compute, more of DPO's stories than of PPO's are generous (difference of shares)",
            ">=",
            0.1,
            "Stored results, preferences.dpo and preferences.ppo",
        ),
        9: Bound(
            "With no more KL than DPO, best of n has more generous stories (difference of shares)",
            ">=",
            0,
            "Stored result, preferences.dpo",
        ),
    },
)

# ---- stories and what the reader prefers ---------------------------------------------------------------------------

GIVING = frozenset({"give", "gift", "share"})  # events of the story world


def generous(words: Sequence[str]) -> bool:
    """Whether somebody gives or shares something in a story."""
    return _gives(check_story(list(words)))


def shares(stories: Sequence[Sequence[str]]) -> dict[str, float]:
    """Which share of the stories is generous, and which consistent."""
    verdicts = [check_story(list(words)) for words in stories]
    return {
        "generous": sum(map(_gives, verdicts)) / len(stories),
        "consistent": sum(verdict.consistent for verdict in verdicts) / len(stories),
    }


def demonstrations(number: int) -> list[tuple[str, ...]]:
    """Generous stories that the world tells, of which no model has heard: those of the split "test"."""
    found = (told("test", i) for i in count())
    kind = (story.words for story in found if any(event.event in GIVING for event in story.told))
    return [next(kind) for _ in range(number)]


def sample(model: Gpt, number: int, seed: int) -> Int[Tensor, "batch time"]:
    """Stories that the model writes at temperature 1, on the CPU; what follows an `<eos>` is padding."""
    device = next(model.parameters()).device
    start = torch.full((number, 1), BOS, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    ids = generate(model, start, max_new_tokens=LONGEST - 1, stop=[EOS], generator=generator).cpu()
    return ids.masked_fill((ids == EOS).cumsum(dim=1) > 1, PAD)


def as_answers(ids: Int[Tensor, "batch time"]) -> Answers:
    """Stories as the package's losses want them: everything but `<bos>` is the answer."""
    return Answers(ids, generated_answers(ids, 1).answered & (ids != PAD))


def two_of(stories: Sequence[Sequence[str]]) -> str:
    """The first two stories as text."""
    return "\n\n".join(written(words) for words in stories[:2])


@dataclass(frozen=True)
class Pool:
    """Stories of the storyteller, and what the reader thinks of each."""

    ids: Int[Tensor, "batch time"]
    vocabulary: Vocabulary

    @cached_property
    def stories(self) -> list[tuple[str, ...]]:
        """In words."""
        return [self.vocabulary.decode(row) for row in self.ids]

    @cached_property
    def better(self) -> Int[Tensor, " better"]:
        """The rows of stories that the reader holds up as good ones: generous, and without a contradiction."""
        return self._rows(lambda verdict: _gives(verdict) and verdict.consistent)

    @cached_property
    def worse(self) -> Int[Tensor, " worse"]:
        """The rows of stories in which nobody gives anything."""
        return self._rows(lambda verdict: not _gives(verdict))

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What the checker reads in each story."""
        return [check_story(list(words)) for words in self.stories]

    def _rows(self, wanted: Callable[[Verdict], bool]) -> Tensor:
        return torch.tensor([row for row, verdict in enumerate(self.verdicts) if wanted(verdict)], dtype=torch.long)


def _gives(verdict: Verdict) -> bool:
    return any(event.event in GIVING for event in verdict.told)


def pairs(pool: Pool, size: int, seed: int, most: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Forever `size` rows of better stories of the pool and as many of worse, each row once before any comes again.

    `most` limits how many different stories of each sort are drawn from, the first ones.
    Raises ValueError for a pool that lacks one of the two.
    """
    if not len(pool.better) or not len(pool.worse):
        raise ValueError(f"the pool has {len(pool.better)} better and {len(pool.worse)} worse stories; expected both")
    generator = random.Random(seed)

    def rows(known: list[int]) -> Iterator[int]:
        while True:
            yield from generator.sample(known, len(known))

    chosen, rejected = (rows(each[:most].tolist()) for each in (pool.better, pool.worse))
    while True:
        drawn = [[next(source) for _ in range(size)] for source in (chosen, rejected)]
        yield torch.tensor(drawn[0]), torch.tensor(drawn[1])


# ---- the lesson's own answers to exercises that it goes on with ------------------------------------------------------


def pair_loss(chosen: Float[Tensor, " batch"], rejected: Float[Tensor, " batch"]) -> Float[Tensor, ""]:
    """Mean of `preferences.bradley_terry_loss`."""
    return preferences.bradley_terry_loss(chosen, rejected).mean


def dpo_loss(
    chosen: Float[Tensor, " batch"],
    rejected: Float[Tensor, " batch"],
    ref_chosen: Float[Tensor, " batch"],
    ref_rejected: Float[Tensor, " batch"],
    beta: float,
) -> Float[Tensor, ""]:
    """Mean of `preferences.dpo_loss`."""
    return preferences.dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=beta).mean


def advantages(
    rewards: Float[Tensor, "batch next"], values: Float[Tensor, "batch next"], gamma: float, lam: float
) -> Float[Tensor, "batch next"]:
    """`generalized_advantages` of texts without padding."""
    return generalized_advantages(rewards, values, torch.ones_like(values, dtype=torch.bool), gamma=gamma, lam=lam)


# ---- reward models -------------------------------------------------------------------------------------------------

REWARD_STEPS, REWARD_LR, REWARD_PAIRS = 60, 1e-3, 12  # pairs in a step


def trained_reward(pool: Pool, seed: int, most: int | None = None) -> RewardModel:
    """A reward model on the body of the draft, trained with pairs of the pool."""
    runtime.seed(seed)
    model = RewardModel(load_storyteller("draft").model.cpu())
    optimizer = torch.optim.AdamW(model.parameters(), lr=REWARD_LR)
    answers = as_answers(pool.ids)
    for _, (chosen, rejected) in zip(range(REWARD_STEPS), pairs(pool, REWARD_PAIRS, seed, most), strict=False):
        scores = (model(answers.ids[rows], answers.lengths[rows]) for rows in (chosen, rejected))
        loss = preferences.bradley_terry_loss(*scores).mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def right_order(scores: Float[Tensor, " batch"], pool: Pool) -> float:
    """In which share of all pairs of a better and a worse story the better one has the larger score."""
    return float((scores[pool.better][:, None] > scores[pool.worse]).float().mean())


@torch.no_grad()
def scores_of(model: RewardModel, ids: Int[Tensor, "batch time"]) -> Float[Tensor, " batch"]:
    """What a reward model says of stories."""
    answers = as_answers(ids)
    return model(answers.ids, answers.lengths)


def critic_of(model: RewardModel, mean: float, std: float) -> ValueModel:
    """A critic that begins as the reward model, its scores standardized: it says at once how a story may end.

    (Stiennon et al., 2020, appendix B.1.)
    """
    critic = copy.deepcopy(model.value)
    with torch.no_grad():
        critic.head.weight.div_(std)
        critic.head.bias.sub_(mean).div_(std)
    return critic


def best_by_score(
    scores: Float[Tensor, " pool"], good: Sequence[bool], numbers: Sequence[int]
) -> list[dict[str, float]]:
    """For each n, in which share of all choices of n stories the one with the largest score is good, and KL's bound.

    As `expected_best`, with another number in the place of the score.
    """
    size = len(scores)
    ordered = torch.tensor(good, dtype=torch.float64)[scores.argsort()]
    rows = []
    for n in numbers:
        weights = torch.tensor([comb(i, n - 1) / comb(size, n) for i in range(size)], dtype=torch.float64)
        rows.append({"n": n, "kl": best_of_n_kl(n), "share": float(weights @ ordered)})
    return rows


# ---- stored: accuracy, PPO, DPO --------------------------------------------------------------------------------------

NUMBERS = (1, 2, 4, 8, 16)  # of stories to choose from
POOL, HELD_OUT, TOLD = 384, 160, 160  # stories to learn from, to judge a reward model, and to judge a policy
SEEDS = (1, 2, 3)


def _pool(number: int, seed: int) -> tuple[Pool, Storyteller]:
    teller = load_storyteller()
    model = teller.model.cpu()
    return Pool(sample(model, number, seed), teller.vocabulary), Storyteller(model, teller.vocabulary)


@experiment
def accuracy(
    sizes: Sequence[int] = (1, 4, 16, 32), seeds: Sequence[int] = SEEDS, pool: int = 512, held_out: int = HELD_OUT
) -> list[dict[str, Any]]:
    """The reward model's accuracy on pairs of stories that it has not seen, by better stories in training."""
    known, teller = _pool(pool, seed=100)
    new = Pool(sample(teller.model, held_out, seed=101), teller.vocabulary)
    rows = []
    for most in sizes:
        for seed in seeds:
            found = scores_of(trained_reward(known, seed, most), new.ids)
            rows.append({"stories": most, "seed": seed, "accuracy": right_order(found, new)})
    return rows


def _judged(
    model: Gpt, reference: Gpt, reward: RewardModel, scale: tuple[float, float], told: Pool
) -> dict[str, float]:
    """Score, KL and shares of stories that the model has told."""
    answers, (mean, std) = as_answers(told.ids), scale
    with torch.no_grad():
        apart = preferences.answer_log_probs(model, answers) - preferences.answer_log_probs(reference, answers)
    score = (scores_of(reward, told.ids) - mean) / std
    return {"score": float(score.mean()), "kl": float(apart.mean()), **shares(told.stories)}


# Passes of a story through the storyteller: writing or reading it takes 1, learning from it 3.
READ, LEARN = 1, 3
PPO_LR, CRITIC_LR, ROUND, ROUNDS = 4e-4, 5e-4, 48, 9


@experiment
def ppo(
    betas: Sequence[float] = (0.0, 0.1, 0.5), rounds: int = ROUNDS, size: int = ROUND, pool: int = POOL
) -> list[dict[str, Any]]:
    """PPO from the storyteller at several β: score, KL and shares of each round, and at last two of its stories."""
    known, teller = _pool(pool, seed=200)
    reward = trained_reward(known, seed=1)
    scores = scores_of(reward, known.ids)
    scale = (float(scores.mean()), float(scores.std()))
    rows = []
    for beta in betas:
        runtime.seed(1)
        recipe = PpoRecipe(beta=beta, epochs=2, minibatch=size // 2)
        policy, critic = copy.deepcopy(teller.model), critic_of(reward, *scale)
        groups = [{"params": policy.parameters(), "lr": PPO_LR}, {"params": critic.parameters(), "lr": CRITIC_LR}]
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0)
        passes = pool * READ
        for number in range(rounds + 1):
            told = Pool(sample(policy, size, seed=1000 + number), teller.vocabulary)
            score = (scores_of(reward, told.ids) - scale[0]) / scale[1]
            rollout = assess(policy, teller.model, critic, as_answers(told.ids), score, recipe)
            kl = float((rollout.kl * rollout.answered).sum(dim=1).mean())
            row: dict[str, Any] = {
                "beta": beta,
                "round": number,
                "compute": passes,
                "score": float(score.mean()),
                "kl": kl,
            }
            row |= shares(told.stories)
            if number in (0, rounds):
                row |= {"stories": [written(words) for words in told.stories[:3]], "scores": score[:3].tolist()}
            rows.append(row)
            if number < rounds:
                ppo_update(policy, critic, optimizer, rollout, recipe)
                passes += size * (3 * READ + recipe.epochs * LEARN)
    return rows


DPO_LR, DPO_STEPS, DPO_PAIRS, DPO_BETA = 3e-4, 48, 8, 0.3


def trained_dpo(teller: Storyteller, pool: Pool, *, beta: float, seed: int, steps: int = DPO_STEPS) -> Gpt:
    """A copy of the storyteller after DPO with pairs of the pool; the learning rate falls to 0."""
    runtime.seed(seed)
    policy, answers = copy.deepcopy(teller.model), as_answers(pool.ids)
    with torch.no_grad():
        parts = torch.arange(len(answers)).split(64)
        before = torch.cat([preferences.answer_log_probs(teller.model, answers.select(rows)) for rows in parts])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=DPO_LR, betas=(0.9, 0.99), weight_decay=0)
    for step, (chosen, rejected) in zip(range(steps), pairs(pool, DPO_PAIRS, seed), strict=False):
        optimizer.param_groups[0]["lr"] = DPO_LR * min(1, (step + 1) / 5) * (1 - step / steps)
        rows = torch.cat([chosen, rejected])
        now = preferences.answer_log_probs(policy, answers.select(rows))
        (now_w, now_l), (ref_w, ref_l) = now.chunk(2), before[rows].chunk(2)
        loss = dpo_loss(now_w, now_l, ref_w, ref_l, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return policy


@experiment
def dpo(
    runs: Sequence[tuple[float, int]] = ((DPO_BETA, 1), (DPO_BETA, 2), (DPO_BETA, 3)),
    pool: int = POOL,
    told: int = TOLD,
) -> list[dict[str, Any]]:
    """DPO from the storyteller, a run for each (β, seed), judged by new stories; and best of n by a reward model.

    The pool is that of `ppo`; the row of "storyteller" says what it is like.
    """
    known, teller = _pool(pool, seed=200)
    reward = trained_reward(known, seed=1)
    scores = scores_of(reward, known.ids)
    scale = (float(scores.mean()), float(scores.std()))
    given, consistent = zip(*((_gives(verdict), verdict.consistent) for verdict in known.verdicts), strict=True)
    found = zip(best_by_score(scores, given, NUMBERS), best_by_score(scores, consistent, NUMBERS), strict=True)
    rows: list[dict[str, Any]] = [{"method": "storyteller", "kl": 0.0, **shares(known.stories)}]
    for kind, right in found:
        shares_of = {"generous": kind["share"], "consistent": right["share"]}
        rows.append({"method": "best of n", "n": kind["n"], "kl": kind["kl"], **shares_of})
    compute = pool * 2 * READ + DPO_STEPS * 2 * DPO_PAIRS * LEARN
    for beta, seed in runs:
        policy = trained_dpo(teller, known, beta=beta, seed=seed)
        new = Pool(sample(policy, told, seed=300 + seed), teller.vocabulary)
        judged = _judged(policy, teller.model, reward, scale, new)
        rows.append({"method": "DPO", "beta": beta, "seed": seed, "compute": compute, **judged})
    return rows


# ---- what the stored runs say ----------------------------------------------------------------------------------------


def _at_beta(runs: DataFrame, beta: float = DPO_BETA) -> DataFrame:
    return runs[(runs["method"] == "DPO") & (runs["beta"] == beta)]


def claims_of_dpo(runs: DataFrame) -> dict[int, float]:
    """What DPO's stored runs gain, lose and pay."""
    start, after = runs[runs["method"] == "storyteller"].iloc[0], _at_beta(runs)
    return {
        2: after["generous"].min() - start["generous"],
        3: start["consistent"] - after["consistent"].mean(),
        4: after["kl"].max(),
    }


def _last(run: DataFrame) -> Series:
    return run.drop(columns=["stories", "scores"]).tail(3).mean()


def claims_of_betas(ppo: DataFrame) -> dict[int, float]:
    """How far the score rises and consistency falls without a penalty: last three rounds against the first."""
    free, held = (_last(ppo[ppo["beta"] == beta]) for beta in (0.0, ppo["beta"].max()))
    first = ppo[ppo["round"] == 0].drop(columns=["stories", "scores"]).mean()
    return {
        5: free["score"] - first["score"],
        6: first["consistent"] - free["consistent"],
        7: first["consistent"] - held["consistent"],
    }


def hacked(ppo: DataFrame, number: int = 2) -> None:
    """Prints the first stories of the last round without a penalty, with their score and what the checker says."""
    last = ppo[ppo["beta"] == 0].iloc[-1]
    for text, score in list(zip(last["stories"], last["scores"], strict=True))[:number]:
        verdict = check_story(text)
        wrong = len(verdict.faults) + len(verdict.unread)
        kind = "generous" if generous(words_of(text)) else "not generous"
        print(f"score {score:.1f}, {kind}, {wrong} contradictions or sentences that make no sense:\n{text}\n")


METHODS_BETA = 0.1  # of PPO's run that is compared with the other methods


def methods_of(runs: DataFrame, ppo: DataFrame) -> dict[str, DataFrame]:
    """For each method a row for each point: PPO's run averaged in threes, DPO's runs, best of several n."""
    held = ppo[ppo["beta"] == METHODS_BETA].drop(columns=["stories", "scores"])
    return {
        "PPO": held.rolling(3, min_periods=1, center=True).mean(),
        "DPO": runs[runs["method"] == "DPO"].sort_values("kl"),
        "best of n": runs[runs["method"] == "best of n"].drop(columns=["compute"]),
    }


def claims_of_methods(runs: DataFrame, ppo: DataFrame) -> dict[int, float]:
    """DPO beside PPO's round of the nearest compute, and beside best of the largest n whose KL is not above DPO's."""
    after, methods = _at_beta(runs)[["compute", "kl", "generous"]].mean(), methods_of(runs, ppo)
    at = (methods["PPO"]["compute"] - after["compute"]).abs().idxmin()
    best = methods["best of n"]
    return {
        8: after["generous"] - methods["PPO"].loc[at, "generous"],
        9: best[best["kl"] <= after["kl"]]["generous"].iloc[-1] - after["generous"],
    }


def side_by_side(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> HTML:
    """Stories in two columns, the first word of each with whether it is generous and consistent."""
    from IPython.display import HTML

    style = 'style="width:50%; text-align:left; vertical-align:top; white-space:normal"'
    rows = []
    for pair in zip(before, after, strict=True):
        cells = [f"<td {style}><b>{_label(words)}</b><br>{escape(written(words))}</td>" for words in pair]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th {style}>{name}</th>" for name in ("before", "after"))
    return HTML(f"<table><tr>{head}</tr>{''.join(rows)}</table>")


def _label(words: Sequence[str]) -> str:
    found = shares([words])
    names = [name if share else f"not {name}" for name, share in found.items()]
    return ", ".join(names)
