"""How the model's first weights are drawn, and what that does to its first loss and to its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from tfbook import data, runtime
from tfbook.course.batches import SortedBatches
from tfbook.course.experiments import experiment
from tfbook.lessons.gpt_pretraining.ladder import (
    BATCH,
    GPT,
    RATES,
    SEEDS,
    fit,
    loss_on_others,
    lowest,
    optimizer_of,
    stage,
)
from tfbook.lessons.gpt_pretraining.stories import training_rows

if TYPE_CHECKING:
    from pandas import DataFrame

STEPS = 120


def _as_pytorch(model: GPT) -> None:
    for part in model.modules():
        if isinstance(part, (nn.Embedding, nn.Linear)):
            part.reset_parameters()


BEGINNINGS: dict[str, Callable[[GPT], Any]] = {  # what changes the weights of a new model
    "0.02 in all matrices": lambda model: None,
    "embedding 1, the rest 0.02": lambda model: nn.init.normal_(model.embed.weight),
    "PyTorch's default": _as_pytorch,
}


@experiment
def beginnings(
    names: Sequence[str] = tuple(BEGINNINGS), *, steps: int = STEPS, rates: Sequence[float] = RATES["Muon"]
) -> list[dict[str, Any]]:
    """The model of two blocks from each kind of weights: loss on other stories before and after some steps.

    Each kind has its best learning rate, which seed 1 chose by the loss on stories held out.
    """
    return [row for name in names for row in _begun_as(name, steps, rates)]


def _begun_as(name: str, steps: int, rates: Sequence[float]) -> list[dict[str, Any]]:
    tried = {lr: _run(name, lr, SEEDS[0], steps) for lr in rates}
    best = lowest({lr: after for lr, (_, after) in tried.items()})
    pairs = [tried[best], *(_run(name, best, seed, steps) for seed in SEEDS[1:])]
    return [
        {"weights": name, "lr": best, "seed": seed, "first loss": round(before, 4), "loss": round(after, 4)}
        for seed, (before, after) in zip(SEEDS, pairs, strict=True)
    ]


def _run(name: str, lr: float, seed: int, steps: int) -> tuple[float, float]:
    """Loss on stories held out before and after the training."""
    runtime.seed(seed)
    model = stage("two blocks", len(data.load("stories").vocabulary)).to(runtime.device())
    BEGINNINGS[name](model)
    before = loss_on_others(model)
    batches = SortedBatches(training_rows(), size=BATCH, seed=seed)
    fit(model, optimizer_of("Muon", model, lr), lr, batches, steps)
    return before, loss_on_others(model)


def table_of_beginnings(frame: DataFrame) -> DataFrame:
    """Loss before and after the training by the kind of weights: mean and range of the seeds."""
    from tfbook.course.summaries import mean_and_range

    by_kind = frame.groupby("weights", sort=False)
    table = by_kind[["first loss", "loss"]].agg(lambda losses: mean_and_range(losses, 2))
    return table.rename(columns={"loss": f"after {STEPS} steps"}).rename_axis(None)


def claim_of_beginnings(frame: DataFrame) -> dict[int, float]:
    """Claim 14: loss from PyTorch's weights, in the best of its runs, minus that from small ones, in the worst."""
    losses = {kind: runs["loss"] for kind, runs in frame.groupby("weights")}
    return {14: float(losses["PyTorch's default"].min() - losses["0.02 in all matrices"].max())}
