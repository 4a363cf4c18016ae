"""Graph layers against loops and matrices by hand; what no order of the nodes changes; generated graphs."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.data import graphs as worlds
from tfbook.models import graphs

pytestmark = pytest.mark.usefixtures("float32")
LINE = torch.zeros(5, 5, dtype=torch.bool)
LINE[range(4), range(1, 5)] = LINE[range(1, 5), range(4)] = True


def _drawn(nodes: int = 7, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    upper = (torch.rand(batch, nodes, nodes, generator=generator) < 0.35).triu(1)
    return torch.randn(batch, nodes, 4, generator=generator), upper | upper.mT


@torch.no_grad()
def test_gat_equals_a_loop_over_nodes() -> None:
    torch.manual_seed(1)
    layer, (x, edges) = graphs.GraphAttention(4, 6, 2), _drawn()
    out = layer(x, edges)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            heads = []
            for head in range(2):
                rows = layer.W.weight[3 * head : 3 * head + 3]
                near = [j for j in range(x.shape[1]) if edges[b, i, j] or i == j]
                a = torch.cat([layer.a[0, head], layer.a[1, head]])
                scores = [F.leaky_relu(a @ torch.cat([rows @ x[b, i], rows @ x[b, j]]), 0.2) for j in near]
                total = sum(math.exp(s) for s in scores)
                heads.append(sum(math.exp(s) / total * (rows @ x[b, j]) for s, j in zip(scores, near, strict=True)))
            torch.testing.assert_close(out[b, i], torch.cat(heads) + layer.bias, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_gatv2_equals_a_loop_over_nodes() -> None:
    torch.manual_seed(2)
    layer, (x, edges) = graphs.GraphAttention(4, 6, 2, dynamic=True), _drawn()
    weights, queries, keys = layer.weights(x, edges), layer.W_query(x), layer.W(x)
    for i in range(x.shape[1]):
        near = [j for j in range(x.shape[1]) if edges[1, i, j] or i == j]
        scores = [layer.a[0, 1] @ F.leaky_relu((queries[1, i] + keys[1, j])[3:], 0.2) for j in near]
        torch.testing.assert_close(weights[1, 1, i, near], torch.stack(scores).softmax(0), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_static_attention_ranks_alike_and_dynamic_need_not() -> None:
    x, everyone = (
        torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(5)) * 3,
        torch.ones(1, 6, 6, dtype=torch.bool),
    )
    best = {}
    for dynamic in (False, True):
        torch.manual_seed(8)
        best[dynamic] = graphs.GraphAttention(4, 16, 1, dynamic=dynamic).weights(x, everyone)[0, 0].argmax(dim=1)
    assert len(best[False].unique()) == 1
    assert len(best[True].unique()) > 1


@torch.no_grad()
def test_gcn_equals_the_matrix_formula() -> None:
    torch.manual_seed(1)
    layer, (x, edges) = graphs.GraphConvolution(4, 3), _drawn()
    loops = edges[1].float() + torch.eye(7)
    root = torch.diag(loops.sum(dim=1) ** -0.5)
    expected = root @ loops @ root @ (x[1] @ layer.W.weight.T + layer.W.bias)
    torch.testing.assert_close(layer(x, edges)[1], expected, atol=1e-6, rtol=1e-5)


NETWORKS = {
    "convolution": lambda: graphs.GraphNet(4, 3, kind="convolution"),
    "attention": lambda: graphs.GraphNet(4, 3, kind="attention"),
    "dynamic attention": lambda: graphs.GraphNet(4, 3, kind="dynamic attention"),
    "blocks": lambda: graphs.GraphTransformer(3, graphs.GraphConfig(d_input=4, layers=2)),
    "blocks without edges": lambda: graphs.GraphTransformer(3, graphs.GraphConfig(d_input=4, layers=2, edges=False)),
}


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_another_order_of_the_nodes_gives_the_same_in_that_order(name: str) -> None:
    torch.manual_seed(6)
    network, (x, edges) = NETWORKS[name]().eval(), _drawn()
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    again = network(x[:, order], edges[:, order][:, :, order])
    torch.testing.assert_close(again, network(x, edges)[:, order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "blocks without edges"])
def test_two_layers_hear_from_two_steps_away(name: str) -> None:
    torch.manual_seed(7)
    network, x = NETWORKS[name]().eval(), torch.randn(1, 5, 4, requires_grad=True)
    network(x, LINE[None])[0, 0].sum().backward()
    heard = x.grad[0].abs().sum(dim=1) > 0
    assert heard.tolist() == [True, True, True, False, False]


@torch.no_grad()
def test_nodes_of_rings_look_alike_without_codes() -> None:
    """A ring of three and a ring of four in one graph: the same features, the same number of neighbors."""
    edges = torch.zeros(1, 7, 7, dtype=torch.bool)
    for ring in ((0, 1, 2), (3, 4, 5, 6)):
        for one, other in zip(ring, (*ring[1:], ring[0]), strict=True):
            edges[0, one, other] = edges[0, other, one] = True
    for make in NETWORKS.values():
        out = make().eval()(torch.ones(1, 7, 4), edges)[0]
        torch.testing.assert_close(out, out[:1].expand_as(out), atol=1e-5, rtol=1e-5)
    codes = graphs.return_probabilities(edges[0], 2)
    assert codes[:3, 1].tolist() == [0.25] * 3  # three steps: round the triangle, both ways
    assert codes[3:, 1].tolist() == [0.0] * 4


def test_laplacian_vectors_solve_their_equation() -> None:
    edges = _drawn(8, 1)[1][0]
    edges[range(7), range(1, 8)] = edges[range(1, 8), range(7)] = True
    vectors, near = graphs.laplacian_vectors(edges, 3).double(), edges.double()
    root = torch.diag(near.sum(dim=1) ** -0.5)
    laplacian = torch.eye(8).double() - root @ near @ root
    for vector in vectors.T:
        value = vector @ laplacian @ vector
        torch.testing.assert_close(laplacian @ vector, value * vector, atol=1e-5, rtol=1e-4)
    assert graphs.laplacian_vectors(LINE[:2, :2], 4).shape == (2, 4)
    turned = graphs.flipped(vectors.float()[None].expand(9, -1, -1), torch.Generator().manual_seed(1))
    assert (turned.abs() == vectors.float().abs()).all()
    assert len(turned[:, 0, 0].unique()) == 2


def test_a_lonely_node_stays_where_it_is() -> None:
    assert graphs.return_probabilities(torch.zeros(2, 2, dtype=torch.bool), 3).tolist() == [[1.0] * 3] * 2


def test_orders() -> None:
    star = torch.zeros(4, 4, dtype=torch.bool)
    star[0, 1:] = star[1:, 0] = True
    assert graphs.by_degree(star).tolist() == [1, 2, 3, 0]
    assert graphs.breadth_first(LINE, 2).tolist() == [2, 1, 3, 0, 4]
    apart = LINE.clone()
    apart[2, 3] = apart[3, 2] = False
    assert graphs.breadth_first(apart, 4).tolist() == [4, 3, 0, 1, 2]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind is 'magic'; expected one of convolution"):
        graphs.GraphNet(2, 2, kind="magic")


# ---- generated graphs --------------------------------------------------------------------------------------------


def test_clubs_are_halves_with_known_members() -> None:
    drawn = worlds.clubs(20, nodes=12, known=2, seed=1)
    assert drawn.features.sum(dim=1).tolist() == [[2.0, 2.0]] * 20
    assert ((drawn.target == worlds.NOT_ASKED) == drawn.features.any(dim=-1)).all()
    assert (drawn.target == 0).sum(dim=1).tolist() == [4] * 20
    assert drawn.edges.any(dim=-1).all()
    assert not drawn.edges.diagonal(dim1=1, dim2=2).any()
    assert (drawn.edges == drawn.edges.mT).all()
    with pytest.raises(ValueError, match="1 to 5 known"):
        worlds.clubs(1, nodes=12, known=6, seed=1)


def test_a_new_order_keeps_the_graph() -> None:
    drawn = worlds.clubs(3, seed=2)
    order = torch.stack([torch.randperm(24, generator=torch.Generator().manual_seed(n)) for n in range(3)])
    again = drawn.reordered(order).reordered(order.argsort(dim=1))
    for one, other in zip(vars(again).values(), vars(drawn).values(), strict=True):
        assert (one == other).all()


def test_the_rule_spreads_from_the_known() -> None:
    features = torch.tensor([[[1.0, 0], [0, 0], [0, 0], [0, 0], [0, 1.0]]])
    drawn = worlds.Graphs(features, LINE[None], torch.zeros(1, 5, dtype=torch.int64))
    assert worlds.spread(drawn)[0, [0, 1, 3, 4]].tolist() == [0, 0, 1, 1]


def test_smallest_rings_of_a_bicycle() -> None:
    names, neighbors = worlds.typed("a-b-c-a c-d-e-f-g-d, g-h")
    sizes = dict(zip(names, worlds.smallest_rings(neighbors).values(), strict=True))
    assert sizes == {"a": 3, "b": 3, "c": 3, "d": 4, "e": 4, "f": 4, "g": 4, "h": 0}


def test_skeletons_are_connected_and_small_at_each_node() -> None:
    drawn = worlds.molecules(12, nodes=14, seed=4)
    for edges, target in zip(drawn.edges, drawn.target, strict=True):
        assert len(graphs.breadth_first(edges)) == 14
        reach = torch.linalg.matrix_power(edges.double() + torch.eye(14), 14) > 0
        assert reach.all()
        sizes = list(
            worlds.smallest_rings({i: set(row.nonzero()[:, 0].tolist()) for i, row in enumerate(edges)}).values()
        )
        assert [worlds.RINGS[t] for t in target] == [size if size in worlds.RINGS else 0 for size in sizes]
    assert drawn.edges.sum(dim=-1).max() <= 4


@pytest.mark.parametrize(
    ("text", "message"), [("", "expected edges"), ("Ann-", "expected edges"), ("a-a", "to itself")]
)
def test_what_is_no_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        worlds.typed(text)


def test_layers_learn() -> None:
    """Gradients reach every parameter of each network."""
    x, edges = _drawn()
    for make in NETWORKS.values():
        network: nn.Module = make()
        network(x, edges).square().sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())
