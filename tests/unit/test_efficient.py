"""The efficient implementations that are exact: each against dense attention under the mask that it says it has."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tfbook.attention import (
    LOWEST,
    POSITIONS,
    Band,
    Causal,
    Dense,
    Lengths,
    Mask,
    MultiHeadAttention,
    fastest,
    record,
    softmax,
)
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.base import EfficientAttention, Visibility
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.block_sparse import Blocks, BlockSparse, similar_rows
from tfbook.attention.efficient.linear import Linear
from tfbook.attention.efficient.lsh import Lsh
from tfbook.attention.efficient.performer import Performer
from tfbook.attention.efficient.tiled import Tiled, online_softmax
from tfbook.course.cost import exponent, peak_memory
from tfbook.models.blocks import Config, alternate
from tfbook.models.language_model import LanguageModel

TOLERANCES = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


def random_pattern(blocks: int, seed: int = 0) -> Tensor:
    """Some rows of it may be empty."""
    return torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(seed)) < 0.4


def everything(blocks: int) -> Tensor:
    return torch.ones(blocks, blocks, dtype=torch.bool)


EXACT: dict[str, EfficientAttention] = {
    "banded": Banded(3, block=2),
    "block-sparse": BlockSparse(random_pattern, block=2),
    "bigbird": BigBird(window=1, global_blocks=1, random_blocks=1, block=2),
    "tiled": Tiled(2),
}
IMPLEMENTATIONS = EXACT | {
    "lsh": Lsh(4, window=3, rounds=2, shared=False),
    "linear": Linear(chunk=2),
    "performer": Performer(8),
}
every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
every_exact_implementation = pytest.mark.parametrize("implementation", EXACT.values(), ids=EXACT)


def its_mask(implementation: EfficientAttention, q: Tensor, k: Tensor, mask: Mask | None) -> Mask | None:
    """What dense attention needs to compute the same."""
    return implementation.mask(q, k, mask) if hasattr(implementation, "mask") else mask


# ---- exactness ---------------------------------------------------------------------------------------------------


@st.composite
def exact_implementations(draw: st.DrawFn) -> EfficientAttention:
    """Any settings; windows and blocks may be longer than the text."""
    block, seed = draw(st.integers(1, 9)), draw(st.integers(0, 99))
    few = st.integers(0, 2)
    kind = draw(st.sampled_from(list(EXACT)))
    if kind == "banded":
        return Banded(draw(st.integers(1, 30)), block)
    if kind == "block-sparse":
        return BlockSparse(partial(random_pattern, seed=seed), block)
    if kind == "tiled":
        return Tiled(block)
    return BigBird(2 * draw(few) + 1, draw(few), draw(few), block, seed)


class Case(NamedTuple):
    """An implementation and what it is given."""

    implementation: EfficientAttention
    q: Tensor  # (batch, head, query, d_head)
    k: Tensor  # (batch, head, key, d_head)
    v: Tensor  # (batch, head, key, d_value)
    mask: Mask | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Texts of any length, 1 among them; where the implementation allows it with fewer queries than keys."""
    implementation = draw(exact_implementations())
    batch, head, query, d_head, d_value = (draw(st.integers(1, n)) for n in (2, 2, 25, 4, 3))
    key = query + (draw(st.integers(0, 5)) if isinstance(implementation, Banded | Tiled) else 0)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    normal = partial(torch.randn, batch, head, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = torch.randint(key + 1, (batch,), generator=generator)
    masks = [None, Causal(), Lengths(lengths), Causal() & Lengths(lengths)]
    if Band in implementation.supports.masks:
        masks += [Band(2, 1), Band(0, 7) & Lengths(lengths)]
    return Case(
        implementation, normal(query, d_head), normal(key, d_head), normal(key, d_value), draw(st.sampled_from(masks))
    )


def _gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """For a loss that weighs every entry of the output differently."""
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output)
    return torch.autograd.grad((output.double() * weights).sum(), inputs)


@given(cases())
@settings(max_examples=120)
def test_exact_implementations_compute_dense_attention_under_their_mask(case: Case) -> None:
    """In double precision, outputs and gradients."""
    implementation, q, k, v, mask = case
    expected = softmax(q, k, v, its_mask(implementation, q, k, mask))
    output = implementation(q, k, v, mask)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(_gradients(output, q, k, v), _gradients(expected, q, k, v), atol=1e-11, rtol=1e-8)


