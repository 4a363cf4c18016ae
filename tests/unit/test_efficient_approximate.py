"""The efficient implementations that approximate or replace the softmax: linear attention, Performer, hashing."""

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention import Causal, Dense, Lengths, Mask, softmax
from tfbook.attention.efficient.linear import Linear, elu_plus_one, step
from tfbook.attention.efficient.lsh import Lsh, hashed, in_window, sort_by_bucket
from tfbook.attention.efficient.performer import Performer, PerformerState, attend_chunk, log_features, projection
from tfbook.course.cost import exponent


class Case(NamedTuple):
    """What an implementation is given."""

    q: Tensor  # (batch, head, query, d_head)
    k: Tensor  # (batch, head, key, d_head)
    v: Tensor  # (batch, head, key, d_value)
    mask: Mask | None


@st.composite
def cases(draw: st.DrawFn, same_length: bool = False) -> Case:
    """Texts of any length, 1 among them, some of them padded or empty."""
    batch, head, query, d_head, d_value = (draw(st.integers(1, n)) for n in (2, 2, 20, 4, 3))
    key = query + (0 if same_length else draw(st.integers(0, 5)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    normal = partial(torch.randn, batch, head, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = torch.randint(key + 1, (batch,), generator=generator)
    mask = draw(st.sampled_from([None, Causal(), Lengths(lengths), Causal() & Lengths(lengths)]))
    return Case(normal(query, d_head), normal(key, d_head), normal(key, d_value), mask)


def _gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """For a loss that weighs every entry of the output differently."""
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output)
    return torch.autograd.grad((output * weights).sum(), inputs)


# ---- linear attention --------------------------------------------------------------------------------------------

SCALES = [1, 8, 30]  # standard deviations of keys: random features of long ones differ by more than float32 can hold


def log_weights(implementation: Linear, q: Tensor, k: Tensor) -> Tensor:
    """log φ(q_i) · φ(k_j) for all pairs, as the definition has it."""
    if not isinstance(implementation, Performer):
        return (elu_plus_one(q) @ elu_plus_one(k).mT).log()
    directions = implementation.directions(q.shape[-1]).to(q)
    return (log_features(q, directions)[..., None, :] + log_features(k, directions)[..., None, :, :]).logsumexp(dim=-1)


@given(cases(), st.integers(1, 9), st.booleans())
@settings(max_examples=100)
def test_linear_attention_weighs_by_products_of_features(case: Case, chunk: int, random: bool) -> None:
    """Against the matrix of all weights, outputs and gradients; a query that sees nothing gets 0."""
    implementation = Performer(6, chunk=chunk) if random else Linear(chunk=chunk)
    weights = log_weights(implementation, case.q, case.k).exp()
    if case.mask is not None:
        weights = weights * case.mask.dense(case.q.shape[2], case.k.shape[2])
    total = weights.sum(dim=-1, keepdim=True)
    expected = weights @ case.v / total.where(total > 0, 1.0)
    output = implementation(*case)
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=1e-7)
    inputs = case[:3]
    torch.testing.assert_close(_gradients(output, *inputs), _gradients(expected, *inputs), atol=1e-8, rtol=1e-6)


def test_the_feature_map_is_never_negative() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0])
    torch.testing.assert_close(elu_plus_one(x), torch.tensor([math.exp(-2), 1.0, 4.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_feature_map_keeps_its_precision_where_it_is_small(dtype: torch.dtype) -> None:
    """e⁻³⁰ is a weight like any other where all keys have such features; the gradient is that of elu, 1 at 0."""
    x = torch.tensor([-60.0, -30.0, -17.0, -1.0, 0.0, 2.0], dtype=dtype, requires_grad=True)
    expected = torch.tensor([math.exp(-60), math.exp(-30), math.exp(-17), math.exp(-1), 1.0, 3.0], dtype=dtype)
    found = elu_plus_one(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    slope = torch.cat([expected[:5], torch.ones(1, dtype=dtype)])
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], slope, rtol=1e-5, atol=0)


def test_causal_linear_attention_is_a_recurrence() -> None:
    """Step by step with a state of fixed size, as all positions at once."""
    q, k, v = torch.randn(3, 2, 2, 10, 4, dtype=torch.float64)
    expected, state, outputs = Linear(chunk=3)(q, k, v, Causal()), None, []
    for q_t, k_t, v_t in zip(*(x.unbind(2) for x in (elu_plus_one(q), elu_plus_one(k), v)), strict=True):
        output, state = step(state, q_t, k_t, v_t)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, dim=2), expected)
    assert (state.sums.shape, state.total.shape) == ((2, 2, 4, 4), (2, 2, 4))


