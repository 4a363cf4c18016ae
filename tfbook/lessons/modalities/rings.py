"""Rings of lesson 19: what attention along edges cannot see, and codes of a node's place that show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tfbook import runtime
from tfbook.course.experiments import experiment
from tfbook.data.graphs import RINGS, Graphs, degrees, edge_matrix, molecules, smallest_rings, typed
from tfbook.lessons.modalities.clubs import Batches, choices, new_blocks, new_net, share_right, train_graphs
from tfbook.models.graphs import GraphTransformer, flipped, laplacian_vectors, return_probabilities

if TYPE_CHECKING:
    from pandas import DataFrame

Codes = Callable[[Graphs], Graphs]
STEPS_OF_WALK, VECTORS, TRAINED, UNSEEN = 10, 6, 1200, 400


def with_walks(graphs: Graphs, steps: int = STEPS_OF_WALK) -> Graphs:
    """The same graphs whose nodes also show how often a random walk comes back, after 2 steps and more."""
    codes = return_probabilities(graphs.edges, steps)
    return Graphs(torch.cat([graphs.features, 3 * codes], dim=-1), graphs.edges, graphs.target)


def with_codes(of_one: Callable[[Tensor, int], Tensor], steps: int = STEPS_OF_WALK) -> Codes:
    """The same by a function of one graph: the learner's."""

    def add(graphs: Graphs) -> Graphs:
        codes = torch.stack([of_one(edges, steps) for edges in graphs.edges])
        return Graphs(torch.cat([graphs.features, 3 * codes], dim=-1), graphs.edges, graphs.target)

    return add


def with_vectors(graphs: Graphs, count: int = VECTORS) -> Graphs:
    """The same graphs whose nodes also show their entries of the first eigenvectors of the Laplacian."""
    codes = torch.stack([laplacian_vectors(edges, count) for edges in graphs.edges])
    return Graphs(torch.cat([graphs.features, 3 * codes], dim=-1), graphs.edges, graphs.target)


def plain(graphs: Graphs) -> Graphs:
    """The graphs as they are."""
    return graphs


@cache
def known_molecules() -> Graphs:
    """1,200 skeletons for training."""
    return molecules(TRAINED, seed=1)


@cache
def unseen_molecules() -> Graphs:
    """400 skeletons that no network is trained on."""
    return molecules(UNSEEN, seed=2)


def molecule_batches(graphs: Graphs, seed: int = 1, *, signs: int = 0) -> Batches:
    """48 skeletons for each step; the last `signs` features get random signs, a sign for each graph and column."""

    def batch(step: int) -> Graphs:
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        drawn = graphs[torch.randint(len(graphs), (48,), generator=generator)]
        if not signs:
            return drawn
        shown, codes = drawn.features.split([drawn.features.shape[-1] - signs, signs], dim=-1)
        return Graphs(torch.cat([shown, flipped(codes, generator)], dim=-1), drawn.edges, drawn.target)

    return batch


SIGHTS: dict[str, tuple[Codes, int]] = {  # what is added, and how many of the last columns have no sign
    "neighbors only": (plain, 0),
    "+ Laplacian vectors": (with_vectors, VECTORS),
    "+ return probabilities": (with_walks, 0),
}


def new_ring_reader(codes: Codes = with_walks, *, seed: int = 1, layers: int = 3, **sizes: Any) -> GraphTransformer:
    """Our blocks along edges for skeletons whose nodes show such codes."""
    width = codes(unseen_molecules()[:1]).features.shape[-1]
    return new_blocks(seed=seed, outputs=len(RINGS), d_input=width, layers=layers, **sizes)


def train_rings(model: nn.Module, codes: Codes = with_walks, *, steps: int, seed: int = 1, signs: int = 0) -> Any:
    """Trains on the 1,200 skeletons."""
    return train_graphs(model, molecule_batches(codes(known_molecules()), seed, signs=signs), steps=steps)


@experiment
def codes(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 300) -> list[dict[str, Any]]:
    """Right rings of our blocks along edges and of a GCN by what a node shows, and of boosted trees on all of it."""
    found = []
    for sight, (add, signs) in SIGHTS.items():
        test = add(unseen_molecules())
        for reader in ("our blocks along edges", "GCN"):
            for seed in seeds:
                width = test.features.shape[-1]
                model = (
                    new_net("convolution", d_input=width, outputs=len(RINGS), layers=3, seed=seed)
                    if reader == "GCN"
                    else new_ring_reader(add, seed=seed)
                )
                train_rings(model, add, steps=steps, seed=seed, signs=signs)
                found.append({"reader": reader, "sight": sight, "seed": seed, "right": round(_right(model, test), 4)})
    for sight, (add, _) in SIGHTS.items():
        right = round(trees_share(add), 4)
        found.append({"reader": "boosted trees", "sight": sight, "seed": 0, "right": right})
    return found


def _right(model: nn.Module, graphs: Graphs) -> float:
    return share_right(choices(model, graphs), graphs)


def trees_share(add: Codes) -> float:
    """The share of right rings of boosted trees, one node a row: its own codes and no edges."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    train, test = add(known_molecules()), add(unseen_molecules())
    model = HistGradientBoostingClassifier(random_state=0)
    model.fit(train.features.flatten(0, 1).numpy(), train.target.flatten().numpy())
    chosen = torch.from_numpy(model.predict(test.features.flatten(0, 1).numpy()))
    return share_right(chosen.view_as(test.target), test)


def most_frequent() -> float:
    """The share of the most frequent label."""
    target = unseen_molecules().target
    return float((target == target.flatten().mode().values).float().mean())


def right(model: nn.Module, add: Codes = with_walks) -> float:
    """The share of right rings in unseen skeletons."""
    return _right(model, add(unseen_molecules()))


@torch.no_grad()
def largest_difference(model: nn.Module, edges: Tensor) -> float:
    """The largest difference between the outputs of two nodes that all show the same."""
    device = runtime.device()
    out = model(torch.ones(1, len(edges), 2, device=device), edges[None].to(device))[0]
    return float((out[:, None] - out).abs().max())


def code_table(runs: DataFrame) -> DataFrame:
    """The mean share of right rings over the seeds: a row for each reader, a column for what a node shows."""
    return runs.groupby(["reader", "sight"], sort=False).right.mean().unstack().map("{:.0%}".format)


def code_claims(runs: DataFrame) -> dict[int, float]:
    """The gain of our blocks by return probabilities, from the best seed to the worst."""
    ours = runs[runs["reader"] == "our blocks along edges"].groupby("sight")["right"]
    return {5: ours.min()["+ return probabilities"] - ours.max()["neighbors only"]}


def bonds(text: str) -> tuple[list[str], Graphs]:
    """A skeleton typed as "a-b-c-a c-d" as names and a graph, with the right answers."""
    names, neighbors = typed(text)
    sizes = smallest_rings(neighbors).values()
    target = torch.tensor([[RINGS.index(size) if size in RINGS else 0 for size in sizes]])
    edges = edge_matrix(neighbors)[None]
    return names, Graphs(degrees(edges), edges, target)


def rings_of(model: nn.Module, text: str, codes: Codes = with_walks) -> tuple[list[str], Graphs, list[int]]:
    """Names, the graph, and the size of the ring that the model sees each node in."""
    names, graphs = bonds(text)
    chosen: Tensor = choices(model, codes(graphs))[0]
    return names, graphs, [RINGS[label] for label in chosen.tolist()]
