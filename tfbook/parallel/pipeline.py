"""Pipeline parallelism: each machine has some of the blocks, and microbatches go from one to the next and back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.attention.masks import Causal
from tfbook.models.gpt import Gpt
from tfbook.parallel.schedules import Schedule, check_stages, one_forward_one_backward, timetable
from tfbook.parallel.sharded import Surroundings
from tfbook.parallel.whole import LR, Batches, adam, predicted, take_step, total_loss
from tfbook.parallel.wire import Wire

MICROBATCHES = 4  # where nobody says how many


class Stage(nn.Module):
    """Stage `number` of `stages`: its share of the blocks; the first reads ids, the last gives logits.

    Both of these have a copy of the embedding, which is the output's matrix, too; its gradients have to be added.
    Raises ValueError when there are more stages than blocks.
    """

    def __init__(self, model: Gpt, number: int, stages: int):
        super().__init__()
        blocks = model.stack.blocks
        if not 0 <= number < stages <= len(blocks):
            raise ValueError(f"stage {number} of {stages}; expected at most {len(blocks)}, the number of blocks")
        self.number, self.is_first, self.is_last = number, number == 0, number == stages - 1
        bounds = [round(len(blocks) * s / stages) for s in (number, number + 1)]
        self.first_block = bounds[0]
        self.blocks = nn.ModuleList(deepcopy(block) for block in blocks[slice(*bounds)])
        self.ends: Any = deepcopy(Surroundings(model)) if self.is_first or self.is_last else None

    def forward(self, x: Tensor) -> Tensor:
        """Ids or vectors in, vectors or logits out."""
        x = self.ends(x) if self.is_first and self.ends else x
        for block in self.blocks:
            x = block(x, Causal())
        return self.ends(x, True) if self.is_last and self.ends else x


class StageRunner:
    """One machine with its stage: it keeps each microbatch's input and output until the way back."""

    def __init__(self, stage: Stage):
        self.stage, self.kept, self.loss = stage, dict[int, tuple[Tensor, Tensor]](), 0.0

    def forward(self, k: int, arrived: Tensor, ids: Tensor, count: int) -> Tensor:
        """The output for microbatch k; at the last stage, its loss over the `count` of the whole batch."""
        x = arrived if self.stage.is_first else arrived.requires_grad_()
        y = self.stage(x)
        if self.stage.is_last:
            y = total_loss(y, ids) / count
            self.loss += y.item()
        self.kept[k] = x, y
        return y.detach()

    def backward(self, k: int, arrived: Tensor | None) -> Any:
        """The gradient of microbatch k's input, for the stage before, from that of its output."""
        x, y = self.kept.pop(k)
        y.backward(arrived)
        return x.grad


def pipeline(
    model: Gpt, batches: Batches, wire: Wire, *, schedule: Schedule | None = None, lr: float = LR
) -> tuple[Gpt, list[float]]:
    """The model after a step for each of `batches`, put together from all stages, and the losses.

    By default four microbatches go one forward, one backward. Raises ValueError for a schedule of other stages.
    """
    stages = wire.machines
    schedule = schedule or one_forward_one_backward(stages, MICROBATCHES)
    check_stages(schedule, stages)
    runners = [StageRunner(Stage(model, number, stages)) for number in range(stages)]
    optimizers = [adam(runner.stage.parameters(), lr) for runner in runners]
    order, microbatches = timetable(schedule), len(schedule[0]) // 2
    losses = []
    for ids in batches:
        pieces, box = ids.tensor_split(microbatches), dict[tuple[str, int, int], Tensor]()
        for s, kind, k, *_ in order:
            if kind == "F":
                y = runners[s].forward(k, box.pop(("F", k, s), pieces[k][:, :-1]), pieces[k], predicted(ids))
                if s < stages - 1:
                    box["F", k, s + 1] = wire.send(y, s, s + 1, "activations")
            else:
                gradient = runners[s].backward(k, box.pop(("B", k, s), None))
                if s > 0:
                    box["B", k, s - 1] = wire.send(gradient, s, s - 1, "gradients")
        add_tied([runner.stage for runner in runners], wire)
        for optimizer in optimizers:
            take_step(optimizer)
        losses.append(runners[-1].loss)
        runners[-1].loss = 0.0
    return put_together([runner.stage for runner in runners], model), losses


def tied(stage: Stage) -> Any:
    """The weights that the first and the last stage both have. Raises ValueError for a stage between them."""
    if stage.ends is None:
        raise ValueError(f"stage {stage.number} has no embedding; the first and the last stage have one")
    return stage.ends.embed.weight


def add_tied(stages: list[Stage], wire: Wire) -> None:
    """The embedding's gradient becomes the sum of both ends'."""
    if len(stages) == 1:
        return
    end = len(stages) - 1
    first, last = tied(stages[0]), tied(stages[end])
    arrived = wire.send(last.grad, end, 0, "tied"), wire.send(first.grad, 0, end, "tied")
    first.grad, last.grad = first.grad + arrived[0], last.grad + arrived[1]


def put_together(stages: list[Stage], like: Gpt) -> Gpt:
    """The whole model from all stages, without the wire."""
    whole = deepcopy(like)
    with torch.no_grad():
        for stage in stages:
            for number, block in enumerate(stage.blocks, start=stage.first_block):
                whole.stack.blocks[number].load_state_dict(block.state_dict())
        first, last = stages[0].ends, stages[-1].ends
        whole.embed.load_state_dict(first.embed.state_dict())
        whole.stack.position.load_state_dict(first.position.state_dict())
        whole.stack.norm.load_state_dict(last.norm.state_dict())
    return whole
