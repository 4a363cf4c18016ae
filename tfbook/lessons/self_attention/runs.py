"""How the stored runs of lesson 03 are trained, and which learning rate they are judged at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.lessons.self_attention.words import named_right, pronouns

Model = TypeVar("Model", bound=nn.Module)


def train_on(model: Model, loss: Callable[[int], Tensor], steps: int, lr: float) -> Model:
    """The model after so many steps of Adam; `loss` takes the number of the step."""
    for _ in stages(model, loss, [steps], lr):
        pass
    return model


def stages(model: nn.Module, loss: Callable[[int], Tensor], lengths: Sequence[int], lr: float) -> Iterator[int]:
    """Trains the model with Adam, and stops after each number of steps in `lengths`."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for step in range(max(lengths)):
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
        if step + 1 in lengths:
            yield step + 1


def reader_loss(model: nn.Module) -> Callable[[int], Tensor]:
    """The loss of a model that names the animal, on the sentences of a step."""

    def loss(step: int) -> Tensor:
        batch = pronouns(64, seed=step)
        return F.cross_entropy(model(batch.ids), batch.target)

    return loss


def reader_shares(make: Callable[[], nn.Module], lengths: Sequence[int], lr: float, seed: int) -> dict[int, float]:
    """The share of right animals that a new model names after each number of steps, on the sentences of words.py."""
    torch.manual_seed(seed)
    model = make()
    return {steps: round(named_right(model), 4) for steps in stages(model, reader_loss(model), lengths, lr)}


def reader_share(make: Callable[[], nn.Module], steps: int, lr: float, seed: int) -> float:
    """The one share of `reader_shares`."""
    return reader_shares(make, [steps], lr, seed)[steps]


def at_best_rate(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[tuple[Any, ...], list[float]]:
    """The values of these columns → the shares at the learning rate with the best mean."""
    found: dict[tuple[Any, ...], dict[float, list[float]]] = {}
    for row in rows:
        by_rate = found.setdefault(tuple(row[name] for name in names), {})
        by_rate.setdefault(row["rate"], []).append(row["right"])
    return {key: max(by_rate.values(), key=sum) for key, by_rate in found.items()}
