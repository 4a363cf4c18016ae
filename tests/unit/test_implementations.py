"""Every implementation against loops in double precision and the others: outputs, gradients, blocked rows, refusals."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tfbook.attention import (
    Band,
    Causal,
    Dense,
    Implementation,
    Lengths,
    Mask,
    Supports,
    attention_weights,
    declares,
    fastest,
    fused,
    implementations,
    masked_softmax,
    merge_heads,
    softmax,
    split_heads,
)

IMPLEMENTATIONS = {"softmax": softmax, "fused": fused, "fastest": fastest}
# Rounding of outputs near 1 and of gradients near 1: 24, 8 and 11 significant bits, and sums of a few terms.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
every_kernel = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


class Case(NamedTuple):
    """What an implementation is given."""

    q: Tensor  # (batch, head, query, d_head)
    k: Tensor  # (batch, head, key, d_head)
    v: Tensor  # (batch, head, key, d_value)
    mask: Mask | Tensor | None
    bias: Tensor | None


MASKS: dict[str, Callable[[Tensor, Tensor], Mask | Tensor | None]] = {  # from the allowed pairs and the lengths
    "none": lambda allowed, lengths: None,
    "causal": lambda allowed, lengths: Causal(),
    "band": lambda allowed, lengths: Band(2, 1),
    "lengths": lambda allowed, lengths: Lengths(lengths),
    "dense": lambda allowed, lengths: Dense(allowed),
    "causal & lengths": lambda allowed, lengths: Causal() & Lengths(lengths),
    "band & dense": lambda allowed, lengths: Band(1, 1) & Dense(allowed),
    "Boolean tensor": lambda allowed, lengths: allowed,
    "one for all heads": lambda allowed, lengths: allowed[:, :1],
    "one for all sequences": lambda allowed, lengths: allowed[0],
    "one for all of both": lambda allowed, lengths: allowed[0, 0],
    "one for all queries": lambda allowed, lengths: allowed[0, 0, 0],
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small random inputs: any sizes, any mask (rows may be blocked), any bias that broadcasts."""
    batch, head, query, d_head, d_value = (draw(st.integers(1, n)) for n in (3, 3, 5, 4, 4))
    key = query + draw(st.integers(0, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    shape = (batch, head, query, key)
    allowed = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.3, 0.7]))
    lengths = torch.randint(key + 1, (batch,), generator=generator)
    axes = draw(st.none() | st.tuples(*(st.sampled_from([1, size]) for size in shape)))
    dropped = draw(st.integers(0, 3))  # leading axes that a bias may lack
    return Case(
        normal(batch, head, query, d_head).requires_grad_(),
        normal(batch, head, key, d_head).requires_grad_(),
        normal(batch, head, key, d_value).requires_grad_(),
        draw(st.sampled_from(list(MASKS.values())))(allowed, lengths),
        None if axes is None else normal(axes[dropped:]).requires_grad_(),
    )


def _dense(case: Case) -> Tensor:
    """The mask as a matrix with all four axes written out."""
    shape = (*case.q.shape[:3], case.k.shape[2])
    if case.mask is None:
        return torch.ones(shape, dtype=torch.bool)
    return (case.mask if isinstance(case.mask, Tensor) else case.mask.dense(*shape[2:])).expand(shape)


def _by_loops(case: Case) -> Tensor:
    """The definition for one query at a time: Σ_j exp(s_j) v_j / Σ_j exp(s_j) over the allowed keys, else 0."""
    allowed, rows = _dense(case), []
    bias = torch.zeros(()) if case.bias is None else case.bias
    bias = bias.expand(allowed.shape)
    for place in itertools.product(*map(range, case.q.shape[:3])):
        b, h, _ = place
        total, mixture = 0.0, torch.zeros_like(case.v[b, h, 0])
        for j in range(case.k.shape[2]):
            if allowed[place][j]:
                score = sum(a * c for a, c in zip(case.q[place], case.k[b, h, j], strict=True))
                weight = torch.exp(score / math.sqrt(case.q.shape[-1]) + bias[place][j])
                total, mixture = total + weight, mixture + weight * case.v[b, h, j]
        rows.append(mixture / total if allowed[place].any() else mixture)
    return torch.stack(rows).reshape(*case.q.shape[:3], -1)