def test_half_precision_does_not_lose_long_sums() -> None:
    """The mean of ones over 4,096 positions is 1; counting in bfloat16 ends at 256."""
    x = torch.zeros(1, 1, 4096, 2, dtype=torch.bfloat16)
    for implementation in (Linear(), Performer(4)):
        output = implementation(x, x, torch.ones_like(x), Causal())
        assert output.dtype == torch.bfloat16
        assert torch.equal(output, torch.ones_like(x))


# ---- Performer ---------------------------------------------------------------------------------------------------


def estimates(q: Tensor, k: Tensor, features: int, draws: int, orthogonal: bool) -> Tensor:
    """φ(q) · φ(k) for each draw of the directions and each pair: (draw, query, key)."""
    found = []
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        directions = projection(features, q.shape[-1], generator, orthogonal=orthogonal).to(q)
        found.append(log_features(q, directions).exp() @ log_features(k, directions).exp().mT)
    return torch.stack(found)


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    """Short queries and keys: the tails of the estimates grow with exp(‖q + k‖²)."""
    return tuple(0.4 * torch.randn(2, 4, 8, dtype=torch.float64))


@pytest.mark.parametrize("orthogonal", [False, True], ids=["independent", "orthogonal"])
def test_products_of_random_features_are_unbiased(pair: tuple[Tensor, Tensor], orthogonal: bool) -> None:
    """Over 2,000 draws the mean of each of 16 pairs is within 4 standard errors of exp(q · k / √d_head)."""
    q, k = pair
    found = estimates(q, k, 8, 2000, orthogonal)
    exact = (q @ k.mT / math.sqrt(8)).exp()
    error = (found.mean(dim=0) - exact) / (found.std(dim=0) / math.sqrt(len(found)))
    assert error.abs().max() < 4
    assert 0.4 < error.square().mean().sqrt() < 1.8, "and no closer than chance would have it"