@every_exact_implementation
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_exact_implementations_agree_to_the_precision_of_their_inputs(
    implementation: EfficientAttention, dtype: torch.dtype
) -> None:
    """With the definition in double precision on the same, rounded numbers; output and gradients keep the dtype."""
    inputs = [torch.randn(2, 2, 70, 8).to(dtype).requires_grad_() for _ in range(3)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    mask = Causal() & Lengths(torch.tensor([70, 40]))
    output, expected = implementation(*inputs, mask), softmax(*exact, its_mask(implementation, *exact[:2], mask))
    assert output.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(output.double(), expected, atol=tolerance, rtol=tolerance)
    for found, wanted in zip(_gradients(output, *inputs), _gradients(expected, *exact), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), wanted, atol=8 * tolerance, rtol=8 * tolerance)


@every_implementation
def test_scores_in_the_hundreds_neither_overflow_nor_vanish(implementation: EfficientAttention) -> None:
    """In float32, where exp(100) is infinite."""
    q, k, v = (30 * torch.randn(3, 1, 2, 20, 4)).unbind()
    q.requires_grad_()
    output = implementation(q, k, v, Causal())
    assert output.isfinite().all()
    assert torch.autograd.grad(output.square().sum(), q)[0].isfinite().all()
    if implementation.supports.exact:
        torch.testing.assert_close(
            output, softmax(q, k, v, its_mask(implementation, q, k, Causal())), atol=1e-3, rtol=1e-3
        )


@every_implementation
def test_layers_may_pass_their_transposed_views(implementation: EfficientAttention) -> None:
    """Heads are split without a copy, so positions are not neighbors in memory."""
    x = torch.randn(2, 7, 3, 4, dtype=torch.float64)
    view, copy = x.transpose(1, 2), x.transpose(1, 2).contiguous()
    torch.testing.assert_close(implementation(view, view, view, Causal()), implementation(copy, copy, copy, Causal()))


# ---- the masks themselves ----------------------------------------------------------------------------------------


def test_a_band_is_a_token_and_those_before_it_or_as_many_on_each_side() -> None:
    q = torch.ones(1, 1, 6, 1)
    ones = torch.ones(6, 6, dtype=torch.bool)
    assert torch.equal(Banded(3).mask(q, q).dense(6, 6), ones.tril(2).triu(-2))
    assert torch.equal(Banded(3).mask(q, q, Causal()).dense(6, 6), ones.tril().triu(-2))
    assert Banded(3).mask(q, q) == Band(2, 2)


