"""Mixture of experts against a loop over tokens; routing, balance, capacity, and what it counts of itself."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tfbook.models.blocks import Config
from tfbook.models.experts import (
    MixtureOfExperts,
    Routes,
    dense_dispatch,
    gates,
    load_balance,
    record_routes,
    sparse_dispatch,
    top_experts,
)
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.models.gpt import Gpt
from tfbook.training import next_token_loss

pytestmark = pytest.mark.usefixtures("float32")

SHAPES = {"experts": st.integers(1, 6), "tokens": st.integers(1, 12), "data": st.data()}


def by_token(mixture: MixtureOfExperts, x: Tensor) -> Tensor:
    """Each token on its own, in plain Python: probabilities, the k largest, first choices before second ones."""
    tokens, capacity = x.flatten(0, 1), mixture.capacity(x.shape[0] * x.shape[1])
    probabilities = [torch.softmax(mixture.router.weight @ token, dim=0) for token in tokens]
    ranked = [sorted(range(len(p)), key=lambda e, p=p: -p[e].item())[: mixture.k] for p in probabilities]
    taken, y = [0] * len(mixture.experts), torch.zeros_like(tokens)
    for choice in range(mixture.k):
        for t, (p, chosen) in enumerate(zip(probabilities, ranked, strict=True)):
            expert = chosen[choice]
            taken[expert] += 1
            if capacity is None or taken[expert] <= capacity:
                weight = p[expert] if mixture.k == 1 else p[expert] / p[chosen].sum()
                y[t] = y[t] + weight * mixture.experts[expert](tokens[None, t : t + 1])[0, 0]
    return y.view_as(x)


# ---- the whole against a loop ------------------------------------------------------------------------------------


@given(
    **SHAPES,
    rows=st.integers(1, 3),
    dispatch=st.sampled_from([dense_dispatch, sparse_dispatch]),
    expert=st.sampled_from([FeedForward, SwiGLU]),
    factor=st.sampled_from([None, 0.3, 1.0, 1.25, 10.0]),
)
@settings(max_examples=60)
def test_a_mixture_is_a_loop_over_tokens(
    experts: int, tokens: int, data: st.DataObject, rows: int, dispatch: Callable, expert: type, factor: float | None
) -> None:
    """In float64, with either dispatch, with and without a capacity; so are its gradients."""
    k = data.draw(st.integers(1, experts))
    options = {"experts": experts, "k": k, "expert": expert, "capacity_factor": factor, "dispatch": dispatch}
    mixture = MixtureOfExperts(6, 5, **options).double()
    x = torch.randn(rows, tokens, 6, dtype=torch.float64)
    found, expected = mixture(x), by_token(mixture, x)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)  # probabilities are float32
    weights = list(mixture.parameters())
    gradients = [
        torch.autograd.grad(y.sin().sum(), weights, allow_unused=True, materialize_grads=True)
        for y in (found, expected)
    ]  # those of an expert without tokens are 0
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


@given(**SHAPES)
@settings(max_examples=40)
def test_dense_and_sparse_dispatch_are_equal(experts: int, tokens: int, data: st.DataObject) -> None:
    """For any gates, also where a token goes nowhere and an expert gets nothing."""
    layers = nn.ModuleList(FeedForward(4, 3) for _ in range(experts))
    kept = torch.rand(tokens, experts) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    x, gate = torch.randn(tokens, 4), torch.rand(tokens, experts) * kept
    torch.testing.assert_close(sparse_dispatch(x, gate, layers), dense_dispatch(x, gate, layers))


def test_one_expert_is_a_feed_forward_network() -> None:
    mixture, x = MixtureOfExperts(6, 5, experts=1), torch.randn(2, 3, 6)
    torch.testing.assert_close(mixture(x), mixture.experts[0](x))


def test_equal_experts_are_one() -> None:
    """Whatever the router says, when the weights of two choices sum to 1; a single choice is scaled by p."""
    x = torch.randn(2, 5, 6)
    for k in (2, 1):
        mixture = MixtureOfExperts(6, 5, experts=4, k=k)
        for expert in mixture.experts:
            expert.load_state_dict(mixture.experts[0].state_dict())
        scale = 1.0 if k == 2 else mixture.router(x).softmax(dim=-1).amax(dim=-1, keepdim=True)
        torch.testing.assert_close(mixture(x), scale * mixture.experts[0](x))


# ---- routing -----------------------------------------------------------------------------------------------------


def test_a_router_by_hand() -> None:
    """Probabilities 1/2, 1/3 and 1/6: Switch takes ½ of the first, GShard 3/5 of it and 2/5 of the second."""
    logits = torch.tensor([[3.0, 2.0, 1.0]]).log()
    one, two = (top_experts(logits, k) for k in (1, 2))
    torch.testing.assert_close(one.probabilities, torch.tensor([[1 / 2, 1 / 3, 1 / 6]]))
    assert (one.chosen.tolist(), two.chosen.tolist()) == ([[0]], [[0, 1]])
    torch.testing.assert_close(one.weights, torch.tensor([[0.5]]))
    torch.testing.assert_close(two.weights, torch.tensor([[0.6, 0.4]]))
    torch.testing.assert_close(gates(one), torch.tensor([[0.5, 0.0, 0.0]]))
    torch.testing.assert_close(gates(two), torch.tensor([[0.6, 0.4, 0.0]]))


@pytest.mark.parametrize("k", [1, 2])
def test_the_router_learns(k: int) -> None:
    """Also with a single choice, whose weight is p and not 1."""
    mixture = MixtureOfExperts(6, 5, experts=4, k=k)
    mixture(torch.randn(2, 5, 6)).square().sum().backward()
    assert mixture.router.weight.grad.abs().max() > 1e-4


def test_later_tokens_are_dropped_and_first_choices_go_first() -> None:
    """Capacity 1. Tokens 0 and 1 want expert 0 first; token 2 wants expert 1, as does token 0 second."""
    chosen = torch.tensor([[0, 1], [0, 2], [1, 2]])
    routes = Routes(torch.full((3, 3), 1 / 3), chosen, torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]]))
    kept = [[0.6, 0.0, 0.0], [0.0, 0.0, 0.3], [0.0, 0.9, 0.0]]
    torch.testing.assert_close(gates(routes, 1), torch.tensor(kept))
    torch.testing.assert_close(gates(routes, 3), gates(routes))


def test_a_dropped_token_gets_zero() -> None:
    """So that the residual stream carries it on as it is."""
    mixture = MixtureOfExperts(6, 5, experts=2, capacity_factor=0.5)
    nn.init.zeros_(mixture.router.weight)
    mixture.router.weight.data[0] = 1
    y = mixture(torch.ones(1, 8, 6))
    assert mixture.capacity(8) == 2
    assert y[0].any(dim=1).tolist() == [True] * 2 + [False] * 6


@pytest.mark.parametrize(("tokens", "k", "factor", "expected"), [(64, 1, 1.0, 8), (64, 1, 1.25, 10), (65, 2, 1.0, 17)])
def test_the_capacity_is_the_formula(tokens: int, k: int, factor: float, expected: int) -> None:
    """Tokens per expert times the factor, rounded up (Fedus et al., 2022, equation 3)."""
    assert MixtureOfExperts(4, 4, experts=8, k=k, capacity_factor=factor).capacity(tokens) == expected
    assert MixtureOfExperts(4, 4, experts=8, k=k).capacity(tokens) is None


@pytest.mark.parametrize("factor", ["1.1", "1.25", "0.7", "2.3"])
def test_the_capacity_is_rounded_up_once(factor: str) -> None:
    """As in exact arithmetic, where 1.1 · 50 is 55; and the same for a count of real tokens, which is a tensor."""
    for experts, k in ((2, 2), (3, 1), (10, 1), (11, 2)):
        mixture = MixtureOfExperts(2, 2, experts=experts, k=k, capacity_factor=float(factor))
        for tokens in (*range(1, 100, 7), 110, 4096, 10**6):
            exact = math.ceil(Fraction(factor) * k * tokens / experts)
            assert (mixture.capacity(tokens), mixture.capacity(torch.tensor(tokens))) == (exact, exact)


def test_with_a_capacity_a_later_token_can_push_an_earlier_one_out() -> None:
    """Which is why a model with one is not quite causal: second choices wait for all first ones."""
    mixture = MixtureOfExperts(3, 4, experts=3, k=2, capacity_factor=0.5)
    mixture.router.weight.data = torch.eye(3)
    first = torch.tensor([3.0, 2.0, 1.0])  # expert 0, then expert 1
    alone, pushed = (torch.stack([first, other])[None] for other in (first, torch.tensor([1.0, 3.0, 2.0])))
    assert mixture.capacity(2) == 1
    assert not torch.allclose(mixture(alone)[0, 0], mixture(pushed)[0, 0])


# ---- balance -----------------------------------------------------------------------------------------------------


@given(experts=st.integers(1, 6), k=st.integers(1, 3), tokens=st.integers(1, 20))
@settings(max_examples=40)
def test_the_balance_is_the_formula(experts: int, k: int, tokens: int) -> None:
    """N Σ_i f_i P_i, counted by hand; Hugging Face's for Mixtral is k times as large, for its f sum to k."""
    k = min(k, experts)
    routes = top_experts(torch.randn(tokens, experts), k)
    f = [sum(row.count(i) for row in routes.chosen.tolist()) / (k * tokens) for i in range(experts)]
    expected = experts * sum(f[i] * routes.probabilities[:, i].mean() for i in range(experts))
    torch.testing.assert_close(load_balance(routes), torch.as_tensor(expected, dtype=torch.float32))