def test_directions_are_normal_and_those_of_each_square_perpendicular() -> None:
    """Means, variances and lengths over many draws: a direction alone cannot be told from an independent one."""
    sampled = torch.stack([projection(6, 4, torch.Generator().manual_seed(seed)) for seed in range(3000)])
    products = sampled @ sampled.mT
    for square in (slice(0, 4), slice(4, 6)):
        off = products[:, square, square]
        assert (off - torch.diag_embed(off.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4
    assert sampled.mean(dim=0).abs().max() < 4 / math.sqrt(3000)
    torch.testing.assert_close(sampled.var(dim=0), torch.ones(6, 4), atol=0.12, rtol=0)
    torch.testing.assert_close(sampled.norm(dim=-1).square().mean(dim=0), torch.full((6,), 4.0), atol=0.25, rtol=0)


def test_perpendicular_directions_err_less(pair: tuple[Tensor, Tensor]) -> None:
    """(Choromanski et al., 2021, theorem 2.) Compared over the same pairs and 1,000 draws of 8."""
    q, k = pair
    spread = [estimates(q, k, 8, 1000, orthogonal).var(dim=0).mean().item() for orthogonal in (False, True)]
    assert spread[1] < 0.9 * spread[0]


def performer_errors(features: list[int], draws: int) -> dict[str, list[float]]:
    """By number of features: the error of products, that of normalized outputs, and the bias of the latter."""
    q, k, v = 0.4 * torch.randn(3, 1, 1, 16, 8, dtype=torch.float64)
    exact, output = (q[0, 0] @ k[0, 0].mT / math.sqrt(8)).exp(), softmax(q, k, v)
    found: dict[str, list[float]] = {"product": [], "output": [], "bias": []}
    for m in features:
        products = estimates(q[0, 0], k[0, 0], m, draws, orthogonal=True)
        outputs = torch.stack([Performer(m, seed=seed)(q, k, v) for seed in range(draws)])
        found["product"].append((products - exact).square().mean().sqrt().item())
        found["output"].append((outputs - output).square().mean().sqrt().item())
        found["bias"].append((outputs.mean(dim=0) - output).norm().item() / math.sqrt(output.numel()))
    return found


def test_the_error_falls_as_the_root_of_the_features() -> None:
    """Exponent −½ ± 0.1, of products and of normalized outputs."""
    features = [32, 128, 512, 2048]
    errors = performer_errors(features, draws=200)
    assert exponent(features, errors["product"]) == pytest.approx(-0.5, abs=0.1)
    assert exponent(features, errors["output"]) == pytest.approx(-0.5, abs=0.1)


def test_normalized_outputs_are_biased() -> None:
    """With 8 features their mean over 1,500 draws is off by more than chance leaves; 64 features halve it at least."""
    draws = 1500
    errors = performer_errors([8, 64], draws)
    chance = errors["output"][0] / math.sqrt(draws)
    assert errors["bias"][0] > 4 * chance
    assert errors["bias"][1] < 0.5 * errors["bias"][0]


def test_features_are_sampled_from_the_seed() -> None:
    q, k, v = torch.randn(3, 1, 1, 5, 4)
    before = torch.get_rng_state()
    first = Performer(8)(q, k, v)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(Performer(8)(q, k, v), first)
    assert not torch.equal(Performer(8, seed=1)(q, k, v), first)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_performers_compute_the_definition_whatever_the_length_of_keys(scale: int, causal: bool) -> None:
    """Queries and keys so long that no exponential fits into float64: outputs and gradients, with padding."""
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 2, 2, 40, 8, dtype=torch.float64).unbind())
    implementation, mask = Performer(16, chunk=16), Lengths(torch.tensor([40, 11]))
    mask = Causal() & mask if causal else mask
    scores = log_weights(implementation, scale * q, scale * k).masked_fill(~mask.dense(40, 40), -torch.inf)
    expected, output = scores.softmax(dim=-1) @ v, implementation(scale * q, scale * k, v, mask)
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=1e-7)
    found, wanted = _gradients(output, q, k, v), _gradients(expected, q, k, v)
    torch.testing.assert_close(found, wanted, atol=1e-8 * scale, rtol=1e-6)


@pytest.mark.parametrize("scale", SCALES)
def test_no_later_and_no_padded_key_reaches_a_performer(scale: int) -> None:
    """Not even by the number that keeps exponentials in the range of float32; in one chunk and in several."""
    q, k, v = torch.randn(3, 2, 2, 40, 32)
    k, other = scale * k, scale * torch.randn(2, 2, 40, 32)
    for chunk, seen in itertools.product((8, 64), (1, 8, 13, 39)):
        implementation, length = Performer(16, chunk=chunk), Lengths(torch.tensor([seen]))
        changed = torch.cat([k[:, :, :seen], other[:, :, seen:]], dim=2)
        before, after = implementation(q, k, v, Causal()), implementation(q, changed, v + (changed != k), Causal())
        torch.testing.assert_close(after[:, :, :seen], before[:, :, :seen], atol=1e-4, rtol=0)
        padded, alone = implementation(q, k, v, length), implementation(q, k[:, :, :seen], v[:, :, :seen])
        torch.testing.assert_close(padded, alone, atol=1e-4, rtol=0)


