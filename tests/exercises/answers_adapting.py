"""Answers to lesson 11: wrong ones that once passed and what they are told, right ones that look different."""

from collections.abc import Callable
from itertools import chain, groupby
from typing import Any

import torch
from torch import Tensor

from tfbook.course.exercises import Exercise
from tfbook.lessons.adapting import exercises as adapting

# ---- wrong ones --------------------------------------------------------------------------------------------------


def one_row_for_equal_sentences(a: list[int], b: list[int], start: int, delim: int, extract: int) -> list[list[int]]:
    orders = {(tuple(a), tuple(b)): None, (tuple(b), tuple(a)): None}
    return [[start, *first, delim, *second, extract] for first, second in orders]


def spans_of_up_to_three(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source: list[int] = []
    target: list[int] = []
    length = 0
    for token, gone in zip(ids, cut, strict=True):
        if gone and length % 3 == 0:
            source.append(sentinel)
            target.append(sentinel)
            sentinel += 1
        length = length + 1 if gone else 0
        (target if gone else source).append(token)
    return source, [*target, sentinel]


def balance_by_threshold(p: Tensor, k: int) -> Tensor:
    least = p.sort(dim=1, descending=True).values[:, k - 1 : k]
    f = (p >= least).to(p.dtype).sum(0) / (len(p) * k)
    return p.size(1) * torch.dot(f, p.mean(0))


def lora_by_root(x: Tensor, W: Tensor, b: Tensor, A: Tensor, B: Tensor, alpha: float) -> Tensor:
    return x @ (W + alpha / A.shape[0] ** 0.5 * B @ A).T + b


def adapters_with_biases(d_model: int, d_ff: int, layers: int, rank: int, names: list[str]) -> int:
    sides = {"up": (d_model, d_ff), "down": (d_ff, d_model)}
    each = [sides.get(name, (d_model, d_model)) for name in names]
    return layers * sum(rank * d_in + d_out * rank + d_out for d_in, d_out in each)


def spans_that_other_tokens_end(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source: list[int] = []
    target: list[int] = []
    span: list[int] = []
    for token, gone in zip(ids, cut, strict=True):
        if gone:
            span.append(token)
            continue
        if span:
            source.append(sentinel)
            target += [sentinel, *span]
            sentinel, span = sentinel + 1, []
        source.append(token)
    return source, [*target, sentinel]


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        adapting.span_targets,
        lambda ids, cut, sentinel: (list(ids), adapting.span_targets.reference(ids, cut, sentinel)[1]),
        "the source still holds what was cut",
    ),
    (
        adapting.balance,
        lambda p, k: (
            adapting.balance.reference(p, k) * 0
            + (
                torch.bincount(p.topk(k).indices.flatten(), minlength=p.shape[1])
                / p.shape[0]
                / k
                * p.softmax(1).mean(0)
            ).sum()
            * p.shape[1]
        ),
        "one softmax too many",
    ),
    (adapting.pair_inputs, one_row_for_equal_sentences, "two equal sentences make two rows"),
    (adapting.span_targets, spans_of_up_to_three, "a long span"),
    (adapting.balance, balance_by_threshold, "each token makes k choices"),
    (adapting.lora_forward, lora_by_root, "divided by √r"),
    (adapting.count_adapters, adapters_with_biases, "biases are counted"),
    (adapting.span_targets, spans_that_other_tokens_end, "a span at the end of the text is lost"),
]


# ---- right ones --------------------------------------------------------------------------------------------------


def rows_by_chains(a: list[int], b: list[int], start: int, delim: int, extract: int) -> list[list[int]]:
    return [list(chain([start], first, [delim], second, [extract])) for first, second in ((a, b), (b, a))]


def spans_from_groups(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source: list[int] = []
    target: list[int] = []
    for gone, run in groupby(zip(ids, cut, strict=True), key=lambda pair: pair[1]):
        tokens = [token for token, _ in run]
        if gone:
            source, target, sentinel = [*source, sentinel], [*target, sentinel, *tokens], sentinel + 1
        else:
            source = source + tokens
    target.append(sentinel)
    return source, target


def balance_by_counting(p: Tensor, k: int) -> Tensor:
    chosen = p.argsort(dim=1, descending=True)[:, :k].flatten()
    f = torch.bincount(chosen, minlength=p.size(1)) / len(chosen)
    return torch.stack([f[i] * p[:, i].mean() for i in range(p.size(1))]).sum() * p.size(1)


def balance_with_the_last_of_equals(p: Tensor, k: int) -> Tensor:
    chosen = p.size(1) - 1 - p.flip(1).argsort(dim=1, descending=True, stable=True)[:, :k]
    f = torch.zeros_like(p).scatter(1, chosen, 1.0).mean(0) / k
    return (f * p).sum() * p.size(1) / len(p)


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (adapting.pair_inputs, rows_by_chains),
    (adapting.span_targets, spans_from_groups),
    (adapting.balance, balance_by_counting),
    (adapting.balance, balance_with_the_last_of_equals),
]