def _gradients(case: Case, output: Tensor) -> list[Tensor | None]:
    """Of all inputs, for a loss that weighs every entry of the output differently."""
    inputs = [tensor for tensor in (case.q, case.k, case.v, case.bias) if tensor is not None]
    loss = (output.double() * torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output)).sum()
    if not loss.requires_grad:  # the loop where every row is blocked
        return [torch.zeros_like(tensor) for tensor in inputs]
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def _as(case: Case, dtype: torch.dtype) -> Case:
    """The same numbers in another precision."""
    floats = [None if x is None else x.detach().to(dtype).requires_grad_() for x in (case.q, case.k, case.v, case.bias)]
    return Case(*floats[:3], case.mask, floats[3])


# ---- what is computed --------------------------------------------------------------------------------------------


@given(cases())
@settings(max_examples=50)
def test_implementations_compute_the_definition(case: Case) -> None:
    """In double precision, outputs and every gradient, that of the bias included."""
    expected = _by_loops(case)
    gradients = _gradients(case, expected)
    for each in IMPLEMENTATIONS.values():
        output = each(*case)
        torch.testing.assert_close(output, expected, atol=1e-12, rtol=1e-9)
        torch.testing.assert_close(_gradients(case, output), gradients, atol=1e-11, rtol=1e-8)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@given(cases())
@settings(max_examples=30)
def test_implementations_agree_to_the_precision_of_their_inputs(
    implementation: Implementation, dtype: torch.dtype, case: Case
) -> None:
    """With the definition in double precision on the same, rounded numbers; output and gradients keep the dtype."""
    rounded = _as(case, dtype)
    exact = _as(rounded, torch.float64)
    output, expected = implementation(*rounded), softmax(*exact)
    assert output.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(output.double(), expected, atol=tolerance, rtol=tolerance)
    for found, wanted in zip(_gradients(rounded, output), _gradients(exact, expected), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), wanted, atol=4 * tolerance, rtol=4 * tolerance)


@every_kernel
def test_a_bias_of_another_precision_is_brought_to_that_of_the_scores(implementation: Implementation) -> None:
    """As a table of relative positions in float32 meets queries in bfloat16."""
    q, k, v = torch.randn(3, 2, 2, 4, 8).bfloat16()
    bias = torch.randn(2, 4, 4)
    for mask in (None, Causal()):
        output = implementation(q, k, v, mask, bias)
        assert output.dtype == torch.bfloat16
        expected = softmax(q.double(), k.double(), v.double(), mask, bias.double())
        torch.testing.assert_close(output.double(), expected, atol=0.05, rtol=0.05)


@every_kernel
def test_under_autocast_kernels_agree_to_bfloat16(implementation: Implementation) -> None:
    q, k, v = torch.randn(3, 2, 2, 6, 8)
    expected = softmax(q, k, v, Causal())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = implementation(q, k, v, Causal())
    torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


@every_kernel
def test_a_weight_is_the_softmax_of_the_scaled_score(implementation: Implementation) -> None:
    """Worked out by pencil: scores 0 and ln 3 give weights 1/4 and 3/4; the root of d_head = 4 is taken off first."""
    q = torch.tensor([[[[1.0, 1.0, 1.0, 1.0]]]])
    k = torch.tensor([[[[0.0] * 4, [math.log(3) / 2] * 4]]])
    v = torch.tensor([[[[0.0], [8.0]]]])
    torch.testing.assert_close(implementation(q, k, v), torch.tensor([[[[6.0]]]]))
    torch.testing.assert_close(attention_weights(q, k), torch.tensor([[[[0.25, 0.75]]]]))