@pytest.mark.parametrize("scale", SCALES)
def test_a_causal_performer_is_a_recurrence(scale: int) -> None:
    """One position at a time, in chunks, and with the newest queries alone: the same, and a state of fixed size."""
    q, k, v = torch.randn(3, 2, 2, 40, 8)
    q, k, implementation = scale * q, scale * k, Performer(16, chunk=8)
    expected = implementation(q, k, v, Causal())
    directions, counted = implementation.directions(8), torch.cat([v, torch.ones(2, 2, 40, 1)], dim=-1)
    state, sums = PerformerState.of(k[:, :, :0] @ directions.mT, counted[:, :, :0]), []
    inputs = log_features(q, directions), log_features(k, directions), counted
    for log_q, log_k, v_t in zip(*(x.split(1, dim=2) for x in inputs), strict=True):
        output, state = attend_chunk(state, log_q, log_k, v_t)
        sums.append(output)
    mixed, total = torch.cat(sums, dim=2).split([8, 1], dim=-1)
    torch.testing.assert_close(mixed / total, expected, atol=1e-4, rtol=0)
    assert (state.highest.shape, state.sums.shape) == ((2, 2, 1, 16), (2, 2, 16, 9))
    for newest in (1, 5, 30):
        torch.testing.assert_close(
            implementation(q[:, :, -newest:], k, v, Causal()), expected[:, :, -newest:], atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_gradients_of_a_performer_are_finite_with_long_queries_and_keys(causal: bool) -> None:
    """In float32, where weights relative to one number for all keys vanish, and gradients are NaN."""
    for seed in range(20):
        q, k, v = torch.randn(3, 1, 2, 64, 8, generator=torch.Generator().manual_seed(seed))
        inputs = [x.requires_grad_() for x in (30 * q, 30 * k, v)]
        output = Performer(16, seed=seed, chunk=16)(*inputs, Causal() if causal else None)
        assert all(x.isfinite().all() for x in (output, *torch.autograd.grad(output.square().sum(), inputs)))


# ---- hashing -----------------------------------------------------------------------------------------------------


@st.composite
def hashings(draw: st.DrawFn) -> Lsh:
    """Any settings."""
    buckets, window, rounds, seed = (draw(st.integers(1, n)) for n in (3, 12, 3, 99))
    return Lsh(2 * buckets, window, rounds, draw(st.booleans()), seed)


@given(cases(same_length=True), hashings())
@settings(max_examples=150)
def test_hashing_is_softmax_attention_to_the_pairs_that_meet(case: Case, implementation: Lsh) -> None:
    """A pair that meets in two rounds counts twice. Outputs and gradients."""
    q, k, v, mask = case
    keys, inputs = (F.normalize(q, dim=-1), (q, v)) if implementation.shared else (k, (q, k, v))
    count = implementation.meetings(q, k, mask)
    expected = softmax(q, keys, v, Dense(count > 0), bias=count.clamp(min=1).log())
    output = implementation(q, k, v, mask)
    torch.testing.assert_close(output, expected, atol=1e-11, rtol=1e-8)
    torch.testing.assert_close(_gradients(output, *inputs), _gradients(expected, *inputs), atol=1e-10, rtol=1e-7)


def _meets(implementation: Lsh, q: Tensor, k: Tensor, i: int, j: int, causal: bool) -> bool:
    """By the definition, for one sequence and head: in some round in one bucket, few others of it between the two."""
    rotations = torch.randn(
        implementation.rounds, q.shape[-1], implementation.buckets // 2, generator=torch.Generator().manual_seed(0)
    )
    for of_query, of_key in zip(hashed(q, rotations).tolist(), hashed(k, rotations).tolist(), strict=True):
        members = []  # in the query's bucket, by position; a key before the query of its position
        for place in range(len(q)):
            members += [("key", place)] if of_key[place] == of_query[i] and not implementation.shared else []
            members += [("query", place)] if of_query[place] == of_query[i] else []
        key = ("query" if implementation.shared else "key", j)
        if key in members:
            apart = members.index(("query", i)) - members.index(key)
            if abs(apart) < implementation.width and not (causal and apart < 0):
                return True
    return False


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_pairs_meet_as_the_definition_says(shared: bool, causal: bool) -> None:
    q, k = torch.randn(2, 24, 4)
    implementation = Lsh(4, window=3, rounds=2, shared=shared)
    found = implementation.mask(q[None, None], k[None, None], Causal() if causal else None).dense(24, 24)[0, 0]
    for i, j in itertools.product(range(24), repeat=2):
        expected = _meets(implementation, q, q if shared else k, i, j, causal)
        if i == j and shared:  # only where there is no other
            expected = not any(_meets(implementation, q, q, i, other, causal) for other in range(24) if other != i)
        assert found[i, j] == expected, (i, j)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
def test_what_a_position_sees_does_not_depend_on_what_follows(shared: bool) -> None:
    """Under a causal mask: the mask of a text's beginning is the beginning of its mask, and padding changes nothing."""
    q, k = torch.randn(2, 1, 2, 50, 4)
    implementation = Lsh(4, window=4, rounds=2, shared=shared)
    whole = implementation.mask(q, k, Causal()).dense(50, 50)
    for length in (1, 17, 49):
        part = implementation.mask(q[:, :, :length], k[:, :, :length], Causal()).dense(length, length)
        assert torch.equal(whole[..., :length, :length], part)
        padded = implementation.mask(q, k, Lengths(torch.tensor([length]))).dense(50, 50)
        alone = implementation.mask(q[:, :, :length], k[:, :, :length]).dense(length, length)
        assert torch.equal(padded[..., :length, :length], alone)
        assert not padded[..., length:].any()


def test_vectors_with_a_small_angle_share_a_bucket() -> None:
    """Always with themselves at another length, never with their opposites; the more often the smaller the angle."""
    x = torch.randn(500, 16)
    rotations = torch.randn(8, 16, 4)
    buckets = hashed(x, rotations)
    assert buckets.shape == (8, 500)
    assert buckets.min() == 0
    assert buckets.max() == 7
    assert torch.equal(hashed(3 * x, rotations), buckets)
    assert not (hashed(-x, rotations) == buckets).any()
    shares = [
        (hashed(x + noise * torch.randn_like(x), rotations) == buckets).float().mean().item()
        for noise in (0.1, 0.5, 2.0)
    ]
    assert shares[0] > 0.8 > shares[1] > shares[2] > 1 / 8


def test_sorting_keeps_buckets_apart() -> None:
    """Buckets 1, 0, 1, 0: the second and the fourth come first; nothing is in the window of another bucket's items."""
    order, place = sort_by_bucket(torch.tensor([[[[1, 0, 1, 0]]]]), width=3)
    assert order.tolist() == [[[[1, 3, 0, 2]]]]
    assert place.tolist() == [[[[8, 3, 9, 4]]]]
    query, key = place[0, 0, 0, :, None], place[0, 0, 0]
    assert in_window(query, key, 3, causal=False).int().tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]] * 2
    assert in_window(query, key, 3, causal=True).int().sum() == 6


