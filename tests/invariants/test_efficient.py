"""The efficient implementations have the properties that implementations and layers must have, as far as masks go.

Their windows, blocks and buckets are far smaller than the texts, so that each leaves something out.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from tfbook.attention import Causal, Lengths, Mask, MultiHeadAttention, fastest, fused, softmax
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.base import EfficientAttention
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.block_sparse import BlockSparse
from tfbook.attention.efficient.linear import Linear
from tfbook.attention.efficient.lsh import Lsh
from tfbook.attention.efficient.performer import Performer
from tfbook.attention.efficient.tiled import Tiled
from tfbook.course.invariants import (
    TOLERANCE,
    attention_report,
    blocked_rows,
    dependence,
    future_leak,
    missing_gradients,
    padding_effect,
)

LENGTHS = torch.tensor([9, 5, 1, 7, 2, 3])
SCALES = [1, 8, 30]  # standard deviations of keys
MASKS = {
    "lengths": Lengths(torch.tensor([9, 0, 2])),
    "causal": Causal() & Lengths(torch.tensor([0, 0, 0])),
    "both": Lengths(torch.tensor([9, 4, 0])) & Causal(),
}


def strided(blocks: int) -> Tensor:
    """Each block sees itself and every second one."""
    number = torch.arange(blocks)
    return (number[:, None] - number) % 2 == 0


IMPLEMENTATIONS: dict[str, EfficientAttention] = {
    "banded": Banded(3, block=2),
    "block-sparse": BlockSparse(strided, block=2),
    "bigbird": BigBird(window=1, global_blocks=1, random_blocks=1, block=2),
    "tiled": Tiled(2),
    "shared lsh": Lsh(4, window=2, rounds=2),
    "separate lsh": Lsh(4, window=2, rounds=2, shared=False),
    "linear": Linear(chunk=2),
    "performer": Performer(8, chunk=2),
}
ALL_IN_SIGHT = {  # what leaves nothing out here, and so knows no positions
    "banded": Banded(9, block=2),
    "block-sparse": BlockSparse(lambda blocks: torch.ones(blocks, blocks, dtype=torch.bool), block=2),
    "bigbird": BigBird(window=9, block=2),
    "separate lsh": Lsh(4, window=9, rounds=2, shared=False),
    **{name: IMPLEMENTATIONS[name] for name in ("tiled", "linear", "performer")},
}
every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


@pytest.fixture
def x() -> Tensor:
    """Six sequences of nine positions, five of them padded."""
    return torch.randn(6, 9, 8)


def layer_with(implementation: EfficientAttention, scale: float = 1) -> MultiHeadAttention:
    """With dropout where the implementation has any, and one matrix for queries and keys where it reads no keys.

    For inputs of standard deviation 1, keys have the standard deviation `scale`.
    """
    layer = MultiHeadAttention(
        8, 2, implementation=implementation, dropout=0.3 if implementation.supports.dropout else 0.0
    )
    if isinstance(implementation, Lsh) and implementation.shared:
        layer.W_K = layer.W_Q
    layer.W_K.weight.data *= scale * math.sqrt(3)  # as initialized, their variance is 1/3
    return layer


@every_implementation
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_no_position_sees_a_later_one(
    implementation: EfficientAttention, scale: float, training: bool, x: Tensor
) -> None:
    """Through a whole layer, and with padding."""
    layer = layer_with(implementation, scale).train(training)
    for mask in (Causal(), Causal() & Lengths(LENGTHS)):

        def causal(changed: Tensor, mask: Mask = mask) -> Tensor:
            return layer(torch.where(changed[..., None] > 0, x + 1, x), mask=mask)

        assert future_leak(causal, torch.zeros(x.shape[:2], dtype=torch.int64), 2) <= TOLERANCE


@every_implementation
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_padding_changes_nothing(implementation: EfficientAttention, scale: float, causal: bool, x: Tensor) -> None:
    """Except the random blocks of a bidirectional BigBird, which are chosen from as many blocks as there are."""
    if isinstance(implementation, BigBird) and not causal:
        implementation = BigBird(window=1, random_blocks=0, block=2)
    layer = layer_with(implementation, scale).eval()
    padded = lambda x, n: layer(x, mask=Causal() & Lengths(n) if causal else Lengths(n))  # noqa: E731
    assert padding_effect(padded, x, LENGTHS) <= TOLERANCE


@every_implementation
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_query_that_may_attend_to_nothing_gets_zero(
    implementation: EfficientAttention, dtype: torch.dtype, mask: Mask
) -> None:
    """Exactly, and all gradients are finite; with dropout where there is any."""
    x = torch.randn(3, 2, 9, 4, dtype=dtype)

    def attend(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        return (
            implementation(q, k, v, **options) + 0 * k.sum()
        )  # not all implementations read k; a gradient is asked of it

    assert blocked_rows(attend, x, mask) == 0
    if implementation.supports.dropout:
        assert blocked_rows(attend, x, mask, dropout=0.5) == 0


@pytest.mark.parametrize("name", [*IMPLEMENTATIONS, "softmax", "fused", "fastest"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(0, 0), (0, 5), (3, 0)])
def test_without_queries_there_is_no_output_and_without_keys_it_is_zero(
    name: str, dtype: torch.dtype, queries: int, keys: int
) -> None:
    """In every implementation, also those that have no cache, and gradients are 0; d_value is not d_head."""
    attend = (IMPLEMENTATIONS | {"softmax": softmax, "fused": fused, "fastest": fastest})[name]
    q, k = (torch.randn(2, 2, time, 4, dtype=dtype, requires_grad=True) for time in (queries, keys))
    v = torch.randn(2, 2, keys, 6, dtype=dtype, requires_grad=True)
    masks = [None, Lengths(torch.tensor([keys, 0])), *([Causal()] if queries <= keys else [])]
    for mask in masks:
        output = attend(q, k, v, mask)
        assert output.shape == (2, 2, queries, 6)
        assert output.dtype == dtype
        assert not output.any()
        gradients = torch.autograd.grad(output.sum(), (q, k, v), allow_unused=True)
        assert not any(gradient.any() for gradient in gradients if gradient is not None)


@every_implementation
def test_what_depends_on_what_is_what_the_mask_says(implementation: EfficientAttention) -> None:
    """The implementation's own, where it has one: its pattern, in both directions; else the mask that it was given."""
    x = torch.randn(1, 9, 4, dtype=torch.float64)
    heads = x[:, None]
    for mask in (Causal(), Lengths(torch.tensor([6])), Causal() & Lengths(torch.tensor([6]))):
        found = dependence(lambda x, mask=mask: implementation(x[:, None], x[:, None], x[:, None], mask)[:, 0], x)
        used = implementation.mask(heads, heads, mask) if hasattr(implementation, "mask") else mask
        allowed = used.dense(9, 9).expand(1, 1, 9, 9)[0, 0]
        itself = torch.eye(9, dtype=torch.bool) & allowed.any(dim=-1)  # a query depends on its own vector
        assert not found[~(allowed | itself)].any()
        assert (found[allowed] > 1e-9).all()


