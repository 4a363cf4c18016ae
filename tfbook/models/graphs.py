"""Graphs: a convolution and attention along edges, the shared blocks with edges as their mask, and encodings of place.

A graph is a symmetric matrix of neighbors, True where there is an edge, without loops; graphs of a batch have equally
many nodes. All of it is dense, for small graphs.

Shapes: batch, node, d_input, d_model = head · d_head, output, code (numbers that encode where a node is).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.implementations import masked_softmax
from tfbook.attention.masks import Dense
from tfbook.attention.multi_head import split_heads
from tfbook.attention.positions import MakePosition
from tfbook.checks import check_heads, check_positive
from tfbook.models.blocks import Config, MakePart, Stack
from tfbook.models.feed_forward import FeedForward

# ---- edges -------------------------------------------------------------------------------------------------------


def with_loops(edges: Bool[Tensor, "*batch node node"]) -> Bool[Tensor, "*batch node node"]:
    """The neighbors of each node and the node itself: the mask of attention along edges."""
    return edges | torch.eye(edges.shape[-1], dtype=torch.bool, device=edges.device)


def convolution_matrix(edges: Bool[Tensor, "*batch node node"]) -> Float[Tensor, "*batch node node"]:
    """D^-½ (A + I) D^-½ with D the degrees of A + I (Kipf & Welling, 2017, eq. 2)."""
    near = with_loops(edges).float()
    scale = near.sum(dim=-1).rsqrt()
    return scale[..., :, None] * near * scale[..., None, :]


# ---- the layers of graph networks --------------------------------------------------------------------------------


class GraphConvolution(nn.Module):
    """D^-½ (A + I) D^-½ H W + b: each node's neighborhood with fixed weights (Kipf & Welling, 2017)."""

    def __init__(self, d_input: int, d_model: int):
        super().__init__()
        self.W = nn.Linear(d_input, d_model)

    def forward(
        self, x: Float[Tensor, "batch node d_input"], edges: Bool[Tensor, "batch node node"]
    ) -> Float[Tensor, "batch node d_model"]:
        """One round of messages; nonlinearities are the network's."""
        return convolution_matrix(edges).to(x.dtype) @ self.W(x)


def gat_weights(
    h: Float[Tensor, "batch head node d_head"],
    a_query: Float[Tensor, "head d_head"],
    a_key: Float[Tensor, "head d_head"],
    allowed: Bool[Tensor, "batch node node"],
) -> Float[Tensor, "batch head query key"]:
    """softmax_j LeakyReLU(aᵀ [W h_i ‖ W h_j]) over the `allowed` j (Veličković et al., 2018, eq. 3).

    The halves of a make one number of each node; a score is the sum of two, so all queries rank their keys alike:
    "static attention" (Brody et al., 2022).
    """
    own, other = (torch.einsum("bhnd,hd->bhn", h, a) for a in (a_query, a_key))
    scores = F.leaky_relu(own[..., :, None] + other[..., None, :], 0.2)
    return masked_softmax(scores, allowed[:, None])


def gat2_weights(
    h: Float[Tensor, "batch head node d_head"],
    g: Float[Tensor, "batch head node d_head"],
    a: Float[Tensor, "head d_head"],
    allowed: Bool[Tensor, "batch node node"],
) -> Float[Tensor, "batch head query key"]:
    """softmax_j aᵀ LeakyReLU(W h_i + W' h_j): lesson 01's additive score, along edges (Brody et al., 2022, eq. 7)."""
    mixed = F.leaky_relu(h[..., :, None, :] + g[..., None, :, :], 0.2)
    scores = torch.einsum("bhqkd,hd->bhqk", mixed, a)
    return masked_softmax(scores, allowed[:, None])


class GraphAttention(nn.Module):
    """Σ_j α_ij W h_j over a node and its neighbors, heads side by side (Veličković et al., 2018).

    With `dynamic` the score is GATv2's, in which a query can prefer other keys than its neighbor does. Raises
    ValueError when `heads` does not divide `d_model`.
    """

    UNDECAYED = ("a",)  # a vector for each head and half

    def __init__(self, d_input: int, d_model: int, heads: int, *, dynamic: bool = False):
        super().__init__()
        check_heads(d_model, heads)
        self.heads, self.dynamic = heads, dynamic
        self.W = nn.Linear(d_input, d_model, bias=False)
        self.W_query = nn.Linear(d_input, d_model, bias=False) if dynamic else None
        self.a = nn.Parameter(torch.empty(2, heads, d_model // heads))
        self.bias = nn.Parameter(torch.zeros(d_model))
        nn.init.xavier_uniform_(self.a)

    def weights(
        self, x: Float[Tensor, "batch node d_input"], edges: Bool[Tensor, "batch node node"]
    ) -> Float[Tensor, "batch head query key"]:
        """α_ij, 0 where there is no edge."""
        return self._weights(split_heads(self.W(x), self.heads), x, edges)

    def _weights(self, h: Tensor, x: Tensor, edges: Tensor) -> Tensor:
        if self.W_query is not None:
            return gat2_weights(split_heads(self.W_query(x), self.heads), h, self.a[0], with_loops(edges))
        return gat_weights(h, self.a[0], self.a[1], with_loops(edges))

    def forward(
        self, x: Float[Tensor, "batch node d_input"], edges: Bool[Tensor, "batch node node"]
    ) -> Float[Tensor, "batch node d_model"]:
        """One round of messages; nonlinearities are the network's."""
        h = split_heads(self.W(x), self.heads)
        mixed = self._weights(h, x, edges) @ h
        return mixed.transpose(1, 2).flatten(2) + self.bias


class GraphNet(nn.Module):
    """Layers of one kind with ELU between them, and a linear head on each node: the networks of both papers.

    `kind` is "convolution", "attention" or "dynamic attention". Raises ValueError for another one.
    """

    KINDS = ("convolution", "attention", "dynamic attention")

    def __init__(self, d_input: int, outputs: int, *, kind: str, d_model: int = 32, heads: int = 4, layers: int = 2):
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"kind is {kind!r}; expected one of {', '.join(self.KINDS)}")
        check_positive(layers=layers)
        widths = [d_input] + [d_model] * (layers - 1)
        self.layers = nn.ModuleList(
            GraphConvolution(width, d_model)
            if kind == "convolution"
            else GraphAttention(width, d_model, heads, dynamic=kind.startswith("dynamic"))
            for width in widths
        )
        self.head = nn.Linear(d_model, outputs)

    def forward(
        self, x: Float[Tensor, "batch node d_input"], edges: Bool[Tensor, "batch node node"]
    ) -> Float[Tensor, "batch node output"]:
        """Logits of each node."""
        for layer in self.layers:
            x = F.elu(layer(x, edges))
        return self.head(x)


# ---- the shared blocks -------------------------------------------------------------------------------------------


_FEED_FORWARD = partial(FeedForward, activation=F.gelu)


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Config):
    """A node's features, and sizes of the blocks. With `edges` a node attends along its edges only.

    Nodes have no order, so there is no position encoding unless one is given, for nodes in some `order`.
    """

    d_input: int = 1
    edges: bool = True
    d_model: int = 32
    heads: int = 4
    d_ff: int = 64
    position: MakePosition | str = "none"
    feed_forward: MakePart | str = _FEED_FORWARD