def test_a_layout_becomes_squares() -> None:
    layout = torch.tensor([[True, False], [True, True]])
    expected = [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert Blocks(layout, 2).dense(3, 3).int().tolist() == expected
    assert Blocks(layout, 2).dense(1, 3).int().tolist() == expected[-1:], "the last query alone"


@pytest.mark.parametrize("causal", [False, True])
def test_bigbird_sees_its_window_global_blocks_and_random_blocks(causal: bool) -> None:
    """Each row has its window, the first columns, and as many random others as it asks for, where there are as many."""
    layout = BigBird(window=3, global_blocks=2, random_blocks=3).layout(20, causal)
    layout = layout.tril() if causal else layout
    ones = torch.ones(20, 20, dtype=torch.bool)
    in_window, is_global = ones.tril(1).triu(-1), torch.arange(20) < 2
    known = in_window | is_global | is_global[:, None]
    known = known.tril() if causal else known
    assert layout[known].all()
    others = (layout & ~known).sum(dim=1)
    free = (ones.tril() if causal else ones).sum(dim=1) - known.sum(dim=1)
    assert torch.equal(others, free.clamp(max=3))
    assert layout[:2].all() != causal, "the first two rows see all, as far as they may"


def test_the_random_blocks_of_a_causal_bigbird_do_not_depend_on_the_length() -> None:
    """Otherwise a text would change its past by growing. Another seed gives others."""
    long, short = (BigBird().layout(blocks, True).tril() for blocks in (24, 17))
    assert torch.equal(long[:17, :17], short)
    assert not torch.equal(BigBird(seed=1).layout(24, True).tril(), long)


@given(st.integers(1, 12), st.integers(0, 999))
def test_similar_rows_list_every_pair_once(blocks: int, seed: int) -> None:
    layout = random_pattern(blocks, seed)
    again = torch.zeros_like(layout)
    for rows, lists in similar_rows(layout):
        for row, listed in zip(rows.tolist(), lists.tolist(), strict=True):
            assert not again[row].any(), "each row is in one group"
            again[row, [number for number in listed if number >= 0]] = True
    assert torch.equal(again, layout)


def test_a_row_that_sees_everything_does_not_lengthen_the_lists_of_the_others() -> None:
    groups = dict(enumerate(similar_rows(BigBird(window=3, global_blocks=1, random_blocks=2).layout(64, False))))
    assert [lists.shape for _, lists in groups.values()] == [(63, 6), (1, 64)]


def test_what_is_recorded_is_under_the_band() -> None:
    """Although the layer's mask allows more; a record inside a record, too."""
    layer, x = MultiHeadAttention(8, 2, implementation=Banded(2)), torch.randn(1, 5, 8)
    with record(layer) as outer, record(layer) as inner:
        layer(x, mask=Causal())
    assert not outer
    with record(layer) as weights:
        layer(x, mask=Causal())
    for found in (weights, inner):
        assert torch.equal(found[""][0, 0] > 0, torch.ones(5, 5).tril().triu(-1) > 0)


# ---- online softmax ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 999))
def test_online_softmax_needs_each_tile_once(widths: list[int], seed: int) -> None:
    """However the keys are cut, the mixture and the logarithm of the sum are those of one softmax over all."""
    generator = torch.Generator().manual_seed(seed)
    scores = 10 * torch.randn(3, sum(widths), generator=generator, dtype=torch.float64)
    values = torch.randn(sum(widths), 2, generator=generator, dtype=torch.float64)
    tiles = zip(scores.split(widths, dim=1), values.split(widths), strict=True)
    mixture, normalizer = online_softmax(iter(tiles))
    torch.testing.assert_close(mixture, scores.softmax(dim=-1) @ values)
    torch.testing.assert_close(normalizer, scores.logsumexp(dim=-1, keepdim=True))


def test_online_softmax_by_hand() -> None:
    """Scores ln 1, ln 3 | ln 4 with values 0, 8 | 2: (24 + 8) / 8 = 4. A higher score comes last."""
    tiles = [
        (torch.tensor([[0.0, math.log(3)]]), torch.tensor([[0.0], [8.0]])),
        (torch.tensor([[math.log(4)]]), torch.tensor([[2.0]])),
    ]
    mixture, normalizer = online_softmax(tiles)
    torch.testing.assert_close(mixture, torch.tensor([[4.0]]))
    torch.testing.assert_close(normalizer, torch.tensor([[math.log(8)]]))


def test_online_softmax_of_blocked_scores_is_zero() -> None:
    """In all tiles, or in the first ones: whatever came before a key that counts has no weight."""
    blocked, values = torch.full((1, 2), LOWEST), torch.ones(2, 3)
    mixture, normalizer = online_softmax([(blocked, values)] * 2)
    assert mixture.tolist() == [[0.0] * 3]
    assert normalizer.tolist() == [[0.0]]
    mixture, normalizer = online_softmax([(blocked, values), (torch.tensor([[-500.0, LOWEST]]), 7 * values)])
    assert mixture.tolist() == [[7.0] * 3]
    assert normalizer.tolist() == [[-500.0]]


def test_online_softmax_of_nothing() -> None:
    with pytest.raises(ValueError, match="tiles is empty; expected one or more pairs of scores and values"):
        online_softmax([])


# ---- what is supported -------------------------------------------------------------------------------------------

X = torch.ones(2, 1, 6, 4)


@every_implementation
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": Dense(torch.ones(6, 6, dtype=torch.bool))}, "masks; got Dense"),
        ({"mask": Causal() & torch.ones(6, 6, dtype=torch.bool)}, "masks; got Dense"),
        ({"bias": torch.zeros(6, 6)}, "supports no bias on the scores"),
    ],
    ids=["mask", "half of a mask", "bias"],
)
def test_what_an_implementation_does_not_support_it_refuses(
    implementation: EfficientAttention, options: dict[str, object], message: str
) -> None:
    with pytest.raises(NotImplementedError, match=f"the implementation {type(implementation).__name__} .*{message}"):
        implementation(X, X, X, **options)


