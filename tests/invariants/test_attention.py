"""Every implementation and every attention layer has every property, and each property fails for one that lacks it.

A later lesson adds its implementation as a row of `IMPLEMENTATIONS`.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention import (
    Band,
    Causal,
    Dense,
    Implementation,
    Lengths,
    Mask,
    MultiHeadAttention,
    Supports,
    attention_weights,
    declares,
    fastest,
    fused,
    softmax,
)
from tfbook.course import invariants
from tfbook.course.invariants import (
    TOLERANCE,
    attention_report,
    blocked_rows,
    dependence,
    future_leak,
    padding_effect,
    permutation_gap,
)

IMPLEMENTATIONS = {"softmax": softmax, "fused": fused, "fastest": fastest}
every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)

LAYERS: dict[str, Callable[..., MultiHeadAttention]] = {
    "one head": lambda **options: MultiHeadAttention(8, 1, **options),
    "four heads": lambda **options: MultiHeadAttention(8, 4, **options),
    "no bias": lambda **options: MultiHeadAttention(8, 2, bias=False, **options),
    "dropout": lambda **options: MultiHeadAttention(8, 2, dropout=0.3, **options),
}
PROPERTIES = {
    "no position sees a later one (train)",
    "no position sees a later one (eval)",
    "padding changes nothing",
    "without positions the order changes nothing",
    "a mask changes the output",
    "a query that may attend to nothing gets 0",
    "weights are a convex combination",
    "what is recorded is what is applied",
    "a saved layer computes the same",
    "every parameter gets a finite gradient",
}
LENGTHS = torch.tensor([6, 4, 1])


@pytest.fixture
def x() -> Tensor:
    """Three sequences of six positions, two of them padded."""
    return torch.randn(3, 6, 8)


# ---- layers ------------------------------------------------------------------------------------------------------


@every_implementation
@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_layer_has_every_property(
    implementation: Implementation, build: Callable[..., MultiHeadAttention], training: bool, x: Tensor, precision: str
) -> None:
    """To 1e-4 in float32; the mode and the implementation of the layer and the random numbers are as before."""
    layer = build(implementation=implementation).train(training)
    before = torch.get_rng_state()
    report = attention_report(layer, x, LENGTHS)
    assert torch.equal(torch.get_rng_state(), before)
    assert {module.training for module in layer.modules()} == {training}
    assert layer.implementation is implementation
    assert report.keys() == PROPERTIES
    assert {name: gap for name, gap in report.items() if not gap <= TOLERANCE} == {}


@every_implementation
@pytest.mark.parametrize("precision", ["bfloat16"], indirect=True)
def test_in_bfloat16_the_properties_hold_to_its_precision(
    implementation: Implementation, x: Tensor, precision: str
) -> None:
    """Sums taken in another order differ by about 2⁻⁸ of numbers near 1; what no sum depends on stays exact."""
    with runtime.autocast():
        report = attention_report(MultiHeadAttention(8, 2, implementation=implementation), x, LENGTHS)
    exact = {
        "every parameter gets a finite gradient",
        "a saved layer computes the same",
        "a mask changes the output",
        "a query that may attend to nothing gets 0",
    }
    assert {name: report[name] for name in exact if report[name] != 0} == {}
    assert {name: gap for name, gap in report.items() if not gap <= 0.02} == {}


@every_implementation
@pytest.mark.parametrize("scale", [1, 8, 30])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_blocked_keys_of_any_length_change_nothing(
    implementation: Implementation, scale: float, training: bool, x: Tensor
) -> None:
    """Neither later ones nor padding, where keys have the standard deviation `scale`."""
    layer = MultiHeadAttention(8, 2, implementation=implementation).train(training)
    layer.W_K.weight.data *= scale * math.sqrt(3)  # as initialized, their variance is 1/3
    causal = lambda changed: layer(torch.where(changed[..., None] > 0, x + 1, x), mask=Causal())  # noqa: E731
    assert future_leak(causal, torch.zeros(x.shape[:2], dtype=torch.int64), 2) <= TOLERANCE
    assert padding_effect(lambda x, n: layer(x, mask=Lengths(n)), x, LENGTHS) <= TOLERANCE


# ---- implementations ---------------------------------------------------------------------------------------------


@every_implementation
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(
    "mask",
    [
        Lengths(torch.tensor([5, 0, 2])),
        Causal() & Lengths(torch.tensor([0, 0, 0])),
        Band(0, 0) & Lengths(torch.tensor([5, 2, 1])),
        Dense(torch.tensor([[True] * 5, [False] * 5, [True] * 5, [False] * 5, [True] * 5])),
        torch.zeros(3, 1, 5, 5, dtype=torch.bool),
    ],
    ids=["lengths", "causal", "band", "dense", "tensor"],
)
def test_a_query_that_may_attend_to_nothing_gets_zero(
    implementation: Implementation, dtype: torch.dtype, dropout: float, mask: Mask | Tensor
) -> None:
    """Exactly, and all gradients are finite."""
    assert blocked_rows(implementation, torch.randn(3, 2, 5, 4, dtype=dtype), mask, dropout) == 0


@pytest.mark.gpu
@every_implementation
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_gpu_keeps_the_properties(implementation: Implementation, dtype: torch.dtype) -> None:
    """Its fused implementations are other programs than the CPU's. A mask may be made on the CPU."""
    x = torch.randn(3, 2, 5, 8)
    for mask in (Lengths(torch.tensor([5, 0, 2])), Causal() & Lengths(torch.tensor([5, 0, 2]))):
        there = x.to("cuda", dtype)
        assert blocked_rows(implementation, there, mask) == blocked_rows(implementation, there, mask, dropout=0.5) == 0
        torch.testing.assert_close(
            implementation(there, there, there, mask).float().cpu(), softmax(x, x, x, mask), atol=0.05, rtol=0.05
        )


