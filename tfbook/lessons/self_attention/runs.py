"""How the stored runs of lesson 03 are trained, and which learning rate they are judged at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.lessons.self_attention.words import named_right, pronouns

Model = TypeVar("Model", bound=nn.Module)


def train_on(model: Model, loss: Callable[[int], Tensor], steps: int, lr: float) -> Model:
    """The model after so many steps of Adam; `loss` takes the number of the step."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for step in range(steps):
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
    return model


def reader_share(make: Callable[[], nn.Module], steps: int, lr: float, seed: int) -> float:
    """The share of right animals that a new model names, once it is trained on the sentences of words.py."""
    torch.manual_seed(seed)
    model = make()

    def loss(step: int) -> Tensor:
        batch = pronouns(64, seed=step)
        return F.cross_entropy(model(batch.ids), batch.target)

    return round(named_right(train_on(model, loss, steps, lr)), 4)


def at_best_rate(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[tuple[Any, ...], list[float]]:
    """The values of these columns → the shares at the learning rate with the best mean."""
    found: dict[tuple[Any, ...], dict[float, list[float]]] = {}
    for row in rows:
        by_rate = found.setdefault(tuple(row[name] for name in names), {})
        by_rate.setdefault(row["rate"], []).append(row["right"])
    return {key: max(by_rate.values(), key=sum) for key, by_rate in found.items()}