@every_implementation
def test_bands_and_dropout_are_refused_or_have_their_effect(implementation: EfficientAttention) -> None:
    name, x = type(implementation).__name__, torch.randn(1, 1, 8, 4)
    if implementation.supports.dropout:
        torch.manual_seed(0)
        assert (implementation(x, x, torch.eye(8)[None, None], dropout=0.9) == 0).float().mean() > 0.8
    else:
        with pytest.raises(NotImplementedError, match=f"the implementation {name} supports no dropout; got 0.1"):
            implementation(x, x, x, dropout=0.1)
    if Band in implementation.supports.masks:
        assert not torch.equal(implementation(x, x, x, Band(1, 0)), implementation(x, x, x, Causal()))
    else:
        with pytest.raises(
            NotImplementedError, match=f"the implementation {name} supports Causal and Lengths masks; got Band"
        ):
            implementation(x, x, x, Band(1, 0))


@pytest.mark.parametrize(
    "implementation",
    [BigBird(), BlockSparse(everything), Lsh()],
    ids=lambda implementation: type(implementation).__name__,
)
def test_implementations_without_a_cache_say_so(implementation: EfficientAttention) -> None:
    name = type(implementation).__name__
    message = f"the implementation {name} got 2 queries and 6 keys; expected as many of both: it has no cache"
    with pytest.raises(ValueError, match=message):
        implementation(X[:, :, :2], X, X, Causal())


