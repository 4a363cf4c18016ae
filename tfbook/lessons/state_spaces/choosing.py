"""Mamba and the lantern: the task in which the words have to choose, with Δ, B and C set by the word or not.

Shapes: batch, time, d (of the words), width, state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.course.experiments import experiment
from tfbook.lessons.state_spaces.keeping import HOLDERS, IDLE, right_by_gap, train_keeper
from tfbook.lessons.state_spaces.selecting import PARTS, SteadyScan
from tfbook.models.state_spaces import Mamba

if TYPE_CHECKING:
    from pandas import DataFrame

D, WIDTH, STATE = 32, 32, 8


class MambaKeeper(nn.Module):
    """Says after each word who has the lantern: an embedding, one Mamba, a linear layer.

    `without` "Δ" sets W_Δ = 0 and leaves b_Δ to be learned; without "B and C" both are learned vectors.
    """

    def __init__(self, without: Sequence[str] = ()):
        super().__init__()
        self.embed, self.read = nn.Embedding(len(HOLDERS + IDLE), D), nn.Linear(D, len(HOLDERS))
        self.mixer = Mamba(D, 1, width=WIDTH, state=STATE)
        if "Δ" in without:
            nn.init.zeros_(self.mixer.W_step.weight).requires_grad_(False)
        if "B and C" in without:
            self.mixer.selective = SteadyScan(STATE)

    def forward(self, words: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time holders"]:
        """Logits of who has the lantern."""
        return self.read(self.mixer(self.embed(words)))


@experiment
def chosen(*, steps: int = 200, seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """Right answers by the words since the lantern changed hands, with parts of Mamba the same at each word."""
    found = []
    for without in ((), ("Δ",), ("B and C",), PARTS):
        for seed in seeds:
            runtime.seed(seed)
            model = train_keeper(MambaKeeper(without), steps=steps, seed=seed)
            shares = [round(share, 4) for share in right_by_gap(model)]
            found.append({"still": " and ".join(without), "seed": seed, "right": shares})
            print(found[-1], flush=True)
    return found


def chosen_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Right answers beyond 48 words, each seed, by what is the same at each word."""
    import pandas as pd

    far: dict[str, list[str]] = {}
    for row in rows:
        far.setdefault(row["still"] or "nothing", []).append(f"{row['right'][-1]:.2f}")
    table = pd.DataFrame({"right beyond 48 words": {still: ", ".join(each) for still, each in far.items()}})
    return table.rename_axis("the same at each word")


@torch.no_grad()
def steps_taken(model: Any, names: Sequence[str]) -> Float[Tensor, "words width"]:
    """Δ of each channel at each of these words; the model has `embed` and a Mamba, `mixer`."""
    words = torch.tensor([[(HOLDERS + IDLE).index(name) for name in names]], device=runtime.device())
    seen: list[Tensor] = []
    hook = model.mixer.W_step.register_forward_hook(lambda _, given, found: seen.append(found))
    model(words)
    hook.remove()
    return F.softplus(seen[0][0] + model.mixer.step_bias).cpu()
