"""Stored runs of lesson 12: PPO at several β and on other rewards, DPO at several β, SFT, and best of n.

Shapes: batch (stories), time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook import runtime
from tfbook.course.experiments import experiment
from tfbook.data.stories import story_ids, written
from tfbook.generation.best_of_n import best_of_n_kl
from tfbook.lessons.preferences.feedback import (
    POOL,
    SEEDS,
    Pool,
    as_answers,
    critic_of,
    demonstrations,
    dpo_loss,
    pairs,
    pool_of,
    sample,
    scores_of,
    shares,
    trained_reward,
)
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel, ValueModel
from tfbook.pretrain.storyteller import Storyteller
from tfbook.training import preferences
from tfbook.training.ppo import PpoRecipe, assess, ppo_update

TOLD = 160  # stories on which a policy is evaluated
READ, LEARN = 1, 3  # passes per story through the storyteller: to write or read it, to learn from it

# ---- the start of every run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beginning:
    """The storyteller, its pool of stories, and the reward model trained on them, with the scale of its scores."""

    pool: Pool
    teller: Storyteller
    reward: RewardModel
    mean: float
    std: float

    def scores(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, " batch"]:
        """The reward model's scores, in standard deviations above the pool's mean."""
        return (scores_of(self.reward, ids) - self.mean) / self.std

    def liked(self, pool: Pool) -> Float[Tensor, " batch"]:
        """The reader's own verdict, 1 or 0, standardized in the same way."""
        known = self.pool.liked.float()
        return (pool.liked.float() - known.mean()) / known.std()


def beginning(size: int = POOL) -> Beginning:
    """The pool and the reward model, the same for all runs."""
    pool, teller = pool_of(size, seed=200)
    reward = trained_reward(pool, seed=1)
    scores = scores_of(reward, pool.ids)
    return Beginning(pool, teller, reward, float(scores.mean()), float(scores.std()))


def _judged(start: Beginning, model: Gpt, seed: int, told: int) -> dict[str, float]:
    """Score, KL, and shares of new stories that the model writes."""
    new = Pool(sample(model, told, seed), start.teller.vocabulary)
    answers = as_answers(new.ids)
    with torch.no_grad():
        apart = preferences.answer_log_probs(model, answers) - preferences.answer_log_probs(start.teller.model, answers)
    return {"score": float(start.scores(new.ids).mean()), "kl": float(apart.mean()), **shares(new.stories)}


# ---- PPO -------------------------------------------------------------------------------------------------------------

PPO_LR, CRITIC_LR, MINIBATCH = 4e-4, 5e-4, 32
SIZES = {"rounds": 6, "size": 64, "told": TOLD}  # rounds with the pool's; stories of each other, and at the end
WARM_STEPS, WARM_LR, WARM_STORIES = 30, 1e-3, 48

Reward = Callable[[Beginning, Pool], Float[Tensor, " batch"]]
REWARDS: dict[str, Reward] = {
    "reward model": lambda start, told: start.scores(told.ids),
    "reader": lambda start, told: start.liked(told),
    "shuffled": lambda start, told: start.scores(told.ids)[torch.randperm(len(told.ids))],
}


def warmed_critic(start: Beginning, rewards: Float[Tensor, " pool"]) -> ValueModel:
    """A critic trained to predict the reward of the pool's stories from each of their prefixes."""
    critic = critic_of(start.reward, start.mean, start.std)
    optimizer = torch.optim.AdamW(critic.parameters(), lr=WARM_LR, weight_decay=0)
    answers = as_answers(start.pool.ids)
    for _ in range(WARM_STEPS):
        rows = torch.randperm(len(answers))[:WARM_STORIES]
        counts = answers.answered[rows, 1:]
        error = (critic(answers.ids[rows, :-1]) - rewards[rows, None]).square()
        optimizer.zero_grad()
        ((error * counts).sum() / counts.sum()).backward()
        optimizer.step()
    return critic


@dataclass
class Learner:
    """The models that PPO trains, and the passes spent so far."""

    policy: Gpt
    critic: ValueModel
    optimizer: torch.optim.AdamW
    passes: int


def first_round(start: Beginning, reward: str, seed: int) -> Learner:
    """The state after the round on the pool, which serves every β: the policy is still the reference, so KL is 0."""
    runtime.seed(seed)
    rewards = REWARDS[reward](start, start.pool)
    policy, critic = copy.deepcopy(start.teller.model), warmed_critic(start, rewards)
    groups = [{"params": policy.parameters(), "lr": PPO_LR}, {"params": critic.parameters(), "lr": CRITIC_LR}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0)
    recipe = PpoRecipe(epochs=1, minibatch=MINIBATCH)
    rollout = assess(policy, start.teller.model, critic, as_answers(start.pool.ids), rewards, recipe)
    ppo_update(policy, critic, optimizer, rollout, recipe)
    return Learner(policy, critic, optimizer, len(rewards) * (3 * READ + recipe.epochs * LEARN))


def later_rounds(
    start: Beginning, learner: Learner, reward: str, beta: float, seed: int, *, rounds: int, size: int, told: int
) -> Iterator[dict[str, Any]]:
    """PPO on `size` new stories per round: score, KL and shares of each round; then of the end, with some texts."""
    runtime.seed(seed)
    recipe = PpoRecipe(beta=beta, epochs=2, minibatch=MINIBATCH)
    policy, run = learner.policy, {"reward": reward, "beta": beta, "seed": seed}
    for number in range(1, rounds):
        batch = Pool(sample(policy, size, seed=1000 * seed + number), start.teller.vocabulary)
        rewards = REWARDS[reward](start, batch)
        rollout = assess(policy, start.teller.model, learner.critic, as_answers(batch.ids), rewards, recipe)
        kl = float((rollout.kl * rollout.answered).sum(dim=1).mean())
        found = {"score": float(start.scores(batch.ids).mean()), "kl": kl, **shares(batch.stories)}
        yield {**run, "round": number, "compute": learner.passes, **found}
        ppo_update(policy, learner.critic, learner.optimizer, rollout, recipe)
        learner.passes += size * (3 * READ + recipe.epochs * LEARN)
    few = Pool(sample(policy, min(8, told), seed=1000 * seed), start.teller.vocabulary)
    texts = {"stories": [written(words) for words in few.stories], "scores": start.scores(few.ids).tolist()}
    yield {**run, "round": rounds, "compute": learner.passes, **_judged(start, policy, 5000 + seed, told), **texts}