def _attend(implementation: Implementation, **options: Any) -> Callable[[Tensor], Tensor]:
    """Self-attention without projections, of one head."""
    return lambda x: implementation(x[:, None], x[:, None], x[:, None], **options)[:, 0]


@every_implementation
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_what_depends_on_what_is_what_the_mask_says(implementation: Implementation, dropout: float) -> None:
    """Causal: lower-triangular. Band: a band. Lengths: nothing of the padding. Only the diagonal: position-wise."""
    x = torch.randn(1, 5, 4, dtype=torch.float64)
    for mask in (Causal(), Band(1, 0), Band(1, 2), Lengths(torch.tensor([3])), Causal() & Lengths(torch.tensor([3]))):
        found = dependence(_attend(implementation, mask=mask, dropout=dropout), x)
        allowed = mask.dense(5, 5).expand(1, 1, 5, 5)[0, 0]
        itself = torch.eye(5, dtype=torch.bool) & allowed.any(dim=-1)  # a query depends on its own vector
        assert not found[~(allowed | itself)].any()
        if not dropout:
            assert (found[allowed] > 1e-6).all()


@every_implementation
def test_a_newest_query_alone_gets_what_it_gets_among_all(implementation: Implementation) -> None:
    """As in decoding with kept keys: the last queries of a sequence, asked for without the first."""
    q, k, v = torch.randn(3, 2, 2, 6, 4)
    for mask in (Causal(), Band(2, 0), Causal() & Lengths(torch.tensor([6, 3]))):
        together = implementation(q, k, v, mask)
        for last in (1, 3):
            torch.testing.assert_close(implementation(q[:, :, -last:], k, v, mask), together[:, :, -last:])


@every_implementation
def test_without_positions_the_order_changes_nothing(implementation: Implementation) -> None:
    """A mask by position is what tells positions apart."""
    x = torch.randn(2, 5, 4)
    assert permutation_gap(_attend(implementation), x) <= TOLERANCE
    assert permutation_gap(_attend(implementation, mask=Causal()), x) > 10 * TOLERANCE


# ---- layers and implementations that run, train and are wrong ----------------------------------------------------


class _UnmaskedInEval(MultiHeadAttention):
    """A mask that is there in training alone, as Dive into Deep Learning once had it."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: Any) -> Tensor:
        return super().forward(query, mask=mask if self.training else None, **rest)


class _UnmaskedInTraining(MultiHeadAttention):
    """… and the other way round."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: Any) -> Tensor:
        return super().forward(query, mask=None if self.training else mask, **rest)


