"""Masks and the masked softmax against loops and `torch.softmax`."""

import itertools
from inspect import unwrap  # past the tests' run-time check of signatures, to the error that a reader gets

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tfbook.attention import masked_softmax, padding_mask


@given(st.lists(st.integers(0, 6), max_size=5))
def test_padding_mask_is_true_before_each_length(lengths: list[int]) -> None:
    """The definition, one position at a time."""
    mask = padding_mask(torch.tensor(lengths, dtype=torch.int64), 6)
    assert mask.tolist() == [[j < length for j in range(6)] for length in lengths]
    assert mask.dtype == torch.bool


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([3, 7]), "lengths run from 3 to 7; expected 0 to size = 6"),
        (torch.tensor([-1, 2]), "lengths run from -1 to 2; expected 0 to size = 6"),
        (torch.tensor([[1, 2]]), r"lengths has shape \(1, 2\), torch.int64; expected one integer for each row"),
        (torch.tensor([1.0]), r"lengths has shape \(1,\), torch.float32; expected one integer for each row"),
    ],
    ids=["too long", "negative", "two-dimensional", "not integers"],
)
def test_padding_mask_refuses_impossible_lengths(lengths: Tensor, message: str) -> None:
    """A length that does not fit would otherwise show up as a mask without padding, or with too much."""
    with pytest.raises(ValueError, match=message):
        unwrap(padding_mask)(lengths, 6)


def _scores_and_mask(shape: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Random scores and a mask in which every row allows at least one key."""
    generator = torch.Generator().manual_seed(seed)
    scores = 5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.rand(shape, generator=generator) < 0.5
    mask.scatter_(-1, torch.randint(shape[-1], [*shape[:-1], 1], generator=generator), True)
    return scores, mask


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**31))
def test_masked_softmax_is_the_softmax_of_minus_infinity(shape: list[int], seed: int) -> None:
    """In any number of dimensions, where every row has a key to attend to."""
    scores, mask = _scores_and_mask(shape, seed)
    torch.testing.assert_close(masked_softmax(scores, mask), scores.masked_fill(~mask, -torch.inf).softmax(dim=-1))


def test_masked_softmax_without_a_mask_is_the_softmax() -> None:
    scores = torch.randn(2, 3)
    torch.testing.assert_close(masked_softmax(scores, None), scores.softmax(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e4], ids=["small", "large"])
def test_a_blocked_row_has_weights_zero_and_finite_gradients(dtype: torch.dtype, size: float) -> None:
    """However low the scores of the others are; and no NaN on the way, which would set off PyTorch's search for it."""
    scores = (size * (torch.rand(3, 4) - 4)).to(dtype).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype
    assert not weights[~mask].any()
    torch.testing.assert_close(weights.float().sum(dim=-1), torch.tensor([1.0, 0.0, 1.0]), atol=1e-2, rtol=0)
    with torch.autograd.set_detect_anomaly(True):
        (weights * torch.arange(4)).sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[~mask].any()


def test_gradients_of_the_masked_softmax_are_those_of_finite_differences() -> None:
    """In double precision, a blocked row among the others."""
    scores, mask = _scores_and_mask([2, 3, 4], seed=0)
    mask[0, 1] = False
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, mask), scores.requires_grad_())


@pytest.mark.parametrize("axes", list(itertools.product([1, None], repeat=3)), ids=str)
def test_the_mask_broadcasts_over_axes_of_size_one(axes: tuple[int | None, ...]) -> None:
    """As (batch, 1, key) does over the queries; the same as the mask written out."""
    scores = torch.randn(2, 3, 4)
    small = torch.rand([axis or size for axis, size in zip(axes, scores.shape, strict=True)]) < 0.7
    expected = masked_softmax(scores, small.expand_as(scores).contiguous())
    torch.testing.assert_close(masked_softmax(scores, small), expected, rtol=0, atol=0)
    if axes[0] == 1:
        torch.testing.assert_close(masked_softmax(scores, small[0]), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("scores", "mask", "error", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), TypeError, r"mask has dtype torch.float32; expected torch.bool"),
        (
            torch.ones(2, 3),
            torch.ones(2, 2, dtype=torch.bool),
            ValueError,
            r"mask has shape \(2, 2\); expected one that broadcasts to scores, \(2, 3\)",
        ),
        (
            torch.ones(3),
            torch.ones(2, 3, dtype=torch.bool),
            ValueError,
            r"mask has shape \(2, 3\); expected one that broadcasts to scores, \(3,\)",
        ),
        (torch.ones(2, 3, dtype=torch.int64), None, TypeError, "scores has dtype torch.int64"),
    ],
    ids=["mask of numbers", "other keys", "more axes than the scores", "scores of integers"],
)
def test_masked_softmax_names_the_argument_that_does_not_fit(
    scores: Tensor, mask: Tensor | None, error: type[Exception], message: str
) -> None:
    """A mask that broadcasts the scores to a larger shape is refused, too: it is the classic silent mistake."""
    with pytest.raises(error, match=message):
        unwrap(masked_softmax)(scores, mask)
