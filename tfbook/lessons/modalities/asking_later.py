"""Four times the steps for the rival that meets late in lesson 19: does its gap to the joined sequence close?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfbook import runtime, training
from tfbook.course.experiments import experiment
from tfbook.lessons.modalities.asking_pictures import (
    LATE,
    TAUGHT,
    UNSEEN,
    LateMeeting,
    asked_batches,
    in_quarters,
    late_loss,
    late_right,
    tile_tokens,
)
from tfbook.lessons.modalities.pictures_and_words import CLOSE, clip, close_ups, recipe, train_clip


@experiment
def answering_later(
    seeds: Sequence[int] = (1, 2), *, steps: int = 1600, tower_steps: int = 360, lr: float = 1e-2
) -> list[dict[str, Any]]:
    """The late meeting of `answering` with four times the steps, at the rate that was best: towers, scenes as there."""
    scenes, unseen = in_quarters("train", TAUGHT), in_quarters("test", UNSEEN)
    found = []
    for seed in seeds:
        own = clip(seed, side=CLOSE)
        train_clip(own, close_ups("train", 600), seed=seed, steps=tower_steps, size=48, lr=2e-3)
        known, asked = (tile_tokens(own.images, some) for some in (scenes, unseen))
        runtime.seed(seed)
        model = LateMeeting().to(runtime.device())
        training.fit(model, late_loss, asked_batches(scenes, known, 96, seed), recipe(steps, lr))
        right = late_right(model.cpu().eval(), unseen, asked)
        shares = {form: round(share, 4) for form, share in right.items()}
        found.append({"model": LATE, "steps": steps, "lr": lr, "seed": seed} | shares)
    return found
