"""`MultiHeadAttention` against PyTorch's own with the same weights, and `record` against the weights that it names.

PyTorch's Boolean mask means the opposite (True is blocked), and its blocked rows are NaN.
"""

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from tfbook import runtime
from tfbook.attention import (
    POSITIONS,
    Cache,
    Causal,
    Dense,
    Implementation,
    Lengths,
    Mask,
    MultiHeadAttention,
    Position,
    Supports,
    declares,
    fastest,
    fused,
    masks,
    merge_heads,
    record,
    softmax,
    split_heads,
)
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel

IMPLEMENTATIONS = {"softmax": softmax, "fused": fused, "fastest": fastest}
every_kernel = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


# ---- against PyTorch ---------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A layer, its inputs (None where they are those of self-attention) and which pairs may attend."""

    layer: MultiHeadAttention
    query: Tensor
    key: Tensor | None
    value: Tensor | None
    allowed: Tensor  # (batch, head, query, key)


@st.composite
def cases(draw: st.DrawFn, blocked_rows: bool = False) -> Case:
    """Self- or cross-attention of any size, keys and values of any width, with bias or without, under a random mask."""
    batch, heads, d_head, query = (draw(st.integers(1, n)) for n in (3, 4, 4, 6))
    kind = draw(st.sampled_from(["self", "cross", "cross with values"]))
    key = query if kind == "self" else draw(st.integers(1, 6))
    d_key = heads * d_head if kind == "self" else draw(st.integers(1, 9))
    d_value = d_key if kind != "cross with values" else draw(st.integers(1, 9))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    layer = MultiHeadAttention(
        heads * d_head,
        heads,
        d_key=d_key,
        d_value=d_value,
        bias=draw(st.booleans()),
        implementation=draw(st.sampled_from(list(IMPLEMENTATIONS.values()))),
    ).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    allowed = torch.rand(batch, heads, query, key) < draw(st.sampled_from([0.4, 1.0]))
    if not blocked_rows:
        allowed.scatter_(-1, torch.randint(key, (batch, heads, query, 1)), True)
    normal = partial(torch.randn, batch, dtype=torch.float64, requires_grad=True)
    return Case(
        layer,
        normal(query, heads * d_head),
        None if kind == "self" else normal(key, d_key),
        normal(key, d_value) if kind == "cross with values" else None,
        allowed,
    )


