"""Answers to lesson 09: wrong ones that once passed and what they are told, right ones that look different."""

import math
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.gpt_pretraining import exercises as gpt_pretraining
from tfbook.lessons.gpt_pretraining.attention_exercise import rotated

# ---- wrong ones --------------------------------------------------------------------------------------------------


def attend_where_scores_are_not_0(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (layer.split(linear(x)) for linear in (layer.W_Q, layer.W_K, layer.W_V))
    scores = torch.tril(rotated(q) @ rotated(k).transpose(2, 3)) * q.size(-1) ** -0.5
    weights = scores.masked_fill(scores == 0, -math.inf).softmax(3)
    return layer.W_O((weights @ v).permute(0, 2, 1, 3).reshape(x.shape))


def loss_where(counts: Callable[[Tensor, int], Tensor], logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    targets = ids[:, 1:]
    own = logits[:, :-1].log_softmax(2).gather(2, targets.unsqueeze(2)).squeeze(2)
    return -own[counts(targets, pad)].mean()


def loss_relative_to_all(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    shifted = logits[:, :-1] - logits.max()
    logp, targets = shifted - shifted.exp().sum(-1, keepdim=True).log(), ids[:, 1:]
    return -logp.gather(2, targets.unsqueeze(2)).squeeze(2)[targets != pad].mean()


def bits_of(change: Callable[[str], str], loss: float, tokens: int, text: str) -> float:
    return loss * tokens / math.log(2) / len(change(text).encode("utf-8"))


def attend_by_hand(
    weigh: Callable[[Tensor, Tensor], Tensor], width: Callable[[Any], int], layer: Any, x: Tensor
) -> Tensor:
    q, k, v = (layer.split(project(x)) for project in (layer.W_Q, layer.W_K, layer.W_V))
    scores = torch.einsum("bhqd,bhkd->bhqk", rotated(q), rotated(k)) / math.sqrt(width(layer))
    mixed = weigh(scores, torch.ones(scores.shape[-2:]).tril()) @ v
    return layer.W_O(mixed.permute(0, 2, 1, 3).reshape(x.shape))


def causal_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask == 0, -math.inf).softmax(-1)


def d_model(layer: Any) -> int:
    return layer.W_Q.in_features


def d_head(layer: Any) -> int:
    return layer.W_Q.in_features // layer.heads


def post_norm(x: Tensor, branch: Any, norm: Any) -> Tensor:
    return norm(branch(x) + x)


def normalized_stream(x: Tensor, branch: Any, norm: Any) -> Tensor:
    y = norm(x)
    return y + branch(y)


def step_by_powers(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    p = torch.softmax(logits[:, -1, :], dim=1) ** (1 / temperature)
    p[:, never] = 0.0
    return p


def step_blocked_by(score: float, logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    last = (logits / temperature)[:, -1].clone()
    last[:, never] = score
    return torch.nn.functional.softmax(last, dim=1)


def step_over_texts(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    last = logits[:, -1].clone()
    last[:, never] = -torch.inf
    return (last / temperature).softmax(0)


def step_hotter(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    last = logits[:, -1] * temperature
    last[:, never] = -torch.inf
    return last.softmax(-1)


def implant_that_stays(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    def hook(_: Any, read: tuple[Tensor]) -> Tensor:
        x = read[0].clone()
        x[:, place, part] = vector
        return x

    layer.register_forward_pre_hook(hook)
    return model(ids)


def implant_in_place(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    def hook(_: Any, read: tuple[Tensor]) -> tuple[Tensor]:
        read[0].data[:, place, part] = vector
        return read

    handle = layer.register_forward_pre_hook(hook)
    logits = model(ids)
    handle.remove()
    return logits


def implant_without_return(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    def hook(_: Any, read: tuple[Tensor]) -> None:
        x = read[0].clone()
        x[:, place, part] = vector

    handle = layer.register_forward_pre_hook(hook)
    logits = model(ids)
    handle.remove()
    return logits


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        gpt_pretraining.count_parameters,
        lambda *sizes: gpt_pretraining.count_parameters.reference(*sizes) + sizes[0],
        "the output has no bias",
    ),
    (gpt_pretraining.attend, attend_where_scores_are_not_0, "mask by position"),
    (gpt_pretraining.implant, implant_that_stays, "is your hook still on it?"),
    (gpt_pretraining.implant, implant_in_place, "written into the tensor itself"),
    (gpt_pretraining.implant, implant_without_return, "the hook has to return"),
    (gpt_pretraining.residual, post_norm, "the norm comes after the sum"),
    (gpt_pretraining.residual, normalized_stream, "the normalized stream is added"),
    (gpt_pretraining.residual, lambda x, branch, norm: x + norm(branch(x)), "what the branch finds is normalized"),
    (gpt_pretraining.residual, lambda x, branch, norm: branch(norm(x)), "the stream is missing"),
    (gpt_pretraining.residual, lambda x, branch, norm: x + branch(x), "the branch reads x as it is"),
    (gpt_pretraining.next_word, step_by_powers, "powers of the shares"),
    (gpt_pretraining.next_word, partial(step_blocked_by, 0.0), "a score of 0"),
    (gpt_pretraining.next_word, step_over_texts, "over the texts of the batch"),
    (gpt_pretraining.next_word, step_hotter, "multiplied by the temperature"),
    (gpt_pretraining.story_loss, partial(loss_where, lambda targets, pad: targets > pad), "only if it equals `pad`"),
    (gpt_pretraining.story_loss, partial(loss_where, lambda targets, pad: targets != 0), "`pad` is given"),
    (gpt_pretraining.story_loss, loss_relative_to_all, "one maximum for all positions"),
    (gpt_pretraining.bits_per_byte, partial(bits_of, str.strip), "strip nothing"),
    (gpt_pretraining.bits_per_byte, partial(bits_of, partial(unicodedata.normalize, "NFC")), "normalizing the text"),
    (gpt_pretraining.bits_per_byte, partial(bits_of, str.lower), "case 4 of 4"),
    (gpt_pretraining.attend, partial(attend_by_hand, causal_softmax, d_model), "divided by √d_model"),
    (
        gpt_pretraining.attend,
        partial(attend_by_hand, lambda s, mask: s.softmax(-1) * mask, d_head),
        "after the softmax",
    ),
    (gpt_pretraining.attend, partial(attend_by_hand, lambda s, mask: (s * mask).softmax(-1), d_head), "e⁰ = 1"),
]


# ---- right ones --------------------------------------------------------------------------------------------------


def attend_word_by_word(layer: Any, x: Tensor) -> Tensor:
    q, k, v = (layer.split(linear(x)) for linear in (layer.W_Q, layer.W_K, layer.W_V))
    q, k, mixed = rotated(q), rotated(k), []
    for t in range(x.size(1)):
        weights = (q[:, :, t : t + 1] @ k[:, :, : t + 1].mT * q.size(-1) ** -0.5).softmax(-1)
        mixed.append((weights @ v[:, :, : t + 1]).flatten(1))
    return layer.W_O(torch.stack(mixed, dim=1))


def loss_in_float64(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    targets = ids[:, 1:].flatten()
    logp = logits.double()[:, :-1].flatten(0, 1).log_softmax(1)
    counts = (targets != pad).double()
    return (-(logp[range(len(targets)), targets] @ counts) / counts.sum()).float()


def loss_by_maxima(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    shifted = logits - logits.amax(2, keepdim=True)
    logp, targets = shifted - shifted.exp().sum(2, keepdim=True).log(), ids[:, 1:]
    one_hot = torch.arange(logits.size(2)) == targets.unsqueeze(2)
    return -(logp[:, :-1] * one_hot).sum(2)[targets != pad].mean()


def bits_by_log2(loss: float, tokens: int, text: str) -> float:
    return tokens / len(bytes(text, "utf-8")) * loss * math.log2(math.e)


def residual_in_steps(x: Tensor, branch: Any, norm: Any) -> Tensor:
    found = branch(norm(x))
    return torch.add(found, x)


def step_with_a_mask(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    last = logits[:, -1, :]
    blocked = torch.zeros(last.shape[1], dtype=torch.bool)
    for i in never:
        blocked[i] = True
    return torch.softmax(last.masked_fill(blocked, float("-inf")) / temperature, dim=-1)


def step_renormalized(logits: Tensor, temperature: float, never: list[int]) -> Tensor:
    p = (logits[:, -1].double() / temperature).softmax(-1)
    p[:, never] = 0
    return (p / p.sum(-1, keepdim=True)).float()


def implant_by_another_forward(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    """The layer's own `forward`, replaced for one call."""
    original = layer.forward

    def forward(x: Tensor) -> Tensor:
        changed = x.clone()
        changed[:, place, part] = vector
        return original(changed)

    layer.forward = forward
    try:
        return model(ids)
    finally:
        layer.forward = original


def implant_by_a_mask(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    def hook(_: Any, read: tuple[Tensor]) -> tuple[Tensor]:
        wanted = torch.zeros_like(read[0])
        wanted[:, place, part] = 1
        put = torch.zeros_like(read[0])
        put[:, place, part] = vector
        return (torch.where(wanted > 0, put, read[0]),)

    with layer.register_forward_pre_hook(hook):
        return model(ids)


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (gpt_pretraining.implant, implant_by_another_forward),
    (gpt_pretraining.implant, implant_by_a_mask),
    (gpt_pretraining.residual, residual_in_steps),
    (gpt_pretraining.next_word, step_with_a_mask),
    (gpt_pretraining.next_word, step_renormalized),
    (gpt_pretraining.attend, attend_word_by_word),
    (gpt_pretraining.story_loss, loss_in_float64),
    (gpt_pretraining.story_loss, loss_by_maxima),
    (gpt_pretraining.bits_per_byte, bits_by_log2),
]
