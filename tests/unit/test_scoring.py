"""The six scores against their formulas, written as a loop over sentences, queries and keys; and what each promises."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tfbook.attention import (
    SCORES,
    AdditiveScore,
    CosineScore,
    DotScore,
    GeneralScore,
    LocationScore,
    ScaledDotScore,
    masked_softmax,
)

SIZE = st.integers(1, 4)
EQUALLY_WIDE = ("dot", "scaled dot", "cosine")


def _sum(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).sum()


def _additive(score: AdditiveScore, q: Tensor, k: Tensor, j: int) -> Tensor:
    hidden = torch.tanh(score.W.weight @ q + score.U.weight @ k + score.U.bias)
    return score.v.weight[0] @ hidden


def _general(score: GeneralScore, q: Tensor, k: Tensor, j: int) -> Tensor:
    W = score.W.weight
    return _sum([q[a] * W[a, b] * k[b] for a in range(len(q)) for b in range(len(k))])


def _dot(score: DotScore, q: Tensor, k: Tensor, j: int) -> Tensor:
    return _sum([a * b for a, b in zip(q, k, strict=True)])


def _scaled_dot(score: ScaledDotScore, q: Tensor, k: Tensor, j: int) -> Tensor:
    return _dot(score, q, k, j) / math.sqrt(len(q))


def _cosine(score: CosineScore, q: Tensor, k: Tensor, j: int) -> Tensor:
    lengths = math.sqrt(sum(float(a) ** 2 for a in q)) * math.sqrt(sum(float(b) ** 2 for b in k))
    return math.exp(score.log_sharpness.item()) * _dot(score, q, k, j) / lengths


def _location(score: LocationScore, q: Tensor, k: Tensor, j: int) -> Tensor:
    return score.W.weight[j] @ q


BY_HAND: dict[str, Callable[..., Tensor]] = {
    "additive": _additive,
    "general": _general,
    "dot": _dot,
    "scaled dot": _scaled_dot,
    "cosine": _cosine,
    "location": _location,
}
every_score = pytest.mark.parametrize("name", SCORES)


def test_all_six_have_an_oracle() -> None:
    assert SCORES.keys() == BY_HAND.keys()


@given(name=st.sampled_from([*SCORES]), batch=SIZE, queries=SIZE, keys=SIZE, d_query=SIZE, d_key=SIZE, d_score=SIZE)
def test_scores_are_the_formula(
    name: str, batch: int, queries: int, keys: int, d_query: int, d_key: int, d_score: int
) -> None:
    """Every query against every key of its own sentence, in double precision."""
    d_key = d_query if name in EQUALLY_WIDE else d_key
    score = SCORES[name](d_query, d_key, d_score).double()
    q, k = torch.randn(batch, queries, d_query).double(), torch.randn(batch, keys, d_key).double()
    expected = torch.empty(batch, queries, keys, dtype=torch.float64)
    for i in range(batch):
        for t in range(queries):
            for j in range(keys):
                expected[i, t, j] = BY_HAND[name](score, q[i, t], k[i, j], j)
    torch.testing.assert_close(score(q, score.project(k)), expected, rtol=0, atol=1e-12)


class _Whole(nn.Module):
    """Project and score in one call, as `functional_call` needs it."""

    def __init__(self, score: nn.Module):
        super().__init__()
        self.score = score

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score(query, self.score.project(keys))


@every_score
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """With respect to queries, keys and all parameters."""
    d_key = 2 if name in EQUALLY_WIDE else 3
    whole = _Whole(SCORES[name](2, d_key, 4)).double()
    names = [parameter for parameter, _ in whole.named_parameters()]

    def scores(query: Tensor, keys: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(whole, dict(zip(names, values, strict=True)), (query, keys))

    inputs = [torch.randn(2, 2, 2), torch.randn(2, 3, d_key), *whole.parameters()]
    assert torch.autograd.gradcheck(scores, [x.detach().double().requires_grad_() for x in inputs])


@every_score
def test_with_a_mask_padding_plays_no_part(name: str) -> None:
    """Weights of a short sentence are the same alone and in a batch with a long one; padding gets none."""
    score = SCORES[name](4, 4, 4).double()
    query, keys = torch.randn(2, 3, 4).double(), torch.randn(2, 5, 4).double()
    keys[1, 2:] = 0
    mask = torch.arange(5) < torch.tensor([5, 2])[:, None]
    weights = masked_softmax(score(query, score.project(keys)), mask[:, None])
    alone = masked_softmax(score(query[1:], score.project(keys[1:, :2])), None)
    torch.testing.assert_close(weights[1:, :, :2], alone, rtol=0, atol=1e-12)
    assert not weights[1, :, 2:].any()


@every_score
def test_a_padded_batch_has_finite_gradients(name: str) -> None:
    """Padded annotations are zeros, at which a length has no derivative."""
    score = SCORES[name](4, 4, 4)
    query, keys = torch.randn(1, 2, 4, requires_grad=True), torch.zeros(1, 3, 4, requires_grad=True)
    mask = torch.tensor([[[True, True, False]]])
    (masked_softmax(score(query, score.project(keys)), mask) * torch.randn(3)).sum().backward()
    assert query.grad is None or query.grad.isfinite().all()
    assert keys.grad is None or keys.grad.isfinite().all()


@every_score
def test_in_bfloat16_scores_are_close(name: str) -> None:
    """To eight bits of the largest score."""
    score = SCORES[name](16, 16, 16)
    query, keys = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    expected = score(query, score.project(keys))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = score(query, score.project(keys))
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03 * expected.abs().max().item())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("additive", 8 * 4 + 8 * 4 + 8 + 8), ("general", 16), ("dot", 0), ("scaled dot", 0), ("cosine", 1)],
)
def test_how_much_there_is_to_learn(name: str, parameters: int) -> None:
    assert sum(p.numel() for p in SCORES[name](4, 4, 8).parameters()) == parameters


# ---- what each promises ------------------------------------------------------------------------------------------


def test_general_with_the_identity_is_dot() -> None:
    general, dot = GeneralScore(3, 3, 3), DotScore(3, 3, 3)
    nn.init.eye_(general.W.weight)
    query, keys = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    torch.testing.assert_close(general(query, general.project(keys)), dot(query, dot.project(keys)))


def test_the_length_of_a_key_moves_dot_but_not_cosine() -> None:
    """Nor does the length of the query."""
    dot, cosine = DotScore(3, 3, 3), CosineScore(3, 3, 3)
    query, keys = torch.randn(1, 2, 3), torch.randn(1, 4, 3)
    torch.testing.assert_close(dot(query, dot.project(5 * keys)), 5 * dot(query, dot.project(keys)))
    torch.testing.assert_close(cosine(7 * query, cosine.project(5 * keys)), cosine(query, cosine.project(keys)))


def test_the_sharpness_begins_at_the_root_of_the_width() -> None:
    """A key that points where the query points scores √d, one that points away −√d, zeros score 0."""
    cosine, query = CosineScore(16, 16, 1), torch.randn(1, 1, 16)
    scores = cosine(query, cosine.project(torch.cat([query, -3 * query, 0 * query], dim=1)))
    torch.testing.assert_close(scores, torch.tensor([[[4.0, -4.0, 0.0]]]))


def test_scaling_changes_no_order() -> None:
    """The largest weight stays the largest, whatever positive number divides all scores."""
    dot, scaled = DotScore(64, 64, 1), ScaledDotScore(64, 64, 1)
    query, keys = torch.randn(50, 1, 64), torch.randn(50, 32, 64)
    plain, divided = dot(query, dot.project(keys)), scaled(query, scaled.project(keys))
    assert torch.equal(plain.argmax(dim=-1), divided.argmax(dim=-1))
    assert torch.equal(plain.argsort(dim=-1), divided.argsort(dim=-1))


def test_a_falling_temperature_makes_weights_one_hot() -> None:
    """Scores 1.0, 0.9 and 0.1 at T = 0.01: the first has 1 / (1 + e⁻¹⁰ + e⁻⁹⁰) of the weight."""
    weights = masked_softmax(torch.tensor([1.0, 0.9, 0.1]).double() / 0.01, None)
    torch.testing.assert_close(weights[0].item(), 1 / (1 + math.exp(-10) + math.exp(-90)))


def test_location_does_not_look_at_the_keys() -> None:
    score, query = LocationScore(3, 4, 5), torch.randn(2, 3, 3)
    one, other = (score(query, score.project(torch.randn(2, 6, 4))) for _ in range(2))
    assert torch.equal(one, other)


# ---- errors ------------------------------------------------------------------------------------------------------


@every_score
@pytest.mark.parametrize("sizes", [(0, 2, 2), (2, -1, 2), (2, 2, 0)], ids=str)
def test_sizes_must_be_positive(name: str, sizes: tuple[int, int, int]) -> None:
    message = f"d_query, d_key, d_score are {', '.join(map(str, sizes))}; expected 1 or more each"
    with pytest.raises(ValueError, match=message):
        SCORES[name](*sizes)


@pytest.mark.parametrize("name", EQUALLY_WIDE)
def test_scores_without_a_matrix_need_equal_widths(name: str) -> None:
    kind = SCORES[name]
    with pytest.raises(ValueError, match=f"d_query is 3 and d_key is 4; {kind.__name__} expects them to be equal"):
        kind(3, 4, 5)


def test_location_refuses_what_it_has_no_row_for() -> None:
    """The longest sentence passes, one word more does not; a subclass may know more places."""

    class Short(LocationScore):
        longest = 5

    score = Short(3, 4, 2)
    assert score(torch.randn(1, 2, 3), score.project(torch.randn(1, 5, 4))).shape == (1, 2, 5)
    with pytest.raises(ValueError, match="keys has 6 positions; this LocationScore has 5 at most"):
        score.project(torch.randn(1, 6, 4))
