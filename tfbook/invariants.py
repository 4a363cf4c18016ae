"""Properties that every model must have, whatever it has learned. Each function returns the largest violation it found.

Running is not being right: a mask that is dropped in eval mode or a position that restarts at 0 raises no error. The
functions take the model as a callable, so that one suite serves every model of the course.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook import runtime
from tfbook.data.translation import EOS, PAD, Batch
from tfbook.seq2seq import Translator, translation_loss

TOLERANCE = 1e-4  # float32 sums taken in another order differ by about 1e-6


def _largest(*gaps: float) -> float:
    """The largest gap; NaN counts as infinite, where `max` would let it pass."""
    return max(math.inf if math.isnan(gap) else gap for gap in gaps)


@torch.no_grad()
def convexity(weights: Float[Tensor, "batch query key"], mask: Bool[Tensor, "batch #query key"]) -> float:
    """Attention weights are a convex combination: none negative, blocked ones 0, sums 1 (0 if all is blocked)."""
    mask = mask.expand(weights.shape)
    sums = (weights.sum(dim=-1) - mask.any(dim=-1).to(weights.dtype)).abs().max()
    return _largest(float(sums), float((-weights).max()), float(weights.masked_fill(mask, 0).abs().max()))


@torch.no_grad()
def future_leak(forward: Callable[[Tensor], Tensor], tokens: Int[Tensor, "batch time"], vocabulary: int) -> float:
    """How much an output changes when only later tokens change: must be 0 for a model that predicts what comes next."""
    before, gaps = _same_dropout(forward, tokens), [0.0]
    for time in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, time:] = (changed[:, time:] + 1) % vocabulary
        gaps.append(float((_same_dropout(forward, changed)[:, :time] - before[:, :time]).abs().max()))
    return _largest(*gaps)


def _same_dropout(forward: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Drops the same units at every call, so that a property can be checked in train mode as well."""
    with runtime.untouched_randomness():
        torch.manual_seed(0)
        return forward(tokens)


@torch.no_grad()
def padding_effect(
    forward: Callable[[Tensor, Tensor], Tensor], tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
) -> float:
    """How much a sequence's output depends on the padding that its batch gave it: it must come out the same alone."""
    together, gaps = forward(tokens, lengths), [0.0]
    for row, length in enumerate(lengths.tolist()):
        alone = forward(tokens[row : row + 1, :length], lengths[row : row + 1])
        gaps.append(float((together[row, : alone.shape[1]] - alone[0]).abs().max()))
    return _largest(*gaps)


@torch.no_grad()
def stepwise_gap(model: Translator, batch: Batch) -> float:
    """Teacher forcing in one call against one word at a time, as in decoding: the two must give the same logits."""
    memory = model.encoder(batch.source, batch.source_lengths)
    state = model.decoder.start(memory)
    parallel, steps = model.decoder(batch.target_in, memory, state).logits, []
    for word in batch.target_in.split(1, dim=1):
        logits, _, state = model.decoder(word, memory, state)
        steps.append(logits)
    return _largest(float((torch.cat(steps, dim=1) - parallel).abs().max()))


@torch.no_grad()
def round_trip_gap(model: nn.Module, forward: Callable[[nn.Module], Tensor]) -> float:
    """A copy with other numbers that loads the model's state dict must compute the same: nothing may live outside it.

    Only registered buffers are copied as they are: those outside the state dict are constants, made in the constructor.
    """
    copied: dict[int, object] = {}
    twin = copy.deepcopy(model, copied)
    buffers = set(map(id, twin.buffers()))
    for tensor in copied.values():
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and id(tensor) not in buffers:
            tensor.add_(1.0)
    twin.load_state_dict(model.state_dict())
    return _largest(float((forward(twin) - forward(model)).abs().max()))


def missing_gradients(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> float:
    """Share of parameters whose gradient is absent, zero or not finite after a backward pass at `runtime.precision`."""
    model.zero_grad(set_to_none=True)
    with runtime.untouched_randomness(), runtime.autocast():
        value = loss(model)
    value.backward()
    parameters = list(model.parameters())
    healthy = [p.grad is not None and bool(p.grad.isfinite().all()) and bool(p.grad.any()) for p in parameters]
    model.zero_grad(set_to_none=True)
    return 1 - sum(healthy) / len(parameters)


@torch.no_grad()
def loss_on_padding(model: Translator, batch: Batch) -> float:
    """How much the loss changes when padded target words do: the loss must not see them."""
    mask = batch.target_out == PAD
    other = replace(batch, target_in=batch.target_in.masked_fill(mask, EOS))
    return _largest(float((translation_loss(model, batch) - translation_loss(model, other)).abs()))


def translator_report(model: Translator, batch: Batch) -> dict[str, float]:
    """Every invariant of a sequence-to-sequence model on one batch: name → largest violation."""
    training, vocabulary = model.training, model.decoder.vocabulary.out_features

    def teacher_forced(target: Tensor) -> Tensor:
        return model(batch.source, batch.source_lengths, target).logits

    def same_target(source: Tensor, lengths: Tensor) -> Tensor:
        return model(source, lengths, batch.target_in[:1].expand(len(source), -1)).logits

    model.train()
    found = {"no word sees a later one (train)": future_leak(teacher_forced, batch.target_in, vocabulary)}
    model.eval()
    found["no word sees a later one (eval)"] = future_leak(teacher_forced, batch.target_in, vocabulary)
    found["padding changes nothing"] = padding_effect(same_target, batch.source, batch.source_lengths)
    found["padding does not count in the loss"] = loss_on_padding(model, batch)
    found["one word at a time equals all at once"] = stepwise_gap(model, batch)
    memory = model.encoder(batch.source, batch.source_lengths)
    weights = model.decoder(batch.target_in, memory, model.decoder.start(memory)).weights
    if weights is not None:
        found["weights are a convex combination"] = convexity(weights, memory.mask[:, None])
    found["a saved model computes the same"] = round_trip_gap(
        model, lambda m: m(batch.source, batch.source_lengths, batch.target_in).logits
    )
    model.train()  # where the fused recurrent kernels of GPUs have a backward pass
    found["every parameter gets a finite gradient"] = missing_gradients(model, lambda m: translation_loss(m, batch))
    model.train(training)
    return found