def test_weights_are_the_masked_softmax() -> None:
    """The two functions of the module that blocked keys go through give the same."""
    q, k = torch.randn(2, 2, 3, 5, 4, dtype=torch.float64)
    allowed = torch.rand(2, 1, 5, 5) < 0.5
    allowed[0, 0, 2] = False
    scores = q @ k.mT / 2
    torch.testing.assert_close(attention_weights(q, k, Dense(allowed)), masked_softmax(scores, allowed))


@pytest.mark.parametrize(
    ("dtype", "keys", "chosen"),
    [
        (torch.float32, 8, "fused"),
        (torch.float64, 8, "fused"),
        (torch.bfloat16, 8, "softmax"),
        (torch.bfloat16, implementations.SHORT - 1, "softmax"),
        (torch.bfloat16, implementations.SHORT, "fused"),
    ],
    ids=str,
)
def test_the_fastest_kernel_is_chosen_by_precision_and_length(
    dtype: torch.dtype, keys: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    for where, function, name in (
        (implementations, "softmax", "softmax"),
        (implementations.F, "scaled_dot_product_attention", "fused"),
    ):
        monkeypatch.setattr(where, function, lambda *inputs, name=name: called.append(name) or inputs[0])
    q, k = torch.randn(1, 1, 1, 2, dtype=dtype), torch.randn(1, 1, keys, 2, dtype=dtype)
    fastest(q, k, k)
    assert called == [chosen]
    fused(q, k, k)
    assert called[1:] == ["fused"], "always"


# ---- blocked rows ------------------------------------------------------------------------------------------------


@every_kernel
@every_dtype
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("size", [1.0, 100.0], ids=["small", "large"])
@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
def test_a_query_that_may_attend_to_nothing_gets_zero_and_finite_gradients(
    implementation: Implementation, dtype: torch.dtype, dropout: float, size: float, biased: bool
) -> None:
    """Whatever the scores: the large ones are in the thousands. The gradient of such a query is 0."""
    q, k, v = (size * (torch.rand(3, 2, 2, 4, 8) - 0.5)).to(dtype)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    bias = torch.randn(2, 4, 4).to(dtype).requires_grad_() if biased else None
    allowed = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    for mask in (Dense(allowed), Dense(allowed) & Lengths(torch.tensor([3, 0]))):
        output = implementation(q, k, v, mask, bias, dropout)
        assert not output[:, :, 1].any()
        assert output.isfinite().all()
        found = torch.autograd.grad(output.float().square().mean(), [*inputs, *([bias] if biased else [])])
        assert all(gradient.isfinite().all() for gradient in found)
        assert not found[0][:, :, 1].any()
    assert not output[1].any(), "a sequence of length 0"
    assert not any(gradient[1].any() for gradient in found[:3])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_blocked_key_has_no_weight_however_large_its_score(dtype: torch.dtype) -> None:
    """Beside allowed scores that are as small as scores get."""
    q, k = torch.tensor([[[[100.0]]]], dtype=dtype), torch.tensor([[[[-300.0], [300.0]]]], dtype=dtype)
    allowed = torch.tensor([True, False])
    assert attention_weights(q, k, Dense(allowed)).tolist() == [[[[1.0, 0.0]]]]
    for each in IMPLEMENTATIONS.values():
        assert each(q, k, k, allowed).item() == -300


# ---- dropout -----------------------------------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([3]))], ids=["none", "causal", "lengths"])
def test_dropout_drops_weights_and_scales_those_that_it_keeps(
    implementation: Implementation, mask: Mask | None
) -> None:
    """Values that are unit vectors show the weights: each is 0 or 1/(1 − p) of what it was, kept with 1 − p."""
    q, k = torch.randn(2, 1, 1, 5, 4, dtype=torch.float64)
    one_hot = torch.eye(5, dtype=torch.float64)[None, None]
    weights = implementation(q, k, one_hot, mask)
    torch.manual_seed(0)
    draws = torch.stack([implementation(q, k, one_hot, mask, dropout=0.3) for _ in range(500)])
    kept = draws != 0
    torch.testing.assert_close(draws, torch.where(kept, weights / 0.7, 0.0))
    rate = kept[:, weights > 0].double().mean()
    assert rate.item() == pytest.approx(0.7, abs=0.02)
    torch.testing.assert_close(draws.mean(dim=0), weights, atol=0.05, rtol=0)
    assert len(kept.flatten(1).unique(dim=0)) > 100, "the draws differ"


@every_kernel
def test_dropout_is_repeated_under_the_same_seed_and_absent_at_0(implementation: Implementation) -> None:
    q = torch.randn(2, 2, 5, 4)
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(implementation(q, q, q, dropout=0.5))
    assert torch.equal(*drawn)
    state = torch.get_rng_state()
    assert torch.equal(implementation(q, q, q, dropout=0.0), implementation(q, q, q))
    assert torch.equal(torch.get_rng_state(), state)


# ---- what is shown, supported and refused ------------------------------------------------------------------------


def test_the_written_out_kernel_shows_the_weights_that_it_applies() -> None:
    """Dropout included, and cut from the graph."""
    q, k, v = torch.randn(3, 2, 2, 4, 3, requires_grad=True)
    shown: list[Tensor] = []
    output = softmax(q, k, v, Causal(), dropout=0.5, seen=shown.append)
    torch.testing.assert_close(shown[0] @ v, output)
    assert (shown[0].tril() == 0).sum() > (torch.ones(4, 4).tril() == 0).sum(), "some were dropped"
    assert not shown[0].requires_grad


@pytest.fixture
def only_causal() -> Implementation:
    """An implementation that takes the causal mask and nothing else, as a fast one might."""

    @declares(Supports(masks=(Causal,), bias=False, dropout=False))
    def running_mean(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        """The mean of the values so far."""
        return v.cumsum(dim=2) / torch.arange(1, v.shape[2] + 1)[:, None]

    return running_mean


def test_a_kernel_declares_what_it_supports(only_causal: Implementation) -> None:
    """And keeps its name and its docstring, for errors and help()."""
    assert only_causal.supports == Supports(masks=(Causal,), bias=False, dropout=False, exact=True)
    assert {each.supports for each in IMPLEMENTATIONS.values()} == {Supports()}
    assert (only_causal.__name__, only_causal.__doc__) == ("running_mean", "The mean of the values so far.")


def test_what_a_kernel_supports_reaches_it(only_causal: Implementation) -> None:
    v = torch.randn(1, 1, 3, 2)
    for mask in (None, Causal(), Causal() & Causal()):
        torch.testing.assert_close(only_causal(v, v, v, mask)[0, 0, -1], v[0, 0].mean(dim=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": Band(1, 1)}, "the implementation running_mean supports Causal masks; got Band"),
        ({"mask": Causal() & Lengths(torch.tensor([2]))}, "supports Causal masks; got Lengths"),
        ({"mask": Causal() & (Band(1, 0) & Causal())}, "supports Causal masks; got Band"),
        ({"mask": torch.ones(3, 3, dtype=torch.bool)}, "supports Causal masks; got Dense"),
        ({"bias": torch.zeros(3, 3)}, "the implementation running_mean supports no bias on the scores"),
        ({"dropout": 0.1}, "the implementation running_mean supports no dropout; got 0.1"),
    ],
    ids=["mask", "half of a mask", "part of a mask", "tensor", "bias", "dropout"],
)
def test_what_a_kernel_does_not_support_it_refuses(
    only_causal: Implementation, options: dict[str, object], message: str
) -> None:
    """Rather than leave it out, which nobody would notice."""
    v = torch.randn(1, 1, 3, 2)
    with pytest.raises(NotImplementedError, match=message):
        only_causal(v, v, v, **options)


def test_the_kinds_of_masks_are_named_in_a_refusal() -> None:
    v, mask = torch.randn(1, 1, 3, 2), torch.ones(3, 3, dtype=torch.bool)
    for kinds, known in (((Causal, Band), "Causal and Band masks"), ((), "no masks")):
        with pytest.raises(NotImplementedError, match=f"the implementation softmax supports {known}; got Dense"):
            Supports(masks=kinds).refuse("softmax", Dense(mask), None, 0.0)
    Supports(masks=()).refuse("softmax", None, v, 0.5)


Q, K = torch.ones(2, 3, 4, 5), torch.ones(2, 3, 6, 5)


@every_kernel
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ((Q[0], K, K), {}, r"q has shape \(3, 4, 5\); expected \(batch, head, position, width\)"),
        ((Q, K[0], K), {}, r"k has shape \(3, 6, 5\); expected \(batch, head, position, width\)"),
        ((Q, K, K[None]), {}, r"v has shape \(1, 2, 3, 6, 5\); expected \(batch, head, position, width\)"),
        ((Q, K[:1], K), {}, r"k has shape \(1, 3, 6, 5\); expected batch, heads and d_head of q, \(2, 3, 4, 5\)"),
        ((Q, K[:, :1], K), {}, r"k has shape \(2, 1, 6, 5\); expected batch, heads and d_head of q"),
        ((Q, K[..., :4], K), {}, r"k has shape \(2, 3, 6, 4\); expected batch, heads and d_head of q"),
        ((Q, K, K[:, :, :5]), {}, r"v has shape \(2, 3, 5, 5\); expected batch, heads and positions of k, \(2, 3, 6"),
        (
            (Q, K, K),
            {"mask": Q[..., 0] > 0},
            r"mask has shape \(2, 3, 4\); expected one that broadcasts to \(2, 3, 4, 6",
        ),
        ((Q, K, K), {"mask": K[None, ..., 0] > 0}, r"mask has shape \(1, 2, 3, 6\); expected one that broadcasts to"),
        ((Q, K, K), {"mask": torch.ones(1, 2, 3, 4, 6) > 0}, r"mask has shape \(1, 2, 3, 4, 6\); expected one that"),
        ((Q, K, K), {"mask": Lengths(torch.tensor([1, 2, 3]))}, r"mask has shape \(3, 1, 1, 6\); expected one that"),
        ((Q[:1], K[:1], K[:1]), {"mask": Lengths(torch.tensor([1, 2]))}, r"mask has shape \(2, 1, 1, 6\)"),
        (
            (Q, K, K),
            {"bias": torch.ones(4, 5)},
            r"bias has shape \(4, 5\); expected one that broadcasts to \(2, 3, 4, 6",
        ),
        ((Q[:1], K[:1], K[:1]), {"bias": torch.ones(2, 1, 4, 6)}, r"bias has shape \(2, 1, 4, 6\); expected one that"),
        ((Q, K, K), {"bias": torch.ones(1, 1, 1, 4, 6)}, r"bias has shape \(1, 1, 1, 4, 6\); expected one that"),
        ((K, Q, Q), {"mask": Causal()}, "there are 6 queries and 4 keys; a mask by position expects queries ≤ keys"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_implementations_name_the_argument_that_does_not_fit(
    implementation: Implementation, inputs: tuple[Tensor, ...], options: dict[str, object], message: str
) -> None:
    """A mask or a bias that would broadcast the scores to a larger shape is refused like any other."""
    with pytest.raises(ValueError, match=message):
        implementation(*inputs, **options)


# ---- heads -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_a_head_is_a_slice_of_the_width(batch: int, time: int, heads: int, d_head: int) -> None:
    """Head h holds the entries h · d_head … (h + 1) · d_head − 1 of every position, and merging puts them back."""
    x = torch.randn(batch, time, heads * d_head)
    split = split_heads(x, heads)
    assert split.shape == (batch, heads, time, d_head)
    for h in range(heads):
        assert torch.equal(split[:, h], x[..., h * d_head : (h + 1) * d_head])
    assert torch.equal(merge_heads(split), x)


@pytest.mark.parametrize("implementation", [implementations.softmax, implementations.fused, implementations.fastest])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("low", [-math.inf, "lowest of float32", -1e9])
def test_a_bias_that_blocks_is_no_way_around_the_mask(
    implementation: Implementation, dtype: torch.dtype, low: float | str
) -> None:
    """Additive padding on the left under a causal mask: query 0 sees itself alone, or nothing if its own bias is −∞."""
    q, k, v = (torch.randn(2, 1, 5, 4).to(dtype) for _ in range(3))
    bias = torch.zeros(2, 1, 1, 5)
    bias[..., :2] = torch.finfo(torch.float32).min if isinstance(low, str) else low
    output = implementation(q, k, v, Causal(), bias)
    torch.testing.assert_close(output[:, :, 0], torch.zeros_like(v[:, :, 0]) if low == -math.inf else v[:, :, 0])
    torch.testing.assert_close(output[:, :, 2], v[:, :, 2])
    assert output.isfinite().all()


@every_kernel
@every_dtype
@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([4, 2]))], ids=["no mask", "causal", "lengths"])
@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (4, 4), (1, 4), ()], ids=str)
def test_a_bias_of_minus_infinity_is_a_mask(
    implementation: Implementation, dtype: torch.dtype, mask: Mask | None, shape: tuple[int, ...]
) -> None:
    """The output is that under the mask, 0 where it leaves nothing, and gradients are finite."""
    inputs = [torch.randn(2, 3, 4, 8).to(dtype).requires_grad_() for _ in range(3)]
    bias, allowed = torch.randn(shape), torch.rand(shape) < 0.4
    joined = Dense(allowed) if mask is None else mask & allowed
    some = joined.dense(4, 4).any(dim=-1, keepdim=True)
    biased = bias.masked_fill(~allowed, -torch.inf).requires_grad_()
    found, tolerance = implementation(*inputs, mask, biased), TOLERANCES[dtype]
    expected = softmax(*(x.double() for x in inputs), joined, bias)
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    assert not found.masked_fill(some, 0).any()
    gradients = torch.autograd.grad(found.float().square().sum(), [*inputs, biased])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[-1][~allowed].any()


