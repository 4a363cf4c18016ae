"""Masks against their definitions, one pair of positions at a time; the masked softmax against `torch.softmax`."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tfbook.attention import (
    Band,
    Both,
    Causal,
    Dense,
    Lengths,
    Mask,
    Prefix,
    masked_softmax,
    padding_mask,
    softmax as softmax_kernel,
)

# ---- padding -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 6), max_size=5))
def test_padding_mask_is_true_before_each_length(lengths: list[int]) -> None:
    """The definition, one position at a time."""
    mask = padding_mask(torch.tensor(lengths, dtype=torch.int64), 6)
    assert mask.tolist() == [[j < length for j in range(6)] for length in lengths]
    assert mask.dtype == torch.bool


@pytest.mark.usefixtures("unchecked")
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
        padding_mask(lengths, 6)


# ---- lazy masks --------------------------------------------------------------------------------------------------

positions = st.integers(1, 7).flatmap(lambda keys: st.tuples(st.integers(1, keys), st.just(keys)))


def _by_definition(queries: int, keys: int, rule: Callable[[int, int], bool]) -> list[list[bool]]:
    """The rule for every pair; query 0 stands at position keys − queries, so that the last query is the last key."""
    return [[rule(keys - queries + i, j) for j in range(keys)] for i in range(queries)]


@given(positions)
def test_causal_sees_no_later_key(sizes: tuple[int, int]) -> None:
    """With as many queries as keys and with fewer, which are then the last."""
    assert Causal().dense(*sizes).tolist() == _by_definition(*sizes, lambda i, j: j <= i)


@given(positions, st.integers(0, 8), st.integers(0, 8))
def test_a_band_sees_its_neighbours(sizes: tuple[int, int], before: int, after: int) -> None:
    """Wider than the sequence, too."""
    expected = _by_definition(*sizes, lambda i, j: i - before <= j <= i + after)
    assert Band(before, after).dense(*sizes).tolist() == expected


@given(positions, st.lists(st.integers(0, 7), min_size=1, max_size=3))
def test_lengths_see_the_words_of_their_own_sequence(sizes: tuple[int, int], lengths: list[int]) -> None:
    """Every query of the sequence the same ones; a length of 0 leaves none."""
    queries, keys = sizes
    lengths = [min(length, keys) for length in lengths]
    dense = Lengths(torch.tensor(lengths)).dense(queries, keys)
    assert dense.shape == (len(lengths), 1, 1, keys)
    everyone = dense.expand(len(lengths), 2, queries, keys)
    assert everyone.tolist() == [[[[j < n for j in range(keys)]] * queries] * 2 for n in lengths]


@given(positions, st.lists(st.integers(0, 7), min_size=1, max_size=3))
def test_a_prefix_is_read_both_ways_and_the_rest_is_causal(sizes: tuple[int, int], lengths: list[int]) -> None:
    """A prefix of 0 or 1 is no more than causal; one of all keys hides nothing."""
    lengths = [min(length, sizes[1]) for length in lengths]
    dense = Prefix(torch.tensor(lengths)).dense(*sizes)
    assert dense.tolist() == [[_by_definition(*sizes, lambda i, j, n=n: j <= i or j < n)] for n in lengths]


@given(positions, st.integers(0, 2**31))
def test_a_dense_mask_is_its_matrix(sizes: tuple[int, int], seed: int) -> None:
    allowed = torch.rand(sizes, generator=torch.Generator().manual_seed(seed)) < 0.5
    assert torch.equal(Dense(allowed).dense(*sizes), allowed)


@given(positions, st.integers(0, 8), st.integers(0, 7), st.integers(0, 7))
def test_and_allows_what_both_allow(sizes: tuple[int, int], before: int, first: int, second: int) -> None:
    """In any order and number; the shape broadcasts to (batch, head, query, key)."""
    keys = sizes[1]
    lengths = [min(first, keys), min(second, keys)]
    mask = Causal() & Lengths(torch.tensor(lengths)) & Band(before, 9)
    expected = [[_by_definition(*sizes, lambda i, j, n=n: j < n and i - before <= j <= i)] for n in lengths]
    assert mask.dense(*sizes).tolist() == expected
    swapped = Band(before, 9) & (Lengths(torch.tensor(lengths)) & Causal())
    assert torch.equal(swapped.dense(*sizes), mask.dense(*sizes))


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")], ids=str)
def test_a_matrix_is_boolean_and_on_the_device_that_is_asked_for(device: torch.device | str | None) -> None:
    masks = [
        Causal(),
        Band(1, 1),
        Lengths(torch.tensor([2])),
        Prefix(torch.tensor([2])),
        Dense(torch.ones(2, 3, dtype=torch.bool)),
    ]
    for mask in [*masks, masks[0] & masks[2]]:
        dense = mask.dense(2, 3, device)
        assert (dense.dtype, dense.device.type) == (torch.bool, "cpu")


def test_a_mask_is_a_rule_and_holds_no_matrix() -> None:
    """It may be made for a million positions: what it keeps is its two numbers, or one a sequence."""
    lengths = torch.tensor([10**6, 5])
    mask = Causal() & Band(10**6, 10**6) & Lengths(lengths)
    assert isinstance(mask, Both)
    assert _tensors(mask) == [lengths]
    assert Lengths(lengths).dense(1, 10**6).sum().item() == 10**6 + 5
    assert Causal().dense(1, 10**6).all(), "the newest query alone needs one row"


def _tensors(mask: Mask) -> list[Tensor]:
    held = [_tensors(value) if isinstance(value, Mask) else [value] for value in vars(mask).values()]
    return [value for values in held for value in values if isinstance(value, Tensor)]


def test_rules_of_numbers_are_values() -> None:
    """Equal when their numbers are, and usable as keys; a mask is never changed."""
    assert (Causal(), Band(2, 0)) == (Causal(), Band(2, 0))
    assert Band(2, 0) != Band(0, 2)
    assert len({Causal(), Causal(), Band(1, 1), Band(1, 1)}) == 2
    with pytest.raises(AttributeError, match="before"):
        Band(1, 1).before = 2


def test_a_mask_of_ones_own_is_a_class_with_one_method() -> None:
    """And every implementation that knows all masks takes it."""

    class Even(Mask):
        def dense(self, queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
            return (torch.arange(keys, device=device) % 2 == 0)[None]

    q = torch.randn(1, 1, 4, 2)
    both = Even() & Causal()
    assert both.dense(3, 4).int().tolist() == [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]
    torch.testing.assert_close(softmax_kernel(q, q, q, both), softmax_kernel(q, q, q, both.dense(4, 4)))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Band(-1, 2), ValueError, "before and after are -1 and 2; expected 0 or more each"),
        (lambda: Band(2, -1), ValueError, "before and after are 2 and -1; expected 0 or more each"),
        (
            lambda: Causal().dense(3, 2),
            ValueError,
            "there are 3 queries and 2 keys; a mask by position expects queries ≤ keys",
        ),
        (lambda: Band(1, 1).dense(3, 2), ValueError, "there are 3 queries and 2 keys"),
        (lambda: Lengths(torch.tensor([3])).dense(1, 2), ValueError, "lengths run from 3 to 3; expected 0 to size = 2"),
        (lambda: Mask().dense(1, 1), NotImplementedError, "^$"),
    ],
    ids=["before", "after", "causal", "band", "lengths", "no rule"],
)
def test_a_mask_says_what_does_not_fit(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("values", [torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int64)], ids=["floats", "integers"])
def test_a_dense_mask_of_numbers_is_refused(values: Tensor) -> None:
    """Ones and zeros, or zeros and minus infinities: neither says which of them means blocked."""
    message = f"mask has dtype {values.dtype}; expected torch.bool, where True means 'may attend'"
    with pytest.raises(TypeError, match=message):
        Dense(values)
    q = torch.ones(1, 1, 2, 3)
    with pytest.raises(TypeError, match=message):
        softmax_kernel(q, q, q, values)


# ---- the masked softmax ------------------------------------------------------------------------------------------


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


@pytest.mark.usefixtures("unchecked")
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
        masked_softmax(scores, mask)


def test_a_mask_and_a_boolean_tensor_are_combined() -> None:
    allowed = torch.tensor([[True, False, True]] * 3)
    assert torch.equal((Causal() & allowed).dense(3, 3), Causal().dense(3, 3) & allowed)


def test_a_mask_as_a_bias_is_computed_once() -> None:
    mask = Dense(torch.tensor([[True, False], [True, True]]))
    bias = mask.added(torch.bfloat16)
    assert bias.dtype == torch.bfloat16
    assert bias.tolist() == [[0, -torch.inf], [0, 0]]
    assert mask.added(torch.bfloat16) is bias
    assert mask.added(torch.float32).dtype == torch.float32