def test_the_balance_agrees_with_hugging_face() -> None:
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    for k in (1, 2):
        logits = torch.randn(30, 5)
        theirs = mixtral.load_balancing_loss_func((logits,), 5, k)
        torch.testing.assert_close(k * load_balance(top_experts(logits, k)), theirs)


def test_the_balance_is_one_for_all_and_the_number_of_experts_for_one() -> None:
    even = torch.eye(4).repeat(3, 1)
    assert load_balance(top_experts(1e-3 * even, 1)).item() == pytest.approx(1, abs=1e-3)
    assert load_balance(top_experts(50 * even[:1].repeat(6, 1), 1)).item() == pytest.approx(4)


def test_following_its_gradient_balances_a_router() -> None:
    """From nearly all tokens at one expert to less than twice an even share."""
    x, router = torch.randn(200, 8) + 1, nn.Linear(8, 4, bias=False)
    router.weight.data[0] += 1
    optimizer = torch.optim.Adam(router.parameters(), lr=0.05)
    busiest = lambda: int(top_experts(router(x), 1).chosen.flatten().bincount(minlength=4).max())  # noqa: E731
    assert busiest() > 190
    for _ in range(200):
        optimizer.zero_grad()
        load_balance(top_experts(router(x), 1)).backward()
        optimizer.step()
    assert busiest() < 100


