"""Properties that every model must have, whatever it has learned. Each function returns the largest violation it found.

A model can run and be wrong: a mask that is dropped in eval mode, or a position that restarts at 0, raises no error.
The functions take the model as a callable, so that one suite serves every model of the course.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention.implementations import Implementation
from tfbook.attention.masks import Band, Causal, Dense, Lengths, Mask, padding_mask
from tfbook.attention.multi_head import MultiHeadAttention, merge_heads, split_heads
from tfbook.attention.positions import Position
from tfbook.attention.recording import record, supports_of
from tfbook.models.blocks import Stack
from tfbook.models.language_model import LanguageModel
from tfbook.models.seq2seq import Translator
from tfbook.models.transformer import Transformer
from tfbook.modes import evaluating
from tfbook.text.pairs import Batch
from tfbook.text.vocabulary import EOS, PAD
from tfbook.training.losses import translation_loss

TOLERANCE = 1e-4  # float32 sums taken in another order differ by about 1e-6


def _largest(*gaps: float) -> float:
    """The largest gap; NaN counts as infinite, where `max` would let it pass."""
    return max(math.inf if math.isnan(gap) else gap for gap in gaps)


@torch.no_grad()
def convexity(weights: Float[Tensor, "*batch query key"], mask: Bool[Tensor, "*#batch #query key"]) -> float:
    """Attention weights are a convex combination: none negative, masked ones 0, sums 1 (0 if all are masked)."""
    mask = mask.expand(weights.shape)
    sums = (weights.sum(dim=-1) - mask.any(dim=-1).to(weights.dtype)).abs().max()
    return _largest(float(sums), float((-weights).max()), float(weights.masked_fill(mask, 0).abs().max()))


@torch.no_grad()
def future_leak(forward: Callable[[Tensor], Tensor], tokens: Int[Tensor, "batch time"], vocabulary: int) -> float:
    """How much an output changes when only later tokens change: must be 0 for a model that predicts the next token."""
    before, gaps = _same_dropout(forward, tokens), [0.0]
    for time in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, time:] = (changed[:, time:] + 1) % vocabulary
        gaps.append(float((_same_dropout(forward, changed)[:, :time] - before[:, :time]).abs().max()))
    return _largest(*gaps)


def _same_dropout(forward: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Drops the same units in every call, so that a property can also be checked in train mode."""
    with runtime.fork_rng():
        torch.manual_seed(0)
        return forward(tokens)


@torch.no_grad()
def padding_effect(
    forward: Callable[[Tensor, Tensor], Tensor], x: Shaped[Tensor, "batch time *width"], lengths: Int[Tensor, " batch"]
) -> float:
    """How much a sequence's output depends on the padding in its batch: alone, it must be the same.

    `x` holds tokens or vectors.
    """
    together, gaps = forward(x, lengths), [0.0]
    for row, length in enumerate(lengths.tolist()):
        if length == 0:  # there is no output
            continue
        alone = forward(x[row : row + 1, :length], lengths[row : row + 1])
        gaps.append(float((together[row, : alone.shape[1]] - alone[0]).abs().max()))
    return _largest(*gaps)


@torch.no_grad()
def permutation_gap(forward: Callable[[Tensor], Tensor], x: Float[Tensor, "batch time d_model"]) -> float:
    """max |f(P x) − P f(x)|: without positions a layer is equivariant, so its outputs move with its inputs.

    P is a shift by one place and a swap of the first two; together they generate every permutation.
    """
    straight, places, gaps = forward(x), torch.arange(x.shape[1]), []
    for order in (places.roll(1), torch.cat([places[:2].flip(0), places[2:]])):
        gaps.append(float((forward(x[:, order]) - straight[:, order]).abs().max()))
    return _largest(*gaps)


def dependence(
    forward: Callable[[Tensor], Tensor], x: Float[Tensor, "batch input d_in"]
) -> Float[Tensor, "output input"]:
    """‖∂y_i / ∂x_j‖, the Frobenius norm, for every pair of positions: 0 where input j has no influence on output i.

    Lower triangular means causal, and diagonal means position-wise. Float64 tells zeros from rounding errors; dropout
    drops the same units as in the other invariants. Raises ValueError unless `x` is a batch of one sequence.
    """
    if len(x) != 1:
        raise ValueError(f"x holds {len(x)} sequences; expected one, whose positions are compared")
    jacobian = torch.autograd.functional.jacobian(lambda inputs: _same_dropout(forward, inputs), x)
    return torch.linalg.vector_norm(jacobian[0, :, :, 0], dim=(1, 3))  # of (output, d_out, input, d_in)


