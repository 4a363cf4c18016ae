"""Where the characters of a story may go: what the storyteller has learned about home, and what it should have."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import torch

from tfbook.data.stories import WORLD, words_of
from tfbook.data.stories.lexicon import PLACES, PREPOSITIONS
from tfbook.pretrain.storyteller import Storyteller
from tfbook.text.vocabulary import BOS

if TYPE_CHECKING:
    from pandas import DataFrame

GOING = "Once there was a curious owl named Anna who lived {} the {}. She had a golden drum. One day, Anna went to the"
HERE = PLACES[: WORLD.places]


def places_by_home(teller: Storyteller) -> DataFrame:
    """The probability of each place after `GOING`, by where Anna lives.

    Means over her homes: the place itself, others with the same preposition, and all others.
    """
    import pandas as pd

    of_home = {home: _places(teller, home) for home in HERE}
    return pd.DataFrame([_row(place, of_home) for place in HERE], index=[f"{PREPOSITIONS[p]} the {p}" for p in HERE])


def _row(place: str, of_home: dict[str, dict[str, float]]) -> dict[str, float]:
    others = [home for home in HERE if home != place]
    alike = [of_home[home][place] for home in others if PREPOSITIONS[home] == PREPOSITIONS[place]]
    unlike = [of_home[home][place] for home in others if PREPOSITIONS[home] != PREPOSITIONS[place]]
    return {
        "she lives there": of_home[place][place],
        "elsewhere, same preposition": fmean(alike) if alike else float("nan"),
        "elsewhere, another one": fmean(unlike),
    }


@torch.no_grad()
def _places(teller: Storyteller, home: str) -> dict[str, float]:
    """The probability of each place for this home."""
    words = words_of(GOING.format(PREPOSITIONS[home], home))
    ids = torch.tensor([[BOS, *teller.vocabulary.encode(words)]], device=next(teller.model.parameters()).device)
    shares = teller.model(ids)[0, -1].softmax(dim=-1)
    return dict(zip(HERE, shares[teller.vocabulary.encode(HERE)].tolist(), strict=True))