class _Unmasked(MultiHeadAttention):
    """Takes a mask and forgets it."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: Any) -> Tensor:
        return super().forward(query, **rest)


class _KnowsPositions(MultiHeadAttention):
    """Adds its position to each vector."""

    def forward(self, query: Tensor, **rest: Any) -> Tensor:
        return super().forward(query + torch.arange(query.shape[1])[:, None] / 5, **rest)


class _KnowsLength(MultiHeadAttention):
    """Sees how long the batch is, padding included."""

    def forward(self, query: Tensor, **rest: Any) -> Tensor:
        return super().forward(query, **rest) / query.shape[1]


class _MixesHeads(MultiHeadAttention):
    """Merges heads by a reshape without the transposition: positions and heads are exchanged, the future leaks."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: Any) -> Tensor:
        q, k, v = (W(query).unflatten(-1, (self.heads, -1)).transpose(1, 2) for W in (self.W_Q, self.W_K, self.W_V))
        return self.W_O(self.implementation(q, k, v, mask=mask).reshape(query.shape))


class _Unused(MultiHeadAttention):
    """Holds a layer that nothing goes through."""

    def __init__(self, *sizes: int, **options: Any):
        super().__init__(*sizes, **options)
        self.spare = nn.Linear(2, 2)


class _Detached(MultiHeadAttention):
    """Cuts the gradient of the queries."""

    def __init__(self, *sizes: int, **options: Any):
        super().__init__(*sizes, **options)
        self.W_Q.register_forward_hook(lambda module, inputs, output: output.detach())


class _LooseTensor(MultiHeadAttention):
    """Keeps a random tensor as a plain attribute, where the state dict does not find it."""

    def __init__(self, *sizes: int, **options: Any):
        super().__init__(*sizes, **options)
        self.scale = torch.rand(8)

    def forward(self, query: Tensor, **rest: Any) -> Tensor:
        return super().forward(self.scale * query, **rest)


class _NotANumber(MultiHeadAttention):
    """Divides by zero."""

    def forward(self, query: Tensor, **rest: Any) -> Tensor:
        return super().forward(query, **rest) / 0 * 0


def _dense(mask: Mask | None, q: Tensor, k: Tensor) -> Tensor:
    shape = (*q.shape[:3], k.shape[2])
    return (torch.ones((), dtype=torch.bool) if mask is None else mask.dense(*shape[2:])).expand(shape)


def _written(weights: Callable[[Tensor, Tensor], Tensor], exact: bool = True) -> Callable[..., Tensor]:
    """An implementation from weights(scores, allowed)."""

    @declares(Supports(exact=exact))
    def wrong(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        return F.dropout(weights(q @ k.mT / q.shape[-1] ** 0.5, _dense(mask, q, k)), dropout) @ v

    return wrong


LOWEST = -1e9
masked_after = _written(lambda scores, allowed: scores.softmax(dim=-1) * allowed)
over_queries = _written(lambda scores, allowed: scores.masked_fill(~allowed, LOWEST).softmax(dim=-2) * allowed)
infinite = _written(lambda scores, allowed: scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1))
evenly = _written(lambda scores, allowed: scores.masked_fill(~allowed, LOWEST).softmax(dim=-1))
wrong_way_round = _written(lambda scores, allowed: scores.masked_fill(allowed, LOWEST).softmax(dim=-1) * ~allowed)
sharper = _written(lambda scores, allowed: (5 * scores).masked_fill(~allowed, LOWEST).softmax(dim=-1) * allowed)