def blocked_rows(
    implementation: Implementation,
    x: Float[Tensor, "batch head time d_head"],
    mask: Mask | Bool[Tensor, "..."],
    dropout: float = 0.0,
) -> float:
    """The largest output of an implementation for queries that may attend to nothing, which must be 0.

    It is infinite when any output or gradient is not finite. `x` serves as queries, keys and values. Raises ValueError
    when `mask` blocks no row.
    """
    allowed = mask if isinstance(mask, Tensor) else mask.dense(x.shape[2], x.shape[2], x.device)
    blocked = ~allowed.any(dim=-1).expand(x.shape[:3])
    if not blocked.any():
        raise ValueError("mask blocks no row; expected one with a query that may attend to nothing")
    q, k, v = (x.detach().clone().requires_grad_() for _ in range(3))
    output = _same_dropout(lambda q: implementation(q, k, v, mask=mask, dropout=dropout), q)
    gradients = torch.autograd.grad(output.float().square().sum(), (q, k, v))
    finite = all(bool(tensor.isfinite().all()) for tensor in (output, *gradients))
    return float(output.detach()[blocked].abs().max()) if finite else math.inf


@torch.no_grad()
def stepwise_gap(model: Translator | Transformer, batch: Batch) -> float:
    """Teacher forcing in one call versus one word at a time, as in decoding: the logits must be the same."""
    parallel, steps = model(batch.source, batch.source_lengths, batch.target_in).logits, []
    memory = model.encoder(batch.source, batch.source_lengths)
    state = model.decoder.start(memory)
    for word in batch.target_in.split(1, dim=1):
        logits, _, state = model.decoder(word, memory, state)
        steps.append(logits)
    return _largest(float((torch.cat(steps, dim=1) - parallel).abs().max()))


@torch.no_grad()
def round_trip_gap(model: nn.Module, forward: Callable[[Any], Tensor]) -> float:
    """A copy with other weights that loads the model's state dict must compute the same: the state must be complete.

    Indices are reversed, so that an order drawn at random counts as a weight. Registered buffers keep their values,
    since those outside the state dict are constants from the constructor.
    """
    copied: dict[int, object] = {}
    twin = copy.deepcopy(model, copied)
    buffers = set(map(id, twin.buffers()))
    for tensor in copied.values():
        if isinstance(tensor, Tensor) and id(tensor) not in buffers:
            tensor.copy_(tensor + 1 if tensor.is_floating_point() else tensor.flip(-1) if tensor.ndim else tensor)
    twin.load_state_dict(model.state_dict())
    return _largest(float((forward(twin) - forward(model)).abs().max()))


def missing_gradients(model: nn.Module, loss: Callable[[Any], Tensor], without_effect: Collection[str] = ()) -> float:
    """Share of parameters whose gradient is absent, zero or not finite after a backward pass at `runtime.precision`.

    The parameters in `without_effect` cannot change the loss; they only need a finite gradient.
    """
    torch.clear_autocast_cache()  # it may hold weights that were cast without gradients
    model.zero_grad(set_to_none=True)
    with runtime.fork_rng(), runtime.autocast():
        value = loss(model)
    value.backward()
    healthy = [
        p.grad is not None and bool(p.grad.isfinite().all()) and (name in without_effect or bool(p.grad.any()))
        for name, p in model.named_parameters()
    ]
    model.zero_grad(set_to_none=True)
    return 1 - sum(healthy) / len(healthy)


def idle_key_biases(model: nn.Module) -> set[str]:
    """Names of the key biases that cannot change the loss: those of keys that no position rotates.

    q · (k_j + b) adds the same q · b to all scores of a query, which the softmax ignores; rotated, it differs from key
    to key. Whether keys are rotated is asked of the encoding of each stack; those of cross-attention never are.
    """
    rotating = [stack for stack in model.modules() if isinstance(stack, Stack) and _rotates(stack.position)]
    turned = {id(weight) for stack in rotating for block in stack.blocks for weight in block.mixer.parameters()}
    named = model.named_parameters()
    return {name for name, weight in named if name.endswith("W_K.bias") and id(weight) not in turned}


def _rotates(position: Position) -> bool:
    """Whether the encoding is of a kind that turns keys."""
    return type(position).rotate is not Position.rotate


@torch.no_grad()
def loss_on_padding(model: Translator | Transformer, batch: Batch) -> float:
    """How much padded target words change the loss: it must neither read nor count them.

    They are changed, and left away: the mean must be that of the sentences alone, each counted by its words.
    """
    mask = batch.target_out == PAD
    other = replace(batch, target_in=batch.target_in.masked_fill(mask, EOS))
    loss, *means = (translation_loss(model, each).mean for each in (batch, other))
    if mask.any():
        lengths = (~mask).sum(dim=1)
        alone = [translation_loss(model, _row(batch, row, length)).mean for row, length in enumerate(lengths.tolist())]
        means.append((lengths * torch.stack(alone)).sum() / lengths.sum())
    return _largest(*(float((mean - loss).abs()) for mean in means))