@pytest.mark.parametrize("name", ["banded", "tiled", "linear", "performer"])
def test_a_newest_query_alone_gets_what_it_gets_among_all(name: str) -> None:
    """As in decoding with kept keys; the others say that they have no cache."""
    q, k, v = torch.randn(3, 2, 2, 9, 4)
    for mask in (Causal(), Causal() & Lengths(torch.tensor([9, 4]))):
        together = IMPLEMENTATIONS[name](q, k, v, mask)
        for last in (1, 4):
            torch.testing.assert_close(IMPLEMENTATIONS[name](q[:, :, -last:], k, v, mask), together[:, :, -last:])


@every_implementation
def test_every_parameter_gets_a_finite_gradient(implementation: EfficientAttention, x: Tensor, precision: str) -> None:
    """Under autocast, too."""
    mask = Causal() & Lengths(LENGTHS)

    def loss(layer: nn.Module) -> Tensor:
        return layer(x, mask=mask).float().square().mean()

    assert missing_gradients(layer_with(implementation), loss, without_effect={"W_K.bias"}) == 0


@pytest.mark.parametrize("implementation", ALL_IN_SIGHT.values(), ids=ALL_IN_SIGHT)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_layers_have_every_property(
    implementation: EfficientAttention, training: bool, x: Tensor, precision: str
) -> None:
    """All that are asked of dense attention; an implementation that approximates its weights has no record of them."""
    report = attention_report(layer_with(implementation).train(training), x, LENGTHS)
    recorded = {"weights are a convex combination", "what is recorded is what is applied"}
    assert recorded.issubset(report) == implementation.supports.exact
    assert len(report) == (10 if implementation.supports.exact else 8)
    assert {name: gap for name, gap in report.items() if not gap <= TOLERANCE} == {}


@pytest.mark.gpu
@every_implementation
def test_a_gpu_computes_the_same(implementation: EfficientAttention) -> None:
    """Forward and backward; a mask may be made on the CPU."""
    inputs = [torch.randn(3, 2, 9, 8, requires_grad=True) for _ in range(3)]
    there = [x.detach().cuda().requires_grad_() for x in inputs]
    for mask in (Causal(), Lengths(torch.tensor([9, 0, 2]))):
        outputs = implementation(*inputs, mask), implementation(*there, mask)
        torch.testing.assert_close(outputs[1].cpu(), outputs[0], atol=1e-4, rtol=1e-4)
        for output, used in zip(outputs, (inputs, there), strict=True):
            output.square().sum().backward(inputs=used)
        for here, other in zip(inputs, there, strict=True):
            assert (here.grad is None) == (other.grad is None)
            if here.grad is not None:
                torch.testing.assert_close(other.grad.cpu(), here.grad, atol=1e-3, rtol=1e-3)