def test_routes_are_recorded_and_have_gradients() -> None:
    """One line beside the loss; the model computes as before, and does so afterwards."""
    mixture = partial(MixtureOfExperts, experts=3, k=2)
    model, ids = Gpt(11, Config(d_model=8, heads=2, d_ff=6, feed_forward=mixture)), torch.randint(11, (2, 5))
    plain = next_token_loss(model, ids).mean
    with record_routes(model) as routes:
        loss = next_token_loss(model, ids).mean
    assert torch.equal(loss, plain)
    assert list(routes) == [f"stack.blocks.{block}.feed_forward.branch" for block in range(2)]
    assert {found.chosen.shape for found in routes.values()} == {(8, 2)}
    sum(map(load_balance, routes.values())).backward()
    assert all(block.feed_forward.branch.router.weight.grad.any() for block in model.stack.blocks)
    routes.clear()
    model(ids)
    assert routes == {}
    with (
        pytest.raises(ValueError, match="model, a Linear, holds no mixture"),
        record_routes(nn.Linear(2, 2)),
    ):
        pass


# ---- padding -----------------------------------------------------------------------------------------------------


def test_padding_changes_no_balance_and_takes_no_place() -> None:
    """Two tokens that are shared evenly have balance 1, with eight pads as without; three pads first cost nothing."""
    logits, pads = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 0.0]])
    padded, real = torch.cat([logits, pads.repeat(8, 1)]), torch.arange(10) < 2
    assert load_balance(top_experts(logits, 1)).item() == pytest.approx(1)
    assert load_balance(top_experts(padded, 1, real=real)).item() == pytest.approx(1)
    assert load_balance(top_experts(padded, 1)).item() > 1.4
    padded, real = torch.cat([pads.repeat(3, 1), logits]), torch.arange(5) >= 3
    found = gates(top_experts(padded, 1, real=real), 1)
    torch.testing.assert_close(found[3:], gates(top_experts(logits, 1), 1))
    assert not found[:3].any()
    assert load_balance(top_experts(padded, 1, real=torch.zeros(5, dtype=torch.bool))).item() == 0


@given(
    real=st.lists(st.booleans(), min_size=1, max_size=12).filter(any),
    k=st.integers(1, 2),
    capacity=st.sampled_from([None, 1, 2]),
)
def test_padding_is_as_if_it_were_not_there(real: list[bool], k: int, capacity: int | None) -> None:
    """Anywhere in the batch, for balance, its gradient and gates."""
    mask = torch.tensor(real)
    logits = torch.randn(len(real), 3, requires_grad=True)
    padded, alone = top_experts(logits, k, real=mask), top_experts(logits[mask], k)
    torch.testing.assert_close(load_balance(padded), load_balance(alone))
    torch.testing.assert_close(*(torch.autograd.grad(load_balance(routes), logits)[0] for routes in (padded, alone)))
    found = gates(padded, capacity)
    torch.testing.assert_close(found[mask], gates(alone, capacity))
    assert not found[~mask].any()


def test_the_balance_without_padding_agrees_with_hugging_face() -> None:
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    there = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    for k in (1, 2):
        logits = torch.randn(15, 4)
        theirs = mixtral.load_balancing_loss_func((logits,), 4, k, there)
        torch.testing.assert_close(k * load_balance(top_experts(logits, k, real=there.flatten() > 0)), theirs)


