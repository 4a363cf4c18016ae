"""Rivals of one sequence: the picture and the question meet late in a product, the question glances
at the tiles, or each tile meets it alone.

Shapes: scene, tile, word (padded), answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment, stored
from tfbook.data.scenes import COLORS, KINDS, Scene
from tfbook.lessons.modalities.asking_pictures import (
    D_TOKEN,
    FORMS,
    QUARTERS,
    TILES,
    WORDS,
    Asked,
    PictureSpeaker,
    answered_right,
    asked_batches,
    asked_of,
    asking_recipe,
    exam,
    in_quarters,
    tile_tokens,
    train_speaker,
)
from tfbook.lessons.modalities.pictures_and_words import CLOSE, clip, close_ups, train_clip

if TYPE_CHECKING:
    from pandas import DataFrame, Series

ANSWERS = (
    "nothing",
    *COLORS,
    *QUARTERS,
    *(f"a {kind}" for kind in KINDS),
    *(f"a {color} {kind}" for color, kind in product(COLORS, KINDS)),
)
LONGEST = 6  # words of a question, with its mark

# ---- models that choose an answer ------------------------------------------------------------------------------------


class _Chooser(nn.Module):
    """A GRU makes one vector of the question; a class for each answer."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.embed = nn.LayerNorm(D_TOKEN), nn.Embedding(len(WORDS), 64)
        self.gru = nn.GRU(64, width, batch_first=True)
        self.head = nn.Linear(width, len(ANSWERS))

    def question(self, ids: Int[Tensor, "scene word"], lengths: Int[Tensor, " scene"]) -> Float[Tensor, "scene width"]:
        """The state after the question's last word; what follows is not read."""
        states, _ = self.gru(self.embed(ids))
        return states[torch.arange(len(ids), device=ids.device), lengths - 1]


class LateMeeting(_Chooser):
    """One vector of the picture times one of the question (after Antol et al., 2015)."""

    def __init__(self, width: int = 128):
        super().__init__(width)
        self.layers = nn.ModuleList([nn.Linear(TILES * D_TOKEN, width), nn.Linear(width, width)])

    def forward(
        self, tiles: Float[Tensor, "scene tile d_token"], ids: Int[Tensor, "scene word"], lengths: Int[Tensor, " scene"]
    ) -> Float[Tensor, "scene answer"]:
        """The logits of all answers."""
        picture, mix = self.layers
        met = picture(self.norm(tiles).flatten(1)).tanh() * self.question(ids, lengths).tanh()
        return self.head(F.relu(mix(met)))


class Glances(_Chooser):
    """The question's vector attends to the tiles, takes in what it sees, and attends again (Yang et al., 2016)."""

    def __init__(self, glances: int = 2, width: int = 128):
        super().__init__(width)
        self.key, self.value = (nn.Linear(D_TOKEN, width) for _ in range(2))
        self.places = nn.Parameter(torch.randn(TILES, width) / 2)
        self.queries = nn.ModuleList([nn.Linear(width, width) for _ in range(glances)])
        self.mixes = nn.ModuleList(
            [nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(glances)]
        )

    def forward(
        self, tiles: Float[Tensor, "scene tile d_token"], ids: Int[Tensor, "scene word"], lengths: Int[Tensor, " scene"]
    ) -> Float[Tensor, "scene answer"]:
        """The logits of all answers."""
        asked, tiles = self.question(ids, lengths), self.norm(tiles)
        keys, values = self.key(tiles) + self.places, self.value(tiles) + self.places
        for query, mix in zip(self.queries, self.mixes, strict=True):
            seen = F.scaled_dot_product_attention(query(asked)[:, None], keys, values)[:, 0]
            asked = asked + mix(torch.cat([asked, seen], dim=1))
        return self.head(asked)


class SumOverTiles(nn.Module):
    """Each tile, its place and the question's words in one small MLP; the sum over tiles in another: no attention."""

    def __init__(self, width: int = 128, d_word: int = 24):
        super().__init__()
        self.norm, self.embed = nn.LayerNorm(D_TOKEN), nn.Embedding(len(WORDS), d_word)
        self.places = nn.Parameter(torch.randn(TILES, d_word) / 2)
        inputs = D_TOKEN + d_word + LONGEST * d_word
        self.layers = nn.ModuleList([nn.Linear(inputs, width), *(nn.Linear(width, width) for _ in range(2))])
        self.head = nn.Linear(width, len(ANSWERS))

    def forward(
        self, tiles: Float[Tensor, "scene tile d_token"], ids: Int[Tensor, "scene word"], lengths: Int[Tensor, " scene"]
    ) -> Float[Tensor, "scene answer"]:
        """The logits of all answers; a question has at most `LONGEST` words, and missing ones are zeros."""
        there = torch.arange(LONGEST, device=ids.device) < lengths[:, None]
        words = (self.embed(ids[:, :LONGEST]) * there[..., None]).flatten(1)
        places = self.places.expand(len(tiles), -1, -1)
        x = torch.cat([self.norm(tiles), places, words[:, None].expand(-1, TILES, -1)], dim=-1)
        alone, again, together = self.layers
        each = F.relu(again(F.relu(alone(x))))
        return self.head(F.relu(together(each.sum(dim=1))))