@pytest.mark.parametrize("implementation", [implementations.softmax, implementations.fused, implementations.fastest])
@pytest.mark.parametrize("bias", [torch.tensor(1.0), torch.randn(5)], ids=["a number", "one a key"])
def test_a_bias_may_have_fewer_axes(implementation: Implementation, bias: Tensor) -> None:
    q, k, v = torch.randn(3, 2, 2, 5, 4)
    expected = torch.softmax(q @ k.mT / 2 + bias, dim=-1) @ v
    torch.testing.assert_close(implementation(q, k, v, bias=bias), expected)


def test_a_kind_of_causal_has_its_effect_in_the_fused_kernel() -> None:
    """Its fast paths know the plain rule alone: all queries at once, and the newest alone, which needs no matrix."""

    class Strict(Causal):
        def dense(self, queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
            return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries - 1)

    q, k, v = torch.randn(3, 1, 1, 5, 4)
    expected, newest = implementations.softmax(q, k, v, Strict()), q[:, :, -1:]
    torch.testing.assert_close(implementations.fused(q, k, v, Strict()), expected)
    torch.testing.assert_close(implementations.fused(newest, k, v, Strict()), expected[:, :, -1:])
    assert implementations.dense_mask(Causal(), newest, k) is None


def test_something_else_than_a_mask_is_refused(unchecked: None) -> None:
    q, k, v = torch.randn(3, 1, 1, 5, 4)
    with pytest.raises(TypeError, match=r"mask is str; expected a Mask such as Causal\(\), or a Boolean tensor"):
        implementations.softmax(q, k, v, "causal")
