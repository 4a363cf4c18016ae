"""A stranger's answers to lesson 05: the wrong ones are refused, the right ones in other styles accepted."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.course.exercises import Exercise
from tfbook.lessons.transformer import exercises as transformer
from tfbook.text import PAD

Model = Callable[[Tensor, Tensor], Tensor]

# ---- wrong -------------------------------------------------------------------------------------------------------


def normalized_by_mean_of_squares(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x * x).mean(dim=-1, keepdim=True) - mean * mean
    return weight * (x - mean) / torch.sqrt(variance + epsilon) + bias


def rates_from_a_table(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    t = torch.arange(1, 50_001)
    return (d_model**-0.5 * torch.minimum(t**-0.5, t * warmup**-1.5))[steps]


def loss_as_a_sum(model: Model, source: Tensor, target: Tensor) -> Tensor:
    logits, words = model(source, target[:, :-1]).transpose(1, 2), target[:, 1:]
    return F.cross_entropy(logits, words, ignore_index=PAD, reduction="sum")


def loss_sentence_by_sentence(model: Model, source: Tensor, target: Tensor) -> Tensor:
    logits = model(source, target[:, :-1])
    losses = [F.cross_entropy(*each, ignore_index=PAD) for each in zip(logits, target[:, 1:], strict=True)]
    return torch.stack(losses).mean()


def loss_one_place_too_late(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(model(source, target)[:, 1:].mT, target[:, 1:], ignore_index=PAD)


def masks_without_padded_queries_in_cross_attention(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    encoder, decoder, cross = masks_by_loops(source, target)
    queries = torch.arange(cross.shape[1]) < target[:, None]
    return encoder, decoder, cross & queries[:, :, None]


def masks_with_the_lengths_of_the_target(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    encoder, decoder, _ = masks_by_loops(source, target)
    seen = torch.arange(int(source.max()))[None] < target[:, None]
    return encoder, decoder, seen[:, None].expand(-1, int(target.max()), -1)


def block_with_one_residual(x: Tensor, *layers: Callable[[Tensor], Tensor]) -> Tensor:
    attention, feed_forward, first, second = layers
    return feed_forward(second(attention(first(x)))) + x


def rates_of_the_first_steps(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    return rates_by_cases(torch.arange(len(steps)), d_model, warmup)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        transformer.learning_rate,
        lambda steps, d_model, warmup: torch.minimum((1.0 + steps).rsqrt(), steps / warmup**1.5) / d_model**0.5,
        "t = step + 1 in both",
    ),
    (transformer.normalize, normalized_by_mean_of_squares, "subtract the mean before you square"),
    (transformer.learning_rate, rates_from_a_table, "index 100000 is out of bounds"),
    (transformer.training_loss, loss_as_a_sum, "this is the sum over the words"),
    (transformer.training_loss, loss_sentence_by_sentence, "words of short ones would weigh more"),
    (transformer.training_loss, loss_one_place_too_late, "one place too late"),
    (transformer.three_masks, masks_without_padded_queries_in_cross_attention, "cross-attention blocks padded queries"),
    (transformer.three_masks, masks_with_the_lengths_of_the_target, "by the lengths of the target: its keys are the"),
    (transformer.pre_norm_block, block_with_one_residual, "one residual for both layers"),
    (transformer.learning_rate, rates_of_the_first_steps, "you counted the entries"),
]


# ---- right -------------------------------------------------------------------------------------------------------


def normalized_by_pytorch(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, epsilon)


def normalized_in_one_product(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * torch.rsqrt(variance + epsilon), weight)


def normalized_as_a_batch_of_rows(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    rows = x.flatten(0, 1)[None]  # batch norm over one "sentence" of so many channels
    rows = F.batch_norm(rows, None, None, None, None, training=True, momentum=0.0, eps=epsilon)
    return rows[0].view(x.shape) * weight + bias


class Block:
    def __call__(self, x: Tensor, *layers: Callable[[Tensor], Tensor]) -> Tensor:
        attention, feed_forward, *norms = layers
        for layer, norm in zip((attention, feed_forward), norms, strict=True):
            x = x.add(layer(norm(x)))
        return x


def masks_by_loops(source_lengths: Tensor, target_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    batch, source, target = len(source_lengths), int(source_lengths.max()), int(target_lengths.max())
    shapes = (batch, source, source), (batch, target, target), (batch, target, source)
    encoder, decoder, cross = (torch.zeros(shape, dtype=torch.bool) for shape in shapes)
    for i, (words, said) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        encoder[i, :, :words] = cross[i, :, :words] = True
        for query in range(target):
            decoder[i, query, : min(query + 1, said)] = True
    return encoder, decoder, cross


def loss_of_the_whole_target(model: Model, source: Tensor, target: Tensor) -> Tensor:
    return nn.CrossEntropyLoss(ignore_index=PAD)(model(source, target)[:, :-1].transpose(1, 2), target[:, 1:])


def loss_by_hand(model: Model, source: Tensor, target: Tensor) -> Tensor:
    words = target[:, 1:]
    logp, keep = model(source, target[:, :-1]).log_softmax(dim=-1), words != PAD
    return -(logp.gather(-1, words[..., None])[..., 0] * keep).sum() / keep.sum()


def rates_by_cases(steps: Tensor, d_model: int, warmup: int) -> Tensor:
    t = steps.double() + 1
    return torch.where(t < warmup, t / warmup**1.5, t.rsqrt()) / d_model**0.5


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (transformer.normalize, normalized_by_pytorch),
    (transformer.normalize, normalized_in_one_product),
    (transformer.normalize, normalized_as_a_batch_of_rows),
    (transformer.pre_norm_block, Block()),
    (transformer.three_masks, masks_by_loops),
    (transformer.training_loss, loss_of_the_whole_target),
    (transformer.training_loss, loss_by_hand),
    (transformer.learning_rate, rates_by_cases),
]