def _peer(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """PyTorch's layer with the same weights, in eval mode or not as `layer` is."""
    d_model = layer.W_O.out_features
    dtype, bias = layer.W_O.weight.dtype, layer.W_O.bias is not None
    peer = nn.MultiheadAttention(
        d_model, layer.heads, kdim=layer.W_K.in_features, vdim=layer.W_V.in_features, bias=bias, batch_first=True
    )
    peer = peer.to(dtype).train(layer.training)
    projections = (layer.W_Q, layer.W_K, layer.W_V)
    with torch.no_grad():
        if peer.in_proj_weight is not None:
            peer.in_proj_weight.copy_(torch.cat([project.weight for project in projections]))
        else:
            for own, project in zip(_separate(peer), projections, strict=True):
                own.copy_(project.weight)
        peer.out_proj.weight.copy_(layer.W_O.weight)
        if bias:
            peer.in_proj_bias.copy_(torch.cat([project.bias for project in projections]))
            peer.out_proj.bias.copy_(layer.W_O.bias)
    return peer


def _separate(peer: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor]:
    return peer.q_proj_weight, peer.k_proj_weight, peer.v_proj_weight


def _of_peer(case: Case, peer: nn.MultiheadAttention) -> tuple[Tensor, Tensor]:
    """PyTorch's output and the weights of its heads."""
    key = case.query if case.key is None else case.key
    value = key if case.value is None else case.value
    return peer(case.query, key, value, attn_mask=~case.allowed.flatten(0, 1), average_attn_weights=False)


def _gradients(output: Tensor, tensors: list[Tensor | None]) -> list[Tensor]:
    loss = (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum()
    return list(torch.autograd.grad(loss, [tensor for tensor in tensors if tensor is not None]))


def _named_gradients(layer: nn.Module, output: Tensor, inputs: list[Tensor | None]) -> dict[str, Tensor]:
    """The gradient of every input and of every parameter, PyTorch's stacked ones cut into those of W_Q, W_K and W_V."""
    inputs = [tensor for tensor in inputs if tensor is not None]
    parameters = dict(layer.named_parameters())
    found = _gradients(output, [*inputs, *parameters.values()])
    named = {f"input {i}": gradient for i, gradient in enumerate(found[: len(inputs)])}
    for name, gradient in zip(parameters, found[len(inputs) :], strict=True):
        if name.startswith("in_proj"):
            pieces = zip("QKV", gradient.chunk(3), strict=True)
            named |= {f"W_{letter}.{name.removeprefix('in_proj_')}": piece for letter, piece in pieces}
        else:
            ours = {"q_proj_weight": "W_Q.weight", "k_proj_weight": "W_K.weight", "v_proj_weight": "W_V.weight"}
            named[ours.get(name, name.replace("out_proj", "W_O"))] = gradient
    return named


@given(cases())
@settings(max_examples=100)
def test_output_weights_and_every_gradient_are_those_of_pytorch(case: Case) -> None:
    """To 1e-6 in double precision, under masks that leave every query a key."""
    peer = _peer(case.layer)
    expected, expected_weights = _of_peer(case, peer)
    output = case.layer(case.query, case.key, case.value, mask=case.allowed)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-6)
    with record(case.layer) as weights:
        case.layer(case.query, case.key, case.value, mask=case.allowed)
    torch.testing.assert_close(weights[""], expected_weights.detach(), atol=1e-6, rtol=1e-6)
    inputs = [case.query, case.key, case.value]
    found, wanted = _named_gradients(case.layer, output, inputs), _named_gradients(peer, expected, inputs)
    assert found.keys() == wanted.keys()
    assert len(found) == sum(x is not None for x in inputs) + (8 if case.layer.W_Q.bias is not None else 4)
    for name, gradient in found.items():
        assert (gradient - wanted[name]).abs().max() <= 1e-6 * max(1, wanted[name].abs().max()), name


@given(cases(blocked_rows=True))
@settings(max_examples=50)
def test_where_pytorch_gives_nan_the_weights_are_zero_and_elsewhere_equal(case: Case) -> None:
    """A query that may attend to nothing in any head gets the bias of W_O."""
    expected, expected_weights = _of_peer(case, _peer(case.layer))
    with record(case.layer) as weights:
        output = case.layer(case.query, case.key, case.value, mask=case.allowed)
    some = case.allowed.any(dim=-1)
    torch.testing.assert_close(weights[""][some], expected_weights[some].detach(), atol=1e-6, rtol=1e-6)
    assert not weights[""][~some].any()
    everywhere, nowhere = some.all(dim=1), ~some.any(dim=1)
    torch.testing.assert_close(output[everywhere], expected[everywhere], atol=1e-6, rtol=1e-6)
    bias = torch.zeros(()).double() if case.layer.W_O.bias is None else case.layer.W_O.bias
    torch.testing.assert_close(output[nowhere], bias.expand_as(output[nowhere]))


LENGTHS = torch.tensor([7, 4, 1])
LATER, PADDING = torch.ones(7, 7).triu(1).bool(), torch.arange(7) >= LENGTHS[:, None]
MASKS: dict[str, tuple[Mask | None, dict[str, Tensor]]] = {
    "none": (None, {}),
    "causal": (Causal(), {"attn_mask": LATER}),
    "lengths": (Lengths(LENGTHS), {"key_padding_mask": PADDING}),
    "both": (Causal() & Lengths(LENGTHS), {"attn_mask": LATER, "key_padding_mask": PADDING}),
}


@every_kernel
@pytest.mark.parametrize(("mask", "theirs"), MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("autocast", 0.03), ("bfloat16", 0.03)])
def test_in_lower_precision_outputs_and_gradients_are_close_to_the_exact_ones(
    implementation: Implementation, mask: Mask | None, theirs: dict[str, Tensor], precision: str, tolerance: float
) -> None:
    """PyTorch's in double precision, on the same rounded numbers; errors relative to the largest entry."""
    layer = MultiHeadAttention(16, 4, implementation=implementation)
    x = torch.randn(3, 7, 16)
    if precision == "bfloat16":
        layer, x = layer.bfloat16(), x.bfloat16()
    x.requires_grad_()
    peer, y = _peer(layer).double(), x.detach().double().requires_grad_()
    expected = peer(y, y, y, need_weights=False, **theirs)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16) if precision == "autocast" else contextlib.nullcontext():
        output = layer(x, mask=mask)
    assert output.dtype == (torch.float32 if precision == "float32" else torch.bfloat16)
    found, wanted = _named_gradients(layer, output.double(), [x]), _named_gradients(peer, expected, [y])
    # adds one number to all scores of a query, so that the exact gradient is 0 and has no largest entry
    del found["W_K.bias"], wanted["W_K.bias"]
    for name, value in (found | {"output": output}).items():
        exact = (wanted | {"output": expected})[name]
        assert (value.double() - exact).abs().max() <= tolerance * exact.abs().max(), name