def recall(implementation: Lsh, top: int, n: int = 512, groups: int = 32) -> float:
    """Share of each position's `top` other positions by score that it meets; the vectors come in groups."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(groups, 32, generator=generator)[torch.randint(groups, (n,), generator=generator)]
    x = F.normalize(centers + 0.5 * torch.randn(n, 32, generator=generator), dim=-1)[None, None]
    best = (x @ x.mT).masked_fill(torch.eye(n, dtype=torch.bool), -1).topk(top).indices
    return implementation.mask(x, x).dense(n, n).gather(-1, best).float().mean().item()


def test_recall_grows_with_the_rounds() -> None:
    """Of the nearest four of 511 others: from under a half in one round to nearly all in eight."""
    found = [recall(Lsh(32, window=32, rounds=rounds), top=4) for rounds in (1, 2, 4, 8)]
    assert found == sorted(found)
    assert found[0] < 0.6
    assert found[-1] > 0.9
    pairs = replace(Lsh(32, window=32, rounds=8), seed=1).mask(*torch.randn(2, 1, 1, 512, 32)).dense(512, 512)
    assert pairs.float().mean() < 0.3, "while most pairs never meet"


def test_rotations_are_sampled_from_the_seed() -> None:
    q, k, v = torch.randn(3, 1, 1, 30, 4)
    before = torch.get_rng_state()
    first = Lsh(4, window=4, rounds=1)(q, k, v)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(Lsh(4, window=4, rounds=1, seed=1)(q, k, v), first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_linear_attention_are_finite_where_its_weights_vanish(causal: bool, dtype: torch.dtype) -> None:
    """φ(x) = eˣ for x < 0, so the sum of the weights may be a number although the square of 1 / sum is not."""
    smallest = math.log(torch.finfo(dtype).tiny) / 2  # of both factors
    for share in (0.5, 0.9, 1.0, 1.05, 2.0):
        inputs = [torch.full((1, 1, 3, 2), share * smallest, dtype=dtype).requires_grad_() for _ in range(2)]
        output = Linear(chunk=2)(*inputs, torch.full((1, 1, 3, 2), 30.0, dtype=dtype), Causal() if causal else None)
        gradients = torch.autograd.grad(output.square().sum(), inputs)
        assert all(tensor.isfinite().all() for tensor in (output, *gradients))


@pytest.mark.parametrize("options", [{"features": 0}, {"chunk": 0}], ids=str)
def test_a_performer_without_features_or_chunks_is_refused(options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is 0"):
        Performer(**{"features": 4, "chunk": 4} | options)
