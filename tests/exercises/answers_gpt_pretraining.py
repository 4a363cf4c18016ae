"""Answers to lesson 09: wrong ones that once passed and what they are told, right ones that look different."""

import math
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from tfbook.course.exercises import Exercise
from tfbook.lessons.gpt_pretraining import exercises as gpt_pretraining
from tfbook.lessons.gpt_pretraining.attention_exercise import rotated

# ---- wrong ones --------------------------------------------------------------------------------------------------


def shift_without_padding(ids: Tensor) -> tuple[Tensor, Tensor]:
    targets = ids[:, 1:].clone()
    targets[targets == 0] = -100
    return ids[:, :-1], targets


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


def finish_steps(
    numbers: Callable[[int, int], range], load: Callable, make: Callable, batch: Callable, rate: Callable, steps: int
) -> Tensor:
    saved, (model, optimizer) = load(), make()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])
    for step in numbers(saved["step"], steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        model(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return parameters_to_vector(model.parameters()).detach()


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


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (gpt_pretraining.shift, shift_without_padding, "padding is shifted like any other id"),
    (gpt_pretraining.attend, attend_where_scores_are_not_0, "mask by position"),
    (gpt_pretraining.story_loss, partial(loss_where, lambda targets, pad: targets > pad), "only if it equals `pad`"),
    (gpt_pretraining.story_loss, partial(loss_where, lambda targets, pad: targets != 0), "`pad` is given"),
    (gpt_pretraining.story_loss, loss_relative_to_all, "one maximum for all positions"),
    (gpt_pretraining.bits_per_byte, partial(bits_of, str.strip), "strip nothing"),
    (gpt_pretraining.bits_per_byte, partial(bits_of, partial(unicodedata.normalize, "NFC")), "normalizing the text"),
    (gpt_pretraining.bits_per_byte, partial(bits_of, str.lower), "case 4 of 4"),
    (gpt_pretraining.finish, partial(finish_steps, lambda done, steps: range(done, steps + 1)), "one step too many"),
    (gpt_pretraining.finish, partial(finish_steps, lambda done, steps: range(done + 1, steps)), "one step is left out"),
    (gpt_pretraining.attend, partial(attend_by_hand, causal_softmax, d_model), "divided by √d_model"),
    (
        gpt_pretraining.attend,
        partial(attend_by_hand, lambda s, mask: s.softmax(-1) * mask, d_head),
        "after the softmax",
    ),
    (gpt_pretraining.attend, partial(attend_by_hand, lambda s, mask: (s * mask).softmax(-1), d_head), "e⁰ = 1"),
    (gpt_pretraining.finish, partial(finish_steps, lambda done, steps: range(steps - done)), "numbered from 0 again"),
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


def finish_as_asked(*run: Any) -> Tensor:
    return finish_steps(range, *run)


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (gpt_pretraining.attend, attend_word_by_word),
    (gpt_pretraining.story_loss, loss_in_float64),
    (gpt_pretraining.story_loss, loss_by_maxima),
    (gpt_pretraining.bits_per_byte, bits_by_log2),
    (gpt_pretraining.finish, finish_as_asked),
]