def test_the_gradient_of_the_bias_of_keys_is_zero() -> None:
    """It adds q · b to all scores of the query q, which the softmax does not notice."""
    layer = MultiHeadAttention(8, 2).double()
    layer(torch.randn(2, 5, 8).double(), mask=Causal()).square().sum().backward()
    assert layer.W_K.bias.grad.abs().max() < 1e-12 < layer.W_Q.bias.grad.abs().max()


# ---- the module --------------------------------------------------------------------------------------------------


class Doubled(nn.Linear):
    """What a reader may put in a projection's place."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("name", ["W_Q", "W_K", "W_V"])
def test_self_attention_in_bfloat16_uses_the_layers_that_are_there(name: str) -> None:
    """One product for all three reads their weights past them; a layer of another kind must be called."""
    layer, x = MultiHeadAttention(8, 2, bias=False).bfloat16(), torch.randn(2, 5, 8).bfloat16()
    edited = MultiHeadAttention(8, 2, bias=False).bfloat16()
    edited.load_state_dict(layer.state_dict())
    setattr(edited, name, Doubled(8, 8, bias=False, dtype=torch.bfloat16))
    getattr(edited, name).weight = getattr(layer, name).weight
    expected = edited(x)
    assert not torch.allclose(expected, layer(x))
    with torch.no_grad():
        getattr(layer, name).weight.mul_(2)  # exact in bfloat16
    torch.testing.assert_close(layer(x), expected, atol=0.02, rtol=0.02)


@every_kernel
@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([5, 2]))], ids=["none", "causal", "lengths"])
def test_without_dropout_train_mode_is_eval_mode(implementation: Implementation, mask: Mask | None) -> None:
    """The mask is there in both."""
    layer, x = MultiHeadAttention(8, 2, implementation=implementation), torch.randn(2, 5, 8)
    assert torch.equal(layer.train()(x, mask=mask), layer.eval()(x, mask=mask))


@every_kernel
def test_dropout_acts_in_train_mode_alone(implementation: Implementation) -> None:
    """In the mean over draws it changes nothing: the layer is linear in its weights."""
    layer, x = MultiHeadAttention(8, 2, dropout=0.3, implementation=implementation), torch.randn(1, 4, 8)
    with torch.no_grad():
        expected = layer.eval()(x, mask=Causal())
        assert torch.equal(layer(x, mask=Causal()), expected)
        draws = torch.stack([layer.train()(x, mask=Causal()) for _ in range(600)])
    assert len(draws.flatten(1).unique(dim=0)) > 100
    torch.testing.assert_close(draws.mean(dim=0), expected, atol=0.05, rtol=0)


def test_keys_default_to_the_query_and_values_to_the_keys() -> None:
    """And so do their widths."""
    layer = MultiHeadAttention(6, 3)
    x, memory = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    torch.testing.assert_close(layer(x), layer(x, x, x))
    torch.testing.assert_close(layer(x, memory), layer(x, memory, memory))
    assert not torch.allclose(layer(x, memory), layer(x, memory, 2 * memory))
    widths = [
        (each.W_K.in_features, each.W_V.in_features)
        for each in (layer, MultiHeadAttention(6, 3, d_key=4), MultiHeadAttention(6, 3, d_value=5))
    ]
    assert widths == [(6, 6), (4, 4), (6, 5)]


def test_a_bias_on_the_scores_reaches_the_kernel() -> None:
    """One that is −10⁴ above the diagonal is as good as the causal mask; heads may have their own."""
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    bias = -1e4 * torch.ones(5, 5).triu(1)
    torch.testing.assert_close(layer(x, bias=bias), layer(x, mask=Causal()))
    with record(layer) as weights:
        layer(x, bias=torch.stack([bias, bias.mT]))
    assert not weights[""][:, 0].triu(1).any()
    assert not weights[""][:, 1].tril(-1).any()


def test_the_kernel_is_one_word_and_gets_its_arguments() -> None:
    """Heads split, mask and bias as they came, dropout in train mode."""
    calls: list[tuple[tuple[Tensor, ...], dict[str, Any]]] = []

    def spy(*inputs: Tensor, **options: Any) -> Tensor:
        calls.append((inputs, options))
        return softmax(*inputs, **options)

    layer, x = MultiHeadAttention(6, 3, dropout=0.25, implementation=spy), torch.randn(2, 4, 6)
    mask, bias = Causal(), torch.zeros(4, 4)
    layer(x, mask=mask, bias=bias)
    layer.eval()(x)
    assert [tensor.shape for tensor in calls[0][0]] == [(2, 3, 4, 2)] * 3
    assert calls[0][1]["mask"] is mask
    assert calls[0][1]["bias"] is bias
    assert [options["dropout"] for _, options in calls] == [0.25, 0.0]
    assert calls[1][1]["mask"] is None


def test_the_parameters_are_the_four_projections() -> None:
    sizes = {name: tuple(p.shape) for name, p in MultiHeadAttention(6, 2, d_key=3, d_value=5).named_parameters()}
    weights = {"W_Q.weight": (6, 6), "W_K.weight": (6, 3), "W_V.weight": (6, 5), "W_O.weight": (6, 6)}
    assert sizes == weights | {name.replace("weight", "bias"): (6,) for name in weights}
    assert {name for name, _ in MultiHeadAttention(6, 2, bias=False).named_parameters()} == set(weights)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((6, 4), {}, "heads is 4 and d_model is 6; expected heads to divide d_model"),
        ((6, 0), {}, "heads is 0 and d_model is 6; expected heads to divide d_model"),
        ((6, -2), {}, "heads is -2 and d_model is 6"),
        ((0, 2), {}, "heads is 2 and d_model is 0"),
        ((6, 2), {"dropout": 1.0}, "dropout is 1.0; expected 0 ≤ dropout < 1"),
        ((6, 2), {"dropout": -0.1}, "dropout is -0.1; expected 0 ≤ dropout < 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_sizes_are_refused(arguments: tuple[int, int], options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*arguments, **options)


X = torch.ones(2, 4, 6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X[0],), r"query has shape \(4, 6\); expected \(batch, time, 6\)"),
        ((X[..., :5],), r"query has shape \(2, 4, 5\); expected \(batch, time, 6\)"),
        ((X, X), r"key has shape \(2, 4, 6\); expected \(batch, time, 3\)"),
        ((X, X[..., :3], X), r"value has shape \(2, 4, 6\); expected \(batch, time, 5\)"),
        ((X, X[..., :3]), r"value has shape \(2, 4, 3\); expected \(batch, time, 5\)"),
        ((X, X[:1, :, :3], X[:1, :, :5]), "key has 1 sequences; expected 2, one for each of query"),
        ((X, X[..., :3], X[:, :3, :5]), r"value has shape \(2, 3, 5\); expected batch and time of key, \(2, 4, 3\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_input_that_does_not_fit_is_named(inputs: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(6, 2, d_key=3, d_value=5)(*inputs)


# ---- positions and caches ----------------------------------------------------------------------------------------


@pytest.fixture(params=POSITIONS)
def position(request: pytest.FixtureRequest) -> Position:
    """Each encoding in turn, for two heads of width 4."""
    return POSITIONS[request.param](8, 2, 16)


@every_kernel
def test_a_position_turns_queries_and_keys_and_biases_scores(
    implementation: Implementation, position: Position
) -> None:
    """Values stay as they are; a bias that was given as well is added. Written out from the projections."""
    layer, x, bias = (
        MultiHeadAttention(8, 2, implementation=implementation).double(),
        torch.randn(2, 5, 8).double(),
        torch.randn(5, 5),
    )
    q, k, v = (split_heads(project(x), 2) for project in (layer.W_Q, layer.W_K, layer.W_V))
    scores = position.rotate(q) @ position.rotate(k).mT / math.sqrt(4) + bias
    if position.bias(q, 5) is not None:
        scores = scores + position.bias(q, 5)
    expected = layer.W_O(merge_heads(scores.masked_fill(LATER[:5, :5], -torch.inf).softmax(dim=-1) @ v))
    torch.testing.assert_close(layer(x, mask=Causal(), bias=bias.double(), position=position), expected)


@every_kernel
@pytest.mark.parametrize("chunks", [[1] * 7, [3, 1, 3], [7], [2, 5]], ids=str)
def test_in_pieces_with_a_cache_the_output_is_that_of_all_at_once(
    implementation: Implementation, position: Position, chunks: list[int]
) -> None:
    """Each piece brings its queries and leaves its keys; positions go on where the last piece ended."""
    layer, x, cache = MultiHeadAttention(8, 2, implementation=implementation), torch.randn(2, 7, 8), Cache()
    expected = layer(x, mask=Causal(), position=position)
    with torch.no_grad():
        pieces = [layer(piece, mask=Causal(), position=position, cache=cache) for piece in x.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, atol=1e-5, rtol=1e-5)
    assert cache.length == 7


@torch.no_grad()
def test_a_memory_is_projected_once() -> None:
    """In cross-attention the first call fills the cache and the others read it, under the same mask."""
    layer, memory, x, cache = MultiHeadAttention(8, 2), torch.randn(2, 5, 8), torch.randn(2, 4, 8), Cache()
    mask, projected = Lengths(torch.tensor([5, 2])), []
    expected = layer(x, memory, mask=mask)
    layer.W_K.register_forward_hook(lambda *call: projected.append(call))
    pieces = [layer(piece, memory, mask=mask, cache=cache) for piece in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected)
    assert (len(projected), cache.length) == (1, 5)


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_a_cache_of_another_batch_is_refused() -> None:
    """Its own past or its memory: the message says how many sequences each holds."""
    layer, past, read = MultiHeadAttention(8, 2), Cache(), Cache()
    layer(torch.randn(2, 3, 8), cache=past)
    layer(torch.randn(2, 3, 8), torch.randn(2, 4, 8), cache=read)
    with pytest.raises(ValueError, match="k holds 3 sequences; the cache holds 2"):
        layer(torch.randn(3, 1, 8), cache=past)
    with pytest.raises(ValueError, match=r"k has shape \(2, 2, 4, 4\); expected batch, heads and d_head of q, \(3, 2"):
        layer(torch.randn(3, 1, 8), torch.randn(3, 4, 8), cache=read)


# ---- recording ---------------------------------------------------------------------------------------------------


class Model(nn.Module):
    """Two layers with names, one of them inside another module."""

    def __init__(self, implementation: Implementation = fastest, dropout: float = 0.0):
        super().__init__()
        self.attention = MultiHeadAttention(8, 2, implementation=implementation, dropout=dropout)
        self.upper = nn.ModuleDict(
            {"cross": MultiHeadAttention(8, 4, d_key=3, implementation=implementation, dropout=dropout)}
        )

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None) -> Tensor:
        return self.upper["cross"](self.attention(x, mask=mask), memory)


def _by_hand(layer: MultiHeadAttention, weights: Tensor, value: Tensor) -> Tensor:
    """W_O of the weights times the values."""
    return layer.W_O(merge_heads(weights @ split_heads(layer.W_V(value), layer.heads)))


@every_kernel
@pytest.mark.parametrize(
    "mask",
    [None, Causal(), Lengths(torch.tensor([5, 2])), Causal() & Lengths(torch.tensor([3, 0]))],
    ids=["none", "causal", "lengths", "both"],
)
def test_what_is_recorded_is_what_multiplied_the_values(implementation: Implementation, mask: Mask | None) -> None:
    """In every layer, under its name; the output can be recomputed, and is that of the model without recording."""
    model, x, memory = (
        Model(implementation).double(),
        torch.randn(2, 5, 8).double(),
        torch.randn(2, 3, 8).double()[..., :3],
    )
    outside = model(x, memory, mask)
    with record(model) as weights:
        inside = model(x, memory, mask)
    assert {name: tuple(w.shape) for name, w in weights.items()} == {
        "attention": (2, 2, 5, 5),
        "upper.cross": (2, 4, 5, 3),
    }
    hidden = _by_hand(model.attention, weights["attention"], x)
    torch.testing.assert_close(_by_hand(model.upper["cross"], weights["upper.cross"], memory), inside)
    torch.testing.assert_close(hidden, model.attention(x, mask=mask))
    torch.testing.assert_close(inside, outside)
    assert not any(w.requires_grad for w in weights.values())


def test_with_dropout_the_record_holds_the_weights_after_it() -> None:
    """In train mode and under one seed: the written-out implementation draws the same inside and outside."""
    layer, x = MultiHeadAttention(8, 2, dropout=0.5, implementation=softmax), torch.randn(2, 5, 8)
    torch.manual_seed(1)
    outside = layer(x, mask=Causal())
    torch.manual_seed(1)
    with record(layer) as weights:
        inside = layer(x, mask=Causal())
    assert torch.equal(inside, outside)
    torch.testing.assert_close(_by_hand(layer, weights[""], x), outside)
    assert (weights[""].sum(dim=-1) - 1).abs().max() > 0.1, "dropped and scaled, rows need not sum to 1"


@every_kernel
def test_the_gradient_is_the_same_while_recording(implementation: Implementation) -> None:
    """A model may be recorded while it trains."""
    layer, x = MultiHeadAttention(8, 2, implementation=implementation).double(), torch.randn(2, 5, 8).double()
    expected = _gradients(layer(x, mask=Causal()), list(layer.parameters()))
    with record(layer):
        found = _gradients(layer(x, mask=Causal()), list(layer.parameters()))
    torch.testing.assert_close(found, expected)


def test_a_layer_that_is_called_twice_keeps_its_last_weights_and_one_that_is_not_called_none() -> None:
    model, x = Model(), torch.randn(1, 4, 8)
    with record(model) as weights:
        model.attention(x)
        assert list(weights) == ["attention"]
        model.attention(x[:, :2])
    assert weights["attention"].shape == (1, 2, 2, 2)


@every_kernel
def test_implementations_are_restored(implementation: Implementation) -> None:
    """Also after an error, and after a recording within a recording."""
    model, x = Model(implementation), torch.randn(1, 4, 8)
    layers = [model.attention, model.upper["cross"]]
    with record(model), record(model.attention) as inner:
        model.attention(x)
    assert list(inner) == [""]
    assert [layer.implementation for layer in layers] == [implementation] * 2
    with pytest.raises(ZeroDivisionError), record(model):
        _fail()
    assert [layer.implementation for layer in layers] == [implementation] * 2


def _fail() -> None:
    raise ZeroDivisionError


def test_a_model_without_attention_is_refused() -> None:
    message = "model, a Linear, holds no attention whose weights could be recorded"
    with pytest.raises(ValueError, match=message), record(nn.Linear(2, 2)):
        pass


class Bare(nn.Module):
    """Attention without projections or heads, with an implementation of its own."""

    def __init__(self):
        super().__init__()
        self.implementation = fused

    def forward(self, x: Tensor) -> Tensor:
        return self.implementation(x[:, None], x[:, None], x[:, None], mask=Causal())[:, 0]


def test_any_layer_with_a_kernel_has_a_record() -> None:
    """Whatever its class; something else that is called `implementation` is left alone."""
    model, x = nn.Sequential(Bare(), nn.Linear(4, 4)), torch.randn(2, 5, 4)
    model[1].implementation = "no implementation"
    with record(model) as weights:
        output = model(x)
    assert list(weights) == ["0"]
    torch.testing.assert_close(model[1](weights["0"][:, 0] @ x), output)
    assert (model[0].implementation, model[1].implementation) == (fused, "no implementation")


@pytest.mark.parametrize("wrap", [lambda each: each, partial], ids=["implementation", "implementation with options"])
def test_an_approximation_has_no_record(wrap: Callable[[Implementation], Implementation]) -> None:
    """The written-out weights would not be those that it applied. Nothing is changed by the attempt."""

    @declares(Supports(exact=False))
    def mean(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Tensor | None, dropout: float) -> Tensor:
        return v.mean(dim=2, keepdim=True).expand_as(q)

    model = Model()
    model.upper["cross"].implementation = wrap(mean)
    message = "the layer 'upper.cross' of model approximates its weights; only an exact implementation has a record"
    with pytest.raises(ValueError, match=message), record(model):
        pass
    assert model.attention.implementation is fastest
    assert model(torch.randn(1, 4, 8), torch.randn(1, 2, 3)).isfinite().all()


def test_an_edited_mask_takes_effect_in_the_package() -> None:
    """Not only its name: the shortcuts for a causal mask, and for the newest position, know the package's own class."""

    class Causal(masks.Causal):
        def dense(self, queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
            return torch.eye(keys, dtype=torch.bool, device=device)[keys - queries :]

    x = torch.randn(1, 4, 8)
    runtime.use(Causal)
    try:
        layer = MultiHeadAttention(8, 2)
        alone = layer.W_O(layer.W_V(x))
        torch.testing.assert_close(layer(x, mask=Causal()), alone)
        torch.testing.assert_close(layer(x[:, -1:], x, mask=Causal()), alone[:, -1:])
        model = LanguageModel(9, Config(d_model=8, heads=2))
        assert type(model.mask) is Causal
    finally:
        runtime.restore()
    assert type(LanguageModel(9, Config(d_model=8, heads=2)).mask) is masks.Causal


def test_the_same_word_twice_gets_the_same_weight_twice() -> None:
    """Nothing in the layer knows positions: "big … big dog"."""
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    x[:, 3] = x[:, 1]
    with record(layer) as weights:
        layer(x)
    torch.testing.assert_close(weights[""][..., 3], weights[""][..., 1])
    assert math.isclose(weights[""].sum().item(), 10, rel_tol=1e-5)


def test_the_mask_may_be_a_matrix_for_each_head() -> None:
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 3, 8)
    allowed = torch.stack([torch.eye(3), torch.ones(3, 3)]).bool()
    with record(layer) as weights:
        expected = layer(x, mask=Dense(allowed))
    torch.testing.assert_close(layer(x, mask=allowed), expected)
    torch.testing.assert_close(weights[""][:, 0], torch.eye(3).expand(2, 3, 3))
    assert weights[""][:, 1].min() > 0


def test_an_edited_default_kernel_reaches_layers_built_afterwards() -> None:
    def fastest(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        return torch.zeros_like(q)

    runtime.use(fastest)
    try:
        layer = MultiHeadAttention(4, 2, bias=False)
    finally:
        runtime.restore()
    assert not layer(torch.randn(1, 3, 4)).any()


def test_the_same_word_twice_gets_the_same_output_and_the_same_weight() -> None:
    """Without positions a layer cannot tell "big cat chases big dog" from its other orders."""
    layer, words = MultiHeadAttention(16, 4).double(), torch.randn(1, 5, 16, dtype=torch.float64)
    words[:, 3] = words[:, 0]
    with record(layer) as maps, torch.no_grad():
        output = layer(words)
    (weights,) = maps.values()
    torch.testing.assert_close(output[:, 0], output[:, 3])
    torch.testing.assert_close(weights[..., 0], weights[..., 3])
