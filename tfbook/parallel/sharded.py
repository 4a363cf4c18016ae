"""Sharded data parallelism: each machine keeps 1/n of the weights, gradients and optimizer (ZeRO stage 3, FSDP).

A unit is a part of the model whose weights travel together: a block, or what lies around the blocks.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from tfbook.attention.masks import Causal
from tfbook.models.gpt import Gpt
from tfbook.parallel.passes import gathered
from tfbook.parallel.whole import LR, Batches, adam, predicted, take_step, total_loss
from tfbook.parallel.wire import Wire


class Surroundings(nn.Module):
    """The parts around the blocks of a GPT: the embedding, which is the output's matrix, too, positions, a norm."""

    def __init__(self, model: Gpt):
        super().__init__()
        self.embed, self.position, self.norm = model.embed, model.stack.position, model.stack.norm

    def forward(self, x: Tensor, logits: bool = False) -> Tensor:
        """Ids become vectors, or vectors `logits`."""
        if logits:
            return nn.functional.linear(self.norm(x), self.embed.weight)
        return self.position.add(self.embed(x))


def flat(unit: nn.Module) -> Tensor:
    """All weights of a unit one after the other."""
    return torch.cat([weight.detach().flatten() for weight in unit.parameters()])


def unflat(unit: nn.Module, numbers: Tensor) -> dict[str, Tensor]:
    """The weights of a unit by name, as views of such numbers; what fills up the last piece is left over."""
    named, views, start = dict(unit.named_parameters()), {}, 0
    for name, weight in named.items():
        views[name] = numbers[start : start + weight.numel()].view_as(weight)
        start += weight.numel()
    return views


class ShardedGpt:
    """A GPT of which machine m keeps shard m of each unit, `shards[unit][m]`, and nothing else between two uses."""

    def __init__(self, model: Gpt, wire: Wire):
        self.model, self.wire = deepcopy(model), wire
        self.units = [Surroundings(self.model), *self.model.stack.blocks]
        self.shards = [[piece.clone().requires_grad_() for piece in wire.pieces(flat(unit))] for unit in self.units]

    def losses(self, shares: list[Tensor], count: int) -> list[Tensor]:
        """Each machine's loss on its share over the `count` of the whole batch."""
        around, *blocks = self.units
        ends = self._weights(0)  # before the first block and after the last: kept for the whole step
        xs = [functional_call(around, w, (ids[:, :-1],)) for w, ids in zip(ends, shares, strict=True)]
        for number, block in enumerate(blocks, start=1):
            xs = checkpoint(self._run, number, block, xs, use_reentrant=False)  # backward gathers once more
        logits = [functional_call(around, w, (x, True)) for w, x in zip(ends, xs, strict=True)]
        return [total_loss(scores, ids) / count for scores, ids in zip(logits, shares, strict=True)]

    def _weights(self, number: int) -> list[dict[str, Tensor]]:
        """The whole weights of a unit on each machine, out of the shards of all."""
        return [unflat(self.units[number], whole) for whole in gathered(self.shards[number], self.wire)]

    def _run(self, number: int, block: nn.Module, xs: list[Tensor]) -> list[Tensor]:
        """Gather, use, forget."""
        weights = self._weights(number)
        return [functional_call(block, w, (x, Causal())) for w, x in zip(weights, xs, strict=True)]

    def whole(self) -> Gpt:
        """A model with the weights of all shards, put together without the wire."""
        with torch.no_grad():
            for unit, shards in zip(self.units, self.shards, strict=True):
                for name, view in unflat(unit, torch.cat([shard.detach() for shard in shards])).items():
                    unit.get_parameter(name).copy_(view)
        return self.model


def sharded(model: Gpt, batches: Batches, wire: Wire, *, lr: float = LR) -> tuple[Gpt, list[float]]:
    """The model after a step for each of `batches`, put together from all shards, and the losses.

    Each machine's Adam knows its own shards alone (Rajbhandari et al., 2020, section 5; Zhao et al., 2023).
    """
    machines = ShardedGpt(model, wire)
    optimizers = [adam([unit[m] for unit in machines.shards], lr) for m in range(wire.machines)]
    losses = []
    for ids in batches:
        own = machines.losses(list(ids.tensor_split(wire.machines)), predicted(ids))
        torch.autograd.backward(own)
        for optimizer in optimizers:
            take_step(optimizer)
        losses.append(sum(loss.item() for loss in own))
    return machines.whole(), losses
