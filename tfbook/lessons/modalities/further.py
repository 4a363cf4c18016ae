"""Lesson 19's further pages: a tree in the plane and in the Poincaré disk."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook import runtime, training
from tfbook.lessons.modalities.graph_figures import steps_apart


def tree(depth: int = 4, children: int = 3) -> list[tuple[int, int]]:
    """The edges of a tree whose inner nodes have so many children each; node 0 is the root."""
    edges, level, count = [], [0], 1
    for _ in range(depth):
        below = []
        for node in level:
            new = list(range(count, count + children))
            count += children
            edges += [(node, child) for child in new]
            below += new
        level = below
    return edges


def flat_distance(x: Float[Tensor, "node 2"]) -> Float[Tensor, "node node"]:
    """|x_i − x_j|."""
    return ((x[:, None] - x).square().sum(dim=-1) + 1e-9).sqrt()


def disk_distance(x: Float[Tensor, "node 2"]) -> Float[Tensor, "node node"]:
    """arcosh(1 + 2 |x_i − x_j|² / ((1 − |x_i|²) (1 − |x_j|²))), in the Poincaré disk |x| < 1 (Nickel & Kiela, 2017)."""
    room = (1 - x.square().sum(dim=-1)).clamp(min=1e-6)
    between = (x[:, None] - x).square().sum(dim=-1)
    return torch.acosh(1 + 2 * between / (room[:, None] * room) + 1e-7)


class Places(nn.Module):
    """A point for each node, in the plane or in the disk, and the length that an edge should have."""

    def __init__(self, start: Float[Tensor, "node 2"], *, disk: bool):
        super().__init__()
        self.disk = disk
        self.raw = nn.Parameter(start.clone())
        self.log_edge = nn.Parameter(torch.zeros(()))

    def at(self) -> Float[Tensor, "node 2"]:
        """The points; in the disk, r becomes tanh(r / 2)."""
        if not self.disk:
            return self.raw
        radius = self.raw.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        return torch.tanh(radius / 2) * self.raw / radius

    def forward(self) -> Float[Tensor, "node node"]:
        """Distances of the points, in edges."""
        x = self.at()
        return (disk_distance(x) if self.disk else flat_distance(x)) / self.log_edge.exp()


def misfit(places: Places, apart: Float[Tensor, "node node"]) -> Float[Tensor, ""]:
    """The mean of |d / D − 1| over pairs: by which share distances d of points miss those of the tree, D."""
    pairs = ~torch.eye(len(apart), dtype=torch.bool, device=apart.device)
    return (places()[pairs] / apart[pairs] - 1).abs().mean()


def fanned_out(apart: Float[Tensor, "node node"], noise: float = 0.05) -> Float[Tensor, "node 2"]:
    """A start: the radius of a node is its depth below node 0, and the nodes of a depth are spread over the circle."""
    depth = apart[0]
    angle = torch.zeros(len(depth))
    for level in depth.unique():
        here = (depth == level).nonzero()[:, 0]
        angle[here] = 2 * torch.pi * (torch.arange(len(here)) + 0.5) / len(here)
    return depth[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1) + noise * torch.randn(len(depth), 2)


def embedded(edges: list[tuple[int, int]], *, disk: bool, steps: int, seed: int = 1) -> tuple[Tensor, float]:
    """Points for the nodes of a graph and their misfit, after so many steps of Adam."""
    nodes = 1 + max(max(edge) for edge in edges)
    near = torch.zeros(nodes, nodes, dtype=torch.bool)
    for one, other in edges:
        near[one, other] = near[other, one] = True
    runtime.seed(seed)
    apart: Any = steps_apart(near)
    places = Places(fanned_out(apart), disk=disk).to(runtime.device())
    recipe = training.Recipe(
        steps=steps, lr=0.1, schedule=lambda step, of: 1 - step / of, clip=1e9, mixed_precision=False
    )
    training.fit(places, misfit, lambda step: apart, recipe)
    with torch.no_grad():
        return places.at().detach().cpu(), float(misfit(places, apart.to(runtime.device())))
