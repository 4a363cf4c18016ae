"""Two clubs of friends in lesson 19: networks that read along edges, their rivals, and a reader's own friends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention import MultiHeadAttention
from tfbook.attention.masks import Dense
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.graphs import CLUBS, NOT_ASKED, Graphs, clubs, edge_matrix, spread, typed
from tfbook.lessons.modalities.stand import falling
from tfbook.models.graphs import (
    GraphAttention,
    GraphConfig,
    GraphNet,
    GraphTransformer,
    breadth_first,
    by_degree,
    gat_weights,
    with_loops,
)

if TYPE_CHECKING:
    from pandas import DataFrame

UNSEEN, LR, LAYERS = 9_000_000, 3e-3, 4  # the seed of the test's graphs
Batches = Callable[[int], Graphs]


@cache
def unseen_clubs() -> Graphs:
    """400 graphs that no network is trained on."""
    return clubs(400, seed=UNSEEN)


def new_blocks(*, seed: int = 1, outputs: int = 2, **sizes: Any) -> GraphTransformer:
    """The shared blocks for graphs, untrained; they read a node's two numbers unless told otherwise."""
    runtime.seed(seed)
    config = GraphConfig(**{"d_input": 2, "layers": LAYERS} | sizes)
    return GraphTransformer(outputs, config).to(runtime.device())


class LearnersBlocks(GraphTransformer):
    """The shared blocks with another function for the mask: the learner's."""

    def __init__(self, outputs: int, config: GraphConfig, mask_of: Callable[[Tensor], Tensor]):
        super().__init__(outputs, config)
        self.mask_of = mask_of

    def mask(self, edges: Tensor) -> Dense:
        """The mask that the learner's function makes of the edges."""
        return Dense(self.mask_of(edges))


def learners_blocks(mask_of: Callable[[Tensor], Tensor], *, seed: int = 1) -> LearnersBlocks:
    """Untrained blocks for clubs that look where the learner's mask lets them."""
    runtime.seed(seed)
    return LearnersBlocks(2, GraphConfig(d_input=2, layers=LAYERS), mask_of).to(runtime.device())


def new_net(kind: str, *, seed: int = 1, d_input: int = 2, outputs: int = 2, layers: int = LAYERS) -> GraphNet:
    """A network of graph convolutions or graph attention, untrained."""
    runtime.seed(seed)
    return GraphNet(d_input, outputs, kind=kind, layers=layers).to(runtime.device())


def node_loss(model: nn.Module, graphs: Graphs) -> Float[Tensor, ""]:
    """Mean −log p of the label, in nats, of the nodes that are asked about."""
    logits = model(graphs.features, graphs.edges)
    return F.cross_entropy(logits.flatten(0, 1), graphs.target.flatten(), ignore_index=NOT_ASKED)


def train_graphs(model: nn.Module, batches: Batches, *, steps: int, lr: float = LR) -> training.History:
    """Trains on batches of graphs at a rate that falls to zero."""
    recipe = training.Recipe(steps=steps, lr=lr, schedule=falling, mixed_precision=False)
    return training.fit(model, node_loss, batches, recipe)


def club_batches(seed: int = 1) -> Batches:
    """32 new graphs for each step."""
    return lambda step: clubs(32, seed=1_000_003 * seed + step)


@torch.no_grad()
def choices(model: nn.Module, graphs: Graphs) -> Tensor:
    """The label that the model finds most likely for each node, on the CPU."""
    graphs = graphs.to(runtime.device())
    return model(graphs.features, graphs.edges).argmax(dim=-1).cpu()


def share_right(chosen: Tensor, graphs: Graphs) -> float:
    """The share of right choices among the nodes that are asked about."""
    asked = graphs.target != NOT_ASKED
    return float((chosen == graphs.target)[asked].float().mean())


# ---- experiments -----------------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[int, int], nn.Module]] = {  # layers, seed
    "our blocks along edges": lambda layers, seed: new_blocks(layers=layers, seed=seed),
    "GAT": lambda layers, seed: new_net("attention", layers=layers, seed=seed),
    "GCN": lambda layers, seed: new_net("convolution", layers=layers, seed=seed),
}