@every_implementation
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("inputs", "mask", "message"),
    [
        ((X[0], X, X), None, r"q has shape \(1, 6, 4\); expected \(batch, head, position, width\)"),
        ((X, X[..., :3], X), None, r"k has shape \(2, 1, 6, 3\); expected batch, heads and d_head of q"),
        ((X, X, X[:, :, :5]), None, r"v has shape \(2, 1, 5, 4\); expected batch, heads and positions of k"),
        ((X, X, X), Lengths(torch.tensor([1, 2, 3])), "mask holds 3 lengths; expected one for each of 2 sequences"),
        ((X, X, X), Lengths(torch.tensor([1, 9])), "lengths run from 1 to 9; expected 0 to size = 6"),
    ],
    ids=["axes", "width", "length", "too many lengths", "too long"],
)
def test_implementations_name_the_argument_that_does_not_fit(
    implementation: EfficientAttention, inputs: tuple[Tensor, ...], mask: Mask | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        implementation(*inputs, mask)


@pytest.mark.parametrize(
    "implementation", [Banded(2), Tiled(), Linear()], ids=lambda implementation: type(implementation).__name__
)
def test_a_mask_by_position_expects_the_queries_to_be_the_last_keys(implementation: EfficientAttention) -> None:
    with pytest.raises(ValueError, match="there are 6 queries and 4 keys; a mask by position expects queries ≤ keys"):
        implementation(X, X[:, :, :4], X[:, :, :4], Causal())


@pytest.mark.parametrize(
    "implementation", [Tiled(2), Linear(), Performer(8)], ids=lambda implementation: type(implementation).__name__
)
def test_without_positions_there_may_be_more_queries_than_keys(implementation: EfficientAttention) -> None:
    """As in cross-attention: each query is answered as it is alone."""
    q, k = torch.randn(2, 3, 9, 4), torch.randn(2, 3, 4, 4)
    mask = Lengths(torch.tensor([4, 2]))
    alone = torch.cat([implementation(one, k, k, mask) for one in q.split(1, dim=2)], dim=2)
    torch.testing.assert_close(implementation(q, k, k, mask), alone)


def test_a_kind_of_causal_is_refused_since_nobody_knows_what_it_means() -> None:
    class Strict(Causal):
        """Not itself."""

    message = "mask is a Strict, whose rule is unknown; known are Causal, Band, Lengths, Both"
    with pytest.raises(NotImplementedError, match=message):
        Banded(2)(X, X, X, Strict())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Banded(0), "window is 0; expected 1 or more"),
        (lambda: Banded(1, block=0), "block is 0; expected 1 or more"),
        (lambda: Tiled(0), "tile is 0; expected 1 or more"),
        (lambda: Linear(chunk=0), "chunk is 0; expected 1 or more"),
        (lambda: Performer(0), "features is 0; expected 1 or more"),
        (lambda: BlockSparse(everything, 0), "block is 0; expected 1 or more"),
        (lambda: BigBird(window=2), "window is 2; expected an odd number of blocks"),
        (lambda: BigBird(random_blocks=-1), "global_blocks and random_blocks are 1 and -1; expected 0 or more each"),
        (lambda: Lsh(rounds=0), "rounds is 0; expected 1 or more"),
        (lambda: Lsh(3), "buckets is 3; expected an even number"),
        (lambda: BlockSparse(lambda n: torch.ones(n, n), 2)(X, X, X), r"pattern\(3\) has .* dtype torch.float32"),
        (lambda: BlockSparse(lambda n: everything(2), 2)(X, X, X), r"pattern\(3\) has shape \(2, 2\).* of 3 × 3"),
        (lambda: alternate(LanguageModel(5, Config()).stack), "implementations is empty; expected one or more"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_visibility_is_the_narrowest_of_the_rules() -> None:
    q, lengths = torch.ones(2, 1, 3, 4), (torch.tensor([5, 2]), torch.tensor([3, 4]))
    seen = Visibility.of(
        Band(3, 2) & Causal() & Lengths(lengths[0]) & (Band(1, 9) & Lengths(lengths[1])), q, torch.ones(2, 1, 5, 4)
    )
    assert (seen.queries, seen.keys, seen.start, seen.before, seen.after, seen.causal) == (3, 5, 2, 1, 0, True)
    assert seen.lengths.tolist() == [3, 2]


# ---- what it costs -----------------------------------------------------------------------------------------------

LINEAR_MEMORY = {
    "banded": Banded(32, block=32),
    "block-sparse": BlockSparse(lambda n: torch.eye(n, dtype=torch.bool), 32),
    "bigbird": BigBird(block=32),
    "tiled": Tiled(64),
    "lsh": Lsh(window=16, rounds=2),
    "linear": Linear(chunk=32),
    "performer": Performer(16, chunk=32),
}


@pytest.mark.parametrize("implementation", LINEAR_MEMORY.values(), ids=LINEAR_MEMORY)
def test_memory_grows_as_the_length(implementation: EfficientAttention) -> None:
    """Forward and backward, the exponent over three doublings; that of written-out attention is near 2."""
    lengths = [256, 512, 1024, 2048]

    def peak(implementation: Callable[..., Tensor], n: int) -> int:
        x = torch.randn(1, 1, n, 8, requires_grad=True)
        return peak_memory(lambda: implementation(x, x, x, Causal()).sum().backward())

    assert exponent(lengths, [peak(implementation, n) for n in lengths]) < 1.15
    if isinstance(implementation, Banded):
        assert exponent(lengths[:3], [peak(softmax, n) for n in lengths[:3]]) > 1.8


def test_peak_memory_counts_what_is_held_at_once() -> None:
    """Two vectors at the same time, then one alone, and a few bytes for the number 1; nothing for no tensors."""

    def run() -> None:
        first = torch.ones(1000)
        second = first + 1
        del first
        second.add_(1)
        torch.ones(100)

    assert 8000 <= peak_memory(run) < 8050
    assert peak_memory(lambda: None) == 0


# ---- layers ------------------------------------------------------------------------------------------------------


def test_layers_take_the_implementations_in_turn() -> None:
    """Dense and banded, as in GPT-3; the model then computes what masks say that it does."""
    model = LanguageModel(9, Config(d_model=8, heads=2, d_ff=8, layers=3, position=POSITIONS["none"]))
    banded = Banded(2)
    assert alternate(model.stack, fastest, banded) is model.stack
    assert [block.mixer.branch.implementation for block in model.stack.blocks] == [fastest, banded, fastest]
    ids = torch.randint(9, (1, 6))
    with record(model) as maps:
        recorded = model(ids)
    seen = [(weights[0, 0] > 0).sum().item() for weights in maps.values()]
    assert seen == [21, 11, 21]
    torch.testing.assert_close(model(ids), recorded)


@pytest.mark.parametrize("window", [1, 3, 5, 9])
def test_bigbirds_window_reaches_half_of_it_to_each_side(window: int) -> None:
    """(window − 1) / 2 blocks before and after, and itself (Zaheer et al., 2020, section 2)."""
    number = torch.arange(12)
    near = 2 * (number[:, None] - number).abs() <= window - 1
    assert torch.equal(BigBird(window=window, global_blocks=0, random_blocks=0).layout(12, causal=False), near)
