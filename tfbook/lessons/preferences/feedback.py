"""Lesson 12: stories in which somebody gives something; preference pairs, losses, and reward models on the storyteller.

Shapes: batch (stories), time; all begin with `<bos>`, end with `<eos>` if they ended, and are padded.
"""

from __future__ import annotations

import copy
import random
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tfbook import runtime
from tfbook.data.stories import Verdict, check_story, told, written
from tfbook.generation.sampling import stream
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel, ValueModel
from tfbook.pretrain.storyteller import LONGEST, Storyteller, load_storyteller
from tfbook.text.answers import Answers, generated_answers
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary
from tfbook.training import preferences
from tfbook.training.ppo import generalized_advantages

# ---- stories and what the reader prefers -----------------------------------------------------------------------------

GIVING = frozenset({"give", "gift", "share"})  # events of the story world


def generous(words: Sequence[str]) -> bool:
    """Whether somebody gives or shares something in a story."""
    return _gives(check_story(list(words)))


def shares(stories: Sequence[Sequence[str]]) -> dict[str, float]:
    """Shares of the stories that are generous, that are consistent, and that are both, which the reader likes."""
    verdicts = [check_story(list(words)) for words in stories]
    found = [(_gives(verdict), verdict.consistent) for verdict in verdicts]
    given, right = zip(*found, strict=True)
    return {
        "generous": sum(given) / len(stories),
        "consistent": sum(right) / len(stories),
        "liked": sum(map(all, found)) / len(stories),
    }


def demonstrations(number: int) -> list[tuple[str, ...]]:
    """Generous stories from the split "test", which no model has read."""
    found = (told("test", i) for i in count())
    kind = (story.words for story in found if any(event.event in GIVING for event in story.told))
    return [next(kind) for _ in range(number)]


def sample(model: Gpt, number: int, seed: int) -> Int[Tensor, "batch time"]:
    """Stories that the model writes at temperature 1, on the CPU; everything after an `<eos>` is padding."""
    from tfbook.training.progress import tqdm  # here, because it looks for a notebook when imported

    device = next(model.parameters()).device
    start = torch.full((number, 1), BOS, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    tokens = stream(model, start, max_new_tokens=LONGEST - 1, stop=[EOS], generator=generator)
    ids = torch.cat([start, *tqdm(tokens, total=LONGEST - 1, unit="token", leave=False)], dim=1).cpu()
    return ids.masked_fill((ids == EOS).cumsum(dim=1) > 1, PAD)


def as_answers(ids: Int[Tensor, "batch time"]) -> Answers:
    """Stories in the format of the package's losses: everything but `<bos>` is the answer."""
    return Answers(ids, generated_answers(ids, 1).answered & (ids != PAD))


def two_of(stories: Sequence[Sequence[str]]) -> str:
    """The first two stories as text, in lines of at most 95 characters."""
    return "\n\n".join(textwrap.fill(written(words), 95) for words in stories[:2])


@dataclass(frozen=True)
class Pool:
    """Stories by the storyteller, and the reader's verdict on each."""

    ids: Int[Tensor, "batch time"]
    vocabulary: Vocabulary

    @cached_property
    def stories(self) -> list[tuple[str, ...]]:
        """The stories as words."""
        return [self.vocabulary.decode(row) for row in self.ids]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The checker's verdict on each story."""
        return [check_story(list(words)) for words in self.stories]

    @cached_property
    def generous(self) -> Bool[Tensor, " batch"]:
        """Whether somebody gives or shares something, per story."""
        return torch.tensor([_gives(verdict) for verdict in self.verdicts])

    @cached_property
    def consistent(self) -> Bool[Tensor, " batch"]:
        """Whether nothing is contradicted, every sentence can be read, and the story ends, per story."""
        return torch.tensor([verdict.consistent for verdict in self.verdicts])

    @property
    def liked(self) -> Bool[Tensor, " batch"]:
        """Whether the reader likes it, per story: generous and consistent."""
        return self.generous & self.consistent

    @property
    def better(self) -> Int[Tensor, " better"]:
        """The rows of the preferred stories, which the reader likes."""
        return self.liked.nonzero()[:, 0]

    @property
    def worse(self) -> Int[Tensor, " worse"]:
        """The rows of the rejected stories, in which nobody gives anything."""
        return (~self.generous).nonzero()[:, 0]


def _gives(verdict: Verdict) -> bool:
    return any(event.event in GIVING for event in verdict.told)


def pairs(pool: Pool, size: int, seed: int, most: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of `size` rows of better stories and as many of worse ones, each row once per epoch.

    `most` limits each kind to its first so many stories. Raises ValueError for a pool that lacks one of the two kinds.
    """
    if not len(pool.better) or not len(pool.worse):
        raise ValueError(f"pool has {len(pool.better)} better and {len(pool.worse)} worse stories; expected both")
    generator = random.Random(seed)

    def rows(known: list[int]) -> Iterator[int]:
        while True:
            yield from generator.sample(known, len(known))

    chosen, rejected = (rows(each[:most].tolist()) for each in (pool.better, pool.worse))
    while True:
        drawn = [[next(source) for _ in range(size)] for source in (chosen, rejected)]
        yield torch.tensor(drawn[0]), torch.tensor(drawn[1])


# ---- the exercises' answers that the lesson builds on ----------------------------------------------------------------


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
    """`generalized_advantages` for texts without padding."""
    return generalized_advantages(rewards, values, torch.ones_like(values, dtype=torch.bool), gamma=gamma, lam=lam)


# ---- reward models ---------------------------------------------------------------------------------------------------

REWARD_STEPS, REWARD_LR, REWARD_PAIRS = 60, 1e-3, 12  # steps, learning rate, pairs per step


def trained_reward(pool: Pool, seed: int, most: int | None = None) -> RewardModel:
    """A reward model on the body of the draft, trained on pairs from the pool."""
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
    """Share of all pairs of a better and a worse story in which the better one has the higher score."""
    return float((scores[pool.better][:, None] > scores[pool.worse]).float().mean())


@torch.no_grad()
def scores_of(model: RewardModel, ids: Int[Tensor, "batch time"]) -> Float[Tensor, " batch"]:
    """The reward model's scores of stories."""
    answers = as_answers(ids)
    return model(answers.ids, answers.lengths)


def critic_of(model: RewardModel, mean: float, std: float) -> ValueModel:
    """A critic initialized with the reward model, its scores standardized, so that it predicts endings from the start.

    (Stiennon et al., 2020, appendix B.1.)
    """
    critic = copy.deepcopy(model.value)
    with torch.no_grad():
        critic.head.weight.div_(std)
        critic.head.bias.sub_(mean).div_(std)
    return critic


# ---- pools of stories ------------------------------------------------------------------------------------------------

POOL, HELD_OUT = 384, 160  # stories for training, and for evaluating a reward model
SEEDS = (1, 2, 3)


def pool_of(number: int, seed: int) -> tuple[Pool, Storyteller]:
    """A pool of the storyteller's stories, and the storyteller itself on the CPU."""
    teller = load_storyteller()
    model = teller.model.cpu()
    return Pool(sample(model, number, seed), teller.vocabulary), Storyteller(model, teller.vocabulary)