@experiment
def hops(
    seeds: Sequence[int] = (1, 2, 3), *, layers: Sequence[int] = (1, 2, 4, 6), steps: int = 250
) -> list[dict[str, Any]]:
    """Right clubs by kind of network and number of layers, each at the better of two rates with seed 0 and 4 layers."""
    found = []
    for name, build in READERS.items():
        rates = {lr: _right(build(4, 0), 0, steps=steps // 3, lr=lr) for lr in (3e-3, 1e-2)}
        lr = max(rates, key=lambda rate: rates[rate])
        for depth in layers:
            for seed in seeds:
                model = build(depth, seed)
                row = {"reader": name, "layers": depth, "seed": seed, "lr": lr, "parameters": parameters(model)}
                found.append(row | {"right": round(_right(model, seed, steps=steps, lr=lr), 4)})
    for seed in seeds:
        blind = _right(new_blocks(edges=False, seed=seed), seed, steps=steps, lr=LR)
        found.append({"reader": "our blocks without edges", "layers": LAYERS, "seed": seed, "right": round(blind, 4)})
    return found


def _right(model: nn.Module, seed: int, *, steps: int, lr: float) -> float:
    train_graphs(model, club_batches(seed), steps=steps, lr=lr)
    return share_right(choices(model, unseen_clubs()), unseen_clubs())


ORDERS = ("random", "by degree", "breadth first")


def in_a_line(graphs: Graphs, order: str, seed: int = 1) -> Graphs:
    """The nodes in an order; each shows itself and the mean of its friends, since the edges will not be seen.

    Breadth first begins at somebody whose club is known. Raises ValueError for another order.
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; expected one of {', '.join(ORDERS)}")
    near = graphs.edges.float()
    friends = near @ graphs.features / near.sum(dim=-1, keepdim=True).clamp(min=1)
    told = Graphs(torch.cat([graphs.features, friends], dim=-1), graphs.edges, graphs.target)
    generator = torch.Generator().manual_seed(seed)
    orders = {
        "random": lambda edges, known: torch.randperm(len(edges), generator=generator),
        "by degree": lambda edges, known: by_degree(edges),
        "breadth first": lambda edges, known: breadth_first(edges, known),
    }
    known = graphs.features.sum(dim=-1).argmax(dim=1).tolist()
    return told.reordered(torch.stack([orders[order](*pair) for pair in zip(graphs.edges, known, strict=True)]))


def line_distance(graphs: Graphs) -> float:
    """The mean distance in the line between two friends."""
    one, other = graphs.edges.triu().nonzero().T[1:]
    return float((other - one).float().mean())


LINE_READERS: dict[str, dict[str, Any]] = {
    "attention with positions": {"mixer": MultiHeadAttention, "position": "rotary", "edges": False},
    "state space (S4D)": {"mixer": "S4D", "edges": False},
    "attention along edges": {"mixer": MultiHeadAttention, "edges": True},
}


@experiment
def lines(seeds: Sequence[int] = (1, 2, 3), *, graphs: int = 2000, steps: int = 250) -> list[dict[str, Any]]:
    """Right clubs of readers of graphs in a line, two layers, by the order of the nodes."""
    found = []
    for order in ORDERS:
        train, test = in_a_line(clubs(graphs, seed=1), order), in_a_line(unseen_clubs(), order)
        apart = round(line_distance(test), 3)
        for name, parts in LINE_READERS.items():
            for seed in seeds if order != "random" or name != "attention along edges" else ():
                model = new_blocks(d_input=4, layers=2, seed=seed, **parts)
                train_graphs(model, _drawn_from(train, seed), steps=steps)
                right = round(share_right(choices(model, test), test), 4)
                found.append({"reader": name, "order": order, "seed": seed, "apart": apart, "right": right})
    return found


def _drawn_from(graphs: Graphs, seed: int) -> Batches:
    def batch(step: int) -> Graphs:
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        return graphs[torch.randint(len(graphs), (32,), generator=generator)]

    return batch


# ---- a reader's own --------------------------------------------------------------------------------------------------


def friends(text: str, known: Mapping[str, str]) -> tuple[list[str], Graphs]:
    """Friends typed as "Ann-Bo Bo-Cy-Ann" and whose club is known, {"Ann": "red"}, as names and a graph.

    Raises ValueError for a name without friends, and for a club other than red and blue.
    """
    names, neighbors = typed(text)
    if strangers := [name for name in known if name not in names]:
        raise ValueError(f"known names {strangers[0]!r}, who has no friends; expected some of {', '.join(names)}")
    if wrong := [club for club in known.values() if club not in CLUBS]:
        raise ValueError(f"known holds the club {wrong[0]!r}; expected {' or '.join(CLUBS)}")
    shown = torch.tensor([[float(known.get(name) == club) for club in CLUBS] for name in names])
    return names, Graphs(shown[None], edge_matrix(neighbors)[None], torch.zeros(1, len(names), dtype=torch.int64))


@torch.no_grad()
def memberships(model: nn.Module, text: str, known: Mapping[str, str]) -> tuple[list[str], Graphs, list[float]]:
    """Names, the graph, and for each name the probability of being red: 1 or 0 where it is known."""
    names, graphs = friends(text, known)
    on_device = graphs.to(runtime.device())
    red = model(on_device.features, on_device.edges).softmax(dim=-1)[0, :, 0].tolist()
    given = {name: float(club == CLUBS[0]) for name, club in known.items()}
    return names, graphs, [given.get(name, p) for name, p in zip(names, red, strict=True)]


def named_edges(text: str) -> tuple[list[str], Tensor]:
    """Names and the matrix of edges of a graph typed as "Ann-Bo-Cy"."""
    names, neighbors = typed(text)
    return names, edge_matrix(neighbors)


def edge_mask(edges: Tensor) -> Tensor:
    """A node may look at its neighbors and at itself, in all heads: (batch, 1, node, node)."""
    return with_loops(edges)[:, None]


def plain_gat(h: Tensor, a_query: Tensor, a_key: Tensor, allowed: Tensor) -> Tensor:
    """GAT's weights for one graph and one head."""
    return gat_weights(h[None, None], a_query[None], a_key[None], allowed[None])[0, 0]


def gat_layer(W: Tensor, a: Tensor, edges: Tensor) -> Callable[[Tensor], Tensor]:
    """The package's layer with one head and these weights, for one graph."""
    layer = GraphAttention(W.shape[1], W.shape[0], 1)
    layer.load_state_dict({"W.weight": W, "a": a[:, None], "bias": torch.zeros(len(W))})

    def layer_along_edges(x: Tensor) -> Tensor:
        return layer(x[None], edges[None])[0]

    return layer_along_edges


# ---- tables and claims -----------------------------------------------------------------------------------------------


MEANS_RULE, EIGENVECTOR_RULE = "means of friends' means, 50 times", "top eigenvector"


def eigenvector_sides(graphs: Graphs) -> Tensor:
    """The sides of the top eigenvector of the edges minus their mean, the known telling which is red: no training."""
    near, shown = graphs.edges.float(), graphs.features[..., 0] - graphs.features[..., 1]
    top = torch.linalg.eigh(near - near.mean(dim=(1, 2), keepdim=True)).eigenvectors[..., -1]
    return (top * (top * shown).sum(dim=1, keepdim=True) < 0).long()


def rule_shares() -> dict[str, float]:
    """The share of right clubs on the unseen graphs of two rules that train nothing."""
    graphs = unseen_clubs()
    chosen = {MEANS_RULE: spread(graphs), EIGENVECTOR_RULE: eigenvector_sides(graphs)}
    return {name: share_right(clubs, graphs) for name, clubs in chosen.items()}


def share_table(models: Mapping[str, nn.Module]) -> DataFrame:
    """The share of right clubs of each model, and of the rules that train nothing."""
    import pandas as pd

    graphs = unseen_clubs()
    shares = {name: share_right(choices(model, graphs), graphs) for name, model in models.items()}
    return pd.DataFrame({"right clubs": shares | rule_shares()}).map("{:.0%}".format)


def edge_claims(model: nn.Module) -> dict[int, float]:
    """The share of right clubs of a reader along edges."""
    return {3: share_right(choices(model, unseen_clubs()), unseen_clubs())}


def hop_claims(runs: DataFrame) -> dict[int, float]:
    """The gain of our blocks from one layer to four, from the best seed to the worst."""
    ours = runs[runs["reader"] == "our blocks along edges"].groupby("layers")["right"]
    return {11: ours.min()[4] - ours.max()[1]}


def line_claims(runs: DataFrame) -> dict[int, float]:
    """The lead of attention along edges over the best reader of a line, from the worst seed to the best."""
    along = runs["reader"] == "attention along edges"
    return {12: runs[along]["right"].min() - runs[~along]["right"].max()}


def line_table(runs: DataFrame) -> DataFrame:
    """Mean share of right clubs: a row for each order, with the mean distance of friends, a column for each reader."""
    shares = runs.pivot_table(index="order", columns="reader", values="right", sort=False)
    shares = shares.fillna(shares.mean())  # attention along edges does not depend on the order
    told = shares.map("{:.0%}".format)
    told.insert(0, "friends apart", runs.groupby("order", sort=False)["apart"].first().round(1))
    return told
