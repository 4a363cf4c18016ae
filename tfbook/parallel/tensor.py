"""Tensor parallelism: each machine has a part of every matrix in a block, and all work on the same tokens.

Attention is cut by heads and the feed-forward network by hidden units: the first matrices by columns (outputs), the
last by rows (inputs), so that one sum per branch is all that has to be sent (Shoeybi et al., 2019, section 3).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.models.gpt import Gpt
from tfbook.parallel.passes import copied, summed
from tfbook.parallel.whole import LR, Batches, adam, predicted, take_step, total_loss
from tfbook.parallel.wire import Wire

BY_OUTPUTS = ("W_Q", "W_K", "W_V", "up")
BY_INPUTS = ("W_O", "down")
BRANCHES = ("mixer", "feed_forward")


def piece_of(layer: nn.Linear, machine: int, machines: int, *, by: str) -> nn.Linear:
    """One machine's part of a layer, cut by its "outputs" or "inputs"; of the latter, machine 0 has the bias.

    Raises ValueError when the layer can't be cut into equal parts.
    """
    axis = {"outputs": 0, "inputs": 1}[by]
    if layer.weight.shape[axis] % machines:
        raise ValueError(f"a layer has {layer.weight.shape[axis]} {by}; expected a multiple of {machines} machines")
    weight = layer.weight.detach().chunk(machines, dim=axis)[machine]
    part = nn.Linear(weight.shape[1], weight.shape[0], bias=axis == 0 or machine == 0, dtype=weight.dtype)
    part.weight = nn.Parameter(weight.clone())
    if part.bias is not None:
        bias = layer.bias.detach()
        part.bias = nn.Parameter((bias.chunk(machines)[machine] if axis == 0 else bias).clone())
    return part


def split_blocks(model: Gpt, machine: int, machines: int) -> Gpt:
    """A copy of the model with one machine's part of each block. Raises ValueError when heads can't be shared out."""
    part = deepcopy(model)
    for block in part.stack.blocks:
        attention, feed_forward = block.mixer.branch, block.feed_forward.branch
        if attention.heads % machines:
            raise ValueError(f"a block has {attention.heads} heads; expected a multiple of {machines} machines")
        attention.heads //= machines
        for owner in (attention, feed_forward):
            for name, layer in list(owner.named_children()):
                if name in BY_OUTPUTS + BY_INPUTS:
                    by = "outputs" if name in BY_OUTPUTS else "inputs"
                    setattr(owner, name, piece_of(layer, machine, machines, by=by))
    return part


def join_blocks(parts: list[Gpt], like: Gpt) -> Gpt:
    """The whole model from all machines' parts, without the wire."""
    whole = deepcopy(like)
    states = [part.state_dict() for part in parts]
    joined = {}
    for name, weight in whole.state_dict().items():
        layer, kind = name.split(".")[-2:]
        pieces = [state[name] for state in states if name in state]
        cut = (layer in BY_OUTPUTS) or (layer in BY_INPUTS and kind == "weight")
        joined[name] = torch.cat(pieces, dim=0 if layer in BY_OUTPUTS else 1) if cut else pieces[0].view_as(weight)
    whole.load_state_dict(joined)
    return whole


def in_parts(branches: list[Any], xs: list[Tensor], wire: Wire, **context: Any) -> list[Tensor]:
    """x + g(Σ parts of branch(f(norm(x)))), on each machine: one all-reduce forward, one backward."""
    normed = copied([branch.norm(x) for branch, x in zip(branches, xs, strict=True)], wire)
    partial = [branch.branch(h, **context) for branch, h in zip(branches, normed, strict=True)]
    return [x + whole for x, whole in zip(xs, summed(partial, wire), strict=True)]


def logits_in_parts(models: list[Gpt], ids: Tensor, wire: Wire) -> list[Tensor]:
    """The logits on each machine: what lies around the blocks is done by all of them."""
    xs = [model.stack.position.add(model.embed(ids)) for model in models]
    for blocks in zip(*(model.stack.blocks for model in models), strict=True):
        xs = in_parts([block.mixer for block in blocks], xs, wire, mask=models[0].mask)
        xs = in_parts([block.feed_forward for block in blocks], xs, wire)
    return [model.unembed(model.stack.norm(x)) for model, x in zip(models, xs, strict=True)]


def tensor_parallel(model: Gpt, batches: Batches, wire: Wire, *, lr: float = LR) -> tuple[Gpt, list[float]]:
    """The model after a step for each of `batches`, joined from all parts, and the losses."""
    models = [split_blocks(model, m, wire.machines) for m in range(wire.machines)]
    optimizers = [adam(part.parameters(), lr) for part in models]
    losses = []
    for ids in batches:
        own = [total_loss(logits, ids) / predicted(ids) for logits in logits_in_parts(models, ids[:, :-1], wire)]
        torch.autograd.backward(own)
        for optimizer in optimizers:
            take_step(optimizer)
        losses.append(own[0].item())
    return join_blocks(models, model), losses