def answer_classes(batch: Asked) -> Int[Tensor, " scene"]:
    """The number of each answer among `ANSWERS`."""
    rows = [ids[words].tolist()[:-1] for ids, words in zip(batch.ids.cpu(), batch.answer.cpu(), strict=True)]
    texts = [" ".join(WORDS.tokens[number] for number in row) for row in rows]
    return torch.tensor([ANSWERS.index(text) for text in texts], device=batch.ids.device)


def choosing_loss(model: nn.Module, batch: Asked) -> Float[Tensor, ""]:
    """The mean of −log p(answer), in nats."""
    return F.cross_entropy(model(batch.tiles, batch.ids, batch.lengths), answer_classes(batch))


@torch.no_grad()
def chosen_right(
    model: nn.Module, scenes: Sequence[Scene], tiles: Float[Tensor, "scene tile d_token"]
) -> dict[str, float]:
    """`answered_right` of a model that chooses among `ANSWERS`."""
    batches = {form: asked_of(tiles, exam(scenes, form)) for form in FORMS}
    said = {form: model(batch.tiles, batch.ids, batch.lengths).argmax(dim=1) for form, batch in batches.items()}
    return {form: float((said[form] == answer_classes(batch)).float().mean()) for form, batch in batches.items()}


# ---- experiments -----------------------------------------------------------------------------------------------------

TAUGHT, UNSEEN = 1500, 300  # scenes
SPEAKING, BLIND = "one sequence", "one sequence, picture hidden"
LATE, GLANCES, SUMS, LONGER = "meeting late", "two glances", "sum over tiles", ", four times the steps"
CHOOSERS: dict[str, Callable[[], nn.Module]] = {
    LATE: LateMeeting,
    LATE + LONGER: LateMeeting,
    GLANCES: Glances,
    GLANCES + LONGER: Glances,
    SUMS: SumOverTiles,
    SUMS + LONGER: SumOverTiles,
}
LATER = (SUMS, SUMS + LONGER)  # with stored runs of their own


def _right(
    name: str, seed: int, steps: int, taught: tuple[Sequence[Scene], Tensor], asked: tuple[Sequence[Scene], Tensor]
) -> dict[str, Any]:
    runtime.seed(seed)
    if name not in CHOOSERS:
        speaker = PictureSpeaker()
        train_speaker(speaker, *taught, seed=seed, steps=steps)
        return {"parameters": parameters(speaker)} | answered_right(speaker, *asked)
    model = CHOOSERS[name]().to(runtime.device())
    steps = 4 * steps if name.endswith(LONGER) else steps
    training.fit(model, choosing_loss, asked_batches(*taught, 96, seed), asking_recipe(steps))
    return {"parameters": parameters(model)} | chosen_right(model.cpu().eval(), *asked)


def _asked_all(names: Sequence[str], seeds: Sequence[int], steps: int, tower_steps: int) -> list[dict[str, Any]]:
    scenes, unseen = in_quarters("train", TAUGHT), in_quarters("test", UNSEEN)
    found: list[dict[str, Any]] = []
    for seed in seeds:
        own = clip(seed, side=CLOSE)
        train_clip(own, close_ups("train", 600), seed=seed, steps=tower_steps, size=48, lr=2e-3)
        known, asked = (tile_tokens(own.images, some) for some in (scenes, unseen))
        for name in names:
            shown = 0.0 if name == BLIND else 1.0
            shares = _right(name, seed, steps, (scenes, known * shown), (unseen, asked * shown))
            found.append({"model": name, "seed": seed} | {key: round(value, 4) for key, value in shares.items()})
    return found


@experiment
def answering(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400, tower_steps: int = 360) -> list[dict[str, Any]]:
    """Right answers about unseen scenes by form: one sequence, the same without the picture, and four rivals.

    Each seed has a tower of its own, trained as on the page; all models of a seed see its tokens and scenes, and all
    have the same recipe.
    """
    names = (SPEAKING, BLIND, *(name for name in CHOOSERS if name not in LATER))
    return _asked_all(names, seeds, steps, tower_steps)


@experiment
def answering_sums(
    seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400, tower_steps: int = 360
) -> list[dict[str, Any]]:
    """The same of the rivals that sum over tiles: the same towers, tokens, scenes, and recipe."""
    return _asked_all(LATER, seeds, steps, tower_steps)


# ---- tables ----------------------------------------------------------------------------------------------------------


def all_answers() -> DataFrame:
    """The stored runs of `answering` and of `answering_sums` in one table."""
    import pandas as pd

    return pd.concat([stored(f"modalities.{name}").frame for name in ("answering", "answering_sums")])


def answering_means() -> dict[str, list[float]]:
    """The stored mean over the forms for each seed."""
    runs = all_answers()
    return {str(name): own[list(FORMS)].mean(axis=1).tolist() for name, own in runs.groupby("model", sort=False)}


def answering_table() -> DataFrame:
    """The stored shares of right answers to *where*, and to the other forms as a mean: over seeds, with the range."""
    runs = all_answers()
    runs["what"] = runs[[form for form in FORMS if form != "where"]].mean(axis=1)
    found = runs.groupby("model", sort=False)[["what", "where"]].agg(_with_range)
    return found.rename(columns={"what": "what color, kind, is at", "where": "where"}).rename_axis(None)


def _with_range(shares: Series) -> str:
    return f"{shares.mean():.0%} ({shares.min():.0%} to {shares.max():.0%})"
