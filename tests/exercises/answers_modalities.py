"""Answers to the exercises of lesson 19: wrong ones and what they are told, and right ones in other styles."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.exercises import asking_answers, senses
from tfbook.course.exercises import Exercise
from tfbook.lessons.modalities import exercises as ex


def tokens_by_loops(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.stack([torch.stack([v * w + b for v, w, b in zip(row, weight, bias, strict=True)]) for row in x])


def tokens_by_einsum(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.einsum("bn,nd->bnd", x, weight) + bias[None]


def mask_by_fill(edges: Tensor) -> Tensor:
    mask = edges.clone()
    mask.diagonal(dim1=-2, dim2=-1).fill_(True)
    return mask.unsqueeze(1)


def mask_by_numbers(edges: Tensor) -> Tensor:
    return (edges.int() + torch.eye(edges.shape[-1], dtype=torch.int)).unsqueeze(1) > 0


def gat_by_concatenation(h: Tensor, a_query: Tensor, a_key: Tensor, allowed: Tensor) -> Tensor:
    n = len(h)
    pairs = torch.cat([h[:, None].expand(n, n, -1), h[None].expand(n, n, -1)], dim=-1)
    scores = F.leaky_relu(pairs @ torch.cat([a_query, a_key]), negative_slope=0.2)
    return torch.where(allowed, scores, torch.tensor(-math.inf)).softmax(dim=-1)


def gat_by_exponentials(h: Tensor, a_query: Tensor, a_key: Tensor, allowed: Tensor) -> Tensor:
    scores = (h @ a_query)[:, None] + h @ a_key
    scores = torch.where(scores > 0, scores, 0.2 * scores).masked_fill(~allowed, -math.inf)
    scores = scores - scores.max(dim=1, keepdim=True).values
    return scores.exp() / scores.exp().sum(dim=1, keepdim=True)


def gat_of_dot_products(h: Tensor, a_query: Tensor, a_key: Tensor, allowed: Tensor) -> Tensor:
    return (h @ h.T / math.sqrt(h.shape[1])).masked_fill(~allowed, -math.inf).softmax(dim=1)


def returns_step_by_step(edges: Tensor, steps: int) -> Tensor:
    walk = edges.float() / edges.sum(dim=1, keepdim=True)
    power, found = walk, []
    for _ in range(steps):
        power = power @ walk
        found.append(torch.diag(power))
    return torch.stack(found, dim=-1)


def returns_by_degrees(edges: Tensor, steps: int) -> Tensor:
    walk = torch.diag(1 / edges.float().sum(dim=0)) @ edges.float()
    return torch.stack([torch.linalg.matrix_power(walk, k).diagonal() for k in range(2, steps + 2)], dim=-1)


def returns_of_where_it_ends(edges: Tensor, steps: int) -> Tensor:
    walk = edges.float() / edges.sum(dim=1, keepdim=True)
    return torch.stack([torch.linalg.matrix_power(walk, k)[:, 0] for k in range(2, steps + 2)], dim=1)


def along_by_a_large_number(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    return (q @ k.T / q.shape[-1] ** 0.5 + torch.where(allowed, 0.0, -1e9)).softmax(dim=-1) @ v


def along_by_the_mean(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    return allowed.float() @ v / allowed.sum(dim=1, keepdim=True)


def along_weighted_afterwards(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    return (torch.softmax(q @ k.mT / math.sqrt(q.shape[1]), dim=1) * allowed.float()) @ v


def mask_of_early_nodes(edges: Tensor) -> Tensor:
    return torch.tril(edges | torch.eye(edges.shape[-1]).bool()).unsqueeze(1)


def mask_without_oneself(edges: Tensor) -> Tensor:
    return edges.unsqueeze(1).clone()


def tokens_summed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x[:, :, None] * weight + bias).sum(dim=1)


def gat_over_queries(h: Tensor, a_query: Tensor, a_key: Tensor, allowed: Tensor) -> Tensor:
    scores = F.leaky_relu((h @ a_query).unsqueeze(1) + (h @ a_key).unsqueeze(0), 0.2)
    return torch.softmax(torch.where(allowed, scores, -math.inf), dim=0)


def returns_of_counts(edges: Tensor, steps: int) -> Tensor:
    counts = edges.float()
    return torch.stack([torch.linalg.matrix_power(counts, k).diag() for k in range(2, steps + 2)], dim=-1)


def along_node_by_node(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    rows = [
        torch.softmax(k[near] @ one / math.sqrt(len(one)), dim=0) @ v[near]
        for one, near in zip(q, allowed, strict=True)
    ]
    return torch.stack(rows)


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (ex.number_tokens, tokens_summed, "the tokens of a row are added up"),
    (ex.edge_mask, mask_of_early_nodes, "this mask sees only earlier nodes"),
    (ex.edge_mask, mask_without_oneself, "a node does not see itself"),
    (ex.gat, gat_of_dot_products, "case 1 of 3"),
    (ex.gat, gat_over_queries, "the softmax runs over the queries"),
    (ex.returns, returns_of_where_it_ends, "case 1 of 3"),
    (ex.returns, returns_of_counts, "these are counts of walks"),
    (ex.along_edges, along_by_the_mean, "case 1 of 4"),
    (ex.along_edges, along_weighted_afterwards, "no longer sum to 1"),
    *senses.WRONG,
    *asking_answers.WRONG,
]
RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (ex.number_tokens, tokens_by_loops),
    (ex.number_tokens, tokens_by_einsum),
    (ex.edge_mask, mask_by_fill),
    (ex.edge_mask, mask_by_numbers),
    (ex.gat, gat_by_concatenation),
    (ex.gat, gat_by_exponentials),
    (ex.returns, returns_step_by_step),
    (ex.returns, returns_by_degrees),
    (ex.along_edges, along_by_a_large_number),
    (ex.along_edges, along_node_by_node),
    *senses.RIGHT,
    *asking_answers.RIGHT,
]