def _row(batch: Batch, row: int, length: int) -> Batch:
    """One pair, its target cut to this length."""
    one = {name: tensor[row : row + 1] for name, tensor in vars(batch).items()}
    return Batch(**one | {name: one[name][:, :length] for name in ("target_in", "target_out")})


@torch.no_grad()
def _maps(model: Translator | Transformer, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """All attention weights of the model on a batch, each with its mask."""
    if isinstance(model, Transformer):
        with record(model) as maps:
            model(batch.source, batch.source_lengths, batch.target_in)
        for name, weights in maps.items():
            own_past = name.startswith("decoder") and ".cross." not in name
            mask = Causal() if own_past else Lengths(batch.source_lengths)
            yield weights, mask.dense(weights.shape[2], weights.shape[3], weights.device)
    else:
        weights = model(batch.source, batch.source_lengths, batch.target_in).weights
        if weights is not None:
            yield weights, padding_mask(batch.source_lengths, batch.source.shape[1])[:, None]


Report = Callable[..., dict[str, float]]  # of a model and its inputs


def _modes_kept(report: Report) -> Report:
    """The report, after which each module of the model is in its own mode again."""

    @wraps(report)
    def keeping(model: nn.Module, *args: Any, **options: Any) -> dict[str, float]:
        with evaluating(model):
            return report(model, *args, **options)

    return keeping


@_modes_kept
def translator_report(model: Translator | Transformer, batch: Batch) -> dict[str, float]:
    """Every invariant of a sequence-to-sequence model on one batch: name → largest violation."""
    vocabulary = model.decoder.unembed.out_features

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
    gaps = [convexity(weights, mask) for weights, mask in _maps(model, batch)]
    if gaps:
        found["weights are a convex combination"] = _largest(*gaps)
    found["a saved model computes the same"] = round_trip_gap(
        model, lambda m: m(batch.source, batch.source_lengths, batch.target_in).logits
    )
    model.train()  # since the fused recurrent CUDA kernels have a backward pass only there
    found["every parameter gets a finite gradient"] = missing_gradients(
        model, lambda m: translation_loss(m, batch).mean, without_effect=idle_key_biases(model)
    )
    return found


# ---- language models ---------------------------------------------------------------------------------------------


@torch.no_grad()
def cached_gap(model: LanguageModel, ids: Int[Tensor, "batch time"]) -> float:
    """All words in one call versus pieces with a cache: of 1, 2 and 3 words, and a long one, then two single words.

    The logits must be the same. `ids` needs three positions or more.
    """
    parallel, gaps = model(ids), []
    for config in (1, 2, 3, [ids.shape[1] - 2, 1, 1]):
        cache = model.new_cache()
        pieces = [model(piece, cache=cache) for piece in ids.split(config, dim=1)]
        gaps.append(float((torch.cat(pieces, dim=1) - parallel).abs().max()))
    return _largest(*gaps)


@torch.no_grad()
def shift_gap(model: LanguageModel, ids: Int[Tensor, "batch time"], shift: int = 5) -> float:
    """How much the logits change when a text is moved by `shift` places: not at all when only distances matter.

    A mask hides the tokens before it, so that only the positions differ.
    """
    later = torch.cat([ids[:, :1].expand(-1, shift), ids], dim=1)
    shown = Dense(torch.arange(later.shape[1], device=ids.device) >= shift)
    mask = shown if model.mask is None else model.mask & shown
    shifted = model.unembed(model.stack(model.embed(later), mask))[:, shift:]
    return _largest(float((shifted - model(ids)).abs().max()))


def tying_gap(model: nn.Module, loss: Callable[[Any], Tensor], pair: Callable[[Any], tuple[Tensor, Tensor]]) -> float:
    """How far apart two weights are after a training step of a copy: tied weights must stay equal."""
    twin = copy.deepcopy(model)
    with runtime.fork_rng():
        loss(twin).backward()
    torch.optim.SGD(twin.parameters(), lr=1.0).step()
    first, second = pair(twin)
    return _largest(float((first - second).detach().abs().max()))


def _next_word_loss(model: LanguageModel, ids: Int[Tensor, "batch time"]) -> Float[Tensor, ""]:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


@_modes_kept
def language_model_report(model: LanguageModel, ids: Int[Tensor, "batch time"]) -> dict[str, float]:
    """Every invariant of a language model on one batch: name → largest violation.

    A bidirectional model is exempt from those of causal ones. When no position is added to the embeddings, shifting a
    text must change nothing; without any positions, its order must not matter. Where no layer is attention, there are
    no weights to look at, and order matters without positions.
    """
    encoding, found = type(model.stack.position), {}
    if model.mask is not None:
        vocabulary = model.unembed.out_features
        found["no word sees a later one (train)"] = future_leak(model.train(), ids, vocabulary)
        found["no word sees a later one (eval)"] = future_leak(model.eval(), ids, vocabulary)
        found["a piece at a time equals all at once"] = cached_gap(model, ids)
    model.eval()
    if encoding.add is Position.add:
        found["shifting a text changes nothing"] = shift_gap(model, ids)
    attends = any(isinstance(block.mixer.branch, MultiHeadAttention) for block in model.stack.blocks)
    if encoding is Position and model.mask is None and attends:
        found["without positions the order changes nothing"] = permutation_gap(model.stack, model.embed(ids).detach())
    if attends:
        with record(model) as maps:
            model(ids)
        mask = (model.mask or Band(ids.shape[1], ids.shape[1])).dense(ids.shape[1], ids.shape[1], ids.device)
        found["weights are a convex combination"] = _largest(*(convexity(weights, mask) for weights in maps.values()))
    found["a saved model computes the same"] = round_trip_gap(model, lambda m: m(ids))
    model.train()
    found["every parameter gets a finite gradient"] = missing_gradients(
        model, lambda m: _next_word_loss(m, ids), without_effect=idle_key_biases(model)
    )
    found["tied weights stay tied"] = tying_gap(
        model, lambda m: _next_word_loss(m, ids), lambda m: (m.embed.weight, m.unembed.weight)
    )
    return found


# ---- attention ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def unused_mask(forward: Callable[[Mask | None], Tensor], mask: Mask) -> float:
    """1 when the output is the same with and without a mask, else 0: a mask that changes nothing was not applied."""
    gap = float((forward(mask) - forward(None)).abs().max())
    return 0.0 if gap > TOLERANCE else 1.0


@torch.no_grad()
def record_gap(layer: MultiHeadAttention, x: Float[Tensor, "batch time d_model"], mask: Mask) -> float:
    """The layer's output versus W_O of its recorded weights times its values: the record must be what was applied."""
    with record(layer) as weights:
        layer(x, mask=mask)
    values = layer.project(x, x, x)[2]
    values = values.repeat_interleave(layer.heads // values.shape[1], dim=1)  # heads may share theirs
    by_hand = layer.W_O(merge_heads(weights[""] @ values))
    return _largest(float((layer(x, mask=mask) - by_hand).abs().max()))


@_modes_kept
def attention_report(
    layer: MultiHeadAttention, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"]
) -> dict[str, float]:
    """Every invariant of a self-attention layer on one padded batch: name → largest violation.

    `x` needs two positions or more, and one sequence that is padded. An implementation that approximates its weights
    has no record of them.
    """
    time, mask = x.shape[1], Causal() & Lengths(lengths)

    def causal(changed: Tensor) -> Tensor:
        return layer(torch.where(changed[..., None] > 0, x + 1, x), mask=Causal())

    layer.train()
    nothing_changed = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
    found = {"no position sees a later one (train)": future_leak(causal, nothing_changed, 2)}
    layer.eval()
    found["no position sees a later one (eval)"] = future_leak(causal, nothing_changed, 2)
    found["padding changes nothing"] = padding_effect(lambda x, n: layer(x, mask=Lengths(n)), x, lengths)
    found["without positions the order changes nothing"] = permutation_gap(layer, x)
    found["a mask changes the output"] = unused_mask(lambda rule: layer(x, mask=rule), mask)
    found["a query that may attend to nothing gets 0"] = blocked_rows(
        layer.implementation, split_heads(x, layer.heads), Lengths(torch.zeros_like(lengths))
    )
    if (supports := supports_of(layer)) and supports.exact:
        with record(layer) as weights:
            layer(x, mask=mask)
        found["weights are a convex combination"] = convexity(weights[""], mask.dense(time, time, x.device))
        found["what is recorded is what is applied"] = record_gap(layer, x, mask)
    found["a saved layer computes the same"] = round_trip_gap(layer, lambda m: m(x, mask=mask))
    layer.train()
    found["every parameter gets a finite gradient"] = missing_gradients(
        layer, lambda m: m(x, mask=mask).square().mean(), without_effect=idle_key_biases(layer)
    )
    return found
