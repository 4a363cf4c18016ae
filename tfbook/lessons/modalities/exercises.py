"""Exercises of lesson 19: tokens of numbers, edges as a mask, scores of GAT, walks that come back; and a bug."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.modalities.asking_exercises import ask_loss as ask_loss
from tfbook.lessons.modalities.sound_exercises import (
    clip_loss as clip_loss,
    cut_pieces as cut_pieces,
    text_chances as text_chances,
)

# ---- a token for each number -----------------------------------------------------------------------------------------


def _rows() -> list[tuple[Tensor, Tensor, Tensor]]:
    return [
        (randn(3, 3, seed=1), randn(3, 3, seed=2), randn(3, 3, seed=3)),
        (randn(2, 4, seed=4), randn(4, 5, seed=5), randn(4, 5, seed=6)),
        (torch.zeros(1, 2), randn(2, 3, seed=7), randn(2, 3, seed=8)),
    ]


@exercise(
    cases=_rows,
    hints=[
        "Each number of a row multiplies its column's own vector: token j is x[:, j] times weight[j], plus bias[j].",
        "`x[:, :, None]` is (row, number, 1), and weight is (number, d): their product is (row, number, d).",
    ],
)
def number_tokens(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x[:, :, None] * weight + bias


number_tokens.mistakes(
    {
        "the tokens of a row are added up: a row should stay a sequence, one token for each number": (
            lambda x, weight, bias: x @ weight + bias.sum(dim=0)
        ),
        "the bias is missing: without it a number 0 would become the zero vector, in every column": (
            lambda x, weight, bias: x[:, :, None] * weight
        ),
        "all numbers share the vector of the first column; each column has its own": (
            lambda x, weight, bias: x[:, :, None] * weight[0] + bias
        ),
        "you multiply the bias as well: it is added after the product": (
            lambda x, weight, bias: x[:, :, None] * (weight + bias)
        ),
        "all columns share the bias of the first one; each has its own": (
            lambda x, weight, bias: x[:, :, None] * weight + bias[0]
        ),
    }
)

# ---- edges as a mask -------------------------------------------------------------------------------------------------


def _edges(batch: int, nodes: int, seed: int) -> Tensor:
    upper = (randn(batch, nodes, nodes, seed=seed) > 0.3).triu(1)
    return upper | upper.mT


def _graphs() -> list[tuple[Tensor]]:
    return [(_edges(2, 4, 1),), (_edges(3, 5, 2),), (torch.zeros(1, 3, 3, dtype=torch.bool),)]


def _loops(edges: Tensor) -> Tensor:
    return torch.eye(edges.shape[-1], dtype=torch.bool)


@exercise(
    cases=_graphs,
    hints=[
        "A node may look at its neighbors and at itself: `edges | torch.eye(nodes, dtype=torch.bool)`.",
        "The blocks expect (batch, head, query, key). All heads share the mask: put an axis of 1 there, `[:, None]`.",
        "On a GPU the identity has to be where the edges are: `device=edges.device`.",
    ],
    differentiable=False,
)
def edge_mask(edges: Tensor) -> Tensor:
    nodes = edges.shape[-1]
    return (edges | torch.eye(nodes, dtype=torch.bool, device=edges.device))[:, None]


edge_mask.mistakes(
    {
        "a node does not see itself: add the diagonal, or a node without neighbors has nothing to attend to": (
            lambda edges: edges[:, None]
        ),
        "there is no axis for the heads: the blocks expect (batch, 1, node, node)": lambda edges: edges | _loops(edges),
        "the mask is the wrong way round: True marks where a node may look": (
            lambda edges: ~(edges | _loops(edges))[:, None]
        ),
        "each node sees only itself: the edges are missing": lambda edges: _loops(edges).expand_as(edges)[:, None],
        "this mask sees only earlier nodes: friendship has no direction, keep both triangles": (
            lambda edges: (edges | _loops(edges)).tril()[:, None]
        ),
        "numbers instead of True and False: a mask is Boolean": lambda edges: (edges | _loops(edges))[:, None].float(),
    }
)

# ---- the weights of GAT ----------------------------------------------------------------------------------------------


def _heads() -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    return [
        (randn(4, 3, seed=1), randn(3, seed=2), randn(3, seed=3), (_edges(1, 4, 4) | _loops(_edges(1, 4, 4)))[0]),
        (
            2 * randn(5, 5, seed=5),
            randn(5, seed=6),
            randn(5, seed=7),
            (_edges(1, 5, 8) | _loops(_edges(1, 5, 8)))[0],
        ),
        (-300 * randn(3, 2, seed=9).abs(), randn(2, seed=10).abs(), randn(2, seed=11).abs(), torch.eye(3).bool()),
    ]


@exercise(
    cases=_heads,
    hints=[
        "a · [h_i ‖ h_j] is the sum of two numbers: a_query · h_i and a_key · h_j.",
        "`(h @ a_query)[:, None] + (h @ a_key)[None, :]` has a row for each query i and a column for each key j.",
        "Then LeakyReLU with slope 0.2, −∞ where j is no neighbor, and a softmax over j (dim=1).",
    ],
)
def gat(h: Tensor, a_query: Tensor, a_key: Tensor, allowed: Tensor) -> Tensor:
    scores = F.leaky_relu((h @ a_query)[:, None] + (h @ a_key)[None, :], 0.2)
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=1)


def _gat(h: Tensor, a_query: Tensor, a_key: Tensor, slope: float = 0.2) -> Tensor:
    return F.leaky_relu((h @ a_query)[:, None] + (h @ a_key)[None, :], slope)


def _masked(scores: Tensor, allowed: Tensor, dim: int = 1) -> Tensor:
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=dim)


gat.mistakes(
    {
        "strangers get weight: set their scores to −∞ before the softmax": (
            lambda h, a_query, a_key, allowed: torch.softmax(_gat(h, a_query, a_key), dim=1)
        ),
        "a score of 0 is not weight 0, since exp(0) = 1: fill the scores of strangers with −∞": (
            lambda h, a_query, a_key, allowed: torch.softmax(_gat(h, a_query, a_key) * allowed, dim=1)
        ),
        "the softmax runs over the queries: the weights of each node should sum to 1 over its keys (dim=1)": (
            lambda h, a_query, a_key, allowed: _masked(_gat(h, a_query, a_key), allowed, 0)
        ),
        "the LeakyReLU is missing": lambda h, a_query, a_key, allowed: _masked(_gat(h, a_query, a_key, 1.0), allowed),
        "this is a ReLU: negative scores should keep a fifth of their size": (
            lambda h, a_query, a_key, allowed: _masked(_gat(h, a_query, a_key, 0.0), allowed)
        ),
        "the two halves of a are exchanged: a_query belongs to node i, the row": (
            lambda h, a_query, a_key, allowed: _masked(_gat(h, a_key, a_query), allowed)
        ),
        "PyTorch's default slope is 0.01; the paper's is 0.2": (
            lambda h, a_query, a_key, allowed: _masked(_gat(h, a_query, a_key, 0.01), allowed)
        ),
    }
)

# ---- walks that come back --------------------------------------------------------------------------------------------


def _connected() -> list[tuple[Tensor, int]]:
    cases = []
    for nodes, steps, seed in ((4, 2, 3), (5, 4, 4), (6, 3, 5)):
        line = torch.diag(torch.ones(nodes - 1, dtype=torch.bool), 1)
        edges = _edges(1, nodes, seed)[0] | line | line.T
        cases.append((edges, steps))
    return cases


def _walk(edges: Tensor) -> Tensor:
    return edges.float() / edges.sum(dim=1, keepdim=True)


def _returns(walk: Tensor, powers: range) -> Tensor:
    return torch.stack([torch.linalg.matrix_power(walk, k).diagonal() for k in powers], dim=1)


@exercise(
    cases=_connected,
    hints=[
        "One step of the walk: `edges.float() / edges.sum(dim=1, keepdim=True)`, whose rows sum to 1.",
        "The chance to be at j after k steps from i is entry (i, j) of the k-th power; being back is its diagonal.",
        "`torch.linalg.matrix_power(walk, k).diagonal()` for k = 2, …, steps + 1, stacked as columns.",
    ],
    differentiable=False,
)
def returns(edges: Tensor, steps: int) -> Tensor:
    walk = edges.float() / edges.sum(dim=1, keepdim=True)
    powers = [torch.linalg.matrix_power(walk, k).diagonal() for k in range(2, steps + 2)]
    return torch.stack(powers, dim=1)


returns.mistakes(
    {
        "the first column is always 0, since one step never leads back: begin with two steps": (
            lambda edges, steps: _returns(_walk(edges), range(1, steps + 1))
        ),
        "these are counts of walks, not chances: divide each row of the edges by its sum": (
            lambda edges, steps: _returns(edges.float(), range(2, steps + 2))
        ),
        "one column too few: k runs from 2 to steps + 1": (
            lambda edges, steps: _returns(_walk(edges), range(2, steps + 1))
        ),
        "the codes of a node are a row, one column for each k: stack along dim=1": (
            lambda edges, steps: _returns(_walk(edges), range(2, steps + 2)).T
        ),
        "the walker may stay where it is: do not add the diagonal to the edges": (
            lambda edges, steps: _returns(_walk(edges | _loops(edges)), range(2, steps + 2))
        ),
    }
)

# ---- find the bug ----------------------------------------------------------------------------------------------------


def _attention() -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    cases = []
    for nodes, d, seed in ((4, 4, 1), (5, 3, 2), (3, 6, 3)):
        edges = _edges(1, nodes, seed + 20)
        q, k, v = (randn(nodes, d, seed=seed + 10 * n) for n in (3, 4, 5))
        cases.append((q, k, v, (edges | _loops(edges))[0]))
    q, k, v, allowed = cases[0]
    return [*cases, (200 * q, k, v, allowed)]  # exponentials leave float32


@exercise(
    cases=_attention,
    hints=[
        "What does a node give to somebody who is no neighbor? Print a row of the weights.",
        "A score of 0 is not a weight of 0: exp(0) = 1. Which score has the exponential 0?",
    ],
)
def along_edges(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = q @ k.T / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=-1)
    return weights @ v


along_edges.mistakes(
    {
        "the weights of a node no longer sum to 1: hide strangers before the softmax, not after it": (
            lambda q, k, v, allowed: (torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), dim=-1) * allowed) @ v
        ),
        "now everybody attends to everybody: the edges are not used": (
            lambda q, k, v, allowed: torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), dim=-1) @ v
        ),
        "now each node attends to strangers only: masked_fill takes the places to hide, `~allowed`": (
            lambda q, k, v, allowed: (
                torch.softmax((q @ k.T / math.sqrt(q.shape[-1])).masked_fill(allowed, -1e9), dim=-1) @ v
            )
        ),
        "the division by √d is gone": (
            lambda q, k, v, allowed: torch.softmax((q @ k.T).masked_fill(~allowed, -math.inf), dim=-1) @ v
        ),
    }
)


@along_edges.given
def _(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = q @ k.T / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores * allowed, dim=-1)
    return weights @ v
