"""Generated graphs: two clubs of friends, a few of whom are known; and skeletons of molecules with rings.

Shapes: batch, node; edges are symmetric, without loops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import index
from typing import SupportsIndex

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

NOT_ASKED = -100  # the target of a node that nobody is asked about


@dataclass(frozen=True)
class Graphs:
    """Graphs with equally many nodes: what each node shows, who is a neighbor of whom, and what is asked."""

    features: Float[Tensor, "batch node feature"]
    edges: Bool[Tensor, "batch node node"]
    target: Int64[Tensor, "batch node"]  # NOT_ASKED where nothing is asked

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, rows: slice | Tensor) -> Graphs:
        """Some of the graphs."""
        return Graphs(self.features[rows], self.edges[rows], self.target[rows])

    def to(self, device: torch.device | str) -> Graphs:
        """The same graphs on another device."""
        return Graphs(self.features.to(device), self.edges.to(device), self.target.to(device))

    def reordered(self, order: Int64[Tensor, "batch node"]) -> Graphs:
        """The same graphs with their nodes in another order."""
        rows = torch.arange(len(order))[:, None]
        edges = self.edges[rows[:, :, None], order[:, :, None], order[:, None, :]]
        return Graphs(self.features[rows, order], edges, self.target[rows, order])


# ---- two clubs ---------------------------------------------------------------------------------------------------

CLUBS = ("red", "blue")
WITHIN, ACROSS = 4.0, 0.9  # friends that a member has on average in the own club, and in the other


def clubs(count: int, *, nodes: int = 24, known: int = 2, seed: SupportsIndex) -> Graphs:
    """Friends in two clubs of `nodes` / 2: `known` of each are known, and everyone else is asked about.

    A node shows (1, 0) or (0, 1) where its club is known, otherwise (0, 0). Everyone has a friend.
    Raises ValueError unless 1 ≤ `known` < `nodes` / 2.
    """
    half = nodes // 2
    if not 1 <= known < half or nodes % 2:
        raise ValueError(f"nodes is {nodes} and known is {known}; expected two equal clubs, 1 to {half - 1} known")
    generator = torch.Generator().manual_seed(index(seed))
    club = torch.stack([torch.randperm(nodes, generator=generator) % 2 for _ in range(count)])
    same = club[:, :, None] == club[:, None, :]
    chance = torch.where(same, WITHIN / (half - 1), ACROSS / half)
    upper = (torch.rand(count, nodes, nodes, generator=generator) < chance).triu(1)
    edges = _befriended(upper | upper.mT, same, generator)
    rank = torch.rand(count, nodes, generator=generator)  # the first of each club are known
    shown = torch.stack([(rank.masked_fill(club != c, 2).argsort(dim=1).argsort(dim=1) < known) for c in (0, 1)], -1)
    return Graphs(shown.float(), edges, club.masked_fill(shown.any(dim=-1), NOT_ASKED))


def _befriended(edges: Tensor, same: Tensor, generator: torch.Generator) -> Tensor:
    """Who has no friend gets one in the own club."""
    lonely = ~edges.any(dim=-1)
    draw = torch.rand(same.shape, generator=generator) * (same & ~torch.eye(same.shape[-1], dtype=torch.bool))
    friend = torch.nn.functional.one_hot(draw.argmax(dim=-1), same.shape[-1]).bool() & lonely[..., None]
    return edges | friend | friend.mT


def spread(graphs: Graphs, rounds: int = 50) -> Int64[Tensor, "batch node"]:
    """Everyone takes the mean of the friends' clubs, again and again; the known stay (Zhu et al., 2003).

    This is a classical rule for such questions. It trains nothing.
    """
    shown = graphs.features[..., 0] - graphs.features[..., 1]
    near = graphs.edges.float()
    mean = near / near.sum(dim=-1, keepdim=True).clamp(min=1)
    value = shown
    for _ in range(rounds):
        value = torch.where(shown != 0, shown, (mean @ value[..., None])[..., 0])
    return (value < 0).long()


# ---- rings -------------------------------------------------------------------------------------------------------

RINGS = (0, 3, 4, 5, 6, 7)  # the labels: in no ring, or the size of the smallest


def smallest_rings(neighbors: Mapping[int, set[int]]) -> dict[int, int]:
    """For each node the length of the shortest ring through it, by search; 0 where there is none."""
    found = dict.fromkeys(neighbors, 0)
    for node in neighbors:
        around = [_detour(neighbors, node, friend) for friend in neighbors[node]]
        found[node] = min((length for length in around if length), default=0)
    return found


def _detour(neighbors: Mapping[int, set[int]], start: int, end: int) -> int:
    """The length of the shortest ring through the edge from `start` to `end`, 0 where there is none."""
    distance, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for near in neighbors[node] - distance.keys():
            if (node, near) != (start, end):
                distance[near] = distance[node] + 1
                queue.append(near)
    return distance[end] + 1 if end in distance else 0


def skeleton(nodes: int, generator: torch.Generator) -> dict[int, set[int]]:
    """A connected graph that looks like a molecule: rings of 3 to 7 and chains, joined by an edge or sharing one."""

    def drawn(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    neighbors: dict[int, set[int]] = {0: set()}

    def path(start: int, length: int) -> int:
        for _ in range(length):
            new = len(neighbors)
            neighbors[new] = {start}
            neighbors[start].add(new)
            start = new
        return start

    while (left := nodes - len(neighbors)) > 0:
        free = [node for node, near in neighbors.items() if len(near) < 3]
        at, kind = free[drawn(0, len(free) - 1)], drawn(0, 3)
        beside = sorted(neighbors[at] & set(free))
        if kind == 0 or left < 4:
            path(at, min(left, drawn(1, 2)))
        elif kind == 1 and beside:  # shares the edge to a neighbor
            other = beside[drawn(0, len(beside) - 1)]
            end = path(at, min(left, drawn(3, 7) - 2))
            neighbors[end].add(other)
            neighbors[other].add(end)
        else:
            first = path(at, 1)
            end = path(first, min(left - 1, drawn(3, 7) - 1))
            if end not in neighbors[first]:
                neighbors[end].add(first)
                neighbors[first].add(end)
    return neighbors


def edge_matrix(neighbors: Mapping[int, set[int]]) -> Bool[Tensor, "node node"]:
    """The symmetric matrix of a graph whose nodes are 0, 1, 2, …"""
    edges = torch.zeros(len(neighbors), len(neighbors), dtype=torch.bool)
    for node, near in neighbors.items():
        edges[node, sorted(near)] = True
    return edges


def molecules(count: int, *, nodes: int = 16, seed: SupportsIndex) -> Graphs:
    """Skeletons with equally many nodes; the target is the place in `RINGS` of each node's smallest ring.

    A node shows its number of neighbors as 0 or 1 for each of 1, 2, 3 and 4 or more. A ring longer than 7, from fused
    ones, counts as none.
    """
    generator = torch.Generator().manual_seed(index(seed))
    drawn = [skeleton(nodes, generator) for _ in range(count)]
    edges = torch.stack([edge_matrix(neighbors) for neighbors in drawn])
    sizes = [list(smallest_rings(neighbors).values()) for neighbors in drawn]
    target = [[RINGS.index(size) if size in RINGS else 0 for size in row] for row in sizes]
    return Graphs(degrees(edges), edges, torch.tensor(target))


def degrees(edges: Bool[Tensor, "*batch node node"]) -> Float[Tensor, "*batch node 4"]:
    """1 at the number of neighbors: 1, 2, 3, or 4 and more; none is all 0."""
    count = edges.sum(dim=-1)
    return torch.nn.functional.one_hot(count.clamp(max=4), 5)[..., 1:].float()


# ---- a reader's own ----------------------------------------------------------------------------------------------


def typed(text: str) -> tuple[list[str], dict[int, set[int]]]:
    """Names and neighbors of a graph typed as "Ann-Bo Bo-Cy, Cy-Ann-Dee".

    Raises ValueError for text without an edge, and for a name joined to itself.
    """
    chains: list[Sequence[str]] = [part.split("-") for part in text.replace(",", " ").split()]
    pairs = [pair for chain in chains for pair in pairwise(chain)]
    if not pairs or any(not name for chain in chains for name in chain):
        raise ValueError(f"text is {text!r}; expected edges such as 'Ann-Bo Bo-Cy'")
    if loops := [one for one, other in pairs if one == other]:
        raise ValueError(f"text joins {loops[0]!r} to itself; expected two names in each edge")
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    neighbors: dict[int, set[int]] = {number: set() for number in range(len(names))}
    for one, other in pairs:
        neighbors[names.index(one)].add(names.index(other))
        neighbors[names.index(other)].add(names.index(one))
    return names, neighbors