@pytest.mark.parametrize("factor", [None, 0.5, 1.0])
def test_a_mixture_reads_a_padded_batch_as_the_same_tokens_without_padding(factor: float | None) -> None:
    """The budget of an expert counts real tokens, too; padding gets 0."""
    mixture = MixtureOfExperts(6, 5, experts=3, k=2, capacity_factor=factor)
    x, real = torch.randn(2, 4, 6), torch.tensor([[False, True, True, True], [True, True, False, False]])
    y = mixture(x, real=real)
    torch.testing.assert_close(y[real], mixture(x[real][None])[0])
    assert not y[~real].any()


def test_recorded_routes_leave_padding_out_of_a_whole_model() -> None:
    """A text behind which there is padding loses no place to it, and the balance is that of its tokens."""
    mixture = partial(MixtureOfExperts, experts=3, k=2, capacity_factor=0.5)
    model = Gpt(11, Config(d_model=8, heads=2, d_ff=6, feed_forward=mixture))
    texts, padding = torch.randint(1, 11, (2, 4)), torch.zeros(2, 5, dtype=torch.int64)
    ids = torch.cat([texts, padding], dim=1)
    with record_routes(model) as alone:
        expected = model(texts)
    with record_routes(model, real=ids != 0) as padded:
        found = model(ids)
    torch.testing.assert_close(found[:, :4], expected)
    for one, other in zip(alone.values(), padded.values(), strict=True):
        torch.testing.assert_close(load_balance(other), load_balance(one))
    with (
        pytest.raises(ValueError, match="real has shape \\(2, 4\\); expected one value for each of 18 tokens"),
        record_routes(model, real=ids[:, :4] != 0),
    ):
        model(ids)


# ---- counts ------------------------------------------------------------------------------------------------------


def operations(mixture: MixtureOfExperts, x: Tensor) -> int:
    """As PyTorch counts them."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        mixture(x)
    return counter.get_total_flops()


@given(
    experts=st.integers(1, 6),
    k=st.integers(1, 3),
    time=st.integers(1, 9),
    expert=st.sampled_from([FeedForward, SwiGLU]),
)
@settings(max_examples=40)
def test_a_mixture_counts_its_parameters_and_operations(experts: int, k: int, time: int, expert: type) -> None:
    k = min(k, experts)
    mixture = MixtureOfExperts(6, 5, experts=experts, k=k, expert=expert)
    assert mixture.parameter_count() == sum(weight.numel() for weight in mixture.parameters())
    assert operations(mixture, torch.randn(1, time, 6)) == mixture.flops(time)
    parts = partial(MixtureOfExperts, experts=experts, k=k, expert=expert)
    model = Gpt(7, Config(d_model=6, heads=2, d_ff=5, feed_forward=parts))
    assert model.parameter_count() == sum(weight.numel() for weight in model.parameters())


def test_more_experts_are_more_parameters_at_the_same_work() -> None:
    """But for the router; dense dispatch does the work of all of them."""
    few, many = (MixtureOfExperts(16, 64, experts=experts) for experts in (2, 8))
    assert many.parameter_count() == 4 * few.parameter_count()
    assert many.flops(10) - few.flops(10) == 2 * 10 * 16 * 6
    x = torch.randn(1, 10, 16)
    dense = MixtureOfExperts(16, 64, experts=8, dispatch=dense_dispatch)
    assert operations(dense, x) > 7 * operations(many, x)
    dropping = MixtureOfExperts(16, 64, experts=8, capacity_factor=0.25)
    assert operations(dropping, x) < many.flops(10)


def test_a_gpt_begins_with_experts_as_small_as_one_network() -> None:
    """By √(2 · layers), each of them."""
    layers, expected = 8, 0.02 / 4
    for expert in (FeedForward, SwiGLU):
        parts = partial(MixtureOfExperts, experts=3, expert=expert)
        model = Gpt(7, Config(d_model=64, heads=2, d_ff=64, layers=layers, feed_forward=parts))
        for one in model.stack.blocks[3].feed_forward.branch.experts:
            assert one.down.weight.std().item() == pytest.approx(expected, rel=0.1)
            assert one.up.weight.std().item() == pytest.approx(0.02, rel=0.1)


# ---- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experts": 0}, "experts is 0; expected 1 or more"),
        ({"experts": 4, "k": 5}, "k is 5; expected 1 to 4, the number of experts"),
        ({"experts": 4, "k": 0}, "k is 0; expected 1 to 4"),
        ({"experts": 4, "capacity_factor": 0.0}, "capacity_factor is 0.0; expected more than 0, or None"),
        ({"experts": 4, "capacity_factor": math.nan}, "capacity_factor is nan"),
    ],
)
def test_impossible_mixtures_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixtureOfExperts(4, 4, **options)
