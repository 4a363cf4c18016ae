"""Norms in a deep stack, and where they go: a small task with the same learning rates for every variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention import POSITIONS
from tfbook.course.experiments import experiment
from tfbook.course.summaries import mean_and_range
from tfbook.models.blocks import Config, PostNorm, PreNorm
from tfbook.models.language_model import BidirectionalModel, LanguageModel

if TYPE_CHECKING:
    from pandas import DataFrame


def xavier(model: nn.Module) -> None:
    """Weights of variance 2 / (inputs + outputs), larger than PyTorch's default, and biases 0 (Glorot & Bengio, 2010).

    The embedding matrix, which may be tied to the output, is left unchanged.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)


SYMBOLS, LENGTH = 10, 8  # rows of eight symbols out of ten, to be reversed
KNOWING_NOTHING = math.log(SYMBOLS)  # nats per symbol
NOT_WHERE = 1.65  # for a model that knows a row's symbols but not their order: a mean over random rows
DEEP = Config(d_model=32, heads=4, d_ff=128, layers=6, position=POSITIONS["sinusoidal"])
RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # the same for every variant
DIVERGED = 10.0  # nats per symbol: replaces every larger loss, infinite ones included

# ---- variants --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StackVariant:
    """A stack of blocks, and whether its learning rate is warmed up."""

    config: Config = DEEP
    branch_norms: bool = True
    last_norm: bool = True  # at the end of the stack
    xavier: bool = True  # or PyTorch's initialization, whose matrices are smaller
    warmup: int = 1  # steps until the learning rate is reached

    def build(self) -> BidirectionalModel:
        """The untrained stack, on the chosen device."""
        model = BidirectionalModel(SYMBOLS, self.config)
        if self.xavier:
            xavier(model)
        branches = [part for block in model.stack.blocks for part in (block.mixer, block.feed_forward)]
        for part in ([] if self.branch_norms else branches) + ([] if self.last_norm else [model.stack]):
            part.norm = nn.Identity()
        return model.to(runtime.device())

    def trained(self, *, lr: float, steps: int, seed: int) -> list[float]:
        """The loss at each step of Adam; training ends early if the loss becomes infinite."""
        runtime.seed(seed)
        model, losses = self.build(), []
        optimizer = torch.optim.Adam(model.parameters(), lr, betas=(0.9, 0.98))
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / self.warmup)
            loss = reversal_loss(model, reversal(step).to(runtime.device()))
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses


def reversal(step: int, *, rows: int = 32) -> Int[Tensor, "row length"]:
    """Random rows of symbols to reverse, always the same for a given step."""
    return torch.randint(SYMBOLS, (rows, LENGTH), generator=torch.Generator().manual_seed(step))


def reversal_loss(model: nn.Module, rows: Int[Tensor, "row length"]) -> Float[Tensor, ""]:
    """Cross-entropy in nats per symbol."""
    return F.cross_entropy(model(rows).flatten(0, 1).float(), rows.flip(1).flatten())


_WARMUP = 80
_POST = StackVariant(config=replace(DEEP, residual=PostNorm))
VARIANTS = {
    "pre-norm": StackVariant(),
    "post-norm": _POST,
    "pre-norm, warm-up": StackVariant(warmup=_WARMUP),
    "post-norm, warm-up": replace(_POST, warmup=_WARMUP),
    "post-norm, small weights": replace(_POST, xavier=False),
    "pre-norm, small weights": StackVariant(xavier=False),
    "no norms, small weights": StackVariant(branch_norms=False, last_norm=False, xavier=False),
}


@experiment
def norms(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 200) -> list[dict[str, Any]]:
    """Every variant at every learning rate: the loss before training, and the mean over the last twenty steps."""
    rows = []
    for seed, (name, variant), lr in product(seeds, VARIANTS.items(), RATES):
        losses = variant.trained(lr=lr, steps=steps, seed=seed)
        last = min(fmean(losses[-20:]), DIVERGED) if len(losses) == steps else DIVERGED
        rows.append({"variant": name, "lr": lr, "seed": seed, "first": round(losses[0], 3), "last": round(last, 4)})
    return rows


