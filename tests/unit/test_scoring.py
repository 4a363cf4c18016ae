"""The additive score against its formula, written as a loop over sentences, queries and keys."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tfbook.scoring import AdditiveScore

SIZE = st.integers(1, 4)


def _by_hand(score: AdditiveScore, query: Tensor, keys: Tensor) -> Tensor:
    """vᵀ tanh(W q + U k + b), one number at a time."""
    W, U, b, v = score.W.weight, score.U.weight, score.U.bias, score.v.weight[0]
    result = torch.empty(query.shape[0], query.shape[1], keys.shape[1], dtype=query.dtype)
    for i in range(query.shape[0]):
        for t, q in enumerate(query[i]):
            for j, k in enumerate(keys[i]):
                result[i, t, j] = v @ torch.tanh(W @ q + U @ k + b)
    return result


@given(batch=SIZE, queries=SIZE, keys=SIZE, d_query=SIZE, d_key=SIZE, d_score=SIZE)
def test_scores_are_the_formula(batch: int, queries: int, keys: int, d_query: int, d_key: int, d_score: int) -> None:
    """Every query against every key of its own sentence, in double precision."""
    score = AdditiveScore(d_query, d_key, d_score).double()
    q, k = torch.randn(batch, queries, d_query).double(), torch.randn(batch, keys, d_key).double()
    torch.testing.assert_close(score(q, score.project(k)), _by_hand(score, q, k), rtol=0, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    """With respect to queries, keys and all weights."""
    score = AdditiveScore(2, 3, 4).double()
    names, weights = zip(*score.named_parameters(), strict=True)

    def scores(query: Tensor, keys: Tensor, *values: Tensor) -> Tensor:
        replaced = dict(zip(names, values, strict=True))
        projected = torch.nn.functional.linear(keys, replaced["U.weight"], replaced["U.bias"])
        return torch.func.functional_call(score, replaced, (query, projected))

    inputs = [torch.randn(2, 2, 2), torch.randn(2, 3, 3), *weights]
    assert torch.autograd.gradcheck(scores, [x.detach().double().requires_grad_() for x in inputs])


@pytest.mark.parametrize("sizes", [(0, 2, 2), (2, -1, 2), (2, 2, 0)], ids=str)
def test_sizes_must_be_positive(sizes: tuple[int, int, int]) -> None:
    message = f"d_query, d_key, d_score are {', '.join(map(str, sizes))}; expected 1 or more each"
    with pytest.raises(ValueError, match=message):
        AdditiveScore(*sizes)
