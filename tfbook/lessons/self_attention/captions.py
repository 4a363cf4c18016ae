"""The contents of lesson 03's figures in words, computed from what is drawn: for alt texts and captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.lessons.self_attention.scenes import Scenes, is_right, middle


@torch.no_grad()
def describe_paintings(
    scenes: Scenes,
    models: Mapping[str, Sequence[Callable[[Tensor, Tensor], Tensor]]],
    right: Mapping[str, Sequence[float]],
) -> str:
    """How many parts of the first scene's gray shapes the middle run of each model paints right.

    `right` holds the shares of the runs.
    """
    said = []
    for name, runs in models.items():
        found = is_right(scenes, middle(runs, right[name])(scenes.kinds, scenes.colors))[0, scenes.asked[0]]
        said.append(f"{name}, {int(found.sum())} of {found.numel()}")
    return f"Right in the gray shapes: {'; '.join(said)}."


def describe_maps(scenes: Scenes, weights: Float[Tensor, "head query key"]) -> str:
    """Where each gray shape of the first scene has its largest weight, head by head."""
    names = [name.replace("?", " in gray") for name in scenes.names()]
    said = []
    for number, head in enumerate(weights, start=1):
        rows = [
            f"{name} looks most at {names[int(row.argmax())]} ({row.max():.2f})"
            for name, row in zip(names, head, strict=True)
            if "gray" in name
        ]
        said.append(f"{f'Head {number}: ' if len(weights) > 1 else ''}{'; '.join(rows)}.")
    return " ".join(said)


def describe_moves(scenes: Scenes, after: Float[Tensor, "scene token number"]) -> str:
    """How many of the first scene's tokens end at their color."""
    found = is_right(scenes, after)[0]
    return f"{int(found.sum())} of {found.numel()} arrows end at the right color."


def describe_pointing(sentences: Sequence[str], weights: Float[Tensor, "sentence key"], word: int) -> str:
    """At which word the word at place `word` looks most, sentence by sentence, each called by its last word."""
    said = []
    for sentence, row in zip(sentences, weights, strict=True):
        words = sentence.split()
        most = int(row.argmax())
        said.append(
            f"In the sentence that ends with “{words[-1]}”, “{words[word]}” looks most at “{words[most]}” "
            f"({row[most]:.2f})."
        )
    return " ".join(said)