def ppo_runs(
    start: Beginning, rewards: Sequence[str], betas: Sequence[float], seeds: Sequence[int], sizes: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The rows of all runs; runs with the same reward and seed share their first round."""
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        for reward in rewards:
            learner = first_round(start, reward, seed)
            for beta in betas:
                rows += later_rounds(start, copy.deepcopy(learner), reward, beta, seed, **(SIZES | dict(sizes)))
    return rows


@experiment
def ppo(
    betas: Sequence[float] = (0.0, 0.1, 0.5), seeds: Sequence[int] = SEEDS, pool: int = POOL, **sizes: int
) -> list[dict[str, Any]]:
    """PPO on the reward model at several β: score, KL and shares of each round, and some of the last stories."""
    return ppo_runs(beginning(pool), ["reward model"], betas, seeds, sizes)


@experiment
def control(
    rewards: Sequence[str] = ("reader", "shuffled"), seeds: Sequence[int] = SEEDS, pool: int = POOL, **sizes: int
) -> list[dict[str, Any]]:
    """PPO with β = 0 on the reader's verdict, and on the reward model's scores in random order; else like `ppo`."""
    return ppo_runs(beginning(pool), rewards, [0.0], seeds, sizes)


# ---- DPO, SFT, best of n ---------------------------------------------------------------------------------------------

DPO_LR, DPO_STEPS, DPO_PAIRS, DPO_BETA = 4e-4, 24, 24, 1.0
SFT_LR, SFT_STEPS, SFT_STORIES, SHOWN = 6e-4, 16, 16, 128
NUMBERS = (1, 2, 4, 8, 16)  # stories to choose from


def trained_dpo(teller: Storyteller, pool: Pool, *, beta: float, seed: int, steps: int = DPO_STEPS) -> Gpt:
    """A copy of the storyteller after DPO on pairs from the pool; the learning rate falls to 0."""
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


def trained_sft(teller: Storyteller, *, seed: int, steps: int = SFT_STEPS) -> Gpt:
    """A copy of the storyteller after supervised fine-tuning on generous stories of the world."""
    runtime.seed(seed)
    policy = copy.deepcopy(teller.model)
    answers = as_answers(story_ids(demonstrations(SHOWN), teller.vocabulary))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=SFT_LR, weight_decay=0)
    for _ in range(steps):
        loss = preferences.answer_loss(policy, answers.select(torch.randperm(len(answers))[:SFT_STORIES])).mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


def best_by_score(scores: Float[Tensor, " pool"], good: Bool[Tensor, " pool"], numbers: Sequence[int]) -> list[float]:
    """For each n, the share of all choices of n stories whose highest-scoring one is good.

    Like `expected_best`, with another quantity in place of the score.
    """
    size, ordered = len(scores), good.double()[scores.argsort()]
    weights = [[comb(i, n - 1) / comb(size, n) for i in range(size)] for n in numbers]
    return [float(torch.tensor(each, dtype=torch.float64) @ ordered) for each in weights]


def _best_of_n(start: Beginning, new: Pool) -> list[dict[str, Any]]:
    """Shares of best of n for several n, chosen by the reward model from stories that it has not seen."""
    scores = start.scores(new.ids)
    kinds = {"generous": new.generous, "consistent": new.consistent, "liked": new.liked}
    found = {kind: best_by_score(scores, good, NUMBERS) for kind, good in kinds.items()}
    rows = [{kind: shares_of[i] for kind, shares_of in found.items()} for i in range(len(NUMBERS))]
    return [{"method": "best of n", "n": n, "kl": best_of_n_kl(n), **row} for n, row in zip(NUMBERS, rows, strict=True)]


@experiment
def methods(
    betas: Sequence[float] = (0.3, DPO_BETA, 3.0),
    seeds: Sequence[int] = SEEDS,
    pool: int = POOL,
    told: int = TOLD,
    new: int = 768,
) -> list[dict[str, Any]]:
    """The storyteller and best of n on new stories, then SFT and DPO, each evaluated on its own stories."""
    start = beginning(pool)
    reader = Pool(sample(start.teller.model, new, seed=201), start.teller.vocabulary)
    score = float(start.scores(reader.ids).mean())
    rows: list[dict[str, Any]] = [{"method": "storyteller", "kl": 0.0, "score": score, **shares(reader.stories)}]
    rows += _best_of_n(start, reader)
    costs = {"SFT": SFT_STEPS * SFT_STORIES * LEARN, "DPO": pool * 2 * READ + DPO_STEPS * 2 * DPO_PAIRS * LEARN}
    for seed in seeds:
        judged = _judged(start, trained_sft(start.teller, seed=seed), 400 + seed, told)
        rows.append({"method": "SFT", "seed": seed, "compute": costs["SFT"], **judged})
        for beta in betas:
            policy = trained_dpo(start.teller, start.pool, beta=beta, seed=seed)
            row = {"method": "DPO", "beta": beta, "seed": seed, "compute": costs["DPO"]}
            rows.append(row | _judged(start, policy, 300 + seed, told))
    return rows