@experiment
def patience(seeds: Sequence[int] = (1, 2, 3), *, at: Sequence[int] = (200, 400, 600)) -> list[dict[str, Any]]:
    """Both norms after more steps, at the two smallest rates: the mean loss over the twenty steps before each count."""
    rows = []
    for seed, lr, name in product(seeds, RATES[:2], ("pre-norm", "post-norm", "post-norm, warm-up")):
        losses = VARIANTS[name].trained(lr=lr, steps=max(at), seed=seed)
        rows += [
            {
                "variant": name,
                "lr": lr,
                "seed": seed,
                "steps": steps,
                "loss": round(fmean(losses[steps - 20 : steps]), 4),
            }
            for steps in at
        ]
    return rows


def with_patience(runs: DataFrame) -> DataFrame:
    """The losses of `patience`, mean and range over seeds: one row per variant and rate, one column per count."""
    row = runs["variant"] + ", rate " + runs["lr"].astype(str)
    losses = runs.assign(row=row).groupby(["row", "steps"], sort=False)["loss"]
    cells = losses.apply(partial(mean_and_range, digits=2)).unstack("steps")
    return cells.rename(columns="after {} steps".format).rename_axis(index=None, columns=None)


def learned(runs: DataFrame) -> dict[int, float]:
    """Claims 9 and 10, without warm-up: pre-norm's worst run at its best rate, and post-norm's best run overall."""
    last = runs.set_index(["variant", "lr", "seed"])["last"]
    return {9: last["pre-norm"].groupby("lr").max().min(), 10: last["post-norm"].min()}


# ---- before training -------------------------------------------------------------------------------------------------


def spreads(make: Callable[[], nn.Module], depth: int, width: int, *, positions: int = 12) -> dict[str, list[float]]:
    """How much positions differ, ‖X − mean‖ / ‖X‖, before and after each of `depth` untrained layers.

    The layers are used twice: once each replaces its input, and once each is added to it.
    """
    chain = stream = torch.randn(1, positions, width)
    found = {"attention alone": [spread_of(chain)], "with residuals": [spread_of(stream)]}
    with torch.no_grad():
        for layer in (make() for _ in range(depth)):
            chain, stream = layer(chain), stream + layer(stream)
            found["attention alone"].append(spread_of(chain))
            found["with residuals"].append(spread_of(stream))
    return found


def spread_of(x: Float[Tensor, "1 position width"]) -> float:
    """‖X − mean‖ / ‖X‖: 0 where all positions hold the same vector."""
    return float((x - x.mean(dim=1, keepdim=True)).norm() / x.norm())


def untrained(layers: int, residual: type[PreNorm], *, symbols: int = 100) -> tuple[LanguageModel, Int[Tensor, "r t"]]:
    """An untrained language model with Xavier initialization, as in Xiong et al. (2020), and random text."""
    config = Config(d_model=64, heads=4, d_ff=256, layers=layers, position=DEEP.position, residual=residual)
    model = LanguageModel(symbols, config).to(runtime.device())
    xavier(model)
    return model, torch.randint(symbols, (32, 17), device=runtime.device())


def gradient_by_layer(layers: int, residual: type[PreNorm], *, seed: int = 1) -> list[float]:
    """Norm of the gradient of each block's second feed-forward matrix (Xiong et al., 2020, Figure 3)."""
    runtime.seed(seed)
    model, ids = untrained(layers, residual)
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    return [float(block.feed_forward.branch.down.weight.grad.norm()) for block in model.stack.blocks]


def change_by_step(layers: int, residual: type[PreNorm], *, lr: float = 1e-4, seed: int = 1) -> float:
    """‖change‖ / ‖output‖ of the stack on other text after the blocks' first step of Adam.

    The step has the same size for every weight, whatever its gradient. The embedding is left unchanged.
    """
    runtime.seed(seed)
    model, ids = untrained(layers, residual)
    other = torch.randint_like(ids, int(ids.max()) + 1)
    optimizer = torch.optim.Adam(model.stack.parameters(), lr)
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    with torch.no_grad():
        before = model.stack(model.embed(other))
        optimizer.step()
        return float((model.stack(model.embed(other)) - before).norm() / before.norm())


def mean_change(layers: int, residual: type[PreNorm], *, seeds: Sequence[int] = (1, 2, 3)) -> float:
    """`change_by_step`, averaged over models."""
    return fmean(change_by_step(layers, residual, seed=seed) for seed in seeds)


def first_loss(variant: StackVariant, *, seeds: Sequence[int] = (1, 2, 3)) -> float:
    """The loss before training in nats per symbol, averaged over models."""
    losses = []
    for seed in seeds:
        runtime.seed(seed)
        with torch.no_grad():
            losses.append(float(reversal_loss(variant.build(), reversal(0).to(runtime.device()))))
    return fmean(losses)