LEAKS = {"no position sees a later one (train)", "no position sees a later one (eval)"}
PADDING, ORDER, EFFECT = (
    "padding changes nothing",
    "without positions the order changes nothing",
    "a mask changes the output",
)
NOTHING, CONVEX, RECORD = (
    "a query that may attend to nothing gets 0",
    "weights are a convex combination",
    "what is recorded is what is applied",
)
SAVED, GRADIENT = "a saved layer computes the same", "every parameter gets a finite gradient"
BROKEN: dict[str, tuple[type[MultiHeadAttention], Implementation, set[str]]] = {
    "no mask in eval": (_UnmaskedInEval, fastest, {"no position sees a later one (eval)", PADDING, EFFECT, CONVEX}),
    "no mask in training": (_UnmaskedInTraining, fastest, {"no position sees a later one (train)"}),
    "no mask": (_Unmasked, fastest, LEAKS | {PADDING, EFFECT, CONVEX}),
    "knows positions": (_KnowsPositions, fastest, {ORDER, RECORD}),
    "knows the length": (_KnowsLength, fastest, {PADDING, RECORD}),
    "mixes heads and positions": (_MixesHeads, fastest, LEAKS | {PADDING, ORDER, RECORD}),
    "unused layer": (_Unused, fastest, {GRADIENT}),
    "gradient cut": (_Detached, fastest, {GRADIENT}),
    "tensor outside the state dict": (_LooseTensor, fastest, {SAVED, RECORD}),
    "not a number": (_NotANumber, fastest, PROPERTIES - {NOTHING, CONVEX}),
    "mask after the softmax": (MultiHeadAttention, masked_after, LEAKS | {PADDING, RECORD}),
    "softmax over the queries": (MultiHeadAttention, over_queries, LEAKS | {PADDING, RECORD}),
    "blocked rows are NaN": (MultiHeadAttention, infinite, {NOTHING}),
    "blocked rows attend to all": (MultiHeadAttention, evenly, {NOTHING}),
    "mask the wrong way round": (MultiHeadAttention, wrong_way_round, LEAKS | {PADDING, RECORD, NOTHING}),
    "records another softmax": (MultiHeadAttention, sharper, {RECORD}),
}


@pytest.mark.parametrize(("layer", "implementation", "expected"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_broken_layer_is_found_by_the_properties_that_it_lacks(
    layer: type[MultiHeadAttention], implementation: Implementation, expected: set[str], x: Tensor, precision: str
) -> None:
    """By those and no others, and by ten times the tolerance."""
    report = attention_report(layer(8, 2, implementation=implementation), x, LENGTHS)
    assert {name for name, gap in report.items() if not gap <= TOLERANCE} == expected
    assert min(report[name] for name in expected) > 10 * TOLERANCE


def test_every_property_is_lacked_by_something() -> None:
    """Otherwise one of them may be unable to fail."""
    assert set().union(*(expected for name, (_, _, expected) in BROKEN.items() if name != "not a number")) == PROPERTIES


# ---- the single functions ----------------------------------------------------------------------------------------


def test_dependence_is_the_norm_of_each_block_of_the_jacobian() -> None:
    """Of a linear map from three positions of width 2 to two of width 4, the blocks are its matrices."""
    blocks = torch.randn(2, 3, 4, 2, dtype=torch.float64)
    found = dependence(lambda x: torch.einsum("ijab,tjb->tia", blocks, x), torch.randn(1, 3, 2, dtype=torch.float64))
    torch.testing.assert_close(found, blocks.square().sum(dim=(2, 3)).sqrt())


def test_dependence_tells_recurrent_convolutional_and_position_wise_layers_apart() -> None:
    """Lower-triangular, a band, the diagonal; the zeros are exact."""
    x = torch.randn(1, 6, 3, dtype=torch.float64)
    recurrent = nn.GRU(3, 3, batch_first=True).double()
    convolution = nn.Conv1d(3, 3, 3, padding=1).double()
    feed_forward = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 3)).double()
    ones = torch.ones(6, 6, dtype=torch.bool)
    assert torch.equal(dependence(lambda x: recurrent(x)[0], x) > 0, ones.tril())
    assert torch.equal(dependence(lambda x: convolution(x.mT).mT, x) > 0, ones.tril(1).triu(-1))
    assert torch.equal(dependence(feed_forward, x) > 0, ones.tril().triu())


def test_dependence_sees_one_draw_of_dropout_and_leaves_the_random_numbers_alone() -> None:
    """In train mode the same units are dropped at every call."""
    layer = MultiHeadAttention(4, 2, dropout=0.5).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    before = torch.get_rng_state()
    causal = [dependence(lambda x: layer(x, mask=Causal()), x) for _ in range(2)]
    assert torch.equal(*causal)
    assert not causal[0].triu(1).any()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_dependence_is_of_one_sequence() -> None:
    with pytest.raises(ValueError, match="x holds 2 sequences; expected one, whose positions are compared"):
        dependence(lambda x: x, torch.ones(2, 3, 4))


