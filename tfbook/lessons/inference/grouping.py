"""Grouped queries in lesson 16: the storyteller's heads converted to groups, and trained a little further."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tfbook import runtime, training
from tfbook.attention.grouped_query import with_groups
from tfbook.course.experiments import experiment
from tfbook.course.roofline import cache_bytes
from tfbook.data.stories import StoryBatches, story_ids, told
from tfbook.lessons.inference import exercises
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import LanguageModel
from tfbook.pretrain.storyteller import BATCH, STEPS, Storyteller, judge, load_storyteller, story_loss

GROUPS = (6, 3, 2, 1)  # of keys and values, for six heads of queries
UPTRAINING = 80  # steps, 2% of the storyteller's 4,000
JUDGED = 200  # held-out stories that judge what was trained further; those after them choose its learning rate

Pooling = Callable[[Tensor, int, int], Tensor]  # a weight, the heads and the groups → a smaller weight


def held_out(count: int, teller: Storyteller, *, first: int = 0) -> Int64[Tensor, "story time"]:
    """Stories from number `first` on that the storyteller was not trained on, padded."""
    return story_ids([told("valid", number).words for number in range(first, first + count)], teller.vocabulary)


@torch.no_grad()
def loss_on(model: LanguageModel, ids: Int64[Tensor, "story time"]) -> float:
    """Nats per token."""
    return float(story_loss(model, ids).mean)


pool_heads = exercises.pool_heads.reference  # the mean of the heads of a group


def converted(model: Gpt, groups: int, pool: Pooling = pool_heads) -> Gpt:
    """The model with W_K and W_V of each layer pooled to `groups` groups by `pool`, which is asked for biases, too."""
    twin = with_groups(model, groups)
    with torch.no_grad():
        for old, new in zip(model.stack.blocks, twin.stack.blocks, strict=True):
            before, after = old.mixer.branch, new.mixer.branch
            for name in ("W_K", "W_V"):
                theirs, ours = getattr(before, name), getattr(after, name)
                ours.weight.copy_(pool(theirs.weight, before.heads, groups))
                ours.bias.copy_(pool(theirs.bias[:, None], before.heads, groups)[:, 0])
    return twin


def first_heads(W: Float[Tensor, "out d_model"], heads: int, groups: int) -> Float[Tensor, "fewer d_model"]:
    """The rows of the first head of each group, for comparison."""
    return W.unflatten(0, (groups, heads // groups, -1))[:, 0].flatten(0, 1)


def uptrain(model: Gpt, steps: int, seed: int, lr: float) -> Gpt:
    """A copy of the model, trained for some more steps on stories of its training set."""
    twin = copy.deepcopy(model).train()
    recipe = training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=lr,
        weight_decay=0.1,
        embedding_lr_factor=0.1,
        embedding_decay_factor=0,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(max(1, steps // 10), 0.0),
        mixed_precision=False,
    )
    batches = StoryBatches(size=BATCH)
    training.fit(twin, story_loss, lambda step: batches(STEPS["storyteller"] * (1 + seed) + step), recipe)
    return twin.eval()


CONVERSIONS = (("mean", 6), ("mean", 3), ("mean", 2), ("mean", 1), ("first", 2))
POOLINGS: dict[str, Pooling] = {"mean": pool_heads, "first": first_heads}


@experiment
def uptraining(
    conversions: tuple[tuple[str, int], ...] = CONVERSIONS,
    seeds: int = 3,
    steps: int = UPTRAINING,
    stories: int = JUDGED,
    sampled: int = 100,
    lr: float = 0.01,
) -> list[dict[str, Any]]:
    """A row for each conversion and seed: the cache, the loss before and after, and the share of right stories.

    With as many groups as heads nothing is converted: that row says what further training alone does.
    """
    teller = load_storyteller()
    ids, rows = held_out(stories, teller), []
    for name, groups in conversions:
        model = converted(teller.model, groups, POOLINGS[name])
        before = loss_on(model, ids)
        for seed in range(seeds):
            runtime.seed(seed)
            trained = uptrain(model, steps, seed, lr)
            right = judge(Storyteller(trained, teller.vocabulary), sampled, temperature=0.7, seed=seed)
            rows.append(
                {
                    "pooling": name,
                    "groups": groups,
                    "seed": seed,
                    "steps": steps,
                    "lr": lr,
                    "bytes per position": cache_bytes(model, 1),
                    "before": before,
                    "after": loss_on(trained, ids),
                    "right": right["consistent"],
                }
            )
    return rows


@experiment
def uptraining_rates(
    rates: tuple[float, ...] = (0.005, 0.01, 0.02), groups: int = 2, steps: int = UPTRAINING, stories: int = 200
) -> list[dict[str, Any]]:
    """A row for each learning rate: the loss of the mean of heads on stories on which nothing else is judged.

    `uptraining` takes 0.01, which is not the best of them: its losses could be a little lower.
    """
    teller = load_storyteller()
    ids, model = held_out(stories, teller, first=JUDGED), converted(teller.model, groups)
    rows = []
    for lr in rates:
        runtime.seed(0)
        rows.append({"lr": lr, "groups": groups, "steps": steps, "after": loss_on(uptrain(model, steps, 0, lr), ids)})
    return rows


def uptrained(rows: Sequence[dict[str, Any]], pooling: str, groups: int) -> dict[str, Any]:
    """The cache, the loss before, and means, lowest and highest of loss and right stories after, over seeds."""
    chosen = [row for row in rows if (row["pooling"], row["groups"]) == (pooling, groups)]
    after, right = ([row[key] for row in chosen] for key in ("after", "right"))
    return {
        "bytes": chosen[0]["bytes per position"],
        "before": chosen[0]["before"],
        "after": fmean(after),
        "lowest": min(after),
        "highest": max(after),
        "right": fmean(right),
    }