class GraphTransformer(nn.Module):
    """Nodes as tokens in the shared blocks, edges as the mask (Dwivedi & Bresson, 2021)."""

    def __init__(self, outputs: int, config: GraphConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.d_input, config.d_model)
        self.stack = Stack(config)
        self.head = nn.Linear(config.d_model, outputs)

    def forward(
        self, x: Float[Tensor, "batch node d_input"], edges: Bool[Tensor, "batch node node"]
    ) -> Float[Tensor, "batch node output"]:
        """Logits of each node; `x` may hold features and codes of its place side by side."""
        return self.head(self.stack(self.embed(x), self.mask(edges)))

    def mask(self, edges: Bool[Tensor, "batch node node"]) -> Dense | None:
        """A node and its neighbors, the same for all heads; None without `edges`."""
        return Dense(with_loops(edges)[:, None]) if self.config.edges else None


# ---- where a node is ---------------------------------------------------------------------------------------------


def return_probabilities(edges: Bool[Tensor, "*batch node node"], steps: int) -> Float[Tensor, "*batch node code"]:
    """P(a random walk of k steps ends where it began), k = 2 … `steps` + 1 (Dwivedi et al., 2022, eq. 4).

    A node without neighbors stays where it is. Raises ValueError when `steps` < 1.
    """
    check_positive(steps=steps)
    near = edges.float()
    lonely = ~edges.any(dim=-1)
    near = near + torch.diag_embed(lonely.float())
    walk = near / near.sum(dim=-1, keepdim=True)
    power, found = walk, []
    for _ in range(steps):
        power = power @ walk
        found.append(power.diagonal(dim1=-2, dim2=-1))
    return torch.stack(found, dim=-1)


def laplacian_vectors(edges: Bool[Tensor, "node node"], count: int) -> Float[Tensor, "node code"]:
    """Eigenvectors 2 … `count` + 1 of I − D^-½ A D^-½, smallest eigenvalues first (Dwivedi & Bresson, 2021).

    If v is an eigenvector, so is −v: the signs mean nothing and have to be drawn anew in training, `flipped`. A graph
    with too few nodes gets columns of 0. Raises ValueError when `count` < 1.
    """
    check_positive(count=count)
    near = edges.double()
    scale = near.sum(dim=-1).clamp(min=1).rsqrt()
    laplacian = torch.eye(len(near), dtype=near.dtype, device=near.device) - scale[:, None] * near * scale
    vectors = torch.linalg.eigh(laplacian)[1][:, 1 : count + 1].float()
    return F.pad(vectors, (0, count - vectors.shape[1]))


def flipped(
    codes: Float[Tensor, "batch node code"], generator: torch.Generator | None = None
) -> Float[Tensor, "batch node code"]:
    """Each column of each graph with a random sign."""
    signs = torch.randint(2, (len(codes), 1, codes.shape[2]), generator=generator)
    return codes * (2 * signs - 1).to(codes.device)


# ---- a graph in a line -------------------------------------------------------------------------------------------


def breadth_first(edges: Bool[Tensor, "node node"], start: int = 0) -> Int[Tensor, " node"]:
    """The nodes by their distance from `start`, neighbors of earlier nodes first, then the other components."""
    neighbors = [row.nonzero()[:, 0].tolist() for row in edges.cpu()]
    order: list[int] = []
    for first in [start, *range(len(neighbors))]:
        queue = [] if first in order else [first]
        order += queue
        while queue:
            new = [node for node in neighbors[queue.pop(0)] if node not in order]
            order += new
            queue += new
    return torch.tensor(order, dtype=torch.int64)


def by_degree(edges: Bool[Tensor, "node node"]) -> Int[Tensor, " node"]:
    """The nodes by their number of neighbors, hubs last: what is read last has seen most (Wang et al., 2024)."""
    return edges.sum(dim=-1).argsort(stable=True).cpu()