def test_permutation_gap_measures_what_the_order_changes() -> None:
    """The running mean of 0, 1, 2 is 0, ½, 1: the shift to 2, 0, 1 changes its first entry by 1, and no sum notices."""
    x = torch.tensor([[[0.0], [1.0], [2.0]]])
    running = lambda x: x.cumsum(1) / torch.arange(1, 4)[:, None]  # noqa: E731
    assert permutation_gap(running, x) == 1
    assert permutation_gap(lambda x: x.sum(1, keepdim=True).expand_as(x), x) == 0


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x + x.roll(1, 1),
        lambda x: x.roll(1, 1) + x.roll(-1, 1),
        lambda x: x * torch.tensor([[1], [1], [2], [2]]),
    ],
    ids=["the one before", "both neighbors", "halves"],
)
def test_permutation_gap_is_not_fooled_by_a_symmetry(forward: Callable[[Tensor], Tensor]) -> None:
    """A circular convolution commutes with every shift, a symmetric one with reversal too, halves with the exchange."""
    assert permutation_gap(forward, torch.randn(1, 4, 2)) > 10 * TOLERANCE


def test_blocked_rows_needs_a_row_that_is_blocked() -> None:
    """Nothing would be tested without one."""
    with pytest.raises(ValueError, match="mask blocks no row; expected one with a query that may attend to nothing"):
        blocked_rows(softmax, torch.randn(1, 1, 3, 2), Causal())


def test_blocked_rows_knows_each_way_to_fail() -> None:
    """An output that is not 0, one that is NaN, and a gradient that is NaN where the output is 0."""
    x, mask = torch.randn(2, 1, 3, 2), Lengths(torch.tensor([3, 0]))
    values = x[1].abs().max().item()

    @declares(Supports())
    def hidden_nan(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *rest: object) -> Tensor:
        allowed = _dense(mask, q, k)
        weights = (q @ k.mT).masked_fill(~allowed, -torch.inf).softmax(dim=-1)
        return (weights @ v).masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)

    assert not hidden_nan(x, x, x, mask)[1].any()
    assert blocked_rows(softmax, x, mask) == 0
    assert 0 < blocked_rows(evenly, x, mask) <= values
    assert blocked_rows(infinite, x, mask) == blocked_rows(hidden_nan, x, mask) == torch.inf


def test_a_padding_effect_may_be_measured_on_vectors(x: Tensor) -> None:
    """The mean over all positions sees the padding, that over the words does not."""
    words = lambda x, n: (x * (torch.arange(x.shape[1]) < n[:, None])[..., None]).sum(1, keepdim=True)  # noqa: E731
    assert invariants.padding_effect(words, x, LENGTHS) <= TOLERANCE
    assert invariants.padding_effect(lambda x, n: x.sum(1, keepdim=True), x, LENGTHS) > 10 * TOLERANCE


def test_convexity_may_be_measured_on_heads() -> None:
    """With a mask that broadcasts over them."""
    mask = Causal() & Lengths(torch.tensor([4, 2]))
    weights = attention_weights(*torch.randn(2, 2, 3, 4, 5), mask)
    assert invariants.convexity(weights, mask.dense(4, 4)) < 1e-6
    assert invariants.convexity(weights, Causal().dense(4, 4)) < 1e-6
    assert invariants.convexity(weights, Band(1, 0).dense(4, 4)) > 0.1


def test_an_unused_mask_is_told_from_one_that_acts(x: Tensor) -> None:
    assert invariants.unused_mask(lambda mask: x, Causal()) == 1
    assert invariants.unused_mask(lambda mask: x if mask is None else torch.full_like(x, torch.nan), Causal()) == 1
    assert invariants.unused_mask(lambda mask: x if mask is None else x + 1, Causal()) == 0


def test_parameters_without_effect_still_need_a_finite_gradient() -> None:
    """The bias of keys is one: what is asked of it is that no NaN comes out."""
    model = nn.ParameterDict({"used": torch.ones(2), "idle": torch.ones(2)})
    with torch.autocast("cpu", enabled=False):
        for factor, share in ((0.0, 0.0), (torch.nan, 0.5)):
            loss = lambda m, f=factor: m["used"].sum() + (f * m["idle"]).sum()  # noqa: E731
            assert invariants.missing_gradients(model, loss, without_effect={"idle"}) == share
        assert invariants.missing_gradients(model, lambda m: m["used"].sum() + 0 * m["idle"].sum()) == 0.5
